"""while_loop and fori_loop against JAX; reverse mode where it can be; errors."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.control.both import (
    FORWARD,
    JAX,
    REVERSE,
    TREADLE,
    agree,
    array,
    check,
    close,
)
from treadle.errors import StructureError
from treadle.ir.check import check as check_graph


def growing(lib: Any) -> Any:
    def run(x: Any, y: Any) -> Any:
        def step(carry: Any) -> Any:
            n, a, b = carry
            return n + 1, a * 1.3 + 0.1, lib.np.sin(b) * y

        start = (0, lib.np.abs(x) + 0.1, y)
        return lib.while_loop(lambda c: c[1] < 3.0, step, start)

    return run


def with_constants(lib: Any) -> Any:
    """The test depends on a closed-over array, the carry starts unbatched."""

    def run(x: Any, w: Any) -> Any:
        limit = 3.0 + x * x

        def step(carry: Any) -> Any:
            return carry[0] + 1.0, carry[1] @ w

        return lib.while_loop(
            lambda c: c[0] < limit, step, (0.0, lib.np.ones(2, np.float32))
        )[1]

    return run


def never(lib: Any) -> Any:
    return lambda x: lib.while_loop(lambda c: c < -1e9, lambda c: c * 2, x)


CASES: dict[str, tuple[Any, list[np.ndarray]]] = {
    "growing": (growing, [array(), array(3)]),
    "with constants": (with_constants, [array(), array(2, 2)]),
    "never": (never, [array()]),
}


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.parametrize("case", CASES)
def test_agrees(case: str, name: str) -> None:
    build, args = CASES[case]

    # Integers have no tangents; JAX gives them a dtype of their own.
    def floats(lib: Any) -> Any:
        f = build(lib)
        return (lambda *xs: f(*xs)[1:]) if case == "growing" else f

    check(floats, args, name)


def test_forward_over_everything() -> None:
    build, args = CASES["growing"]

    def tangent(lib: Any) -> Any:
        f = lib.jit(build(lib))
        return lambda *xs: lib.jvp(lambda *ys: f(*ys)[1:], xs, xs)[1]

    wide = [np.stack([a, 2 * a]) for a in args]
    agree(lambda lib: lib.vmap(tangent(lib)), *wide)
    agree(lambda lib: lambda *xs: lib.jvp(lib.vmap(tangent(lib)), xs, xs), *wide)
    agree(lambda lib: lib.jit(lib.jacfwd(lambda *xs: build(lib)(*xs)[1:])), *args)


def test_linearize_runs_forward() -> None:
    build, args = CASES["growing"]

    def linear(lib: Any) -> Any:
        def run(*xs: Any) -> Any:
            out, df = lib.linearize(lib.jit(lambda *ys: build(lib)(*ys)[1:]), *xs)
            return out, df(*xs)

        return run

    agree(linear, *args)


def test_graph_of_batched_loop_is_well_formed() -> None:
    build, args = CASES["growing"]
    from tests.core.control.both import TREADLE

    wide = [np.stack([a, 2 * a]) for a in args]
    graph = td.trace(td.vmap(build(TREADLE)))(*wide)
    check_graph(graph)
    (loop,) = [eq for eq in graph.equations if eq.op.name == "while_loop"]
    # The test is evaluated once per iteration: its answers are carried.
    assert [eq.op.name for eq in loop.params["test"].equations] == ["reduce_or"]


def test_outside_jit_reverse_mode_sees_through() -> None:
    f = lambda x: td.while_loop(lambda c: c < 10.0, lambda c: c * x, x)  # noqa: E731
    close(td.grad(f)(np.float32(2)), np.float32(4 * 2**3))


def power(lib: Any) -> Any:
    def run(x: Any) -> Any:
        return lib.fori_loop(1, 5, lambda i, c: c * x + i, lib.np.ones_like(x))

    return run


@pytest.mark.parametrize("name", FORWARD | REVERSE)
def test_fori_loop(name: str) -> None:
    check(power, [array(3)], name)


def test_fori_loop_with_traced_bounds() -> None:
    def build(lib: Any) -> Any:
        return lib.jit(
            lambda lo, hi, x: lib.fori_loop(lo, hi, lambda i, c: c * x + i, x)
        )

    agree(build, np.int32(2), np.int32(6), np.float32(0.3))
    agree(build, np.int32(6), np.int32(2), np.float32(0.3))
    agree(
        lambda lib: lib.vmap(build(lib)),
        np.array([0, 1, 5], np.int32),
        np.array([3, 7, 2], np.int32),
        array(3),
    )


def test_fori_loop_without_iterations() -> None:
    assert int(td.fori_loop(3, 3, lambda i, c: c + 1, 7)) == 7
    assert int(td.fori_loop(3, 1, lambda i, c: c + 1, 7)) == 7


def test_python_loops_show_values() -> None:
    seen = []

    def step(x: Any) -> Any:
        seen.append(float(x))
        return x * 2

    td.while_loop(lambda x: x < 5.0, step, 1.0)
    with td.disable_jit():
        td.fori_loop(0, 2, lambda i, x: step(x), 1.0)
        td.jit(lambda x: td.while_loop(lambda x: x < 5.0, step, x))(2.0)
    assert seen == [1.0, 2.0, 4.0, 1.0, 2.0, 2.0, 4.0]


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_limits_of_different_dtypes() -> None:
    """The counter takes their common dtype; a Python number has none of its own."""

    def run(n: Any, x: Any) -> Any:
        return td.fori_loop(0, n, lambda i, c: c * x + i, x)

    n = np.array([0, 1, 4])
    x = np.array([2.0, 3.0, 0.5], np.float32)
    wanted = [run(int(k), v) for k, v in zip(n, x, strict=True)]
    np.testing.assert_allclose(td.vmap(run)(n, x), wanted, rtol=1e-6)
    np.testing.assert_allclose(td.jit(td.vmap(run))(n, x), wanted, rtol=1e-6)
    for traced in (td.jit, lambda f: f):
        f = traced(lambda a, b: td.fori_loop(a, b, lambda i, c: c + i, 0))
        assert f(np.int8(1), np.int16(5)) == 10
    seen: list[Any] = []
    td.fori_loop(np.int16(0), np.int16(2), lambda i, c: seen.append(i.dtype) or c, 0)
    assert seen[0] == np.int16


def test_limits_that_are_known_under_jit() -> None:
    """Whatever their dtypes, the loop has reverse derivatives."""
    f = td.jit(td.grad(lambda x: td.fori_loop(0, np.int64(3), lambda i, c: c * x, x)))
    assert f(2.0) == 32.0


@pytest.mark.parametrize("init", [1, (1, 2.0), (1, np.float32(2.0))])
def test_no_iteration(init: Any) -> None:
    """Numbers come out as they would after an iteration, in Python too."""

    def run(lib: Any) -> Any:
        step = {int: lambda c: c * 1.5, tuple: lambda c: (c[1], c[0] * 1.0)}[type(init)]
        return lib.while_loop(lambda c: False, step, init)

    close(run(TREADLE), run(JAX))
    close(td.jit(lambda: run(TREADLE))(), run(JAX))


# Errors -------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda f: f, td.jit], ids=["python", "jit"])
def test_carry_changes(wrap: Any) -> None:
    f = wrap(
        lambda x: td.while_loop(
            lambda c: c[0] < 3, lambda c: (c[0], c[0]), (x, tnp.ones(3))
        )
    )
    with pytest.raises(TypeError, match=r"carry\[1\]: f32\[3\] goes in") as error:
        f(1.0)
    assert "test_while_loop.py" in str(error.value)


@pytest.mark.parametrize("wrap", [lambda f: f, td.jit], ids=["python", "jit"])
def test_structure_changes(wrap: Any) -> None:
    with pytest.raises(StructureError, match="keep its structure"):
        wrap(lambda x: td.while_loop(lambda c: c < 3, lambda c: (c, c), x))(1.0)


def test_condition_is_not_a_bool() -> None:
    with pytest.raises(TypeError, match="must return a bool scalar"):
        td.while_loop(lambda x: x, lambda x: x, 1.0)


def test_a_carry_may_begin_as_negative_zeros() -> None:
    def run(x: Any) -> Any:
        state = (0, tnp.full((3,), -0.0))
        return td.while_loop(lambda c: c[0] < x, lambda c: (c[0] + 1, c[1] * 1), state)

    _, found = td.jit(run)(3)
    assert np.signbit(np.asarray(found)).all()


@pytest.mark.parametrize("unroll", [1, 2, 5, 7, True, False])
def test_fori_loop_unrolled(unroll: int | bool) -> None:
    def f(lib: Any) -> Any:
        def body(i: Any, c: Any) -> Any:
            return lib.np.sin(c) + i

        return lambda x: lib.fori_loop(2, 9, body, x, unroll=unroll)

    agree(lambda lib: lib.jit(f(lib)), array(3))
    agree(lambda lib: lib.grad(lambda x: f(lib)(x).sum()), array(3))


def test_keywords_are_those_of_jax() -> None:
    for name in ("scan", "while_loop", "fori_loop", "map", "associative_scan"):
        ours, theirs = (
            list(inspect.signature(f).parameters)
            for f in (getattr(TREADLE, name), getattr(JAX, name))
        )
        shared = [p for p in theirs if not p.startswith("_")]
        assert ours[: len(shared)] == shared, name
