"""Questions about equations and nodes that several steps of fusion ask."""

from __future__ import annotations

from typing import Any

from treadle.fuse.dataflow import Dataflow
from treadle.fuse.order import Node
from treadle.ir.graph import Equation, Var
from treadle.trace.lowering import Elementwise, Gather, Index, Reduction, View


def is_fused(eq: Equation, v: Var, flow: Dataflow) -> bool:
    """Whether a kernel that reads `v` in this equation could compute it there."""
    how = eq.op.lowering
    if isinstance(how, Gather):
        return flow.source(eq.inputs[0]) is not v
    if eq.outputs[0] in flow.aliases:
        return False
    return isinstance(how, (Elementwise, Index, Reduction, View))


def stored_members(node: Node, partition: Any) -> set[Var]:
    """The results of a node's equations that others need in memory."""
    return {
        v for eq in node.equations for v in eq.outputs if is_stored(v, node, partition)
    }


def is_stored(v: Var, node: Node, partition: Any) -> bool:
    """Whether others need the result of one of a node's equations in memory."""
    flow, owner = partition.flow, partition.owner
    if v in flow.recomputed:
        return False
    if v in flow.inline or flow.is_returned(v):
        return True
    for r in flow.final_readers(v):
        if not r.outputs:
            return True
        out = r.outputs[0]
        if owner.get(out) is not node or out in flow.aliases:
            return True
    return False
