"""remat: memory for time."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from treadle import tree
from treadle.api.ambient import Surroundings
from treadle.api.args import check_results, name_of
from treadle.api.boundary import boundary
from treadle.api.purity import call_pure
from treadle.arraytype import ArrayType
from treadle.control import remat as op
from treadle.control.ways import explore
from treadle.trace.interpreter import state
from treadle.trace.lowering import Product
from treadle.trace.op import Op
from treadle.trace.value import Tracer, typeof


def everything_saveable(op: Op, *types: ArrayType, **params: Any) -> bool:
    """A policy: remember all that the backward pass uses."""
    return True


def nothing_saveable(op: Op, *types: ArrayType, **params: Any) -> bool:
    """A policy: compute everything again from the arguments. The default."""
    return False


def dots_saveable(op: Op, *types: ArrayType, **params: Any) -> bool:
    """A policy: remember contractions and convolutions, compute the rest again."""
    return isinstance(op.lowering, Product)


def dots_without_batch_saveable(op: Op, *types: ArrayType, **params: Any) -> bool:
    """A policy: remember contractions with weights; those between activations (as in
    attention, where both operands have a batch axis) are computed again."""
    return isinstance(op.lowering, Product) and not any(params.get("batch", ((), ())))


@boundary
def remat(
    function: Callable[..., Any] | None = None,
    *,
    policy: Callable[..., bool] | None = None,
) -> Callable[..., Any]:
    """A function whose intermediate values are not kept for the backward pass, but
    computed again there.

    Args:
      function: from pytrees of arrays to a pytree of arrays; None makes a decorator.
      policy: ``(op, *types, **params) -> bool`` says whether the results of an
        operation are kept after all; see `td.dots_saveable`. None: keep nothing.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.grad(td.remat(lambda x: tnp.sin(tnp.sin(x))))(0.0)
    Array(1., dtype=float32)
    """
    if function is None:
        return lambda f: remat(f, policy=policy)
    if policy is nothing_saveable:
        policy = None

    @boundary
    @wraps(function)
    def remat_function(*args: Any, **kwargs: Any) -> Any:
        if state.staging_disabled:
            return function(*args, **kwargs)
        leaves, form = tree.flatten((args, kwargs))
        # What is not an array (a flag, a function) is the same in both passes.
        traced = [i for i, x in enumerate(leaves) if _is_traced(x)]
        around = Surroundings()
        known = set(map(id, around.leaves))
        out_form: Any = None
        ambient, ambient_form = around.leaves, around.form

        def is_new(x: Any) -> bool:
            return isinstance(x, Tracer) and id(x) not in known

        def flat(*values: Any) -> list[Any]:
            nonlocal out_form, ambient, ambient_form
            full = list(leaves)
            for i, x in zip(traced, values, strict=True):
                full[i] = x
            with around.inside(around.leaves):
                outs, out_form = tree.flatten(call_pure(function, form, full))
                ambient, ambient_form = around.now()
            check_results(function, outs, out_form)
            return [*outs, *filter(is_new, ambient)]

        moving = [leaves[i] for i in traced]
        types = [typeof(x) for x in moving]
        name = name_of(function)
        graph, captured = explore(flat, types, lambda: out_form, name=name)
        outs = op.remat(*captured, *moving, graph=graph, policy=policy)
        rest = iter(outs[out_form.count :])
        around.put([next(rest) if is_new(x) else x for x in ambient], ambient_form)
        return out_form.unflatten(outs[: out_form.count])

    return remat_function


def _is_traced(x: Any) -> bool:
    if isinstance(x, bool | int):
        return False
    try:
        typeof(x)
    except TypeError:
        return False
    return True
