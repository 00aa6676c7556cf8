"""What a training shows while it runs: a live line on a terminal, plain lines else."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TextIO

_REFRESH = 0.1
_PLAIN_EVERY = 2.0
# Long enough to hold some tests and checkpoints, which take their time too.
_WINDOW = 20.0
_BAR = 24
_LINE = 70
"""The columns of the live line besides the bar; less, and it says less."""


class Display(Protocol):
    """Where a training reports to."""

    def start(self, step: int, steps: int) -> None:
        """The training begins, or goes on, at a step."""

    def update(self, step: int, metrics: Mapping[str, Any]) -> None:
        """A step was made. Called after each, so it must be quick."""

    def test(self, step: int, metrics: Mapping[str, Any]) -> None:
        """The model was tested."""

    def note(self, text: str) -> None:
        """Something that the user should know."""

    def close(self) -> None:
        """The training has ended."""


def silence(out: TextIO) -> None:
    """Sends nowhere what is still written to a file that nobody reads any more.

    Otherwise Python complains once more when it ends.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())


class Lasting:
    """A display whose terminal or reader may go away: then it shows nothing more.

    lost: the error that it met, if it did.
    """

    def __init__(self, shown: Display) -> None:
        self._shown = shown
        self.lost: OSError | None = None

    def _show(self, show: Callable[..., None], *args: Any) -> None:
        if self.lost is not None:
            return
        try:
            show(*args)
        except OSError as error:
            self.lost = error
            silence(sys.stdout)

    def start(self, step: int, steps: int) -> None:
        """The training begins, or goes on, at a step."""
        self._show(self._shown.start, step, steps)

    def update(self, step: int, metrics: Mapping[str, Any]) -> None:
        """A step was made."""
        self._show(self._shown.update, step, metrics)

    def test(self, step: int, metrics: Mapping[str, Any]) -> None:
        """The model was tested."""
        self._show(self._shown.test, step, metrics)

    def note(self, text: str) -> None:
        """Something that the user should know."""
        self._show(self._shown.note, text)

    def close(self) -> None:
        """The training has ended."""
        self._show(self._shown.close)


class Speed:
    """Steps per second over the last few seconds.

    The first step is not counted: it compiles.
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()

    def mark(self, step: int, now: float) -> None:
        """A step was made."""
        self._marks.append((now, step))
        while len(self._marks) > 2 and now - self._marks[0][0] > _WINDOW:
            self._marks.popleft()

    def rate(self) -> float | None:
        """Steps per second; None as long as nothing is known."""
        if len(self._marks) < 2:
            return None
        (t0, s0), (t1, s1) = self._marks[0], self._marks[-1]
        return (s1 - s0) / (t1 - t0) if t1 > t0 else None


def numbers(metrics: Mapping[str, Any]) -> str:
    """Metrics as text, the loss first.

    >>> numbers({"test_accuracy": 0.975, "test_loss": 0.25})
    'test loss 0.2500  test accuracy 0.9750'
    """
    names = sorted(metrics, key=lambda name: not name.endswith("loss"))
    return "  ".join(
        f"{name.replace('_', ' ')} {float(metrics[name]):.4f}" for name in names
    )


def packed(entries: Sequence[str], width: int) -> str:
    """Entries on as few lines as a terminal has room for; none is broken in two.

    >>> print(packed(["step 10", "loss 0.5", "accuracy 0.9"], 20))
    step 10  loss 0.5
      accuracy 0.9
    """
    lines = [entries[0]]
    for entry in entries[1:]:
        if len(lines[-1]) + 2 + len(entry) > width:
            lines.append("")
        lines[-1] += f"  {entry}"
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> duration(75.4), duration(3700)
    ('1:15', '1:01:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def pace(rate: float, left: float) -> str:
    """Steps per second, and how long the steps that are left take.

    >>> pace(3.56, 100), pace(1234.5, 100)
    ('3.6 steps/s  0:28 left', '1234 steps/s  0:00 left')
    """
    shown = f"{rate:.0f}" if rate >= 10 else f"{rate:.2g}"
    return f"{shown} steps/s  {duration(left / rate)} left"


class Plain:
    """Lines for a file or a pipe."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._speed = Speed()
        self._steps = 0
        self._sampled = self._printed = 0.0

    def start(self, step: int, steps: int) -> None:
        """Says where it begins."""
        self._steps = steps
        self.note(f"training from step {step} to {steps}; the first step compiles")

    def update(self, step: int, metrics: Mapping[str, Any]) -> None:
        """A line every few seconds."""
        now = time.monotonic()
        if now - self._sampled < _REFRESH:
            return
        self._sampled = now
        self._speed.mark(step, now)
        if now - self._printed >= _PLAIN_EVERY:
            self._printed = now
            self.note(f"{self._place(step)}  {numbers(metrics)}{self._pace(step)}")

    def test(self, step: int, metrics: Mapping[str, Any]) -> None:
        """A line."""
        self.note(f"{self._place(step)}  {numbers(metrics)}{self._pace(step)}")

    def note(self, text: str) -> None:
        """A line."""
        print(text, file=self._out, flush=True)

    def close(self) -> None:
        """Nothing."""

    def _place(self, step: int) -> str:
        return f"step {step:>{len(str(self._steps))}}/{self._steps}"

    def _pace(self, step: int) -> str:
        rate = self._speed.rate()
        if not rate:
            return ""
        return f"  {pace(rate, self._steps - step)}"


_ERASE_BELOW, _LINE_START = "\x1b[J", "\r"


class _Narrowable:
    """Leaves the cursor at the beginning of the live line.

    Where a window is made narrower, many terminals break the line in two, and the
    cursor goes along with the text that it stands on. From the line's beginning all
    of it can be erased, however many rows it has become.
    """

    def process_renderables(self, renderables: list[Any]) -> list[Any]:
        """What the console prints instead of `renderables`."""
        from rich.segment import ControlType, Segment, Segments

        codes = [(ControlType.CARRIAGE_RETURN,)]
        before, after = (
            Segments([Segment(text, None, codes)])
            for text in (_ERASE_BELOW, _LINE_START)
        )
        return [before, *renderables, after]


class Live:
    """A line with a bar that changes in place; tests are printed above it."""

    def __init__(self, console: Any) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._bar = BarColumn()
        self._progress = Progress(
            MofNCompleteColumn(),
            self._bar,
            TextColumn("{task.description}"),
            TextColumn("[dim]{task.fields[pace]}"),
            console=console,
            transient=True,
        )
        self._hook: Any = _Narrowable()
        self._speed = Speed()
        self._sampled = 0.0
        self._task: Any = None

    def start(self, step: int, steps: int) -> None:
        """Shows the bar."""
        self._fit()
        self._task = self._progress.add_task(
            "compiling the first step", total=steps, completed=step, pace=""
        )
        self._progress.start()
        self._progress.console.push_render_hook(self._hook)
        self._progress.refresh()

    def update(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Changes the line, at most ten times a second."""
        now = time.monotonic()
        if now - self._sampled < _REFRESH:
            return
        self._sampled = now
        self._speed.mark(step, now)
        rate = self._speed.rate()
        total = self._progress.tasks[0].total or step
        shown = pace(rate, total - step) if rate else ""
        if not self._fit():
            metrics = {k: v for k, v in metrics.items() if k == "loss"}
            shown = shown.partition("  ")[2]
        self._progress.update(
            self._task, completed=step, description=numbers(metrics), pace=shown
        )

    def _fit(self) -> bool:
        """Gives the bar the room that there is; whether there is room for all else."""
        room = self._progress.console.width - _LINE
        self._bar.bar_width = min(max(room, 1), _BAR)
        return room >= 0

    def test(self, step: int, metrics: Mapping[str, Any]) -> None:
        """A line above the bar."""
        total = self._progress.tasks[0].total
        entries = [f"step {step:>{len(str(total))}}", *numbers(metrics).split("  ")]
        self.note(packed(entries, self._progress.console.width))

    def note(self, text: str) -> None:
        """A line above the bar."""
        self._progress.console.print(
            text, highlight=False, markup=False, soft_wrap=True
        )

    def close(self) -> None:
        """Takes the bar away."""
        if self._task is not None:
            self._progress.refresh()
            self._progress.console.pop_render_hook()
            self._task = None
        self._progress.stop()


class Quiet:
    """Shows nothing."""

    def start(self, step: int, steps: int) -> None:
        """The training begins, or goes on, at a step."""

    def update(self, step: int, metrics: Mapping[str, Any]) -> None:
        """A step was made."""

    def test(self, step: int, metrics: Mapping[str, Any]) -> None:
        """The model was tested."""

    def note(self, text: str) -> None:
        """Something that the user should know."""

    def close(self) -> None:
        """The training has ended."""


def display(out: TextIO) -> Display:
    """The display that suits where the output goes."""
    from rich.console import Console

    console = Console(file=out)
    # Not `console.is_terminal`: where FORCE_COLOR is set, a file is one to Rich.
    changeable = out.isatty() and not console.is_dumb_terminal
    return Live(console) if changeable else Plain(out)
