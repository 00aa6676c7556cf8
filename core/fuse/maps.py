"""Index maps: which element of an array each point of an iteration space reads.

A `Space` has dimensions with sizes. A map has one `Affine` per axis of the array: an
offset plus a sum of coefficient times dimension. Views (reshape, transpose, slice…) are
carried through maps, so none of them ever moves data. A reshape may have to split a
dimension of the space into an outer and an inner one; all maps of the space follow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from treadle.ir.graph import Equation


class Affine(NamedTuple):
    """``offset + sum(coefficient * dimension)``; terms are (dimension, coefficient)."""

    offset: int = 0
    terms: tuple[tuple[int, int], ...] = ()


Map = tuple[Affine, ...]
ZERO = Affine()


class NoMap(Exception):
    """There is no affine map of the wanted kind."""


class Space:
    """The dimensions of a loop nest. Dimensions of size 1 are not represented."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.maps: dict[Any, Map] = {}
        self.frozen: set[int] = set()

    def dimension(self, size: int) -> Affine:
        """The index along a new dimension."""
        if size == 1:
            return ZERO
        name = max(self.sizes, default=-1) + 1
        self.sizes[name] = size
        return Affine(0, ((name, 1),))

    def copy(self) -> Space:
        other = Space()
        other.sizes, other.maps = dict(self.sizes), dict(self.maps)
        other.frozen = set(self.frozen)
        return other

    def split(self, name: int, inner: int) -> None:
        """Replaces a dimension by an outer one (keeping the name) and a new inner."""
        if name in self.frozen:
            raise NoMap
        size = self.sizes[name]
        self.sizes[name] = size // inner
        new = max(self.sizes) + 1
        self.sizes[new] = inner

        def rename(a: Affine) -> Affine:
            terms: list[tuple[int, int]] = []
            for d, c in a.terms:
                terms += [(d, c * inner), (new, c)] if d == name else [(d, c)]
            return Affine(a.offset, tuple(terms))

        self.maps = {k: tuple(map(rename, m)) for k, m in self.maps.items()}

    def reshape(self, key: Any, shape: Sequence[int], new_shape: Sequence[int]) -> None:
        """Rewrites ``maps[key]`` from indices of one shape to those of another."""
        if 0 in shape:
            # There is no element to find.
            self.maps[key] = (ZERO,) * len(new_shape)
            return
        out: list[Affine] = []
        for old, new in _groups(shape, new_shape):
            target = [new_shape[j] for j in new]
            big = [n for n in target if n != 1]
            entries = [(self.maps[key][i], shape[i]) for i in old if shape[i] != 1]
            digits = self._digits(key, old, shape, entries, big)
            given = iter(digits)
            out += [next(given) if n != 1 else ZERO for n in target]
        self.maps[key] = tuple(out)

    def _digits(
        self, key: Any, old: Sequence[int], shape: Sequence[int], entries: Any, big: Any
    ) -> list[Affine]:
        if [n for _, n in entries] == big:
            return [a for a, _ in entries]
        while True:
            entries = [(self.maps[key][i], shape[i]) for i in old if shape[i] != 1]
            linear = _linear(entries)
            if len(big) <= 1:
                return [linear] * len(big)
            result = self._take_digits(linear, big)
            if result is not None:
                return result

    def _take_digits(self, linear: Affine, sizes: Sequence[int]) -> list[Affine] | None:
        """The mixed-radix digits of an affine index; None after splitting a dimension
        (the caller must begin again)."""
        if linear.offset:
            raise NoMap
        digits: list[list[tuple[int, int]]] = [[] for _ in sizes]
        used = [0] * len(sizes)
        strides = [math.prod(sizes[j + 1 :]) for j in range(len(sizes))]
        for d, c in linear.terms:
            if c <= 0:
                raise NoMap
            j = next((j for j, s in enumerate(strides) if c % s == 0 and c >= s), None)
            if j is None:
                raise NoMap
            step, limit = c // strides[j], sizes[j]
            reach = step * self.sizes[d]
            if reach > limit:
                # The dimension runs over into the next digit: cut it there.
                if limit % step or self.sizes[d] % (limit // step):
                    raise NoMap
                self.split(d, limit // step)
                return None
            used[j] += step * (self.sizes[d] - 1)
            digits[j].append((d, step))
        if any(u >= n for u, n in zip(used, sizes, strict=True)):
            raise NoMap
        return [Affine(0, tuple(terms)) for terms in digits]

    def forward(self, key: Any, eq: Equation) -> None:
        """Rewrites ``maps[key]`` from indices of a view's result to its operand's."""
        shape, result = eq.inputs[0].type.shape, eq.outputs[0].type.shape
        entries, name = self.maps[key], eq.op.name
        if name == "broadcast_in_dim":
            dims = eq.params["dims"]
            self.maps[key] = tuple(
                ZERO if n == 1 else entries[d] for n, d in zip(shape, dims, strict=True)
            )
        elif name == "reshape":
            self.reshape(key, result, shape)
        elif name == "transpose":
            order = eq.params["permutation"]
            self.maps[key] = tuple(entries[order.index(i)] for i in range(len(order)))
        elif name == "slice":
            starts, steps = eq.params["starts"], eq.params["steps"]
            self.maps[key] = tuple(
                shifted(scaled(a, step), start)
                for a, start, step in zip(entries, starts, steps, strict=True)
            )
        elif name == "reverse":
            axes = eq.params["axes"]
            self.maps[key] = tuple(
                shifted(scaled(a, -1), n - 1) if i in axes and n > 1 else a
                for i, (a, n) in enumerate(zip(entries, shape, strict=True))
            )
        else:
            raise NoMap

    def backward(self, key: Any, eq: Equation) -> list[int]:
        """Rewrites ``maps[key]`` from indices of a view's operand to its result's.

        Returns the axes of the result about which the operand says nothing (new axes of
        a broadcast): their entries are ZERO.
        """
        shape, result = eq.inputs[0].type.shape, eq.outputs[0].type.shape
        entries, name = self.maps[key], eq.op.name
        if name == "broadcast_in_dim":
            dims = eq.params["dims"]
            known = {
                d: a
                for d, a, n in zip(dims, entries, shape, strict=True)
                if n == result[d]
            }
            self.maps[key] = tuple(known.get(d, ZERO) for d in range(len(result)))
            return [d for d, n in enumerate(result) if d not in known and n != 1]
        if name == "reshape":
            self.reshape(key, shape, result)
        elif name == "transpose":
            self.maps[key] = tuple(entries[p] for p in eq.params["permutation"])
        else:
            raise NoMap
        return []


def scaled(a: Affine, factor: int) -> Affine:
    return Affine(a.offset * factor, tuple((d, c * factor) for d, c in a.terms))


def shifted(a: Affine, offset: int) -> Affine:
    return Affine(a.offset + offset, a.terms)


def _linear(entries: Iterable[tuple[Affine, int]]) -> Affine:
    """The row-major index of several axes."""
    offset, terms, stride = 0, [], 1
    for a, n in reversed(list(entries)):
        offset += a.offset * stride
        terms += [(d, c * stride) for d, c in a.terms]
        stride *= n
    return Affine(offset, merged(terms))


def merged(terms: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Terms with those of one dimension added, largest coefficient first."""
    total: dict[int, int] = {}
    for d, c in terms:
        total[d] = total.get(d, 0) + c
    pairs = [(d, c) for d, c in total.items() if c]
    return tuple(sorted(pairs, key=lambda t: -abs(t[1])))


def _groups(
    shape: Sequence[int], new_shape: Sequence[int]
) -> list[tuple[list[int], list[int]]]:
    """The smallest runs of axes of two shapes that have equal products."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(shape) or j < len(new_shape):
        old: list[int] = []
        new: list[int] = []
        a = b = 1
        while True:
            if a == b and (old or new):
                break
            if (a <= b and i < len(shape)) or j >= len(new_shape):
                a *= shape[i]
                old.append(i)
                i += 1
            else:
                b *= new_shape[j]
                new.append(j)
                j += 1
        groups.append((old, new))
    return groups


def address(entries: Map, strides: Sequence[int]) -> tuple[int, dict[int, int]]:
    """Offset and stride per dimension, in elements, of an array access."""
    offset = 0
    total: dict[int, int] = {}
    for a, stride in zip(entries, strides, strict=True):
        offset += a.offset * stride
        for d, c in a.terms:
            total[d] = total.get(d, 0) + c * stride
    return offset, {d: s for d, s in total.items() if s}
