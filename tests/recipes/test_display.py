"""What a training shows."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from treadle.recipes import display
from treadle.recipes.display import Display, Live, Plain, Speed


def show(screen: Display) -> None:
    screen.start(0, 200)
    screen.update(1, {"accuracy": 0.5, "loss": 2.0})
    screen.test(100, {"test_accuracy": 0.9, "test_loss": 0.25})
    screen.note("run: runs/a-1")
    screen.close()


def test_plain_lines() -> None:
    out = io.StringIO()
    show(Plain(out))
    assert out.getvalue().splitlines() == [
        "training from step 0 to 200; the first step compiles",
        "step   1/200  loss 2.0000  accuracy 0.5000",
        "step 100/200  test loss 0.2500  test accuracy 0.9000",
        "run: runs/a-1",
    ]


def test_a_live_bar() -> None:
    out = io.StringIO()
    show(Live(Console(file=out, force_terminal=True, width=100)))
    shown = out.getvalue()
    assert "compiling the first step" in shown
    assert "test accuracy 0.9000" in shown
    assert "run: runs/a-1" in shown


ALL = r"12345/40000 ━.* loss 0\.0754  accuracy 0\.9766 1000 steps/s  0:28 left"


@pytest.mark.parametrize(
    ("width", "shown"),
    [(120, ALL), (80, ALL), (40, r"12345/40000 . loss 0\.0754 0:28 left")],
)
def test_the_live_line_fits(
    width: int, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Speed, "rate", lambda self: 1000.0)
    out = io.StringIO()
    live = Live(Console(file=out, force_terminal=True, width=width, color_system=None))
    live.start(0, 40000)
    live.update(12345, {"accuracy": 0.9766, "loss": 0.0754})
    live.close()
    plain = re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", out.getvalue())
    lines = re.split(r"[\r\n]", plain)
    assert any(re.search(shown, line) for line in lines)
    assert all(len(line) <= width for line in lines)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("out", "term", "kind"),
    [
        (io.StringIO(), "xterm", Plain),
        (Terminal(), "xterm", Live),
        (Terminal(), "dumb", Plain),
    ],
)
@pytest.mark.parametrize("force_color", [False, True])
def test_the_display_suits_the_output(
    monkeypatch: pytest.MonkeyPatch,
    out: io.StringIO,
    term: str,
    kind: type,
    force_color: bool,
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    if force_color:
        monkeypatch.setenv("FORCE_COLOR", "1")
    assert isinstance(display.display(out), kind)


class Screen(io.StringIO):
    """A terminal that breaks its lines anew when it is made narrower."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, self.lines, self.line, self.column = width, [""], 0, 0

    def write(self, text: str) -> int:
        for part in re.findall(r"\x1b\[[^A-Za-z]*[A-Za-z]|.|\n", text):
            # At the right edge the cursor waits for the next character.
            column = self.column - (self.column == len(self.lines[self.line]) > 0)
            row = column // self.width * self.width
            now = self.lines[self.line]
            if part == "\n":
                self.line, self.column = self.line + 1, 0
                self.lines += [""] * (self.line == len(self.lines))
            elif part == "\r":
                self.column = row
            elif part == "\x1b[2K":
                blank = " " * len(now[row : row + self.width])
                now = now[:row] + blank + now[row + self.width :]
                self.lines[self.line] = now.rstrip()
            elif part == "\x1b[J":
                self.lines[self.line :] = [now[: self.column]]
            elif part == "\x1b[1A":
                assert row == 0
                self.line -= 1
            elif not part.startswith("\x1b"):
                self.lines[self.line] = (
                    now[: self.column].ljust(self.column)
                    + part
                    + now[self.column + 1 :]
                )
                self.column += 1
        return len(text)


@pytest.mark.parametrize("narrow", [79, 50, 21])
def test_a_narrowed_terminal_keeps_no_stale_line(
    narrow: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Speed, "rate", lambda self: 1000.0)
    monkeypatch.setattr(display, "_REFRESH", 0.0)
    screen = Screen(100)
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    live = Live(console)
    live.start(0, 40000)
    live.note("a note")
    live.update(1, {"accuracy": 0.9766, "loss": 0.0754})
    live._progress.refresh()
    screen.width = console.width = narrow
    live.update(2, {"accuracy": 0.9766, "loss": 0.0754})
    live._progress.refresh()
    live.note("another")
    shown = [line for line in screen.lines if line.strip()]
    assert shown[:2] == ["a note", "another"]
    # In a very narrow one, the loss is all that is said.
    assert len(shown) == 3
    assert re.match("2/40|loss", shown[2].strip())
    screen.width = console.width = narrow - 8
    live.close()
    live.close()
    assert [line for line in screen.lines if line.strip()] == ["a note", "another"]


def test_speed_forgets() -> None:
    speed = Speed()
    assert speed.rate() is None
    speed.mark(1, 10.0)
    assert speed.rate() is None
    for second in range(1, 41):
        speed.mark(1 + 10 * second, 10.0 + second)
    assert speed.rate() == pytest.approx(10)
    for second in range(1, 41):
        speed.mark(401 + 100 * second, 50.0 + second)
    assert speed.rate() == pytest.approx(100)
