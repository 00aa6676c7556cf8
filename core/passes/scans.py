"""Takes contractions out of scans: one large product instead of one per iteration.

Three kinds need no loop, only all iterations' operands at once:

- *before*: what depends on scanned inputs and constants alone (``x[t] @ W``) is
  computed for all iterations first, and its rows are scanned;
- *sums*: a carry that only collects ``+ a[t] @ b[t]`` or ``+ sum(a[t])`` (the gradient
  of a weight) is one contraction over time and the rest, of the stacked operands; so
  is each of several that it collects;
- *after*: a stacked output ``a[t] @ W`` is computed from the stacked ``a``.

A product that stays, of a carry and a constant, finds the constant *turned* the way
products read it: ``h @ W.T``, of the backward pass, does not transpose W every time.

Rows of scanned and stacked arrays correspond whether or not the scan is reversed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from treadle.arraytype import ArrayType
from treadle.control.scan import scan
from treadle.dims import hint, settled
from treadle.ir.graph import Atom, Equation, Graph, Lit, Var
from treadle.ir.walk import live
from treadle.ops.arithmetic import add
from treadle.ops.dot import dot_general
from treadle.ops.movement import broadcast_in_dim, transpose
from treadle.ops.reduce import reduce_sum
from treadle.passes.contractions import adds_nothing
from treadle.passes.rewrite import Rewriter, mentions
from treadle.scopes import within
from treadle.trace.axes import MappedAxis
from treadle.trace.lowering import Elementwise, Index, Product, View
from treadle.trace.op import Op
from treadle.transforms.batch import batch_graph

_MAX_STACKED_BYTES = 1 << 28
_LITTLE_BYTES = 1 << 20
_NEAR_BYTES = 1 << 18
_GROWTH = 8
"""How much larger than its result the operands may be that an iteration stores."""
_MOVABLE = (Elementwise, Index, View, Product)
"""What can be done for all iterations at once."""


def hoist_from_scans(graph: Graph) -> Graph:
    """Moves contractions out of scans, in nested graphs too."""
    return _Hoist.apply(graph) if mentions(graph, (scan,)) else graph


class _Hoist(Rewriter):
    def equation(self, eq: Equation) -> None:
        # A scan of open length is worth it, and right for any length.
        if eq.op is not scan or hint(eq.params["length"]) < 2:
            self.keep(eq)
            return
        body = _Hoist.apply(eq.params["graph"])
        loop = _Scan(body, eq.params, [self.read(a) for a in eq.inputs], self, eq)
        loop.before()
        loop.sums()
        loop.after()
        loop.turn()
        loop.emit()


class _Scan:
    """A scan while it is being taken apart."""

    def __init__(
        self,
        body: Graph,
        params: dict,
        operands: Sequence[Atom],
        writer: Rewriter,
        eq: Equation,
    ) -> None:
        n_consts, n_carry = params["n_consts"], params["n_carry"]
        self.writer, self.eq, self.params = writer, eq, params
        self.length: int = params["length"]
        self.equations = list(body.equations)
        inputs = list(zip(body.inputs, operands, strict=True))
        self.consts = inputs[:n_consts]
        self.carries = inputs[n_consts : n_consts + n_carry]
        self.xs = inputs[n_consts + n_carry :]
        self.carry_outs = list(body.outputs[:n_carry])
        self.ys = list(body.outputs[n_carry:])
        self.sums_of: dict[int, list[Equation]] = {}
        self.outputs_of: dict[int, Equation] = {}
        self.name = body.name

    # What each part needs to know

    def _outer(self) -> dict[Var, tuple[Atom, bool]]:
        """Values that exist outside of the loop, and whether they have a time axis."""
        known = {v: (a, False) for v, a in self.consts}
        return known | {v: (a, True) for v, a in self.xs}

    def _uses(self, v: Var) -> int:
        inside = sum(a is v for eq in self.equations for a in eq.inputs)
        return inside + sum(a is v for a in (*self.carry_outs, *self.ys))

    def _batched(
        self,
        equations: Sequence[Equation],
        inputs: Sequence[Var],
        outs: Sequence[Var],
        known: dict[Var, tuple[Atom, bool]],
    ) -> list[tuple[Atom, bool]]:
        """Emits equations of the body outside, for all iterations at once."""
        # To what traces them, a literal would be the number of one size.
        numbers = _Numbers(equations)
        given = [*inputs, *numbers.stand_ins.values()]
        part = Graph(given, numbers.equations, outs, self.name)
        flags = *(known[v][1] for v in inputs), *(False for _ in numbers.stand_ins)
        wide, batched = batch_graph(part, MappedAxis(None, self.length), flags)
        args = [*(known[v][0] for v in inputs), *numbers.stand_ins]
        made = self.writer.splice(wide, args, self.eq.source)
        return list(zip(made, batched, strict=True))

    # Before

    def before(self) -> None:
        """Contractions of scanned inputs and constants."""
        known = set(self._outer())
        free: dict[Var, Equation] = {}
        for eq in self.equations:
            movable = not eq.op.effect and isinstance(eq.op.lowering, _MOVABLE)
            if movable and all(
                isinstance(a, Lit) or a in known or a in free for a in eq.inputs
            ):
                free.update((v, eq) for v in eq.outputs)
        timed = {v for v, _ in self.xs}
        for eq in free.values():
            if not timed.isdisjoint(eq.inputs):
                timed.update(eq.outputs)
        products = [
            e
            for e in self.equations
            if e.op is dot_general and e.outputs[0] in free and _joins(e, timed)
        ]
        if not products:
            return
        found = set(products)
        outside = found.union(free.values())
        equations = [e for e in self.equations if e in outside]
        chosen, needed = live(equations, (), found.__contains__)
        inputs = [v for v in self._outer() if v in needed]
        outs = [e.outputs[0] for e in products]
        for v, (value, batched) in zip(
            outs, self._batched(chosen, inputs, outs, self._outer()), strict=True
        ):
            (self.xs if batched else self.consts).append((v, value))
        self.equations = [e for e in self.equations if e not in found]
        self._drop_dead()

    # Sums

    def sums(self) -> None:
        """Carries that only add up."""
        makers = {v: e for e in self.equations for v in e.outputs}
        outs = (*self.carry_outs, *self.ys)
        read = [a for eq in self.equations for a in eq.inputs]
        uses = Counter([a for a in (*read, *outs) if isinstance(a, Var)])
        # Products first: a sum over what they stack costs nothing more.
        for op in (dot_general, reduce_sum):
            for k in range(len(self.carries)):
                self._take_terms(k, op, makers, uses)

    def _take_terms(
        self, k: int, op: Op, makers: dict[Var, Equation], uses: Counter[Var]
    ) -> None:
        """Takes terms that an operation makes out of a sum that a carry collects."""
        v = self.carries[k][0]
        additions, terms = self._added(k, makers, uses)
        taken = {
            a: makers[a]
            for a in terms
            if isinstance(a, Var)
            and a in makers
            and makers[a].op is op
            and uses[a] == 1
            and self._worth_stacking(makers[a], v.type)
        }
        if not taken:
            return
        gone = {*additions, *taken.values()}
        self.equations = [eq for eq in self.equations if eq not in gone]
        self.sums_of.setdefault(k, []).extend(taken.values())
        for source in taken.values():
            self._stack_operands(source)
        total = v
        for a in terms:
            if a not in taken:
                more = Var(v.type)
                eq = Equation(add, [total, a], {}, [more], additions[0].source)
                self.equations.append(eq)
                makers[more], uses[more], total = eq, 1, more
        self.carry_outs[k] = total

    def _added(
        self, k: int, makers: dict[Var, Equation], uses: Counter[Var]
    ) -> tuple[list[Equation], list[Atom]]:
        """If a carry only adds up: the additions, and what they add to it."""
        v, additions, terms = self.carries[k][0], list[Equation](), list[Atom]()
        left: list[Atom] = [self.carry_outs[k]]
        while left:
            a = left.pop()
            maker = makers.get(a) if isinstance(a, Var) else None
            if maker is not None and maker.op is add and uses[a] == 1:  # type: ignore[index]
                additions.append(maker)
                left += reversed(maker.inputs)
            else:
                terms.append(a)
        if uses[v] != 1 or sum(a is v for a in terms) != 1:
            return [], []
        return additions, [a for a in terms if a is not v]

    def _worth_stacking(self, eq: Equation, out: ArrayType) -> bool:
        """Whether to store an equation's operands, of all iterations, for one large
        product or sum after the loop: if they are little, or not much more than what
        the loop touches anyway. A program, or its `remat`, may have been written not to
        take that memory."""
        each = sum([a.type.nbytes for a in self._to_stack(eq)])
        # The order of a sum depends on it: two sizes of one program must agree.
        args = (each, each * self.length, out.nbytes)
        return bool(settled(_worth_stacking, args))

    def _to_stack(self, eq: Equation) -> list[Var]:
        """The operands that are not stored yet."""
        known = self._outer()
        found = [a for a in dict.fromkeys(eq.inputs) if isinstance(a, Var)]
        return [a for a in found if a not in known and a not in self.ys]

    def _stack_operands(self, eq: Equation) -> None:
        self.ys += self._to_stack(eq)

    # After

    def after(self) -> None:
        """Stacked outputs that are contractions."""
        makers = {v: e for e in self.equations for v in e.outputs}
        for i, y in enumerate(self.ys[: len(self.eq.outputs) - len(self.carries)]):
            source = makers.get(y) if isinstance(y, Var) else None
            if (
                source is not None
                and source.op is dot_general
                and self._uses(y) == 1  # type: ignore[arg-type]
                and self._is_joined(source)
                and self._worth_stacking(source, source.outputs[0].type)
            ):
                self.outputs_of[i] = source
        for source in self.outputs_of.values():
            self.equations.remove(source)
            self._stack_operands(source)

    def _is_joined(self, eq: Equation) -> bool:
        """Whether the products of all iterations are one: they share an operand."""
        known = self._outer()
        return any(
            isinstance(a, Lit) or not known.get(a, (a, True))[1] for a in eq.inputs
        )

    # Constants

    def turn(self) -> None:
        """Right operands that products would have to transpose: constants whose last
        axis is contracted. With a vector, the constant becomes the right one: sums over
        rows keep neighbours in the lanes of registers."""
        values = dict(self.consts)
        makers = {v: e for e in self.equations for v in e.outputs}
        turned: dict[tuple[Var, tuple[int, ...]], Var] = {}
        for i, eq in enumerate(self.equations):
            if _is_times_vector(eq) and _is_near(eq.inputs[0].type):
                eq = _exchanged(eq)
            base, axes = _untransposed(eq, makers)
            if base is None or base not in values:
                continue
            (xc, yc), (xb, yb) = eq.params["contract"], eq.params["batch"]
            free = [a for a in range(len(axes)) if a not in (*yc, *yb)]
            if not free or len(axes) - 1 not in [axes[a] for a in yc]:
                continue
            order = tuple([axes[a] for a in (*yb, *yc, *free)])
            if (base, order) not in turned:
                params = {"permutation": order}
                source = self._source(eq)
                (value,) = self.writer.emit(transpose, [values[base]], params, source)
                turned[base, order] = Var(value.type)
                self.consts.append((turned[base, order], value))
            first = tuple(range(len(yb) + len(yc)))
            params = {
                "contract": (xc, first[len(yb) :]),
                "batch": (xb, first[: len(yb)]),
            }
            inputs = [eq.inputs[0], turned[base, order]]
            self.equations[i] = Equation(eq.op, inputs, params, eq.outputs, eq.source)

    # The new loop

    def emit(self) -> None:
        """Writes the smaller scan, and what comes after it."""
        count = len(self.carries)
        kept = [
            k
            for k in range(count)
            if k not in self.sums_of or self.carry_outs[k] is not self.carries[k][0]
        ]
        carry_outs = [self.carry_outs[k] for k in kept]
        n_ys = len(self.eq.outputs) - count
        stay = [i for i in range(len(self.ys)) if i not in self.outputs_of]
        carried = [self.carries[k] for k in kept]
        used = {a for e in self.equations for a in e.inputs if isinstance(a, Var)}
        used |= {a for a in (*carry_outs, *self.ys) if isinstance(a, Var)}
        consts = [(v, a) for v, a in self.consts if v in used]
        graph = Graph(
            [v for v, _ in (*consts, *carried, *self.xs)],
            self.equations,
            [*carry_outs, *(self.ys[i] for i in stay)],
            self.name,
        )
        params = self.params | {
            "graph": graph,
            "n_consts": len(consts),
            "n_carry": len(kept),
        }
        args = [a for _, a in (*consts, *carried, *self.xs)]
        outs = self.writer.emit(self.eq.op, args, params, self.eq.source)
        values = self.writer.values
        for k, v in zip(kept, outs, strict=False):
            values[self.eq.outputs[k]] = v
        rows = dict(zip(stay, outs[len(kept) :], strict=True))
        for i, v in rows.items():
            if i < n_ys:
                values[self.eq.outputs[count + i]] = v
        self._stacked = self._outer()
        for i, v in rows.items():
            y = self.ys[i]
            if isinstance(y, Var):
                self._stacked[y] = (v, True)
        for k, sources in self.sums_of.items():
            total = values[self.eq.outputs[k]] if k in kept else self.carries[k][1]
            for source in sources:
                total = self._sum(source, total)
            values[self.eq.outputs[k]] = total
        for i, source in self.outputs_of.items():
            values[self.eq.outputs[count + i]] = self._rows(source)

    def _operand(self, a: Atom) -> tuple[Atom, bool]:
        return (a, False) if isinstance(a, Lit) else self._stacked[a]

    def _sum(self, eq: Equation, start: Atom) -> Var:
        """The sum over all iterations of a contraction or reduction."""
        source = self._source(eq)
        if eq.op is reduce_sum:
            value, _ = self._operand(eq.inputs[0])
            axes = (0, *(a + 1 for a in eq.params["axes"]))
            (total,) = self.writer.emit(eq.op, [value], {"axes": axes}, source)
        else:
            x, y = (self._over_time(a) for a in eq.inputs)
            (xc, yc), (xb, yb) = eq.params["contract"], eq.params["batch"]
            params = {
                "contract": ((0, *_up(xc)), (0, *_up(yc))),
                "batch": (_up(xb), _up(yb)),
            }
            (total,) = self.writer.emit(dot_general, [x, y], params, source)
        return self.writer.emit(add, [start, total], {}, source)[0]

    def _source(self, eq: Equation) -> str:
        """Where what is done outside for an equation of the body comes from."""
        around = self.eq.source
        return within(eq.source, around) if eq.source else around

    def _over_time(self, a: Atom) -> Atom:
        """The operand with a time axis, repeated if it does not change."""
        value, batched = self._operand(a)
        if batched:
            return value
        t = value.type
        wide = ArrayType((self.length, *t.shape), t.dtype)
        params = {"shape": wide.shape, "dims": tuple(range(1, len(wide.shape)))}
        return self.writer.emit(broadcast_in_dim, [value], params, self.eq.source)[0]

    def _rows(self, eq: Equation) -> Atom:
        """All iterations' results of a contraction, stacked."""
        inputs = list(dict.fromkeys(a for a in eq.inputs if isinstance(a, Var)))
        ((value, _),) = self._batched([eq], inputs, eq.outputs, self._stacked)
        return value

    def _drop_dead(self) -> None:
        self.equations, needed = live(self.equations, (*self.carry_outs, *self.ys))
        self.xs = [(v, a) for v, a in self.xs if v in needed]


class _Numbers:
    """Equations in which variables stand for the numbers that vary with sizes."""

    def __init__(self, equations: Sequence[Equation]) -> None:
        self.stand_ins: dict[Lit, Var] = {}
        self.equations = [self._without(eq) for eq in equations]

    def _without(self, eq: Equation) -> Equation:
        inputs = [self._of(a) for a in eq.inputs]
        return Equation(eq.op, inputs, eq.params, eq.outputs, eq.source)

    def _of(self, a: Atom) -> Atom:
        if not isinstance(a, Lit) or not a.varies:
            return a
        return self.stand_ins.setdefault(a, Var(a.type))


def _worth_stacking(each: int, stacked: int, result: int) -> int:
    if stacked <= _LITTLE_BYTES:
        return 1
    return int(stacked <= _MAX_STACKED_BYTES and each <= _GROWTH * result)


def _up(axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(a + 1 for a in axes)


def _untransposed(
    eq: Equation, makers: dict[Var, Equation]
) -> tuple[Var | None, Sequence[int]]:
    """Of what a product's right operand is a transpose, and its axes there."""
    y = eq.inputs[1] if eq.op is dot_general else None
    if not isinstance(y, Var):
        return None, ()
    maker = makers.get(y)
    if maker is not None and maker.op is transpose:
        source = maker.inputs[0]
        return source if isinstance(source, Var) else None, maker.params["permutation"]
    return y, range(y.type.ndim)


def _is_times_vector(eq: Equation) -> bool:
    """Whether the right operand of a product has no axis that only it has."""
    if eq.op is not dot_general:
        return False
    axes = len(eq.params["contract"][1]) + len(eq.params["batch"][1])
    return eq.inputs[1].type.ndim == axes


def _is_near(matrix: ArrayType) -> bool:
    """Whether a matrix stays in a near cache. Others are read row by row: neighbours in
    memory come fastest."""
    return bool(settled(_fits, (*matrix.shape, matrix.dtype.itemsize)))


def _fits(*sizes: int) -> int:
    return int(math.prod(sizes) <= _NEAR_BYTES)


def _exchanged(eq: Equation) -> Equation:
    """The same product with a vector on the left."""
    params = {name: axes[::-1] for name, axes in eq.params.items()}
    return Equation(eq.op, eq.inputs[::-1], params, eq.outputs, eq.source)


def _joins(eq: Equation, timed: set[Var]) -> bool:
    """Whether products of all iterations are worth being one. They are not where each
    has a matrix of its own, columns last, and shares less than that with the others:
    what is read is the same, in or outside of the loop. Nor where nothing is shared and
    each makes more than it reads: that would be stored for all iterations. Those
    without a sum are made where they are read."""
    if adds_nothing(eq):
        return False
    own = [i for i, a in enumerate(eq.inputs) if a in timed]
    if len(own) == 2:
        sizes = [a.type.size for a in (*eq.outputs, *eq.inputs)]
        return bool(settled(_is_no_larger, sizes))
    if not own:
        return True
    (i,) = own
    mine, shared = eq.inputs[i].type, eq.inputs[1 - i].type
    taken = (*eq.params["contract"][i], *eq.params["batch"][i])
    if mine.ndim < 2 or mine.ndim - 1 in taken:
        return True
    return bool(settled(_is_shared, (len(mine.shape), *mine.shape, *shared.shape)))


def _is_no_larger(result: int, *operands: int) -> int:
    return int(result <= max(operands))


def _is_shared(ndim: int, *sizes: int) -> int:
    return int(math.prod(sizes[ndim:]) >= math.prod(sizes[:ndim]))
