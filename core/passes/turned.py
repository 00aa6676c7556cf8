"""Work along rows of a transposed array, done where the array lies.

A row of `x.T` is a column of `x`: a kernel that goes along it reads one number of each
line of the cache. What is elementwise, and reduced along such rows, is computed in the
order of `x` instead, with sums down columns, and what else reads it sees a transposed
view. Sums down columns of `x.T` are along rows of `x` likewise. So the loss of `x.T`
(both directions of a contrastive loss), or a norm over the channels of an image whose
channels come first, read memory in its order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from treadle.ir.graph import Atom, Equation, Graph, Lit, Var
from treadle.ops.movement import broadcast_in_dim, transpose
from treadle.passes.rewrite import Rewriter, mentions
from treadle.trace.lowering import Elementwise, Index, Product, Reduction

Order = tuple[int, ...]
"""The permutation by which a value is a transposed one."""


class _Plan:
    """What is computed in another order, and by which permutation it is seen.

    Whatever one equation reads together is of one group, and turned together; only
    groups with a reduction along rows are.
    """

    def __init__(self, graph: Graph) -> None:
        self.maker = {v: eq for eq in graph.equations for v in eq.outputs}
        self.readers: dict[Atom, list[Equation]] = {}
        for eq in graph.equations:
            for a in eq.inputs:
                self.readers.setdefault(a, []).append(eq)
        self.results = set(graph.outputs)
        self.orders: dict[Atom, Order] = {}
        self.group: dict[Atom, Atom] = {}
        self.along_rows: set[Atom] = set()
        self._repeated: set[Atom] = set()
        for eq in graph.equations:
            if self._repeats(eq):
                self._repeated.update(eq.outputs)
            self._consider(eq)

    def order(self, a: Atom) -> Order | None:
        """The permutation by which a value is seen, if it is turned."""
        return self.orders[a] if self._root(a) in self.along_rows else None

    def _root(self, a: Atom) -> Atom | None:
        while a in self.group and self.group[a] is not a:
            a = self.group[a]
        return a if a in self.group else None

    def _consider(self, eq: Equation) -> None:
        how = eq.op.lowering
        if eq.op is transpose:
            if self._moves_rows(eq):
                v = eq.outputs[0]
                self.orders[v], self.group[v] = eq.params["permutation"], v
        elif isinstance(how, Elementwise):
            self._follow(eq)
        elif isinstance(how, Reduction):
            x = eq.inputs[0]
            root, last = self._root(x), x.type.ndim - 1
            ends = {last, self.orders[x].index(last)} if root is not None else set()
            if root is not None and not ends.isdisjoint(reduced_axes(eq)):
                self.along_rows.add(root)

    def _moves_rows(self, eq: Equation) -> bool:
        """Whether a transposition has other rows than what lies in memory."""
        (x,), order = eq.inputs, eq.params["permutation"]
        maker = self.maker.get(x) if isinstance(x, Var) else None
        if order[-1] == len(order) - 1 or isinstance(x, Lit) or self.is_repeated(x):
            return False
        if maker is None or not isinstance(maker.op.lowering, Product):
            return True
        # A product writes its result in the order in which all of its readers see it.
        return x in self.results or any(
            r.op is not transpose or r.params != eq.params for r in self.readers[x]
        )

    def _follow(self, eq: Equation) -> None:
        found = [a for a in eq.inputs if a in self.orders]
        if not found or len(eq.outputs) != 1:
            return
        order = self.orders[found[0]]
        others = [a for a in eq.inputs if a not in self.orders]
        if any(self.orders[a] != order for a in found):
            return
        if not all(map(self.is_repeated, others)):
            return
        v = eq.outputs[0]
        roots = [root for a in found if (root := self._root(a)) is not None]
        self.orders[v] = order
        for a in (v, *roots):
            self.group[a] = roots[0]
        if self.along_rows & set(roots):
            self.along_rows.add(roots[0])

    def is_repeated(self, a: Atom) -> bool:
        """Whether a value is made of fewer numbers, in whatever order, or of none."""
        return not a.type.shape or a in self._repeated

    def _repeats(self, eq: Equation) -> bool:
        if eq.op is broadcast_in_dim or isinstance(eq.op.lowering, Index):
            return True
        elementwise = isinstance(eq.op.lowering, Elementwise) and len(eq.outputs) == 1
        return elementwise and all(map(self.is_repeated, eq.inputs))


def reduced_axes(eq: Equation) -> Sequence[int]:
    """The axes of a reduction's operand that its result lacks."""
    return eq.params["axes"] if "axes" in eq.params else (eq.params["axis"],)


class _Turn(Rewriter):
    """natural: turned values as they are computed."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.plan = _Plan(graph)
        self.natural: dict[tuple[Atom, Order], Atom] = {}

    def equation(self, eq: Equation) -> None:
        order = self.plan.order(eq.outputs[0]) if eq.outputs else None
        if order is not None:
            self._turn(eq, order)
            return
        if isinstance(eq.op.lowering, Reduction):
            order = self.plan.order(eq.inputs[0])
            if order is not None:
                self._reduce(eq, order)
                return
        self.keep(eq)

    def _turn(self, eq: Equation, order: Order) -> None:
        v = eq.outputs[0]
        if eq.op is transpose:
            self.natural[v, order] = self.read(eq.inputs[0])
            self.keep(eq)
            return
        inputs = [self._natural(a, order) for a in eq.inputs]
        (y,) = self.emit(eq.op, inputs, eq.params, eq.source)
        self.natural[v, order] = y
        self.emit(transpose, [y], {"permutation": order}, eq.source, eq.outputs)

    def _reduce(self, eq: Equation, order: Order) -> None:
        gone = reduced_axes(eq)
        x = self._natural(eq.inputs[0], order)
        found = tuple(sorted(order[i] for i in gone))
        params = {"axes": found} if "axes" in eq.params else {"axis": found[0]}
        (value,) = self.emit(eq.op, [x], {**eq.params, **params}, eq.source)
        left = [p for i, p in enumerate(order) if i not in gone]
        if left != sorted(left):
            params = {"permutation": _ranks(left)}
            (value,) = self.emit(transpose, [value], params, eq.source)
        self.values[eq.outputs[0]] = value

    def _natural(self, a: Atom, order: Order) -> Atom:
        """What a value is in the order in which it is computed."""
        if not a.type.shape:
            return self.read(a)
        key = a, order
        if key not in self.natural:
            self.natural[key] = self._again(self.plan.maker[a], order)  # type: ignore[index]
        return self.natural[key]

    def _again(self, eq: Equation, order: Order) -> Atom:
        """What is made of fewer numbers, made in another order."""
        if eq.op is broadcast_in_dim:
            x, dims = self.read(eq.inputs[0]), [order[d] for d in eq.params["dims"]]
            if dims != sorted(dims):
                params = {"permutation": _inverse(_ranks(dims))}
                (x,) = self.emit(transpose, [x], params, eq.source)
            shape = tuple(eq.params["shape"][i] for i in _inverse(order))
            params = {"shape": shape, "dims": tuple(sorted(dims))}
            return self.emit(broadcast_in_dim, [x], params, eq.source)[0]
        if isinstance(eq.op.lowering, Index):
            x, params = self.read(eq.outputs[0]), {"permutation": _inverse(order)}
            return self.emit(transpose, [x], params, eq.source)[0]
        inputs = [self._natural(a, order) for a in eq.inputs]
        return self.emit(eq.op, inputs, eq.params, eq.source)[0]


def _ranks(numbers: Sequence[int]) -> Order:
    """The place of each among all of them, sorted."""
    places = sorted(numbers)
    return tuple([places.index(n) for n in numbers])


def _inverse(order: Iterable[int]) -> Order:
    places = {p: i for i, p in enumerate(order)}
    return tuple([places[i] for i in range(len(places))])


def turn_rows(graph: Graph) -> Graph:
    """The graph with reductions along rows of transposed values made sums down columns
    of what is transposed, and those down columns sums along rows, nested graphs
    included."""
    return _Turn.apply(graph) if mentions(graph, (transpose,)) else graph
