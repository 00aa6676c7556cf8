"""Statements that branch on traced values, joined where they end, against Python."""

from __future__ import annotations

import contextlib
import inspect
import linecache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.control.test_branches import agree, steps
from treadle import nn, rng
from treadle.api.args import name_of
from treadle.errors import TracerError


def statement(x: Any) -> Any:
    for i in range(12):
        if x > i:
            x = x * 1.25
        elif x > -i:
            x = x + 0.5
    return x


def searched(x: Any) -> Any:
    found = -1.0
    for i in range(24):
        if x * i > 7:
            found = i
            break
        if x < 0:
            continue
        found = found + 0.25
    return found


def collatz(n: Any) -> Any:
    count = 0
    while n > 1 and count < 1000:
        count += 1
        if n % 2 == 0:
            n = n // 2
            continue
        n = 3 * n + 1
    return count


def square_root(x: Any) -> Any:
    r, error = x, 1.0
    while error > 1e-6:
        after = 0.5 * (r + x / r)
        error = abs(after - r)
        r = after
    return r


def by_helpers(x: Any) -> Any:
    total = 0.0
    for i in range(8):
        total += steps(x - i)
    return total


def in_a_with(x: Any) -> Any:
    y = 0.0
    with contextlib.nullcontext(2.0) as scale:
        try:
            for i in range(7):
                y = y + (scale if x > i else -1.0)
        finally:
            y = y * 2
    return y


def of_comprehensions(x: Any) -> Any:
    values = [x + i for i in range(3)]
    largest = max(v if v > 1 else -v for v in values)
    parts = {k: (v if v > 0 else 0.0) for k, v in enumerate(values)}
    return largest + sum(parts.values())


def with_functions(x: Any) -> Any:
    scale = 1.0

    def scaled(v: Any) -> Any:
        return v * scale

    for i in range(7):
        if x > i:
            scale = scale + 0.5
    y = scaled(x)
    if y > 3:
        y = 3.0
    return scaled(y)


def counted(x: Any) -> Any:
    total, i = x * 0, -1
    for i in range(x.astype(tnp.int32), 12, 2):
        if i % 3 == 1:
            continue
        for j in range(i):
            total = total + j * x
        if total > 200:
            break
    return total + i


def endless(x: Any) -> Any:
    n = 0
    while True:
        n += 1
        if x > 20:
            break
        x = x * 1.5
        if n == 30:
            x = -x
    return x + n


def collected(x: Any) -> Any:
    """A loop that no operation can stand for: each way is traced."""
    items, n = [], 0
    while x < 8 and n < 4:
        n += 1
        items.append(x * n)
        if x * n > 6:
            break
        x = x + 1
    return sum(items) + x


def converged(x: Any) -> Any:
    for i in range(1000):  # noqa: B007
        after = 0.5 * (x + 3 / x)
        error, x = abs(after - x), after
        if error < 1e-5:
            break
    return x + i


def _low(x: Any) -> Any:
    if x > 2:
        raise ValueError("too high")
    return x * 2


def caught(x: Any) -> Any:
    """What an `except` catches is no error of the program."""
    for _ in range(2):
        try:
            x = _low(x)
        except ValueError:
            x = x / 3
    try:
        if x > 1.7:
            raise KeyError("x")
        y = x + 1
    except KeyError:
        y = -x
    return y


def number_kinds(x: Any) -> Any:
    """Integers that become fractions in a later loop, and in a loop in it."""
    c = d = 1
    if x > 2:
        c = 2
    for _ in range((x > 1).astype(int)):
        d = 3
    n = 0
    while x < 8 and n < 3:
        n += 1
        d = d * 0.5
        while x < 4:
            x = x + 1
            c = 0.5
    return x * c + d


def loop_in_a_loop(x: Any) -> Any:
    """The inner loop leaves its number without a value: nothing reads it."""
    for i in range(2):
        x = x + i
    while x < 10:
        for i in range((x > 3).astype(int) + 1):  # noqa: B007
            x = x + 1.0
    return x


class Counter:
    """Methods, attributes, names of a class."""

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def clipped(self, x: Any) -> Any:
        if x > self.limit:
            x = self.limit
        return x

    def __call__(self, x: Any) -> Any:
        y = self.clipped(x)
        y = y + self.clipped(2 * x)
        return y + self.clipped(3 * x)


STATEMENTS = [
    statement,
    searched,
    square_root,
    by_helpers,
    in_a_with,
    of_comprehensions,
    with_functions,
    caught,
    counted,
    endless,
    collected,
    converged,
    number_kinds,
    loop_in_a_loop,
    Counter(2.0),
]


@pytest.mark.parametrize("function", STATEMENTS, ids=name_of)
def test_statements(function: Any) -> None:
    points = [0.5, 1.0, 2.75, 9.0]
    wanted = [function(tnp.asarray(x)) for x in points]
    jitted = td.jit(function)
    agree([jitted(x) for x in points], wanted)
    agree(td.vmap(function)(tnp.array(points)), wanted)
    agree(td.jit(td.vmap(function))(tnp.array(points)), wanted)
    rows = td.scan(lambda c, x: (c, function(x) * 1.0), 0.0, tnp.array(points))[1]
    agree(rows, wanted)
    # Where nothing is traced, it is Python as it was.
    agree([function(tnp.asarray(x)) for x in points], wanted)


def test_ways_are_joined_at_the_end_of_statements() -> None:
    graph = td.jit(statement).graph(1.0)
    names = [eq.op.name for eq in graph.equations]
    assert names.count("cond") == 12
    agree(td.jit(td.grad(statement))(2.0), td.grad(statement)(2.0))


def test_a_while_is_a_loop() -> None:
    jitted = td.jit(collatz)
    assert [int(jitted(n)) for n in (27, 1, 8)] == [111, 0, 3]
    assert "while_loop" in [eq.op.name for eq in jitted.graph(3).equations]
    assert td.vmap(collatz)(tnp.array([27, 1, 8])).tolist() == [111, 0, 3]
    agree(td.jit(td.grad(square_root))(2.0), 0.5 / np.sqrt(2))


def test_loops_over_traced_ranges() -> None:
    def power(x: Any, start: Any, stop: Any, step: Any) -> Any:
        out = x
        for i in range(start, stop, step):
            out = out * x + i
        return out

    names = [eq.op.name for eq in td.jit(power).graph(2.0, 0, 3, 1).equations]
    assert names == ["while_loop"]
    for limits in ((0, 3, 1), (9, -1, -4), (2, 2, 1), (3, 9, -1)):
        agree(td.jit(power)(1.5, *limits), power(tnp.asarray(1.5), *limits))
        slopes = td.jit(td.grad(power))(1.5, *limits)
        agree(slopes, td.grad(power)(1.5, *limits))
    with pytest.raises(TracerError, match="or a Python index needs"):
        td.jit(power)(1.5, 0, 2.5, 1)


class Repeated(nn.Module):
    layer: nn.Linear

    def __call__(self, x: Any, n: Any) -> Any:
        for _ in range(n):
            x = tnp.tanh(self.layer(x))
        return x


def test_a_loop_in_a_layer() -> None:
    model = Repeated(nn.Linear(3, 3, key=rng.key(0)))
    x = tnp.ones(3)
    agree(td.jit(lambda m, x, n: m(x, n))(model, x, 4), model(x, 4))


def test_functions_that_are_made_while_tracing() -> None:
    def outer(x: Any) -> Any:
        def inner(v: Any) -> Any:
            for i in range(8):
                if v > i:
                    v = v + 0.5
            return v

        return inner(x) + inner(-x)

    agree(td.jit(outer)(3.0), outer(tnp.asarray(3.0)))


def test_what_a_statement_makes_anew_in_each_run() -> None:
    def f(x: Any) -> Any:
        assert x > -100, "too small"

        @td.custom_jvp
        def doubled(v: Any) -> Any:
            return 2 * v

        doubled.defjvps(lambda t, _, v: 3 * t)
        if x > 1:
            x = doubled(x) + td.pure_callback(lambda v: v, x, x)
        else:
            x = td.scan(lambda c, _: (doubled(c), None), x, None, length=2)[0]
        if x > 10:
            return x
        return -x

    for x in (9.0, 3.0, 0.5):
        agree(td.jit(f)(x), f(tnp.asarray(x)))
    with pytest.raises(AssertionError, match="too small"):
        td.jit(f)(-101.0)


def test_a_name_that_one_way_binds() -> None:
    def f(x: Any) -> Any:
        if x > 0:
            y = x
        else:
            x = -x
        return y

    with pytest.raises(NameError):
        td.jit(f)(1.0)


def test_functions_keep_what_they_are() -> None:
    def f(x: Any, scale: float = 2.0, *, shift: Any = 1.0) -> Any:
        """Text."""
        if x > 0:
            x = x * scale
        return x + shift

    assert float(td.jit(f)(3.0)) == 7
    assert (f.__name__, f.__doc__, f.__defaults__) == ("f", "Text.", (2.0,))
    assert float(f(tnp.asarray(3.0), 3.0, shift=0.0)) == 9
    assert inspect.getsource(f).startswith("    def f(x: Any, scale")
    with td.disable_branches("statements"):
        assert float(td.jit(lambda x: f(x))(3.0)) == 7


def test_a_file_that_was_edited_is_not_compiled_anew(tmp_path: Path) -> None:
    file = tmp_path / "edited.py"
    text = "def f(x):\n    y = x\n    if x > 0:\n        y = y + 1\n    return y\n"
    file.write_text(text)
    space: dict[str, Any] = {}
    exec(compile(text, str(file), "exec"), space)
    file.write_text(text.replace("y + 1", "y + 100"))
    linecache.checkcache(str(file))
    code = space["f"].__code__
    assert [float(td.jit(space["f"])(x)) for x in (1.0, -1.0)] == [2, -1]
    assert space["f"].__code__ is code


def test_errors_in_statements_name_their_lines() -> None:
    def f(x: Any) -> Any:
        y = x
        if x > 0:
            y = y + tnp.ones(3) @ tnp.ones(4)
        return y

    with pytest.raises(ValueError) as error:
        td.jit(f)(1.0)
    line = f.__code__.co_firstlineno + 3
    assert f"test_statements.py:{line}" in str(error.value)


@td.jit
def decorated(x: Any) -> Any:
    if x > 0:
        x = x * 2
    while x < 100:
        x = 3 * abs(x)
    if x > 110:
        x = x - 1
    return x


@td.jit
def wrong(x: Any) -> Any:
    if x > 0:
        x = x * 2
    while x < 100:
        x = 3 * abs(x)
    return x + tnp.ones(2) @ tnp.ones(3)


def test_decorated_functions_keep_their_lines() -> None:
    """Their code begins at a decorator; each statement is found where it is."""
    for x in (3.0, -3.0):
        agree(decorated(x), decorated.function(x))
    line = wrong.function.__code__.co_firstlineno + 6
    with pytest.raises(ValueError, match=f"test_statements.py:{line}"):
        wrong(1.0)


class Normed(nn.Module):
    """Normalizes and drops, or not."""

    norm: nn.BatchNorm
    drop: nn.Dropout

    def __call__(self, x: Any) -> Any:
        if x.sum() > 0:
            x = self.drop(self.norm(x) * 2)
        x = x + 1
        if x.sum() < 0:
            x = self.drop(x)
        return x


def test_layers_draw_and_write_in_statements() -> None:
    model, key = Normed(nn.BatchNorm(3), nn.Dropout(0.5)), rng.key(0)
    step = td.jit(lambda model, x: nn.stateful(model, key=key)(x))
    values = np.float32(np.random.default_rng(0).normal(size=(4, 3)))
    for x in (values + 2, values - 3):
        found, after = step(model, x)
        wanted, kept = nn.stateful(model, key=key)(tnp.asarray(x))
        agree(found, wanted)
        for a, b in zip(td.tree.leaves(after), td.tree.leaves(kept), strict=True):
            agree(a, b)
