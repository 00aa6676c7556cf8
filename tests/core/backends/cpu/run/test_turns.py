"""How long Python's threads may run on while kernels compile beside them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from treadle.backends.cpu.run.turns import ShortTurns


@pytest.fixture(autouse=True)
def usual() -> Iterator[float]:
    """Another length of turns than Python's own, which is put back afterwards."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.004)
    yield 0.004
    sys.setswitchinterval(before)


def test_turns_are_short_until_all_work_is_done_or_has_failed(usual: float) -> None:
    turns, works = ShortTurns(), [Future[bytes]() for _ in range(3)]
    for work in works:
        turns.shorten_until(work)
    works[1].set_result(b"")
    works[0].set_exception(MemoryError())
    assert sys.getswitchinterval() < usual / 2
    works[2].cancel()
    assert sys.getswitchinterval() == pytest.approx(usual)
    turns.shorten_until(works[1])  # done already
    assert sys.getswitchinterval() == pytest.approx(usual)


def test_who_sets_another_length_keeps_it() -> None:
    turns, work = ShortTurns(), Future[bytes]()
    turns.shorten_until(work)
    sys.setswitchinterval(0.002)
    work.set_result(b"")
    assert sys.getswitchinterval() == pytest.approx(0.002)


def test_turns_that_are_shorter_still_are_left_alone() -> None:
    turns, work = ShortTurns(), Future[bytes]()
    sys.setswitchinterval(0.0001)
    turns.shorten_until(work)
    assert sys.getswitchinterval() == pytest.approx(0.0001, rel=0.02)
    work.set_result(b"")
    assert sys.getswitchinterval() == pytest.approx(0.0001, rel=0.02)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_has_usual_turns(usual: float) -> None:
    turns, work = ShortTurns(), Future[bytes]()
    turns.shorten_until(work)
    child = os.fork()
    if not child:
        os._exit(not abs(sys.getswitchinterval() - usual) < 1e-5)
    assert os.waitpid(child, 0)[1] == 0
    work.set_result(b"")
