"""What a training shows."""

from __future__ import annotations

import io

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


def test_a_pipe_gets_plain_lines() -> None:
    assert isinstance(display.display(io.StringIO()), Plain)


def test_speed_forgets() -> None:
    speed = Speed()
    assert speed.rate() is None
    speed.mark(1, 10.0)
    assert speed.rate() is None
    for second in range(1, 21):
        speed.mark(1 + 10 * second, 10.0 + second)
    assert speed.rate() == pytest.approx(10)
    for second in range(1, 21):
        speed.mark(201 + 100 * second, 30.0 + second)
    assert speed.rate() == pytest.approx(100)
