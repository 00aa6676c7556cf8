"""How much memory a plan takes, and which values are alive when it takes most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from treadle.arraytype import ArrayType
from treadle.ir.origin import NOWHERE, Origin
from treadle.plan.steps import Buffer, Plan, Step, walk, work_memory
from treadle.run.text import comment, size_text

_MOST_ROWS = 20


class Live(NamedTuple):
    """A buffer that is in use when a program needs most memory.

    kind: "temporary", "argument", "output" or "constant".
    name: the operation that makes it, or the argument's.
    type: None for work memory. nbytes: what of it no other live buffer shares.
    origin: the user's line that it comes from.
    """

    kind: str
    name: str
    nbytes: int
    type: ArrayType | None = None
    origin: Origin = NOWHERE


def live_text(row: Live) -> str:
    """One line of a report."""
    what = f"{row.name}: {row.type}" if row.type else row.name
    size = size_text(row.nbytes)
    return f"{size:>10}  {row.kind:<9} {what}{comment(row.origin)}"


@dataclass(frozen=True)
class MemoryAnalysis:
    """The bytes that a call of a program takes.

    arguments: arrays that it reads, those that the function closes over included.
    outputs: its results. aliased: those of them that are written over donated
      arguments.
    temporaries: the arena, one block for everything in between. constants: arrays that
      are part of the program.
    peak: all of these together; aliased ones count once.
    live: what is in use at the moment when most of the arena is; the largest
      temporaries first.
    at: the step that runs then.
    """

    arguments: int
    outputs: int
    aliased: int
    temporaries: int
    constants: int
    live: tuple[Live, ...]
    at: str = ""

    @property
    def peak(self) -> int:
        owned = self.arguments + self.outputs - self.aliased
        return owned + self.temporaries + self.constants

    def __str__(self) -> str:
        sizes = [
            f"{what} {size_text(nbytes)}"
            for what, nbytes in (
                ("arguments", self.arguments),
                ("outputs", self.outputs),
                ("of these over donated arguments", self.aliased),
                ("temporaries", self.temporaries),
                ("constants", self.constants),
            )
        ]
        lines = [f"peak {size_text(self.peak)}: {', '.join(sizes)}"]
        lines += [f"in use at {self.at}:"] * bool(self.at)
        lines += map(live_text, self.live[:_MOST_ROWS])
        more = len(self.live) - _MOST_ROWS
        return "\n".join([*lines, *[f"{more} more"] * (more > 0)])


def memory_of(
    plan: Plan, inputs: Sequence[str] = (), outputs: Sequence[str] = ()
) -> MemoryAnalysis:
    """What a call takes.

    inputs, outputs: what they are called; by number, if they have no names.
    """
    makers = _makers(plan)
    position, live = _fullest(plan)
    temporaries = [
        Live("temporary", _name(b, makers.get(b)), nbytes, b.type, _origin(b, plan))
        for b, nbytes in live
    ]
    temporaries.sort(key=lambda row: -row.nbytes)
    outline = plan.outline
    rows = [
        *temporaries,
        *_named("argument", inputs, outline.in_types),
        *_named("output", outputs, outline.out_types, skip=plan.shares),
        *[Live("constant", "constant", c.nbytes) for c in plan.constants],
    ]
    return MemoryAnalysis(
        sum([b.nbytes for b in plan.inputs]),
        sum([b.nbytes for b in plan.outputs]),
        sum([plan.outputs[i].nbytes for i in plan.shares]),
        plan.arena,
        sum([c.nbytes for c in plan.constants]),
        tuple([row for row in rows if row.nbytes]),
        _running(plan, position),
    )


def _named(
    kind: str, names: Sequence[str], types: Sequence[ArrayType], skip: Iterable = ()
) -> list[Live]:
    return [
        Live(kind, names[i] if i < len(names) else f"{kind} {i}", t.nbytes, t)
        for i, t in enumerate(types)
        if i not in skip
    ]


def _fullest(plan: Plan) -> tuple[int, list[tuple[Buffer, int]]]:
    """The position at which most bytes of the arena are in use, and by which buffers,
    with the bytes of each. Where one takes over another's memory, they count once."""
    arena = [b for b in plan.buffers if b.home == "arena" and b.first >= 0 and b.nbytes]
    best: tuple[int, int, list[tuple[Buffer, int]]] = (0, 0, [])
    for position in sorted({b.first for b in arena}):
        alive = [b for b in arena if b.first <= position <= b.last]
        found = _apart(alive)
        total = sum([nbytes for _, nbytes in found])
        if total > best[0]:
            best = total, position, found
    return best[1:]


def _apart(buffers: list[Buffer]) -> list[tuple[Buffer, int]]:
    """The buffers with the bytes that each has beyond those before it."""
    found, end = [], 0
    for b in sorted(buffers, key=lambda b: (b.offset, b.first)):
        own = b.offset + b.nbytes - max(b.offset, end)
        end = max(end, b.offset + b.nbytes)
        if own > 0:
            found.append((b, own))
    return found


def _makers(plan: Plan) -> dict[Buffer, tuple[Step, bool]]:
    """The step that first writes each buffer, and whether it is its work memory."""
    found: dict[Buffer, tuple[Step, bool]] = {}
    for _, step in walk(plan.steps):
        for work in work_memory(step):
            found.setdefault(work.buffer, (step, True))
        for place in step.writes if step.names else ():
            found.setdefault(place.buffer, (step, False))
    return found


def _name(b: Buffer, maker: tuple[Step, bool] | None) -> str:
    """The operation that makes it: that of the step which comes from the same place."""
    if maker is None:
        return "temporary"
    step, is_scratch = maker
    if is_scratch:
        return f"work memory of {step.names[-1]}"
    pairs = zip(step.names, step.origins, strict=False)
    same = [name for name, origin in pairs if origin == b.origin]
    return (same or step.names)[-1]


def _origin(b: Buffer, plan: Plan) -> Origin:
    return NOWHERE if b.origin < 0 else plan.origins[b.origin]


def _running(plan: Plan, position: int) -> str:
    """The operations of the step at a position."""
    steps = [s for _, s in walk(plan.steps) if s.position == position and s.names]
    return ", ".join([name for s in steps for name in s.names])
