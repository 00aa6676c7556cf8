"""What a program has to do beside a nest with short rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from tests.core.plan.build import kernels_of
from treadle.fuse.lowering.launches import Kernels, Launch
from treadle.plan.schedule import programs
from treadle.plan.weight import weighed

F = np.float32


def launches(kernels: Kernels) -> Iterator[Launch]:
    for kernel in [entry.kernel for entry in kernels.entries]:
        if isinstance(kernel, Launch):
            yield kernel
        for inner in programs(kernel):
            yield from launches(inner)


def short(function: Callable[..., Any], *args: Any) -> list[int]:
    """What nests over rows of ten know of the program."""
    _, kernels = kernels_of(function, *args)
    return [x.whole for x in launches(weighed(kernels)) if x.inner == 10]


ROWS = np.ones((40, 10), F)


def share(x: Any) -> Any:
    return tnp.exp(x) / tnp.sum(tnp.exp(x), axis=-1, keepdims=True)


def test_a_program_of_one_nest_is_its_work() -> None:
    (alone,) = short(share, ROWS)
    (more,) = short(share, np.ones((4000, 10), F))
    assert 40 * 10 <= alone < more / 10


def test_products_beside_a_nest_count() -> None:
    def beside(x: Any, a: Any) -> Any:
        return share(x), a @ a

    (alone,), (both,) = short(share, ROWS), short(beside, ROWS, np.ones((200, 200), F))
    assert both > alone + 200**3 / 10


def test_rows_of_equal_nests_are_counted_together() -> None:
    """They are one kernel: what each gains is gained by all."""

    def several(*xs: Any) -> Any:
        return [share(x) for x in xs]

    few, many = np.ones((40, 10), F), np.ones((120, 10), F)
    found = sorted(short(several, few, many))
    assert abs(found[1] - 3 * found[0]) <= 3
    _, kernels = kernels_of(several, few, many)
    assert len({x.nest for x in launches(kernels)}) == 1


def test_a_loop_has_its_turns() -> None:
    def once(x: Any, a: Any) -> Any:
        return share(x), a @ a

    def loop(turns: int) -> Callable[..., Any]:
        def run(x: Any, a: Any) -> Any:
            x = td.scan(lambda c, _: (share(c), None), x, None, length=turns)[0]
            return x, a @ a

        return run

    args = ROWS, np.ones((200, 200), F)
    (alone,), (ten,), (hundred,) = (
        short(f, *args) for f in (once, loop(10), loop(100))
    )
    # What is beside the loop is a tenth as much for each turn.
    assert alone > 5 * ten > 5 * hundred
    (inside,) = short(loop(100), ROWS, np.ones((1, 1), F))
    assert inside < hundred


def test_long_rows_know_nothing() -> None:
    _, kernels = kernels_of(share, np.ones((40, 1000), F))
    assert {x.whole for x in launches(weighed(kernels))} == {0}


def test_branches_and_while_loops_are_opened() -> None:
    def f(x: Any) -> Any:
        def body(c: Any) -> Any:
            return c[0] + 1, share(c[1])

        x = td.while_loop(lambda c: c[0] < 3, body, (0, x))[1]
        return td.cond(x[0, 0] > 0, share, lambda x: tnp.sum(x) + x, x)

    found = short(f, ROWS)
    assert len(found) >= 2 and all(found)
