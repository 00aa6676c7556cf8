"""A cluster's kernel: a nest of its own, or the epilogue of its product."""

from __future__ import annotations

from typing import Any

import treadle.numpy as tnp
from tests.core.fuse.graphs import array, grouped
from treadle.fuse.cluster import Cluster
from treadle.fuse.lowering.clusters import kernel_of
from treadle.fuse.lowering.launches import Launch, ProductKernel

X, W = array(3, 4), array(4, 5)


def kernels(function: Any, *args: Any) -> list[Any]:
    part = grouped(function, *args)
    return [kernel_of(n, part) for n in part.nodes if isinstance(n, Cluster)]


def stored(launch: Launch) -> int:
    return sum(b.store for b in launch.bindings)


def test_a_nest_stores_what_others_need() -> None:
    (launch,) = kernels(lambda x: tnp.tanh(x) + 1.0, X)
    assert isinstance(launch, Launch)
    assert stored(launch) == 1
    (launch,) = kernels(lambda x: (lambda y: (y, y + 1.0))(tnp.tanh(x)), X)
    assert stored(launch) == 2


def test_an_epilogue_belongs_to_its_product() -> None:
    (found,) = kernels(lambda x, w: tnp.maximum(x @ w, 0.0), X, W)
    assert isinstance(found, ProductKernel)
    assert found.epilogue is not None
    assert stored(found.epilogue) == 1


def test_it_is_written_from_what_is_so_now() -> None:
    """A member that is computed again by others is not stored any more."""
    part = grouped(lambda x: (lambda y: (tnp.cumsum(y, 1), y + 1.0))(tnp.tanh(x)), X)
    cluster = next(n for n in part.nodes if isinstance(n, Cluster))
    before = kernel_of(cluster, part)
    assert isinstance(before, Launch)
    part.flow.recomputed.add(cluster.equations[0].outputs[0])
    after = kernel_of(cluster, part)
    assert isinstance(after, Launch)
    assert (stored(before), stored(after)) == (2, 1)


def test_a_product_without_room_for_its_epilogue_has_none() -> None:
    part = grouped(lambda x, w: tnp.maximum(x @ w, 0.0), X, W)
    (cluster,) = part.nodes
    assert isinstance(cluster, Cluster)
    cluster.form = "inner"
    assert kernel_of(cluster, part) is None
