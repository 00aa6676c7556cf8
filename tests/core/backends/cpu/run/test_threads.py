"""The fork-join pool: every task runs exactly once, whatever happens around it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from treadle.backends.cpu.run import native, threads
from treadle.backends.cpu.run.threads import Pool

# bump: counts[task] += 1.
# spin: bump, after some rounds of busy work.
# nested: block = (counts, pool, fork_join, inner tasks); counts[task * inner + i] += 1
# inside: counts[slot] is 1 while a task runs, and counts[task + 64] tells its slot, or
#   -1 if another task had it.
KERNELS = """
@kernels = constant [4 x ptr] [ptr @bump, ptr @spin, ptr @nested, ptr @inside]

define internal void @bump(ptr %counts, i64 %task, i64 %slot) {
  %at = getelementptr i64, ptr %counts, i64 %task
  %old = load i64, ptr %at
  %new = add i64 %old, 1
  store i64 %new, ptr %at
  ret void
}

define internal void @spin(ptr %counts, i64 %task, i64 %slot) {
entry:
  br label %head
head:
  %i = phi i64 [0, %entry], [%i1, %head]
  %at = getelementptr i64, ptr %counts, i64 %task
  %x = load volatile i64, ptr %at
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, 20000
  br i1 %more, label %head, label %done
done:
  call void @bump(ptr %counts, i64 %task, i64 %slot)
  ret void
}

define internal void @nested(ptr %block, i64 %task, i64 %slot) {
  %counts = load ptr, ptr %block
  %pool_at = getelementptr i64, ptr %block, i64 1
  %pool = load ptr, ptr %pool_at
  %fork_join_at = getelementptr i64, ptr %block, i64 2
  %fork_join = load ptr, ptr %fork_join_at
  %inner_at = getelementptr i64, ptr %block, i64 3
  %inner = load i64, ptr %inner_at
  %start = mul i64 %task, %inner
  %mine = getelementptr i64, ptr %counts, i64 %start
  call void %fork_join(ptr %pool, ptr @bump, ptr %mine, i64 %inner, i64 64)
  ret void
}

define internal void @inside(ptr %counts, i64 %task, i64 %slot) {
entry:
  %at = getelementptr i64, ptr %counts, i64 %slot
  %before = atomicrmw xchg ptr %at, i64 1 seq_cst
  %place = add i64 %task, 64
  %told_at = getelementptr i64, ptr %counts, i64 %place
  br label %head
head:
  %i = phi i64 [0, %entry], [%i1, %head]
  store volatile i64 %slot, ptr %told_at
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, 3000
  br i1 %more, label %head, label %done
done:
  %after = atomicrmw xchg ptr %at, i64 0 seq_cst
  %clash = icmp ne i64 %before, 0
  %told = select i1 %clash, i64 -1, i64 %slot
  store i64 %told, ptr %told_at
  ret void
}
"""
KERNEL = native.load_table(
    native.Source("test/threads", "kernels", lambda: KERNELS),
    ("bump", "spin", "nested", "inside"),
)

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
forks = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


def fork_join(
    pool: Pool, kernel: str, argument: int, tasks: int, most: int = 64
) -> None:
    word = ctypes.c_size_t
    function = ctypes.CFUNCTYPE(None, *[word] * 5)(pool.fork_join)
    function(pool.address, KERNEL[kernel], argument, tasks, most)


def check(pool: Pool, kernel: str = "bump", tasks: int = 10, repeat: int = 1) -> None:
    counts = np.zeros(tasks, np.int64)
    for _ in range(repeat):
        fork_join(pool, kernel, counts.ctypes.data, tasks)
    assert (counts == repeat).all()


@pytest.fixture(params=["futex", "condition", "none"])
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    """A pool of three threads of its own."""
    if threads.default_sleep() == "none" and request.param != "none":
        pytest.skip("no workers on this system")
    if request.param == "futex" and not sys.platform.startswith("linux"):
        pytest.skip("futex is Linux's")
    pool = Pool(3, request.param)
    pool.start()
    yield pool
    pool.stop()


@pytest.mark.parametrize("tasks", [0, 1, 2, 3, 100, 5000, 600_000])
def test_every_task_runs_once(pool: Pool, tasks: int) -> None:
    check(pool, tasks=tasks, repeat=5)


def test_hot_and_cold_calls(pool: Pool) -> None:
    for pause in (0, 0, 1e-4, 1e-3, 0, 3e-3, 0):
        time.sleep(pause)
        check(pool, "spin", tasks=6, repeat=3)
    check(pool, repeat=20_000)


def test_nested_calls(pool: Pool) -> None:
    outer, inner = 12, 5
    counts = np.zeros(outer * inner, np.int64)
    block = np.array([counts.ctypes.data, pool.address, pool.fork_join, inner])
    for _ in range(200):
        fork_join(pool, "nested", block.ctypes.data, outer)
    assert (counts == 200).all()


def in_threads(count: int, work) -> None:
    """Runs `work` on several Python threads; its failures fail the test."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=guarded) for _ in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors, errors


def slots(pool: Pool, most: int, tasks: int = 50) -> set[int]:
    """The slots that ran some tasks, no two of them at once."""
    counts = np.full(64 + tasks, -2, np.int64)
    counts[:64] = 0
    fork_join(pool, "inside", counts.ctypes.data, tasks, most)
    return set(counts[64:].tolist())


def test_threads_have_slots_of_their_own(pool: Pool) -> None:
    found: set[int] = set()
    for turn in range(100_000):  # on a busy machine helpers come late
        found |= slots(pool, 3)
        if turn >= 200 and (len(found) > 1 or pool.sleep == "none"):
            break
    assert 0 in found
    assert found <= {0, 1, 2}
    if pool.sleep != "none":
        assert len(found) > 1


def test_a_pool_with_more_threads_than_there_is_memory_for_does_not_help(
    pool: Pool,
) -> None:
    assert set.union(*[slots(pool, 2) for _ in range(50)]) == {0}
    pool.resize(2)
    assert set.union(*[slots(pool, 2) for _ in range(50)]) <= {0, 1}


def while_resized(pool: Pool) -> Iterator[None]:
    """Turns during which another thread makes a pool larger and smaller."""
    done = threading.Event()

    def resize() -> None:
        for count in (1, 4, 2, 5, 3) * 3:
            pool.resize(count)
            time.sleep(0.002)
        done.set()

    resizer = threading.Thread(target=resize)
    resizer.start()
    while not done.is_set():
        yield
    resizer.join()


def test_slots_while_a_pool_grows_and_shrinks(pool: Pool) -> None:
    found = set[int]()
    for _ in while_resized(pool):
        for most in (1, 2, 4):
            ran = slots(pool, most)
            assert ran <= set(range(most)), most
            found |= ran
    assert 0 in found


def test_concurrent_callers(pool: Pool) -> None:
    in_threads(6, lambda: check(pool, tasks=20, repeat=2000))


def test_resizing_under_load(pool: Pool) -> None:
    for _ in while_resized(pool):
        check(pool, "spin", tasks=8, repeat=5)
    expected = 0 if pool.sleep == "none" else 2
    assert len(pool._threads) == expected and pool.num_threads == 3


def test_stopped_pool_still_works(pool: Pool) -> None:
    pool.stop()
    check(pool, tasks=50, repeat=10)
    assert pool.needs_start or pool.sleep == "none"
    pool.start()
    check(pool, tasks=50, repeat=10)


@needs_fork
@forks
def test_child_works_alone_and_with_new_workers() -> None:
    """Also when another thread of the parent holds the pool during the fork."""
    pool = threads.pool()
    finished = threading.Event()

    def load() -> None:
        while not finished.is_set():
            check(pool, "spin", tasks=4, repeat=20)

    busy = threading.Thread(target=load)
    busy.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                check(pool, tasks=20, repeat=100)
                pool.start()
                check(pool, "spin", tasks=20, repeat=20)
                alive = sum(thread.is_alive() for thread in pool._threads)
                os._exit(0 if alive == max(pool.num_threads - 1, 0) else 3)
            _, status = os.waitpid(child, 0)
            assert status == 0
    finally:
        finished.set()
        busy.join()
    check(pool, repeat=10)


ENDINGS = {
    "return": ("", 0),
    "exit": ("sys.exit(4)", 4),
    "exception": ("raise KeyError('expected')", 1),
    "thread": ("threading.Thread(target=work).start()", 0),
    "hard": ("os._exit(5)", 5),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_process_ends_cleanly(ending: str) -> None:
    last, code = ENDINGS[ending]
    program = (
        "import os, sys, threading\n"
        "from treadle.backends.cpu.run import executor, threads\n"
        "threads.set_num_threads(4)\n"
        "text = 'define void @f(ptr %a, i64 %t) { ret void }'\n"
        "from treadle.backends.cpu.run import native\n"
        "f = native.load([native.Source('end', 'f', lambda: text)])['end']\n"
        "p = executor.ProgramBuilder()\n"
        "with p.loop(1000):\n"
        "    p.call(f, [], tasks=8)\n"
        "program = p.build()\n"
        "slots = (executor.ctypes.c_int64 * program.slot_count)()\n"
        "def work():\n"
        "    for _ in range(20):\n"
        "        program.run(executor.ctypes.addressof(slots))\n"
        f"work()\n{last}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, done.stderr
    assert "expected" in done.stderr or not done.stderr


@pytest.mark.parametrize(
    ("text", "shown"),
    [("3", "3")] + [(t, "ValueError") for t in ("0", "many", "100000")],
)
def test_environment_sets_the_number(text: str, shown: str) -> None:
    program = (
        "from treadle.backends.cpu.run import threads\n"
        "try:\n    print(threads.num_threads())\n"
        "except ValueError as error:\n"
        f"    assert {text!r} in str(error)\n    print('ValueError')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TREADLE_NUM_THREADS": text},
    )
    assert done.stdout.strip() == shown


def test_set_num_threads_checks() -> None:
    for count in (0, 100_000):
        with pytest.raises(ValueError, match=f"must be from 1 to .*, not {count}"):
            threads.set_num_threads(count)


def test_clock_rate_is_plausible() -> None:
    if threads.default_sleep() == "none":
        pytest.skip("no clock without workers")
    assert 1 < threads.ticks_per_microsecond() < 10_000
