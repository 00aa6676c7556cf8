"""Open axes that are cut into blocks, halved and padded, and loops over their parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.dynamic import agree, floats, gradient_of
from treadle import nn


def in_windows(x: Any) -> Any:
    """Attention inside of blocks of 4, put back where they were."""
    b, t, d = x.shape
    y = tnp.roll(x, -2, 1).reshape(b, t // 4, 4, d)
    return tnp.roll((nn.softmax(y @ y.mT) @ y).reshape(b, t, d), 2, 1)


def in_squares(x: Any) -> Any:
    b, h, w, c = x.shape
    p = x.reshape(b, h // 4, 4, w // 4, 4, c).transpose(0, 1, 3, 2, 4, 5)
    p = tnp.tanh(p.reshape(-1, 16, c).mean(1, keepdims=True)) * p.reshape(-1, 16, c)
    p = p.reshape(b, h // 4, w // 4, 4, 4, c).transpose(0, 1, 3, 2, 4, 5)
    return p.reshape(b, h, w, c)


def in_depth(x: Any) -> Any:
    """Of a square, whose sides are one symbol."""
    b, h, w, c = x.shape
    y = x.reshape(b, h // 2, 2, w // 2, 2, c).transpose(0, 1, 3, 5, 2, 4)
    return y.reshape(b, h // 2, w // 2, -1)


def in_tokens(x: Any) -> Any:
    b, h, w, c = x.shape
    y = x.reshape(b, h // 4, 4, w // 4, 4, c).swapaxes(2, 3)
    return y.reshape(b, -1, 16 * c)


def halved_and_back(x: Any) -> Any:
    skips = []
    for _ in range(4):
        skips.append(x)
        x = nn.max_pool(tnp.sin(x), 2)
    for skip in reversed(skips):
        wide = tnp.repeat(tnp.repeat(x, 2, 1), 2, 2)
        x = tnp.concatenate([skip, wide], -1)[..., ::2]
    return x


def to_even(x: Any) -> Any:
    return nn.avg_pool(tnp.pad(x, ((0, 0), (0, x.shape[1] % 2), (0, 0))), 2)


def in_steps(w: Any, x: Any) -> Any:
    """The gradients of four parts of a batch."""

    def loss(w: Any, part: Any) -> Any:
        return tnp.square(tnp.tanh(part @ w)).mean()

    def step(total: Any, part: Any) -> Any:
        value, slope = td.value_and_grad(loss)(w, part)
        return total + slope / 4, value

    return td.scan(step, tnp.zeros_like(w), x.reshape(4, -1, x.shape[1]))


BLOCKS: dict[str, tuple[Any, list[Any], Any]] = {
    "windows": (in_windows, [floats("n t 8")], ((3, 12), (1, 36), (5, 20), (8, 8))),
    "squares": (in_squares, [floats("2 h w 3")], ((12, 8), (4, 20), (36, 16))),
    "depth": (in_depth, [floats("n h h 3")], ((3, 6), (1, 10), (2, 4))),
    "tokens": (in_tokens, [floats("n h h 3")], ((3, 12), (1, 16), (2, 8))),
    "even": (to_even, [floats("3 n 4")], ((5,), (8,), (17,), (2,))),
    "steps": (in_steps, [floats("8 8"), floats("n 8")], ((36,), (40,), (68,))),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_open_axes_are_one_program(name: str) -> None:
    function, args, sizes = BLOCKS[name]
    agree(function, args, sizes)
    if name != "steps":
        agree(gradient_of(function), args, sizes)


def test_halves_of_halves_of_two_axes() -> None:
    sizes = ((32, 48), (64, 32), (48, 80))
    agree(gradient_of(halved_and_back), [floats("1 h w 2")], sizes)


@pytest.mark.parametrize("matrix", ["before", "sum", "after"])
def test_numbers_of_sizes_in_what_a_scan_need_not_do(matrix: str) -> None:
    """Its products are those of all iterations, outside of the loop."""

    def function(w: Any, x: Any) -> Any:
        n = x.shape[1]
        steps = {
            "before": lambda c, b: (tnp.tanh(c + ((b / n) @ w).sum(0)), None),
            "sum": lambda c, b: (c + (b.T @ (b / n)).sum(0), None),
            "after": lambda c, b: ((d := tnp.tanh(c + b.sum(0))), (d / n) @ w),
        }
        return td.scan(steps[matrix], tnp.zeros(8), x)

    agree(function, [floats("8 8"), floats("5 n 8")], ((9,), (8,), (17,), (100,)))


def test_an_image_that_is_read_at_every_second_place() -> None:
    how = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}

    def smaller(x: Any, w: Any) -> Any:
        return td.lax.conv_general_dilated(x, w, (2, 2), "SAME", **how)

    args, sizes = [floats("2 h w 3"), floats("1 1 3 4")], ((6, 7), (9, 8), (7, 12))
    agree(gradient_of(smaller), args, sizes)


@pytest.mark.parametrize("window", [2, 3])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_means_of_windows_that_padding_fills(window: int, dtype: str) -> None:
    def pooled(x: Any) -> Any:
        return nn.avg_pool(x, window, padding="SAME")

    args, sizes = [floats("2 h w 3", dtype)], ((5, 6), (8, 9), (1, 1), (6, 6), (2, 17))
    agree(gradient_of(pooled), args, sizes)
    x = np.random.default_rng(0).normal(size=(2, 7, 6, 3)).astype("float32")
    w = window
    padding = [(0, -n % w) for n in (7, 6)]
    ends = [(p // 2, p - p // 2) for _, p in padding]
    wide = np.pad(x.astype(float), ((0, 0), *ends, (0, 0)))
    here = np.pad(np.ones(x.shape), ((0, 0), *ends, (0, 0)))
    b, h, v, c = wide.shape
    sums = [a.reshape(b, h // w, w, v // w, w, c).sum((2, 4)) for a in (wide, here)]
    np.testing.assert_allclose(pooled(x), sums[0] / sums[1], rtol=1e-5, atol=1e-6)


def test_sums_beside_what_is_repeated_beside_short_rows() -> None:
    """What is repeated may be stored for longer rows: not for those who add it up."""

    def function(x: Any) -> Any:
        y = x * tnp.square(x).sum((0, 1), keepdims=True)
        return tnp.square(nn.relu(y).sum(1)).sum()

    sizes = ((5, 9), (1, 4), (3, 4), (3, 11), (20, 100))
    agree(lambda x: td.grad(function)(x), [floats("n m 8")], sizes)


def test_chains_of_products_take_the_cheapest_order() -> None:
    args = [floats("n 8"), floats("8 m"), floats("m 5")]
    product = lambda *xs: tnp.linalg.multi_dot(xs)  # noqa: E731
    sizes = ((4, 6), (1, 1), (17, 3), (2, 100))
    agree(product, args, sizes, guards="which order is the cheapest")
