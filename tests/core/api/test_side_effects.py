"""What a jitted function does besides computing is told, with the line; what is none of
that is left alone."""

from __future__ import annotations

import collections
import datetime
import functools
import heapq
import itertools
import logging
import os
import random
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.errors import SideEffectWarning

calls: list[Any] = []
table: dict[str, Any] = {"n": 0, "inner": {"n": 0}}
names: set[str] = set()
recent: collections.deque[int] = collections.deque(maxlen=8)
tally: collections.Counter[str] = collections.Counter()
heap: list[int] = [3]
numbers = np.zeros(3)
counted = 0
generator = np.random.default_rng(0)
ids = itertools.count()
items = iter([1, 2, 3, 4, 5, 6, 7, 8, 9])
cache: dict[int, np.ndarray] = {}
made: Any = None


@dataclass
class Stats:
    total: int = 0
    seen: list[Any] = field(default_factory=list)

    def add(self, x: Any) -> None:
        self.total += 1
        self.seen.append(1)


class Slotted:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0


class Shared:
    n = 0


stats, slotted, shared = Stats(), Slotted(), Shared()


def record(where: list[Any], x: Any) -> None:
    where.append(1)


def global_counter(x: Any) -> Any:
    global counted
    counted += 1
    return x


def first_count(x: Any) -> Any:
    shared.n += 1
    return x


def alias(x: Any) -> Any:
    inner = table["inner"]
    inner["n"] += 1
    return x


def in_a_default(x: Any, seen: list[int] = []) -> Any:  # noqa: B006
    seen.append(1)
    return x


def in_a_scan(x: Any) -> Any:
    n = 0

    def body(c: Any, _: Any) -> Any:
        nonlocal n
        n += 1
        return c + x, None

    return td.scan(body, x, None, length=3)[0] * n


def through_grad(x: Any) -> Any:
    return td.grad(lambda y: (calls.append(1), y * y)[1])(x)


def through_vmap(x: Any) -> Any:
    return td.vmap(lambda y: (calls.append(1), y * y)[1])(tnp.ones(3) * x)


def through_cond(x: Any) -> Any:
    return td.cond(x > 0, lambda: (calls.append(1), x)[1], lambda: x)


def class_counter(x: Any) -> Any:
    Shared.n += 1
    return x


def closure_counter() -> Callable[..., Any]:
    n = 0

    def f(x: Any) -> Any:
        nonlocal n
        n += 1
        return x

    return f


def slot_counter(x: Any) -> Any:
    slotted.n += 1
    return x


def in_place(x: Any) -> Any:
    numbers[0] += 1
    return x


def item(x: Any) -> Any:
    table["n"] += 1
    return x


def key(x: Any) -> Any:
    table[f"k{len(table)}"] = 1
    return x


def deleted(x: Any) -> Any:
    del heap[0]
    heap.extend([1, 2])
    return x


def leaked(x: Any) -> Any:
    global made
    made = x + 1
    return x


CHANGES: dict[str, tuple[Callable[..., Any], str]] = {
    "append": (lambda x: (calls.append(1), x)[1], "`calls`"),
    "item": (item, "`table`"),
    "new key": (key, "`table`"),
    "set": (lambda x: (names.add(str(len(names))), x)[1], "`names`"),
    "deque": (lambda x: (recent.append(1), x)[1], "`recent`"),
    "counter": (lambda x: (tally.update(a=1), x)[1], "`tally`"),
    "heap": (lambda x: (heapq.heappush(heap, 1), x)[1], "`heap`"),
    "del": (deleted, "`heap`"),
    "global": (global_counter, "`counted`"),
    "nonlocal": (closure_counter(), "`n`"),
    "in place": (in_place, "`numbers`"),
    "fill": (lambda x: (numbers.fill(numbers[0] + 1), x)[1], "`numbers`"),
    "ufunc.at": (lambda x: (np.add.at(numbers, [0], 1), x)[1], "`numbers`"),
    "copyto": (lambda x: (np.copyto(numbers, numbers + 1), x)[1], "`numbers`"),
    "method": (lambda x: (stats.add(x), x)[1], "`stats`"),
    "setattr": (lambda x: (setattr(stats, "total", -stats.total), x)[1], "`stats`"),
    "slot": (slot_counter, "`slotted`"),
    "class": (class_counter, "`Shared`"),
    "attribute of its class": (first_count, "`shared`"),
    "helper": (lambda x: (record(calls, x), x)[1], "`calls`"),
    "alias": (alias, "`table`"),
    "default": (in_a_default, "`seen`"),
    "count": (lambda x: x * next(ids), "`ids`"),
    "iterator": (lambda x: x * next(items), "`items`"),
    "scan": (in_a_scan, "`n`"),
    "grad": (through_grad, "`calls`"),
    "vmap": (through_vmap, "`calls`"),
    "cond": (through_cond, "`calls`"),
    "nested jit": (td.jit(lambda x: (calls.append(1), x)[1]), "`calls`"),
    "leak": (leaked, "`made`"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_told_once_with_their_line(name: str) -> None:
    function, what = CHANGES[name]
    f = td.jit(function)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        f(2.0)
        f(tnp.ones(3)) if name not in ("cond", "grad") else None
    own = [w for w in found if w.category is SideEffectWarning]
    texts = [str(w.message) for w in own]
    assert any(f"changes {what}" in text for text in texts), texts
    lines = [(w.filename, w.lineno) for w in own]
    assert len(set(lines)) == len(lines) and all(f == __file__ for f, _ in lines)
    assert f"\n  at {__file__}:{own[0].lineno}\n" in texts[0]


def numpy_shuffle(x: Any) -> Any:
    return x + np.random.permutation(3)[0]


SOURCES: dict[str, tuple[Callable[..., Any], str]] = {
    "random": (lambda x: x * random.random(), "random number by `random.random()`"),
    "gauss": (lambda x: x * random.gauss(0, 1), "`random.gauss()`"),
    "numpy": (lambda x: x * np.random.normal(), "`np.random.normal()`"),
    "numpy helper": (numpy_shuffle, "`np.random.permutation()`"),
    "generator": (lambda x: x * generator.normal(), "`generator.normal()`"),
    "urandom": (lambda x: x * os.urandom(1)[0], "`os.urandom()`"),
    "uuid": (lambda x: x * (uuid.uuid4().int % 7), "`uuid.uuid4()`"),
    "time": (lambda x: x * time.time(), "clock by `time.time()`"),
    "perf_counter": (lambda x: x * time.perf_counter(), "`time.perf_counter()`"),
    "localtime": (lambda x: x * time.localtime().tm_sec, "`time.localtime()`"),
    "strftime": (lambda x: x * len(time.strftime("%Y")), "`time.strftime()`"),
    "now": (
        lambda x: x * datetime.datetime.now().year,
        "`datetime.datetime.now()`",
    ),
    "today": (lambda x: x * datetime.date.today().year, "`datetime.date.today()`"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_random_numbers_and_clocks_are_told(name: str) -> None:
    function, text = SOURCES[name]
    with pytest.warns(
        SideEffectWarning, match=text.replace("(", r"\(").replace(")", r"\)")
    ):
        td.jit(function)(1.0)
    if "random" in text and name in ("random", "numpy"):
        assert td.jit  # the draw is told again by another function
    assert sys.getprofile() is None


def memo(x: Any) -> Any:
    n = x.shape[0] if x.ndim else 1
    if n not in cache:
        cache[n] = np.arange(n, dtype=np.float32)
    return x * cache[n]


def made_once(x: Any) -> Any:
    global made
    if made is None:
        made = np.ones(3)
    return x + made[0]


@functools.lru_cache
def power(n: int) -> int:
    calls.append(n)
    return 2**n


def own_containers(x: Any) -> Any:
    out, known, n = [], {}, np.zeros(2)
    for i in range(3):
        out.append(x * i)
        known[i] = out[-1]
        n[0] += 1
    box = Stats()
    box.add(x)
    return sum(out) + known[1] + n.sum() + box.total


def logs(x: Any) -> Any:
    logging.getLogger("effects").debug("traced %s", x.shape)
    return x * float(os.environ.get("SCALE", "1"))


def reads_only(x: Any) -> Any:
    return x * len(calls) * table["n"] * numbers[0]


def clock_in_a_callback(x: Any) -> Any:
    td.debug.callback(lambda v: calls.append((v, time.time(), random.random())), x)
    return x


def clock_not_asked(x: Any) -> Any:
    start = time.time() if x.ndim > 7 else 0.0
    return x + start


def seeded(x: Any) -> Any:
    own = np.random.default_rng(0)
    return x * own.normal()


QUIET = [
    memo,
    made_once,
    lambda x: x * power(3),
    own_containers,
    logs,
    reads_only,
    clock_in_a_callback,
    clock_not_asked,
    seeded,
    lambda x: nn.Linear(3, 2, key=rng.key(0))(tnp.ones(3) * x),
    lambda x: td.scan(lambda c, y: (c + y, c), x, tnp.ones(4))[0],
]


@pytest.mark.parametrize("function", QUIET)
def test_what_is_no_side_effect_is_left_alone(function: Callable[..., Any]) -> None:
    global made
    made = None
    f = td.jit(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SideEffectWarning)
        for _ in range(4):
            f(1.0)
    assert f.report().traces == 1


def test_under_a_profiler_or_tracer_nothing_is_taken_away() -> None:
    events = []

    def profile(*_: Any) -> None:
        pass

    f = td.jit(lambda x: x * time.time())
    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        f(1.0)
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(before)
    previous = sys.gettrace()
    sys.settrace(lambda *a: events.append(1))
    try:
        with pytest.warns(SideEffectWarning):
            td.jit(lambda x: x * time.time())(1.0)
        assert sys.gettrace() is not None
    finally:
        sys.settrace(previous)
    assert events


def test_an_error_leaves_no_profiler_behind() -> None:
    def f(x: Any) -> Any:
        raise KeyError(time.time())

    with pytest.raises(KeyError):
        td.jit(f)(1.0)
    assert sys.getprofile() is None


def test_threads_trace_side_by_side() -> None:
    found: list[str] = []

    def run(i: int) -> None:
        try:
            for n in range(1, 5):
                td.jit(lambda x: x * len(calls) + i)(np.ones(n))
        except Exception as error:
            found.append(repr(error))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not found
