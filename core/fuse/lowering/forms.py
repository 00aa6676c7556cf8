"""What a kernel is written of, with numbers in the place of values.

Equal layers have kernels that differ in nothing but in the values that they work on. So
each kernel's *form* is found first, which is quick, and only the first kernel of a form
is written; others are that one, for other values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.fuse.cluster import Cluster, operand_key
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.layout import Strided, stored_strides
from treadle.fuse.lowering.launches import Binding, Launch
from treadle.ir.graph import Atom, Equation, Lit, Var, params_key
from treadle.trace.lowering import Reduction


class Form:
    """Collects everything that a kernel depends on.

    words: equal for kernels that are equal but for the values; these have numbers, in
      the order in which they are first met. Whether two are one value is in the words.
    stored: the results of a cluster that are stored.
    """

    def __init__(self, flow: Dataflow) -> None:
        self.flow = flow
        self.words: list[Any] = []
        self.stored: set[Var] = set()
        self._numbers: dict[Atom, int] = {}

    @property
    def values(self) -> list[Atom]:
        """The values, by number."""
        return list(self._numbers)

    def number(self, a: Atom) -> int:
        return self._numbers.setdefault(a, len(self._numbers))

    def cluster(
        self, cluster: Cluster, members: Sequence[Equation], stored: set[Var]
    ) -> None:
        """Some of a cluster's equations, and the stores of their results."""
        space, words, self.stored = cluster.space, self.words, stored
        words += cluster.form, cluster.reduced, tuple(space.sizes.items()), len(members)
        entries = None
        for eq in members:
            reduces = isinstance(eq.op.lowering, Reduction)
            where = space.maps[operand_key(eq) if reduces else eq.outputs[0]]
            # (Most have the map of the one before; equal maps make long words.)
            words.append(None if where is entries else where)
            entries = where
            self._computed(eq)
            words.append(self.number(eq.outputs[0]))
        before = None
        for eq in members:
            for v in eq.outputs:
                if v in stored:
                    words += self.number(v), space.maps[v], stored_strides(v, self.flow)
                    words.append(self.flow.is_next(before, v))
                    before = v

    def operands(self, eq: Equation, operands: Sequence[Strided]) -> None:
        """An equation on arrays in memory."""
        out, words = eq.outputs[0], self.words
        words += eq.op, params_key(eq.params), *[a.type for a in eq.inputs]
        words += [(self.number(x.source), x.offset, x.steps) for x in operands]
        words += out.type, self.number(out), self.flow.units.absent(out)
        words.append(stored_strides(out, self.flow))

    def _computed(self, eq: Equation) -> None:
        words, flow, numbers = self.words, self.flow, self._numbers
        words.append(self._kind(eq))
        for a in eq.inputs:
            source, chain = flow.resolve(a)
            words.append(self._views(chain) if chain else ())
            n = numbers.get(source)
            if n is None:
                numbers[source] = len(numbers)
                self._first(source)
            else:
                words.append(n)

    def _first(self, source: Atom) -> None:
        """What a value is that is met for the first time."""
        flow, words = self.flow, self.words
        if type(source) is Lit:
            words.append(("literal", source.key()))
        elif source in flow.inline or source in flow.recomputed:
            words.append("computed")
            self._computed(flow.maker[source])
        else:
            absent = flow.units.absent(source)
            words.append((source.type, absent, stored_strides(source, flow)))

    def _kind(self, eq: Equation) -> int:
        """What an equation does, whatever it reads, as a number."""
        known = self.flow.memo.kinds
        found = known.get(eq)
        if found is None:
            out, what = eq.outputs[0], (eq.op, params_key(eq.params), len(eq.inputs))
            absent = self.flow.units.absent(out)
            found = known[eq] = self._word((*what, out.type, absent))
        return found

    def _views(self, chain: tuple[Equation, ...]) -> int:
        """Views, outermost first, as a number."""
        known = self.flow.memo.views
        found = known.get(chain)
        if found is None:
            found = known[chain] = self._word(tuple(map(self._view, chain)))
        return found

    def _word(self, what: tuple) -> int:
        words = self.flow.memo.words
        return words.setdefault(what, len(words))

    def _view(self, eq: Equation) -> tuple:
        x, v, absent = eq.inputs[0], eq.outputs[0], self.flow.units.absent
        what = eq.op, params_key(eq.params)
        return *what, x.type, absent(x), v.type, absent(v)


def renamed(launch: Launch, old: Sequence[Atom], new: Sequence[Atom]) -> Launch:
    """A launch on other values: `new` in the places of `old`."""
    at = dict(zip(old, new, strict=True))
    bindings = [
        Binding(at[atom] if atom is not None else None, offset, strides, store)
        for atom, offset, strides, store in launch.bindings
    ]
    return launch._replace(bindings=tuple(bindings))
