"""`treadle.numpy.fft` against NumPy and JAX."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.backends.cpu.device import CPUTarget
from treadle.backends.cpu.fourier import library
from treadle.compile import stages
from treadle.plan.steps import CallsStep
from treadle.run.explain import walk

RNG = np.random.default_rng(0)
REAL = RNG.normal(size=(4, 5, 6)).astype("float32")
COMPLEX = (REAL + 1j * RNG.normal(size=REAL.shape)).astype("complex64")
TAKES_REAL = ("rfft", "ihfft", "rfft2", "rfftn")
ONE_AXIS = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
MANY_AXES = ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")
ONE = [
    {},
    {"n": 4},
    {"n": 9, "axis": 0, "norm": "ortho"},
    {"axis": 1, "norm": "forward"},
    {"n": 1, "axis": -3, "norm": "backward"},
]
MANY = [
    {},
    {"s": (3, 8), "axes": (0, 2), "norm": "ortho"},
    {"s": (-1, 5), "axes": (1, 0), "norm": "forward"},
    {"axes": (2, 1)},
]
CALLS = [
    *[(name, how) for name in ONE_AXIS for how in ONE],
    *[(name, how) for name in MANY_AXES for how in MANY],
]


def argument(name: str) -> np.ndarray:
    return REAL if name in TAKES_REAL else COMPLEX


@pytest.mark.parametrize(("name", "how"), CALLS, ids=str)
def test_values_are_numpys(name: str, how: dict[str, Any]) -> None:
    x = argument(name)
    wanted = getattr(np.fft, name)(x, **how)
    ours = partial(getattr(tnp.fft, name), **how)
    for function in (ours, td.jit(ours)):
        found = function(x)
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


LENGTHS = (1, 2, 3, 16, 33, 101, 128, 1009)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", LENGTHS)
def test_lines_of_any_length_and_layout_are_numpys(n: int, dtype: str) -> None:
    """On rows and on columns, cut into tasks."""
    x = np.random.default_rng(n).normal(size=(37, n)).astype(dtype)
    z = x + 1j * x[::-1]
    for axis in (0, 1):
        a, b = (x, z) if axis else (x.T.copy(), z.T.copy())

        def all_of(a: Any, b: Any, axis: int = axis) -> Any:
            return [
                tnp.fft.fft(b, axis=axis),
                tnp.fft.ifft(b, axis=axis),
                tnp.fft.rfft(a, axis=axis),
                tnp.fft.irfft(b, 2 * n - 1, axis=axis),
            ]

        wanted = [
            np.fft.fft(b, axis=axis),
            np.fft.ifft(b, axis=axis),
            np.fft.rfft(a, axis=axis),
            np.fft.irfft(b, 2 * n - 1, axis=axis),
        ]
        tolerance = 1e-5 if dtype == "float32" else 1e-13
        for found, want in zip(td.jit(all_of)(a, b), wanted, strict=True):
            assert found.dtype == want.dtype
            scale = np.abs(want).max()
            assert np.abs(np.asarray(found) - want).max() <= tolerance * scale


def test_dtypes() -> None:
    for dtype, wanted in (
        ("float16", "complex64"),
        ("bfloat16", "complex64"),
        ("int32", "complex64"),
        ("bool", "complex64"),
        ("float64", "complex128"),
    ):
        x = tnp.ones(4, dtype)
        assert tnp.fft.fft(x).dtype == tnp.fft.rfft(x).dtype == wanted
        assert td.jit(tnp.fft.rfft)(x).dtype == wanted
    assert tnp.fft.irfft(tnp.ones(4, "float16")).dtype == "float32"


@pytest.mark.parametrize("n", [1, 4, 5])
def test_frequencies(n: int) -> None:
    for name in ("fftfreq", "rfftfreq"):
        found, wanted = getattr(tnp.fft, name)(n, 0.3), getattr(np.fft, name)(n, 0.3)
        assert found.dtype == "float32"
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
        wide = getattr(tnp.fft, name)(n, d=2, dtype=td.float64)
        np.testing.assert_array_equal(wide, getattr(np.fft, name)(n, 2))
    for name in ("fftshift", "ifftshift"):
        for axes in (None, 0, (0, 1), -1):
            x = np.arange(n * 6).reshape(n, 6)
            found = td.jit(lambda x, name=name, a=axes: getattr(tnp.fft, name)(x, a))(x)
            np.testing.assert_array_equal(found, getattr(np.fft, name)(x, axes))


def _power(np: Any, x: Any) -> Any:
    """A real function with derivatives of all orders, through five transforms."""
    spectrum = np.fft.rfft(x, 8, axis=0)
    image = np.fft.ifft2(np.fft.fftn(np.fft.irfft(spectrum * spectrum, 7, axis=0)))
    return np.sum(np.abs(np.fft.hfft(image, 5)) ** 2 + np.sin(x).sum())


def test_gradients_are_jaxs() -> None:
    x = REAL[0].astype("float64")
    with jax.enable_x64(True):
        of_each = jax.jit(jax.vmap(jax.grad(lambda x: _power(jnp, x))))
        many = of_each(REAL.astype("float64"))
    gradient = td.grad(lambda x: _power(tnp, x))
    for function in (gradient, td.jit(gradient)):
        np.testing.assert_allclose(function(x), many[0], rtol=1e-9)
    found = td.jit(td.vmap(gradient))(REAL.astype("float64"))
    np.testing.assert_allclose(found, many, rtol=1e-9)
    td.check_grads(lambda x: _power(tnp, x), (x[:2, :3],), order=2)


def test_one_program_for_any_size() -> None:
    f = td.jit(lambda x: tnp.fft.irfft2(tnp.fft.rfft2(x)[:, :3], s=x.shape))
    for m, n in ((5, 8), (6, 9), (16, 12), (7, 33), (8, 40)):
        x = np.random.default_rng(m).normal(size=(m, n)).astype("float32")
        wanted = np.fft.irfft2(np.fft.rfft2(x)[:, :3], s=(m, n))
        np.testing.assert_allclose(f(x), wanted, atol=1e-5)
    assert f.report().traces <= 3


def test_it_runs_without_the_interpreter() -> None:
    assert library.available()
    plan = stages(td.trace(tnp.fft.fft2)(COMPLEX[0]), CPUTarget()).plan
    assert [type(step) for _, step in walk(plan.steps)] == [CallsStep, CallsStep]
    assert "fft of 6: fft" in td.jit(tnp.fft.fft).explain(COMPLEX)


def test_threads_may_transform_at_the_same_time() -> None:
    lengths = [60 + i for i in range(16)]
    arrays = [RNG.normal(size=(50, n)) + 0j for n in lengths]
    f = td.jit(tnp.fft.fft)
    for a in arrays:
        f(a)
    with ThreadPoolExecutor(4) as pool:
        for found, a in zip(pool.map(f, arrays * 20), arrays * 20, strict=True):
            np.testing.assert_allclose(found, np.fft.fft(a), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tnp.fft.fft(tnp.ones(3), 0), ValueError, "a transform of 0 numbers"),
        (lambda: tnp.fft.fft(tnp.ones(0)), ValueError, "a transform of 0 numbers"),
        (lambda: tnp.fft.irfft(tnp.ones(1)), ValueError, "a transform of 0 numbers"),
        (lambda: tnp.fft.fft(tnp.ones(3), norm="no"), ValueError, "got 'no'"),
        (lambda: tnp.fft.fft(1.0), ValueError, "takes arrays with an axis"),
        (lambda: tnp.fft.fft(tnp.ones(3), axis=1), ValueError, "axis 1 is out of"),
        (lambda: tnp.fft.rfft(tnp.ones(3) + 1j), TypeError, "Use `fft`"),
        (lambda: tnp.fft.ihfft(tnp.ones(3) + 1j), TypeError, "Use `ifft`"),
        (lambda: tnp.fft.rfftn(tnp.ones(3), axes=()), ValueError, "at least one axis"),
        (
            lambda: tnp.fft.fftn(tnp.ones((2, 3)), s=(2,), axes=(0, 1)),
            ValueError,
            "1 lengths for 2 axes",
        ),
    ],
)
def test_errors(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert "test_fft.py" in str(caught.value)


@pytest.mark.parametrize("name", ["irfft", "hfft"])
def test_open_lengths_that_leave_nothing(name: str) -> None:
    """Of one number there is no transform, whatever other lengths there were before."""
    f = getattr(tnp.fft, name)
    compiled = td.jit(lambda x: f(x), dynamic={"x": ("n",)})
    for n in (5, 2, 7):
        np.testing.assert_array_equal(compiled(tnp.ones(n)), td.jit(f)(tnp.ones(n)))
    with pytest.raises(ValueError, match=f"{name}: a transform of 0 numbers"):
        compiled(tnp.ones(1))
