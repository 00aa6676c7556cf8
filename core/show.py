"""Prints what each stage of the compiler makes of a program.

>>> import treadle as td
>>> import treadle.numpy as tnp
>>> from treadle.backends.devices import TARGETS
>>> from treadle.compile import stages
>>> graph = td.jit(lambda x: tnp.exp(x) * 2).graph(tnp.ones((3, 4)))
>>> print(show(stages(graph, TARGETS["reference"])))  # doctest: +ELLIPSIS
graph <lambda>(a:f32[3,4]):
  b:f32[3,4] = exp a ...
groups:
  0: cluster over 3 x 4
    b = exp a
    c = mul b 2.0
kernels:
  0: nest (exp, mul) over [12]
    #0 = a, #1 = 2.0 (f32[]), #2 = c
    for rows (0 outer dimensions):
      v2: float32 = load #1 [broadcast]
      for inner:
        v0: float32 = load #0 [contiguous]
        v1: float32 = exp v0
        v3: float32 = mul v1 v2
        store v3 -> #2 [contiguous]
  return c
schedule:
  0: 1 task
plan: an arena of 0 bytes
  1: NestStep (exp, mul): input 0, constant 0 -> output 0
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from treadle.compile import Stages
from treadle.dims import is_dim
from treadle.fuse.cluster import Cluster
from treadle.fuse.groups import Groups
from treadle.fuse.lowering.launches import (
    Calls,
    Choose,
    Copy,
    HostCall,
    KernelEntry,
    Kernels,
    Launch,
    ProductKernel,
    Repeat,
    RepeatWhile,
    Sort,
)
from treadle.fuse.order import Node
from treadle.ir.graph import Atom, Equation, Graph, Lit, Var
from treadle.ir.show import letters
from treadle.ir.show import show as show_graph
from treadle.kernels.lower import show as show_nest
from treadle.kernels.nest import Nest
from treadle.plan.schedule import Schedule, programs
from treadle.plan.steps import (
    Branch,
    Loop,
    NestStep,
    Place,
    Plan,
    ProductStep,
    Step,
    While,
    walk,
)

_PAD = "  "


def show(made: Stages) -> str:
    """A program after each stage, as text. Values have the names that they have in the
    graph (in bodies of loops those of the body); those that fusion made have numbers.
    """
    names = _Names(made.graph)
    sections = (
        [show_graph(made.graph)],
        ["groups:", *_indented(_groups(made.groups, names))],
        ["kernels:", *_indented(_kernels(made.kernels, names))],
        ["schedule:", *_indented(_schedule(made.schedule))],
        _plan(made.plan),
    )
    return "\n".join(line for section in sections for line in section)


class _Names:
    """What values are called."""

    def __init__(self, graph: Graph) -> None:
        self.names: dict[Var, str] = {}
        self.made = 0
        self._collect(graph)

    def _collect(self, graph: Graph) -> None:
        results = [v for eq in graph.equations for v in eq.outputs]
        for n, v in enumerate((*graph.inputs, *results)):
            self.names[v] = letters(n)
        for eq in graph.equations:
            for inner in eq.graphs:
                self._collect(inner)

    def of(self, a: Atom) -> str:
        if isinstance(a, Lit):
            number = f"{a.value.item()}" if not a.type.ndim else "const"
            return f"{number} ({a.type})"
        if a not in self.names:
            self.made += 1
            self.names[a] = f"@{self.made}:{a.type}"
        return self.names[a]

    def all(self, atoms: Iterable[Atom]) -> str:
        return ", ".join(map(self.of, atoms))


def _indented(lines: Iterable[str]) -> list[str]:
    return [_PAD + line for line in lines]


# Groups -------------------------------------------------------------------------------


def _groups(groups: Groups, names: _Names) -> list[str]:
    flow, lines = groups.flow, []
    for n, node in enumerate(groups.nodes):
        lines.append(f"{n}: {_node(node)}")
        for eq in node.equations:
            lines += _indented([_equation(eq, names)])
            for number, inner in enumerate(groups.inner.get(eq, ())):
                lines += _indented([f"graph {number}:"])
                lines += _indented(_indented(_groups(inner, names)))
    for title, table in (
        ("computed where they are read", flow.inline),
        ("computed again by other clusters", flow.recomputed),
    ):
        found = [v for v in flow.maker if v in table]
        if found:
            lines.append(f"{title}: {names.all(found)}")
    for v, (whole, offset, strides) in flow.parts.items():
        place = f"from {offset} on, {strides} apart"
        lines.append(f"{names.of(v)} is a part of {names.of(whole)}: {place}")
    return lines


def _node(node: Node) -> str:
    if not isinstance(node, Cluster):
        return "alone"
    sizes = node.space.sizes
    text = f"cluster over {' x '.join(map(str, sizes.values())) or 'one point'}"
    if node.reduced:
        across = " x ".join(str(n) for d, n in sizes.items() if d in node.reduced)
        text += f", reducing {across} ({node.form})"
    return text + (", behind a product" if node.product is not None else "")


def _equation(eq: Equation, names: _Names) -> str:
    inputs = " ".join(names.of(a).partition(" (")[0] for a in eq.inputs)
    return f"{names.all(eq.outputs)} = {eq.op.name} {inputs}".strip()


# Kernels ------------------------------------------------------------------------------


def _kernels(kernels: Kernels, names: _Names) -> list[str]:
    lines = []
    for n, entry in enumerate(kernels.entries):
        first, *rest = _entry(entry, names)
        lines += [f"{n}: {first}", *_indented(rest)]
        for number, inner in enumerate(programs(entry.kernel)):
            given = names.all(inner.inputs)
            lines += _indented([f"program {number}({given}):"])
            lines += _indented(_indented(_kernels(inner, names)))
    for v, (whole, offset) in kernels.within.items():
        lines.append(f"{names.of(v)} is {names.of(whole)} from byte {offset} on")
    return [*lines, f"return {names.all(kernels.results)}"]


def _entry(entry: KernelEntry, names: _Names) -> list[str]:
    kernel, ops = entry.kernel, f"({', '.join(entry.names)})"
    if isinstance(kernel, Launch):
        return [f"nest {ops} over {_extent(kernel)}", *_nest(kernel, names)]
    if isinstance(kernel, ProductKernel):
        a, b = (f"{names.of(a)} + {offset}" for a, offset in (kernel.a, kernel.b))
        what = type(kernel.contraction).__name__.lower()
        first = f"{what} {ops} {kernel.contraction.sizes}: {a}, {b} -> "
        lines = [first + names.of(kernel.c)]
        if kernel.epilogue is not None:
            lines.append(f"epilogue over {_extent(kernel.epilogue)}")
            lines += _nest(kernel.epilogue, names)
        return lines
    return [f"{_other(kernel, ops, names)}"]


def _other(kernel: Any, ops: str, names: _Names) -> str:
    if isinstance(kernel, Copy):
        source = "zeros" if kernel.source is None else names.of(kernel.source)
        return f"copy {ops}: {source} -> {names.of(kernel.target)}"
    if isinstance(kernel, Sort):
        rows = f"{kernel.rows} rows of {kernel.length}"
        return f"order {ops} of {rows}: {names.of(kernel.keys)} -> " + names.of(
            kernel.out
        )
    if isinstance(kernel, Calls):
        operands, results = names.all(kernel.operands), names.all(kernel.results)
        what = f"{kernel.script.called}, {kernel.times} times"
        return f"calls {ops}: {what}: {operands} -> {results}"
    if isinstance(kernel, HostCall):
        operands, results = names.all(kernel.operands), names.all(kernel.results)
        return f"host {ops}: {operands} -> {results}, as {kernel.reason}"
    if isinstance(kernel, Choose):
        operands, results = names.all(kernel.operands), names.all(kernel.results)
        return f"choose {ops} by {names.of(kernel.which)}: {operands} -> {results}"
    assert isinstance(kernel, Repeat | RepeatWhile)
    carries = kernel.carries
    pairs = zip(carries.results, carries.init, carries.in_place, strict=True)
    carried = ", ".join(
        f"{names.of(v)} from {names.of(a)}{' (in place)' if one else ''}"
        for v, a, one in pairs
    )
    if isinstance(kernel, RepeatWhile):
        consts = names.all((*kernel.test_consts, *kernel.body_consts))
        return f"while {ops} with {consts or 'nothing'} carries {carried}"
    way = "times in reverse" if kernel.reverse else "times"
    consts, rows = names.all(kernel.consts), names.all(kernel.rows)
    given = f"with {consts or 'nothing'}, rows of {rows or 'nothing'}"
    gives = f"gives rows of {names.all(kernel.new_rows) or 'nothing'}"
    carried = f"carries {carried or 'nothing'}"
    return f"repeat {ops} {kernel.length} {way} {given}, {carried}, {gives}"


def _extent(launch: Launch) -> str:
    loops = [list(launch.outer), list(launch.mid), [launch.inner]]
    return " ".join(str(sizes) for sizes in loops if sizes)


def _nest(launch: Launch, names: _Names) -> list[str]:
    operands = []
    for k, b in enumerate(launch.bindings):
        what = f"{b.offset}, an index" if b.atom is None else names.of(b.atom)
        at = f" + {b.offset}" if b.offset and b.atom is not None else ""
        steps = f" by {b.strides}" if any(b.strides) else ""
        operands.append(f"#{k} = {what}{at}{steps}")
    return [", ".join(operands), *show_nest(launch.nest).split("\n")]


# Schedule -----------------------------------------------------------------------------


def _schedule(schedule: Schedule) -> list[str]:
    lines = []
    for n, (entry, how) in enumerate(
        zip(schedule.kernels.entries, schedule.how, strict=True)
    ):
        if isinstance(entry.kernel, Launch | Sort | Calls):
            lines.append(f"{n}: {_work(how)}")
        elif isinstance(entry.kernel, ProductKernel):
            lines.append(f"{n}: {', then '.join(map(_work, how))}")
        else:
            lines.append(f"{n}: as it is")
            for number, inner in enumerate(how):
                lines += _indented([f"program {number}:"])
                lines += _indented(_indented(_schedule(inner)))
    return lines


def _work(work: Any) -> str:
    text = f"{work.tasks} task{'s' if work.tasks != 1 else ''}"
    for nbytes, what in ((work.scratch_bytes, ""), (work.own_bytes, " a thread")):
        text += f", {nbytes} bytes of scratch{what}" * (is_dim(nbytes) or nbytes > 0)
    return text


# Plan ---------------------------------------------------------------------------------


def show_plan(plan: Plan) -> str:
    """The steps of a plan with their places, then the kernels that they run."""
    nests: dict[Nest, int] = {}
    for _, step in walk(plan.steps):
        for nest in _nests_of(step):
            nests.setdefault(nest, len(nests))
    lines = _plan(plan)
    for nest, n in nests.items():
        lines += [f"kernel {n}:", *_indented(show_nest(nest).split("\n"))]
    return "\n".join(lines)


def _nests_of(step: Step) -> list[Nest]:
    if isinstance(step, NestStep):
        return [step.launch.nest]
    behind = step.product.epilogue if isinstance(step, ProductStep) else None
    return [] if behind is None else [behind.nest]


def _plan(plan: Plan) -> list[str]:
    lines = [f"plan: an arena of {plan.arena} bytes", *_indented(_steps(plan.steps))]
    for result, argument in plan.shares.items():
        lines.append(f"{_PAD}output {result} may take the memory of input {argument}")
    return lines


def _steps(steps: Sequence[Step]) -> list[str]:
    lines = []
    for step in steps:
        reads, writes = (", ".join(map(_place, p)) for p in (step.reads, step.writes))
        what = f"{type(step).__name__} ({', '.join(step.names)})"
        lines.append(f"{step.position}: {what}: {reads or 'nothing'} -> {writes}")
        if isinstance(step, Loop):
            slots = [f"slot {b.index} at {_place(place)}" for b, place in step.slots]
            swaps = [f"slots {a.index} and {b.index} change" for a, b in step.swaps]
            lines += _indented([*slots, *swaps])
        for title, inner in _inner(step):
            lines += _indented([f"{title}:", *_indented(_steps(inner))])
    return lines


def _inner(step: Step) -> list[tuple[str, Sequence[Step]]]:
    if isinstance(step, Branch):
        return [(f"branch {i}", steps) for i, steps in enumerate(step.branches)]
    test = [("test", step.test)] if isinstance(step, While) else []
    return [*test, ("body", step.body)] if isinstance(step, Loop) else []


def _place(place: Place) -> str:
    b = place.buffer
    text = f"arena {b.offset}:{b.offset + b.nbytes}" if b.home == "arena" else ""
    text = text or f"{b.home} {b.index}"
    text += f" + {place.offset}" if place.offset else ""
    return text + "".join(f" + {step} a row" for _, step in place.dynamic)
