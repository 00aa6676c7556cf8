"""Losses where there is nothing, no way, no class, or a slip."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import close, random
from treadle import nn

LENGTHS = np.array([9, 6, 4, 9], np.int32), np.array([3, 3, 0, 2], np.int32)
SPELLED = np.array([[1, 2, 2], [3, 1, 3], [2, 2, 2], [4, 4, 1]], np.int32)


def test_ntxent_is_finite_where_a_row_has_no_other_label() -> None:
    vectors = tnp.asarray(100 * random(4, 3))

    def loss(x: Any) -> Any:
        return nn.ntxent(x, tnp.zeros(4, int), 1e-3).sum()

    assert loss(vectors) == 0
    assert np.isfinite(np.asarray(td.grad(loss)(vectors))).all()


def test_ctc_sums_over_all_ways() -> None:
    logits, label = random(4, 3), [2, 2]
    p = np.asarray(jax.nn.softmax(logits))
    total = 0.0
    for way in np.ndindex(3, 3, 3, 3):
        short = [c for i, c in enumerate(way) if i == 0 or way[i - 1] != c]
        if [c for c in short if c != 1] == label:
            total += np.prod([p[t, c] for t, c in enumerate(way)])
    close(nn.ctc(logits, np.array(label), blank=1), np.float32(-np.log(total)))


def test_ctc_without_a_way_is_infinite() -> None:
    logits, labels = tnp.asarray(random(2, 3, 4)), tnp.array([[1, 1], [1, 2]])
    found = nn.ctc(logits, labels, tnp.array([2, 2]))
    assert np.isinf(found).tolist() == [True, False]
    grads = td.grad(lambda x: nn.ctc(x, labels, tnp.array([2, 2])).sum())(logits)
    assert not np.any(grads[0]) and np.isfinite(np.asarray(grads)).all()
    assert np.any(grads[1])


def test_ctc_maps_over_any_leading_axes() -> None:
    x, (frames, letters) = random(4, 9, 5), LENGTHS
    whole = nn.ctc(x, SPELLED, frames, letters)
    close(td.vmap(nn.ctc)(x, SPELLED, frames, letters), whole)
    square = nn.ctc(
        x.reshape(2, 2, 9, 5), SPELLED.reshape(2, 2, 3), *[
            n.reshape(2, 2) for n in LENGTHS
        ]
    )  # fmt: skip
    close(square.reshape(4), whole)


def test_masks_of_classes_leave_no_trace() -> None:
    """A row without classes costs nothing, and has gradients of zero."""
    where = tnp.array([[True, False, True], [False] * 3])
    x = tnp.array([[1.0, np.nan, 2.0], [np.nan] * 3])

    def loss(x: Any) -> Any:
        return nn.cross_entropy(x, tnp.array([0, 1]), 0.1, where=where)

    expected = nn.cross_entropy(x[:1, ::2], tnp.array([0]), 0.1)
    np.testing.assert_allclose(loss(x), [expected[0], 0], rtol=1e-6)
    assert np.isfinite(np.asarray(td.grad(lambda x: loss(x).sum())(x))).all()


def test_targets_take_the_dtype_of_predictions() -> None:
    x = tnp.ones((2, 3))
    for loss in (nn.squared_error, nn.binary_cross_entropy, nn.cross_entropy, nn.hinge):
        assert loss(x, np.ones((2, 3))).dtype == td.float32


def test_shapes_that_do_not_fit() -> None:
    x, y = tnp.ones((2, 3)), tnp.ones(3)
    with pytest.raises(ValueError, match=r"three arrays of one shape; got f32\[2,3\]"):
        nn.triplet_margin(x, x, y)
    with pytest.raises(
        ValueError, match=r"focal takes logits \(..., classes\) and int"
    ):
        nn.focal(x, y)
    with pytest.raises(ValueError, match=r"scores f32\[2,3\] and labels f32\[3\]"):
        nn.multi_margin(x, y)
    with pytest.raises(ValueError, match=r"Of several batches take it by `td.vmap`"):
        nn.ntxent(x[None], y)
    with pytest.raises(ValueError, match=r"got f32\[3\] and i32\[3\]"):
        nn.ctc(x[0], tnp.zeros(3, int))
    with pytest.raises(ValueError, match=r"label_lengths has one number for each sequ"):
        nn.ctc(x, tnp.zeros(2, int), None, tnp.zeros(3, int))
