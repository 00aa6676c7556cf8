"""What a jitted function has compiled, why, and what it cost: `jit(f).report()`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle import tree
from treadle.api.args import argument
from treadle.api.axes import place
from treadle.arraytype import ArrayType
from treadle.dims import Guard
from treadle.trace.ways import Branches

MOST_ROWS = 64
"""A report keeps that many programs: the last ones."""

_SHOWN_LEAVES, _SHOWN_CHANGES = 6, 3


@dataclass
class ProgramReport:
    """A program of a jitted function.

    signature: the arguments' types, with names where sizes are open.
    reason: why it was traced.
    guards: what its sizes must be like; empty for a program of one set of sizes.
    sizes: how many sets of sizes it was bound to; bind_seconds: for all of them.
    calls: how many it served, whether looked up or by a quick path.
    branches: functions in it that branch on traced values, with the lines where.
    """

    signature: str
    reason: str
    symbolic: bool = False
    guards: Sequence[Guard] = ()
    trace_seconds: float = 0.0
    compile_seconds: float = 0.0
    bind_seconds: float = 0.0
    sizes: int = 0
    calls: int = 0
    branches: Sequence[Branches] = ()
    given: Arguments | None = field(default=None, repr=False)

    def __str__(self) -> str:
        times = f"trace {_ms(self.trace_seconds)}, compile {_ms(self.compile_seconds)}"
        if self.symbolic:
            each = self.bind_seconds / max(self.sizes, 1)
            times += f", {self.sizes} sizes bound at {_ms(each)} each"
        lines = [
            self.signature,
            f"  traced because {self.reason}",
            f"  {times}; {self.calls} calls",
        ]
        lines += [
            f"  {branches}{f', {n} times' * (n > 1)}"
            for branches, n in Counter(self.branches).items()
        ]
        for guard in self.guards:
            where = f"at {guard.source}" if guard.source else "(the compiler's)"
            what = "" if guard.reason == "compared" else f", for {guard.reason}"
            lines.append(f"  holds where {guard}{what}  {where}")
        return "\n".join(lines)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


@dataclass(frozen=True)
class Arguments:
    """What a program was traced for."""

    function: Callable[..., Any]
    form: tree.Structure
    types: Sequence[ArrayType]
    statics: tuple

    def __str__(self) -> str:
        shown = [
            f"{place(self.function, self.form, i)}: {t}"
            for i, t in enumerate(self.types[:_SHOWN_LEAVES])
        ]
        more = len(self.types) - len(shown)
        shown += [f"{more} more"] * (more > 0)
        shown += [f"{self._name(n)}={value!r:.40}" for n, value in self.statics]
        return ", ".join(shown) or "()"

    def _name(self, static: int | str) -> str:
        return argument(self.function, (static,)).split("`")[1]

    def changes(self, before: Arguments) -> list[str]:
        """How it differs from an earlier one: each difference in words."""
        if self.form != before.form:
            where = tree.difference(before.form, self.form)
            return [f"the structure of the arguments is another: {where}"]
        old, new = dict(before.statics), dict(self.statics)
        found = [
            f"static {self._name(name)!r} is {_shown(new, name)}, "
            f"was {_shown(old, name)}"
            for name in {**old, **new}
            if _shown(new, name) != _shown(old, name) or new[name] != old[name]
        ]
        return found + [
            f"{place(self.function, self.form, i)} is {new}, was {old}"
            for i, (old, new) in enumerate(zip(before.types, self.types, strict=True))
            if old is not new
        ]

    def change(self, earlier: Sequence[Arguments]) -> str:
        """How it differs from that of earlier ones, in words, to which it is closest.
        Of equally close ones, that is the last."""
        each = [self.changes(before) for before in reversed(earlier)]
        changes = min(each, key=len)
        more = len(changes) - _SHOWN_CHANGES
        shown = "; ".join(changes[:_SHOWN_CHANGES])
        return shown + (f"; and {more} more" if more > 0 else "")


def _shown(statics: dict, name: Any) -> str:
    return f"{statics[name]!r:.60}" if name in statics else "not given"


@dataclass(frozen=True)
class Report:
    """The programs of a jitted function, the last ones if there are many.

    traces: how many were traced in all.
    calls: of the function, compiled.
    notes: what else there is to know: that it is traced for each size again, say.
    """

    name: str
    programs: Sequence[ProgramReport]
    traces: int
    notes: Sequence[str]

    @property
    def calls(self) -> int:
        return sum([p.calls for p in self.programs])

    @property
    def cache_hits(self) -> int:
        """Calls for which nothing was traced and nothing bound."""
        made = sum([p.sizes if p.symbolic else 1 for p in self.programs])
        return max(self.calls - made, 0)

    def __str__(self) -> str:
        head = (
            f"jit of {self.name}: {self.traces} traced, {self.calls} calls, "
            f"{self.cache_hits} of them cache hits"
        )
        return "\n".join([head, *self.notes, *map(str, self.programs)])
