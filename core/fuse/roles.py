"""Questions about equations and nodes that several steps of fusion ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.fuse.cluster import GATHERS
from treadle.fuse.order import Node
from treadle.fuse.program import Program
from treadle.ir.graph import Equation, Var


def fusable(eq: Equation) -> bool:
    """Whether the equation can be part of a loop nest, if its op is native."""
    return eq.op.kind in ("map", "reduce") or eq.op.name in GATHERS


def is_fused(eq: Equation, v: Var, program: Program) -> bool:
    """Whether a kernel that reads `v` in this equation could compute it there."""
    if eq.op.name in GATHERS:
        return program.resolve(eq.inputs[0])[0] is not v
    if eq.outputs[0] in program.aliases:
        return False
    return eq.op.kind in ("map", "reduce", "view")


def stored_members(node: Node, partition: Any) -> set[Var]:
    """The results of a node's equations that others need in memory."""
    program, owner = partition.program, partition.owner
    result: set[Var] = set()
    for eq in node.equations:
        for v in eq.outputs:
            if v in program.recomputed:
                continue
            if (
                v in program.inline
                or program.is_returned(v)
                or any(
                    not r.outputs
                    or owner.get(r.outputs[0]) is not node
                    or r.outputs[0] in program.aliases
                    for r in program.final_readers(v)
                )
            ):
                result.add(v)
    return result


def part_places(
    eq: Equation, steps: Sequence[int]
) -> list[tuple[int, tuple[int, ...]]]:
    """Offset and strides, in elements, of each piece of a concatenation or padding."""
    if eq.op.name == "concatenate":
        axis, start, result = eq.params["axis"], 0, []
        for a in eq.inputs:
            result.append((start * steps[axis], tuple(steps)))
            start += a.type.shape[axis]
        return result
    padding = eq.params["padding"]
    offset = sum(low * s for (low, _, _), s in zip(padding, steps, strict=True))
    strides = tuple(s * (p[2] + 1) for p, s in zip(padding, steps, strict=True))
    return [(offset, strides)]
