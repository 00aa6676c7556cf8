"""How a device runs each kernel: it is asked for each, those of inner programs too."""

from __future__ import annotations

from typing import Any

import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array
from tests.core.plan.build import TARGET, kernels_of
from treadle.errors import InternalError
from treadle.fuse.lowering.launches import (
    Choose,
    Launch,
    ProductKernel,
    Repeat,
    RepeatWhile,
    Sort,
)
from treadle.plan.check import check_schedule
from treadle.plan.schedule import programs, schedule
from treadle.plan.target import Work

X = array(3, 4)


class Asked:
    """A device that remembers what it was asked."""

    threads = 1

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def nest(self, launch: Launch) -> Work:
        self.seen.append(launch)
        return Work(2, 64)

    def order(self, rows: int, length: int, itemsize: int) -> Work:
        self.seen.append((rows, length, itemsize))
        return Work(3)

    def contraction(self, product: ProductKernel) -> list[Work]:
        self.seen.append(product)
        return [Work(4), Work(5)]

    def strands(self, repeat: Repeat) -> None:
        return None


def everything(x: Any) -> Any:
    y = tnp.sort(x @ tnp.exp(x.T), 1)
    c, _ = td.scan(lambda c, r: (tnp.sin(c + r), None), y[0], y)
    d = td.while_loop(lambda d: d.sum() < 9, lambda d: d + 1, c)
    return td.cond(d.sum() > 0, lambda a: a + 1, tnp.sin, d)


def test_each_kernel_is_asked_about() -> None:
    _, kernels = kernels_of(everything, X)
    device = Asked()
    found = schedule(kernels, device)  # type: ignore[arg-type]
    assert found.kernels is kernels
    for entry, how in zip(kernels.entries, found.how, strict=True):
        kernel = entry.kernel
        if isinstance(kernel, Launch):
            assert how == Work(2, 64)
            assert kernel in device.seen
        elif isinstance(kernel, ProductKernel):
            assert how == [Work(4), Work(5)]
            assert kernel in device.seen
        elif isinstance(kernel, Sort):
            assert how == Work(3)
            assert (3, 3, 4) in device.seen
        else:
            assert [inner.kernels for inner in how] == list(programs(kernel))
            assert all(len(s.how) == len(s.kernels.entries) for s in how)
    check_schedule(found)


def test_the_programs_of_kernels() -> None:
    _, kernels = kernels_of(everything, X)
    counts = {type(e.kernel): len(programs(e.kernel)) for e in kernels.entries}
    assert counts.pop(Repeat) == 1
    assert counts.pop(RepeatWhile) == counts.pop(Choose) == 2
    assert set(counts.values()) == {0}
    (loop,) = [e.kernel for e in kernels.entries if isinstance(e.kernel, RepeatWhile)]
    assert programs(loop) == [loop.test, loop.body]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda how: how[1:], "ways to run"),
        (lambda how: (Work(0), *how[1:]), "0 tasks"),
        (lambda how: (Work(1, -1), *how[1:]), "-1 bytes"),
        (lambda how: (*how[:-1], []), "never launched"),
        (lambda how: (*how[:-1], [Work(), Work(0)]), "0 tasks"),
    ],
)
def test_the_checker_refuses_other_ways(change: Any, why: str) -> None:
    _, kernels = kernels_of(lambda x: tnp.cumsum(x, 1) @ x.T, X)
    found = schedule(kernels, TARGET)
    check_schedule(found)
    with pytest.raises(InternalError, match=why):
        check_schedule(found._replace(how=tuple(change(found.how))))


def test_the_checker_refuses_schedules_of_other_programs() -> None:
    scan = lambda x: td.scan(lambda c, r: (tnp.sin(c + r), None), x[0], x)[0]  # noqa: E731
    _, kernels = kernels_of(scan, X)
    found = schedule(kernels, TARGET)
    check_schedule(found)
    inner = found.how[-1][0]
    for how in ([], [inner, inner], [found], [inner._replace(how=())]):
        with pytest.raises(InternalError):
            check_schedule(found._replace(how=(*found.how[:-1], how)))
