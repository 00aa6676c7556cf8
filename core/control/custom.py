"""The ops of functions that bring their own derivative.

`custom_jvp` and `custom_vjp` are calls: compiled, they are what their graph says, and
only differentiation looks at the rules. Their params:

  graph: ``(*consts, *args) -> outs``; under plain `grad` or `vmap`, where values are
    concrete, a Python function of the args, so that Python's own control flow works.
  n_consts: how many values the function closes over; the rules know nothing of these.
  name: the function's, for messages.
  rule (custom_jvp): ``(args, tangents) -> (outs, tangents)``.
  forward, backward (custom_vjp): ``(moving, *args) -> (outs, residuals, aux)``, where
    `moving` are flags of the args that are differentiated, and ``(aux, residuals, cts)
    -> cts of args``, None for zero.

Tangents, and the cotangents that a rule takes, may be `Zero`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from treadle import dtypes, tree
from treadle.arraytype import ArrayType
from treadle.control.graphs import Flags, nonzero, pick, rewire
from treadle.control.ways import branching, explore
from treadle.errors import TracerError, at
from treadle.ir.graph import Graph
from treadle.ops.reduce import reduce_sum
from treadle.run.eager import EagerInterpreter, evaluate
from treadle.trace.axes import MappedAxis
from treadle.trace.interpreter import current_source, state, using
from treadle.trace.lowering import Host, Inline
from treadle.trace.op import Linear, Op, Zero
from treadle.trace.stage import StageInterpreter
from treadle.trace.value import typeof
from treadle.transforms.batch import (
    batch_flat,
    batch_graph,
    example,
    move_axis,
    to_axis,
)
from treadle.transforms.guard import GuardInterpreter, guard_graph
from treadle.transforms.jvp import zero_of

_CLOSES_OVER = (
    "{name} has a custom derivative, and closes over an array that is being {what}{at}"
    "\nIts rules know nothing of that array. Make it an argument of the function."
)
_NO_FORWARD = (
    "forward-mode differentiation of {name}, which has only a reverse rule{at}\n"
    "Define the derivative with `td.custom_jvp`: it serves both modes."
)


class _CustomOp(Op):
    """Calls a function that may be Python still."""

    __slots__ = ()

    def __call__(self, *args: Any, **params: Any) -> Any:
        function, current = params["graph"], state.interpreter
        if isinstance(function, Graph):
            return super().__call__(*args, **params)
        if isinstance(current, EagerInterpreter):
            return function(*args)
        if isinstance(current, StageInterpreter) and current.owns(args):
            # A rule was given tangents: those are staged though values are concrete.
            graph, captured = explore(function, [typeof(a) for a in args], _no_form)
            params |= {"graph": graph, "n_consts": len(captured)}
            args = (*captured, *args)
        return super().__call__(*args, **params)


def _type(*types: ArrayType, graph: Graph, **params: Any) -> Sequence[ArrayType]:
    # While it is a Python function, what it gives is not known before it runs.
    return graph.out_types if isinstance(graph, Graph) else ()


def _run(*arrays: Any, graph: Graph, **params: Any) -> Sequence[Any]:
    return evaluate(graph, arrays)


def _no_consts(marked: Sequence[bool], what: str, name: str) -> None:
    if any(marked):
        raise TracerError(
            _CLOSES_OVER.format(name=name, what=what, at=at(current_source()))
        )


def _has_tangent(x: Any) -> bool:
    return dtypes.is_differentiable(typeof(x).dtype)


def _no_form() -> tree.Structure:
    """The functions here have checked the structure of what they give."""
    return tree.LEAF


# batch --------------------------------------------------------------------------------


def _wide(function: Any, axis: MappedAxis, axes: Sequence[int | None]) -> Any:
    """The vectorised function; what comes out is batched along axis 0."""
    if isinstance(function, Graph):
        flags = tuple(a is not None for a in axes)
        return batch_graph(function, axis, flags, True)[0]

    def wide(*values: Any) -> list[Any]:
        types = [example(typeof(x), a) for x, a in zip(values, axes, strict=True)]
        outs, found = branching(
            batch_flat, function, types, _no_form, axis, values, axes
        )
        return [to_axis(o, a, 0, axis.size) for o, a in zip(outs, found, strict=True)]

    return wide


def _to_front(args: Sequence[Any], axes: Sequence[int | None]) -> tuple[list, list]:
    moved = [
        x if a is None else move_axis(x, a, 0) for x, a in zip(args, axes, strict=True)
    ]
    return moved, [None if a is None else 0 for a in axes]


def _among(
    given: Sequence[Any], moving: Sequence[bool], values: Sequence[Any]
) -> list[Any]:
    """The tangents of values: those given for what moves, `Zero` for the rest."""
    rest = iter(given)
    return [
        next(rest) if m else zero_of(x) for x, m in zip(values, moving, strict=True)
    ]


# guard --------------------------------------------------------------------------------


def _under(active: Any, function: Callable[..., Sequence[Any]], *args: Any) -> Any:
    """Calls a rule, whose effects happen only where `active` holds."""
    with using(GuardInterpreter(active)):
        return function(*args)


def _guarded(function: Any, n_consts: int) -> Any:
    """The function with a condition for its effects between its constants and args."""
    if not isinstance(function, Graph):
        return lambda active, *args: _under(active, function, *args)
    guarded = guard_graph(function)
    n = len(guarded.inputs)
    places = [*range(1, n_consts + 1), 0, *range(n_consts + 1, n)]
    return rewire(guarded, places, range(len(guarded.outputs)))


# custom_jvp ---------------------------------------------------------------------------


def _jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    graph: Any,
    rule: Any,
    n_consts: int,
    name: str,
) -> Any:
    _no_consts(nonzero(tangents[:n_consts]), "differentiated", name)
    outs, found = rule(primals[n_consts:], tangents[n_consts:])
    return outs, [
        t if _has_tangent(o) else zero_of(o) for o, t in zip(outs, found, strict=True)
    ]


def _jvp_batch(
    axis: MappedAxis,
    args: Sequence[Any],
    axes: Sequence[int | None],
    *,
    graph: Any,
    rule: Any,
    n_consts: int,
    name: str,
) -> Any:
    args, axes = _to_front(args, axes)
    own = axes[n_consts:]

    def wide_rule(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        _no_consts([a is not None for a in axes[:n_consts]], "vectorised", name)
        moving, n = nonzero(tangents), len(own)
        kept: Flags = ()

        def flat(*values: Any) -> list[Any]:
            nonlocal kept
            examples = _among(values[n:], moving, values[:n])
            outs, found = rule(values[:n], examples)
            kept = nonzero(found)
            return [*outs, *pick(found, kept)]

        every = [*own, *pick(own, moving)]
        both = _wide(flat, axis, every)(*primals, *pick(tangents, moving))
        outs, given = both[: len(kept)], both[len(kept) :]
        return outs, _among(given, kept, outs)

    wide = _wide(graph, axis, axes)
    outs = custom_jvp(*args, graph=wide, rule=wide_rule, n_consts=n_consts, name=name)
    return outs, [0] * len(outs)


def _jvp_guard(
    active: Any,
    args: Sequence[Any],
    *,
    graph: Any,
    rule: Any,
    n_consts: int,
    name: str,
) -> Any:
    def guarded_rule(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        return _under(primals[0], rule, primals[1:], tangents[1:])

    return custom_jvp(
        *args[:n_consts],
        active,
        *args[n_consts:],
        graph=_guarded(graph, n_consts),
        rule=guarded_rule,
        n_consts=n_consts,
        name=name,
    )


custom_jvp = _CustomOp(
    "custom_jvp",
    _type,
    _run,
    jvp=_jvp,
    batch=_jvp_batch,
    guard=_jvp_guard,
    lowering=Inline(),
    multiple=True,
    names_axis=True,
)


# custom_vjp ---------------------------------------------------------------------------


def _no_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    raise TypeError(_NO_FORWARD.format(name=params["name"], at=at(current_source())))


def _linearize(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    graph: Any,
    forward: Any,
    backward: Any,
    n_consts: int,
    name: str,
) -> Any:
    _no_consts(nonzero(tangents[:n_consts]), "differentiated", name)
    moving = nonzero(tangents[n_consts:])
    outs, residuals, aux = forward(moving, *primals[n_consts:])
    types = tuple(typeof(o).strong() for o in outs)
    found = custom_vjp_tangent(
        *residuals,
        *pick(tangents[n_consts:], moving),
        backward=lambda *args: pick(backward(*args), moving),
        aux=aux,
        n_residuals=len(residuals),
        types=types,
        name=name,
    )
    return outs, [
        t if dtypes.is_differentiable(o.dtype) else Zero(o)
        for t, o in zip(found, types, strict=True)
    ]


def _vjp_batch(
    axis: MappedAxis,
    args: Sequence[Any],
    axes: Sequence[int | None],
    *,
    graph: Any,
    forward: Any,
    backward: Any,
    n_consts: int,
    name: str,
) -> Any:
    args, axes = _to_front(args, axes)
    own = axes[n_consts:]

    def wide_forward(moving: Flags, *values: Any) -> Any:
        _no_consts([a is not None for a in axes[:n_consts]], "vectorised", name)
        n_outs, aux = 0, None

        def flat(*one: Any) -> list[Any]:
            nonlocal n_outs, aux
            outs, residuals, aux = forward(moving, *one)
            n_outs = len(outs)
            return [*outs, *residuals]

        both = _wide(flat, axis, own)(*values)
        return both[:n_outs], both[n_outs:], aux

    outs = custom_vjp(
        *args,
        graph=_wide(graph, axis, axes),
        forward=wide_forward,
        backward=_wide_backward(backward, axis, own),
        n_consts=n_consts,
        name=name,
    )
    return outs, [0] * len(outs)


def _wide_backward(backward: Any, axis: MappedAxis, axes: Sequence[int | None]) -> Any:
    def wide_backward(
        aux: Any, residuals: Sequence[Any], cts: Sequence[Any]
    ) -> list[Any]:
        n, moving = len(residuals), nonzero(cts)
        kept: Flags = ()

        def flat(*values: Any) -> list[Any]:
            nonlocal kept
            rest = iter(values[n:])
            examples = [
                next(rest) if m else Zero(ArrayType(ct.type.shape[1:], ct.type.dtype))
                for m, ct in zip(moving, cts, strict=True)
            ]
            found = backward(aux, values[:n], examples)
            kept = tuple(ct is not None for ct in found)
            return pick(found, kept)

        given = [*residuals, *pick(cts, moving)]
        found = iter(_wide(flat, axis, [0] * len(given))(*given))
        # What is the same for all examples gets the sum of their cotangents.
        return [
            _summed(next(found), a) if k else None
            for k, a in zip(kept, axes, strict=True)
        ]

    return wide_backward


def _summed(ct: Any, axis: int | None) -> Any:
    summed = axis is None and _has_tangent(ct)
    return reduce_sum(ct, axes=(0,)) if summed else ct


def _vjp_guard(
    active: Any,
    args: Sequence[Any],
    *,
    graph: Any,
    forward: Any,
    backward: Any,
    n_consts: int,
    name: str,
) -> Any:
    def guarded_forward(moving: Flags, active: Any, *values: Any) -> Any:
        outs, residuals, aux = _under(active, forward, moving[1:], *values)
        return outs, [active, *residuals], aux

    def guarded_backward(
        aux: Any, residuals: Sequence[Any], cts: Sequence[Any]
    ) -> list[Any]:
        active, *rest = residuals
        found = _under(active, backward, aux, rest, cts)
        return [None, *found]

    return custom_vjp(
        *args[:n_consts],
        active,
        *args[n_consts:],
        graph=_guarded(graph, n_consts),
        forward=guarded_forward,
        backward=guarded_backward,
        n_consts=n_consts,
        name=name,
    )


custom_vjp = _CustomOp(
    "custom_vjp",
    _type,
    _run,
    jvp=_no_jvp,
    linearize=_linearize,
    batch=_vjp_batch,
    guard=_vjp_guard,
    lowering=Inline(),
    multiple=True,
    names_axis=True,
)


def _tangent_run(*arrays: Any, name: str, **params: Any) -> Any:
    raise TypeError(_NO_FORWARD.format(name=name, at=at(current_source())))


def _tangent_transpose(
    cts: Sequence[Any], *args: Any, backward: Any, aux: Any, n_residuals: int, **_: Any
) -> list[Any]:
    residuals, moving = args[:n_residuals], args[n_residuals:]
    found = backward(aux, residuals, cts)
    return [
        *(None for _ in residuals),
        *(
            ct if isinstance(a, Linear) else None
            for ct, a in zip(found, moving, strict=True)
        ),
    ]


def _tangent_batch(
    axis: MappedAxis,
    args: Sequence[Any],
    axes: Sequence[int | None],
    *,
    backward: Any,
    n_residuals: int,
    types: Sequence[ArrayType],
    **params: Any,
) -> Any:
    own = [None if a is None else 0 for a in axes[n_residuals:]]
    moved = [
        to_axis(x, a, 0, axis.size)
        for x, a in zip(args[:n_residuals], axes[:n_residuals], strict=True)
    ]
    moved += _to_front(args[n_residuals:], axes[n_residuals:])[0]
    wide = tuple(ArrayType((axis.size, *t.shape), t.dtype) for t in types)
    outs = custom_vjp_tangent(
        *moved,
        backward=_wide_backward(backward, axis, own),
        n_residuals=n_residuals,
        types=wide,
        **params,
    )
    return outs, [0] * len(outs)


custom_vjp_tangent = Op(
    "custom_vjp_tangent",
    lambda *in_types, types, **params: types,
    _tangent_run,
    lowering=Host("it is there to be transposed, and never runs"),
    transpose=_tangent_transpose,
    batch=_tangent_batch,
    multiple=True,
    names_axis=True,
)
"""The linear map from tangents to tangents that a reverse rule stands for. It can only
be transposed: then it is the rule. Arguments: the residuals, the tangents."""
