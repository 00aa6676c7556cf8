"""`x[...]` and `x.at[...]` agree with NumPy on every index that hypothesis finds."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treadle as td
import treadle.numpy as tnp
from tests.core.np.oracle import same

SHAPE = (4, 3, 5)
X = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)


def slices(n: int) -> st.SearchStrategy[slice]:
    bound = st.one_of(st.none(), st.integers(-n - 2, n + 2))
    step = st.sampled_from([None, 1, 2, -1, -2, 3])
    return st.builds(slice, bound, bound, step)


def arrays(n: int, shape: tuple[int, ...]) -> st.SearchStrategy[np.ndarray]:
    count = int(np.prod(shape))
    values = st.lists(st.integers(-n, n - 1), min_size=count, max_size=count)
    return values.map(lambda v: np.array(v, np.int32).reshape(shape))


@st.composite
def indices(draw: Any, with_arrays: bool = True) -> tuple[Any, ...]:
    """An index of an array of SHAPE: slices, integers, arrays, None, an ellipsis."""
    used = draw(st.integers(0, 3))
    after = draw(st.integers(0, used))
    shape = draw(st.sampled_from([(), (2,), (3, 2)]))
    places = [*range(used - after), *range(3 - after, 3)]
    items: list[Any] = []
    for axis in places:
        n = SHAPE[axis]
        choices = [slices(n), st.integers(-n, n - 1)]
        if with_arrays:
            choices += [arrays(n, shape), arrays(n, shape[:0] or (1,))]
        items.append(draw(st.one_of(choices)))
    items.insert(used - after, Ellipsis)
    for _ in range(draw(st.integers(0, 2))):
        items.insert(draw(st.integers(0, len(items))), None)
    return tuple(items)


def split_traced(index: tuple[Any, ...]) -> tuple[list[Any], Any]:
    """The integers and arrays of an index, and how to put them back."""
    moving = [i for i in index if isinstance(i, int | np.ndarray)]

    def rebuild(values: Any) -> tuple[Any, ...]:
        rest = iter(values)
        return tuple(
            next(rest) if isinstance(i, int | np.ndarray) else i for i in index
        )

    return moving, rebuild


def empty_dots(index: tuple[Any, ...]) -> bool:
    """Whether NumPy sees an ellipsis between arrays that stands for no axis: it then
    counts them as apart."""
    return sum(i is not None and i is not Ellipsis for i in index) == len(SHAPE)


@given(indices())
@settings(max_examples=200)
def test_reads_as_numpy(index: tuple[Any, ...]) -> None:
    if empty_dots(index):
        index = tuple(i for i in index if i is not Ellipsis)
    same(tnp.array(X)[index], X[index])


@given(indices())
@settings(max_examples=25)
def test_reads_with_traced_indices(index: tuple[Any, ...]) -> None:
    if empty_dots(index):
        index = tuple(i for i in index if i is not Ellipsis)
    moving, rebuild = split_traced(index)
    found = td.jit(lambda x, *values: x[rebuild(values)])(X, *moving)
    same(found, X[index])


@given(indices(), st.sampled_from(["set", "add", "multiply", "min", "max"]))
@settings(max_examples=60)
def test_updates_as_numpy(index: tuple[Any, ...], how: str) -> None:
    if empty_dots(index):
        index = tuple(i for i in index if i is not Ellipsis)
    if how == "set" and _repeats(index):
        return
    shape = X[index].shape
    value = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    for change in (value, 2.0):
        expected = _updated(index, how, change)
        same(getattr(tnp.array(X).at[index], how)(change), expected, close=8)


UPDATES = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}


def _updated(index: tuple[Any, ...], how: str, value: Any) -> np.ndarray:
    updated = X.copy()
    if how == "set":
        updated[index] = value
    else:
        # By places in the flat array: `at` does not take every index.
        places = np.arange(X.size).reshape(SHAPE)[index]
        UPDATES[how].at(updated.reshape(-1), places, value)
    return updated


def _repeats(index: tuple[Any, ...]) -> bool:
    places = np.arange(X.size).reshape(SHAPE)[index]
    return np.unique(places).size != places.size


@given(indices(), st.sampled_from(["set", "add", "max"]))
@settings(max_examples=20)
def test_updates_with_traced_indices(index: tuple[Any, ...], how: str) -> None:
    if empty_dots(index):
        index = tuple(i for i in index if i is not Ellipsis)
    if how == "set" and _repeats(index):
        return
    moving, rebuild = split_traced(index)
    value = np.random.default_rng(1).normal(size=X[index].shape).astype(np.float32)

    def update(x: Any, v: Any, *values: Any) -> Any:
        return getattr(x.at[rebuild(values)], how)(v)

    expected = _updated(index, how, value)
    same(td.jit(update)(X, value, *moving), expected, close=8)


GRADIENTS: list[Any] = [
    (1, slice(None), 2),
    (slice(None, None, -2), None, 0),
    (np.array([0, 3, 0]),),
    (slice(None), np.array([[0, 1], [2, 2]]), slice(1, 4)),
    (np.array([0, 1]), slice(None), np.array([2, 4])),
    (X[:, 0, 0] > 0,),
]


@pytest.mark.parametrize("index", GRADIENTS, ids=str)
def test_reading_is_differentiable(index: Any) -> None:
    found = td.grad(lambda x: (tnp.sin(x[index]) * 2).sum())(tnp.array(X))
    expected = jax.grad(lambda x: (jnp.sin(x[index]) * 2).sum())(X)
    same(found, expected)


@pytest.mark.parametrize("index", GRADIENTS[:2] + GRADIENTS[3:], ids=str)
@pytest.mark.parametrize("how", ["set", "add", "multiply"])
def test_updating_is_differentiable(index: Any, how: str) -> None:
    if how == "multiply" and any(isinstance(i, np.ndarray) for i in index):
        pytest.skip("JAX has no derivative")
    value = np.random.default_rng(1).normal(size=X[index].shape).astype(np.float32)

    def loss(module: Any, x: Any, v: Any) -> Any:
        return module.sin(getattr(x.at[index], how)(v)).sum()

    found = td.grad(lambda x, v: loss(tnp, x, v), (0, 1))(tnp.array(X), value)
    expected = jax.grad(lambda x, v: loss(jnp, x, v), (0, 1))(jnp.asarray(X), value)
    if how == "set" and _repeats(index if isinstance(index, tuple) else (index,)):
        return
    same(found, expected, close=16)


def test_masks() -> None:
    x = tnp.array(X)
    mask = X > 0
    same(x[mask], X[mask])
    same(x[mask[:, 0, 0]], X[mask[:, 0, 0]])
    same(x[:, mask[0, :, 0]], X[:, mask[0, :, 0]])
    same(x.at[mask].set(0.0), np.where(mask, np.float32(0), X))
    same(x.at[tnp.array(mask)].add(1.0), np.where(mask, X + 1, X))


def test_other_updates() -> None:
    x = tnp.array([1.0, 2.0, 4.0])
    assert x.at[1:].divide(2).tolist() == [1, 1, 2]
    assert x.at[1].power(3).tolist() == [1, 8, 4]
    assert x.at[1:].subtract(tnp.array([1.0, 2.0])).tolist() == [1, 1, 2]
    assert x.at[:2].apply(lambda v: -v).tolist() == [-1, -2, 4]
    assert x.at[[0, 2]].get().tolist() == [1, 4]
    assert tnp.array([4, 6]).at[0].divide(2).tolist() == [2, 6]
    assert x.at[np.array([0, 0, 1])].add(1).tolist() == [3, 3, 4]
    assert x.at[1].set(7).dtype == tnp.float32


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint32", "float16"])
@pytest.mark.parametrize("value", [1.5, 2, [1.5, 2.0], np.float32(2.5)], ids=str)
def test_what_is_subtracted_has_the_dtype(value: Any, dtype: str) -> None:
    """Of unsigned numbers, too, which have no negative ones to add."""
    x = np.array([1, 250 if dtype == "uint8" else 100], dtype)
    wanted = x - np.asarray(value).astype(dtype)
    for out in (
        tnp.asarray(x).at[:].subtract(value),
        td.jit(lambda x: x.at[:].subtract(value))(x),
    ):
        assert out.dtype == dtype
        np.testing.assert_array_equal(out, wanted)
    with pytest.raises(TypeError, match="sub is not defined for dtype bool"):
        tnp.ones(2, bool).at[:].subtract(True)


@pytest.mark.parametrize("value", [[1, 2], (3, 0.5), [[1.0, 2], [3, 4]]], ids=str)
def test_updates_by_lists(value: Any) -> None:
    x = np.random.default_rng(0).uniform(1, 2, (2, 3)).astype("float32")
    for how in ("set", "add", "subtract", "multiply", "divide", "power", "min", "max"):
        wanted = getattr(jnp.asarray(x).at[:, 1:], how)(value)
        eager = getattr(tnp.asarray(x).at[:, 1:], how)(value)
        jitted = td.jit(lambda x, how=how: getattr(x.at[:, 1:], how)(value))(x)
        for out in (eager, jitted):
            assert out.dtype == wanted.dtype
            np.testing.assert_allclose(out, wanted, rtol=1e-6, err_msg=how)
    traced = td.jit(lambda a: tnp.zeros(4).at[tnp.array(1)].set(0).at[1:3].set([a, 7]))
    assert traced(5.0).tolist() == [0, 5, 7, 0]
    with pytest.raises(ValueError, match=r"a value of shape \(3,\) does not broadcast"):
        tnp.zeros(4).at[:2].set([1, 2, 3])
    with pytest.raises(TypeError, match=r"got a dict(.|\n)*gives it its arrays"):
        tnp.zeros(4).at[:2].set({"a": 1})


def test_traced_indices_out_of_range() -> None:
    x = tnp.arange(3)
    read = td.jit(lambda i: x[i])
    assert [read(i).item() for i in (-5, -1, 0, 2, 9)] == [0, 2, 0, 2, 2]
    filled = td.jit(lambda i: x.at[i].get(mode="fill", fill_value=-7))
    assert [filled(i).item() for i in (-5, -1, 2, 9)] == [-7, 2, 2, -7]
    written = td.jit(lambda i: x.at[i].set(9))
    assert [written(i).tolist() for i in (-1, 3)] == [[0, 1, 9], [0, 1, 2]]
    many = td.jit(lambda i: x.at[i].add(1))
    assert many(np.array([0, 7, -9, -1])).tolist() == [1, 1, 3]


def test_take_and_take_along_axis() -> None:
    x = tnp.array(X)
    i = np.array([[2, 0], [1, -1]])
    same(tnp.take(x, i, 1), np.take(X, i, 1))
    same(tnp.take(x, i), np.take(X, i))
    same(x.take(2, 0), X[2])
    order = np.argsort(X, 1).astype(np.int32)
    same(tnp.take_along_axis(x, order, 1), np.take_along_axis(X, order, 1))
    one = np.zeros((4, 1, 5), np.int32)
    same(tnp.take_along_axis(x, one, 1), np.take_along_axis(X, one, 1))
    wide = np.zeros((1, 2, 1), np.int32)
    same(tnp.take_along_axis(x, wide, 1), X[:, [0, 0]])


def test_vmap_over_indices() -> None:
    i = np.array([2, 0, 1, 2], np.int32)
    same(td.vmap(lambda row, k: row[k])(X, i), X[np.arange(4), i])
    same(
        td.vmap(lambda row, k: row.at[k, 0].set(9.0))(X, i),
        jax.vmap(lambda row, k: row.at[k, 0].set(9.0))(X, i),
    )
    same(
        td.vmap(lambda k: tnp.array(X)[k], out_axes=1)(i),
        np.moveaxis(X[i], 0, 1),
    )


def test_rows_of_an_array() -> None:
    x = tnp.arange(6).reshape(3, 2)
    assert [row.tolist() for row in x] == [[0, 1], [2, 3], [4, 5]]
    _, b, _ = td.jit(lambda v: tuple(v))(x)
    assert b.tolist() == [2, 3]
    assert len(x) == 3 and 4 in x and 9 not in x


@pytest.mark.parametrize(
    "index, error, message",
    [
        (5, IndexError, "index 5 is out of range for axis 0 of length 4"),
        ((0, -4), IndexError, "index -4 is out of range for axis 1 of length 3"),
        ((0, 0, 0, 0), IndexError, "4 indices for an array with 3 axes"),
        ((..., 0, ...), IndexError, "one `...`"),
        (1.0, TypeError, r"got float 1\.0"),
        ("a", TypeError, "got str 'a'"),
        (np.array([1.0]), TypeError, r"f64\[1\][\s\S]*astype\(int\)"),
        (np.array([0, 4]), IndexError, "index 4 is out of range for axis 0"),
        (np.ones(3, bool), IndexError, "mask has length 3 along axis 0"),
        (slice(0, 2, 0), ValueError, "step cannot be zero"),
    ],
    ids=str,
)
def test_index_errors(index: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        tnp.array(X)[index]


def test_errors_of_updates() -> None:
    x = tnp.zeros(3)
    with pytest.raises(TypeError, match=r"immutable[\s\S]*x = x\.at\[index\]\.set"):
        x[0] = 1.0
    with pytest.raises(ValueError, match=r"shape \(2,\) does not broadcast.*\(3,\)"):
        x.at[:].set(tnp.ones(2))
    with pytest.raises(IndexError, match="out of range"):
        x.at[3].set(1.0)


def test_what_tracing_does_not_know() -> None:
    with pytest.raises(TypeError, match=r"mask[\s\S]*tnp\.where"):
        td.jit(lambda x: x[x > 0])(X)
    with pytest.raises(TypeError, match=r"td\.lax\.dynamic_slice_in_dim"):
        td.jit(lambda x, i: x[i : i + 2])(X, 1)


TRUTHS = [
    *(True, False, (True, False), (True, None), (..., False), np.array(True)),
    *((0, True), (slice(1), True), (True, slice(1)), ([0, 1], True), (True, ..., 0)),
    *((None, np.False_), (np.array([True, False]), True)),
]


@pytest.mark.parametrize("index", TRUTHS, ids=str)
def test_single_truth_values(index: Any) -> None:
    """They are masks without axes: one element of a new axis, or none."""
    x = np.arange(6, dtype="float32").reshape(2, 3)
    for f in (lambda x: tnp.asarray(x)[index], td.jit(lambda x: x[index])):
        found = np.asarray(f(x))
        assert found.shape == x[index].shape
        np.testing.assert_array_equal(found, x[index])
    wanted = x.copy()
    wanted[index] += 5
    for f in (
        lambda x: tnp.asarray(x).at[index].add(5),
        td.jit(lambda x: x.at[index].add(5)),
    ):
        np.testing.assert_array_equal(f(x), wanted)


@pytest.mark.parametrize("truth", [True, False])
def test_single_truth_values_of_a_scalar(truth: bool) -> None:
    x = np.float32(3)
    for f in (lambda x: tnp.asarray(x)[truth], td.jit(lambda x: x[truth])):
        np.testing.assert_array_equal(f(x), np.asarray(x)[truth], strict=True)
    for f in (
        lambda x: tnp.asarray(x).at[truth].set(5),
        td.jit(lambda x: x.at[truth].set(5)),
    ):
        np.testing.assert_array_equal(f(x), np.float32(5 if truth else 3), strict=True)
