"""Cluster to kernel: a nest, or a product whose epilogue the cluster is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from treadle.fuse.cluster import Cluster
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.lowering.launches import Launch, ProductKernel
from treadle.fuse.lowering.nests import build
from treadle.fuse.lowering.products import product_with_epilogue
from treadle.fuse.order import Node
from treadle.fuse.roles import stored_members
from treadle.ir.graph import Var


class Owners(Protocol):
    """Which values are read where, and which nodes make them."""

    @property
    def flow(self) -> Dataflow: ...

    @property
    def owner(self) -> Mapping[Var, Node]: ...


def kernel_of(cluster: Cluster, nodes: Owners) -> Launch | ProductKernel | None:
    """The kernel of a cluster, whose members fit its space; None if that of its product
    has no place for them."""
    flow, stored = nodes.flow, stored_members(cluster, nodes)
    if cluster.product is None:
        return build(cluster, flow, stored)
    return product_with_epilogue(flow.maker[cluster.product.c], flow, cluster, stored)
