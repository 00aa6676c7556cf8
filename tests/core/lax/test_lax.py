"""Every function against the one of the same name in `jax.lax`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.lax import elementwise_cases, structure_cases, work_cases
from tests.core.lax.cases import Case, floats
from tests.core.np.oracle import same

CASES = [*elementwise_cases.CASES, *structure_cases.CASES, *work_cases.CASES]


def each(chosen: Callable[[Case], bool] = lambda case: True) -> Any:
    cases = [c for c in CASES if chosen(c)]
    return pytest.mark.parametrize("case", cases, ids=lambda c: c.name)


def as_tuple(out: Any) -> tuple[Any, ...]:
    return tuple(jax.tree.leaves(out)) if isinstance(out, list | tuple) else (out,)


def ours(case: Case) -> Callable[..., tuple[Any, ...]]:
    return lambda *xs: as_tuple(case.function(td.lax, *xs))


def theirs(case: Case) -> Callable[..., tuple[Any, ...]]:
    return lambda *xs: as_tuple(case.function(jax.lax, *xs))


def ours_of(args: Any) -> list[Any]:
    return [tnp.asarray(a) for a in args]


@each()
def test_values_are_those_of_jax(case: Case) -> None:
    expected = jax.jit(theirs(case))(*map(jnp.asarray, case.args))
    args = ours_of(case.args)
    same(ours(case)(*args), expected, case.close)
    same(td.jit(ours(case))(*args), expected, case.close)


def moving(case: Case) -> list[int]:
    return [i for i, a in enumerate(case.args) if a.dtype.kind == "f"]


def score(function: Callable[..., Any], case: Case, module: Any) -> Any:
    """A weighted sum of the results that are floats, of the arguments that are."""
    places = moving(case)
    convert = jnp.asarray if module is jnp else tnp.asarray

    def total(*xs: Any) -> Any:
        args = [convert(a) for a in case.args]
        for i, x in zip(places, xs, strict=True):
            args[i] = x
        result: Any = convert(np.float32(0))
        for k, o in enumerate(function(case)(*args)):
            if o.dtype in (np.float32, np.float16, "bfloat16"):
                n = int(np.prod(o.shape))
                weights = np.cos(np.arange(n) + k).reshape(o.shape).astype("float32")
                # Results may be infinite where nothing of them is left.
                kept = module.where(module.isfinite(o), o, 0).astype("float32")
                result = result + module.sum(convert(weights) * kept)
        return result

    return total


@each(lambda c: c.smooth and bool(moving(c)))
def test_gradients_are_those_of_jax(case: Case) -> None:
    args = [case.args[i] for i in moving(case)]
    numbers = tuple(range(len(args)))
    oracle = jax.jit(jax.grad(score(theirs, case, jnp), numbers))
    expected = oracle(*map(jnp.asarray, args))
    gradient = td.grad(score(ours, case, tnp), argnums=numbers)
    for run in (gradient, td.jit(gradient)):
        same(run(*ours_of(args)), expected, 4 * case.close)


@each(lambda c: c.mapped)
def test_vmap_is_a_loop(case: Case) -> None:
    examples = [
        [a if k == 0 else np.flip(a).reshape(a.shape) for a in case.args]
        for k in range(2)
    ]
    stacked = [np.stack(column) for column in zip(*examples, strict=True)]
    single = [ours(case)(*ours_of(e)) for e in examples]
    found = td.vmap(ours(case))(*ours_of(stacked))
    for k, f in enumerate(found):
        same(f, np.stack([np.asarray(s[k]) for s in single]), case.close)
    # Only the first is mapped.
    axes = (0, *(None for _ in case.args[1:]))
    mixed = [stacked[0], *case.args[1:]]
    found = td.jit(td.vmap(ours(case), in_axes=axes))(*ours_of(mixed))
    single = [ours(case)(*ours_of([e[0], *case.args[1:]])) for e in examples]
    for k, f in enumerate(found):
        same(f, np.stack([np.asarray(s[k]) for s in single]), case.close)


def test_common_reductions_have_their_kernels() -> None:
    x = floats(2, 3, 8, 8)
    programs = {
        "reduce_sum": lambda x: td.lax.reduce(x, 0.0, lambda a, b: b + a, (1,)),
        "reduce_max": lambda x: td.lax.reduce(x, 0.5, td.lax.max, (1,)),
        "reduce_window_sum": lambda x: td.lax.reduce_window(
            x, 0.0, td.lax.add, (1, 1, 2, 2), None, "SAME"
        ),
    }
    for name, program in programs.items():
        ops = [eq.op.name for eq in td.trace(program)(x).equations]
        assert name in ops and len(ops) <= 4, (name, ops)
