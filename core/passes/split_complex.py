"""Complex numbers become pairs of real ones, so that kernels compute with them.

Arrays that enter or leave a program, and operands of what only the host can do, are
complex as before: `parts` and `complex` stand where one form becomes the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.control.cond import cond
from treadle.control.scan import scan
from treadle.control.while_loop import while_loop
from treadle.ir.graph import Atom, Equation, Graph, Lit, Var, params_key
from treadle.late import Computed
from treadle.dims import is_dim
from treadle.ops.arithmetic import add, mul, sub
from treadle.ops.complex import complex_, imag, parts, real
from treadle.ops.conv import conv_filter_grad, conv_general
from treadle.ops.dot import dot_general, free_axes
from treadle.ops.movement import broadcast_in_dim, reshape, transpose
from treadle.ops.compare import lt, select
from treadle.ops.shape import concatenate, iota, pad, slice_axis
from treadle.passes.pair_functions import FUNCTIONS
from treadle.passes.pairs import COMPONENTWISE, RULES, Pair
from treadle.passes.rewrite import Rewriter
from treadle.run.eager import Applied
from treadle.trace.op import Op
from treadle.trace.stage import stage
from treadle.trace.value import typeof

_RULES = RULES | FUNCTIONS
_BILINEAR = (dot_general, conv_general, conv_filter_grad)
_Pair = tuple[Atom, Atom]
_FEW = 4
_FILLS = 16


class _Split(Rewriter):
    """`pairs` are the parts of values, `joined` the complex values of parts, where
    these are known. `real` are imaginary parts that are zero."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.pairs: dict[Atom, _Pair] = {}
        self.joined: dict[Atom, Atom] = {}
        self.zeros: set[Atom] = set()
        self.written: dict[tuple, Graph] = {}

    def run(self) -> Graph:
        """With inputs and results as they were."""
        old = self.graph
        for v in old.inputs:
            self._take_apart(v)
        for eq in old.equations:
            self.equation(eq)
        outputs = [self._whole(a, "") for a in old.outputs]
        return Graph(old.inputs, self.equations, outputs, old.name)

    def run_split(self) -> Graph:
        """With the parts of what is complex among inputs and results."""
        old, inputs = self.graph, []
        for v in old.inputs:
            inputs += self._declared([v])
        for eq in old.equations:
            self.equation(eq)
        return Graph(inputs, self.equations, self._flat(old.outputs), old.name)

    @classmethod
    def apply(cls, graph: Graph) -> Graph:
        return cls(graph).run() if _has_complex(graph) else graph

    # Values

    def _pair(self, a: Atom) -> _Pair:
        """The parts of a complex value."""
        a = self.read(a)
        if a not in self.pairs:
            assert isinstance(a, Lit)
            self.pairs[a] = _part(a, real), _part(a, imag)
        return self.pairs[a]

    def _whole(self, a: Atom, source: str) -> Atom:
        """A value as what is no kernel sees it."""
        a = self.read(a)
        if a not in self.pairs or isinstance(a, Lit):
            return a
        if a not in self.joined:
            (self.joined[a],) = self.emit(complex_, self.pairs[a], {}, source)
        return self.joined[a]

    def _flat(self, atoms: Sequence[Atom]) -> list[Atom]:
        """Values, with those that are complex as two."""
        found: list[Atom] = []
        for a in atoms:
            found += self._pair(a) if _complex(a) else [self.read(a)]
        return found

    def _declared(self, variables: Sequence[Var]) -> list[Var]:
        """New variables for values of which the complex ones are two."""
        found: list[Var] = []
        for v in variables:
            if _complex(v):
                t = ArrayType(v.type.shape, dtypes.to_real(v.type.dtype))
                self.pairs[v] = Var(t), Var(t)
                found += self.pairs[v]  # type: ignore[arg-type]
            else:
                found.append(v)
        return found

    def _take_apart(self, v: Var, source: str = "") -> None:
        """Makes the parts of a complex array."""
        if not _complex(v):
            return
        self.joined[v] = v
        found = self._spliced(("parts",), _parts, [v], source)
        self.pairs[v] = found[0], found[1]

    def _spliced(
        self,
        key: tuple,
        function: Callable[..., Sequence[Any]],
        inputs: Sequence[Atom],
        source: str,
    ) -> Sequence[Atom]:
        """Writes the equations of a function, which is traced once for each key and
        types."""
        types = tuple([a.type for a in inputs])
        graph = self.written.get((key, types))
        if graph is None:
            graph, captured = stage(function, types, closed=True)
            assert not captured
            self.written[key, types] = graph
        return self.splice(graph, inputs, source)

    # Equations

    def equation(self, eq: Equation) -> None:
        if not any(map(_complex, (*eq.inputs, *eq.outputs))):
            self.keep(eq)
        elif eq.op in _CONTROL:
            _CONTROL[eq.op](self, eq)
        elif eq.op in _BILINEAR:
            self._product(eq)
        elif eq.op is concatenate and _has_few(eq):
            self._write(eq, _by_components(_chosen))
        elif eq.op in _RULES:
            self._write(eq, _RULES[eq.op])
        elif eq.op in COMPONENTWISE:
            self._write(eq, _by_components(eq.op))
        else:
            self._hand_over(eq)

    def _write(self, eq: Equation, rule: Callable[..., Any]) -> None:
        """Writes what a rule makes of the operands, complex ones as pairs."""
        flags = tuple(map(_complex, eq.inputs))

        def function(*flat: Any) -> list[Any]:
            values = iter(flat)
            args = [Pair(next(values), next(values)) if f else next(values) for f in flags]
            out = rule(*args, **eq.params)
            found: list[Any] = []
            for x in out if eq.op.multiple else (out,):
                found += x if isinstance(x, Pair) else [x]
            return found

        key = eq.op, flags, params_key(eq.params)
        self._define(eq, self._spliced(key, function, self._flat(eq.inputs), eq.source))

    def _define(self, eq: Equation, found: Sequence[Atom]) -> None:
        """Says where an equation's results are found."""
        values = iter(found)
        for v in eq.outputs:
            if _complex(v):
                self.pairs[v] = re, im = next(values), next(values)
                if isinstance(im, Var):
                    im.twin = re
            else:
                self.values[v] = next(values)

    def _hand_over(self, eq: Equation) -> None:
        """Leaves an equation to what takes complex arrays."""
        inputs = [self._whole(a, eq.source) for a in eq.inputs]
        self.keep(Equation(eq.op, inputs, eq.params, eq.outputs, eq.source))
        for v in eq.outputs:
            self._take_apart(v, eq.source)

    def _product(self, eq: Equation) -> None:
        """A product by products of the parts that are not zero."""
        x, y = (self._factors(a) for a in eq.inputs)
        few = eq.op is dot_general and _is_over_few(eq)

        def product(a: Atom, b: Atom) -> Atom:
            if not few:
                return self.emit(eq.op, [a, b], eq.params, eq.source)[0]
            key = dot_general, params_key(eq.params)
            function = partial(_sum_of_products, **eq.params)
            return self._spliced(key, function, [a, b], eq.source)[0]

        def combined(op: Op, a: Atom, b: Atom) -> Atom:
            return self.emit(op, [a, b], {}, eq.source)[0]

        re = product(x[0], y[0])
        if len(x) == 2 and len(y) == 2:
            re = combined(sub, re, product(x[1], y[1]))
            im = combined(add, product(x[0], y[1]), product(x[1], y[0]))
        else:
            im = product(x[0], y[1]) if len(y) == 2 else product(x[1], y[0])
        self._define(eq, [re, im])

    def _factors(self, a: Atom) -> Sequence[Atom]:
        re, im = self._pair(a)
        return (re,) if im in self.zeros else (re, im)

    # Loops and branches

    def _scan(self, eq: Equation) -> None:
        first = eq.params["n_consts"]
        last = first + eq.params["n_carry"]
        consts, carries = self._flat(eq.inputs[:first]), self._flat(eq.inputs[first:last])
        params = eq.params | {
            "graph": _split(eq.params["graph"]),
            "n_consts": len(consts),
            "n_carry": len(carries),
        }
        inputs = [*consts, *carries, *self._flat(eq.inputs[last:])]
        self.emit(eq.op, inputs, params, eq.source, self._declared(eq.outputs))

    def _while(self, eq: Equation) -> None:
        first = eq.params["n_test_consts"]
        last = first + eq.params["n_body_consts"]
        tests, bodies = self._flat(eq.inputs[:first]), self._flat(eq.inputs[first:last])
        params = eq.params | {
            "test": _split(eq.params["test"]),
            "body": _split(eq.params["body"]),
            "n_test_consts": len(tests),
            "n_body_consts": len(bodies),
        }
        inputs = [*tests, *bodies, *self._flat(eq.inputs[last:])]
        self.emit(eq.op, inputs, params, eq.source, self._declared(eq.outputs))

    def _cond(self, eq: Equation) -> None:
        params = eq.params | {"branches": tuple(map(_split, eq.params["branches"]))}
        outputs = self._declared(eq.outputs)
        self.emit(eq.op, self._flat(eq.inputs), params, eq.source, outputs)

    def write(self, eq: Equation) -> None:
        super().write(eq)
        if eq.op is broadcast_in_dim and _is_zero(eq.inputs[0]):
            self.zeros.add(eq.outputs[0])


_CONTROL: dict[Op, Callable[[_Split, Equation], None]] = {
    scan: _Split._scan,
    while_loop: _Split._while,
    cond: _Split._cond,
}


def _complex(a: Atom) -> bool:
    return a.type.dtype.kind == "c"


def _is_zero(a: Atom) -> bool:
    return isinstance(a, Lit) and a.size is None and not a.value.any()


def _part(a: Lit, op: Op) -> Lit:
    """A part of a literal."""
    t = ArrayType(a.type.shape, dtypes.to_real(a.type.dtype), a.type.weak)
    value = np.array(op.run(a.value), t.dtype)
    size = a.size and Computed(Applied(op, ()), (a.size,), t.dtype)
    return Lit(value if t.shape else value[()], t, a.varies, size)


def _has_few(eq: Equation) -> bool:
    """Whether a concatenation is so small that its elements are better chosen in the
    kernels that read them than put together in memory."""
    shape = eq.outputs[0].type.shape
    return not any(map(is_dim, shape)) and 0 < math.prod(shape) <= _FEW**2 and all(a.type.shape[eq.params['axis']]==1 for a in eq.inputs)


def _chosen(*pieces: Any, axis: int) -> Any:
    """A concatenation of real arrays."""
    starts = list(itertools.accumulate([typeof(a).shape[axis] for a in pieces]))
    shape = list(typeof(pieces[0]).shape)
    shape[axis] = starts[-1]
    place = iota(shape=tuple(shape), axis=axis, dtype=dtypes.int32)
    found = None
    for a, end in zip(reversed(pieces), reversed(starts), strict=True):
        n = typeof(a).shape[axis]
        if n > 1:
            padding = [(0, 0, 0)] * len(shape)
            padding[axis] = (end - n, starts[-1] - end, 0)
            a = pad(a, typeof(a).dtype.type(0), padding=tuple(padding))
        else:
            a = broadcast_in_dim(a, shape=tuple(shape), dims=tuple(range(len(shape))))
        found = a if found is None else select(lt(place, np.int32(end)), a, found)
    return found


def _is_over_few(eq: Equation) -> bool:
    """Whether a contraction sums so few products that they are better written out, to
    run with what is computed beside them."""
    lengths = [eq.inputs[0].type.shape[a] for a in eq.params["contract"][0]]
    return not any(map(is_dim, lengths)) and math.prod(lengths) <= _FEW


def _sum_of_products(x: Any, y: Any, *, contract: Any, batch: Any) -> list[Any]:
    """A contraction of real arrays, as a sum of elementwise products."""
    operands = []
    shapes = [typeof(a).shape for a in (x, y)]
    free = [
        free_axes(len(s), c, b) for s, c, b in zip(shapes, contract, batch, strict=True)
    ]
    lead = len(batch[0])
    sizes = [shapes[0][a] for a in (*batch[0], *free[0])]
    sizes += [shapes[1][a] for a in free[1]]
    order = _longest_last(sizes)
    shape = tuple([sizes[i] for i in order])
    starts = lead, lead + len(free[0])
    for a, c, b, f, start in zip((x, y), contract, batch, free, starts, strict=True):
        axes = [*range(lead), *range(start, start + len(f))]
        dims = [order.index(i) for i in axes]
        kept = [axis for _, axis in sorted(zip(dims, (*b, *f), strict=True))]
        operands.append((transpose(a, permutation=(*c, *kept)), tuple(sorted(dims))))
    total = None
    for index in itertools.product(*[range(shapes[0][a]) for a in contract[0]]):
        factors = []
        for a, dims in operands:
            for i in index:
                a = slice_axis(a, 0, i, i + 1)
                a = reshape(a, shape=typeof(a).shape[1:])
            factors.append(broadcast_in_dim(a, shape=shape, dims=dims))
        term = mul(*factors)
        total = term if total is None else add(total, term)
    back = [order.index(i) for i in range(len(order))]
    return [transpose(total, permutation=tuple(back))]


def _longest_last(sizes: Sequence[int]) -> list[int]:
    """An order of axes in which vectors along the last one are filled."""
    axes = list(range(len(sizes)))
    if not axes or any(map(is_dim, sizes)) or sizes[-1] >= _FILLS:
        return axes
    longest = max(axes, key=lambda i: (sizes[i], i))
    return [*(i for i in axes if i != longest), longest]


def _parts(x: Any) -> list[Any]:
    """Views of the parts of an array."""
    both = parts(x)
    t = typeof(x)
    return [reshape(slice_axis(both, t.ndim, i, i + 1), shape=t.shape) for i in (0, 1)]


def _by_components(op: Op) -> Callable[..., Any]:
    """What an op does that treats both parts alike."""

    def rule(*args: Any, **params: Any) -> Any:
        if "dtype" in params:
            params["dtype"] = dtypes.to_real(params["dtype"])
        re = op(*[x.re if isinstance(x, Pair) else x for x in args], **params)
        im = op(*[x.im if isinstance(x, Pair) else x for x in args], **params)
        if not getattr(op, "multiple", False):
            return Pair(re, im)
        return [
            Pair(*both) if isinstance(x, Pair) else both[0]
            for x, *both in zip(args, re, im, strict=True)
        ]

    return rule


def _has_complex(graph: Graph) -> bool:
    """Whether a graph, or one nested in it, has a complex value. Cached on the graph."""
    if "has_complex" not in graph.cache:
        graph.cache["has_complex"] = (
            any(map(_complex, (*graph.inputs, *graph.outputs)))
            or any([v.type.dtype.kind == "c" for e in graph.equations for v in e.outputs])
            or any(_has_complex(g) for eq in graph.equations for g in eq.graphs)
        )
    return graph.cache["has_complex"]


def _split(graph: Graph) -> Graph:
    return _Split(graph).run_split()


def split_complex(graph: Graph) -> Graph:
    """A graph that computes with complex numbers as pairs of real ones, nested graphs
    included; the same graph, if it has none."""
    return _Split.apply(graph)
