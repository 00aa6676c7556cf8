"""Which results are rounded on their way: decided once, for the whole program.

A value has one set of bits in a program, however often kernels compute it again. So
whatever saves a rounding is a matter of the graph, where all readers are known, and
neither of kernels nor of LLVM, which see some of them:

- A half float whose readers are all arithmetic, close by, stays float32: the type of
  its variable says so. Every other is rounded where it is made, for all its readers
  (comparisons, conversions, indices, memory...) to see the same.
- A product with one reader, a sum, makes one equation with it, `multiply_add`. A
  reduction adds products as they would be in memory: for some sizes they are there.
  A contraction that became a reduction says `multiply_add` with zero: its products
  have no other reader, and kernels add them unrounded.

Close by means that one kernel can hold them. For halves, that nothing stands between:
what goes through memory stays small, and an overflow of a scaled loss is seen where it
is in other libraries. For products, that the sum waits for nothing later: what stands
between may be gone where a length is 1.
"""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.dims import is_dim, is_one, one
from treadle.ir.graph import Atom, Equation, Graph, Var
from treadle.ir.scalar import SCALARS
from treadle.ops.arithmetic import add, mul, multiply_add, sub
from treadle.ops.cast import convert
from treadle.passes.rewrite import Rewriter, dtypes_of
from treadle.trace.lowering import Elementwise, Index, Reduction, View, written

_HALVES = (dtypes.float16, dtypes.bfloat16)
_SINGLE_OR_DOUBLE = (dtypes.float32, dtypes.float64)
_ALONG = (Elementwise, Index, View)
"""What any kernel may hold with what comes before and after it."""


class _Readers:
    """Who reads the values of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.known: dict[Atom, list[Equation]] = {}
        self.returned = set(graph.outputs)
        self.equations = graph.equations
        self.position = {id(eq): n for n, eq in enumerate(graph.equations)}
        known = self.known
        for eq in graph.equations:
            for a in eq.inputs:
                if a not in known:
                    known[a] = [eq]
                elif known[a][-1] is not eq:
                    known[a].append(eq)

    def of(self, eq: Equation) -> list[Equation]:
        """The readers of an equation's result; none if it is returned."""
        (out,) = eq.outputs
        return [] if out in self.returned else self.known.get(out, [])

    def _is_apart(self, eq: Equation) -> bool:
        """Whether what comes before an equation and after it is in several kernels, or
        would be for other sizes: a contraction of one term, which no reduction adds, is
        a product for the matrix kernel where the length is open."""
        if eq.op is not multiply_add or eq.params["minus"]:
            return not _fuses(eq)
        return not any(isinstance(r.op.lowering, Reduction) for r in self.of(eq))

    def _vanishes(self, number: int) -> bool:
        reduced, behind = _lengths(self.equations[number])
        return (_all_open(reduced) and is_one(*reduced)) or (
            _all_open(behind) and is_one(*behind)
        )


class _Places(_Readers):
    """Who reads values, and whether other equations stand between."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        others = [self._is_apart(eq) and not _may_vanish(eq) for eq in graph.equations]
        self.others_before = list(accumulate(others, initial=0))
        self.vanishing = [n for n, eq in enumerate(graph.equations) if _may_vanish(eq)]

    def are_close_by(self, eq: Equation) -> bool:
        """Whether no equation that no kernel holds with others stands between one and
        its readers, of which there are some. This may ask about sizes: last."""
        found = self.of(eq)
        here, ends = self.position[id(eq)], [self.position[id(r)] for r in found]
        if any(self.others_before[n] != self.others_before[here + 1] for n in ends):
            return False
        between = [n for n in self.vanishing if here < n < max(ends)]
        return all(map(self._vanishes, between))


class _Waits(_Readers):
    """Who reads values, and what else the readers wait for."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.maker: dict[Atom, int] = {}
        self.apart: dict[Atom, int] = {}
        self.sometimes: dict[Atom, int] = {}
        for n, eq in enumerate(graph.equations):
            self._note(n, eq)

    def are_close_by(self, eq: Equation) -> bool:
        """Whether none waits for a later equation that no kernel holds with others.
        This may ask about sizes: last."""
        here, needed = self.position[id(eq)], {a for r in self.of(eq) for a in r.inputs}
        if any(self.apart.get(a, -1) > here for a in needed):
            return False
        return all(map(self._vanishes, self._vanishing_after(here, needed)))

    def _note(self, number: int, eq: Equation) -> None:
        """Of an equation's results: who makes them, and the last equations they wait
        for that no kernel holds with others, or that one does for some sizes only."""
        apart = some = -1
        for a in eq.inputs:
            apart = max(apart, self.apart.get(a, -1))
            if self.sometimes:
                some = max(some, self.sometimes.get(a, -1))
        # (Most are none of these, seen at once.)
        if eq.op is multiply_add or not isinstance(eq.op.lowering, _ALONG):
            if _may_vanish(eq):
                some = number
            elif self._is_apart(eq):
                apart = number
        for v in eq.outputs:
            if apart >= 0:
                self.apart[v] = apart
            if some >= 0:
                self.maker[v], self.sometimes[v] = number, some

    def _vanishing_after(self, here: int, needed: set[Atom]) -> list[int]:
        """The equations after one for which values wait, and that may vanish."""
        found, left, seen = set(), [*needed], set(needed)
        while left:
            a = left.pop()
            if self.sometimes.get(a, -1) <= here:
                continue
            maker = self.equations[self.maker[a]]
            if _may_vanish(maker):
                found.add(self.maker[a])
            left += [b for b in maker.inputs if b not in seen]
            seen.update(maker.inputs)
        return sorted(found)


def _role(eq: Equation) -> str:
    """What an equation makes of the bits that it reads (see `treadle.ir.scalar`)."""
    how = eq.op.lowering
    if isinstance(how, Reduction):
        return "arithmetic" if how.sums else "telling"
    if not isinstance(how, Elementwise):
        return "telling"
    roles = {SCALARS[i.name].role for i in written(eq)}
    for role in ("telling", "arithmetic"):
        if role in roles:
            return role
    return "passing"


def _fuses(eq: Equation) -> bool:
    """Whether what comes before an equation and after it may be in one kernel."""
    if not isinstance(eq.op.lowering, Reduction):
        return isinstance(eq.op.lowering, _ALONG)
    reduced, behind = _lengths(eq)
    return "axes" in eq.params and bool(reduced) and all(map(one, behind))


def _lengths(eq: Equation) -> tuple[list[int], list[int]]:
    """Those of the axes along which a reduction is, and of the axes behind them."""
    shape, axes = eq.inputs[0].type.shape, eq.params.get("axes")
    if axes is None:
        axes = (eq.params["axis"],)
    return [shape[a] for a in axes], list(shape[max(axes, default=-1) + 1 :])


def _all_open(lengths: list[int]) -> bool:
    """Whether all may be 1, and it is not known whether they are."""
    return any(map(is_dim, lengths)) and all(is_dim(n) or one(n) for n in lengths)


def _may_vanish(eq: Equation) -> bool:
    """Whether an equation that keeps others apart does not for some sizes: a sum or a
    search along axes of open lengths is none where they are 1, and is over the last
    axis where those behind it are 1."""
    if not isinstance(eq.op.lowering, Reduction) or _fuses(eq):
        return False
    return any(map(_all_open, _lengths(eq)))


class _Widen(Rewriter):
    """Leaves half floats in float32 where nobody can tell."""

    @cached_property
    def readers(self) -> _Places:
        return _Places(self.graph)

    def equation(self, eq: Equation) -> None:
        inputs = [self.read(a) for a in eq.inputs]
        out = eq.outputs[0] if eq.outputs else None
        if eq.op is convert and inputs[0].type.dtype == eq.params["dtype"]:
            self.values[eq.outputs[0]] = inputs[0]
            return
        if out is None or not self._is_wide(eq):
            self.keep(eq)
            return
        wide = Var(ArrayType(out.type.shape, dtypes.float32))
        self.emit(eq.op, inputs, eq.params, eq.source, [wide])
        self.values[out] = wide

    def _is_wide(self, eq: Equation) -> bool:
        if eq.outputs[0].type.dtype not in _HALVES or _role(eq) == "telling":
            return False
        readers = self.readers.of(eq)
        computes = bool(readers) and all(map(self._computes, readers))
        return computes and self.readers.are_close_by(eq)

    def _computes(self, reader: Equation) -> bool:
        """Whether an equation makes other numbers of a half float, or rounds."""
        if reader.op is convert and reader.params["dtype"] == dtypes.float32:
            after = self.readers.of(reader)
            arithmetic = bool(after) and all(_role(r) == "arithmetic" for r in after)
            return arithmetic and self.readers.are_close_by(reader)
        return _role(reader) != "telling"


class _Contract(Rewriter):
    """Makes one equation of a product and the sum that alone reads it."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        readers = _Waits(graph)
        self.products: dict[Atom, Equation] = {}
        taken: set[int] = set()
        for eq in graph.equations:
            if eq.op is not mul:
                continue
            found = readers.of(eq)
            if len(found) != 1 or id(found[0]) in taken or not _adds(found[0], eq):
                continue
            if readers.are_close_by(eq):
                self.products[eq.outputs[0]] = eq
                taken.add(id(found[0]))

    def equation(self, eq: Equation) -> None:
        products = self.products
        if products.keys().isdisjoint(eq.inputs):
            if not (eq.outputs and eq.outputs[0] in products):
                self.keep(eq)
            return
        if eq.outputs and eq.outputs[0] in products:
            return
        for i, a in enumerate(eq.inputs):
            if a in products:
                product = products[a]
                x, y = self.read(product.inputs[0]), self.read(product.inputs[1])
                z = self.read(eq.inputs[1 - i])
                minus = None if eq.op is add else ("term", "product")[i]
                params = {"minus": minus}
                self.emit(multiply_add, [x, y, z], params, eq.source, eq.outputs)
                return
        self.keep(eq)


def _adds(total: Equation, product: Equation) -> bool:
    """Whether a sum is of a product, once, and point for point."""
    (out,) = product.outputs
    return (
        total.op in (add, sub)
        and total.inputs.count(out) == 1
        and out.type.dtype in _SINGLE_OR_DOUBLE
        and out.type.shape == total.outputs[0].type.shape
    )


def place_roundings(graph: Graph, widen: bool) -> Graph:
    """The graph with the types of half floats, and with products and sums, as the
    module says. If `widen`, operands and results of an equation may be half floats and
    float32: it is computed in float32 then, and a result that is a half is rounded."""
    halves = widen and not dtypes_of(graph).isdisjoint(_HALVES)
    return _Contract.apply(_Widen.apply(graph) if halves else graph)
