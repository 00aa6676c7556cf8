"""What large matrices need in work memory is what their scripts say: nothing is written
beyond it, and nothing is read that nobody has written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.arraytype import ArrayType
from treadle.backends.cpu.lapack import eager, kernel, schedule
from treadle.backends.cpu.lapack.library import library
from treadle.ops import eigen, orthogonal, singular, triangular
from treadle.trace.op import Op

GAP = 1 << 14
"""Bytes behind each block."""

rng = np.random.default_rng(0)


def run(op: Op, arrays: list[np.ndarray], params: dict[str, Any], fill: int) -> bytes:
    """The results' bytes, in memory full of a byte, with gaps behind all blocks."""
    found = library()
    if found is None:
        pytest.skip("this NumPy has another LAPACK")
    types = tuple([ArrayType(a.shape, a.dtype) for a in arrays])
    out_types, script = eager._script(op, types, tuple(params.items()))
    sizes = [t.dtype.itemsize * int(np.prod(t.shape)) for t in (*types, *out_types)]
    lengths = [64, *script.work, *sizes]
    starts = np.cumsum([0, *[-(-n // 64) * 64 + GAP for n in lengths]])
    memory = np.full(starts[-1] + 64, fill, np.uint8)
    memory = memory[-memory.ctypes.data % 64 :]
    places = starts[1 + len(script.work) : -1]
    for a, at in zip(arrays, places, strict=False):
        memory[at : at + a.nbytes] = np.frombuffer(a.tobytes(), np.uint8)
    base = memory.ctypes.data
    given = [base + int(at) for at in places]
    # Ways for small matrices need memory, too, but none of a script's blocks.
    other = np.full(schedule.task_bytes(script) + 64, fill, np.uint8)
    task = other.ctypes.data + -other.ctypes.data % 64
    every = *types, *out_types
    words = schedule.words(script, every, given, lambda i: task + i, found)
    table = schedule.TABLE - 1
    moved = [0, *range(1 + len(given), 1 + len(given) + len(script.work))]
    for i, at in zip(moved, starts, strict=False):
        words[table + 3 * i] = base + int(at)
    args = np.array([1, *words], np.int64)
    eager._kernel(kernel.source(script, 1))(args.ctypes.data, 0, 0)
    for at, n in zip(starts, lengths, strict=False):
        gap = memory[at + n : at + n + GAP]
        assert (gap == fill).all(), (n, script.work)
    outs = zip(places[len(types) :], sizes[len(types) :], strict=True)
    return b"".join([memory[at : at + n].tobytes() for at, n in outs])


def within(op: Op, *arrays: np.ndarray, **params: Any) -> None:
    once, again = (run(op, [*arrays], params, fill) for fill in (0xFF, 0))
    assert once == again, (op.name, params)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("shape", [(128, 128), (193, 130), (130, 235), (256, 255)])
def test_factors(shape: tuple[int, int], dtype: str) -> None:
    a = rng.normal(size=shape).astype(dtype)
    for full, vectors in ((True, True), (False, True), (False, False)):
        within(singular.svd, a, full=full, vectors=vectors)
        within(orthogonal.qr, a, full=full, vectors=vectors)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("n", [128, 193, 256])
def test_systems_and_eigenvectors(n: int, dtype: str) -> None:
    a = rng.normal(size=(n, n)).astype(dtype)
    for lower in (True, False):
        within(eigen.eigh, a + a.T, lower=lower, vectors=True)
        for left in (True, False):
            b = rng.normal(size=(n, 129) if left else (129, n)).astype(dtype)
            how = {"left": left, "lower": lower, "transposed": not lower}
            within(triangular.triangular_solve, a, b, **how, unit_diagonal=False)


def test_a_program_names_what_its_matrices_need_once() -> None:
    f = td.jit(lambda a: tnp.linalg.svd(a))
    large, small = (f.explain(np.ones(n, np.float32)) for n in ((140, 131), (20, 9)))
    assert large.count("slasd1") == 1
    assert "sgesdd" not in large
    assert "sgesdd" in small
    assert "slasd1" not in small
