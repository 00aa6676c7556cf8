"""Blocks come back when, and only when, nobody can see them any more."""

from __future__ import annotations

import gc
import itertools
import mmap
import os
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from treadle.backends import memory
from treadle.backends.memory import Buffer, MemoryPool

SIZES = [1, 64, 4096, 100_000, 1 << 20, (3 << 20) + 5]


@pytest.fixture
def pool() -> MemoryPool:
    return MemoryPool(idle_limit=64 << 20)


@pytest.mark.parametrize("nbytes", SIZES)
def test_block_is_reused(pool: MemoryPool, nbytes: int) -> None:
    first = pool.allocate(nbytes)
    address = first.address
    assert pool.allocate(nbytes).address != address
    del first
    assert pool.allocate(nbytes).address == address


@pytest.mark.parametrize("nbytes", SIZES)
def test_block_lives_as_long_as_a_view(pool: MemoryPool, nbytes: int) -> None:
    buffer = pool.allocate(nbytes)
    address = buffer.address
    view = buffer.view(np.uint8, (nbytes,))
    assert view.ctypes.data == address
    del buffer
    inner = view[::2].reshape(-1, 1).T
    del view
    export = inner.data  # a memoryview
    del inner
    assert pool.idle_bytes() == 0
    assert pool.allocate(nbytes).address != address
    del export
    found = {b.address for b in [pool.allocate(nbytes) for _ in range(2)]}
    assert address in found


def test_what_needs_room_shares_it(pool: MemoryPool) -> None:
    room = pool.room(1000)
    assert pool.room(5 << 20) is pool.room(1000) is room
    assert pool.idle_bytes() == 5 << 20, "address space is not memory"
    address = room.allocate(room.size).address
    buffer = room.allocate(room.size)
    buffer.view(np.uint8, (room.size,))[[0, -1]] = 1
    assert buffer.address == address, "the block that was touched"
    assert pool.room(room.size + 1).size > room.size
    del buffer
    pool.room(60 << 20)
    pool.allocate(50 << 20)
    assert pool.idle_bytes() <= 64 << 20
    pool.trim()
    assert pool.idle_bytes() == 0


@pytest.mark.parametrize("available", [1 << 29, 1 << 20])
def test_room_where_address_space_is_limited(
    available: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def limited(size: int) -> Any:
        if size > available:
            raise OSError("too much")
        return real(size)

    real = memory._new_block
    monkeypatch.setattr(memory, "_new_block", limited)
    pool = MemoryPool(idle_limit=4 << 30)
    room = pool.room(1000)
    assert room.allocate(1000).nbytes <= room.size <= available
    assert pool.room(1 << 30).size >= 1 << 30


@pytest.mark.parametrize("nbytes", [0, *SIZES])
def test_alignment_and_size(pool: MemoryPool, nbytes: int) -> None:
    buffers = [pool.allocate(nbytes) for _ in range(5)]
    for buffer in buffers:
        assert (
            buffer.address % (memory.HUGE_PAGE if nbytes >= memory.LARGE else 64) == 0
        )
        assert buffer.nbytes == nbytes
        buffer.view(np.uint8, (nbytes,))[:] = 1
    addresses = sorted(buffer.address for buffer in buffers)
    assert all(b - a >= nbytes for a, b in itertools.pairwise(addresses))


def test_size_classes_waste_at_most_a_quarter() -> None:
    for nbytes in [*range(1, 5000), *(2**k + d for k in range(10, 40) for d in (0, 1))]:
        size = memory._rounded(nbytes)
        assert nbytes <= size <= max(nbytes + 63, 1.25 * nbytes + 1)
        assert size % 64 == 0 and memory._rounded(size) == size


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, ml_dtypes.bfloat16, "c16"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 4), (2, 1, 5)])
def test_view(pool: MemoryPool, dtype, shape: tuple[int, ...]) -> None:
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=int))
    buffer = pool.allocate(64 + count * dtype.itemsize)
    view = buffer.view(dtype, shape, offset=64)
    assert (view.dtype, view.shape) == (dtype, shape)
    assert type(view) is np.ndarray and view.flags.writeable and view.flags.carray
    view[...] = 1
    assert (buffer.view(dtype, (count,), 64) == 1).all()


def test_view_stays_inside(pool: MemoryPool) -> None:
    with pytest.raises(TypeError, match="too small"):
        pool.allocate(100).view(np.float32, (26,))


def test_idle_memory_is_bounded() -> None:
    pool = MemoryPool(idle_limit=10 << 20)
    for nbytes in (1 << 20, 2 << 20, 4 << 20):
        buffers = [pool.allocate(nbytes) for _ in range(8)]
        del buffers
        assert pool.idle_bytes() <= pool.idle_limit
    buffers = [pool.allocate(1 << 16) for _ in range(200)]
    del buffers
    assert pool.idle_bytes() <= pool.idle_limit + memory.SMALL_IDLE_BYTES
    pool.trim()
    assert pool.idle_bytes() == 0


def test_out_of_memory_frees_idle_blocks_first(
    pool: MemoryPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffers: list[Buffer] = [pool.allocate(4 << 20) for _ in range(4)]
    buffers.clear()
    calls: list[int] = []

    def scarce(size: int) -> mmap.mmap:
        calls.append(pool.idle_bytes())
        if pool.idle_bytes():
            raise OSError(12, "no memory")
        return mmap.mmap(-1, size)

    monkeypatch.setattr(memory, "_map", scarce)
    pool.allocate(32 << 20)
    assert calls[0] > 0 and calls[1] == 0

    def none_at_all(size: int) -> mmap.mmap:
        raise OSError(12, "no memory")

    monkeypatch.setattr(memory, "_map", none_at_all)
    with pytest.raises(MemoryError, match="67108864 bytes"):
        pool.allocate(64 << 20)


def test_threads_and_finalisers(pool: MemoryPool) -> None:
    """No block is ever in two hands, with collections in the middle of everything."""
    clashes: list[int] = []

    def work(name: int) -> None:
        random = np.random.default_rng(name)
        held: list[np.ndarray] = []
        for step in range(1500):
            nbytes = int(random.choice([64, 320, 4096, 1 << 20]))
            view = pool.allocate(nbytes).view(np.int64, (8,))
            view[:] = tag = name * 10_000 + step
            cycle: list[Any] = [view]
            cycle.append(cycle)  # freed by the collector, at any moment
            held.append(view)
            if len(held) > 20:
                old = held.pop(int(random.integers(20)))
                clashes.extend(old[old != old[0]].tolist())
            clashes.extend(view[view != tag].tolist())

    threshold = gc.get_threshold()
    gc.set_threshold(50, 2, 2)
    try:
        workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        gc.set_threshold(*threshold)
    assert not clashes


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("nbytes", [4096, 4 << 20])
def test_child_has_its_own_copy(pool: MemoryPool, nbytes: int) -> None:
    view = pool.allocate(nbytes).view(np.uint8, (nbytes,))
    view[:] = 1
    idle = pool.allocate(nbytes)
    del idle
    child = os.fork()
    if child == 0:
        view[:] = 2
        other = pool.allocate(nbytes).view(np.uint8, (nbytes,))
        other[:] = 3
        os._exit(0 if (view == 2).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (view == 1).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_address_space_beyond_memory_does_not_keep_from_forking() -> None:
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    pools = [MemoryPool(memory_bytes // 4) for _ in range(6)]
    assert all(pool.room(1000).size for pool in pools)
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
