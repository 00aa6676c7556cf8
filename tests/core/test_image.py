"""Images of other sizes, against JAX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.dynamic import same_bytes
from tests.core.np.oracle import same

rng = np.random.default_rng(4)
IMAGE = rng.normal(size=(2, 9, 7, 3)).astype(np.float32)
METHODS = ("linear", "cubic", "lanczos3", "lanczos5")


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("size", [(18, 14), (4, 5), (9, 20), (1, 3)])
@pytest.mark.parametrize("method", ["nearest", *METHODS])
def test_resize(method: str, size: tuple[int, int], antialias: bool) -> None:
    shape = (2, *size, 3)
    found = td.jit(lambda x: td.image.resize(x, shape, method, antialias))(IMAGE)
    same(found, jax.image.resize(IMAGE, shape, method, antialias), 8)


@pytest.mark.parametrize("method", METHODS)
def test_gradients(method: str) -> None:
    weights = rng.normal(size=(2, 5, 14, 3)).astype(np.float32)

    def loss(image: Any) -> Any:
        return lambda x: (image.resize(x, weights.shape, method) * weights).sum()

    found = td.jit(td.grad(loss(td.image)))(IMAGE)
    same(found, jax.jit(jax.grad(loss(jax.image)))(IMAGE), 8)


@pytest.mark.parametrize("method", METHODS)
def test_scale_and_translate(method: str) -> None:
    scale, move = np.float32([1.5, 0.6]), np.float32([-2.0, 0.7])
    args = ((2, 8, 6, 3), (1, 2), scale, move, method)
    found = td.jit(lambda x: td.image.scale_and_translate(x, *args))(IMAGE)
    same(found, jax.image.scale_and_translate(IMAGE, *args), 8)


def test_the_scale_has_a_derivative() -> None:
    def loss(image: Any) -> Any:
        def of(scale: Any, move: Any) -> Any:
            out = image.scale_and_translate(
                IMAGE[0, :, :, 0], (8, 6), (0, 1), scale, move, "cubic"
            )
            return (out**2).sum()

        return of

    args = np.float32([1.3, 0.8]), np.float32([-1.2, 0.7])
    found = td.jit(td.grad(loss(td.image), (0, 1)))(*args)
    same(found, jax.jit(jax.grad(loss(jax.image), (0, 1)))(*args), 100)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float16", "float64"])
def test_dtypes(dtype: str) -> None:
    image = (IMAGE * 50).astype(dtype)
    for method in ("nearest", "linear"):
        with jax.enable_x64(dtype == "float64"):
            wanted = np.asarray(jax.image.resize(image, (2, 4, 9, 3), method))
        found = np.asarray(td.image.resize(image, (2, 4, 9, 3), method))
        assert found.dtype == wanted.dtype
        eps = np.finfo(found.dtype).eps if found.dtype.kind == "f" else 0
        found, wanted = found.astype(float), wanted.astype(float)
        np.testing.assert_allclose(found, wanted, rtol=20 * eps, atol=500 * eps)


@pytest.mark.parametrize("method", ["nearest", "linear", "cubic"])
def test_complex_images_are_resized_by_parts(method: str) -> None:
    image = (IMAGE + 1j * IMAGE[..., ::-1]).astype("complex64")
    wanted = [
        np.asarray(jax.image.resize(part, (2, 4, 9, 3), method))
        for part in (image.real, image.imag)
    ]
    found = np.asarray(td.image.resize(image, (2, 4, 9, 3), method))
    np.testing.assert_allclose(found.real, wanted[0], atol=1e-5)
    np.testing.assert_allclose(found.imag, wanted[1], atol=1e-5)


@pytest.mark.parametrize("method", ["nearest", "linear", "lanczos3"])
def test_an_axis_of_no_length(method: str) -> None:
    same(
        td.image.resize(IMAGE, (2, 0, 9, 3), method),
        jax.image.resize(IMAGE, (2, 0, 9, 3), method),
    )


def test_axes_count_from_the_end() -> None:
    x = np.random.default_rng(0).normal(size=(2, 4, 24)).astype(np.float32)
    found, wanted = (
        td.image.scale_and_translate(
            x, (2, 8, 24), (axis,), [2.0], [0.5], "linear", antialias=False
        )
        for axis in (-2, 1)
    )
    np.testing.assert_array_equal(found, wanted)


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="'blurry' is none of 'nearest', 'linear'"):
        td.image.resize(IMAGE, IMAGE.shape, "blurry")
    with pytest.raises(ValueError, match=r"\(3, 4\) has another number of axes"):
        td.image.resize(IMAGE, (3, 4), "linear")
    with pytest.raises(ValueError, match="1 scales and 2 translations for 1"):
        td.image.scale_and_translate(
            tnp.ones((3, 3)), (3, 3), (0,), [1.0], [0.0, 1.0], "linear"
        )
    with pytest.raises(ValueError, match="changes axes that are not in spatial_dims"):
        td.image.scale_and_translate(
            tnp.ones((3, 3)), (3, 4), (0,), [1.0], [0.0], "linear"
        )


@pytest.mark.parametrize("method", ["linear", "cubic"])
@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("columns", [1, 20])
def test_open_sizes_give_the_bits_of_fixed_ones(
    method: str, antialias: bool, columns: int
) -> None:
    def resized(x: Any) -> Any:
        return td.image.resize(x, (6, columns), method, antialias=antialias)

    compiled = td.jit(lambda x: resized(x), dynamic={"x": ("n", None)})
    for n in (3, 1, 4, 7, 6, 9, 11, 20):
        x = np.random.default_rng(n).normal(size=(n, columns)).astype(np.float32)
        wanted = td.jit(lambda x: resized(x))(x)
        assert not (why := same_bytes(compiled(x), wanted)), f"of {n} rows: {why}"
