"""Which steps of a run are saved, and which are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple


class Saved(NamedTuple):
    """A step that is on the disk: its metrics, and when it was saved, in seconds."""

    step: int
    time: float
    metrics: dict[str, float]


class Keep(NamedTuple):
    """What is kept besides the latest and the best; see `Manager`."""

    every_steps: int | None = None
    every_seconds: float | None = None
    chosen: Callable[[Sequence[Saved]], Iterable[int]] | None = None

    def of(self, saved: Sequence[Saved]) -> set[int]:
        """The steps to keep, of all in ascending order.

        >>> saved = [Saved(step, 10.0 * step, {}) for step in range(6)]
        >>> sorted(Keep(every_steps=4).of(saved))
        [0, 4]
        >>> sorted(Keep(every_seconds=25.0).of(saved))
        [0, 3]
        """
        kept: set[int] = set()
        if self.every_steps is not None:
            kept.update(one.step for one in saved if not one.step % self.every_steps)
        if self.every_seconds is not None:
            last = -float("inf")
            for one in saved:
                if one.time - last >= self.every_seconds:
                    kept.add(one.step)
                    last = one.time
        if self.chosen is not None:
            kept.update(self.chosen(saved))
        return kept


class Due(NamedTuple):
    """When a step is saved; see `Manager`."""

    every_steps: int | None = None
    on_steps: frozenset[int] = frozenset()
    every_seconds: float | None = None
    chosen: Callable[[int, Saved | None], bool] | None = None

    def of(self, step: int, latest: Callable[[], Saved | None], now: float) -> bool:
        """Whether a step is due.

        >>> due = Due(every_steps=4, on_steps=frozenset({6}), every_seconds=60.0)
        >>> last = lambda: Saved(4, 100.0, {})
        >>> [step for step in range(5, 9) if due.of(step, last, now=130.0)]
        [6, 8]
        >>> due.of(5, last, now=160.0)
        True
        """
        if self == Due():
            return True
        if self.every_steps is not None and step % self.every_steps == 0:
            return True
        if step in self.on_steps:
            return True
        if self.every_seconds is not None:
            last = latest()
            if last is None or now - last.time >= self.every_seconds:
                return True
        return self.chosen is not None and bool(self.chosen(step, latest()))
