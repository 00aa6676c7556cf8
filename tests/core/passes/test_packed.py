"""Complex arrays that are only moved: exactly NumPy's elements, for any sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.backends.devices import TARGETS
from treadle.check import check
from treadle.compile import stages

PLACES = np.array([[2, 0], [1, 2]], "int32")
MOVES: dict[str, Callable[[Any, Any], Any]] = {
    "roll": lambda np, z: np.roll(z, 3, 1),
    "rolled twice": lambda np, z: np.roll(np.roll(z, 1, 0), -2, -1),
    "concatenate": lambda np, z: np.concatenate([z, z[:, ::-1]], 0),
    "columns": lambda np, z: np.concatenate([z, z], 1),
    "stack": lambda np, z: np.stack([z, z[::-1]]),
    "interleaved": lambda np, z: np.stack([z, np.flip(z, 1)], -1),
    "repeat": lambda np, z: np.repeat(z, 2, 0),
    "repeat elements": lambda np, z: np.repeat(z, 3, 1),
    "tile": lambda np, z: np.tile(z, (2, 2)),
    "transpose": lambda np, z: z.T,
    "steps": lambda np, z: z[1:, ::2],
    "pad": lambda np, z: np.pad(z, ((1, 2), (0, 3))),
    "pad with a number": lambda np, z: np.pad(z, 1, constant_values=2 - 1j),
    "pad with a real number": lambda np, z: np.pad(z, 1, constant_values=2.0),
    "edges": lambda np, z: np.pad(z, 2, mode="edge"),
    "rows": lambda np, z: z[PLACES],
    "places in rows": lambda np, z: np.take(z, PLACES, axis=1),
    "a row": lambda np, z: z[2],
    "an element": lambda np, z: z[1, 2],
    "shape": lambda np, z: z.reshape(-1)[:, None] * np.ones(1, z.dtype),
    "shapes": lambda np, z: np.broadcast_to(z.reshape(1, -1), (2, z.size)),
    "and is computed with": lambda np, z: np.roll(z, 1, 0) * z + np.flip(z, 0),
    "and both": lambda np, z: (np.roll(z, 1, 1), np.roll(z, 1, 1) * 2),
    "transformed": lambda np, z: np.fft.ifft(np.fft.fftshift(np.fft.fft(z))),
    "conjugated": lambda np, z: np.conj(z),
    "transposed and conjugated": lambda np, z: np.concatenate([np.conj(z.T)] * 2),
    "conjugated for both": lambda np, z: (np.conj(z), np.conj(z) + 1),
    "computed": lambda np, z: np.roll(np.conj(z), 1, 0),
    "and kept": lambda np, z: (z, z[::-1], z.T),
}
UPDATES: dict[str, Callable[[Any], Any]] = {
    "window": lambda z: z.at[1:3, :2].set(z[2:4, 1:3]),
    "rows": lambda z: z.at[PLACES[0]].set(z[:2]),
    "elements": lambda z: z.at[PLACES[0], PLACES[1]].set(1 + 2j),
    "number": lambda z: z.at[1:].set(3j),
    "zeros": lambda z: z.at[1:3].set(0),
}


def numbers(*shape: int, dtype: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    z = (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    z.flat[:3] = complex(np.nan, -0.0), complex(-0.0, np.inf), complex(1e-42, 5e-324)
    return z


def equal(found: Any, wanted: Any, exact: bool = True) -> None:
    found = td.tree.leaves(found)
    wanted = list(wanted) if isinstance(wanted, tuple) else [wanted]
    for a, b in zip(map(np.asarray, found), map(np.asarray, wanted), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        for part in ("real", "imag"):
            x, y = getattr(a, part), getattr(b, part)
            if exact:
                np.testing.assert_array_equal(x, y)
                np.testing.assert_array_equal(np.signbit(x), np.signbit(y))
            else:
                np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", MOVES)
def test_elements_are_numpy_s(name: str, dtype: str) -> None:
    z = numbers(4, 5, dtype=dtype)
    exact = name not in ("and is computed with", "transformed", "and both", "shape")
    if not exact:
        z.flat[:3] = 1, 2j, 3
    function = MOVES[name]
    equal(td.jit(lambda z: function(tnp, z))(z), function(np, z), exact)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_a_number_among_the_arguments(dtype: str) -> None:
    """Its two parts are a line, too."""
    z, number = numbers(4, 5, dtype=dtype), numbers(2, dtype=dtype)[1]

    def moved(np: Any, z: Any, number: Any) -> Any:
        lines = np.broadcast_to(number, (4, 5))
        return np.concatenate([z, lines]), np.broadcast_to(number, (3,))

    def placed(z: Any, number: Any) -> Any:
        padded = td.lax.pad(z, number, ((1, 2, 0), (0, 1, 0)))
        return padded, z.reshape(-1).at[::2].set(number), z.at[1].set(number)

    given = tnp.asarray(z), tnp.asarray(np.asarray(number))
    found = td.jit(lambda z, number: moved(tnp, z, number))(*given)
    equal(found, moved(np, z, number))
    with td.disable_jit():
        wanted = placed(*given)
    equal(td.jit(placed)(*given), wanted)
    assert np.array_equal(np.asarray(wanted[2])[1], [number] * 5, equal_nan=True)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", UPDATES)
def test_updates_are_jax_s(name: str, dtype: str) -> None:
    z = numbers(4, 5, dtype=dtype)
    if dtype == "complex64":
        equal(td.jit(UPDATES[name])(z), UPDATES[name](jnp.asarray(z)))
    equal(td.jit(UPDATES[name])(z), UPDATES[name](tnp.asarray(z)))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", MOVES)
def test_sizes_may_vary(name: str, dtype: str) -> None:
    function = MOVES[name]
    compiled = td.jit(lambda z: function(tnp, z), dynamic=True)
    for shape in ((4, 5), (3, 4), (7, 33)):
        z = numbers(*shape, dtype=dtype)
        z.flat[:3] = 1, 2j, 3
        exact = name not in ("and is computed with", "transformed")
        equal(compiled(z), function(np, z), exact)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_plans_pass_the_checker(dtype: str, target: str) -> None:
    z = numbers(4, 5, dtype=dtype)
    for function in MOVES.values():
        graph = td.jit(lambda z, function=function: function(tnp, z)).graph(z)
        check(stages(graph, TARGETS[target]))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_empty_arrays_and_slices_by_place(dtype: str) -> None:
    z = numbers(4, 5, dtype=dtype)
    empty = td.jit(lambda z: tnp.concatenate([z[:0], z[:0]], 1))(z)
    equal(empty, np.zeros((0, 10), dtype))
    moved = td.jit(lambda z, i: td.lax.dynamic_slice(z, (i, 1), (2, 3)))
    equal(moved(z, np.int32(1)), z[1:3, 1:4])


def test_moves_are_one_kernel_for_both_parts() -> None:
    z = numbers(8, 8, dtype="complex64")
    for function in (lambda z: z.T, lambda z: tnp.flip(z, 1), lambda z: z[::2]):
        (step,) = stages(td.trace(function)(z), TARGETS["cpu"]).plan.steps
        (load, store) = step.launch.nest.operands
        assert {load.dtype, store.dtype} == {np.dtype("uint64")}
