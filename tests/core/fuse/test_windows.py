"""Reductions over windows that overlap, and their gradients, as nests."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import lax

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.native import runs_natively, shares_kernels
from treadle import nn
from treadle.ops import window

pytestmark = pytest.mark.usefixtures("checked_by_reference")

rng = np.random.default_rng(0)
EXTREMES = ["max", "min", "argmax", "argmin"]
FORMS = {
    "stem": ((2, 9, 11, 20), (3, 3), (2, 2), ((1, 1), (1, 1))),
    "same": ((2, 7, 5, 3), (2, 3), (1, 1), ((0, 1), (1, 1))),
    "valid": ((1, 8, 8, 70), (3, 2), (2, 1), ((0, 0), (0, 0))),
    "far": ((2, 5, 5, 4), (2, 2), (1, 2), ((3, 3), (4, 0))),
    "cut": ((1, 7, 8, 5), (3, 3), (1, 2), ((-1, -2), (-2, 1))),
    "apart": ((2, 6, 7, 3), (2, 1), (3, 2), ((0, 0), (0, 0))),
    "one channel": ((3, 12, 40, 1), (3, 3), (2, 2), ((1, 1), (1, 1))),
    "channels first": ((5, 6, 30, 1), (3, 3), (1, 1), ((1, 1), (1, 1))),
    "signal": ((2, 40, 1), (5,), (1,), ((2, 2),)),
    "far signal": ((1, 40, 1), (4,), (2,), ((6, 5),)),
    "cut signal": ((3, 40, 1), (3,), (1,), ((-4, 7),)),
    "long windows": ((1, 50, 1), (11,), (1,), ((5, 5),)),
    "line": ((2, 33, 4), (5,), (3,), ((2, 1),)),
    "space": ((1, 5, 4, 6, 3), (2, 3, 2), (1, 2, 2), ((0, 1), (1, 1), (0, 0))),
    "one pixel": ((3, 1, 1, 6), (1, 1), (1, 1), ((0, 0), (0, 0))),
    "no batch": ((0, 5, 5, 4), (2, 2), (1, 1), ((0, 0), (0, 0))),
    "nothing": ((2, 0, 3, 4), (2, 2), (1, 1), ((1, 1), (0, 0))),
}
every_form = pytest.mark.parametrize("form", FORMS)


def draw(form: str, dtype: str = "float32") -> tuple[Any, dict[str, Any]]:
    shape, size, strides, padding = FORMS[form]
    # Few values: extremes are often there twice.
    x = tnp.asarray(rng.integers(-4, 5, size=shape)).astype(dtype)
    return x, {"window": size, "strides": strides, "padding": padding}


def reduction(name: str, options: Any) -> Any:
    return lambda x: getattr(window, f"reduce_window_{name}")(x, **options)


def gradient(name: str, options: Any) -> Any:
    def loss(x: Any) -> Any:
        out = reduction(name, options)(x)
        factor = np.sin(np.arange(out.size)).reshape(out.shape).astype(x.dtype)
        return tnp.sum(out * factor)

    return td.grad(loss)


@every_form
@pytest.mark.parametrize("name", ["sum", *EXTREMES])
def test_values(name: str, form: str) -> None:
    x, options = draw(form)
    runs_natively(reduction(name, options), x)


@every_form
@pytest.mark.parametrize("name", ["sum", "max"])
def test_gradients_forwards_and_backwards(name: str, form: str) -> None:
    x, options = draw(form)
    runs_natively(gradient(name, options), x)
    runs_natively(lambda x, t: td.jvp(reduction(name, options), (x,), (t,))[1], x, x)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "uint32"])
@pytest.mark.parametrize("name", ["sum", *EXTREMES])
def test_dtypes(name: str, dtype: str) -> None:
    x, options = draw("stem", dtype)
    runs_natively(reduction(name, options), x)
    if dtype.startswith(("float", "bfloat")) and not name.startswith("arg"):
        runs_natively(gradient(name, options), x)


@pytest.mark.parametrize("form", ["stem", "far", "one channel"])
@pytest.mark.parametrize("name", EXTREMES)
def test_infinities_and_not_a_number(name: str, form: str) -> None:
    x, options = draw(form)
    x = np.array(x)
    x[rng.random(x.shape) < 0.3] = -np.inf if "max" in name else np.inf
    x[rng.random(x.shape) < 0.02] = np.nan
    function = reduction(name, options)
    np.testing.assert_array_equal(td.jit(function)(x), function(tnp.asarray(x)))


def test_of_views_and_of_batches() -> None:
    x, options = draw("stem")
    turned = tnp.transpose(x, (0, 2, 1, 3))
    runs_natively(lambda x: gradient("max", options)(x.transpose((0, 2, 1, 3))), turned)
    runs_natively(td.vmap(gradient("max", options), in_axes=3), tnp.stack([x] * 3, 3))

    def twice(x: Any) -> Any:
        return td.grad(lambda x: tnp.sum(gradient("max", options)(x * x) * x))(x)

    runs_natively(twice, x)


def test_gradient_of_the_stem_pooling_is_that_of_jax() -> None:
    x = np.round(rng.normal(size=(2, 10, 11, 20)), 1).astype("float32")
    ct = rng.normal(size=(2, 5, 6, 20)).astype("float32")

    def theirs(x: Any) -> Any:
        return lax.reduce_window(
            x, -np.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1),
            ((0, 0), (1, 1), (1, 1), (0, 0)),
        )  # fmt: skip

    def ours(x: Any, ct: Any) -> Any:
        pool = lambda x: nn.max_pool(x, 3, 2, 1)  # noqa: E731
        return td.vjp(pool, x)[1](ct)[0]

    wanted = jax.vjp(theirs, x)[1](ct)[0]
    np.testing.assert_allclose(td.jit(ours)(x, ct), wanted, 1e-6, 1e-6)


def test_one_kernel_for_all_sizes() -> None:
    shapes = [(2, 9, 11, 20), (5, 30, 17, 3)]
    first, second = (tnp.asarray(rng.normal(size=s).astype("float32")) for s in shapes)

    def function(x: Any) -> Any:
        return td.grad(lambda x: tnp.sum(nn.max_pool(x, 3, 2, 1) ** 2))(x)

    shares_kernels(function, [first], [second])
