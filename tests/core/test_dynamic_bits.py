"""What a program of one size rounds otherwise, programs of open sizes do, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.dynamic import Arg, agree, floats, gradient_of, same_bytes
from treadle import nn

X = floats("n m")
SIZES = ((3, 5), (1, 1), (17, 1), (1, 4), (2, 3), (8, 3))

SUMS = {
    "all": lambda x: x * 3 + x.sum(),
    "columns": lambda x: x * 3 + x.sum(0),
    "of squares": lambda x: x * x - tnp.sum(x * 0.3, 0, keepdims=True),
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_around_sums(name: str, dtype: str) -> None:
    agree(SUMS[name], [floats("n m", dtype)], SIZES, guards="whether there is one row")


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_what_is_beside_a_search_that_one_row_spares(dtype: str) -> None:
    """It changes no rounding of what does not wait for it."""

    def function(x: Any, scale: Any) -> Any:
        square = scale * scale
        return tnp.argmin(x, 0), square - scale

    args = [floats("n m", dtype), floats("", dtype)]
    agree(function, args, SIZES, guards="halves: what stands between" * ("b" in dtype))


def test_products_between_searches_and_sorts_need_no_other_trace() -> None:
    def function(x: Any, scale: Any) -> Any:
        square = scale * scale
        return tnp.argmin(x, 0), tnp.sort(x, 0), square - scale

    agree(function, [floats("n m"), floats("")], SIZES)


def test_gradients_where_one_size_updates_nothing() -> None:
    def function(x: Any) -> Any:
        y = x - tnp.mean(x)
        z = y.at[1:].set(2)
        return (
            y * y,
            z @ (y * 3 + tnp.sum(y)).T,
            y.at[1:].add(1),
            y.at[1::2].multiply(3),
        )

    args, sizes = [floats("n 7")], ((5,), (8,), (1,), (2,))
    agree(gradient_of(function), args, sizes, guards="whether there is one row")


def test_nothing_is_added_to_a_row_that_has_no_second() -> None:
    @td.jit(dynamic={"x": ("n", None)})
    def function(x: Any) -> Any:
        return x.at[1::2].multiply(3)

    for n in (3, 1, 2):
        x = np.arange(1, 1 + 4 * n, dtype="float32").reshape(n, 4)
        wanted = x * np.where(np.arange(n) % 2, 3, 1)[:, None]
        np.testing.assert_array_equal(function(x), wanted)


def test_products_of_few_complex_numbers() -> None:
    """Which are written out, so that sums are in another order."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.normal(size=shape) + 1j * rng.normal(size=shape)

    args = [Arg("n 1 4 48", draw)]
    sizes, why = ((5,), (2,), (1,), (7,)), "few results are written out"
    agree(lambda x: x @ x.swapaxes(-1, -2), args, sizes, guards=why)


def test_stacks_of_few_halves() -> None:
    both = gradient_of(gradient_of(lambda x, y: tnp.append(x, y, 0)))
    agree(both, [floats("n m", "float16")] * 2, ((2, 3), (1, 2), (17, 3)))


def test_pieces_of_halves_take_their_shape() -> None:
    cross = gradient_of(td.vmap(gradient_of(tnp.cross)))
    agree(cross, [floats("2 n 3", "float16"), floats("2 n 3", "float16")], ((3,),))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_transforms_of_any_length(dtype: str) -> None:
    """Of small factors or not, alone or beside others."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)

    def transformed(z: Any) -> Any:
        return tnp.fft.fft(z), tnp.fft.ifft(z, axis=0), tnp.fft.rfft(z.real)

    sizes = ((3, 5), (1, 256), (33, 64), (100, 7))
    agree(transformed, [Arg("n m", draw)], sizes)


def test_images_between_their_corners() -> None:
    resized = nn.Upsample((2, 3), mode="linear", align_corners=True)
    args, sizes = [floats("n m 5 4")], ((3, 5), (1, 1), (8, 3))
    agree(gradient_of(resized), args, sizes, guards="one pixel is not moved")


def test_polynomials_of_any_degree() -> None:
    """There is a program for each."""
    args = [floats("n"), floats("m"), floats("3")]
    sizes = ((3, 5), (8, 2), (4, 17))

    def computed(p: Any, x: Any, v: Any) -> Any:
        of_each = tnp.polydiv(p, v), tnp.poly(p), tnp.polyder(p), tnp.polyint(p)
        return tnp.polyval(p, x), of_each

    agree(computed, args, sizes, guards="one for each degree")


def test_what_follows_an_answer_is_not_computed_for_another() -> None:
    @td.jit(dynamic={"x": ("n",)})
    def spread(x: Any) -> Any:
        n = x.shape[0]
        if n > 1 and 1 / (n - 1) < 0.9:
            return x * 2
        return x + 1

    for n in (5, 1, 2, 8):
        x = np.arange(n, dtype=np.float32)
        wanted = x * 2 if n > 2 else x + 1
        assert not same_bytes(spread(x), wanted)
    assert spread.report().traces == 3


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize(
    "exponent",
    [lambda n: n, lambda n: -n, lambda n: n - 3, lambda n: 1 / n],
    ids=["n", "-n", "n - 3", "1 / n"],
)
def test_powers_of_a_size(exponent: Any, dtype: str) -> None:
    """Products where a known number gives products, and the general power beyond."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return np.asarray(tnp.asarray(rng.uniform(0.5, 1.5, shape)).astype(dtype))

    def power(x: Any) -> Any:
        return x ** exponent(x.shape[0])

    sizes = ((3, 5), (1, 2), (2, 2), (7, 2), (64, 1), (65, 2))
    agree(power, [Arg("n m", draw)], sizes)
    agree(gradient_of(power), [Arg("n m", draw)], sizes)


@pytest.mark.parametrize(
    ("taps", "stride"), [(3, 2), (5, 2), (3, 1), (3, 3), (2, 2), (5, 3)]
)
def test_padded_images_of_any_size(taps: int, stride: int) -> None:
    how = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}
    strides = stride, stride

    def convolved(x: Any, w: Any) -> Any:
        return td.lax.conv_general_dilated(x, w, strides, "SAME", **how)

    args = [floats("2 n m 3"), floats(f"{taps} {taps} 3 4")]
    sizes = ((6, 7), (9, 8), (7, 12), (8, 31), (1, 2))
    agree(convolved, args, sizes)
    agree(gradient_of(convolved), args, sizes)


@pytest.mark.parametrize("features", [4, 40])
def test_patches_of_images_of_any_size(features: int) -> None:
    """Of images that have a rest behind the last patch, or are one patch."""
    how = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}

    def patches(x: Any, w: Any) -> Any:
        return td.lax.conv_general_dilated(x, w, (4, 4), "VALID", **how)

    args = [floats("n h h 3"), floats(f"4 4 3 {features}")]
    sizes = ((3, 12), (1, 4), (2, 8), (3, 17), (5, 7))
    agree(gradient_of(patches), args, sizes)


@pytest.mark.parametrize("window", [2, 3])
def test_pooling_of_images_with_and_without_a_rest(window: int) -> None:
    def pooled(x: Any) -> Any:
        return nn.max_pool(x, window), nn.min_pool(x, window), nn.avg_pool(x, window)

    sizes = ((6, 7), (9, 8), (7, 12), (3, 3))
    agree(gradient_of(pooled), [floats("2 n m 3")], sizes)


def test_one_query_of_several_keys_is_not_read_in_blocks() -> None:
    """So a text is written: that is another program, which is faster, too."""

    def attended(q: Any, k: Any) -> Any:
        return nn.softmax(q @ k.T) @ k

    args = [floats("n 6"), floats("m 6")]
    agree(attended, args, ((3, 5), (1, 17), (2, 17), (1, 64)), guards="one query")
    agree(lambda x: attended(x, x * 2), args[:1], ((3,), (1,), (17,)))


def test_powers_of_complex_numbers() -> None:
    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype("c8")

    sizes = ((3, 5), (1, 2), (2, 2), (8, 2), (64, 2))
    for power in (lambda x: x ** x.shape[0], lambda x: x ** (1 / x.shape[0])):
        agree(power, [Arg("n m", draw)], sizes)


def test_a_root_of_nothing_has_no_slope_beside_other_powers() -> None:
    """What is not chosen, of a root and a power, adds no nan to the derivative."""

    @td.jit(dynamic={"x": ("n",)})
    def slopes(x: Any) -> Any:
        return td.grad(lambda x: (x ** (4 / x.shape[0])).sum())(x)

    for dtype in ("bfloat16", "float32"):
        np.testing.assert_array_equal(slopes(tnp.zeros(2, dtype)), np.zeros(2))
        np.testing.assert_array_equal(slopes(tnp.ones(8, dtype)), np.full(8, 0.5))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_products_of_few_terms_with_vectors(dtype: str) -> None:
    sizes = ((40, 3, 2), (5, 2, 3), (33, 4, 4), (7, 1, 5), (1, 3, 3))
    matrices, vectors = floats("b i k", dtype), floats("b k", dtype)
    of_each = lambda a, x: tnp.einsum("bij,bj->bi", a, x)  # noqa: E731
    agree(of_each, [matrices, vectors], sizes, guards="whether there is one")
    agree(lambda x, v: x @ v, [floats("b k", dtype), floats("k", dtype)])


@pytest.mark.parametrize("columns", [3, 7])
def test_products_with_few_columns_that_are_computed_as_rows(columns: int) -> None:
    args = [floats("k m"), floats("k n")]
    sizes = (40, 30, columns), (99, 36, columns), (50, 20, 30), (33, 3, 5)
    agree(lambda x, c: x.T @ c, args, sizes)
    agree(lambda x, c: tnp.tanh(x.T @ c).T + 1, args, sizes)


@pytest.mark.parametrize("columns", [2, 3, 4, 5, 8])
def test_rows_whose_length_is_known(columns: int) -> None:
    """And all lengths that this program of three has beside it."""
    for f in (
        lambda x: tnp.sum(x, 1),
        lambda x: x / tnp.max(x, 1, keepdims=True),
        lambda x: tnp.sum(x * x),
    ):
        agree(f, [floats("n m")], ((40, 3), (33, columns), (100, columns), (7, 3)))
        agree(f, [floats(f"n {columns}")], ((40,), (33,), (7,)))
