"""Complex numbers become pairs of real ones, so that kernels compute with them.

Arrays that enter or leave a program, and operands of what only the host can do, are
complex as before: `parts` and `complex` stand where one form becomes the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.control.cond import cond
from treadle.control.scan import scan
from treadle.control.while_loop import while_loop
from treadle.dims import is_dim
from treadle.ir.graph import Atom, Equation, Graph, Lit, Var, params_key
from treadle.late import Computed
from treadle.ops.arithmetic import add, sub
from treadle.ops.complex import complex_, imag, parts, real, whole
from treadle.ops.conv import conv_filter_grad, conv_general
from treadle.ops.dot import dot_general
from treadle.ops.movement import broadcast_in_dim, expand, full, reshape
from treadle.ops.shape import slice_axis
from treadle.ops.sort import sort
from treadle.passes.packed import Packed
from treadle.passes.pair_functions import FUNCTIONS
from treadle.passes.pair_loops import LOOPS
from treadle.passes.pair_products import written_out
from treadle.passes.pair_sorts import sort_pairs
from treadle.passes.pairs import COMPONENTWISE, RULES, Pair, each
from treadle.passes.rewrite import Rewriter
from treadle.run.eager import Applied
from treadle.trace.op import Op
from treadle.trace.stage import stage
from treadle.trace.value import typeof

_RULES = RULES | FUNCTIONS | LOOPS | {sort: sort_pairs}
_BILINEAR = (dot_general, conv_general, conv_filter_grad)
_Pair = tuple[Atom, Atom]


class _Split(Rewriter):
    """`pairs` are the parts of values, `joined` the complex values of parts, where
    these are known. `zeros` are imaginary parts that are zero.
    `packed` are values as what their memory holds, where they are only moved."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.pairs: dict[Atom, _Pair] = {}
        self.joined: dict[Atom, Atom] = {}
        self.zeros: set[Atom] = set()
        self.written: dict[tuple, Graph] = {}
        self.source = ""
        self.packed = Packed(self._one)

    def _one(self, op: Op, inputs: Sequence[Atom], params: dict[str, Any]) -> Atom:
        return self.emit(op, inputs, params, self.source)[0]

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
            moved = self.packed.found.get(a)
            op, inputs = (
                (complex_, self.pairs[a]) if moved is None else (whole, [moved])
            )
            (self.joined[a],) = self.emit(op, inputs, {}, source)
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
        found = self._spliced(("apart",), _parts, [v], source)
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
        elif (rule := written_out(eq)) is not None:
            self._write(eq, rule)
        elif eq.op in _BILINEAR:
            self._product(eq)
        elif eq.op in _RULES:
            self._write(eq, _RULES[eq.op])
            self._move(eq)
        elif eq.op in COMPONENTWISE:
            self._write(eq, _by_components(eq.op))
            self._move(eq)
        else:
            self._hand_over(eq)

    def _write(self, eq: Equation, rule: Callable[..., Any]) -> None:
        """Writes what a rule makes of the operands, complex ones as pairs."""
        flags = tuple(map(_complex, eq.inputs))

        def function(*flat: Any) -> list[Any]:
            values = iter(flat)
            args = [
                Pair(next(values), next(values)) if f else next(values) for f in flags
            ]
            out = rule(*args, **eq.params)
            found: list[Any] = []
            outs = out if eq.op.multiple else (out,)
            for x, v in zip(outs, eq.outputs, strict=True):
                # One part may be a number for all elements of the other.
                both = x if isinstance(x, Pair) else [x]
                found += [expand(a, v.type.shape) for a in both]
            return found

        key = eq.op, flags, params_key(eq.params)
        self._define(eq, self._spliced(key, function, self._flat(eq.inputs), eq.source))

    def _define(self, eq: Equation, found: Sequence[Atom]) -> None:
        """Says where an equation's results are found."""
        values = iter(found)
        for v in eq.outputs:
            if _complex(v):
                self.pairs[v] = re, im = next(values), next(values)
                if isinstance(re, Var) and isinstance(im, Var):
                    im.twin = re
            else:
                self.values[v] = next(values)

    def _move(self, eq: Equation) -> None:
        """Moves what is in memory as it is, too, for who wants it so."""
        if not eq.op.multiple:
            self.source = eq.source
            self.packed.move(eq, [self.read(a) for a in eq.inputs], self.joined)

    def _hand_over(self, eq: Equation) -> None:
        """Leaves an equation to what takes complex arrays."""
        inputs = [self._whole(a, eq.source) for a in eq.inputs]
        self.keep(Equation(eq.op, inputs, eq.params, eq.outputs, eq.source))
        for v in eq.outputs:
            self._take_apart(v, eq.source)

    def _product(self, eq: Equation) -> None:
        """A product by products of the parts that are not zero: those of numbers that
        were real have none."""
        x, y = (self._factors(a) for a in eq.inputs)

        def product(a: Atom, b: Atom) -> Atom:
            return self.emit(eq.op, [a, b], eq.params, eq.source)[0]

        def combined(op: Op, a: Atom, b: Atom) -> Atom:
            return self.emit(op, [a, b], {}, eq.source)[0]

        re = product(x[0], y[0])
        if len(x) == 2 and len(y) == 2:
            re = combined(sub, re, product(x[1], y[1]))
            im = combined(add, product(x[0], y[1]), product(x[1], y[0]))
        elif len(x) == len(y):
            im = self._spliced(("zeros",), _zeros, [re], eq.source)[0]
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
        consts, carries = (
            self._flat(eq.inputs[:first]),
            self._flat(eq.inputs[first:last]),
        )
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


def _zeros(x: Any) -> list[Any]:
    return [full(typeof(x).shape, 0, typeof(x).dtype)]


def _parts(x: Any) -> list[Any]:
    """Views of the parts of an array."""
    t = typeof(x)
    if any([not is_dim(n) and not n for n in t.shape]):
        return [full(t.shape, 0, dtypes.to_real(t.dtype))] * 2
    both = parts(x)
    return [reshape(slice_axis(both, t.ndim, i, i + 1), shape=t.shape) for i in (0, 1)]


def _by_components(op: Op) -> Callable[..., Any]:
    """What an op does that treats both parts alike."""

    def rule(*args: Any, **params: Any) -> Any:
        if "dtype" in params:
            params["dtype"] = dtypes.to_real(params["dtype"])
        re, im = each(partial(op, **params), *args)
        if not op.multiple:
            return Pair(re, im)
        return [
            Pair(*both) if isinstance(x, Pair) else both[0]
            for x, *both in zip(args, re, im, strict=True)
        ]

    return rule


def _has_complex(graph: Graph) -> bool:
    """Whether a graph, or one nested in it, has a complex value. Cached."""
    if "has_complex" not in graph.cache:
        graph.cache["has_complex"] = (
            any(map(_complex, (*graph.inputs, *graph.outputs)))
            or any(
                [v.type.dtype.kind == "c" for e in graph.equations for v in e.outputs]
            )
            or any(_has_complex(g) for eq in graph.equations for g in eq.graphs)
        )
    return graph.cache["has_complex"]


def _split(graph: Graph) -> Graph:
    return _Split(graph).run_split()


def split_complex(graph: Graph) -> Graph:
    """A graph that computes with complex numbers as pairs of real ones, nested graphs
    included; the same graph, if it has none."""
    return _Split.apply(graph)
