"""Schedules agree with Optax's, and their numbers are run-time values."""

from __future__ import annotations

from collections.abc import Callable

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
    }.items()
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_are_optax(name: str) -> None:
    ours, theirs = CASES[name]
    schedule, reference = ours(), theirs()
    for count in [*range(0, 80, 3), 10, 30, 31, 1000]:
        np.testing.assert_allclose(
            schedule(count), reference(count), rtol=1e-6, atol=1e-6, err_msg=str(count)
        )
        value = schedule(tnp.asarray(count))
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


def test_errors_name_the_value() -> None:
    with pytest.raises(ValueError, match="decay_steps must be positive, got 0"):
        optim.cosine_decay_schedule(0.1, 0)
    with pytest.raises(ValueError, match="decay_rate must be positive, got -1"):
        optim.exponential_decay(0.1, 5, -1.0)
    with pytest.raises(ValueError, match="decay_steps=10 counts the warm-up too"):
        optim.warmup_cosine_decay_schedule(0.0, 1.0, 10, 10)
    with pytest.raises(ValueError, match="2 schedules with 2 boundaries"):
        optim.join_schedules([optim.constant_schedule(1.0)] * 2, [1, 2])
