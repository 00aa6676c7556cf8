"""Pooled memory for outputs and arenas.

Touching fresh pages costs more than most kernels that write them, so a block goes back
to a free list when its last user is gone: the `Buffer` and every NumPy view of it.

Blocks begin on a 64-byte boundary. Free lists are plain Python lists, whose `append`
and `pop` are atomic: a finaliser may run in the middle of anything and takes no lock.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import platform
import sys
from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

ALIGNMENT = 64
MIDDLE = 1 << 15
"""From this size on, a block's memory is not touched before it is used."""

LARGE = 1 << 20
"""From this size on, a block has pages of its own (huge ones, where Linux agrees)."""

HUGE_PAGE = 2 << 20
SMALL_IDLE_BYTES = 4 << 20
"""How much one size class of small blocks may keep idle."""

LEAST_ROOM = 1 << 28
"""Address space for temporaries of any size should be more than that."""

Owner = bytearray | ctypes.Array[ctypes.c_char] | mmap.mmap
Block = tuple[int, Owner, int]
"""Address, the object that owns the memory, and where in it the block begins."""


class Buffer:
    """A block of memory in use. Dropping it and its views gives the block back."""

    __slots__ = ("__weakref__", "_block", "_size_class", "address", "nbytes")

    def __init__(self, block: Block, size_class: SizeClass, nbytes: int) -> None:
        self.address = block[0]
        self.nbytes = nbytes
        self._block = block
        self._size_class = size_class

    def __del__(self) -> None:
        self._size_class.release(self._block)

    def view(
        self, dtype: DTypeLike, shape: Sequence[int], offset: int = 0
    ) -> np.ndarray:
        """The bytes from `offset` on as an array, which keeps the block in use."""
        _, memory, start = self._block
        of: Any = memory  # whatever is a buffer, as NumPy's types don't say
        whole = np.ndarray.__new__(_Owned, (self.nbytes,), np.uint8, of, start)
        whole.buffer = self
        return np.ndarray(shape, dtype, whole, offset)

    def write(self, layout: Struct, offset: int, *words: int) -> None:
        """Writes numbers into the block, from `offset` on."""
        _, memory, start = self._block
        layout.pack_into(memory, start + offset, *words)

    def __repr__(self) -> str:
        return f"Buffer({self.nbytes} bytes at {self.address:#x})"


class _Owned(np.ndarray):
    """The base of all views of a buffer.

    NumPy skips from a view to its base's base only if that has the view's own type. The
    base here is no array, so the chain to the buffer never gets lost.
    """

    __slots__ = ("buffer",)
    buffer: Buffer


class SizeClass:
    """The blocks of one size.

    used: how much of each is ever touched.
    """

    __slots__ = ("_keep", "_large", "_pool", "free", "size", "used")

    def __init__(self, size: int, pool: MemoryPool) -> None:
        self.size = self.used = size
        self.free: list[Block] = []
        self._pool = pool
        self._large = size >= LARGE
        self._keep = SMALL_IDLE_BYTES // size

    def allocate(self, nbytes: int) -> Buffer:
        """A buffer of `nbytes`, at most `size`. Its content is whatever was there."""
        try:
            block = self.free.pop()
        except IndexError:
            block = self.new_block()
        return Buffer(block, self, nbytes)

    def new_block(self) -> Block:
        """Memory from the system."""
        return self._pool.new_block(self.size)

    def release(self, block: Block) -> None:
        """Takes back a block that nobody uses any more."""
        if self._large:
            self.free.append(block)
            self._pool.shed()
        elif len(self.free) < self._keep:
            self.free.append(block)


class MemoryPool:
    """Size classes, and a limit on what they keep idle together."""

    def __init__(self, idle_limit: int) -> None:
        self.idle_limit = idle_limit
        self._classes: dict[int, SizeClass] = {}
        self.size_class = functools.lru_cache(maxsize=4096)(self._size_class)
        """The class that serves a number of bytes; look it up once for a fixed size."""
        self._room: SizeClass | None = None

    def room(self, nbytes: int) -> SizeClass:
        """A class of which a number of bytes are needed, now, and more another time.

        Fresh pages cost more than most programs. Address space costs nothing: in a
        large block, what is needed most is all that is ever touched.
        """
        if self._room is None:
            self._room = self._make_room()
        if nbytes > self._room.size:
            return self.size_class(nbytes)
        self._room.used = max(self._room.used, nbytes)
        return self._room

    def _make_room(self) -> SizeClass:
        size = self.idle_limit
        while hasattr(mmap, "MAP_PRIVATE"):  # elsewhere address space does cost
            made = SizeClass(_rounded(size), self)
            made.used = 0
            try:
                made.free.append(_new_block(made.size))
            except (MemoryError, OSError):  # address space is limited here
                size //= 2
                if size < LEAST_ROOM:
                    break
            else:
                return self._classes.setdefault(-made.size, made)
        return self.size_class(1)

    def _size_class(self, nbytes: int) -> SizeClass:
        size = _rounded(nbytes)
        return self._classes.setdefault(size, SizeClass(size, self))

    def allocate(self, nbytes: int) -> Buffer:
        """A buffer of at least `nbytes`, uninitialised."""
        return self.size_class(nbytes).allocate(nbytes)

    def idle_bytes(self) -> int:
        """Bytes kept for reuse."""
        return sum(c.used * len(c.free) for c in list(self._classes.values()))

    def trim(self) -> None:
        """Gives all idle memory back to the system."""
        for size_class in list(self._classes.values()):
            size_class.free.clear()

    def shed(self) -> None:
        """Drops blocks of the size with the most idle memory until the limit holds."""
        while self.idle_bytes() > self.idle_limit:
            classes = list(self._classes.values())
            richest = max(classes, key=lambda c: c.used * len(c.free))
            with contextlib.suppress(IndexError):  # another thread may be quicker
                richest.free.pop(0)

    def new_block(self, size: int) -> Block:
        try:
            return _new_block(size)
        except (MemoryError, OSError):
            self.trim()
        try:
            return _new_block(size)
        except (MemoryError, OSError) as error:
            raise MemoryError(f"cannot allocate {size} bytes: {error}") from error


def _rounded(nbytes: int) -> int:
    """The next size of the form 4, 5, 6 or 7 times a power of two, at least 64."""
    if nbytes <= ALIGNMENT:
        return ALIGNMENT
    step = max(ALIGNMENT, 1 << (nbytes - 1).bit_length() - 3)
    return -(-nbytes // step) * step


def _new_block(size: int) -> Block:
    memory: Owner
    if size < MIDDLE:
        memory, alignment = bytearray(size + ALIGNMENT), ALIGNMENT
    elif size < LARGE:
        # A bytearray is zeroed: its pages are touched here, by one thread.
        fresh = np.empty(size + ALIGNMENT, np.uint8)
        memory = (ctypes.c_char * len(fresh)).from_buffer(fresh.data)
        alignment = ALIGNMENT
    else:
        memory, alignment = _map(size + HUGE_PAGE), HUGE_PAGE
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    start = -base % alignment
    return base + start, memory, start


_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0)
if sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64"):
    _NO_RESERVE = 0x4000  # which Python 3.11 has no name for
"""Address space that is not used doesn't count as memory: a process could not fork if
there were more of it than memory."""


def _map(size: int) -> mmap.mmap:
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size)
    # Python's default, a shared mapping, never gets huge pages.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    memory = mmap.mmap(-1, size, flags=flags)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel built without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _default_limit() -> int:
    """A quarter of the machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (AttributeError, OSError, ValueError):
        return 2 << 30


_pool = MemoryPool(_default_limit())
allocate = _pool.allocate
room = _pool.room
idle_bytes = _pool.idle_bytes
trim = _pool.trim


def size_class(nbytes: int) -> SizeClass:
    """See `MemoryPool.size_class`."""
    return _pool.size_class(nbytes)
