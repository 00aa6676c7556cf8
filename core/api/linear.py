"""Derivatives at a point: jvp, vjp, linearize, and the linear maps that these give.

A pullback and a linearized function are pytrees of what they remember of the point, so
that jitted functions, loops and `vmap` take and return them. What they compute is
static in them: a linear Graph, which is the same for all points where the function does
the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar, TypeVarTuple, overload

import numpy as np

from treadle import tree
from treadle.api.args import (
    as_results,
    check_arguments,
    check_function,
    described,
    name_of,
)
from treadle.api.boundary import boundary
from treadle.api.tangents import (
    FlatFunction,
    as_tangents,
    cotangents_of,
    differentiable_leaves,
    tangents_of,
)
from treadle.arraytype import ArrayType
from treadle.control.graphs import pick, prune
from treadle.control.ways import branching
from treadle.errors import at, user_source
from treadle.ir.graph import Graph
from treadle.ir.walk import call_graph
from treadle.ops.movement import instantiate
from treadle.trace.op import Linear, Zero
from treadle.trace.value import typeof
from treadle.transforms.jvp import jvp_flat
from treadle.transforms.linearize import linearize_flat
from treadle.transforms.transpose import backward, transpose_graph

_BATCHED = """\
the {what} of {name} holds {found} where {wanted} belongs{at}
It was changed, or it comes from a vmap or scan and holds one for each example. To \
call those:
  td.vmap(lambda {short}, {given}: {short}({given}))({short}s, {given}s)"""


R = TypeVar("R")
Aux = TypeVar("Aux")
Ts = TypeVarTuple("Ts")


@dataclass(frozen=True, eq=False)
class _Program:
    """What is static in a linear map of a function at a point.

    graph: ``(*residuals, *tangents of what moves) -> tangents``, those of results that
      have one; if `turned`, transposed: ``(*residuals, *cotangents of results that have
      one) -> cotangents``, where `kept`.
    form, types, moving: the function's arguments: their structure and leaves, and which
      of these are differentiated; the same of its results.
    """

    name: str
    graph: Graph
    turned: bool
    form: tree.Structure
    types: tuple[ArrayType, ...]
    moving: tuple[bool, ...]
    kept: tuple[bool, ...]
    out_form: tree.Structure
    out_types: tuple[ArrayType, ...]
    out_moving: tuple[bool, ...]

    @cached_property
    def _key(self) -> tuple:
        return tuple([getattr(self, f.name) for f in fields(self)])

    @cached_property
    def _hash(self) -> int:
        # Kept: a jitted function that takes the map asks at every call.
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, _Program)
            and self._hash == other._hash
            and self._key == other._key
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        count = len(self.graph.equations)
        given = self.form.unflatten(self.types)
        return f"{self.name} of {given!r} in {count} operations"


class _LinearMap:
    """A linear map at a point.

    residuals: what it remembers of the point.
    """

    __slots__ = ("_lean", "_program", "_residuals")
    _what: str
    _short: str
    _given: str

    def __init__(self, program: _Program, residuals: Sequence[Any]) -> None:
        self._program, self._residuals = program, residuals
        self._lean: tuple[Sequence[Any], _Program] | None = None

    def _checked(self) -> tuple[_Program, Sequence[Any]]:
        program = self._program
        for t, x in zip(program.graph.inputs, self._residuals, strict=False):
            found = typeof(x) if _is_number(x) else None
            if found is None or (found.shape, found.dtype) != (
                t.type.shape,
                t.type.dtype,
            ):
                raise TypeError(
                    _BATCHED.format(
                        what=self._what,
                        name=program.name,
                        found=described(x) if found is None else found,
                        wanted=t.type,
                        at=at(user_source()),
                        short=self._short,
                        given=self._given,
                    )
                )
        return program, self._residuals

    def __repr__(self) -> str:
        return f"<{self._what} of {self._program!r}>"

    def _parts(self) -> tuple[Sequence[Any], _Program]:
        """The leaves, and what is static: without what is not needed."""
        if self._lean is None:
            program = self._closed()
            graph = prune(program.graph)
            inputs, n = graph.inputs, len(self._residuals)
            read = {a for eq in graph.equations for a in eq.inputs}
            used = [v in read or v in graph.outputs for v in inputs[:n]]
            kept = [*pick(inputs[:n], used), *inputs[n:]]
            graph = Graph(kept, graph.equations, graph.outputs, graph.name)
            self._lean = pick(self._residuals, used), replace(program, graph=graph)
        return self._lean

    def _closed(self) -> _Program:
        """The program without what belongs to the trace that is running."""
        return self._program

    @classmethod
    def _made(cls, program: _Program, residuals: Sequence[Any]) -> Any:
        made = cls(program, residuals)
        made._lean = residuals, program
        return made


def _is_number(x: Any) -> bool:
    try:
        typeof(x)
    except TypeError:
        return False
    return True


class Pullback(_LinearMap, Generic[*Ts]):
    """From a cotangent of a function's result to those of its arguments: what `td.vjp`
    gives. A pytree of what it remembers."""

    __slots__ = ()
    _what, _short, _given = "pullback", "pullback", "ct"

    @boundary
    def __call__(self, *ct: Any) -> tuple[*Ts]:
        program, residuals = self._checked()
        if len(ct) != 1:
            raise TypeError(
                f"the pullback of {program.name} takes one cotangent, got {len(ct)}"
                f"{at(user_source())}\n"
                "It is a pytree like the result: for a tuple, `pullback((ct, ct))`."
            )
        cts = cotangents_of(program.out_form, program.out_types, ct[0], program.name)
        given = pick(cts, program.out_moving)
        n = len(residuals)
        if program.turned:
            results = iter(
                call_graph(program.graph, [*residuals, *map(instantiate, given)])
            )
            types = [t.strong() for t in pick(program.types, program.moving)]
            found = [
                next(results) if kept else Zero(t)
                for kept, t in zip(program.kept, types, strict=True)
            ]
        else:
            inputs = program.graph.inputs[n:]
            args = [*residuals, *(Linear(v.type) for v in inputs)]
            found = backward(program.graph, args, given)[n:]
        grads = iter(as_results([instantiate(ct) for ct in found]))
        return program.form.unflatten(
            [next(grads) if moves else None for moves in program.moving]
        )

    def _closed(self) -> _Program:
        """Transposed: custom rules, which may be the trace's own, have done their work
        then."""
        program = self._program
        if program.turned:
            return program
        n = len(self._residuals)
        moving = len(program.graph.inputs) - n
        linear = (False,) * n + (True,) * moving
        every = (True,) * len(program.graph.outputs)
        graph, kept = transpose_graph(program.graph, linear, every)
        return replace(program, graph=graph, turned=True, kept=kept)


class Linearization(_LinearMap, Generic[R]):
    """From tangents of a function's arguments to that of its result: what
    `td.linearize` gives. A pytree of what it remembers."""

    __slots__ = ()
    _what, _short, _given = "linearization", "linear", "dx"

    @boundary
    def __call__(self, *tangents: Any) -> R:
        program, residuals = self._checked()
        given = tangents_of(program.form, program.types, tangents, program.name)
        moving = [instantiate(t) for t in pick(given, program.moving)]
        found = iter(call_graph(program.graph, [*residuals, *moving]))
        outs = [
            next(found) if moves else Zero(t)
            for moves, t in zip(program.out_moving, program.out_types, strict=True)
        ]
        return program.out_form.unflatten(as_tangents(outs))


for _kind in (Pullback, Linearization):
    tree.register(_kind, _LinearMap._parts, _kind._made)


def _linear_map(
    kind: type[_LinearMap],
    what: str,
    function: Callable[..., Any],
    primals: tuple[Any, ...],
    has_aux: bool,
) -> tuple[Any, ...]:
    """The result, the map, and aux if there is one."""
    check_function(what, function)
    leaves, form = tree.flatten(primals)
    check_arguments(function, leaves, form, skip=0)
    moving = differentiable_leaves(leaves, form)
    # What is remembered of numbers, and of NumPy's arrays, which their owner may
    # change, are arrays.
    leaves = [_own(x) if moves else x for x, moves in zip(leaves, moving, strict=True)]
    flat = FlatFunction(function, form, has_aux)
    name, types = name_of(function), [typeof(x) for x in leaves]
    split = branching(
        linearize_flat, flat, types, flat.whole, leaves, moving, name, name=name
    )
    out, aux = flat.results(split.outs)
    assert flat.out_form is not None
    n = flat.out_form.count
    program = _Program(
        name_of(function),
        split.graph,
        False,
        form,
        tuple([typeof(x).strong() for x in leaves]),
        tuple(moving),
        (),
        flat.out_form,
        tuple([typeof(x).strong() for x in split.outs[:n]]),
        split.nonzero_out[:n],
    )
    return (out, kind(program, split.residuals), *aux)


def _own(x: Any) -> Any:
    kept = type(x) in (float, complex) or isinstance(x, np.ndarray | np.generic)
    return as_results([x])[0] if kept else x


@overload
def vjp(
    function: Callable[..., R], *primals: *Ts, has_aux: Literal[False] = False
) -> tuple[R, Pullback[*Ts]]: ...
@overload
def vjp(
    function: Callable[..., tuple[R, Aux]],
    *primals: *Ts,
    has_aux: Literal[True],
) -> tuple[R, Pullback[*Ts], Aux]: ...
@overload
def vjp(
    function: Callable[..., Any], *primals: *Ts, has_aux: bool = False
) -> tuple[Any, ...]: ...
@boundary
def vjp(
    function: Callable[..., Any], *primals: *Ts, has_aux: bool = False
) -> tuple[Any, ...]:
    """The result, and the function that pulls a cotangent of it back to the arguments.

    Args:
      function: from pytrees of arrays to a pytree of arrays.
      primals: where to differentiate.
      has_aux: if True, `function` returns (result, aux); aux is passed through.

    Returns:
      (result, pullback), or (result, pullback, aux). ``pullback(ct)`` gives a tuple
      with one cotangent per argument; None stands for leaves without derivative
      (integers, keys), in what it takes too. The pullback is a pytree of what it
      remembers: jitted functions, loops and `vmap` take and return it.

    >>> import treadle as td
    >>> y, pullback = td.vjp(lambda x: x * x, 3.0)
    >>> pullback(1.0)
    (Array(6., dtype=float32),)
    >>> td.jit(lambda pullback, ct: pullback(ct))(pullback, 2.0)
    (Array(12., dtype=float32),)
    """
    return _linear_map(Pullback, "vjp", function, primals, has_aux)


@overload
def linearize(
    function: Callable[..., R], *primals: Any, has_aux: Literal[False] = False
) -> tuple[R, Linearization[R]]: ...
@overload
def linearize(
    function: Callable[..., tuple[R, Aux]], *primals: Any, has_aux: Literal[True]
) -> tuple[R, Linearization[R], Aux]: ...
@overload
def linearize(
    function: Callable[..., Any], *primals: Any, has_aux: bool = False
) -> tuple[Any, ...]: ...
@boundary
def linearize(
    function: Callable[..., Any], *primals: Any, has_aux: bool = False
) -> tuple[Any, ...]:
    """The result, and the function's linear approximation there.

    The primal work is done once; the linear function may be called many times. It
    takes tangents and gives them as `jvp` does: None stands for those of integers.

    Args:
      has_aux: if True, `function` returns (result, aux); aux is passed through.

    Returns:
      (result, linear), or (result, linear, aux). The linear function is a pytree of
      what it remembers: jitted functions, loops and `vmap` take and return it.

    >>> import treadle as td
    >>> y, df = td.linearize(lambda x: x * x, 3.0)
    >>> df(1.0), df(2.0)
    (Array(6., dtype=float32), Array(12., dtype=float32))
    """
    return _linear_map(Linearization, "linearize", function, primals, has_aux)


@overload
def jvp(
    function: Callable[..., R],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: Literal[False] = False,
) -> tuple[R, R]: ...
@overload
def jvp(
    function: Callable[..., tuple[R, Aux]],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: Literal[True],
) -> tuple[R, R, Aux]: ...
@overload
def jvp(
    function: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: bool = False,
) -> tuple[Any, ...]: ...
@boundary
def jvp(
    function: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """The result, and its directional derivative along `tangents`.

    Args:
      primals: the arguments, pytrees of arrays.
      tangents: one per argument, of the same structure; None where there is none, as
        for integers.
      has_aux: if True, `function` returns (result, aux); aux is passed through.

    Returns:
      (result, tangent), or (result, tangent, aux); the tangent has None for integers in
      the result.

    Raises:
      TypeError, ValueError: if a tangent is not of its argument's type, or stands where
        that is an integer.

    >>> import treadle as td
    >>> td.jvp(lambda x: x * x, (3.0,), (1.0,))
    (Array(9., dtype=float32), Array(6., dtype=float32))
    """
    check_function("jvp", function)
    for what, values in (("primals", primals), ("tangents", tangents)):
        if not isinstance(values, tuple | list):
            raise TypeError(
                f"jvp: {what} is a tuple with one entry per argument, got "
                f"{described(values)}{at(user_source())}\n"
                "For one argument: `td.jvp(f, (x,), (tangent,))`."
            )
    leaves, form = tree.flatten(tuple(primals))
    check_arguments(function, leaves, form, skip=0)
    types = [typeof(x) for x in leaves]
    given = tangents_of(form, types, tuple(tangents), name_of(function))
    flat = FlatFunction(function, form, has_aux)
    name = name_of(function)
    outs, out_tangents = branching(
        jvp_flat, flat, types, flat.whole, leaves, given, name=name
    )
    out, aux = flat.results(outs)
    assert flat.out_form is not None
    found = as_tangents(out_tangents[: flat.out_form.count])
    return (out, flat.out_form.unflatten(found), *aux)
