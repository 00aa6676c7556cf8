"""Which nests run together, as one parallel region."""

from __future__ import annotations

from treadle.plan.steps import Buffer, NestStep, Step


class Region:
    """The steps at one position, all of them nests if there may be more: what they
    read and write."""

    def __init__(self, steps: list[Step], position: int = -1) -> None:
        self.steps, self.position = steps, position
        self.nests = True
        self.read: set[Buffer] = set()
        self.written: set[Buffer] = set()

    def take(self, step: Step) -> None:
        self.nests = self.nests and isinstance(step, NestStep)
        self.read.update([p.buffer for p in step.reads])
        self.written.update([p.buffer for p in step.writes])

    def admits(self, step: Step) -> bool:
        """Whether a step needs nothing of what they write, nor they of what it does."""
        writes = [p.buffer for p in step.writes]
        touched = [p.buffer for p in step.reads] + writes
        return (
            self.nests
            and isinstance(step, NestStep)
            and self.written.isdisjoint(touched)
            and self.read.isdisjoint(writes)
        )
