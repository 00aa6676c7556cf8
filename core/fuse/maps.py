"""Index maps: which element of an array each point of an iteration space reads.

A `Space` has dimensions with sizes. A map has one `Affine` per axis of the array: an
offset plus a sum of coefficient times dimension. Views (reshape, transpose, slice…) are
carried through maps, so none of them ever moves data. A reshape may have to split a
dimension of the space into an outer and an inner one; all maps of the space follow.
Axes of length 1 have dimensions like others, so that a batch of one has the loops of
any other batch, except where they are 1 by construction (`treadle.passes.units`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from treadle.ir.graph import Atom, Equation
from treadle.passes.units import Units


class Affine(NamedTuple):
    """``offset + sum(coefficient * dimension)``; terms are (dimension, coefficient)."""

    offset: int = 0
    terms: tuple[tuple[int, int], ...] = ()


Map = tuple[Affine, ...]
ZERO = Affine()


class NoMap(Exception):
    """There is no affine map of the wanted kind."""


class Space:
    """The dimensions of a loop nest. Axes that `units` calls absent have none."""

    def __init__(self, units: Units) -> None:
        self.units = units
        self.sizes: dict[int, int] = {}
        self.maps: dict[Any, Map] = {}
        self.frozen: set[int] = set()

    def dimension(self, size: int) -> Affine:
        """The index along a new dimension."""
        name = max(self.sizes, default=-1) + 1
        self.sizes[name] = size
        return Affine(0, ((name, 1),))

    def index(self, a: Atom) -> Map:
        """The index map of a value along new dimensions."""
        absent = self.units.absent(a)
        return tuple(
            ZERO if i in absent else self.dimension(n)
            for i, n in enumerate(a.type.shape)
        )

    def copy(self) -> Space:
        other = Space(self.units)
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

    def reshape(self, key: Any, old: Atom, new: Atom) -> None:
        """Rewrites ``maps[key]`` from indices of one value to those of another."""
        shape, new_shape = old.type.shape, new.type.shape
        if 0 in shape:
            # There is no element to find.
            self.maps[key] = (ZERO,) * len(new_shape)
            return
        out = [ZERO] * len(new_shape)
        groups = _groups(shape, new_shape)
        for axes, new_axes in groups:
            sizes = [new_shape[j] for j in new_axes]
            digits = self._digits(key, axes, shape, sizes)
            if digits is None:
                self.reshape(key, old, new)
                return
            for j, digit in zip(new_axes, digits, strict=True):
                out[j] = digit
        pairs = self.units.paired(old, new)
        for i, entry in enumerate(self.maps[key]):
            if i in pairs:
                out[pairs[i]] = entry
            elif shape[i] == 1 and entry.terms and groups:
                _put_unit(out, entry, i, shape, new_shape, groups)
        self.maps[key] = tuple(out)

    def _digits(
        self, key: Any, axes: Sequence[int], shape: Sequence[int], sizes: list[int]
    ) -> list[Affine] | None:
        """The indices along axes of the given sizes of what ``maps[key]`` says along
        `axes` of another shape; None after splitting a dimension."""
        if [shape[i] for i in axes] == sizes:
            return [self.maps[key][i] for i in axes]
        index = linear([(self.maps[key][i], shape[i]) for i in axes])
        return [index] if len(sizes) == 1 else self._take_digits(index, sizes)

    def _take_digits(self, linear: Affine, sizes: Sequence[int]) -> list[Affine] | None:
        """The mixed-radix digits of an affine index; None after splitting a dimension
        (the caller must begin again)."""
        if linear.offset:
            raise NoMap
        digits: list[list[tuple[int, int]]] = [[] for _ in sizes]
        used = [0] * len(sizes)
        strides = [math.prod(sizes[j + 1 :]) for j in range(len(sizes))]
        for d, c in linear.terms:
            if self.sizes[d] == 1:
                # Its index is 0 wherever it stands.
                place = next((j for j, s in enumerate(strides) if c >= s), 0)
                digits[place].append((d, max(1, c // strides[place])))
                continue
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
        x, out = eq.inputs[0], eq.outputs[0]
        shape, result = x.type.shape, out.type.shape
        entries, name = self.maps[key], eq.op.name
        if name == "broadcast_in_dim":
            dims = eq.params["dims"]
            self.maps[key] = tuple(
                entries[d] if n == result[d] else ZERO
                for n, d in zip(shape, dims, strict=True)
            )
        elif name == "reshape":
            self.reshape(key, out, x)
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
                shifted(scaled(a, -1), n - 1) if i in axes and n else a
                for i, (a, n) in enumerate(zip(entries, shape, strict=True))
            )
        else:
            raise NoMap
        self._settle(key, x)

    def _settle(self, key: Any, a: Atom) -> None:
        """Drops what ``maps[key]`` says about absent axes of the value it indexes."""
        absent = self.units.absent(a)
        if absent:
            self.maps[key] = tuple(
                ZERO if i in absent else e for i, e in enumerate(self.maps[key])
            )

    def seen(self, entries: Map, source: Atom, chain: Iterable[Equation]) -> Map:
        """The map of a value behind views, outermost first, from that of their result.

        Raises:
          NoMap: if there is none.
        """
        self.maps["seen"] = entries
        try:
            for view in chain:
                self.forward("seen", view)
            self._settle("seen", source)
            return self.maps["seen"]
        finally:
            del self.maps["seen"]

    def backward(self, key: Any, eq: Equation) -> list[int]:
        """Rewrites ``maps[key]`` from indices of a view's operand to its result's.

        Returns the axes of the result about which the operand says nothing (new axes of
        a broadcast): their entries are ZERO.
        """
        x, out = eq.inputs[0], eq.outputs[0]
        shape, result = x.type.shape, out.type.shape
        entries, name = self.maps[key], eq.op.name
        unknown: list[int] = []
        if name == "broadcast_in_dim":
            dims = eq.params["dims"]
            known = {
                d: a
                for d, a, n in zip(dims, entries, shape, strict=True)
                if n == result[d]
            }
            self.maps[key] = tuple(known.get(d, ZERO) for d in range(len(result)))
            unknown = [d for d in self.units.present(out) if d not in known]
        elif name == "reshape":
            self.reshape(key, x, out)
        elif name == "transpose":
            self.maps[key] = tuple(entries[p] for p in eq.params["permutation"])
        else:
            raise NoMap
        self._settle(key, out)
        return unknown


def scaled(a: Affine, factor: int) -> Affine:
    return Affine(a.offset * factor, tuple((d, c * factor) for d, c in a.terms))


def shifted(a: Affine, offset: int) -> Affine:
    return Affine(a.offset + offset, a.terms)


def plus(a: Affine, b: Affine) -> Affine:
    return Affine(a.offset + b.offset, _merged((*a.terms, *b.terms)))


def linear(entries: Iterable[tuple[Affine, int]]) -> Affine:
    """The row-major index of several axes."""
    offset, terms, stride = 0, [], 1
    for a, n in reversed(list(entries)):
        offset += a.offset * stride
        terms += [(d, c * stride) for d, c in a.terms]
        stride *= n
    return Affine(offset, _merged(terms))


def _merged(terms: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Terms with those of one dimension added, largest coefficient first."""
    total: dict[int, int] = {}
    for d, c in terms:
        total[d] = total.get(d, 0) + c
    pairs = [(d, c) for d, c in total.items() if c]
    return tuple(sorted(pairs, key=lambda t: -abs(t[1])))


def _groups(
    shape: Sequence[int], new_shape: Sequence[int]
) -> list[tuple[list[int], list[int]]]:
    """The smallest runs of axes of two shapes that have equal products, without axes of
    length 1."""
    groups: list[tuple[list[int], list[int]]] = []
    old: list[int] = []
    new: list[int] = []
    size, rest = 1, iter([(j, n) for j, n in enumerate(new_shape) if n != 1])
    new_size = 1
    for i, n in enumerate(shape):
        if n == 1:
            continue
        old.append(i)
        size *= n
        while new_size < size:
            j, m = next(rest)
            new.append(j)
            new_size *= m
        if new_size == size:
            groups.append((old, new))
            old, new, size, new_size = [], [], 1, 1
    return groups


def _put_unit(
    out: list[Affine],
    entry: Affine,
    axis: int,
    shape: Sequence[int],
    new_shape: Sequence[int],
    groups: list[tuple[list[int], list[int]]],
) -> None:
    """Adds the index along an axis of length 1 to that along the new axis in which it
    lies: its dimension must not get lost."""
    axes, new_axes = next((g for g in reversed(groups) if g[0][0] < axis), groups[0])
    step = math.prod(shape[i] for i in axes if i > axis)
    j = new_axes[-1]
    for j in reversed(new_axes):
        if step < new_shape[j]:
            break
        step //= new_shape[j]
    out[j] = plus(out[j], Affine(0, scaled(entry, max(step, 1)).terms))


def address(entries: Map, strides: Sequence[int]) -> tuple[int, dict[int, int]]:
    """Offset and stride per dimension, in elements, of an array access."""
    offset = 0
    total: dict[int, int] = {}
    for a, stride in zip(entries, strides, strict=True):
        offset += a.offset * stride
        for d, c in a.terms:
            total[d] = total.get(d, 0) + c * stride
    return offset, {d: s for d, s in total.items() if s}
