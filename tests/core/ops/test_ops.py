"""The tables over all primitives: value, derivatives, batching, dtypes, compilation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
from tests.core.ops import (
    elementwise_cases,
    fourier_cases,
    index_cases,
    linalg_cases,
    structure_cases,
    window_cases,
)
from tests.core.ops.cases import Case
from treadle import dtypes
from treadle.ops.elementwise import elementwise
from treadle.trace.lowering import Fourier, Routine
from treadle.trace.op import registry

CASES = [
    *elementwise_cases.CASES,
    *structure_cases.CASES,
    *index_cases.CASES,
    *window_cases.CASES,
    *linalg_cases.CASES,
    *fourier_cases.CASES,
]


def each(chosen: Callable[[Case], bool] = lambda case: True) -> Any:
    """A test for each of some cases."""
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(c, id=c.name, marks=[pytest.mark.slow] * c.slow)
            for c in CASES
            if chosen(c)
        ],
    )


every_case = each()


@pytest.fixture(autouse=True)
def double_precision_oracle() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def moving(values: Sequence[Any]) -> list[int]:
    """The places of the values that have tangents."""
    return [
        i for i, x in enumerate(values) if dtypes.is_differentiable(np.asarray(x).dtype)
    ]


def random_like(values: Sequence[Any], seed: int) -> list[Any]:
    """A tangent for each value that has one, None for the others."""
    rng = np.random.default_rng(seed)

    def draw(x: Any) -> Any:
        x = np.asarray(x)
        if not dtypes.is_differentiable(x.dtype):
            return None
        out = rng.normal(size=x.shape)
        if dtypes.is_complex(x.dtype):
            out = out + 1j * rng.normal(size=x.shape)
        return np.asarray(out, x.dtype)

    return [draw(x) for x in values]


def assert_close(found: Any, wanted: Any, tolerance: float) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def differentiable(case: Case, args: Sequence[Any], outs: Sequence[Any]) -> bool:
    smooth = case.smooth and case.op.differentiable
    return smooth and bool(moving(args)) and bool(moving(outs))


@every_case
def test_value_jvp_and_vjp_agree_with_jax(case: Case) -> None:
    args = case.draw()
    outs = case.function(*args)
    if not differentiable(case, args, outs):
        wanted = jax.jit(case.expected)(*args)
        for found, want in zip(outs, wanted, strict=True):
            assert_close(found, want, case.tolerance)
        return
    tangents, cts = random_like(args, 1), random_like(outs, 2)
    where, there = moving(args), moving(outs)

    @jax.jit
    def oracle(xs: Any, ts: Any, cs: Any) -> Any:
        def smooth(*xs: Any) -> Any:
            full: list[Any] = list(args)
            for i, x in zip(where, xs, strict=True):
                full[i] = x
            outs = case.expected(*full)
            return [outs[i] for i in there], outs

        primals, pull, outs = jax.vjp(smooth, *xs, has_aux=True)
        _, out_tangents = jax.jvp(lambda *xs: smooth(*xs)[0], xs, ts)
        return (
            outs,
            out_tangents,
            pull([c.astype(p.dtype) for c, p in zip(cs, primals, strict=True)]),
        )

    wanted, wanted_tangents, wanted_cts = oracle(
        [args[i] for i in where],
        [tangents[i] for i in where],
        [cts[i] for i in there],
    )
    _, out_tangents = td.jvp(case.function, args, tangents)
    _, pullback = td.vjp(case.function, *args)
    found_cts = pullback(tuple(cts))
    for found, want in zip(outs, wanted, strict=True):
        assert_close(found, want, case.tolerance)
    for i, want in zip(there, wanted_tangents, strict=True):
        assert_close(out_tangents[i], want, case.tolerance)
    for i, want in zip(where, wanted_cts, strict=True):
        assert_close(found_cts[i], want, case.tolerance)


smooth_cases = each(lambda c: c.second and c.op.differentiable)


@smooth_cases
def test_derivatives_agree_with_finite_differences(case: Case) -> None:
    check_twice(case, case.draw())


@smooth_cases
def test_derivatives_in_complex_agree_with_finite_differences(case: Case) -> None:
    reals = case.draw()
    turned = random_like(reals, 3)
    args = [
        np.asarray(x + 0.3j * t) if x.dtype == np.float64 else x
        for x, t in zip(reals, turned, strict=True)
    ]
    if all(a is x for a, x in zip(args, reals, strict=True)):
        pytest.skip("it has a complex case, or takes no floats")
    try:
        case.function(*args)
    except (TypeError, ValueError):
        pytest.skip("not defined for complex numbers")
    check_twice(case, args)


def check_twice(case: Case, args: list[np.ndarray]) -> None:
    """Both modes to first order and all four orders of modes to second order."""
    outs = case.function(*args)
    if not differentiable(case, args, outs):
        pytest.skip("nothing to differentiate")
    where, there = moving(args), moving(outs)

    def function(*xs: Any) -> tuple[Any, ...]:
        full: list[Any] = list(args)
        for i, x in zip(where, xs, strict=True):
            full[i] = x
        outs = case.function(*full)
        return tuple(outs[i] for i in there)

    xs = tuple(args[i] for i in where)
    ts, us = (tuple(random_like(xs, seed)) for seed in (1, 4))
    cts = tuple(random_like(function(*xs), 2))

    def along(*xs: Any) -> Any:
        return td.jvp(function, xs, ts)[1]

    def gradient(*xs: Any) -> Any:
        return td.vjp(function, *xs)[1](cts)

    check_jvp(function, xs, ts)
    check_adjoint(function, xs, ts, cts)
    for first, cotangents in ((along, cts), (gradient, us)):
        check_jvp(first, xs, us)
        check_adjoint(first, xs, us, cotangents)


def check_jvp(function: Any, xs: tuple[Any, ...], ts: tuple[Any, ...]) -> None:
    step = 1e-6

    def moved(by: float) -> Any:
        return function(*(np.asarray(x + by * t) for x, t in zip(xs, ts, strict=True)))

    found = td.jvp(function, xs, ts)[1]
    for a, low, high in zip(found, moved(-step), moved(step), strict=True):
        difference = (np.asarray(high) - np.asarray(low)) / (2 * step)
        np.testing.assert_allclose(a, difference, rtol=1e-4, atol=1e-6)


def check_adjoint(function: Any, xs: Any, ts: Any, cts: Any) -> None:
    """Reverse mode is the transpose of forward mode. It never conjugates."""

    def inner(some: Any, others: Any) -> float:
        pairs = zip(some, others, strict=True)
        return sum(np.real(np.sum(np.asarray(a) * np.asarray(b))) for a, b in pairs)

    a = inner(td.jvp(function, xs, ts)[1], cts)
    b = inner(ts, td.vjp(function, *xs)[1](cts))
    assert abs(a - b) <= 1e-9 * (1 + abs(a))


def placements(args: Sequence[Any]) -> list[tuple[int | None, ...]]:
    """Ways to place the batch axis: all in front, all behind, and each one alone."""
    n = len(args)
    last = [np.ndim(a) for a in args]
    mixed = [(0, last[i])[i % 2] for i in range(n)]
    ways = [(0,) * n, tuple(last), tuple(mixed)]
    for i in range(n):
        middle = min(1, last[i])
        ways.append(tuple(middle if j == i else None for j in range(n)))
        ways.append(tuple(None if j == i else 0 for j in range(n)))
    return list(dict.fromkeys(w for w in ways if any(a is not None for a in w)))


@each(lambda c: bool(c.args))
def test_vmap_is_a_loop(case: Case) -> None:
    size = 3
    examples = [case.draw(seed) for seed in range(size)]
    for axes in placements(examples[0]):
        chosen = [
            [e[j] if a is not None else examples[0][j] for j, a in enumerate(axes)]
            for e in examples
        ]
        args = [
            column[0] if a is None else np.stack(column, a)
            for column, a in zip(zip(*chosen, strict=True), axes, strict=True)
        ]
        found = td.vmap(case.function, in_axes=axes)(*args)
        wanted = zip(*(case.function(*e) for e in chosen), strict=True)
        for f, w in zip(found, wanted, strict=True):
            assert_close(f, np.stack([np.asarray(x) for x in w]), 1e-12)


def narrowed(case: Case, dtype: np.dtype) -> list[np.ndarray] | None:
    """The case's arguments with another dtype instead of float64."""
    args = case.draw()
    if all(a.dtype != np.float64 for a in args) or "dtype" in case.params:
        return None
    return [a.astype(dtype) if a.dtype == np.float64 else a for a in args]


NARROW = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 5e-6}


@every_case
@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_floats_are_rounded_doubles(case: Case, dtype: str) -> None:
    args = narrowed(case, dtypes.canonical(dtype))
    is_half = dtypes.canonical(dtype).itemsize == 2
    if isinstance(case.op.lowering, Routine | Fourier) and is_half:
        pytest.skip("the libraries have no half floats")
    if args is None or case.op.name in ("nextafter", "complex"):
        pytest.skip("not a function of these floats")
    wide = [a.astype("float64") if a.dtype == dtype else a for a in args]
    for found, wanted in zip(case.function(*args), case.function(*wide), strict=True):
        found, wanted = np.asarray(found), np.asarray(wanted)
        if wanted.dtype == np.float64:
            assert found.dtype == dtypes.canonical(dtype)
            found = found.astype("float64")
        np.testing.assert_allclose(
            found, wanted, rtol=NARROW[dtype], atol=NARROW[dtype]
        )


def single(case: Case, seed: int = 0) -> list[np.ndarray]:
    """The arguments with single precision, which the compiler knows best."""
    names = {"float64": "float32", "complex128": "complex64"}
    return [a.astype(names.get(a.dtype.name, a.dtype)) for a in case.draw(seed)]


@every_case
def test_compiled_is_eager(case: Case) -> None:
    args = single(case)
    if case.op.name == "bitcast":
        args = case.draw()
    eager = case.function(*args)
    for found, wanted in zip(td.jit(case.function)(*args), eager, strict=True):
        assert_close(found, wanted, 3e-6)


@each(lambda c: c.op.differentiable)
def test_compiled_derivatives_are_eager(case: Case) -> None:
    args = single(case)
    outs = case.function(*args)
    if not differentiable(case, args, outs):
        pytest.skip("nothing to differentiate")
    cts = tuple(random_like(outs, 2))

    def gradient(*args: Any) -> Any:
        return td.vjp(case.function, *args)[1](cts)

    for found, wanted in zip(td.jit(gradient)(*args), gradient(*args), strict=True):
        if wanted is not None:
            assert_close(found, wanted, 3e-6)


CONSTANT = {
    "bitcast": "bits are no numbers",
    "iota": "it has no operands",
    "parts": "the compiler alone takes numbers apart, after derivatives are taken",
    "whole": "the compiler alone puts them together again",
}
"""Ops without derivative though floats may come out, and why."""


def test_only_integers_pass_as_constants() -> None:
    """Declared without derivative is only what has none."""
    for case in CASES:
        if case.op.differentiable or case.op.name in CONSTANT:
            continue
        args = case.draw()
        assert not (moving(args) and moving(case.function(*args))), case.name


def test_an_elementwise_op_of_floats_says_its_partials() -> None:
    with pytest.raises(TypeError, match="say what its partials are"):
        elementwise("half_of", lambda x: x / 2)
    assert "half_of" not in registry


def test_every_primitive_has_a_case_and_all_rules() -> None:
    tested = {case.op.name for case in CASES}
    for name, op in registry.items():
        if not op.type_rule.__module__.startswith("treadle.ops."):
            continue  # it holds a graph or a Python function
        assert name in tested, f"{name} has no case in tests/core/ops"
        assert op.batch is not None, f"{name} has no batching rule"
        assert (op.jvp is not None) == op.differentiable, (
            f"{name} must have a jvp or say differentiable=False"
        )
