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
from typing import Any

from treadle.ir.graph import Atom, Equation
from treadle.ir.maps import ZERO, Affine, Map, linear, plus, scaled
from treadle.passes.units import Units
from treadle.trace.lowering import Mapped, Reshape


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
        x, out, how = eq.inputs[0], eq.outputs[0], eq.op.lowering
        if isinstance(how, Mapped):
            shapes = x.type.shape, out.type.shape
            self.maps[key] = how.back(self.maps[key], *shapes, eq.params)
        elif isinstance(how, Reshape):
            self.reshape(key, out, x)
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
        x, out, how = eq.inputs[0], eq.outputs[0], eq.op.lowering
        unknown: list[int] = []
        if isinstance(how, Mapped) and how.forth is not None:
            shapes = x.type.shape, out.type.shape
            found = how.forth(self.maps[key], *shapes, eq.params)
            self.maps[key] = tuple(ZERO if e is None else e for e in found)
            unknown = [i for i in self.units.present(out) if found[i] is None]
        elif isinstance(how, Reshape):
            self.reshape(key, x, out)
        else:
            raise NoMap
        self._settle(key, out)
        return unknown


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
