"""Native paths of calls leak nothing, hold what they use, and are shared by threads."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import treadle as td
from tests.core.run.call_trees import (
    TREES,
    Layer,
    Model,
    array,
    known,
    made,
    model,
    twice,
)
from treadle import rng, tree
from treadle.backends.cpu.run import callpath, threads
from treadle.run.array import Array


class Unlucky(Exception):
    pass


@pytest.fixture
def young() -> Iterator[None]:
    """What a test makes stays young, so that collecting that is all that it takes: what
    other tests have left is a million objects."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("name", [*TREES])
@pytest.mark.usefixtures("young")
def test_nothing_leaks(name: str) -> None:
    given = TREES[name]()
    f = known(td.jit(twice), given)
    objects = [
        f._programs.kept.paths,
        None,
        *tree.leaves(given),
        *map(type, tree.leaves(given)),
    ]
    objects += [x.type for x in tree.leaves(given) if isinstance(x, td.Array)]
    other = {"other": array(1)}
    known(f, other)

    def calls(count: int) -> None:
        for _ in range(count):
            f(given)
            f(other)

    calls(20)
    gc.collect(1)
    counts = [sys.getrefcount(x) for x in objects]
    tracemalloc.start()
    calls(20)
    gc.collect(1)
    before = tracemalloc.get_traced_memory()[0]
    calls(1000)
    gc.collect(1)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after - before < 10_000
    for x, count in zip(objects, counts, strict=True):
        assert abs(sys.getrefcount(x) - count) < 50


@pytest.mark.usefixtures("only_new_objects")
def test_many_calls_of_a_small_program_leave_nothing() -> None:
    f = known(td.jit(lambda x: x + 1), array(1, 2))
    x = array(1, 2)
    gc.collect()
    counted = sys.getrefcount(x), sys.getrefcount(x.type), len(gc.get_objects())
    for _ in range(100_000):
        f(x)
    gc.collect()
    assert sys.getrefcount(x) == counted[0]
    assert abs(sys.getrefcount(x.type) - counted[1]) < 20
    assert abs(len(gc.get_objects()) - counted[2]) < 200


@pytest.mark.usefixtures("only_new_objects")
def test_errors_leak_nothing() -> None:
    def fails(x: Any) -> Any:
        if x.max() > 2:
            raise Unlucky
        return x

    step = known(td.jit(lambda x: td.pure_callback(fails, x, x)), array(1, 2))
    x = array(3, 4)
    for _ in range(100):
        with pytest.raises(Unlucky):
            step(x)
    gc.collect()
    assert sys.getrefcount(x) < 10


@pytest.mark.usefixtures("only_new_objects")
def test_arguments_that_go_away_during_a_call_are_held() -> None:
    """A program runs without the interpreter's lock, or calls back."""
    holder: list[Any] = []

    def drops(x: Any) -> Any:
        holder.clear()
        gc.collect()
        made(8, 1000)
        return x

    f = td.jit(lambda xs: (td.pure_callback(drops, xs[0], xs[0]), xs[1] * 2))
    for _ in range(4):
        holder[:] = made(2, 1000)
        with_callback, doubled = f(holder)
        np.testing.assert_array_equal(with_callback, np.ones(1000))
        np.testing.assert_array_equal(doubled, np.full(1000, 4.0))


@pytest.fixture
def often_switched() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_share_a_path(often_switched: None) -> None:
    f = td.jit(lambda m, x: (tree.map(lambda w: w * x, m), x + 1))
    m = model(extra=rng.key(0)._data)
    known(f, m, 2.0)

    def work(k: int) -> None:
        for i in range(200):
            scaled, more = f(m, float(k + i))
            np.testing.assert_array_equal(scaled.layers[0].weight, [k + i, 2 * (k + i)])
            assert float(more) == k + i + 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


FIRST_TOGETHER = """
import gc
import numpy as np, treadle as td
from treadle.backends.cpu.run import callpath

x, f = td.numpy.ones(3), td.jit(lambda x: x + 1)
for _ in range(3):
    f(x)
# As if another thread had looked at the same time whether paths work, and after it.
callpath._make.cache_clear()
gc.collect()
others = [callpath._Method() for _ in range(10_000)]
np.testing.assert_array_equal(f(x), [2, 2, 2])
"""


def test_threads_may_be_the_first_together() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_TOGETHER], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_the_first_call_after_the_workers_stopped_starts_them() -> None:
    f = known(td.jit(lambda x: x + 1), array(1, 2))
    threads.pool().stop()
    assert threads.pool().needs_start
    np.testing.assert_array_equal(f(array(1, 2)), [2, 3])
    assert not threads.pool().needs_start


def test_more_leaves_than_fit_on_the_stack() -> None:
    many = [array(i) for i in range(callpath.MOST_LEAVES + 1)]
    f = td.jit(lambda xs: xs[0] + xs[-1])
    for _ in range(3):
        np.testing.assert_array_equal(f(many), [callpath.MOST_LEAVES])


def test_slots_are_found_where_they_are() -> None:
    places = [callpath.slot_offset(Array, n) for n in ("_address", "_view", "type")]
    assert len(set(places)) == 3
    assert all(0 < place < Array.__basicsize__ for place in places)
    assert callpath.slot_offset(Model, "_held") == callpath.slot_offset(Layer, "_held")
