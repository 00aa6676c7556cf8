"""Orders of which any part can be had without the whole."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from treadle import rng
from treadle.data import order


@pytest.mark.parametrize("count", [1, 2, 5, 1000, 4096, 4097])
def test_an_order_computed_place_by_place(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "_IN_MEMORY", 0)
    found = order.Order(rng.key(0), count)
    whole = found[0:count]
    assert sorted(whole.tolist()) == list(range(count))
    assert found[count // 3 : count // 2].tolist() == (
        whole[count // 3 : count // 2].tolist()
    )
    assert found[0 : count + 7].tolist() == whole.tolist()
    other = order.Order(rng.key(1), count)[0:count]
    assert (other.tolist() != whole.tolist()) == (count >= 5)


def test_orders_of_many_are_even(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where number 0 … 7 of 100 goes, and what follows what, is left to chance."""
    monkeypatch.setattr(order, "_IN_MEMORY", 0)
    orders = [order.Order(rng.key(k), 100)[0:100] for k in range(2000)]
    table = np.bincount(np.ravel([o[:8] for o in orders]), minlength=100)
    assert stats.chisquare(table).pvalue > 1e-3
    steps = np.ravel([np.diff(o) % 100 for o in orders])
    assert stats.chisquare(np.bincount(steps, minlength=100)[1:]).pvalue > 1e-3


def test_the_order_of_a_run_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run must go on in the order in which it began, also in a later version."""
    found = order.Order(rng.key(0), 1000)[0:1000]
    assert found.tolist() == np.asarray(rng.permutation(rng.key(0), 1000)).tolist()
    many = order.Order(rng.key(0), 10**9)[0:4]
    assert many.tolist() == [956858822, 622040317, 478034275, 325459185]
