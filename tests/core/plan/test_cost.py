"""How much a nest has to do, counted point by point."""

from __future__ import annotations

from itertools import product

import pytest

import treadle.numpy as tnp
from tests.core.fuse.graphs import array
from tests.core.plan.build import kernels_of
from treadle.fuse.lowering.launches import Launch
from treadle.plan.cost import points, traffic_bytes


def launch(function: object, *args: object) -> Launch:
    _, kernels = kernels_of(function, *args)  # type: ignore[arg-type]
    (entry,) = kernels.entries
    assert isinstance(entry.kernel, Launch)
    return entry.kernel


X = array(2, 3, 4)


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1)])
def test_points(axes: tuple[int, ...]) -> None:
    found = launch(lambda x: tnp.sum(x, axes), X)
    loops = [*found.outer, *found.mid, found.inner]
    assert points(found) == len(list(product(*map(range, loops)))) == 24


def test_bytes() -> None:
    assert traffic_bytes(launch(tnp.exp, X)) == 24 * 4 * 2
    assert traffic_bytes(launch(lambda x: tnp.sum(x, 2), X)) == (24 + 6) * 4
    # A row that all read counts once, and a computed index not at all.
    both = launch(lambda x, y: x + y, X, array(4))
    assert traffic_bytes(both) == (24 + 4 + 24) * 4
    assert traffic_bytes(launch(lambda x: x + tnp.arange(4), X)) == 24 * 4 * 2
    # A part of an array is what is read of it.
    assert traffic_bytes(launch(lambda x: tnp.exp(x[:1]), X)) == 12 * 4 * 2
    doubles = launch(lambda x: tnp.exp(x), array(5, dtype="float64"))
    assert traffic_bytes(doubles) == 80
