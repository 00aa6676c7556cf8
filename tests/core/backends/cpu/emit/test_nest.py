"""Generated kernels against NumPy: loops, accesses, reductions, tasks."""

from __future__ import annotations

import numpy as np
import pytest

from tests.core.kernels.nests import Maker, compiled

F = np.float32
SIZES = [0, 1, 3, 10, 15, 16, 17, 63, 64, 100, 129, 300]
rng = np.random.default_rng(0)


def normal(*shape: int, dtype: type = F) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def agree(maker: Maker, outputs: list[np.ndarray], tasks: int = 1, rtol=2e-6) -> None:
    """Runs natively and by interpretation; compares all stored operands."""
    expected = maker.interpret()
    maker.run(tasks)
    for k, view in enumerate(maker.views):
        if any(view is output for output in outputs):
            assert np.allclose(view, expected[k], rtol=rtol, atol=rtol, equal_nan=True)


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("inner", SIZES)
def test_one_row(inner: int, tasks: int) -> None:
    x, y, out = normal(inner), normal(inner), np.zeros(inner, F)
    scale = np.broadcast_to(F(0.3), (inner,))
    m = Maker((), inner)
    product = m.op("mul", m.load(x), m.load(y))
    m.store(out, m.op("add", m.op("exp", product), m.load(scale)))
    agree(m, [out], tasks)


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("inner", [1, 100, 333])
def test_tasks_divide_rows_or_if_they_are_few_columns(rows: int, inner: int) -> None:
    x, y = normal(rows, inner), normal(inner, rows).T
    out, turned = np.zeros((rows, inner), F), np.zeros((rows, inner), F)
    m = Maker((rows,), inner)
    m.store(out, m.op("add", m.load(x), m.const(1.0, F)))
    agree(m, [out], tasks=3)
    m = Maker((rows,), inner)
    m.store(turned, m.op("add", m.load(x), m.load(y)))
    agree(m, [turned], tasks=3)


def softmax(x: np.ndarray, out: np.ndarray) -> Maker:
    m = Maker(x.shape[:-1], x.shape[-1])
    v = m.load(x)
    e = m.op("exp", m.op("sub", v, m.op("reduce_max", v)))
    m.store(out, m.op("div", e, m.op("reduce_sum", e)))
    return m


@pytest.mark.parametrize("inner", SIZES[1:])
def test_softmax(inner: int) -> None:
    x, out = normal(7, inner), np.zeros((7, inner), F)
    agree(softmax(x, out), [out], tasks=2)


@pytest.mark.parametrize("shape", [(5, 40), (2, 3, 40), (2, 3, 4, 40), (2, 1, 3, 2, 9)])
def test_layer_norm_over_strided_rows(shape: tuple[int, ...]) -> None:
    inner = shape[-1]
    x = normal(*reversed(shape)).T if len(shape) < 3 else normal(*shape)
    x = np.swapaxes(x, 0, -2)
    gamma = np.broadcast_to(normal(inner), x.shape)
    out, mean_out = np.zeros(x.shape, F), np.zeros(x.shape[:-1], F)
    m = Maker(x.shape[:-1], inner)
    v = m.load(x)
    count = m.const(inner, F)
    mean = m.op("div", m.op("reduce_sum", v), count)
    centred = m.op("sub", v, mean)
    variance = m.op("div", m.op("reduce_sum", m.op("mul", centred, centred)), count)
    scale = m.op("rsqrt", m.op("add", variance, m.const(1e-5, F)))
    m.store(out, m.op("mul", m.op("mul", centred, scale), m.load(gamma)))
    places = np.broadcast_to(mean_out[..., None], x.shape)
    m.store(places, mean)
    agree(m, [out, places], tasks=3)


def test_cross_entropy_gathers_the_label_logit() -> None:
    rows, classes = 33, 10
    x, out = normal(rows, classes), np.zeros(rows, F)
    labels = rng.integers(0, classes, rows).astype(np.int32)
    shape = (rows, classes)
    m = Maker((rows,), classes)
    v = m.load(x)
    highest = m.op("reduce_max", v)
    total = m.op("reduce_sum", m.op("exp", m.op("sub", v, highest)))
    label = m.load(np.broadcast_to(labels[:, None], shape))
    picks = np.broadcast_to(x[:, None, :], (rows, classes, classes))
    picked = m.load(picks, label)
    places = np.broadcast_to(out[:, None], shape)
    m.store(places, m.op("sub", m.op("add", m.op("log", total), highest), picked))
    agree(m, [places], tasks=2)


@pytest.mark.parametrize("inner", [2, 5, 16, 40, 64, 100, 200])
@pytest.mark.parametrize("outer", [(), (3,), (2, 3)])
def test_column_sum(outer: tuple[int, ...], inner: int) -> None:
    x = normal(*outer, 2, 9, inner)
    out, largest = np.zeros((*outer, inner), F), np.zeros((*outer, inner), F)
    doubled = np.zeros_like(x)
    m = Maker(outer, inner, mid=(2, 9), axis="mid")
    v = m.load(x)
    m.store(doubled, m.op("add", v, v))
    places = [np.broadcast_to(o[..., None, None, :], x.shape) for o in (out, largest)]
    m.store(places[0], m.op("reduce_sum", v))
    m.store(places[1], m.op("reduce_max", v))
    agree(m, [doubled, *places], tasks=3)


def test_batch_norm_statistics_by_columns() -> None:
    x, out = normal(50, 37), np.zeros((50, 37), F)
    weights = np.broadcast_to(np.abs(normal(50, 1)), x.shape)
    m = Maker((), 37, mid=(50,), axis="mid")
    v, w = m.load(x), m.load(weights)
    total = m.op("reduce_sum", w)
    mean = m.op("div", m.op("reduce_sum", m.op("mul", v, w)), total)
    centred = m.op("sub", v, mean)
    square = m.op("reduce_sum", m.op("mul", w, m.op("mul", centred, centred)))
    scale = m.op("rsqrt", m.op("div", square, total))
    m.store(out, m.op("mul", centred, scale))
    agree(m, [out], tasks=2, rtol=5e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.float64])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", ["inner", "mid"])
def test_index_of_extremum(axis: str, name: str, dtype: type) -> None:
    for length in (1, 4, 16, 37, 150):
        x = rng.integers(0, 9, (6, length)).astype(dtype)
        if dtype == np.float32:
            x[1, length // 2] = np.nan
            x[2, :] = -np.inf
        out = np.zeros(6, np.int32)
        if axis == "inner":
            m, where = Maker((6,), length), out[:, None]
        else:
            m, where, x = Maker((), 6, (length,), "mid"), out[None], x.T.copy()
        places = np.broadcast_to(where, x.shape)
        m.store(places, m.op(f"reduce_{name}", m.load(x), dtype=np.int32))
        agree(m, [places])


def test_nan_reaches_maximum_and_minimum() -> None:
    x = normal(4, 70)
    x[1, 3], x[2, 69], x[3, 0] = np.nan, np.nan, np.nan
    for name in ("max", "min"):
        out = np.zeros(4, F)
        m = Maker((4,), 70)
        places = np.broadcast_to(out[:, None], x.shape)
        m.store(places, m.op(f"reduce_{name}", m.load(x)))
        agree(m, [places])


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "and", "or"])
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64", "bool"])
@pytest.mark.parametrize("axis", ["inner", "mid"])
def test_integer_reductions(axis: str, dtype: str, name: str) -> None:
    if dtype == "bool" and name in ("sum", "prod", "max", "min"):
        pytest.skip("booleans are reduced by and, or")
    x = rng.integers(0, 100, (21, 75)).astype(dtype)
    out = np.zeros(21 if axis == "inner" else 75, dtype)
    mids = () if axis == "inner" else (21,)
    m = Maker((21,) if axis == "inner" else (), 75, mids, axis)
    where = out[:, None] if axis == "inner" else out[None]
    places = np.broadcast_to(where, x.shape)
    m.store(places, m.op(f"reduce_{name}", m.load(x)))
    agree(m, [places])


@pytest.mark.parametrize("dtype", [F, np.float64, np.float16, np.int8, np.bool_])
def test_gather_of_elements_and_rows(dtype: type) -> None:
    table = rng.integers(0, 2, (40, 30)).astype(dtype)
    rows = rng.integers(0, 40, 7).astype(np.int64)
    columns = rng.integers(0, 30, (7, 25)).astype(np.uint8)
    shape = (7, 25)
    m = Maker((7,), 25)
    row = m.load(np.broadcast_to(rows[:, None], shape))
    column = m.load(columns)
    both = np.broadcast_to(table[None, None], (*shape, 40, 30))
    picked = m.load(both, row, column)
    # A slice of a gathered row: contiguous along inner.
    window = np.lib.stride_tricks.as_strided(
        table, (*shape, 40), (0, table.strides[1], table.strides[0])
    )
    whole = m.load(window, row)
    outs = [np.zeros(shape, dtype), np.zeros(shape, dtype)]
    m.store(outs[0], picked)
    m.store(outs[1], whole)
    agree(m, outs)


def test_strided_loads_and_stores() -> None:
    x, out = normal(50, 9), np.zeros((61, 9), F)
    m = Maker((9,), 50)
    m.store(out[:50].T, m.op("neg", m.load(x.T)))
    agree(m, [m.views[0]])
    reverse = normal(50)
    flipped = np.zeros(50, F)
    m = Maker((), 50)
    m.store(flipped, m.load(reverse[::-1]))
    m.run()
    assert (flipped == reverse[::-1]).all()


@pytest.mark.parametrize("dtype", [F, np.float16, np.int8, np.float64])
@pytest.mark.parametrize("order", [(2, 1, 0), (1, 2, 0), (0, 2, 1), (2, 0, 1)])
def test_transposes(order: tuple[int, ...], dtype: type) -> None:
    x = (normal(7, 19, 35) * 9).astype(dtype)
    moved = x.transpose(order)
    out = np.zeros(moved.shape, dtype)
    scale = np.broadcast_to(np.arange(moved.shape[0]).astype(dtype), moved.shape[::-1])
    m = Maker(moved.shape[:-1], moved.shape[-1])
    m.store(out, m.op("maximum", m.load(moved), m.load(scale.T)))
    agree(m, [out], tasks=3)


@pytest.mark.parametrize("how", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("inner", [2, 4, 8, 13, 16, 32, 45])
@pytest.mark.parametrize("entry", ["task", "few"])
def test_scatter_of_rows(how: str, tasks: int, inner: int, entry: str) -> None:
    rows = 30
    updates, table = normal(rows, inner), normal(6, inner)
    index = rng.integers(0, 6, rows).astype(np.int32)
    expected = table.astype(np.float64)
    function = {"add": np.add, "mul": np.multiply, "max": np.maximum}
    function.get(how, np.minimum).at(expected, index, updates)
    m = Maker((rows,), inner, serial=True)
    where = m.load(np.broadcast_to(index[:, None], updates.shape))
    target = np.lib.stride_tricks.as_strided(
        table, (rows, inner, 6), (0, table.strides[1], table.strides[0])
    )
    m.store(target, m.load(updates), where, how=how)
    m.run(tasks, entry=entry)
    assert np.allclose(table, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [F, np.float64, np.float16])
@pytest.mark.parametrize("inner", [2, 4, 8, 15, 16, 32])
def test_scattered_rows_have_the_bits_of_longer_ones(inner: int, dtype: type) -> None:
    updates = (normal(30, 64) * 9).astype(dtype)
    index = np.sort(rng.integers(0, 6, 30)).astype(np.int32)

    def added(updates: np.ndarray) -> np.ndarray:
        inner = updates.shape[1]
        table = np.zeros((6, inner), dtype)
        m = Maker((30,), inner, serial=True)
        where = m.load(np.broadcast_to(index[:, None], updates.shape))
        target = np.lib.stride_tricks.as_strided(
            table, (30, inner, 6), (0, *table.strides[::-1])
        )
        x = m.load(updates)
        m.store(target, m.op("mul", x, m.op("tanh", x)), where, how="add")
        m.run(entry="few")
        return table

    assert added(updates[:, :inner]).tobytes() == added(updates)[:, :inner].tobytes()


def test_scatter_add_of_elements_counts_repeats() -> None:
    index = rng.integers(0, 7, 100).astype(np.int32)
    counts = np.zeros(7, np.int32)
    m = Maker((), 100, serial=True)
    target = np.broadcast_to(counts[None], (100, 7))
    m.store(target, m.const(1, np.int32), m.load(index), how="add")
    m.run(tasks=2)
    assert (counts == np.bincount(index, minlength=7)).all()


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float32", "int64", "float64"])
def test_iota(dtype: str) -> None:
    for steps in ((10, 1, 1), (-3, 7, 2), (1, 0, 0), (0, 5, -1)):
        out = np.zeros((2, 3, 37), dtype)
        m = Maker((2, 3), 37)
        m.store(out, m.load(m.iota(40, steps, dtype)))
        agree(m, [out])


@pytest.mark.parametrize("tasks", [2, 3, 7])
def test_bits_do_not_depend_on_the_number_of_tasks(tasks: int) -> None:
    x = normal(13, 300)
    results = []
    for count in (1, tasks):
        out = np.zeros_like(x)
        softmax(x, out).run(count)
        sums = np.zeros(300, F)
        m = Maker((), 300, (13,), "mid")
        m.store(np.broadcast_to(sums, x.shape), m.op("reduce_sum", m.load(x)))
        m.run(count)
        results.append(out.tobytes() + sums.tobytes())
    assert results[0] == results[1]


def test_tile_touches_its_rows_and_columns_only() -> None:
    x, bias, out = normal(2, 3, 20, 50), normal(50), np.zeros((2, 3, 20, 50), F)
    m = Maker((2, 3, 20), 50)
    total = m.op("add", m.load(x), m.load(np.broadcast_to(bias, x.shape)))
    m.store(out, m.op("maximum", total, m.const(0.0, F)))
    block, _keep = m._arguments(m.nest(), 1)
    compiled(m.nest(), "tile")(block.ctypes.data, 1, 2, 4, 11, 13, 48)
    expected = np.zeros_like(out)
    part = (1, 2, slice(4, 11), slice(13, 48))
    expected[part] = np.maximum(x[part] + bias[13:48], 0)
    assert (out == expected).all()


@pytest.mark.parametrize("lanes", [4, 8])
def test_other_vector_widths(lanes: int) -> None:
    x, out = normal(5, 100), np.zeros((5, 100), F)
    m = softmax(x, out)
    expected = m.interpret()
    m.run(lanes=lanes)
    assert np.allclose(out, expected[1], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("tasks", [1, 2, 3, 5])
@pytest.mark.parametrize("inner", SIZES)
def test_nothing_is_written_outside(inner: int, tasks: int) -> None:
    margin = 256
    for shape, mid in (((inner,), 0), ((3, inner), 0), ((3, inner), 1)):
        size = int(np.prod(shape))
        memory = np.full(size + 2 * margin, 7, F)
        out = memory[margin : margin + size].reshape(shape)
        m = Maker(shape[:-1][mid:], inner, shape[:mid], "mid" if mid else "inner")
        m.store(out, m.op("neg", m.load(normal(*shape))))
        m.run(tasks)
        assert (memory[:margin] == 7).all() and (memory[margin + size :] == 7).all()
