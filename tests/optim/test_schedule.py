"""Schedules agree with Optax's, and their numbers are run-time values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import treadle as td
import treadle.numpy as tnp
from tests.optim.trees import traces
from treadle import optim, tree

CASES: dict[str, tuple[Callable, Callable]] = {
    name: (lambda n=name, a=args: getattr(optim, n.split()[0])(*a),
           lambda n=name, a=args: getattr(optax, n.split()[0])(*a))
    for name, args in {
        "constant_schedule": (0.3,),
        "polynomial_schedule": (1.0, 0.1, 2.5, 40, 7),
        "polynomial_schedule integer": (1.0, 0.1, 2, 40),
        "linear_schedule": (0.5, 0.1, 30, 10),
        "linear_schedule rising": (0.0, 1e-3, 30),
        "warmup_constant_schedule": (0.0, 0.2, 13),
        "cosine_decay_schedule": (1e-3, 60),
        "cosine_decay_schedule floor": (1.0, 60, 0.1, 2.0),
        "warmup_cosine_decay_schedule": (0.0, 1.0, 10, 70),
        "warmup_cosine_decay_schedule end": (0.1, 1.0, 10, 70, 0.05, 1.5),
        "warmup_cosine_decay_schedule at once": (0.1, 1.0, 0, 70),
        "exponential_decay": (1.0, 10, 0.9),
        "exponential_decay late": (1.0, 10, 0.9, 20),
        "exponential_decay staircase": (1.0, 10, 0.5, 5, True),
        "exponential_decay floor": (1.0, 10, 0.5, 0, False, 0.2),
        "exponential_decay growing": (1.0, 10, 2.0, 0, False, 5.0),
        "piecewise_constant_schedule": (1.0, {10: 0.1, 30: 0.5, 31: 3.0}),
        "piecewise_interpolate_schedule linear":
            ("linear", 1.0, {10: 0.1, 30: 0.5, 31: 3.0}),
        "piecewise_interpolate_schedule cosine":
            ("cosine", 0.5, {7: 2.0, 60: 0.1}),
        "piecewise_interpolate_schedule constant": ("cosine", 0.5, {}),
        "linear_onecycle_schedule": (70, 0.1),
        "linear_onecycle_schedule options": (50, 0.1, 0.2, 0.7, 10.0, 100.0),
        "cosine_onecycle_schedule": (70, 0.1),
        "cosine_onecycle_schedule options": (50, 0.1, 0.5, 10.0, 100.0),
        "sgdr_schedule": (
            [{"init_value": 0.1, "peak_value": 1.0, "warmup_steps": 3,
              "decay_steps": 10 * n, "end_value": 0.01 * n} for n in (1, 2, 3)],
        ),
        "warmup_exponential_decay_schedule": (0.0, 1.0, 10, 20, 0.5),
        "warmup_exponential_decay_schedule options":
            (0.1, 1.0, 10, 5, 0.5, 4, True, 0.1),
    }.items()
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_are_optax(name: str) -> None:
    ours, theirs = CASES[name]
    schedule, reference = ours(), theirs()
    counts = np.array([*range(80), 1000])
    np.testing.assert_allclose(
        td.vmap(schedule)(tnp.asarray(counts)),
        jax.vmap(reference)(counts),
        rtol=1e-6,
        atol=1e-6,
    )
    value = schedule(tnp.asarray(30))
    assert value.shape == () and value.dtype == td.float32


@pytest.mark.parametrize("name", CASES)
def test_compiled_values_agree_and_numbers_are_inputs(name: str) -> None:
    schedule = CASES[name][0]()
    jitted, count = traces(lambda s, t: s(t))
    for step in (0, 17, 45, 90):
        np.testing.assert_allclose(jitted(schedule, step), schedule(step), rtol=1e-5)
    other = tree.map(lambda x: x * 2 if isinstance(x, float) else x, schedule)
    np.testing.assert_allclose(jitted(other, 17), other(17), rtol=1e-5)
    assert len(count) == 1


def test_schedules_are_differentiable_by_their_numbers() -> None:
    """Also by those that are checked where they are known."""

    def ours(rate: Any) -> Any:
        return optim.exponential_decay(1.0, 10, rate)(3)

    wanted = jax.grad(lambda r: r**0.3)(0.9)
    for gradient in (td.grad(ours), td.jit(td.grad(ours))):
        np.testing.assert_allclose(gradient(0.9), wanted, rtol=1e-6)
    np.testing.assert_allclose(
        td.vmap(ours)(np.array([0.9, 0.5])), [0.9**0.3, 0.5**0.3], 1e-6
    )
    slope = td.grad(lambda steps: optim.linear_schedule(1.0, 0.0, steps)(3))(10.0)
    np.testing.assert_allclose(slope, 0.03, rtol=1e-6)


def test_joined() -> None:
    parts = [optim.linear_schedule(0.0, 1.0, 5), optim.exponential_decay(1.0, 3, 0.5)]
    theirs = [optax.linear_schedule(0.0, 1.0, 5), optax.exponential_decay(1.0, 3, 0.5)]
    ours = optim.join_schedules([*parts, lambda t: 0.1 * t], [5, 20])
    reference = optax.join_schedules([*theirs, lambda t: 0.1 * t], [5, 20])
    for count in range(30):
        np.testing.assert_allclose(ours(count), reference(count), rtol=1e-6)


@given(
    st.floats(0.0, 1.0), st.floats(0.1, 2.0), st.integers(1, 50), st.integers(1, 100)
)
def test_warmup_cosine_stays_between_its_ends(
    first: float, peak: float, warmup: int, rest: int
) -> None:
    schedule = optim.warmup_cosine_decay_schedule(first, peak, warmup, warmup + rest)
    np.testing.assert_allclose(schedule(0), first, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(schedule(warmup), peak, rtol=1e-5)
    np.testing.assert_allclose(schedule(warmup + rest), 0.0, atol=1e-6)
    assert 0.0 <= float(schedule(warmup + rest // 2)) <= peak * 1.0001


def test_a_schedule_shows_its_numbers() -> None:
    shown = repr(optim.cosine_decay_schedule(0.1, 100))
    assert shown == (
        "cosine_decay(init_value=0.1, decay_steps=100, alpha=0.0, exponent=1.0)"
    )


def test_a_product_counts_once() -> None:
    warm, decay = optim.linear_schedule(0.0, 1.0, 5), optax.exponential_decay(1, 3, 0.5)
    product = optim.product_schedule(warm, lambda t: 0.5 ** (t / 3))
    for count in range(12):
        expected = float(warm(count)) * float(decay(count))
        np.testing.assert_allclose(product(count), expected, rtol=1e-6)


def test_one_trace_for_all_cycles() -> None:
    jitted, count = traces(lambda s, t: s(t))
    for first in (5, 7):
        schedule = optim.cosine_restarts_schedule(1.0, first, 2.0)
        for number in range(6):
            start = first * (2**number - 1)
            np.testing.assert_allclose(jitted(schedule, start), 1.0, rtol=1e-5)
    assert len(count) == 1


def test_errors_name_the_value() -> None:
    with pytest.raises(ValueError, match="decay_steps must be positive, got 0"):
        optim.cosine_decay_schedule(0.1, 0)
    with pytest.raises(ValueError, match="decay_rate must be positive, got -1"):
        optim.exponential_decay(0.1, 5, -1.0)
    with pytest.raises(ValueError, match="decay_steps=10 counts the warm-up too"):
        optim.warmup_cosine_decay_schedule(0.0, 1.0, 10, 10)
    with pytest.raises(ValueError, match="'linear' or 'cosine', got 'cubic'"):
        optim.piecewise_interpolate_schedule("cubic", 1.0, {})
    with pytest.raises(ValueError, match="'cosine' or 'sqrt', got 'cubic'"):
        optim.warmup_stable_decay_schedule(1.0, 1, 1, 1, decay="cubic")
    with pytest.raises(ValueError, match="timescale must be positive, got 0"):
        optim.inverse_sqrt_schedule(1.0, 0)
    with pytest.raises(ValueError, match="2 schedules with 2 boundaries"):
        optim.join_schedules([optim.constant_schedule(1.0)] * 2, [1, 2])
