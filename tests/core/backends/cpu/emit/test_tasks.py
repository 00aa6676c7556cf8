"""What the tasks of a nest divide among themselves, and their scratch."""

from __future__ import annotations

import numpy as np

from tests.core.kernels.nests import Maker, softmax
from treadle.backends.cpu.emit.tasks import scratch_bytes, scratch_rows, split_axis

F = np.float32


def test_scratch_has_a_row_for_each_kept_value() -> None:
    nest = softmax().nest()
    assert scratch_rows(nest) == 1
    assert scratch_bytes(nest, 20) == 32 * 4


def test_scratch_of_several_types() -> None:
    m = Maker((2,), 5)
    x = m.load(np.zeros((2, 5), np.float16))
    wide = m.op("exp", m.op("convert", x, dtype=np.float64))
    half = m.op("exp", x)
    total = m.op("reduce_sum", wide)
    other = m.op("convert", m.op("reduce_sum", half), dtype=np.float64)
    scaled = m.op("div", wide, m.op("mul", total, other))
    m.store(np.zeros((2, 5)), scaled)
    m.store(np.zeros((2, 5), np.float16), m.op("div", half, m.op("reduce_max", half)))
    nest = m.nest()
    assert scratch_rows(nest) == 2
    assert scratch_bytes(nest, 5) == 16 * (8 + 4)
    assert scratch_bytes(nest, 17) % 64 == 0


def test_what_tasks_divide() -> None:
    assert split_axis(softmax().nest()) == "rows"
    m = Maker((), 9)
    m.store(np.zeros(9, F), m.load(np.zeros(9, F)))
    assert split_axis(m.nest()) == "inner"
    wide = Maker((2,), 9)
    wide.store(np.zeros((2, 9), F), wide.load(np.zeros((2, 9), F)))
    assert split_axis(wide.nest()) == "either"
    m.op("reduce_sum", 0)
    assert split_axis(m.nest()) == "none"
    m = Maker((), 9, (3,), "mid")
    m.store(np.broadcast_to(np.zeros(9, F), (3, 9)), m.const(0.0, F))
    assert split_axis(m.nest()) == "blocks"
    m = Maker((), 9, serial=True)
    index = m.load(np.zeros(9, np.int32))
    table = np.broadcast_to(np.zeros(4, F), (9, 4))
    m.store(table, m.const(1.0, F), index, how="add")
    assert split_axis(m.nest()) == "none"
