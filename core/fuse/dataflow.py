"""What fusion knows of a Graph: who makes and who reads each value, through views."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence, Set
from functools import cache
from types import MappingProxyType
from typing import Any

from treadle.dims import hint, same_shape
from treadle.ir.graph import Atom, Equation, Graph, Lit, Var
from treadle.ir.scalar import SCALARS
from treadle.ops.movement import transpose
from treadle.passes.units import Units
from treadle.trace.lowering import (
    FUSABLE,
    Elementwise,
    Index,
    Lowering,
    Reshape,
    Scatter,
    View,
    written,
)

_INLINE_COST = 12
"""Scalar computations up to this cost are repeated in each reader. On one number all
instructions cost about the same, but very dear ones."""
_MOST_OF_WINDOW = 4
"""Cheap instructions that make what a single window gets, while it is written."""
_DEAR = 10
_DEAREST = 20
"""From this cost on an instruction is a function of many: it isn't repeated in several
readers, as the code of each of them would have it."""


class Memo:
    """What has been found once, to be looked up for all that is equal to it.

    kernels: by form (`treadle.fuse.lowering.forms`), with the values they work on; None
      where there is no kernel of that form. views, kinds: what chains of them, and
      equations, are, whatever they read: numbers of `words`.
    sources: what inline values are computed from, until an equation is replaced. fits:
      whether the members of clusters can read what they read, by form and by what
      else that depends on. sums: what their order depends on, by form.
    """

    def __init__(self) -> None:
        self.kernels: dict[Hashable, tuple[Any, Sequence[Atom]]] = {}
        self.views: dict[tuple[Equation, ...], int] = {}
        self.kinds: dict[Equation, int] = {}
        self.words: dict[Hashable, int] = {}
        self.sources: dict[Var, Set[Var]] = {}
        self.fits: dict[Hashable, bool] = {}
        self.sums: dict[Hashable, tuple[Any, int]] = {}


class Dataflow:
    """An index over a graph's equations.

    results: the graph's outputs by number, or what has been put in their places.
    orders: in which order of axes values are stored (None: their own).
    row_major: contractions whose results can't be stored as their readers see them.
    aliases: those among them (reshapes) that are the operand's memory itself.
    inline: values that are computed again wherever they are needed.
    given: inputs of the graph, and inline numbers that are made of these alone: any
      kernel can read them.
    kept: those among them that are in memory as well, for other readers.
    recomputed: members of a cluster that other clusters compute again for themselves.
    parts: values stored inside another (offset and strides in elements): the pieces of
      a concatenation or of a padded array.

    units: the axes of length 1 that loops don't run along.
    memo: what need not be found again; nothing depends on it.
    lowering: what the target makes of an equation.
    chosen: the least bytes of elements that it chooses of a register in any order.
    """

    def __init__(
        self, graph: Graph, lowering: Callable[[Equation], Lowering], chosen: int = 4
    ) -> None:
        self.graph, self.lowering, self.chosen = graph, cache(lowering), chosen
        self.units = Units()
        self.memo = Memo()
        self._views: dict[Atom, tuple[Atom, tuple[Equation, ...]]] = {}
        self.maker: dict[Var, Equation] = {}
        self.readers: dict[Var, list[Equation]] = {v: [] for v in graph.inputs}
        self.results = dict(enumerate(graph.outputs))
        self.returned = {a for a in graph.outputs if isinstance(a, Var)}
        self.row_major: set[Var] = set()
        self.orders: dict[Var, tuple[int, ...] | None] = {}
        self.aliases: dict[Var, Atom] = {}
        self.parts: dict[Var, tuple[Var, int, tuple[int, ...]]] = {}
        self.inline: set[Var] = set()
        self.given: set[Atom] = set(graph.inputs)
        self.kept: set[Var] = set()
        self.recomputed: set[Var] = set()
        self._index_only: set[Var] = set()
        for eq in graph.equations:
            self.add(eq)
        costs: dict[Atom, int] = {}
        long: set[Atom] = set()
        for eq in graph.equations:
            self._consider_inline(eq, costs, long)
        self._viewed_by_caller = {
            view.inputs[0] for a in self.returned for view in self.resolve(a)[1]
        }
        for eq in graph.equations:
            how = self.lowering(eq)
            if isinstance(how, Scatter):
                where = how.addressing([a.type for a in eq.inputs], eq.params)
                self._consider_updates(eq, alone=not where.rank)

    def settle(self) -> None:
        """Nothing changes from here on: what would is an error."""
        for name, table in vars(self).items():
            if type(table) is dict:
                setattr(self, name, MappingProxyType(table))
            elif type(table) is set:
                setattr(self, name, frozenset(table))

    def _consider_inline(
        self, eq: Equation, costs: dict[Atom, int], long: set[Atom]
    ) -> None:
        """Indices, and cheap scalars made of scalars, are computed where they are
        needed rather than stored.

        costs: of those that are. long: what is made with the dearest instructions.
        """
        how = self.lowering(eq)
        if not isinstance(how, (Elementwise, Index)):
            return
        out, index_only = eq.outputs[0], True
        for a in eq.inputs:
            if a.type.shape if type(a) is Lit else a not in self._index_only:
                index_only = False
                if out.type.shape:
                    return
                break
        # A scalar that an equation made in other ways (a reduction) is loaded.
        cost, is_long = 1, any([a in long for a in eq.inputs])
        if isinstance(how, Elementwise):
            own = [SCALARS[i.name].cost for i in written(eq)]
            cost = sum([1 + c // _DEAR for c in own])
            is_long = is_long or any([c >= _DEAREST for c in own])
        cost += sum([costs.get(a, 0) for a in eq.inputs])
        if is_long and len(self._read_as(out)) > 1:
            return
        if cost <= _INLINE_COST:
            self.inline.add(out)
            costs[out] = cost
            made_of = [type(a) is Lit or a in self.given for a in eq.inputs]
            if not out.type.shape and all(made_of):
                self.given.add(out)
            if is_long:
                long.add(out)
            if index_only:
                self._index_only.add(out)

    def _read_as(self, v: Var) -> list[Equation]:
        """The equations that read a value or a view of it."""
        found = []
        for eq in self.readers[v]:
            view = bool(eq.outputs) and self.is_view(eq.outputs[0])
            found += self._read_as(eq.outputs[0]) if view else [eq]
        return found

    def _consider_updates(self, scatter: Equation, alone: bool) -> None:
        """What a scatter writes is computed there rather than stored, if nothing else
        reads it and one cheap instruction makes it of one stored array of its size, or
        a few make it of two: those of a single window, which is `alone`."""
        v, _ = self.resolve(scatter.inputs[1])
        most = _MOST_OF_WINDOW if alone else 1
        made, leaves = self._cheaply_made(v, most)
        if not made:
            return
        size = hint(math.prod(v.type.shape))
        # One number is small for a single update, too: any batch has the same kernels.
        arrays = [a for a in leaves if a.type.ndim]
        large = [a for a in arrays if hint(math.prod(a.type.shape)) >= size]
        # A window of what it reads would have that copied first.
        target, _ = self.resolve(scatter.inputs[0])
        if len(made) > 1 and target in large:
            return
        few = 1 <= len(large) <= 1 + (len(made) > 1)
        if few and all(map(self._stored_anyway, large)):
            self.inline.update(made)

    def _cheaply_made(self, v: Atom, most: int) -> tuple[list[Var], list[Atom]]:
        """The values that up to so many cheap instructions make for v alone, and what
        those read; v itself is not among them if it is not made so."""
        made: list[Var] = []
        leaves: dict[Atom, None] = {}
        todo = [v]
        while todo:
            u = todo.pop()
            if len(made) < most and isinstance(u, Var) and self._is_cheap(u):
                made.append(u)
                todo += [self.source(a) for a in self.maker[u].inputs]
            else:
                leaves[u] = None
        return made, list(leaves)

    def _is_cheap(self, v: Var) -> bool:
        """Whether one cheap instruction makes a value, for a single reader."""
        if v not in self.maker or self.is_returned(v):
            return False
        how = self.lowering(self.maker[v])
        if not isinstance(how, Elementwise) or not isinstance(how.expression, str):
            return False
        cheap = SCALARS[how.expression].cost <= 1
        return cheap and len(self.final_readers(v)) == 1

    def _stored_anyway(self, a: Atom) -> bool:
        """Whether a value is not likely to be made by the kernel of its only reader."""
        maker = self.maker.get(a) if isinstance(a, Var) else None
        if maker is None or not isinstance(self.lowering(maker), FUSABLE):
            return True
        return len(self.final_readers(maker.outputs[0])) > 1

    def is_view(self, v: Var) -> bool:
        """Whether a value is another one seen through an index map."""
        return v in self._views

    def lies_apart(self, v: Var) -> bool:
        """Whether a value has memory of its own, which no kernel computes again."""
        return not (
            v in self._views
            or v in self.inline
            or v in self.recomputed
            or v in self.aliases
        )

    def ordered(self, a: Atom, order: tuple[int, ...]) -> Var:
        """A value with its axes in another order, as a view made here."""
        (t,) = transpose.infer([a.type], {"permutation": order})
        v = Var(t)
        self.add(Equation(transpose, [a], {"permutation": order}, [v]))
        return v

    def add(self, eq: Equation, copied: bool = False) -> None:
        """Takes in an equation, after those that make its operands.

        copied: a view's result is made in memory after all.
        """
        self.units.add(eq)
        if isinstance(eq.op.lowering, View) and not copied:
            self._look_through(eq)
        readers = self.readers
        for v in eq.outputs:
            self.maker[v] = eq
            readers[v] = []
        for a in eq.inputs:
            if type(a) is Var:
                readers[a].append(eq)

    def replace(self, old: Equation, new: Equation) -> None:
        """Puts another equation for the same results in the place of one."""
        self.memo.sources.clear()
        for v in new.outputs:
            self.maker[v] = new
        for a in old.inputs:
            if isinstance(a, Var):
                self.readers[a].remove(old)
        for a in new.inputs:
            if isinstance(a, Var):
                self.readers[a].append(new)

    def remove(self, eq: Equation) -> None:
        """Forgets an equation whose results nobody reads."""
        for v in eq.outputs:
            del self.maker[v], self.readers[v]
        for a in eq.inputs:
            if isinstance(a, Var):
                self.readers[a].remove(eq)

    def replace_view(self, old: Equation, new: Equation) -> None:
        """Puts another view for the same result in the place of one."""
        self.replace(old, new)
        changed = [new]
        for eq in changed:
            self._look_through(eq)
            changed += [
                r
                for r in self.readers[eq.outputs[0]]
                if r.outputs and self.is_view(r.outputs[0])
            ]

    def _look_through(self, view: Equation) -> None:
        source, chain = self.resolve(view.inputs[0])
        self._views[view.outputs[0]] = source, (view, *chain)

    def memory(self, a: Atom) -> Atom | None:
        """The stored value whose contiguous bytes are those of `a`, if there is one."""
        while type(a) is Var:
            if a in self.aliases:
                a = self.aliases[a]
            elif a in self._views:
                eq = self.maker[a]
                if not isinstance(eq.op.lowering, Reshape):
                    return None
                a = eq.inputs[0]
            else:
                break
        return a

    def is_next(self, a: Atom | None, b: Atom | None) -> bool:
        """Whether two values are parts of one whole, in which b begins right behind the
        first element of a."""
        if a is None or b is None or a not in self.parts or b not in self.parts:
            return False
        (whole, start, _), (other, end, _) = self.parts[a], self.parts[b]
        return whole is other and same_shape((end,), (start + 1,))

    def resolve(self, a: Atom) -> tuple[Atom, tuple[Equation, ...]]:
        """The value behind views, and the views, outermost first."""
        return self._views.get(a) or (a, ())

    def source(self, a: Atom) -> Atom:
        """The value behind views."""
        found = self._views.get(a)
        return a if found is None else found[0]

    def sources(self, a: Atom) -> Set[Var]:
        """The stored values that an atom is computed from: itself, unless inline."""
        found = self.source(a)
        if isinstance(found, Lit):
            return frozenset()
        if found not in self.inline:
            return {found}
        known = self.memo.sources
        if found not in known:
            made = [self.sources(x) for x in self.maker[found].inputs]
            known[found] = frozenset().union(*made)
        return known[found]

    def final_readers(self, v: Var) -> list[Equation]:
        """The equations that read a value, looking through views and inline values."""
        result: list[Equation] = []
        inline, recomputed, views = self.inline, self.recomputed, self._views
        for eq in self.readers[v]:
            if not eq.outputs:
                result.append(eq)
                continue
            out = eq.outputs[0]
            again = out in recomputed
            if again or out in inline or out in views:
                result += self.final_readers(out)
                if again or out in self.kept:
                    result.append(eq)
            else:
                result.append(eq)
        return result

    def is_returned(self, v: Var) -> bool:
        """Whether the value, or a view of it, is a result of the graph."""
        return v in self.returned or v in self._viewed_by_caller
