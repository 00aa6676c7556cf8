"""Reshaping, joining, repeating, padding, patterns: as JAX has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import treadle as td
import treadle.numpy as tnp
from tests.core.np.oracle import (
    Case,
    bools,
    check,
    check_batched,
    check_gradient,
    floats,
    ints,
)

X, Y = floats(2, 3, 4), floats(2, 3, 4, seed=5)
WIDE = np.full((2, 3, 4), -(2**31), np.int32)
V, M = floats(5), floats(4, 5)

CASES = [
    Case("reshape", lambda np, x: np.reshape(x, (4, -1)), (X,)),
    Case("reshape-int", lambda np, x: np.reshape(x, 24), (X,)),
    Case("ravel", lambda np, x: np.ravel(x), (X,)),
    Case("transpose", lambda np, x: np.transpose(x), (X,)),
    Case("transpose-axes", lambda np, x: np.transpose(x, (1, -1, 0)), (X,)),
    Case("matrix_transpose", lambda np, x: np.matrix_transpose(x), (X,)),
    Case("swapaxes", lambda np, x: np.swapaxes(x, 0, -1), (X,)),
    Case("moveaxis", lambda np, x: np.moveaxis(x, 0, -1), (X,)),
    Case("moveaxis-two", lambda np, x: np.moveaxis(x, (0, 2), (2, 1)), (X,)),
    Case("expand_dims", lambda np, x: np.expand_dims(x, (0, -1)), (X,)),
    Case("squeeze", lambda np, x: np.squeeze(x[:1]), (X,)),
    Case("squeeze-axis", lambda np, x: np.squeeze(x[:, :1], 1), (X,)),
    Case("broadcast_to", lambda np, x: np.broadcast_to(x, (3, 4, 5)), (M,)),
    Case("broadcast_arrays", lambda np, x, y: np.broadcast_arrays(x, y), (M, V)),
    Case("flip", lambda np, x: np.flip(x), (X,)),
    Case("flip-axis", lambda np, x: np.flip(x, (0, -1)), (X,)),
    *[
        Case(f"rot90-{k}", lambda np, x, k=k: np.rot90(x, k), (X,))
        for k in range(-1, 4)
    ],
    Case("fliplr", lambda np, x: np.flipud(np.fliplr(x)), (X,)),
    Case("append", lambda np, x, y: np.append(x, y), (X, V)),
    Case("dstack", lambda np, x, y: np.dstack([x, y]), (V, V)),
    Case("unstack", lambda np, x: np.unstack(x, axis=1), (X,)),
    Case("hsplit", lambda np, x: np.hsplit(x, 3), (X,)),
    Case("hsplit-vector", lambda np, x: np.hsplit(x, [2]), (V,)),
    Case("vsplit", lambda np, x: np.vsplit(x, 2), (X,)),
    Case("vander", lambda np, x: np.vander(x, 3), (V,)),
    Case("vander-up", lambda np, x: np.vander(x, increasing=True), (V,), close=16),
    Case("atleast_1d", lambda np, x: np.atleast_1d(x), (floats(),)),
    Case("atleast_2d", lambda np, x: np.atleast_2d(x), (V,)),
    Case("atleast_3d", lambda np, x, y: np.atleast_3d(x, y), (V, M)),
    Case("concatenate", lambda np, x, y: np.concatenate([x, y], 1), (X, Y)),
    Case("concatenate-flat", lambda np, x, y: np.concatenate([x, y], None), (X, V)),
    Case("concatenate-mixed", lambda np, x, y: np.concatenate([x, y]), (V, ints(3))),
    Case("concatenate-one", lambda np, x: np.concatenate([x]), (X,)),
    Case("concatenate-array", lambda np, x: np.concatenate(x), (X,)),
    Case("stack", lambda np, x, y: np.stack([x, y], -1), (X, Y)),
    Case("stack-scalars", lambda np, x: np.stack([x[0], x[1], 2.0]), (V,)),
    Case("hstack", lambda np, x, y: np.hstack([x, y]), (X, Y)),
    Case("hstack-vectors", lambda np, x, y: np.hstack([x, y]), (V, V)),
    Case("vstack", lambda np, x, y: np.vstack([x, y]), (V, V)),
    Case("column_stack", lambda np, x, y: np.column_stack([x, y]), (V, V)),
    Case("split", lambda np, x: np.split(x, 3, 1), (X,)),
    Case("split-at", lambda np, x: np.split(x, [1, 3], -1), (X,)),
    Case("array_split", lambda np, x: np.array_split(x, 3), (V,)),
    Case("tile", lambda np, x: np.tile(x, (2, 1, 3)), (M,)),
    Case("tile-int", lambda np, x: np.tile(x, 3), (V,)),
    Case("unstack-none", lambda np, x: np.unstack(x[:0]), (X,)),
    Case("repeat-scalar", lambda np, x: np.repeat(x[0, 0], 3), (M,)),
    Case("repeat-scalar-axis", lambda np, x: np.repeat(x[0, 0], 3, axis=0), (M,)),
    Case("repeat", lambda np, x: np.repeat(x, 3), (M,)),
    Case("repeat-axis", lambda np, x: np.repeat(x, 2, axis=1), (X,)),
    Case("roll", lambda np, x: np.roll(x, 2), (M,)),
    Case("roll-axis", lambda np, x: np.roll(x, -1, axis=1), (X,)),
    Case("roll-axes", lambda np, x: np.roll(x, (1, 2), axis=(0, 2)), (X,)),
    Case("roll-twice", lambda np, x: np.roll(x, (1, 3), axis=1), (X,)),
    Case("hstack-dtype", lambda np, n, x: np.hstack([n, x], dtype="int16"), (WIDE, X)),
    Case("pad", lambda np, x: np.pad(x, ((1, 2), (0, 3))), (M,)),
    Case("pad-all", lambda np, x: np.pad(x, 2, constant_values=1.5), (M,)),
    *[
        Case(
            f"pad-{mode}-{width}",
            lambda np, x, m=mode, w=width: np.pad(x, ((w, 1), (0, w)), mode=m),
            (M,),
        )
        for mode in ("edge", "reflect", "symmetric", "wrap")
        for width in (1, 3, 7)
    ],
    Case("tril", lambda np, x: np.tril(x, 1), (X,)),
    Case("triu", lambda np, x: np.triu(x, -1), (X,)),
    Case("tril-bool", lambda np, x: np.tril(x), (bools(4, 5),)),
    Case("diag", lambda np, x: np.diag(x), (M,)),
    Case("diag-off", lambda np, x: np.diag(x, -2), (M,)),
    Case("diag-vector", lambda np, x: np.diag(x), (V,)),
    Case("diag-vector-off", lambda np, x: np.diag(x, 2), (V,)),
    Case("diag-vector-below", lambda np, x: np.diag(x, -1), (V,)),
    Case("diagonal", lambda np, x: np.diagonal(x, 1, 0, 2), (X,)),
    Case("meshgrid", lambda np, x, y: np.meshgrid(x, y), (V, floats(3))),
    Case("meshgrid-ij", lambda np, x, y: np.meshgrid(x, y, indexing="ij"), (V, V)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_agrees(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_batched(case: Case) -> None:
    check_batched(case)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_gradient(case: Case) -> None:
    if case.args[0].dtype == np.float32:
        check_gradient(case)


@given(st.data())
def test_reshapes_agree_with_numpy(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), max_size=4)))
    x = np.arange(int(np.prod(shape))).reshape(shape).astype(np.int32)
    order = data.draw(st.permutations(range(len(shape))))
    flat = data.draw(st.booleans())
    moved = tnp.array(x).transpose(*order)
    expected = x.transpose(order)
    if flat:
        moved, expected = moved.ravel(), expected.ravel()
    np.testing.assert_array_equal(moved, expected)


def wrong_shape(x: Any) -> Any:
    return tnp.concatenate([x, tnp.ones((2, 4))])


@pytest.mark.parametrize(
    "use, message",
    [
        (lambda x: x.reshape(5), r"\(6 elements\).*\[5\]"),
        (lambda x: x.reshape(4, -1), r"can't reshape \(2, 3\) \(6 elements\)"),
        (lambda x: x.reshape(-2, 3), "negative length"),
        (lambda x: tnp.broadcast_to(x, (3, 2)), r"broadcast_to.*\(2, 3\).*\(3, 2\)"),
        (lambda x: tnp.squeeze(x, 0), "axis 0 of shape.*length 2"),
        (lambda x: x.transpose(0, 0), "not a permutation"),
        (
            lambda x: tnp.split(x, 2, 1),
            r"length 3 can't be cut into 2[\s\S]*array_split",
        ),
        (wrong_shape, r"shapes \(2, 3\) and \(2, 4\) differ"),
        (lambda x: tnp.stack([x, x[0]]), r"stack: shapes \(2, 3\) and \(3,\) differ"),
        (lambda x: tnp.roll(x, (1, 2, 3), (0, 1)), "roll: 3 shifts for 2 axes"),
        (lambda x: tnp.stack([]), "stack of no arrays"),
        (lambda x: tnp.pad(x, ((1, 2, 3),)), "give .before, after. for each"),
        (lambda x: tnp.pad(x, 1, mode="odd"), "mode 'odd' is none of"),
        (tnp.vander, r"vander takes a vector, got f32\[2,3\]"),
    ],
)
def test_errors(use: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        use(tnp.ones((2, 3)))


def test_arrays_that_are_known_may_say_shapes_and_places() -> None:
    x = np.arange(6)
    two, places = np.array([1, 2]), tnp.array([1, 2])
    for f, e in zip(tnp.split(x, places), np.split(x, two), strict=True):
        np.testing.assert_array_equal(f, e)
    np.testing.assert_array_equal(tnp.pad(x, places), np.pad(x, two))
    np.testing.assert_array_equal(tnp.tile(x, places), np.tile(x, two))
    np.testing.assert_array_equal(tnp.zeros(places), np.zeros(two))
    with pytest.raises(td.errors.TracerError):
        td.jit(lambda n: tnp.zeros(n))(places)


def test_shapes_must_be_integers() -> None:
    with pytest.raises(TypeError, match="tuple of integers, got"):
        tnp.ones(3).reshape(1.5, 2)
    with pytest.raises(TypeError, match=r"zeros: a shape is a tuple of integers"):
        tnp.zeros((2.0,))


def test_axes_that_are_not_there_are_numpys_errors() -> None:
    x = np.ones((2, 3))
    for expand in (np.expand_dims, tnp.expand_dims):
        with pytest.raises(np.exceptions.AxisError, match="axis 3 is out of"):
            expand(x, 3)
    for total in (np.sum, tnp.sum):
        with pytest.raises(np.exceptions.AxisError, match="axis -3 is out of"):
            total(x, -3)
