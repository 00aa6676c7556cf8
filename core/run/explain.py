"""A compiled program as a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from treadle.kernels.lower import cost
from treadle.plan.cost import points, traffic_bytes
from treadle.plan.steps import (
    Branch,
    CallsStep,
    CopyStep,
    HostStep,
    Loop,
    NestStep,
    OrderStep,
    Plan,
    ProductStep,
    Step,
    While,
)


def walk(steps: Sequence[Step], depth: int = 0) -> Iterator[tuple[int, Step]]:
    """All steps with their depth of nesting."""
    for step in steps:
        yield depth, step
        if isinstance(step, While):
            yield from walk(step.test, depth + 1)
        if isinstance(step, Loop):
            yield from walk(step.body, depth + 1)
        if isinstance(step, Branch):
            for branch in step.branches:
                yield from walk(branch, depth + 1)


def explain(plan: Plan) -> str:
    """Lists kernels, what was fused into each, FLOPs, bytes, and the memory plan."""
    rows = [_row(depth, step) for depth, step in walk(plan.steps)]
    steps = [s for _, s in walk(plan.steps)]
    nests = {s.launch.nest for s in steps if isinstance(s, NestStep)}
    nests |= {
        s.product.epilogue.nest
        for s in steps
        if isinstance(s, ProductStep) and s.product.epilogue
    }
    hosts = [s for s in steps if isinstance(s, HostStep)]
    outline = plan.outline
    lines = [
        f"{outline.name or 'program'}: {outline.equations} equations in "
        f"{len(steps)} steps, {len(nests)} different kernels",
        *rows,
        f"memory: arena {_size(plan.arena)} for temporaries of "
        f"{_size(outline.nbytes)}, inputs {_size(sum(b.nbytes for b in plan.inputs))}, "
        f"outputs {_size(sum(b.nbytes for b in plan.outputs))}",
    ]
    if hosts:
        lines.append("host callbacks:")
        counts = Counter((s.call.op.name, s.call.reason) for s in hosts)
        lines += [f"  {n} x {name}: {why}" for (name, why), n in counts.items()]
    return "\n".join(lines)


def _row(depth: int, step: Step) -> str:
    name, fused, flops, nbytes, tasks = _describe(step)
    sizes = f"{flops / 1e6:9.2f} MFLOP {nbytes / 1e6:8.2f} MB"
    cut = f" {tasks} tasks" if tasks > 1 else ""
    return f"{'  ' * depth}{step.position:4d} {name:<10}{sizes}{cut:<9} {fused}"


def _describe(step: Step) -> tuple[str, str, float, float, int]:
    fused = _names(step.names)
    if isinstance(step, NestStep):
        flops = points(step.launch) * sum(cost(i) for i in step.launch.nest.body)
        kind = "row" if step.launch.nest.axis == "inner" else "column"
        return kind, fused, flops, traffic_bytes(step.launch), step.tasks
    if isinstance(step, ProductStep):
        name = "product" if step.product.epilogue is None else "product+"
        moved = sum(p.buffer.nbytes for p in (step.a, step.b, step.c))
        c = step.product.contraction
        return name, f"{c.sizes} {fused}", c.flops, moved, step.words.tasks
    if isinstance(step, CopyStep):
        return "copy" if step.reads else "zero", fused, 0, step.nbytes, 1
    if isinstance(step, OrderStep):
        moved = step.rows * step.length * step.itemsize
        return "order", f"{(step.rows, step.length)} {fused}", 0, moved, step.tasks
    if isinstance(step, CallsStep):
        moved = sum(p.buffer.nbytes for p in (*step.reads, *step.writes))
        return "calls", f"{step.call.script.called}: {fused}", 0, moved, step.tasks
    if isinstance(step, HostStep):
        return "host", fused, 0, sum(p.buffer.nbytes for p in step.reads), 1
    if isinstance(step, While):
        return "while", fused, 0, 0, 1
    if isinstance(step, Loop):
        return f"loop {step.count}", fused, 0, 0, 1
    return "branch", fused, 0, 0, 1


def _names(names: Sequence[str]) -> str:
    text = ", ".join(names[:8])
    return text + (f", … ({len(names)})" if len(names) > 8 else "")


def _size(nbytes: float) -> str:
    for unit in ("B", "KB", "MB"):
        if nbytes < 1000:
            return f"{nbytes:.4g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.4g} GB"
