"""What indices out of range mean: the same eagerly, compiled and under transforms.

Python's and NumPy's indices are known while tracing and must be in range. Treadle's
arrays follow the mode of what reads or writes: indexing clamps, `take` fills, updates
drop. JAX is the oracle, with the same indices as int32 (which is all it has): moved
near the axis, where they are far beyond.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.np.oracle import same

N = 300
X = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)
UPDATE = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)

INDICES = [
    np.array([-128, -1, 127, 5, 0], np.int8),
    np.array([255, 1, 127, 128, 0], np.uint8),
    np.array([-300, -301, 299, 300, -32768], np.int16),
    np.array([65535, 299, 300, 0, 7], np.uint16),
    np.array([-(2**31), 2**31 - 1, -300, 299, -301], np.int32),
    np.array([-(2**63), 2**63 - 1, 2**32, -300, 299], np.int64),
    np.array([2**32 - 1, 2**31, 300, 299, 0], np.uint32),
    np.array([2**64 - 1, 2**63, 2**32, 299, 300], np.uint64),
]
"""One index array of each dtype, with its extremes and the ends of the axis."""

Function = Callable[[Any, Any, Any], Any]

READS: dict[str, Function] = {
    "rows": lambda np, x, i: x[i],
    "beside a slice": lambda np, x, i: x[i, ::-2],
    "beside an integer": lambda np, x, i: x[i, -1],
    "two arrays": lambda np, x, i: x[i, i],
    "apart": lambda np, x, i: x[:, None][i, :, i],
    "last axis": lambda np, x, i: x.T[:, i],
    "scalar": lambda np, x, i: x[i[0]],
    "scalars": lambda np, x, i: x[i[1], i[2]],
    "scalar in the middle": lambda np, x, i: x.T[1:, i[1], None],
    "get": lambda np, x, i: x.at[i].get(),
    "get, clip": lambda np, x, i: x.at[i, 1:].get(mode="clip"),
    "get, fill": lambda np, x, i: x.at[i].get(mode="fill"),
    "get, a value": lambda np, x, i: x.at[i].get(mode="fill", fill_value=7.0),
    "get two, fill": lambda np, x, i: x.at[i[:, None], i[:3]].get(mode="fill"),
    "get apart, fill": lambda np, x, i: x[:, None].at[i, :, i].get(mode="fill"),
    "get a column, fill": lambda np, x, i: x.T.at[1:, i].get(mode="fill"),
    "get a scalar, fill": lambda np, x, i: x.at[i[1]].get(mode="fill"),
    "get scalars, fill": lambda np, x, i: x.at[i[3], ..., i[4]].get(mode="fill"),
    "take": lambda np, x, i: np.take(x, i, 0),
    "take, flat": lambda np, x, i: np.take(x, i),
    "take, last": lambda np, x, i: np.take(x.T, i[:, None], -1),
    "take one": lambda np, x, i: np.take(x, i[1], 0),
    "x.take": lambda np, x, i: x.take(i, 0),
    "take_along_axis": lambda np, x, i: np.take_along_axis(x, i[:, None], 0),
    "take_along_axis, last": lambda np, x, i: np.take_along_axis(x.T, i[None], 1),
}

UPDATES: dict[str, Function] = {
    "set": lambda np, x, i: x.at[i].set(7.0),
    "add": lambda np, x, i: x.at[i].add(UPDATE),
    "multiply": lambda np, x, i: x.at[i].multiply(2.0),
    "min": lambda np, x, i: x.at[i].min(UPDATE),
    "max": lambda np, x, i: x.at[i].max(UPDATE),
    "divide": lambda np, x, i: x.at[i].divide(2.0),
    "apply": lambda np, x, i: x.at[i].apply(abs),
    "set beside a slice": lambda np, x, i: x.at[i, 1:].set(UPDATE[:, 1:]),
    "add beside a step": lambda np, x, i: x.at[i, ::2].add(UPDATE[:, ::2]),
    "add to two": lambda np, x, i: x.at[i[:, None], i[:3]].add(UPDATE),
    "set one": lambda np, x, i: x.at[i[1]].set(UPDATE[0]),
    "add to one": lambda np, x, i: x.at[i[1], i[2]].add(7.0),
}

ALL = READS | UPDATES
SMOOTH: dict[str, Function] = {
    # Where an index is out of range, JAX differentiates what it clamps unasked as if
    # nothing were read.
    "rows": lambda np, x, i: x[i] if np is tnp else x.at[i].get(mode="clip"),
    "two": lambda np, x, i: x[i, i] if np is tnp else x.at[i, i].get(mode="clip"),
    "one": lambda np, x, i: x[i[1]] if np is tnp else x.at[i[1]].get(mode="clip"),
    **{n: f for n, f in READS.items() if "get, " in n or "fill" in n or "take" in n},
    **{n: UPDATES[n] for n in ("set", "add", "set beside a slice", "set one")},
}


def near(i: np.ndarray) -> np.ndarray:
    """The indices as JAX can hold them."""
    return np.array(
        [min(max(int(k), -1000), 1000) for k in i.ravel()], np.int32
    ).reshape(i.shape)


@pytest.mark.parametrize("name", ALL)
def test_arrays_follow_the_mode(name: str) -> None:
    function = ALL[name]

    def each(module: Any, x: Any, indices: Any) -> list[Any]:
        return [function(module, x, i) for i in indices]

    expected = jax.jit(lambda x, *i: each(jnp, x, i))(X, *map(near, INDICES))
    same(each(tnp, tnp.array(X), map(tnp.array, INDICES)), expected)
    same(td.jit(lambda x, *i: each(tnp, x, i))(X, *INDICES), expected)


@pytest.mark.parametrize("name", ALL)
def test_arrays_that_a_function_closes_over(name: str) -> None:
    function, i = ALL[name], INDICES[4]
    held = tnp.array(i)
    expected = function(jnp, jnp.asarray(X), near(i))
    same(td.jit(lambda x: function(tnp, x, held))(X), expected)


EXAMPLES = np.stack([INDICES[4], [0, 3, 400, -400, -1], [-301, 5, 300, 7, 2]])
EXAMPLES = EXAMPLES.astype(np.int32)
BATCH = np.stack([X, X * 2, X - 1])


@pytest.mark.parametrize("x_axis", [None, 0])
@pytest.mark.parametrize("name", ALL)
def test_batched(name: str, x_axis: int | None) -> None:
    function = ALL[name]
    x, axes = jnp.asarray(X if x_axis is None else BATCH), (x_axis, 0)
    expected = jax.vmap(lambda x, i: function(jnp, x, i), axes)(x, near(EXAMPLES))
    ours = td.vmap(lambda x, i: function(tnp, x, i), axes)
    x = tnp.array(np.asarray(x))
    same(ours(x, tnp.array(EXAMPLES)), expected)
    same(td.jit(ours)(x, EXAMPLES), expected)


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients(name: str) -> None:
    function, i = SMOOTH[name], INDICES[4]

    def loss(module: Any, x: Any, i: Any) -> Any:
        out = function(module, x, i)
        return (module.where(out == out, module.sin(out), 0.0) * 3.0).sum()

    expected = jax.grad(lambda x: loss(jnp, x, near(i)))(X)
    ours = td.grad(lambda x, i: loss(tnp, x, i))
    same(ours(tnp.array(X), tnp.array(i)), expected)
    same(td.jit(ours)(X, i), expected)


OUTSIDE: list[Any] = [
    *(N, -N - 1, np.int64(2**40), np.int16(-N - 1)),
    *([0, N], np.array([0, -N - 1], np.int16), np.array([2**64 - 1], np.uint64)),
]


@pytest.mark.parametrize("i", OUTSIDE, ids=repr)
def test_what_is_known_must_be_in_range(i: Any) -> None:
    functions = {
        "rows": lambda x: x[i],
        "get": lambda x: x.at[i].get(mode="fill"),
        "take": lambda x: tnp.take(x, i, 0),
        "set": lambda x: x.at[i].set(0.0),
        "add": lambda x: x.at[i, ::2].add(0.0),
        "unravel": lambda x: tnp.unravel_index(np.asarray(i), (N // 2, 2)),
    }
    if np.ndim(i):
        rows = np.asarray(i)[:, None]
        functions["along"] = lambda x: tnp.take_along_axis(x, rows, 0)
    for name, function in functions.items():
        readings = {
            "eager": function,
            "jit": td.jit(function),
            "vmap": lambda x, f=function: td.vmap(f)(x[None]),
            "grad": lambda x, f=function: td.vjp(f, x),
        }
        for how, reading in readings.items():
            with pytest.raises(IndexError, match="out of range for axis 0"):
                reading(tnp.array(X))
                raise AssertionError(f"{name}, {how}")


@pytest.mark.parametrize("name", ALL)
def test_known_arrays_of_every_dtype(name: str) -> None:
    function = ALL[name]
    both = any(word in name for word in ("two", "apart", "scalars", "to one"))
    low, high = (-3, 3) if both else (-N, N)
    indices = [
        np.resize(np.array([k for k in i if low <= int(k) < high] or [0], i.dtype), 5)
        for i in INDICES
    ]
    x = jnp.asarray(X)
    expected = [function(jnp, x, i.astype(np.int32)) for i in indices]
    same([function(tnp, tnp.array(X), i) for i in indices], expected)
    same(td.jit(lambda x: [function(tnp, x, i) for i in indices])(X), expected)


EMPTY = np.zeros((0, 3), np.float32)


@pytest.mark.parametrize("name", UPDATES)
def test_nothing_to_update(name: str) -> None:
    update, i = UPDATES[name], np.array([0, 3, -1, 2, 1], np.int32)
    same(update(tnp, tnp.array(EMPTY), tnp.array(i)), EMPTY)
    same(td.jit(lambda x, i: update(tnp, x, i))(EMPTY, i), EMPTY)
    ours = td.vmap(lambda x, i: update(tnp, x, i), (None, 0))
    same(td.jit(ours)(EMPTY, i[None]), EMPTY[None])


@pytest.mark.parametrize("name", READS)
def test_nothing_to_read(name: str) -> None:
    """Nothing is nearest; but a mode that fills does not need it."""
    function = READS[name]
    i = np.array([0, 3, -1, 2, 1], np.int32)
    like = function(jnp, jnp.asarray(X[:1]), i)
    fills = "fill" in name or "take" in name
    readings = (
        lambda x, i: function(tnp, x, i),
        td.jit(lambda x, i: function(tnp, x, i)),
    )
    for reading in readings:
        args = tnp.array(EMPTY), tnp.array(i)
        if fills:
            same(reading(*args), np.full(like.shape, np.nan, np.float32))
        elif name == "get, a value":
            same(reading(*args), np.full(like.shape, 7, np.float32))
        else:
            with pytest.raises(IndexError, match=r'empty[\s\S]*mode="fill"'):
                reading(*args)
    none = tnp.array(i[:0])
    same(tnp.array(EMPTY)[none], EMPTY)
    same(tnp.zeros((0, 0))[tnp.array(i)], np.zeros((5, 0), np.float32))


MODES = ["clip", "drop", "fill", "wrap"]
MODED: dict[str, Callable[..., Any]] = {
    "set": lambda np, x, i, **o: x.at[i].set(7.0, **o),
    "add": lambda np, x, i, **o: x.at[i, 1:].add(UPDATE[:, 1:], **o),
    "mul": lambda np, x, i, **o: x.at[i].mul(2.0, **o),
    "max, a step": lambda np, x, i, **o: x.at[i, ::2].max(UPDATE[:, ::2], **o),
    "set one": lambda np, x, i, **o: x.at[i[3]].set(7.0, **o),
    "add to two": lambda np, x, i, **o: x.at[i, i[::-1]].add(UPDATE[:, 0], **o),
    "apply": lambda np, x, i, **o: x.at[i[:2]].apply(abs, **o),
    "get": lambda np, x, i, **o: x.at[i, i].get(**o),
    "take": lambda np, x, i, **o: np.take(x, i, 1, **o),
    "take_along_axis": lambda np, x, i, **o: np.take_along_axis(x, i[:, None], 0, **o),
}


@pytest.mark.parametrize("mode", MODES)
def test_modes(mode: str) -> None:
    """All at once: a program for each takes long."""
    i = near(INDICES[4]) + np.int32(1)
    # JAX wraps nowhere: its oracle gets places that are in range.
    lines = ("set", "add", "mul", "max, a step", "set one")
    names = lines if mode == "wrap" else [n for n in MODED if (n, mode) != OTHER]
    theirs, place = ("clip", i % N) if mode == "wrap" else (mode, i)

    def each(module: Any, x: Any, i: Any, mode: str) -> list[Any]:
        return [MODED[n](module, x, i, mode=mode) for n in names]

    expected = jax.jit(lambda x, i: each(jnp, x, i, theirs))(X, place)
    same(each(tnp, tnp.array(X), tnp.array(i), mode), expected)
    same(td.jit(lambda x, i: each(tnp, x, i, mode))(X, i), expected)
    if mode == "wrap":
        read = lambda x, i: (x.at[i].get(mode=mode), x.at[i].apply(abs, mode=mode))  # noqa: E731
        changed = X.copy()
        changed[i % N] = abs(X[i % N])
        same(read(tnp.array(X), tnp.array(i)), [X[i % N], changed])
        taken = tnp.take(tnp.array(X), tnp.array(i), 0, mode=mode)
        same(taken, np.take(X, i, 0, mode=mode))
    with pytest.raises(IndexError, match="out of range"):
        tnp.array(X).at[np.array([N])].set(0, mode=mode)


OTHER = ("take", "drop")


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_far_places_wrap(dtype: Any) -> None:
    x = np.arange(7)
    i = np.array([7, 12, np.iinfo(dtype).max], dtype) - dtype([0, 0, 4])
    put = x.copy()
    put[i % 7] = 50

    def each(x: Any, i: Any) -> Any:
        places = x.at[i]
        along = tnp.take_along_axis(x, i, 0, mode="wrap")
        alone = x[:, None].at[i[2], ...].get(mode="wrap")
        return places.get(mode="wrap"), along, alone, places.set(50, mode="wrap")

    expected = [x[i % 7], x[i % 7], x[i[2:] % 7], put]
    same(each(tnp.array(x), tnp.array(i)), expected)
    same(td.jit(each)(x, i), expected)


MASKED: list[Callable[..., Any]] = [
    lambda x, m, v: x.at[m].set(0.0),
    lambda x, m, v: x.at[m[:, 0]].add(v),
    lambda x, m, v: x.at[:, m[0]].multiply(2.0),
    lambda x, m, v: x.at[1:3, m[0]].set(v[0]),
    lambda x, m, v: x.at[-1, m[0]].min(-1.0),
    lambda x, m, v: x.at[..., m[0], None].set(7.0),
    lambda x, m, v: x.at[None, m[:, 1]].set(v),
    lambda x, m, v: x.at[m[:, 0]].set(v[None]),
    lambda x, m, v: x.at[m].apply(tnp.cos),
    lambda x, m, v: x.at[m].divide(2.0),
    lambda x, m, v: tnp.place(x, m, v, inplace=False),
]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_updates_by_traced_masks(share: float) -> None:
    rng = np.random.default_rng(3)
    x, v = tnp.array(X[:6]), tnp.array(UPDATE[0])
    m = tnp.array(rng.random((6, 3)) < share)
    expected = [f(x, m, v) for f in MASKED]
    same(td.jit(lambda x, m, v: [f(x, m, v) for f in MASKED])(x, m, v), expected)
    found = td.vmap(lambda m: [f(x, m, v) for f in MASKED])(tnp.stack([m, ~m]))
    same([f[0] for f in found], expected)
    same([f[1] for f in found], [f(x, ~m, v) for f in MASKED])
    slope = td.grad(lambda x: x.at[m].set(0.0).sum())(x)
    same(td.jit(td.grad(lambda x, m: x.at[m].set(0.0).sum()))(x, m), slope)


def test_errors_of_traced_masks() -> None:
    x, m = tnp.array(X[:6]), tnp.array(X[:6] > 0)
    wrong: dict[str, Callable[..., Any]] = {
        r"must be known while tracing(.|\n)*x\.at\[mask\]\.set": lambda m: x[m],
        r"has 4 elements for the places": lambda m: x.at[m].set(np.ones(4)),
        r"beside another mask": lambda m: x.at[m[:, 0], m[0]].set(0),
        r"mask of shape \(6, 2\)": lambda m: x.at[m[:, :2]].set(0),
    }
    for message, function in wrong.items():
        with pytest.raises((td.errors.TracerError, IndexError), match=message):
            td.jit(function)(m)


FILLS = ["bool", "int8", "uint16", "int32", "uint32", "float32", "complex64"]


@pytest.mark.parametrize("dtype", FILLS)
def test_what_fills(dtype: str) -> None:
    x, i = np.ones((2, 2), dtype), np.array([0, 5], np.int32)
    for read in (
        lambda np, x, i: np.take(x, i, 0),
        lambda np, x, i: np.take_along_axis(x, i[:, None], 0),
        lambda np, x, i: x.at[i].get(mode="fill"),
        lambda np, x, i: x.at[i].get(mode="fill", fill_value=1),
    ):
        expected = np.asarray(read(jnp, jnp.asarray(x), i))
        found = read(tnp, tnp.array(x), tnp.array(i))
        compiled = td.jit(lambda x, i, read=read: read(tnp, x, i))(x, i)
        assert found.dtype == compiled.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(compiled, expected)


STARTS = [np.int8(127), np.uint8(200), np.uint32(2**32 - 1), np.uint64(2**64 - 1)]


@pytest.mark.parametrize("start", [*STARTS, np.int64(-(2**40))], ids=repr)
def test_starts_of_every_dtype(start: Any) -> None:
    first = min(max(int(start), 0), N - 2)
    read = lambda x, i: td.lax.dynamic_slice_in_dim(x, i, 2)  # noqa: E731
    update = td.lax.dynamic_update_slice_in_dim
    write = lambda x, i: update(x, UPDATE[:2], i, 0)  # noqa: E731
    written = X.copy()
    written[first : first + 2] = UPDATE[:2]
    for how in (lambda f: f, td.jit):
        same(how(read)(tnp.array(X), tnp.asarray(start)), X[first : first + 2])
        same(how(write)(tnp.array(X), tnp.asarray(start)), written)
    many = td.jit(td.vmap(read, (None, 0)))(X, np.array([start, start]))
    same(many, np.stack([X[first : first + 2]] * 2))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_numbers_of_small_dtypes(dtype: str) -> None:
    """An index of few bits into a shape with more elements than it can count."""
    i, shape = np.array([0, 5, 127], dtype), (20, 15)
    for how in (lambda f: f, td.jit):
        places = how(lambda i: tnp.unravel_index(i, shape))(tnp.array(i))
        for found, expected in zip(places, np.unravel_index(i, shape), strict=True):
            np.testing.assert_array_equal(found, expected)
        flat = how(lambda r, c: tnp.ravel_multi_index((r, c), shape))
        rows, columns = np.array([19, 3, 9], dtype), np.array([14, 0, 9], dtype)
        expected = np.ravel_multi_index((rows, columns), shape)
        np.testing.assert_array_equal(flat(rows, columns), expected)
        counts = how(lambda i: tnp.bincount(i, length=N))(tnp.array(i))
        np.testing.assert_array_equal(counts, np.bincount(i, minlength=N))
    outside = tnp.array([-1, -301, 300, 7])
    expected = jnp.unravel_index(np.asarray(outside), shape)
    same(td.jit(lambda i: tnp.unravel_index(i, shape))(outside), expected)
    same(tnp.unravel_index(outside, shape), expected)


def test_errors_of_get() -> None:
    x, i = tnp.array(X), tnp.array([0])
    for wrong in (
        lambda **o: x.at[i].get(**o),
        lambda **o: x.at[i].apply(tnp.sin, **o),
        lambda **o: x.at[i].add(1, **o),
        lambda **o: tnp.take(x, i, **o),
    ):
        with pytest.raises(ValueError, match=r"mode 'raise' is none of 'fill', 'drop'"):
            wrong(mode="raise")
    with pytest.raises(ValueError, match=r"fill_value must be a scalar.*\(2,\)"):
        x.at[i].get(mode="fill", fill_value=np.ones(2))
    with pytest.raises(TypeError, match=r"astype\(int\)"):
        tnp.take_along_axis(x, X[:1], 0)
