"""breakpoint opens a debugger with the values of the moment."""

from __future__ import annotations

import bdb
import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.debug import Frame

X = np.array([1.0, 2.0, 3.0], np.float32)


class Looks:
    """A debugger that notes what it sees."""

    def __init__(self) -> None:
        self.seen: list[Sequence[Frame]] = []

    def __call__(self, frames: Sequence[Frame]) -> None:
        self.seen.append(frames)

    def values(self, name: str) -> list[Any]:
        return [np.asarray(frames[0].locals[name]).tolist() for frames in self.seen]


def square(x: Any, look: Looks) -> Any:
    y = x * x
    td.debug.breakpoint(debugger=look)
    return y + 1


WAYS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "eager": (lambda f: f(X), [[1, 4, 9]]),
    "jit": (lambda f: td.jit(f)(X), [[1, 4, 9]]),
    "grad": (lambda f: td.grad(lambda x: f(x).sum())(tnp.asarray(X)), [[1, 4, 9]]),
    "jit of grad": (lambda f: td.jit(td.grad(lambda x: f(x).sum()))(X), [[1, 4, 9]]),
    "vmap": (lambda f: td.vmap(f)(X), [1, 4, 9]),
    "jit of vmap": (lambda f: td.jit(td.vmap(f))(X), [1, 4, 9]),
    "scan": (
        lambda f: td.jit(lambda x: td.scan(lambda c, r: (c, f(r)), 0.0, x))(X),
        [1, 4, 9],
    ),
    "cond": (
        lambda f: td.jit(td.vmap(lambda x: td.cond(x > 1.5, f, lambda x: x, x)))(X),
        [4, 9],
    ),
    "if": (lambda f: td.jit(lambda x: f(x) if x > 1.5 else x)(2.0), [4]),
    "jit in jit": (lambda f: td.jit(lambda x: td.jit(f)(x))(X), [[1, 4, 9]]),
}


@pytest.mark.parametrize("way", WAYS)
def test_it_opens_where_the_program_comes_by(way: str) -> None:
    run, wanted = WAYS[way]
    look = Looks()
    run(lambda x: square(x, look))
    assert look.values("y") == wanted
    (frame,) = {(f[0].filename, f[0].line, f[0].name) for f in look.seen}
    code = square.__code__
    assert frame == (__file__, code.co_firstlineno + 2, "square")


def test_frames_are_the_users_the_innermost_first() -> None:
    look = Looks()

    @td.jit
    def f(x: Any) -> Any:
        scale, name = 2 * x, "text"
        return square(scale, look) if name else None

    f(X)
    (frames,) = look.seen
    assert [frame.name for frame in frames[:2]] == ["square", "f"]
    np.testing.assert_array_equal(frames[1].locals["scale"], 2 * X)
    assert frames[1].locals["name"] == "text"
    assert frames[1].globals is globals()
    assert len(frames) == 4
    look.seen.clear()
    td.jit(lambda x: td.debug.breakpoint(num_frames=1, debugger=look))(X)
    assert [len(frames) for frames in look.seen] == [1]


def test_layers_and_odd_variables_are_shown() -> None:
    look, odd = Looks(), {1: "a", "b": object()}

    def f(m: Any, x: Any) -> Any:
        kept, things = odd, [x, {"k": x + 1}]
        td.debug.breakpoint(debugger=look)
        return m(x), kept is things

    layer = nn.Linear(3, 2, key=rng.key(0))
    td.jit(lambda m, x: f(m, x)[0])(layer, X)
    variables = look.seen[0][0].locals
    np.testing.assert_array_equal(variables["m"].weight, np.asarray(layer.weight))
    np.testing.assert_array_equal(variables["things"][1]["k"], X + 1)
    assert variables["kept"] is odd


def test_open_sizes_are_numbers() -> None:
    look = Looks()

    def f(x: Any) -> Any:
        n = x.shape[0]
        td.debug.breakpoint(debugger=look)
        return x * n

    jitted = td.jit(f)
    for n in (3, 4, 5):
        jitted(tnp.ones(n))
    assert jitted.report().traces == 2
    assert look.values("n") == [3, 4, 5]
    assert [f[0].locals["x"].shape for f in look.seen] == [(3,), (4,), (5,)]


def test_runs_for_other_ways_may_have_other_objects() -> None:
    look = Looks()

    @td.jit
    def f(x: Any) -> Any:
        anew = object()
        td.debug.breakpoint(debugger=look)
        return (x, anew)[0] if x > 0 else -x

    assert float(f(-2.0)) == 2.0
    assert look.values("x") == [-2.0]


def session(commands: str, run: Callable[[Callable[..., Any]], Any]) -> str:
    """What pdb writes for these lines."""
    out, given = io.StringIO(), io.StringIO(commands)

    def stop(x: Any) -> Any:
        y = x * 2
        td.debug.breakpoint(stdin=given, stdout=out)
        return y

    run(stop)
    return out.getvalue()


def test_pdb_shows_lines_values_and_callers() -> None:
    def outer(stop: Any) -> None:
        @td.jit
        def caller(x: Any) -> Any:
            first = x + 1
            return stop(first) - first

        np.testing.assert_array_equal(np.asarray(caller(X)), X + 1)

    text = session("p y.sum()\np 'x' in dir()\nup\np first\nw\ncontinue\n", outer)
    assert f"> {__file__}(" in text
    assert ")stop()\n-> td.debug.breakpoint(" in text
    assert "(Pdb) 18.0" in text or "(Pdb) np.float32(18.0)" in text
    assert "(Pdb) True\n" in text
    assert ")caller()\n-> return stop(first) - first\n" in text
    assert "(Pdb) array([2., 3., 4.], dtype=float32)" in text


def test_pdb_stops_at_each_iteration_and_may_end_the_program() -> None:
    ran = []

    def loop(stop: Any) -> None:
        def step(c: Any, x: Any) -> Any:
            td.debug.callback(lambda x: ran.append(float(x)), x)
            return c, stop(x)

        td.jit(lambda x: td.scan(step, 0.0, x)[1])(X)

    with pytest.raises(bdb.BdbQuit):
        session("p x\nc\np x\nquit\n", loop)
    assert ran == [1.0, 2.0]


@pytest.mark.parametrize("number", [0, 1.5])
def test_there_is_at_least_one_frame(number: Any) -> None:
    with pytest.raises(ValueError, match=r"at least 1\n  at .*test_breakpoints"):
        td.debug.breakpoint(num_frames=number)
