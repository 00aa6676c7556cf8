"""What a function that branches changes outside of itself is found."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.control.test_branches import agree
from treadle.errors import MutationError

counted = 0
calls: list[int] = []
table = np.zeros(3)


def counts(x: Any) -> Any:
    global counted
    counted += 1
    return x * counted if x > 0 else x


def appends(x: Any) -> Any:
    calls.append(1)
    return x if x > 0 else -x


def writes(x: Any) -> Any:
    table[0] += 1
    y = x if x > 0 else -x
    return y


def writes_in_a_way(x: Any) -> Any:
    if x > 0:
        table[1] += 1
    return x


class Counts:
    count = 0

    def __call__(self, x: Any) -> Any:
        if x > 0:
            return x
        self.count += 1
        return x * self.count


def counts_in_a_closure() -> Callable[..., Any]:
    count = 0

    def f(x: Any) -> Any:
        nonlocal count
        count += 1
        return x * count if x > 0 else x

    return f


def through_a_helper(x: Any) -> Any:
    return appends(x) + 1


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (counts, "counted"),
        (appends, "calls"),
        (writes, "table"),
        (writes_in_a_way, "table"),
        (Counts(), "self"),
        (Counts().__call__, "self"),
        (counts_in_a_closure(), "count"),
        (through_a_helper, "calls"),
        (
            lambda x: td.scan(lambda c, _: (appends(c), None), x, None, length=2)[0],
            "calls",
        ),
    ],
)
def test_changes_outside_are_found(function: Any, name: str) -> None:
    with pytest.raises(MutationError, match=f"`{name}`"):
        td.jit(function)(1.0)


def test_what_a_function_makes_for_itself_may_change() -> None:
    log = logging.getLogger("branches")

    class Box:
        value: Any = None

    def f(x: Any) -> Any:
        box, items, known, n = Box(), [], {}, np.zeros(2)

        def add(v: Any) -> None:
            nonlocal n
            n = n + 1
            items.append(v)

        for i in range(2):
            log.debug("an iteration")
            add(x if x > i else -x)
            known[i] = box.value = items[-1]
        return sum(items) + known[0] + box.value + n.sum()

    agree(td.jit(f)(1.5), f(tnp.asarray(1.5)))
    agree(td.jit(f)(0.5), f(tnp.asarray(0.5)))


def test_other_threads_may_work_on_what_surrounds_the_call() -> None:
    queue: list[int] = []
    asked, done = threading.Event(), threading.Event()

    def receive() -> None:
        while asked.wait(60) and len(queue) < 8:
            asked.clear()
            queue.append(1)
            done.set()

    def halved(x: Any) -> Any:
        asked.set()
        done.wait(60)
        done.clear()
        while x > 1:
            x = x / 2
        return x

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    assert float(td.jit(halved)(np.float32(12.0))) == 0.75
    assert queue
    queue += [0] * 8
    asked.set()
    thread.join()


class Counter:
    def __init__(self, n: Any) -> None:
        self.n = n

    def step(self, by: Any) -> Any:
        self.n = self.n + by
        return self.n * 2 if self.n > 0.5 else -self.n


def asks_what_it_changes(x: Any) -> Any:
    counter = Counter(x)
    if counter.n > 0:
        counter.n = counter.n + 1
    else:
        counter.n = counter.n * 3
    return counter.n


def changes_before_it_asks(x: Any) -> Any:
    counter = Counter(x)
    y = counter.step(1.25)
    return y + counter.n


def makes_constants_before_it_asks(x: Any) -> Any:
    first, second = np.arange(600.0), np.arange(600.0)
    y = tnp.sum(first * x) - tnp.sum(second * x * x)
    return y * 2 if y > 0 and x > 0.5 else y


@pytest.mark.parametrize(
    "function",
    [asks_what_it_changes, changes_before_it_asks, makes_constants_before_it_asks],
)
def test_objects_of_a_function_may_change_where_it_branches(
    function: Callable[[Any], Any],
) -> None:
    points = np.float32([1.0, -1.5, -0.5])
    wanted = np.stack([np.asarray(function(tnp.asarray(x))) for x in points])
    found = [td.jit(function)(x) for x in points]
    np.testing.assert_allclose(np.stack(found), wanted, rtol=1e-6)
    np.testing.assert_allclose(td.vmap(function)(points), wanted, rtol=1e-6)
