"""Which results may be written over which donated arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.backends import by_reference
from tests.core.fuse.graphs import array
from tests.core.plan.build import plan_of
from treadle.plan.liveness import check_plan

X, Y = array(4, 4), array(4, 4)

SHARES: dict[str, tuple[Any, dict[int, int]]] = {
    "element by element": (lambda x, y: x + y, {0: 0}),
    "at other places": (lambda x, y: x.T + y, {0: 1}),
    "at other places, both": (lambda x, y: x.T + y[::-1], {}),
    # Nests of one region run at the same time.
    "two results": (lambda x, y: (x + y, x - y), {}),
    "two results of one": (lambda x, y: (x + 1.0, x - 1.0, y), {2: 1}),
    "dead before": (lambda x, y: tnp.exp(tnp.cumsum(tnp.cumsum(x, 1), 0)), {0: 0}),
    "still read": (lambda x, y: (lambda z: (z, x @ z))(tnp.sin(y)), {0: 1}),
    "of another size": (lambda x, y: (x + y)[:2] + tnp.sum(x), {}),
    "a product of it": (lambda x, y: x @ y, {}),
    # The product is in the result's memory before its epilogue reads x.
    "an epilogue's operand": (lambda x, y: (y.T @ y) + x, {}),
    "an epilogue's operand beside": (
        lambda x, y: (lambda z: (z, z + x))(y.T @ y),
        {1: 0},
    ),
    "a product's operand": (lambda x, y: (x @ y) + x, {}),
    "a row's sum": (lambda x, y: x / tnp.sum(x * x, 1)[:, None], {0: 0}),
    "a column's sum": (lambda x, y: x / tnp.sum(x * x, 0), {0: 0}),
    "rows read again": (lambda x, y: x + x[::-1], {0: 1}),
    "itself": (lambda x, y: (x, y), {0: 0, 1: 1}),
    "in the other's place": (lambda x, y: (y, x), {0: 1, 1: 0}),
    "of fewer bytes": (lambda x, y: x > y, {}),
    "written twice": (lambda x, y: x.at[1].set(y[0]), {}),
}


def shares(function: Any) -> dict[int, int]:
    plan = plan_of(function, X, Y, donated=(0, 1))
    check_plan(plan)
    return plan.shares


@pytest.mark.parametrize("name", SHARES)
def test_shares(name: str) -> None:
    function, wanted = SHARES[name]
    assert shares(function) == wanted


@pytest.mark.parametrize("name", SHARES)
def test_results_are_the_same(name: str) -> None:
    function, _ = SHARES[name]
    r = np.random.default_rng(0)
    given = [r.normal(size=(4, 4)).astype(np.float32) for _ in range(2)]
    with by_reference.checked() as seen:
        td.jit(function, donate=(0, 1))(*(td.jit(lambda x: x)(a) for a in given))
    assert seen


def test_only_what_is_donated_is_taken() -> None:
    assert plan_of(lambda x, y: x + y, X, Y).shares == {}
    assert plan_of(lambda x, y: x + y, X, Y, donated=(1,)).shares == {0: 1}
    assert plan_of(lambda x, y: x.T + y, X, Y, donated=(0,)).shares == {}
