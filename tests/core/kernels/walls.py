"""Arrays between which and the ends of their memory nothing may be touched."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np


def walled(count: int, dtype: Any) -> tuple[Any, np.ndarray]:
    """Memory with walls around it, to be kept, and an array that ends at one."""
    dtype = np.dtype(dtype)
    page, nbytes = mmap.PAGESIZE, count * dtype.itemsize
    inside = -(-nbytes // page) * page
    memory = mmap.mmap(-1, inside + 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for wall in (start, start + page + inside):
        assert not protect(wall, page, 0)
    at = start + page + inside - nbytes
    return memory, np.frombuffer((ctypes.c_char * nbytes).from_address(at), dtype)
