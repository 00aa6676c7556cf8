"""Writes LLVM IR text: names values, keeps the current block, builds loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from treadle.records import field, record


@record
class Carried:
    """A loop in the making: its index, and the values it carries from turn to turn.

    `values` are this turn's (and, after the loop, the final) ones; the body sets
    `next`, and may set `step`.
    """

    index: str
    values: list[str]
    step: str
    next: list[str] = field(default_factory=list)


class Builder:
    """Accumulates one LLVM module as text.

    >>> b = Builder()
    >>> with b.function("define void @f(ptr %p)"):
    ...     with b.loop("0", "4") as i:
    ...         address = b.op(f"getelementptr float, ptr %p, i64 {i}")
    ...         b(f"store float 0.0, ptr {address}")
    ...     b("ret void")
    >>> "phi i64" in b.text()
    True

    `library` holds whole function definitions by symbol, each written once.

    Loop indices are hidden from LLVM's loop strength reduction. That pass takes up to
    half of the compile time, and finds nothing to improve where the addresses of a turn
    are pointers plus one index.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declarations: dict[str, None] = {}
        self.library: dict[str, str] = {}
        self.block = "entry"
        self._count = 0
        self._made: dict[tuple[str, str], str] = {}

    def __call__(self, line: str) -> None:
        self.lines.append("  " + line)

    def name(self, prefix: str = "t") -> str:
        """A fresh value name, with its leading %."""
        self._count += 1
        return f"%{prefix}{self._count}"

    def fresh_label(self, prefix: str = "b") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def op(self, expression: str) -> str:
        """Emits ``%t = expression`` and gives the name."""
        self._count += 1
        result = f"%t{self._count}"
        self.lines.append(f"  {result} = {expression}")
        return result

    def in_block(self, expression: str) -> str:
        """The same of what is known not to change: emitted once in a block."""
        key = self.block, expression
        if key not in self._made:
            self._made[key] = self.op(expression)
        return self._made[key]

    def least(self, x: str, y: str) -> str:
        """The smaller of two i64."""
        smaller = self.op(f"icmp slt i64 {x}, {y}")
        return self.op(f"select i1 {smaller}, i64 {x}, i64 {y}")

    def label(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def declare(self, signature: str) -> None:
        self.declarations["declare " + signature] = None

    @contextmanager
    def function(self, signature: str) -> Iterator[None]:
        self.lines.append(signature + " {")
        self.label("entry")
        yield
        self.lines.append("}")

    @contextmanager
    def loop(self, start: str, stop: str, step: str = "1") -> Iterator[str]:
        """A counted loop over i64; runs zero times if start >= stop."""
        before, head = self.block, self.fresh_label("head")
        body, after = self.fresh_label("body"), self.fresh_label("after")
        index, following = self.name("i"), self.name("i")
        self(f"br label %{head}")
        self.label(head)
        slot = len(self.lines)
        self.lines.append("")
        more = self.op(f"icmp slt i64 {index}, {stop}")
        self(f"br i1 {more}, label %{body}, label %{after}")
        self.label(body)
        yield index
        self._advance(following, index, step)
        self(f"br label %{head}")
        self.lines[slot] = (
            f"  {index} = phi i64 [{start}, %{before}], [{following}, %{self.block}]"
        )
        self.label(after)

    def _advance(self, following: str, index: str, step: str) -> None:
        self(f"{following} = freeze i64 {self.op(f'add i64 {index}, {step}')}")

    @contextmanager
    def carrying(
        self, start: str, stop: str, step: str, carried: Sequence[tuple[str, str]]
    ) -> Iterator[Carried]:
        """A counted loop that carries values, each given as (type, first value)."""
        before, head = self.block, self.fresh_label("head")
        body, after = self.fresh_label("body"), self.fresh_label("after")
        turn = Carried(self.name("i"), [self.name("c") for _ in carried], step)
        following = self.name("i")
        self(f"br label %{head}")
        self.label(head)
        slot = len(self.lines)
        self.lines.extend([""] * (1 + len(carried)))
        more = self.op(f"icmp slt i64 {turn.index}, {stop}")
        self(f"br i1 {more}, label %{body}, label %{after}")
        self.label(body)
        yield turn
        self._advance(following, turn.index, turn.step)
        self(f"br label %{head}")
        kinds = ["i64", *(kind for kind, _ in carried)]
        firsts = [start, *(first for _, first in carried)]
        names = [turn.index, *turn.values]
        nexts = [following, *turn.next]
        for at, (kind, first, name, then) in enumerate(
            zip(kinds, firsts, names, nexts, strict=True)
        ):
            self.lines[slot + at] = (
                f"  {name} = phi {kind} [{first}, %{before}], [{then}, %{self.block}]"
            )
        self.label(after)

    @contextmanager
    def when(self, condition: str, seldom: bool = False) -> Iterator[None]:
        """Runs the body if the i1 is true. If that is `seldom` so, the body lies out of
        the way."""
        then, after = self.fresh_label("then"), self.fresh_label("after")
        weights = ", !prof !0" if seldom else ""
        if seldom:
            self.library["!0"] = '!0 = !{!"branch_weights", i32 1, i32 1048575}'
        self(f"br i1 {condition}, label %{then}, label %{after}{weights}")
        self.label(then)
        yield
        self(f"br label %{after}")
        self.label(after)

    def text(self) -> str:
        parts = [*self.library.values(), *self.lines, *self.declarations]
        return "\n".join(parts) + "\n"
