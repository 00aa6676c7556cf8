"""A compiled program as a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from treadle.plan.cost import step_cost
from treadle.plan.steps import (
    Buffer,
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
    walk,
)
from treadle.run.text import size_text
from treadle.trace.routine import Attention


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
        f"memory: arena {size_text(plan.arena)} for temporaries of "
        f"{size_text(outline.nbytes)}, inputs {_all(plan.inputs)}, "
        f"outputs {_all(plan.outputs)}",
    ]
    if hosts:
        lines.append("host callbacks:")
        counts = Counter((s.call.op.name, s.call.reason) for s in hosts)
        lines += [f"  {n} x {name}: {why}" for (name, why), n in counts.items()]
    return "\n".join(lines)


def _row(depth: int, step: Step) -> str:
    name, fused, tasks = describe(step)
    cost = step_cost(step)
    sizes = f"{cost.flops / 1e6:9.2f} MFLOP {cost.bytes / 1e6:8.2f} MB"
    cut = f" {tasks} tasks" if tasks > 1 else ""
    return f"{'  ' * depth}{step.position:4d} {name:<10}{sizes}{cut:<9} {fused}"


def describe(step: Step) -> tuple[str, str, int]:
    """What kind of step it is, what it does, and in how many tasks."""
    fused = _names(step.names)
    if isinstance(step, NestStep):
        kind = "row" if step.launch.nest.axis == "inner" else "column"
        return kind, fused, step.tasks
    if isinstance(step, ProductStep):
        name = "product" if step.product.epilogue is None else "product+"
        sizes = step.product.contraction.sizes
        return name, f"{sizes} {fused}", step.words.tasks
    if isinstance(step, CopyStep):
        return "copy" if step.reads else "zero", fused, 1
    if isinstance(step, OrderStep):
        return "order", f"{(step.rows, step.length)} {fused}", step.tasks
    if isinstance(step, CallsStep):
        script = step.call.script
        kind = "attention" if isinstance(script, Attention) else "calls"
        return kind, f"{script.called}: {fused}", step.tasks
    if isinstance(step, HostStep):
        return "host", fused, 1
    if isinstance(step, While):
        return "while", fused, 1
    if isinstance(step, Loop):
        return f"loop {step.count}", fused, 1
    return "branch", fused, 1


def _names(names: Sequence[str]) -> str:
    text = ", ".join(names[:8])
    return text + (f", … ({len(names)})" if len(names) > 8 else "")


def _all(buffers: Sequence[Buffer]) -> str:
    return size_text(sum([b.nbytes for b in buffers]))
