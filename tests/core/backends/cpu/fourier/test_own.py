"""The kernel of Fourier transforms, beside NumPy in extended precision."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.backends.cpu.fourier import own
from treadle.backends.cpu.fourier.lanes import roots
from treadle.backends.cpu.run import threads
from treadle.trace.routine import Kind, Transform

FULL = np.dtype(np.float32), np.dtype(np.float64)


def numbers(dtype: np.dtype, *shape: int, real: bool = False) -> np.ndarray:
    rng = np.random.default_rng(len(shape))
    re, im = rng.normal(size=(2, *shape))
    return (
        re.astype(dtype) if real else (re + 1j * im).astype(np.result_type(dtype, 1j))
    )


def native(kind: Kind, x: np.ndarray, axis: int, n: int | None = None) -> bool:
    """Whether the kernel does a transform along an axis."""
    n = n or x.shape[axis]
    inner = int(np.prod(x.shape[axis + 1 :]))
    alone = axis == x.ndim - 1
    within = (1, 1) if alone else (inner, inner)
    lines = x.size // x.shape[axis] if alone else inner
    t = Transform(kind, x.real.dtype, n, 0.0, 1, lines, (n, n), (1, 1), within)
    return own.form(t) is not None


def assert_close(found: Any, wanted: np.ndarray) -> None:
    """Within what a transform in the dtype of `found` may be off: the mean error grows
    as the root of the number of passes."""
    found = np.asarray(found)
    error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    passes = np.log2(max(wanted.size, 2))
    assert error < 0.5 * np.finfo(found.dtype).eps * np.sqrt(passes)


ALONG = [
    *[((n,), 0) for n in (256, 1000, 4096, 2**16)],
    *[((3, 1024), 1), ((2, 5, 6720), 2), ((7, 720), 1)],
    *[((27, 16), 0), ((5, 35, 32), 1), ((2, 490, 37), 1), ((64, 3), 0)],
    *[((16, 64), 1), ((37, 100), 1), ((3, 18), 1), ((2, 10, 245), 2), ((20, 500), 1)],
    *[((5, 1024, 1), 1), ((4096, 5), 0)],
]


@pytest.mark.parametrize("dtype", FULL, ids=str)
@pytest.mark.parametrize("name", ["fft", "ifft"])
@pytest.mark.parametrize(("shape", "axis"), ALONG, ids=str)
def test_complex_lines(
    name: Kind, shape: tuple[int, ...], axis: int, dtype: np.dtype
) -> None:
    x = numbers(dtype, *shape)
    ours, oracle = getattr(tnp.fft, name), getattr(np.fft, name)
    found = td.jit(lambda x: ours(x, axis=axis, norm="ortho"))(x)
    assert_close(found, oracle(x.astype(np.clongdouble), axis=axis, norm="ortho"))
    assert found.dtype == x.dtype
    assert native(name, x, axis)


REAL = [
    *[((512,), 0), ((3, 1000), 1), ((2, 5, 2048), 2), ((1 << 15,), 0)],
    *[((16, 64), 1), ((37, 100), 1), ((5, 90), 1), ((18, 18), 1), ((20, 500), 1)],
    *[((64, 16), 0), ((2, 98, 37), 1), ((200, 3), 0), ((2, 256, 1), 1)],
]


@pytest.mark.parametrize("dtype", FULL, ids=str)
@pytest.mark.parametrize(("shape", "axis"), REAL, ids=str)
def test_real_lines(shape: tuple[int, ...], axis: int, dtype: np.dtype) -> None:
    x, n = numbers(dtype, *shape, real=True), shape[axis]
    found = td.jit(lambda x: tnp.fft.rfft(x, axis=axis))(x)
    assert_close(found, np.fft.rfft(x.astype(np.longdouble), axis=axis))
    assert not np.moveaxis(np.asarray(found).imag, axis, -1)[..., [0, -1]].any()
    assert native("rfft", x, axis)
    # The imaginary parts of the ends have no meaning.
    z = numbers(dtype, *shape[:axis], n // 2 + 1, *shape[axis + 1 :])
    found = td.jit(lambda z: tnp.fft.irfft(z, axis=axis))(z)
    wanted = z.astype(np.clongdouble)
    ends = np.moveaxis(wanted, axis, -1)
    ends[..., [0, -1]] = ends[..., [0, -1]].real
    assert_close(found, np.fft.irfft(wanted, axis=axis))
    assert native("irfft", z, axis, n)


@pytest.mark.parametrize(("shape", "axis"), [((272,), 0), ((9, 6), 1), ((34, 64), 0)])
def test_other_lines_are_the_library_s(shape: tuple[int, ...], axis: int) -> None:
    """Of large primes, and short ones."""
    x = numbers(FULL[0], *shape)
    assert_close(
        td.jit(lambda x: tnp.fft.fft(x, axis=axis))(x),
        np.fft.fft(x.astype(np.clongdouble), axis=axis),
    )
    assert not native("fft", x, axis)


def test_gradients() -> None:
    x = numbers(FULL[0], 2, 512, real=True)

    def loss(m: Any, x: Any) -> Any:
        z = m.fft.fft(m.fft.rfft(x) ** 2, 256)
        return m.sum(m.fft.irfft(z, 512, norm="forward") ** 2) * 1e-9

    found = td.jit(td.grad(partial(loss, tnp)))(x)
    wanted = jax.grad(partial(loss, jnp))(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5 * abs(wanted).max())


@pytest.mark.parametrize(
    ("shape", "axis"), [((64, 512), 1), ((256, 64), 0), ((75, 100), 1)]
)
def test_bits_do_not_depend_on_threads(
    shape: tuple[int, ...], axis: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = numbers(FULL[0], *shape)
    found = []
    for count in (1, 3):
        monkeypatch.setattr(threads, "num_threads", lambda count=count: count)
        transform = td.jit(lambda x: tnp.fft.fft(x, axis=axis))
        found.append(np.asarray(transform(x)))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("n", [100, 512, 1000])
@pytest.mark.parametrize("name", ["fft", "rfft", "irfft"])
@pytest.mark.parametrize("axis", [0, 1])
def test_lines_of_an_open_number(axis: int, name: str, n: int) -> None:
    """Have the bits of those whose number is known, however many they are."""

    def transform(x: Any) -> Any:
        return getattr(tnp.fft, name)(x, axis=axis)

    sizes = ("lines", None) if axis else (None, "lines")
    of_any = td.jit(transform, dynamic={"x": sizes})
    for count in (1, 3, 16, 41, 1700):
        m = n // 2 + 1 if name == "irfft" else n
        shape = (count, m) if axis else (m, count)
        x = numbers(FULL[0], *shape, real=name == "rfft")
        np.testing.assert_array_equal(of_any(x), td.jit(transform)(x))


@pytest.mark.parametrize("shape", [(16, 256), (5, 256), (16, 100), (5, 100)], ids=str)
def test_not_a_number_stays_in_its_line(shape: tuple[int, int]) -> None:
    x = numbers(FULL[0], *shape)
    x[3, 5] = np.nan
    found = np.isnan(np.asarray(td.jit(tnp.fft.fft)(x))).any(1)
    np.testing.assert_array_equal(found, np.arange(len(x)) == 3)


def test_roots_are_rounded_once() -> None:
    n = 1000
    turn = 2 * np.longdouble("3.14159265358979323846264338327950288") / n
    k = np.arange(n)
    wanted = np.cos(turn * k) - 1j * np.sin(turn * k)
    found = roots(k, n)
    assert abs(found.real - wanted.real).max() < 1.2e-16
    assert abs(found.imag - wanted.imag).max() < 1.2e-16
