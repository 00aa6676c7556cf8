"""Conv2d and pooling against JAX's convolution and window reductions."""

from __future__ import annotations

import numpy as np
import pytest
from jax import lax

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import agree, agree_layer, close, random
from treadle import nn, rng

KEY = rng.key(0)

CONVS = {
    "plain": dict(kernel_size=3),
    "valid": dict(kernel_size=3, padding="VALID"),
    "strided": dict(kernel_size=3, stride=2),
    "even": dict(kernel_size=(2, 4), stride=(1, 2)),
    "padded": dict(kernel_size=3, padding=1),
    "uneven": dict(kernel_size=3, padding=((0, 2), (1, 0))),
    "each": dict(kernel_size=3, padding=(2, 0)),
    "dilated": dict(kernel_size=3, dilation=2),
    "grouped": dict(kernel_size=3, groups=2),
    "depthwise": dict(kernel_size=3, groups=4, stride=2),
    "pointwise": dict(kernel_size=1),
}


def padding_of(padding):
    if isinstance(padding, int):
        padding = (padding, padding)
    if isinstance(padding, tuple):
        return [(p, p) if isinstance(p, int) else p for p in padding]
    return padding


def twice(x):
    return (x, x) if isinstance(x, int) else x


@pytest.mark.parametrize("name", CONVS)
def test_conv(name):
    options = CONVS[name]
    layer = nn.Conv2d(4, 8, **options, key=KEY)

    def formula(w, b, x):
        out = lax.conv_general_dilated(
            x,
            w,
            twice(options.get("stride", 1)),
            padding_of(options.get("padding", "SAME")),
            rhs_dilation=twice(options.get("dilation", 1)),
            feature_group_count=options.get("groups", 1),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return out + b

    agree_layer(layer, formula, random(2, 7, 9, 4), tolerance=1e-4)


def test_conv_takes_any_leading_axes():
    layer = nn.Conv2d(3, 5, 3, bias=False, key=KEY)
    with_bias = nn.Conv2d(3, 5, 3, key=KEY)
    assert layer.bias is None
    assert np.array_equal(layer.weight, with_bias.weight)
    x = tnp.asarray(random(2, 3, 6, 6, 3))
    out = layer(x)
    assert out.shape == (2, 3, 6, 6, 5)
    close(layer(x[1, 2]), out[1, 2])


def test_a_padding_is_named_in_any_case():
    x = random(2, 5, 7, 3)
    for name in ("same", "valid"):
        conv, like = (
            nn.Conv2d(3, 4, 3, padding=p, key=rng.key(0)) for p in (name, name.upper())
        )
        assert conv.padding == like.padding
        np.testing.assert_array_equal(conv(x), like(x))
        pooled = (nn.max_pool(x, 2, padding=p) for p in (name, name.upper()))
        np.testing.assert_array_equal(*pooled)


def test_conv_errors():
    layer = nn.Conv2d(3, 8, 3, key=KEY)
    with pytest.raises(ValueError, match=r"height, width, channels=3\), got f32\[2,3"):
        layer(tnp.ones((2, 3, 8, 8)))
    with pytest.raises(ValueError, match="Channels are last"):
        layer(tnp.ones((2, 3, 8, 8)))
    with pytest.raises(ValueError, match="3 in_channels and 8 out_channels"):
        nn.Conv2d(3, 8, 3, groups=2, key=KEY)
    with pytest.raises(ValueError, match=r'padding is "SAME"'):
        nn.Conv2d(3, 8, 3, padding="some", key=KEY)
    with pytest.raises(ValueError, match="kernel_size is a positive int or two"):
        nn.Conv2d(3, 8, (3, 3, 3), key=KEY)


POOLS = {
    "tiles": (2, None, "VALID"),
    "uneven tiles": ((2, 3), None, "VALID"),
    "cut": (4, None, "VALID"),
    "overlapping": (3, 2, "VALID"),
    "same": (3, 2, "SAME"),
    "padded": (3, 1, 1),
}


@pytest.mark.parametrize("name", POOLS)
def test_pools(name):
    window, stride, padding = POOLS[name]
    sizes = (1, *twice(window), 1)
    strides = (1, *twice(window if stride is None else stride), 1)
    pads = padding_of(padding)
    pads = pads if isinstance(pads, str) else [(0, 0), *pads, (0, 0)]

    def largest(x):
        return lax.reduce_window(x, -np.inf, lax.max, sizes, strides, pads)

    def mean(x):
        total = lax.reduce_window(x, 0.0, lax.add, sizes, strides, pads)
        ones = np.ones(x.shape, np.float32)
        return total / lax.reduce_window(ones, 0.0, lax.add, sizes, strides, pads)

    x = random(2, 6, 9, 3)
    agree(lambda x: nn.max_pool(x, window, stride, padding), largest, x)
    agree(lambda x: nn.avg_pool(x, window, stride, padding), mean, x)
    close(nn.MaxPool2d(window, stride, padding)(x), largest(x))
    close(nn.AvgPool2d(window, stride, padding)(x[0]), mean(x)[0])


def test_global_average():
    agree(nn.global_avg_pool, lambda x: x.mean((-3, -2)), random(2, 4, 5, 3))


def test_pool_errors():
    with pytest.raises(ValueError, match=r"max_pool takes.*got f32\[4,4\]"):
        nn.max_pool(tnp.ones((4, 4)), 2)
    with pytest.raises(ValueError, match="max_pool: window is a positive int"):
        nn.max_pool(tnp.ones((4, 4, 1)), 0)
    with pytest.raises(ValueError, match="windows of nothing but padding"):
        nn.avg_pool(tnp.ones((4, 4, 1)), 2, 1, 2)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "bfloat16"])
def test_images_of_other_dtypes(dtype):
    layer = nn.Conv2d(3, 4, 3, key=KEY)
    x = (10 * np.abs(random(5, 5, 3))).astype(np.uint8)
    found = layer(tnp.asarray(x).astype(dtype))
    close(found, layer(tnp.asarray(x.astype(np.float32))))
    with pytest.warns(nn.PrecisionWarning, match="Conv2d computes in float32"):
        close(layer(x.astype(np.float64)), found)


def test_no_images():
    layer, x = nn.Conv2d(3, 4, 3, key=KEY), tnp.ones((0, 5, 5, 3))
    assert layer(x).shape == (0, 5, 5, 4)
    grads, dx = td.grad(lambda m, x: m(x).sum(), (0, 1))(layer, x)
    assert dx.shape == x.shape and not np.asarray(grads.weight).any()


@pytest.mark.parametrize("name", ["stride", "dilation", "groups"])
def test_options_are_positive(name):
    with pytest.raises(ValueError, match=f"Conv2d.*{name}"):
        nn.Conv2d(4, 8, 3, **{name: 0}, key=KEY)


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d, nn.ConvLSTMCell])
def test_the_highest_precision_has_every_product(kind):
    """An infinity then makes only those results infinite that meet it."""

    def spoiled(precision):
        kernel = (3, 3) if kind is nn.ConvLSTMCell else 3
        layer = kind(64, 64, kernel, precision=precision, key=KEY)
        layer = layer.conv_hh if kind is nn.ConvLSTMCell else layer
        assert layer.precision == precision
        x = random(1, 32, 32, 64)
        x[0, 9, 9] = np.inf
        found = ~np.isfinite(np.asarray(td.jit(lambda m, x: m(x))(layer, x)))
        return found.any((0, 3)).sum()

    assert spoiled("highest") == 9
    assert spoiled(None) > 9
