"""Augmentation: what each may do to an image, on any sizes, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import ndimage, stats

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.data import augment

KEY = rng.key(3)


def pictures(count: int = 64, height: int = 12, width: int = 10) -> np.ndarray:
    """Every pixel is another number: where it comes from can be read off."""
    return (
        np.arange(1, count * height * width * 3 + 1)
        .reshape(count, height, width, 3)
        .astype(np.float32)
    )


CALLS: dict[str, Any] = {
    "random_flip": lambda x: augment.random_flip(KEY, x),
    "random_crop": lambda x: augment.random_crop(KEY, x, padding=2),
    "random_resized_crop": lambda x: augment.random_resized_crop(KEY, x, (6, 7)),
    "random_rotation": lambda x: augment.random_rotation(KEY, x, 20),
    "random_erasing": lambda x: augment.random_erasing(KEY, x),
    "color_jitter": lambda x: augment.color_jitter(
        KEY, x, brightness=0.3, contrast=0.3, saturation=0.3
    ),
    "cutmix": lambda x: augment.cutmix(KEY, x, x.mean((1, 2))),
    "mixup": lambda x: augment.mixup(KEY, x, x.mean((1, 2))),
}


@pytest.mark.parametrize("name", CALLS)
def test_compiled_it_does_the_same_on_any_size(name: str) -> None:
    compiled = td.jit(CALLS[name])
    for shape in ((4, 12, 10), (3, 12, 10), (7, 9, 8), (2, 16, 5)):
        x = tnp.asarray(pictures(*shape))
        for found, plain in zip(
            td.tree.leaves(compiled(x)), td.tree.leaves(CALLS[name](x)), strict=True
        ):
            assert found.dtype == np.float32
            # A value near an edge may be drawn to its other side.
            share = np.isclose(found, plain, rtol=1e-4).mean()
            assert share > 0.99
    assert compiled.report().traces <= 4


def test_flips() -> None:
    x = pictures(400)
    y = np.asarray(augment.random_flip(KEY, x, p=0.3))
    flipped = (y == x[:, :, ::-1]).all((1, 2, 3))
    assert (flipped | (y == x).all((1, 2, 3))).all()
    assert stats.binomtest(int(flipped.sum()), 400, 0.3).pvalue > 1e-3
    up = np.asarray(augment.random_flip(KEY, x, p=1.0, axis=1))
    assert (up == x[:, ::-1]).all()


def test_crops() -> None:
    x = pictures()
    y = np.asarray(augment.random_crop(KEY, x, (5, 4)))
    places = set()
    for one, whole in zip(y, x, strict=True):
        (top,), (left,), _ = np.nonzero(whole == one[0, 0, 0])
        places.add((int(top), int(left)))
        assert (whole[top : top + 5, left : left + 4] == one).all()
    assert {p[0] for p in places} == set(range(8))
    assert {p[1] for p in places} == set(range(7))
    padded = np.asarray(augment.random_crop(KEY, x, padding=3))
    assert padded.shape == x.shape and (padded == 0).any()
    wrapped = np.asarray(augment.random_crop(KEY, x, padding=3, mode="reflect"))
    assert (wrapped > 0).all()
    with pytest.raises(ValueError, match="a window of 13x4 is larger"):
        augment.random_crop(KEY, x, (13, 4))


def test_resized_crops_keep_straight_lines() -> None:
    """Of a picture whose values grow evenly, every part does."""
    down, across = np.mgrid[0:40, 0:30].astype(np.float32)
    x = np.broadcast_to(np.stack([down, across], -1), (50, 40, 30, 2))
    y = np.asarray(augment.random_resized_crop(KEY, x, (8, 8), scale=(0.2, 0.5)))
    inner = y[:, 1:-1, 1:-1]
    rows, columns = np.diff(inner[..., 0], axis=1), np.diff(inner[..., 1], axis=2)
    heights, widths = 8 * rows.mean((1, 2)), 8 * columns.mean((1, 2))
    assert np.abs(rows - heights[:, None, None] / 8).max() < 0.3
    area = heights * widths / 1200
    assert 0.18 < area.min() < 0.25 and 0.42 < area.max() < 0.52
    shape = widths / heights
    assert 0.73 < shape.min() < 0.85 and 1.2 < shape.max() < 1.36


def test_rotation_is_that_of_scipy() -> None:
    x = np.random.default_rng(0).random((4, 15, 15, 1), np.float32)
    y = np.asarray(augment.random_rotation(KEY, x, 40))
    angles = np.asarray(rng.uniform(KEY, (4,), minval=-1, maxval=1)) * 40
    for one, whole, angle in zip(y, x, angles, strict=True):
        expected = ndimage.rotate(whole[..., 0], -angle, reshape=False, order=1)
        np.testing.assert_allclose(one[3:-3, 3:-3, 0], expected[3:-3, 3:-3], atol=1e-3)
    np.testing.assert_array_equal(augment.random_rotation(KEY, x, 0), x)


def test_erasing() -> None:
    x = np.ones((500, 20, 30, 2), np.float32)
    y = np.asarray(augment.random_erasing(KEY, x, p=0.4, scale=(0.1, 0.2), fill=0))
    gone = 1 - y.mean((1, 2, 3))
    assert stats.binomtest(int((gone > 0).sum()), 500, 0.4).pvalue > 1e-3
    assert gone[gone > 0].min() > 0.08 and gone.max() < 0.23
    for one in y[gone > 0]:
        rows, columns = np.nonzero(one[..., 0] == 0)
        area = (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
        assert area == len(rows), "not a rectangle"


def test_colours() -> None:
    x = np.random.default_rng(0).random((30, 4, 4, 3), np.float32)
    bright = np.asarray(augment.color_jitter(KEY, x, brightness=0.4)) / x
    assert np.ptp(bright, axis=(1, 2, 3)).max() < 1e-5
    assert 0.6 <= bright.min() < 0.75 and 1.25 < bright.max() <= 1.4
    grey = np.array([0.299, 0.587, 0.114])
    y = np.asarray(augment.color_jitter(KEY, x, saturation=0.9))
    np.testing.assert_allclose(y @ grey, x @ grey, atol=1e-5)
    z = np.asarray(augment.color_jitter(KEY, x, contrast=0.9))
    np.testing.assert_allclose((z @ grey).mean((1, 2)), (x @ grey).mean((1, 2)), 1e-4)
    with pytest.raises(ValueError, match="3 channels, got f32"):
        augment.color_jitter(KEY, x[..., :1], saturation=0.5)


def test_mixtures() -> None:
    x, labels = pictures(16), np.eye(16, dtype=np.float32)
    mixed, targets = map(np.asarray, augment.mixup(KEY, x, labels, alpha=1.0))
    np.testing.assert_allclose(targets.sum(-1), 1, rtol=1e-6)
    np.testing.assert_allclose(mixed, np.einsum("ij,j...->i...", targets, x), rtol=1e-4)
    cut, targets = map(np.asarray, augment.cutmix(KEY, x, labels))
    for i, (one, target) in enumerate(zip(cut, targets, strict=True)):
        own = (one == x[i]).all(-1)
        if target[i] < 1:
            (other,) = np.nonzero(np.delete(target, i))[0]
            other += other >= i
            assert (own | (one == x[other]).all(-1)).all()
            np.testing.assert_allclose(own.mean(), target[i], atol=1e-5)
    with pytest.raises(ValueError, match=r"floats, got i(32|64)\[4\][\s\S]*one_hot"):
        augment.mixup(KEY, x[:4], np.arange(4))


def test_bytes_are_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"got u8\[2,4,4,3\][\s\S]*/ 255"):
        augment.random_flip(KEY, np.zeros((2, 4, 4, 3), np.uint8))
    with pytest.raises(ValueError, match="p is from 0 to 1, got 2"):
        augment.random_flip(KEY, np.zeros((2, 4, 4, 3), np.float32), p=2)
