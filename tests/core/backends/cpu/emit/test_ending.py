"""Endings of column nests, written once for all vectors of a block, against NumPy."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.core.kernels.nests import Maker
from treadle.backends.cpu.emit.ending import worth_ending
from treadle.backends.cpu.emit.nest import emit
from treadle.kernels.lower import schedule

rng = np.random.default_rng(0)


def updated(
    shape: tuple[int, ...], dtype: type, tasks: int, in_place: bool
) -> tuple[Maker, list[np.ndarray], list[np.ndarray]]:
    """A bias' gradient, summed over rows of (rows, columns) or (outer, rows, columns),
    its largest part, and what an optimizer makes of both; the results and what they
    should be, computed in float64."""
    *outer, rows, columns = shape
    m = Maker(tuple(outer), columns, mid=(rows,), axis="mid")
    x = rng.standard_normal(shape).astype(dtype)
    state = [rng.random((*outer, columns)).astype(dtype) for _ in range(3)]
    given = [s.astype(np.float64) for s in state]
    results = [s if in_place else np.zeros_like(s) for s in state]
    rate = np.array(0.75, dtype)

    def along(a: np.ndarray) -> np.ndarray:
        return np.broadcast_to(a[..., None, :], shape)

    r = m.load(np.broadcast_to(rate, shape))
    v = m.op("mul", m.load(x), r)
    total, most = m.op("reduce_sum", v), m.op("reduce_max", v)
    mean, square, weight = [m.load(along(s)) for s in state]
    rest = m.op("sub", m.const(1.0, dtype), r)
    first = m.op("add", m.op("mul", r, mean), m.op("mul", rest, total))
    second = m.op("add", m.op("mul", r, square), m.op("mul", most, most))
    root = m.op("add", m.op("sqrt", second), m.const(0.125, dtype))
    third = m.op("sub", weight, m.op("div", first, root))
    for target, value in zip(results, (first, second, third), strict=True):
        m.store(along(target), value)
    gradient = (x.astype(np.float64) * 0.75).sum(-2)
    largest = (x.astype(np.float64) * 0.75).max(-2)
    mean, square, weight = given
    a = 0.75 * mean + 0.25 * gradient
    b = 0.75 * square + largest**2
    expected = [a, b, weight - a / (np.sqrt(b) + 0.125)]
    m.run(tasks)
    return m, results, expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [2, 15, 16, 17, 63, 64, 65, 200])
def test_sums_reach_the_update_behind_them(columns: int, dtype: type) -> None:
    for outer, rows, tasks in (((), 9, 1), ((), 300, 3), ((3,), 5, 2)):
        shape = (*outer, rows, columns)
        m, results, expected = updated(shape, dtype, tasks, columns % 2 == 0)
        assert worth_ending(schedule(m.nest()))
        tolerance = 1e-4 if dtype == np.float32 else 1e-12
        for got, wanted in zip(results, expected, strict=True):
            assert np.allclose(got, wanted, rtol=tolerance, atol=tolerance)


def test_the_update_is_written_once_or_twice() -> None:
    m, *_ = updated((9, 64), np.float32, 1, False)
    text = emit(m.nest(), "f")
    # (Where masks are dear, whole vectors have code without them.)
    assert 1 <= len(re.findall(r"= call .*@llvm\.sqrt", text)) <= 2


def test_what_a_turn_stores_keeps_an_ending_from_being_put_off() -> None:
    m = Maker((), 32, mid=(5,), axis="mid")
    x, doubled, out = (np.ones((5, 32), np.float32) for _ in range(3))
    v = m.load(x)
    m.store(doubled, m.op("add", v, v))
    value = total = m.op("reduce_sum", v)
    for _ in range(9):
        value = m.op("mul", value, total)
    m.store(np.broadcast_to(out[0], (5, 32)), value)
    assert not worth_ending(schedule(m.nest()))
    m.run(1)
    assert (doubled == 2).all() and (out[0] == 5.0**10).all()
