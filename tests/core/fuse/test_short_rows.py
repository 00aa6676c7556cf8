"""Rows of a few elements, beside NumPy: vectors go across them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.backends.cpu.run import threads

LENGTHS = [1, 2, 3, 7, 16, 17]
ROWS = [1, 7, 33]


def softmax(np_: Any, x: Any, scale: Any) -> Any:
    weights = np_.exp(x * scale - (x * scale).max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def norm(np_: Any, x: Any, scale: Any) -> Any:
    x = x - x.mean(axis=-1, keepdims=True)
    return scale * x / np_.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-3)


def largest(np_: Any, x: Any, scale: Any) -> Any:
    return (x * scale).max(axis=-1)


def first_largest(np_: Any, x: Any, scale: Any) -> Any:
    return np_.argmax(x * scale, axis=-1)


FUNCTIONS = [softmax, norm, largest, first_largest]


def drawn(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(shape[-1])
    x = rng.standard_normal(shape).astype(np.float32)
    return x, rng.random(shape[-1]).astype(np.float32) + 0.5


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("length", LENGTHS)
def test_rows(function: Callable, length: int) -> None:
    compiled = td.jit(lambda x, scale: function(tnp, x, scale))
    for rows in ROWS:
        x, scale = drawn(rows, length)
        found = np.asarray(compiled(tnp.asarray(x), tnp.asarray(scale)))
        np.testing.assert_allclose(found, function(np, x, scale), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("function", [softmax, norm])
def test_bits_are_those_of_any_number_of_rows_and_threads(function: Callable) -> None:
    compiled = td.jit(lambda x, scale: function(tnp, x, scale))
    x, scale = drawn(1000, 3, 5)
    whole = np.asarray(compiled(tnp.asarray(x), tnp.asarray(scale)))
    count = threads.num_threads()
    threads.set_num_threads(1)
    try:
        alone = td.jit(lambda x, scale: function(tnp, x, scale))
        alone = np.asarray(alone(tnp.asarray(x), tnp.asarray(scale)))
    finally:
        threads.set_num_threads(count)
    few = np.asarray(compiled(tnp.asarray(x[:3]), tnp.asarray(scale)))
    assert whole.tobytes() == alone.tobytes()
    assert whole[:3].tobytes() == few.tobytes()


def test_a_result_may_be_written_over_its_operand() -> None:
    @td.jit
    def steps(x: Any) -> Any:
        for _ in range(3):
            x = norm(tnp, x + 1.0, 1.0)
        return x

    x, _ = drawn(37, 5)
    expected = x
    for _ in range(3):
        expected = norm(np, expected + 1.0, 1.0)
    found = np.asarray(steps(tnp.asarray(x)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
