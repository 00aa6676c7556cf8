"""Loops in strands: which can be, and that they do what one thread does."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.backends.cpu import strands
from treadle.backends.cpu.run import threads
from treadle.errors import InternalError
from treadle.fuse.lowering.launches import (
    Carries,
    KernelEntry,
    Kernels,
    Launch,
    Repeat,
)
from treadle.kernels.nest import Nest
from treadle.plan.check import check_schedule
from treadle.plan.liveness import check_plan
from treadle.plan.schedule import Schedule
from treadle.plan.steps import Loop, walk
from treadle.plan.target import Work

LENGTH, ROWS, WIDTH = 5, 32, 16
Body = Callable[..., Any]


def lstm(m: Any, state: Any, x: Any, w: Any) -> Any:
    h, c = state
    i, f, g, o = m.split(x @ w + h @ w, 4, -1)
    c = c / (1 + m.exp(-f)) + m.tanh(g) / (1 + m.exp(-i))
    return m.tanh(c) / (1 + m.exp(-o)), c


def gru(m: Any, state: Any, x: Any, w: Any) -> Any:
    h, c = state
    r, z, n, _ = m.split(h @ w, 4, -1)
    n = m.tanh(x + n / (1 + m.exp(-r)))
    return n + (h - n) / (1 + m.exp(-z)), c + h


def normed(m: Any, state: Any, x: Any, w: Any) -> Any:
    h, c = state
    h = h - m.mean(h, -1, keepdims=True) + m.concatenate([c[:, 8:], x[:, :8]], 1)
    return h / (1 + m.sum(h * h, -1, keepdims=True)), m.sin(c) @ w[:, :WIDTH]


def deep(m: Any, state: Any, x: Any, w: Any) -> Any:
    h, c = state
    for _ in range(3):
        h = m.tanh(m.tanh(h @ w) @ w.T + x)
    return h, c + h


SEPARATE: dict[str, Body] = {
    "deep": deep,
    "lstm": lstm,
    "gru": gru,
    "normed": normed,
    "elementwise": lambda m, s, x, w: (s[1] * 0.5 + x, m.sin(s[0])),
    "both lie in one": lambda m, s, x, w: (m.concatenate(s, 1)[:, 8:24], s[0] + x),
    "cumulative": lambda m, s, x, w: (m.cumsum(s[1], 1) * 0.1, s[0] + x),
}
"""Rows of what they carry don't depend on each other."""
MIXED: dict[str, Body] = {
    "sum": lambda m, s, x, w: (s[0] * 0.1 + m.sum(s[1], 0), s[1] + x),
    "turned": lambda m, s, x, w: (s[0][::-1] * 0.5, s[1] + x),
    "rolled": lambda m, s, x, w: (m.roll(s[0], 1, 0), s[1] + x),
    "product": lambda m, s, x, w: (0.1 * s[0] @ (s[0].T @ s[1]), s[1] + x),
    "gathered": lambda m, s, x, w: (s[0][m.asarray(places)] * 0.5, s[1] + x),
    "transposed": lambda m, s, x, w: (s[0].T.reshape(s[0].shape), s[1] + x),
    "first": lambda m, s, x, w: (s[0] * 0.5 + s[1][:1], s[1] + x),
    "moved": lambda m, s, x, w: (s[0].reshape(64, 8)[:, ::-1].T.reshape(32, 16), s[1]),
}
places = np.random.default_rng(1).permutation(ROWS)


@pytest.fixture(autouse=True)
def every_loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Short loops are worth it, and no plan is of another number of threads."""
    monkeypatch.setattr(strands, "_WORTH_NS", 0)
    monkeypatch.setenv("TREADLE_CACHE_DIR", "")
    yield


def arguments() -> list[np.ndarray]:
    r = np.random.default_rng(0)
    shapes = (ROWS, WIDTH), (ROWS, WIDTH), (LENGTH, ROWS, WIDTH), (WIDTH, 4 * WIDTH)
    return [(r.normal(size=s) * 0.5).astype(np.float32) for s in shapes]


def scanned(scan: Any, m: Any, body: Body, reverse: bool = False) -> Callable[..., Any]:
    def function(h: Any, c: Any, xs: Any, w: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            new = body(m, state, x, w)
            return new, (state[0], m.cos(new[1]))

        return scan(step, (h, c), xs, reverse=reverse)

    return function


def results(f: Callable[..., Any], count: int, monkeypatch: Any) -> tuple[Any, list]:
    """What it gives on so many threads, or in so many strands, and its loops."""
    with monkeypatch.context() as patch:
        patch.setattr(threads, "num_threads", lambda: count)
        jitted = td.jit(lambda *args: f(*args))
        plan = jitted.lower(*arguments()).plan
        check_plan(plan)
        loops = [step for _, step in walk(plan.steps) if isinstance(step, Loop)]
        found = [np.asarray(a) for a in td.tree.leaves(jitted(*arguments()))]
    return found, [loop.strands for loop in loops]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", SEPARATE)
def test_separate_rows(
    name: str, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = scanned(td.scan, tnp, SEPARATE[name], reverse)
    plain, alone = results(ours, 1, monkeypatch)
    found, strands = results(ours, 2, monkeypatch)
    assert (alone, strands) == ([1], [2])
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_array_equal(a, b)
    theirs = scanned(jax.lax.scan, jnp, SEPARATE[name], reverse)
    for a, b in zip(found, jax.tree.leaves(theirs(*arguments())), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MIXED)
def test_rows_that_meet(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = scanned(td.scan, tnp, MIXED[name])
    found, strands = results(ours, 2, monkeypatch)
    assert strands == [1]
    theirs = scanned(jax.lax.scan, jnp, MIXED[name])
    for a, b in zip(found, jax.tree.leaves(theirs(*arguments())), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_gradients_run_in_strands_too(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loss(scan: Any, m: Any) -> Callable[..., Any]:
        function = scanned(scan, m, SEPARATE[name])

        def total(*args: Any) -> Any:
            return sum(m.sum(m.sin(x)) for x in td.tree.leaves(function(*args)))

        return total

    ours = td.grad(loss(td.scan, tnp), (0, 1, 2, 3))
    plain, _ = results(ours, 1, monkeypatch)
    found, strands = results(ours, 2, monkeypatch)
    assert strands == [2, 2]
    wanted = jax.grad(loss(jax.lax.scan, jnp), (0, 1, 2, 3))(*arguments())
    for a, b, c in zip(found, plain, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["deep", "lstm"])
def test_no_memory_has_two_uses(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One strand may be at the end of the loop while another one is at its begin."""
    monkeypatch.setattr(threads, "num_threads", lambda: 2)
    function = scanned(td.scan, tnp, SEPARATE[name])
    plan = td.jit(lambda *args: function(*args)[0]).lower(*arguments()).plan
    (loop,) = [s for _, s in walk(plan.steps) if isinstance(s, Loop)]
    assert loop.strands == 2
    places = [p for step in loop.body for p in (*step.reads, *step.writes)]
    places += [place for _, place in loop.slots]
    used = {p.buffer for p in places if p.buffer.home == "arena"}
    spans = sorted((b.offset, b.offset + b.nbytes) for b in used)
    assert len(spans) > 2
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


@pytest.mark.parametrize("count", [8, 16])
def test_more_strands_than_threads(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some begin when others have ended: what they need is their own. A row of 512
    falls into 8 parts, and into 16 where its kernel may end in the middle of a turn."""
    ours = scanned(td.scan, tnp, SEPARATE["elementwise"])
    plain, _ = results(ours, 1, monkeypatch)
    found, strands = results(ours, count, monkeypatch)
    assert strands == [8] or count != 8
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_is_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = scanned(td.scan, tnp, SEPARATE["elementwise"])
    monkeypatch.setattr(strands, "_WORTH_NS", 1e9)
    assert results(ours, 2, monkeypatch)[1] == [1]


def _random_body(seed: int) -> Body:
    """A few operations in a row, of which some mix rows."""
    r = random.Random(seed)
    steps: list[Body] = [
        lambda m, a, b, x, w: m.tanh(a @ w[:, :WIDTH] + x),
        lambda m, a, b, x, w: a * 0.5 + b,
        lambda m, a, b, x, w: a - m.max(b, 1, keepdims=True),
        lambda m, a, b, x, w: m.concatenate([b[:, 4:], a[:, :4]], 1),
        lambda m, a, b, x, w: (a.reshape(ROWS, 4, 4) + b[:, None, :4]).reshape(a.shape),
        lambda m, a, b, x, w: m.where(x > 0, a, b)[:, ::-1],
        lambda m, a, b, x, w: m.swapaxes(a.reshape(ROWS, 4, 4), 1, 2).reshape(a.shape),
    ]
    mixing: list[Body] = [
        lambda m, a, b, x, w: a + m.sum(b, 0) * 0.01,
        lambda m, a, b, x, w: m.roll(a, 3, 0),
        lambda m, a, b, x, w: a[::-1] * 0.5 + b,
        lambda m, a, b, x, w: m.concatenate([b[16:], a[:16]], 0),
        lambda m, a, b, x, w: m.swapaxes(a.reshape(4, 8, 16), 0, 1).reshape(a.shape),
    ]
    chosen = [r.choice(steps) for _ in range(4)]
    if seed % 2:
        chosen.insert(r.randrange(4), r.choice(mixing))

    def body(m: Any, state: Any, x: Any, w: Any) -> Any:
        a, b = state
        for step in chosen:
            a, b = b, step(m, a, b, x, w) * 0.7
        return a, b

    return body


@pytest.mark.parametrize("seed", range(12))
def test_random_bodies(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = scanned(td.scan, tnp, _random_body(seed))
    plain, _ = results(ours, 1, monkeypatch)
    found, strands = results(ours, 2, monkeypatch)
    if seed % 2:
        assert strands == [1]
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_array_equal(a, b)


def test_each_kernel_has_a_task_for_each_strand() -> None:
    kernel = Launch(Nest(0, 0, "inner", (), ()), (), (), 1, ())
    inner = Kernels((), (), (KernelEntry(kernel),), {})
    carries = Carries((), (), ())
    loop = KernelEntry(Repeat(inner, 2, False, (), carries, (), ()))
    outer = Kernels((), (), (loop,), {})
    check_schedule(Schedule(outer, ([Schedule(inner, (Work(2),), 2)],)))
    with pytest.raises(InternalError, match="1 tasks in a loop of 2 strands"):
        check_schedule(Schedule(outer, ([Schedule(inner, (Work(1),), 2)],)))
