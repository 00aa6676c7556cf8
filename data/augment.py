"""Changes of images at random, as part of a compiled training step.

Images are (n, height, width, channels) of floats, each changed in its own way. The key
comes first, as everywhere in `treadle.rng`; the same key makes the same changes.
"""

from __future__ import annotations

import math
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import image, rng
from treadle.errors import at, user_source
from treadle.scipy import ndimage

__all__ = [
    "color_jitter",
    "cutmix",
    "mixup",
    "random_crop",
    "random_erasing",
    "random_flip",
    "random_resized_crop",
    "random_rotation",
]

Array = td.Array


def _images(name: str, images: Any) -> Array:
    images = tnp.asarray(images)
    if images.ndim == 4 and td.dtypes.is_float(images.dtype):
        return images
    remedy = ""
    if not td.dtypes.is_float(images.dtype):
        remedy = (
            "\nPixels of bytes become floats by `images.astype(tnp.float32) / 255`."
        )
    raise ValueError(
        f"{name} takes floating images (n, height, width, channels), got "
        f"{td.typeof(images)}{at(user_source())}{remedy}"
    )


def _each(values: Array) -> Array:
    """A number per image, to be multiplied with images."""
    return values[:, None, None, None]


def _chance(name: str, p: Any) -> Any:
    if isinstance(p, int | float) and not 0 <= p <= 1:
        raise ValueError(f"{name}: p is from 0 to 1, got {p}{at(user_source())}")
    return p


def _least(name: str, option: str, value: Any) -> None:
    if isinstance(value, int | float) and not value >= 0:
        raise ValueError(
            f"{name}: {option} is 0 or more, got {value!r}{at(user_source())}"
        )


def _range(name: str, option: str, pair: Any, most: float) -> None:
    """The least and the greatest of what is drawn."""
    known = all(isinstance(value, int | float) for value in pair)
    if known and not 0 < pair[0] <= pair[1] <= most:
        above = "" if most == math.inf else f", at most {most:g}"
        raise ValueError(
            f"{name}: {option} is a least number above 0 and a greatest one{above}, "
            f"got {pair}{at(user_source())}"
        )


def random_flip(key: rng.Key, images: Any, p: Any = 0.5, axis: int = -2) -> Array:
    """Each image mirrored with probability p: left to right, or along another axis.

    >>> from treadle.data import augment
    >>> x = tnp.arange(4.0).reshape(1, 1, 4, 1)
    >>> augment.random_flip(rng.key(0), x, p=1.0).ravel()
    Array([3., 2., 1., 0.], dtype=float32)
    """
    images = _images("random_flip", images)
    flipped = rng.bernoulli(key, _chance("random_flip", p), (images.shape[0],))
    return tnp.where(_each(flipped), tnp.flip(images, axis), images)


def random_crop(
    key: rng.Key,
    images: Any,
    size: tuple[int, int] | None = None,
    *,
    padding: int = 0,
    mode: str = "constant",
) -> Array:
    """A window of each image, at a random place.

    Args:
      size: height and width of the window; by default those of the images.
      padding: how many pixels are first added on each side; `mode` is that of
        `tnp.pad`.

    Raises:
      ValueError: if the window is larger than the padded image.

    >>> from treadle.data import augment
    >>> augment.random_crop(rng.key(0), tnp.ones((5, 32, 32, 3)), padding=4).shape
    (5, 32, 32, 3)
    """
    _least("random_crop", "padding", padding)
    images = _images("random_crop", images)
    count, height, width = images.shape[:3]
    rows, columns = (height, width) if size is None else size
    if padding:
        ends = (padding, padding)
        images = tnp.pad(images, ((0, 0), ends, ends, (0, 0)), mode=mode)
    spare = images.shape[1] - rows, images.shape[2] - columns
    if min(spare) < 0:
        raise ValueError(
            f"random_crop: a window of {rows}x{columns} is larger than the images, "
            f"{td.typeof(images)}{at(user_source())}"
        )
    row_key, column_key = rng.split(key)
    top = rng.randint(row_key, (count, 1, 1), 0, spare[0] + 1)
    left = rng.randint(column_key, (count, 1, 1), 0, spare[1] + 1)
    which = tnp.arange(count)[:, None, None]
    down, across = tnp.arange(rows)[:, None], tnp.arange(columns)
    return images[which, top + down, left + across]


def random_resized_crop(
    key: rng.Key,
    images: Any,
    size: tuple[int, int],
    *,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    method: str = "linear",
) -> Array:
    """A part of each image, of a random area and shape, as an image of a given size.

    Args:
      size: height and width of the results.
      scale: the least and the greatest share of the image's area.
      ratio: the least and the greatest width of the part, as a multiple of its height.
      method: as for `td.image.resize`.

    Szegedy et al., *Going Deeper with Convolutions*, 2015.

    >>> from treadle.data import augment
    >>> x = tnp.ones((2, 40, 30, 3))
    >>> augment.random_resized_crop(rng.key(0), x, (16, 16)).shape
    (2, 16, 16, 3)
    """
    _range("random_resized_crop", "scale", scale, 1)
    _range("random_resized_crop", "ratio", ratio, math.inf)
    images = _images("random_resized_crop", images)
    count, height, width, channels = images.shape
    keys = rng.split(key, 4)
    area = rng.uniform(keys[0], (count,), minval=scale[0], maxval=scale[1])
    low, high = math.log(ratio[0]), math.log(ratio[1])
    shape = tnp.exp(rng.uniform(keys[1], (count,), minval=low, maxval=high))
    # Where the shape doesn't fit, as much of the image as does.
    pixels = area * height * width
    rows = tnp.minimum(tnp.sqrt(pixels / shape), height)
    columns = tnp.minimum(tnp.sqrt(pixels * shape), width)
    top = rng.uniform(keys[2], (count,)) * (height - rows)
    left = rng.uniform(keys[3], (count,)) * (width - columns)
    by = tnp.stack([size[0] / rows, size[1] / columns], -1)
    to = -by * tnp.stack([top, left], -1)

    def part(one: Array, by: Array, to: Array) -> Array:
        wanted = (*size, channels)
        return image.scale_and_translate(one, wanted, (0, 1), by, to, method)

    return td.vmap(part)(images, by, to).astype(images.dtype)


def random_rotation(
    key: rng.Key, images: Any, degrees: Any, *, fill: Any = 0.0
) -> Array:
    """Each image turned about its middle, by up to so many degrees to either side.

    Args:
      fill: what comes in from outside.

    >>> from treadle.data import augment
    >>> augment.random_rotation(rng.key(0), tnp.ones((2, 9, 9, 1)), 15).shape
    (2, 9, 9, 1)
    """
    _least("random_rotation", "degrees", degrees)
    images = _images("random_rotation", images)
    count, height, width, channels = images.shape
    most = tnp.deg2rad(tnp.asarray(degrees, tnp.float32))
    angles = rng.uniform(key, (count,), minval=-1, maxval=1) * most
    down = tnp.arange(height)[:, None] - (height - 1) / 2
    across = tnp.arange(width)[None, :] - (width - 1) / 2

    def turned(one: Array, angle: Array) -> Array:
        cos, sin = tnp.cos(angle), tnp.sin(angle)
        rows = cos * down - sin * across + (height - 1) / 2
        columns = sin * down + cos * across + (width - 1) / 2
        planes = [
            ndimage.map_coordinates(one[..., c], [rows, columns], 1, cval=fill)
            for c in range(channels)
        ]
        return tnp.stack(planes, -1)

    return td.vmap(turned)(images, angles).astype(images.dtype)


def random_erasing(
    key: rng.Key,
    images: Any,
    p: Any = 0.5,
    *,
    scale: tuple[float, float] = (0.02, 0.33),
    ratio: tuple[float, float] = (0.3, 3.3),
    fill: Any = 0.0,
) -> Array:
    """A rectangle of each image overwritten, with probability p.

    Args:
      scale: the least and the greatest share of the image's area.
      ratio: the least and the greatest height, as a multiple of the width.
      fill: what is written there.

    Zhong et al., *Random Erasing Data Augmentation*, 2020; of a square: DeVries and
    Taylor, *Improved Regularization of Convolutional Neural Networks with Cutout*,
    2017.

    >>> from treadle.data import augment
    >>> x = augment.random_erasing(rng.key(1), tnp.ones((1, 32, 32, 3)), p=1.0)
    >>> 0.6 < float(x.mean()) < 1
    True
    """
    _range("random_erasing", "scale", scale, 1)
    _range("random_erasing", "ratio", ratio, math.inf)
    images = _images("random_erasing", images)
    keys = rng.split(key, 3)
    happens = rng.bernoulli(keys[0], _chance("random_erasing", p), (images.shape[0],))
    inside = _rectangle(keys[1], keys[2], images, scale, ratio)
    return tnp.where(_each(happens) & inside, tnp.asarray(fill, images.dtype), images)


def _rectangle(
    shape_key: rng.Key,
    place_key: rng.Key,
    images: Array,
    scale: tuple[float, float],
    ratio: tuple[float, float],
) -> Array:
    """Which pixels lie in a rectangle of random area, shape and place: (n, h, w, 1)."""
    count, height, width = images.shape[:3]
    area_key, ratio_key = rng.split(shape_key)
    area = rng.uniform(area_key, (count,), minval=scale[0], maxval=scale[1])
    low, high = math.log(ratio[0]), math.log(ratio[1])
    shape = tnp.exp(rng.uniform(ratio_key, (count,), minval=low, maxval=high))
    pixels = area * height * width
    rows = tnp.minimum(tnp.round(tnp.sqrt(pixels * shape)), height)
    columns = tnp.minimum(tnp.round(tnp.sqrt(pixels / shape)), width)
    places = rng.uniform(place_key, (2, count))
    top = tnp.floor(places[0] * (height - rows + 1))
    left = tnp.floor(places[1] * (width - columns + 1))
    down = tnp.arange(height)[None, :, None, None]
    across = tnp.arange(width)[None, None, :, None]
    return (
        (down >= _each(top))
        & (down < _each(top + rows))
        & (across >= _each(left))
        & (across < _each(left + columns))
    )


_GREY = (0.299, 0.587, 0.114)
"""What red, green and blue add to the brightness that is seen (ITU-R BT.601)."""


def color_jitter(
    key: rng.Key,
    images: Any,
    *,
    brightness: float = 0.0,
    contrast: float = 0.0,
    saturation: float = 0.0,
) -> Array:
    """Brightness, contrast and saturation of each image changed, in this order.

    Args:
      brightness, contrast, saturation: each factor is drawn evenly from 1 minus to 1
        plus this number. Saturation is for images of red, green and blue.

    Values may leave the range that they had: `tnp.clip` them if that matters.

    >>> from treadle.data import augment
    >>> x = tnp.full((1, 2, 2, 3), 0.5)
    >>> y = augment.color_jitter(rng.key(0), x, brightness=0.4)
    >>> bool(((y > 0.3) & (y < 0.7)).all())
    True
    """
    _least("color_jitter", "brightness", brightness)
    _least("color_jitter", "contrast", contrast)
    _least("color_jitter", "saturation", saturation)
    images = _images("color_jitter", images)
    if saturation and images.shape[-1] != 3:
        raise ValueError(
            f"color_jitter: saturation is of images of 3 channels, got "
            f"{td.typeof(images)}{at(user_source())}"
        )
    keys = rng.split(key, 3)

    def factor(key: rng.Key, most: float) -> Array:
        values = rng.uniform(key, (images.shape[0],), minval=1 - most, maxval=1 + most)
        return _each(tnp.maximum(values, 0)).astype(images.dtype)

    def grey(x: Array) -> Array:
        if x.shape[-1] != 3:
            return x.mean(-1, keepdims=True)
        return (x * tnp.asarray(_GREY, x.dtype)).sum(-1, keepdims=True)

    if brightness:
        images = images * factor(keys[0], brightness)
    if contrast:
        middle = grey(images).mean((1, 2, 3), keepdims=True)
        images = middle + (images - middle) * factor(keys[1], contrast)
    if saturation:
        plain = grey(images)
        images = plain + (images - plain) * factor(keys[2], saturation)
    return images


def mixup(
    key: rng.Key, images: Any, targets: Any, alpha: Any = 0.2
) -> tuple[Array, Array]:
    """Each example mixed with another one of the batch, inputs and targets alike.

    Args:
      images: floats whose first axis counts the examples; need not be images.
      targets: floats such as one-hot labels, (n, ...).
      alpha: the share of the first is drawn from the beta distribution of (alpha,
        alpha).

    Zhang et al., *mixup: Beyond Empirical Risk Minimization*, 2018.

    >>> from treadle.data import augment
    >>> x, y = augment.mixup(rng.key(0), tnp.eye(4), tnp.eye(4))
    >>> y.sum(-1)
    Array([1., 1., 1., 1.], dtype=float32)
    """
    _share("mixup", alpha)
    images, targets = tnp.asarray(images), _targets("mixup", images, targets)
    order_key, share_key = rng.split(key)
    count = images.shape[0]
    other = rng.permutation(order_key, count)
    share = rng.beta(share_key, alpha, alpha, (count,))
    return _mixed(images, images[other], share), _mixed(targets, targets[other], share)


def _targets(name: str, images: Any, targets: Any) -> Array:
    targets = tnp.asarray(targets)
    if targets.ndim == 0 or targets.shape[0] != tnp.shape(images)[0]:
        raise ValueError(
            f"{name}: as many targets as images, got {td.typeof(targets)} for "
            f"{td.typeof(tnp.asarray(images))}{at(user_source())}"
        )
    if td.dtypes.is_float(targets.dtype):
        return targets
    raise ValueError(
        f"{name} mixes targets, which must be floats, got {td.typeof(targets)}"
        f"{at(user_source())}\nLabels become so by `nn.one_hot(labels, classes)`."
    )


def _share(name: str, alpha: Any) -> None:
    if isinstance(alpha, int | float) and not alpha > 0:
        raise ValueError(
            f"{name}: alpha is more than 0, got {alpha!r}{at(user_source())}\n"
            "It mixes most where alpha is large; leave it out to mix nothing."
        )


def _mixed(one: Array, other: Array, share: Array) -> Array:
    share = share.reshape(share.shape[0], *[1] * (one.ndim - 1)).astype(one.dtype)
    return share * one + (1 - share) * other


def cutmix(
    key: rng.Key, images: Any, targets: Any, alpha: Any = 1.0
) -> tuple[Array, Array]:
    """A rectangle of each image replaced by that of another image of the batch, and the
    targets mixed by the areas.

    Args:
      targets: floats such as one-hot labels, (n, ...).
      alpha: the share that stays is drawn from the beta distribution of (alpha, alpha).

    Yun et al., *CutMix: Regularization Strategy to Train Strong Classifiers with
    Localizable Features*, 2019.

    >>> from treadle.data import augment
    >>> x, y = augment.cutmix(rng.key(0), tnp.ones((4, 8, 8, 3)), tnp.eye(4))
    >>> x.shape, y.sum(-1)
    ((4, 8, 8, 3), Array([1., 1., 1., 1.], dtype=float32))
    """
    _share("cutmix", alpha)
    images, targets = _images("cutmix", images), _targets("cutmix", images, targets)
    count, height, width = images.shape[:3]
    keys = rng.split(key, 4)
    other = rng.permutation(keys[0], count)
    side = tnp.sqrt(1 - rng.beta(keys[1], alpha, alpha, (count,)))
    middle = [
        rng.uniform(k, (count,)) * n
        for k, n in zip(keys[2:], (height, width), strict=True)
    ]
    inside: Any = True
    for axis, (at_, n) in enumerate(zip(middle, (height, width), strict=True), 1):
        place = tnp.arange(n).reshape([-1 if i == axis else 1 for i in range(4)])
        low, high = (tnp.round(at_ + s * side * n / 2) for s in (-1, 1))
        inside = inside & (place >= _each(low)) & (place < _each(high))
    kept = 1 - inside.astype(targets.dtype).mean((1, 2, 3))
    return (
        tnp.where(inside, images[other], images),
        _mixed(targets, targets[other], kept),
    )
