"""Convolutions whose windows lie side by side, and what leads back, against JAX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
from tests.core.dynamic import same_bytes
from treadle import nn

CASES = {
    "patches": ((2, 8, 12, 3), (4, 4), 9, 1),
    "patches of one channel": ((2, 9, 7, 1), (3, 2), 5, 1),
    "something left behind": ((2, 11, 10, 5), (4, 3), 7, 1),
    "long windows": ((1, 33, 32, 3), (16, 16), 9, 1),
    "many channels": ((2, 9, 6, 20), (2, 3), 18, 1),
    "lines": ((3, 17, 6), (5,), 8, 1),
    "volumes": ((1, 5, 4, 7, 3), (2, 2, 3), 6, 1),
    "groups": ((2, 9, 6, 12), (2, 3), 9, 3),
    "groups of single channels": ((2, 9, 6, 4), (2, 3), 4, 4),
}


def numbers(rank: int) -> tuple[str, str, str]:
    letters = "DHW"[3 - rank :]
    return f"N{letters}C", f"{letters}IO", f"N{letters}C"


def both(module: Any, lax: Any, case: str) -> Any:
    _, kernel, _, groups = CASES[case]

    def run(x: Any, w: Any, ct: Any) -> Any:
        def conv(x: Any, w: Any) -> Any:
            return lax.conv_general_dilated(
                x,
                w,
                kernel,
                "VALID",
                dimension_numbers=numbers(len(kernel)),
                feature_group_count=groups,
            )

        out, back = module.vjp(conv, x, w)
        return out, *back(ct[tuple(map(slice, out.shape))])

    return run


def arrays(case: str, dtype: Any = "float32", x: Any = None) -> list[np.ndarray]:
    shape, kernel, features, groups = CASES[case]
    shape, rng = x or shape, np.random.default_rng(0)
    shapes = (shape, (*kernel, shape[-1] // groups, features), (*shape[:-1], features))
    return [rng.normal(size=s).astype(dtype) for s in shapes]


@pytest.mark.parametrize("case", CASES)
def test_results_and_gradients(case: str) -> None:
    args = arrays(case)
    found = td.jit(both(td, td.lax, case))(*args)
    wanted = both(jax, jax.lax, case)(*map(jax.numpy.asarray, args))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-5)


@pytest.mark.parametrize("case", CASES)
def test_half_floats_are_summed_in_single_precision(case: str) -> None:
    args = arrays(case, td.bfloat16)
    found = td.jit(both(td, td.lax, case))(*args)
    wide = [jax.numpy.asarray(a.astype("float32")) for a in args]
    for one, other in zip(found, both(jax, jax.lax, case)(*wide), strict=True):
        one = np.asarray(one).astype("float32")
        np.testing.assert_allclose(one, other, 2.0**-8, 1e-5)


@pytest.mark.parametrize("case", ["something left behind", "many channels", "groups"])
def test_open_sizes_have_the_bits_of_fixed_ones(case: str) -> None:
    run = both(td, td.lax, case)
    names = ("n", "h", None, None)
    compiled = td.jit(run, dynamic={"x": names, "ct": names})
    shape = CASES[case][0]
    for n, height in ((2, 11), (1, 8), (3, 13), (2, 10)):
        args = arrays(case, x=(n, height, *shape[2:]))
        wanted = td.jit(lambda *a: run(*a))(*args)
        for one, other in zip(compiled(*args), wanted, strict=True):
            assert not (why := same_bytes(one, other)), f"{n, height}: {why}"
    assert compiled.report().traces <= 2


def test_a_filter_for_each_example() -> None:
    """Filters under vmap are groups of one convolution."""
    layer = nn.Conv2d(3, 8, 4, stride=4, key=td.rng.key(0))
    x = np.random.default_rng(0).normal(size=(5, 2, 8, 8, 3)).astype("float32")

    def loss(w: Any, x: Any) -> Any:
        return td.numpy.sin(layer.replace(weight=w)(x)).sum()

    each = td.jit(td.vmap(td.grad(loss), (None, 0)))(layer.weight, x)
    for found, one in zip(each, x, strict=True):
        wanted = jax.grad(
            lambda w, one=one: jax.numpy.sin(
                jax.lax.conv_general_dilated(
                    one, w, (4, 4), "VALID", dimension_numbers=numbers(2)
                )
                + np.asarray(layer.bias)
            ).sum()
        )(np.asarray(layer.weight))
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)
