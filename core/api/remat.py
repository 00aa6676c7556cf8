"""remat: memory for time."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, overload

from treadle import tree
from treadle.api.ambient import Surroundings
from treadle.api.args import (
    Which,
    check_function,
    check_results,
    name_of,
    positions,
)
from treadle.api.boundary import boundary
from treadle.api.collection import Additions
from treadle.api.policies import Policy, check_policy, nothing_saveable
from treadle.api.purity import call_pure
from treadle.control import remat as op
from treadle.control.ways import explore
from treadle.trace.interpreter import state
from treadle.trace.value import Tracer, typeof

P = ParamSpec("P")
R = TypeVar("R")


@overload
def remat(
    function: Callable[P, R], *, policy: Policy | None = None, static: Which = ()
) -> Callable[P, R]: ...
@overload
def remat(
    function: None = None, *, policy: Policy | None = None, static: Which = ()
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
@boundary
def remat(
    function: Callable[..., Any] | None = None,
    *,
    policy: Policy | None = None,
    static: Which = (),
) -> Callable[..., Any]:
    """A function whose intermediate values are not kept for the backward pass, but
    computed again there.

    Args:
      function: from pytrees of arrays to a pytree of arrays; None makes a decorator.
      policy: ``(op, *types, **params) -> bool`` says whether the results of an
        operation are kept after all; see `td.dots_saveable` and
        `td.save_only_these_names`. None: keep nothing.
      static: arguments, by name or position, that are Python values to the function:
        numbers that it computes with in Python. What is not an array or a float (ints,
        flags, functions) is always that.

    Raises:
      TypeError: for a policy that is none.
      ValueError: for a static argument that the function doesn't have.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.grad(td.remat(lambda x: tnp.sin(tnp.sin(x))))(0.0)
    Array(1., dtype=float32)
    """
    if function is None:
        return lambda f: remat(f, policy=policy, static=static)
    check_function("remat", function)
    check_policy(policy)
    fixed = positions(function, static, "static") if static != () else (set(), set())
    if policy is nothing_saveable:
        policy = None

    @boundary
    @wraps(function)
    def remat_function(*args: Any, **kwargs: Any) -> Any:
        if state.staging_disabled:
            return function(*args, **kwargs)
        if added := Additions():
            again: Any = remat(
                added.returned_by(function), policy=policy, static=static
            )
            return added.taken(lambda: again(*args, **kwargs))
        leaves, form = tree.flatten((args, kwargs))
        # What is not an array (a flag, a function) is the same in both passes.
        kept = _places(form, args, *fixed) if any(fixed) else set()
        traced = [i for i, x in enumerate(leaves) if i not in kept and is_traced(x)]
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


def _places(
    form: tree.Structure, args: tuple, numbers: set[int], names: set[str]
) -> set[int]:
    """Which leaves of (args, kwargs) belong to arguments with these places."""
    chosen: set[tuple] = {(0, n % len(args)) for n in numbers if args}
    chosen |= {(1, name) for name in names}
    return {i for i, path in enumerate(tree.paths(form)) if path[:2] in chosen}


def is_traced(x: Any) -> bool:
    """Whether a leaf is an operand: an array, or a number that is not an int."""
    if isinstance(x, bool | int):
        return False
    try:
        typeof(x)
    except TypeError:
        return False
    return True
