"""Loops and branches: which graphs they run, and what these work on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from treadle.fuse.dataflow import Dataflow
from treadle.fuse.lowering.launches import (
    Carries,
    Choose,
    Kernels,
    Repeat,
    RepeatWhile,
    Within,
)
from treadle.fuse.lowering.overwriting import written_over
from treadle.ir.graph import Atom, Equation, Graph, Var, is_zero
from treadle.trace.lowering import Branch, Scan, While


class _Scan(NamedTuple):
    """A scan's equation by role. Carries that the body returns as they came are
    constants.

    fixed: these carries' numbers. moved: those of the others.
    """

    graph: Graph
    consts: tuple[Atom, ...]
    init: tuple[Atom, ...]
    rows: tuple[Atom, ...]
    fixed: list[int]
    moved: list[int]

    def body(self) -> Graph:
        """From constants, moved carries and rows to moved carries and new rows."""
        inputs, outputs, n = self.graph.inputs, self.graph.outputs, len(self.consts)
        carried, count = inputs[n : n + len(self.init)], len(self.init)
        return Graph(
            [
                *inputs[:n],
                *[carried[i] for i in self.fixed],
                *[carried[i] for i in self.moved],
                *inputs[n + count :],
            ],
            self.graph.equations,
            [*[outputs[i] for i in self.moved], *outputs[count:]],
            self.graph.name,
        )


def _scan(eq: Equation) -> _Scan:
    graph, n, count = (eq.params[k] for k in ("graph", "n_consts", "n_carry"))
    carried = graph.inputs[n : n + count]
    same = [a is b for a, b in zip(carried, graph.outputs[:count], strict=True)]
    return _Scan(
        graph,
        eq.inputs[:n],
        eq.inputs[n : n + count],
        eq.inputs[n + count :],
        [i for i in range(count) if same[i]],
        [i for i in range(count) if not same[i]],
    )


def bodies(eq: Equation) -> list[Graph]:
    """The graphs that an equation runs."""
    how = eq.op.lowering
    if isinstance(how, Scan):
        return [_scan(eq).body()] if eq.params["length"] else []
    if isinstance(how, While):
        return [eq.params["test"], eq.params["body"]]
    return list(eq.params["branches"]) if isinstance(how, Branch) else []


def zero_inits(eq: Equation, flow: Dataflow) -> set[int]:
    """The numbers of operands that are zeros, which a loop begins with: they need not
    be in memory."""
    how, params = eq.op.lowering, eq.params
    if isinstance(how, Scan):
        scan = _scan(eq)
        # What no iteration changes is read as it is.
        numbers = scan.moved if params["length"] else range(len(scan.init))
        places = [params["n_consts"] + i for i in numbers]
    elif isinstance(how, While):
        first = params["n_test_consts"] + params["n_body_consts"]
        places = list(range(first, len(eq.inputs)))
    else:
        return set()
    return {i for i in places if is_zero(flow.source(eq.inputs[i]))}


def begin(a: Atom, flow: Dataflow) -> Atom:
    """What a carry begins as: a value in memory, or zero for zeros."""
    source, _ = flow.resolve(a)
    return source if is_zero(source) else stored(a, flow)


def stored(a: Atom, flow: Dataflow) -> Atom:
    """The value whose memory, in row-major order, is that of `a`."""
    found = flow.memory(a)
    assert found is not None, "an operand is not in memory"
    return found


def repeat(
    eq: Equation, body: Kernels, flow: Dataflow
) -> tuple[Repeat, dict[Var, Within]]:
    """A scan as a kernel, and the results that are its operands."""
    scan = _scan(eq)
    count = len(scan.moved)
    fixed = [stored(scan.init[i], flow) for i in scan.fixed]
    n = len(scan.consts) + len(fixed)
    in_place = written_over(body, body.inputs[n : n + count], body.results[:count])
    carries = Carries(
        tuple([begin(scan.init[i], flow) for i in scan.moved]),
        tuple(in_place),
        tuple([eq.outputs[i] for i in scan.moved]),
    )
    found = Repeat(
        body,
        eq.params["length"],
        eq.params["reverse"],
        (*[stored(a, flow) for a in scan.consts], *fixed),
        carries,
        tuple([stored(a, flow) for a in scan.rows]),
        tuple(eq.outputs[len(scan.init) :]),
    )
    same = zip(scan.fixed, fixed, strict=True)
    return found, {eq.outputs[i]: Within(a) for i, a in same}


def repeat_while(
    eq: Equation, test: Kernels, body: Kernels, flow: Dataflow
) -> RepeatWhile:
    """A while loop as a kernel."""
    n = eq.params["n_test_consts"]
    first = n + eq.params["n_body_consts"]
    in_place = written_over(body, body.inputs[first - n :], body.results)
    init = tuple([begin(a, flow) for a in eq.inputs[first:]])
    consts = [stored(a, flow) for a in eq.inputs[:first]]
    return RepeatWhile(
        test,
        body,
        tuple(consts[:n]),
        tuple(consts[n:]),
        Carries(init, tuple(in_place), tuple(eq.outputs)),
    )


def choose(eq: Equation, branches: Sequence[Kernels], flow: Dataflow) -> Choose:
    """A branch as a kernel."""
    index, *operands = [stored(a, flow) for a in eq.inputs]
    return Choose(index, tuple(branches), tuple(operands), tuple(eq.outputs))
