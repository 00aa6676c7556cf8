"""Reverse mode through `while_loop`: what is remembered on the way.

The loop is run as a `going_scan`, whose linear part is a `counted_scan` of as many
iterations. Either it remembers what each step needs, in rows whose number is a bound
on the steps; or it is nested: a loop over segments, each a loop over at most so many
smaller ones, down to steps. A segment remembers its first carry alone (`remat`), and is
run again when the backward pass comes to it: so the k-th root of the bound, k times, is
all that is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from treadle.control.counted import BOOL, I32, going_scan, linearize_going
from treadle.control.graphs import silent
from treadle.control.remat import remat
from treadle.errors import at
from treadle.ir.graph import Graph
from treadle.ir.walk import call_graph, has_effects
from treadle.ops.arithmetic import add
from treadle.ops.compare import bitwise_and, lt
from treadle.trace.interpreter import current_source
from treadle.trace.op import Zero
from treadle.trace.stage import is_staging, stage

_NO_SECOND_RUN = (
    "td.linearize, td.vjp or td.grad of a while_loop that uses results of "
    "`td.io_callback`: to go backwards it would have to call the function again{at}\n"
    'Say `remember="steps"` with `max_steps=`; use forward mode (`td.jvp`, '
    "`td.jacfwd`); or call it outside of the loop."
)


class Memory(NamedTuple):
    """What the backward pass of a loop may remember.

    max_steps: how many iterations it must be prepared for.
    steps: whether something of each is kept; else only marks are.
    """

    max_steps: int
    steps: bool

    @property
    def levels(self) -> int:
        """How deep loops over segments are nested: each adds a forward run."""
        if self.steps:
            return 1
        return 2 if self.max_steps <= 4096 else 3 if self.max_steps <= 2**18 else 4

    @property
    def rows(self) -> int:
        """How many iterations there may be on each level."""
        rows = 1
        while rows**self.levels < self.max_steps:
            rows += 1
        return rows


def linearize_while(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    test: Graph,
    body: Graph,
    n_test_consts: int,
    n_body_consts: int,
    memory: Memory,
) -> Any:
    """The `linearize` rule of `while_loop`.

    Raises:
      TypeError: if it would have to repeat effects whose results it uses.
    """
    if not memory.steps and any(has_effects(silent(g)) for g in (test, body)):
        raise TypeError(_NO_SECOND_RUN.format(at=at(current_source())))
    n_consts = n_test_consts + n_body_consts
    init = primals[n_consts:]
    (going,) = call_graph(test, [*primals[:n_test_consts], *init])
    # What the test depends on decides how often, and nothing else.
    still = [Zero(t.strong()) for t in (*test.in_types[:n_test_consts], BOOL, I32)]
    outs, found = linearize_going(
        [*primals[:n_consts], going, np.int32(0), *init],
        [
            *still[:n_test_consts],
            *tangents[n_test_consts:n_consts],
            *still[n_test_consts:],
            *tangents[n_consts:],
        ],
        checked=True,
        graph=_nested(test, body, n_test_consts, n_body_consts, memory, is_staging()),
        n_consts=n_consts,
        n_carry=len(init) + 2,
        length=memory.rows,
        reverse=False,
    )
    return outs[2:], found[2:]


def _nested(
    test: Graph, body: Graph, n_test: int, n_body: int, memory: Memory, used: bool
) -> Graph:
    """The body of the outermost loop.

    used: only what is used of it is computed, and too many iterations are no mistake
      if nothing goes back (see `passes.limits`). Else it ends past the last one.
    """
    key = ("nested", id(test), n_test, memory, used)
    if key not in body.cache:
        step = _step(test, body, n_test, n_body)
        for _ in range(memory.levels - 1):
            step = _segment(step, n_test + n_body, memory.rows)
        # The test is kept with the result: the key has its identity.
        most = None if used else memory.rows + 1
        body.cache[key] = test, _outermost(step, n_test + n_body, most)
    return body.cache[key][1]


def _step(test: Graph, body: Graph, n_test: int, n_body: int) -> Graph:
    """``(*consts, *carry) -> (going, *carry)``: an iteration, and whether there is
    another."""

    def function(*values: Any) -> list[Any]:
        new = call_graph(body, values[n_test:])
        return [*call_graph(test, [*values[:n_test], *new]), *new]

    types = [*test.in_types[:n_test], *body.in_types]
    return stage(function, types, closed=True, name=body.name)[0]


def _outermost(step: Graph, n_consts: int, most: int | None) -> Graph:
    """What the outermost loop repeats: steps, counted; no more than so many."""

    def function(*values: Any) -> list[Any]:
        consts, (_, i, *carry) = values[:n_consts], values[n_consts:]
        count = add(i, np.int32(1))
        going, *new = call_graph(step, [*consts, *carry])
        if most is not None:
            going = bitwise_and(going, lt(count, np.int32(most)))
        return [going, count, *new]

    types = _types(step, n_consts, [BOOL, I32])
    return stage(function, types, closed=True, name=step.name)[0]


def _limited(step: Graph, n_consts: int, most: int) -> Graph:
    """What the others repeat: the same, and they carry whether the loop goes on."""

    def function(*values: Any) -> list[Any]:
        consts, (_, i, _, *carry) = values[:n_consts], values[n_consts:]
        count = add(i, np.int32(1))
        going, *new = call_graph(step, [*consts, *carry])
        return [bitwise_and(going, lt(count, np.int32(most))), count, going, *new]

    types = _types(step, n_consts, [BOOL, I32, BOOL])
    return stage(function, types, closed=True, name=step.name)[0]


def _types(step: Graph, n_consts: int, beside: list[Any]) -> list[Any]:
    consts, carry = step.in_types[:n_consts], step.in_types[n_consts:]
    return [*consts, *beside, *(t.strong() for t in carry)]


def _segment(step: Graph, n_consts: int, most: int) -> Graph:
    """Up to so many steps as one, of which only the first carry is remembered."""
    body = _limited(step, n_consts, most)
    yes = np.bool_(True)

    def steps(*values: Any) -> list[Any]:
        outs = going_scan(
            *values[:n_consts],
            yes,
            np.int32(0),
            yes,
            *values[n_consts:],
            graph=body,
            n_consts=n_consts,
            n_carry=len(values) - n_consts + 3,
            length=most,
            reverse=False,
        )
        return outs[2:]

    types = [t.strong() for t in step.in_types]
    inner = stage(steps, types, closed=True, name=step.name)[0]
    return stage(
        lambda *values: remat(*values, graph=inner, policy=None),
        types,
        closed=True,
        name=step.name,
    )[0]
