"""The dimensions of a loop nest, and views carried through index maps over them.

Views (reshape, transpose, slice…) change the map of whoever reads their result, so none
of them ever moves data. A reshape may ask for a dimension of the space to be split; a
question is then asked again, and all maps that the space holds have followed.
Axes of length 1 have dimensions like others, so that a batch of one has the loops of
any other batch, except where they are 1 by construction (`treadle.passes.units`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeVar

from treadle.ir.graph import Atom, Equation
from treadle.ir.maps import ZERO, Affine, Map, Split, cut, reshape
from treadle.passes.units import Axes, Units
from treadle.trace.lowering import Mapped

Answer = TypeVar("Answer")


class Space:
    """The dimensions of a loop nest. Axes that `units` calls absent have none.

    sizes: of the dimensions.
    maps: of what is computed at each point; splits change them.
    frozen: dimensions that can't be split.
    """

    def __init__(self, units: Units) -> None:
        self.units = units
        self.sizes: dict[int, int] = {}
        self.maps: dict[Any, Map] = {}
        self.frozen: set[int] = set()

    def dimension(self, size: int) -> Affine:
        """The index along a new dimension."""
        name = max(self.sizes, default=-1) + 1
        self.sizes[name] = size
        return _along(name)

    def index(self, a: Atom) -> Map:
        """The index map of a value along new dimensions."""
        absent, sizes = self.units.absent(a), self.sizes
        name, entries = max(sizes, default=-1) + 1, []
        for i, n in enumerate(a.type.shape):
            if i in absent:
                entries.append(ZERO)
            else:
                sizes[name] = n
                entries.append(_along(name))
                name += 1
        return tuple(entries)

    def copy(self) -> Space:
        other = Space(self.units)
        other.sizes, other.maps = dict(self.sizes), dict(self.maps)
        other.frozen = set(self.frozen)
        return other

    def freeze(self) -> None:
        """From here on no dimension is split: maps may be held outside of the space."""
        self.frozen |= set(self.sizes)

    def split(self, split: Split) -> None:
        """Replaces a dimension by an outer one (keeping the name) and a new inner."""
        inner = self.dimension(split.inner).terms[0][0]
        self.sizes[split.dimension] //= split.inner
        self.maps = {k: cut(m, split, inner) for k, m in self.maps.items()}

    def settled(self, ask: Callable[[], Answer | Split]) -> Answer:
        """The answer to a question about maps, asked anew after each split that it
        takes."""
        while isinstance(answer := ask(), Split):
            self.split(answer)
        return answer

    # The methods below are such questions: they change nothing.

    def seen(
        self, entries: Map, source: Atom, chain: Iterable[Equation]
    ) -> Map | Split | None:
        """The map of a value behind views, outermost first, from that of their result;
        None if there is none."""
        for view in chain:
            found = self._operand(entries, view)
            if not isinstance(found, tuple):
                return found
            entries = found
        absent = self.units.absent(source)
        return self._without(entries, absent) if absent else entries

    def _operand(self, entries: Map, view: Equation) -> Map | Split | None:
        """The map of a view's operand, from that of its result."""
        x, out, how = view.inputs[0], view.outputs[0], view.op.lowering
        if isinstance(how, Mapped):
            found = how.back(entries, x.type.shape, out.type.shape, view.params)
            absent = self.units.absent(x)
            return self._without(found, absent) if absent else found
        return self._reshaped(entries, out, x)

    def result(
        self, entries: Map, view: Equation
    ) -> Sequence[Affine | None] | Split | None:
        """The map of a view's result, from that of its operand: None where the operand
        says nothing (new axes of a broadcast)."""
        x, out, how = view.inputs[0], view.outputs[0], view.op.lowering
        if not isinstance(how, Mapped):
            return self._reshaped(entries, x, out)
        if how.forth is None:
            return None
        found = how.forth(entries, x.type.shape, out.type.shape, view.params)
        absent = self.units.absent(out)
        return tuple(ZERO if i in absent else e for i, e in enumerate(found))

    def _reshaped(self, entries: Map, old: Atom, new: Atom) -> Map | Split | None:
        units, known = self.units.paired(old, new), self.units.reshaped
        pairs = tuple(units.items()) if units else ()
        key = entries, old.type, new.type, tuple(self.sizes.items()), pairs
        if key not in known:
            shape, new_shape = old.type.shape, new.type.shape
            known[key] = reshape(entries, shape, new_shape, self.sizes, units)
        found: Map | Split | None = known[key]
        frozen = isinstance(found, Split) and found.dimension in self.frozen
        return None if frozen else found

    def _without(self, entries: Map, absent: Axes) -> Map:
        """A map without what it says about absent axes of the value that it indexes."""
        return tuple([ZERO if i in absent else e for i, e in enumerate(entries)])


@cache
def _along(dimension: int) -> Affine:
    """The index along a dimension."""
    return Affine(0, ((dimension, 1),))


def extent(group: list[int], sizes: dict[int, int]) -> int:
    """The number of points along a group of dimensions."""
    return math.prod(sizes[d] for d in group)
