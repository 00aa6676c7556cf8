"""The fork-join thread pool that compiled code calls.

Native code runs tasks with ``void fork_join(ptr pool, ptr function, ptr argument, i64
tasks, i64 most)``, where the function is ``void function(ptr argument, i64 task, i64
slot)``. The order of tasks and who runs them vary, so a task's result may depend on its
number alone. No two threads have the same slot at once, and all are below `most`.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import sys
import threading
import time
from collections.abc import Callable

from treadle.backends.cpu.run import native, threads_ir
from treadle.backends.cpu.target import cpu_count, host

WORKER_SPIN = 200.0
"""Microseconds a worker keeps looking for work: longer than a training loop's Python
between two steps."""

CALLER_SPIN = 50.0
"""Microseconds a caller waits for the last task before it starts to yield its CPU."""

_MANY = 256

_TICKET, _FINISHED, _SLEEPERS, _STOP, _WORKER_BUDGET, _CALLER_BUDGET = (
    0,
    16,
    32,
    40,
    41,
    42,
)
_BUSY, _MOVES, _ALLOWED, _MUTEX, _CONDITION = 48, 56, 64, 80, 96


def default_sleep() -> str:
    """How workers wait on this system: "futex", "condition", or "none" (no workers)."""
    if host().arch not in ("x86_64", "aarch64") or os.name != "posix":
        return "none"
    return "futex" if sys.platform.startswith("linux") else "condition"


class Pool:
    """Worker threads and the state they share. `pool` gives the one for everybody."""

    def __init__(self, num_threads: int, sleep: str | None = None) -> None:
        self.sleep = default_sleep() if sleep is None else sleep
        self.num_threads = num_threads
        self.needs_start = True
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._memory = ctypes.create_string_buffer(8 * threads_ir.POOL_WORDS + 64)
        self.address = -(-ctypes.addressof(self._memory) // 64) * 64
        self._words = (ctypes.c_int64 * threads_ir.POOL_WORDS).from_address(
            self.address
        )
        self._code = _load(self.sleep)
        self.fork_join = self._code["fork_join"]
        """Address of the native function."""
        self._prepare()

    def _prepare(self) -> None:
        """Brings the shared words to the state without workers and without work."""
        ctypes.memset(self.address, 0, 8 * threads_ir.POOL_WORDS)
        if self.sleep == "none":
            return
        per_microsecond = ticks_per_microsecond()
        self._words[_WORKER_BUDGET] = int(WORKER_SPIN * per_microsecond)
        self._words[_CALLER_BUDGET] = int(CALLER_SPIN * per_microsecond)
        if hasattr(os, "sched_getaffinity"):
            for cpu in os.sched_getaffinity(0):
                word = self._words[_ALLOWED + cpu // 64] | 1 << cpu % 64
                self._words[_ALLOWED + cpu // 64] = word
        if self.sleep == "condition":
            libc = ctypes.CDLL(None)
            libc.pthread_mutex_init(ctypes.c_void_p(self.address + 8 * _MUTEX), None)
            libc.pthread_cond_init(ctypes.c_void_p(self.address + 8 * _CONDITION), None)

    def start(self) -> None:
        """Starts the workers that are missing. Without them a caller works alone."""
        with self._lock:
            self.needs_start = False
            if self.sleep == "none":
                return
            kind = ctypes.CFUNCTYPE(None, ctypes.c_size_t, ctypes.c_int64)
            kind(self._code["admit"])(self.address, self.num_threads)
            worker = kind(self._code["worker"])
            while len(self._threads) < self.num_threads - 1:
                given = self.address, len(self._threads) + 1
                thread = threading.Thread(
                    target=worker, args=given, name="treadle", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:  # no more threads allowed, or Python is exiting
                    return
                self._threads.append(thread)

    def stop(self, timeout: float | None = None) -> None:
        """Ends the workers. Calls in progress finish on their own thread."""
        with self._lock:
            if not self._threads:
                return
            ctypes.CFUNCTYPE(None, ctypes.c_size_t)(self._code["stop"])(self.address)
            for thread in self._threads:
                thread.join(timeout)
            if not any(thread.is_alive() for thread in self._threads):
                self._words[_STOP] = 0
            self._threads = []
            self.needs_start = True

    def resize(self, num_threads: int) -> None:
        """Uses `num_threads` threads, the caller's included, from now on."""
        if num_threads < self.num_threads:
            self.stop()
        self.num_threads = num_threads
        self.start()

    def after_fork(self) -> None:
        """In a forked child no worker exists, and whoever held the pool is gone."""
        self._lock = threading.Lock()
        self._threads = []
        self._prepare()
        self.needs_start = True


def source(sleep: str | None = None) -> native.Source:
    """The code of a pool whose workers wait in a way (see `default_sleep`)."""
    sleep = default_sleep() if sleep is None else sleep
    follow_cpu = sys.platform.startswith("linux")

    def emit() -> str:
        if sleep == "none":
            return threads_ir.SERIAL_IR
        return threads_ir.pool_ir(host().arch, sleep, follow_cpu)

    return native.Source(f"pool/{sleep}", "pool_table", emit, level=0)


def _load(sleep: str) -> dict[str, int]:
    """Addresses of the pool's functions by name."""
    names = threads_ir.FUNCTIONS[: 1 if sleep == "none" else None]
    return native.load_table(source(sleep), names)


@functools.cache
def ticks_per_microsecond() -> float:
    """Rate of the clock that native code reads."""
    ticks = ctypes.CFUNCTYPE(ctypes.c_uint64)(_load(default_sleep())["ticks"])
    start, first = _both_clocks(ticks)
    while time.perf_counter() - start < 3e-4:
        pass
    end, last = _both_clocks(ticks)
    return (last - first) / (end - start) / 1e6


def _both_clocks(ticks: Callable[[], int]) -> tuple[float, int]:
    """Python's clock in seconds and native code's, read at one time: of several
    readings the quickest, as another process may run between two."""
    found = []
    for _ in range(8):
        before, now, after = time.perf_counter(), ticks(), time.perf_counter()
        found.append((after - before, before, now))
    _, at, now = min(found)
    return at, now


_pool: Pool | None = None
_pool_lock = threading.Lock()


def pool() -> Pool:
    """The process's pool. Its address never changes."""
    global _pool
    if _pool is None:
        with _pool_lock:
            if _pool is None:
                _pool = Pool(_initial_threads())
                _pool.start()
    return _pool


def num_threads() -> int:
    """How many threads compiled programs use."""
    return pool().num_threads


def set_num_threads(count: int) -> None:
    """Changes the number of threads that compiled programs use. Results stay equal."""
    if not 1 <= count <= most_threads():
        raise ValueError(
            f"the number of threads must be from 1 to {most_threads()}, not {count}"
        )
    pool().resize(count)


def most_threads() -> int:
    """More are a mistake: thousands on few CPUs would take minutes to start."""
    return max(_MANY, cpu_count())


def _initial_threads() -> int:
    text = os.environ.get("TREADLE_NUM_THREADS")
    if not text:
        return cpu_count()
    if not text.isdecimal() or not 1 <= int(text) <= most_threads():
        raise ValueError(
            f"TREADLE_NUM_THREADS must be an integer from 1 to {most_threads()}, not "
            f"{text!r}: this process may use {cpu_count()} CPUs"
        )
    return int(text)


def _after_fork_in_child() -> None:
    global _pool_lock
    _pool_lock = threading.Lock()
    if _pool is not None:
        _pool.after_fork()


def _stop_at_exit() -> None:
    if _pool is not None:
        _pool.stop(timeout=1.0)


atexit.register(_stop_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
