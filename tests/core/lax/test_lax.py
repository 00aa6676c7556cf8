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


# What stands for its like where time matters.
QUICK = (
    *("add", "clamp", "select_n", "round", "reduce_precision-5-10", "pad-both"),
    *(
        "dynamic_slice",
        "dynamic_update_slice",
        "gather-rows-fill1",
        "gather-turned-clip0",
    ),
    *("gather-batch-behind-clip0", "scatter_add-rows-drop", "scatter-two-drop"),
    *("scatter_mul-parts-clip", "dot_general-two", "conv-same", "conv-batches"),
    *(
        "conv_transpose-SAME-3-True-False",
        "patches",
        "reduce-max-from",
        "reduce-custom",
    ),
    *("sort-several", "top_k", "reduce_window-max-nchw", "reduce_window-sum-base"),
    *("reduce_window-sum-dilated", "cumsum-True", "reduce_window-custom"),
)


def each(chosen: Callable[[Case], bool] = lambda case: True) -> Any:
    """A test for each of some cases."""
    cases = [
        pytest.param(c, id=c.name, marks=[] if c.name in QUICK else pytest.mark.slow)
        for c in CASES
        if chosen(c)
    ]
    return pytest.mark.parametrize("case", cases)


def test_the_quick_cases_are_there() -> None:
    assert set(QUICK) <= {c.name for c in CASES}


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


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: td.lax.add(floats(2), floats(2).astype("float64")), r"f32\[2\], f64\[2\]"),
    (lambda: td.lax.add(floats(2), floats(3)), r"different shapes: f32\[2\], f32\[3\]"),
    (
        lambda: td.lax.add(np.ones(2, "int32"), 1.5),
        "1.5 beside an array of dtype int32",
    ),
    (lambda: td.lax.sin([1.0]), "takes arrays, got a list"),
    (lambda: td.lax.select_n(np.float32(1), floats(2)), "select_n"),
    (lambda: td.lax.slice(floats(3), (1,), (5,)), "slice 1:5"),
    (
        lambda: td.jit(lambda i: td.lax.slice(floats(3), (i,), (3,)))(1),
        "known while tracing|Python index",
    ),
    (lambda: td.lax.pad(floats(3), 0.0, [(0, 0, -1)]), "three numbers for each axis"),
    (lambda: td.lax.pad(floats(3), floats(2), [(0, 0, 0)]), "scalar of dtype float32"),
    (lambda: td.lax.broadcast_in_dim(floats(3), (3, 2), (2,)), "must increase"),
    (lambda: td.lax.squeeze(floats(3, 1), (0,)), "length 1"),
    (lambda: td.lax.index_in_dim(floats(3), 3), "out of range"),
    (lambda: td.lax.split(floats(3), (1, 1)), r"sizes \(1, 1\) of an axis of length 3"),
    (lambda: td.lax.dynamic_slice(floats(3, 2), (1,), (1, 1)), "one for each axis"),
    (lambda: td.lax.dynamic_slice(floats(3), (1.5,), (1,)), "integer scalar"),
    (lambda: td.lax.dynamic_slice(floats(3), (1,), (4,)), "does not fit"),
    (lambda: td.lax.dot(floats(2, 2, 2), floats(2)), "dimension_numbers"),
    (lambda: td.lax.dot_general(floats(2), floats(2), 3), "lhs_contracting"),
    (
        lambda: td.lax.conv(floats(1, 2, 3, 3), floats(1, 2, 2, 2), (1, 1), "FULL"),
        '"SAME"',
    ),
    (
        lambda: td.lax.conv(floats(1, 2, 3, 3), floats(1, 3, 2, 2), (1, 1), "SAME"),
        "2 channels",
    ),
    (
        lambda: td.lax.conv(floats(1, 2, 3, 3), floats(1, 2, 2), (1, 1), "SAME"),
        "two axes besides",
    ),
    (
        lambda: td.lax.conv_dimension_numbers(
            (1, 1, 1), (1, 1, 1), ("NHC", "WIO", "NHC")
        ),
        "no three names",
    ),
    (
        lambda: td.lax.gather(
            floats(3),
            np.zeros((1, 1)),
            td.lax.GatherDimensionNumbers((), (0,), (0,)),
            (1,),
        ),
        "indices are integers",
    ),
    (
        lambda: td.lax.gather(
            floats(3),
            np.zeros((1, 1), "int32"),
            td.lax.GatherDimensionNumbers((0,), (0,), (0,)),
            (1,),
        ),
        "do not fit",
    ),
    (
        lambda: td.lax.gather(
            floats(3),
            np.zeros((1, 1), "int32"),
            td.lax.GatherDimensionNumbers((), (0,), (0,)),
            (1,),
            mode="wrap",
        ),
        "none of",
    ),
    (
        lambda: td.lax.scatter(
            floats(3),
            np.zeros((2, 1), "int32"),
            floats(3),
            td.lax.ScatterDimensionNumbers((), (0,), (0,)),
        ),
        "not the axes of the indices",
    ),
    (
        lambda: td.lax.reduce(floats(3), 0.0, lambda a, b: (a, b), (0,)),
        "must give one of the same types",
    ),
    (
        lambda: td.lax.reduce((floats(3), floats(2)), (0.0, 0.0), td.lax.add, (0,)),
        "one shape",
    ),
    (
        lambda: td.lax.reduce((floats(3), floats(3)), 0.0, td.lax.add, (0,)),
        "structure of the operands",
    ),
    (
        lambda: td.lax.reduce_window(floats(3), 0.0, td.lax.mul, (5,)),
        "reach over 5 elements",
    ),
    (lambda: td.lax.argmax(floats(3), 0, "float32"), "integer dtype"),
    (lambda: td.lax.bitcast_convert_type(floats(3), "float64"), "must have length 2"),
]


@pytest.mark.parametrize("call, message", WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_says_so_at_the_users_line(call: Any, message: str) -> None:
    kinds = (TypeError, ValueError, IndexError)
    with pytest.raises(kinds, match=message) as caught:
        call()
    assert f"\n  at {__file__}" in str(caught.value)


def test_loops_and_collectives_are_treadles_own() -> None:
    names = "scan while_loop fori_loop cond switch map associative_scan psum ppermute"
    for name in names.split():
        assert getattr(td.lax, name) is getattr(td, name)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8", "bool"])
def test_extremes_of_no_elements_are_what_every_number_beats(dtype: str) -> None:
    x = np.zeros((2, 0), jnp.dtype(dtype))
    for name in ("reduce_max", "reduce_min"):
        wanted = np.asarray(getattr(jax.lax, name)(x, (1,)))
        for f in (getattr(td.lax, name), td.jit(getattr(td.lax, name), static=1)):
            found = np.asarray(f(x, (1,)))
            assert found.dtype == wanted.dtype
            assert found.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    "shapes",
    [
        [()],
        [(), (2,)],
        [(3, 1), (4,)],
        [(2,), (3, 2), ()],
        [(1,), (0,)],
        [(2, 1, 3), (4, 1), (3,)],
        [(2,), (3,)],
        [(2, 3), (2,)],
    ],
)
def test_shapes_of_any_lengths_broadcast(shapes: list[tuple[int, ...]]) -> None:
    try:
        expected = jax.lax.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(ValueError, match="broadcast_shapes: shapes"):
            td.lax.broadcast_shapes(*shapes)
    else:
        assert td.lax.broadcast_shapes(*shapes) == expected
