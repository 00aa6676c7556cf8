"""Code for short rows is made where a program gains by it, and changes no bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

import treadle as td
import treadle.numpy as tnp
from treadle.backends.cpu.sources import launch_source
from treadle.plan.steps import NestStep

F = np.float32


def entries(function: Callable[..., Any], *args: Any) -> list[str]:
    """The entries of nests over more than one row, in order."""
    steps = td.jit(function).lower(*map(tnp.asarray, args)).plan.steps
    return [
        launch_source(step.launch).key.split()[-2]
        for step in steps
        if isinstance(step, NestStep) and step.launch.outer
    ]


def softmax(x: Any) -> Any:
    e = tnp.exp(x - tnp.max(x, axis=-1, keepdims=True))
    return e / tnp.sum(e, axis=-1, keepdims=True)


def scaled(x: Any) -> Any:
    return x * tnp.exp(x[0])


def beside(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function, and a product that takes far longer."""
    return lambda x, a: (f(x), a @ a)


@pytest.mark.parametrize("columns", [5, 10, 33])
@pytest.mark.parametrize("f", [softmax, scaled])
def test_what_is_small_beside_the_rest_has_no_code_of_its_own(
    f: Callable[..., Any], columns: int
) -> None:
    rng = np.random.default_rng(columns)
    x = rng.standard_normal((48, columns)).astype(F)
    a = rng.standard_normal((700, 700)).astype(F)
    if f is softmax:
        assert "task" not in entries(f, x)
    assert set(entries(beside(f), x, a)) == {"task"}
    alone = np.asarray(td.jit(f)(x))
    together = np.asarray(td.jit(beside(f))(x, a)[0])
    assert alone.tobytes() == together.tobytes()
    wide = x.astype(np.float64)
    expected = special.softmax(wide, -1) if f is softmax else wide * np.exp(wide[0])
    np.testing.assert_allclose(together, expected, rtol=2e-6)


def test_many_rows_have_it_beside_a_product() -> None:
    x, a = np.ones((20_000, 11), F), np.ones((400, 400), F)
    assert entries(beside(softmax), x, a) == ["few"]


def test_rows_that_wait_for_others_have_it_always() -> None:
    """A row that is added to another one reads what was written just before."""

    def add(x: Any, at: Any, rows: Any, a: Any) -> Any:
        return x.at[at].add(rows), a @ a

    x, at = np.zeros((20, 8), F), np.arange(8, dtype=np.int32)
    found = entries(add, x, at, np.ones((8, 8), F), np.ones((700, 700), F))
    assert "few" in found
