"""The default device, and programs on the reference target as a device."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.backends import devices
from treadle.backends.reference import program
from treadle.compile import executable_of
from treadle.errors import DonatedError, TracerError
from treadle.run import array
from treadle.run.array import Array


def by(name: str, function: object, *args: object, donate: tuple = ()) -> list[Array]:
    """What a device gives for a function."""
    graph = td.jit(function).graph(*args)
    return executable_of(graph, donate, name)(args)


def _function(x: td.Array, i: td.Array) -> tuple[td.Array, ...]:
    y = tnp.tanh(x) @ x.T
    half = (x.astype(td.bfloat16) * 3).sum(0)
    total = td.fori_loop(0, 3, lambda k, c: tnp.sort(c * 0.5 + k, 0), y)
    return y, half, total, x.at[i].add(1), x * (1 + 2j)


def test_the_reference_device_agrees_with_the_cpu() -> None:
    x = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    i = np.array([0, 3, 3])
    for a, b in zip(*(by(n, _function, x, i) for n in devices.TARGETS), strict=True):
        tolerance = 1e-2 if a.dtype == td.bfloat16 else 1e-5
        a, b = (np.asarray(v).astype(complex) for v in (a, b))
        np.testing.assert_allclose(a, b, tolerance, tolerance)


def test_its_results_take_the_memory_of_donated_arguments() -> None:
    (x,) = by("cpu", lambda x: (x + 1,), np.zeros(100, np.float32))
    address = x.address()
    (y,) = by("reference", lambda x: (tnp.tanh(x) * 2,), x, donate=(0,))
    assert y.address() == address
    np.testing.assert_allclose(y, 2 * np.tanh(np.ones(100)), 1e-6)


def test_what_a_host_function_raises_reaches_the_caller() -> None:
    def fail(x: object) -> object:
        raise RuntimeError("no such number")

    def f(x: object) -> object:
        return td.pure_callback(fail, td.ShapeDtype((), td.float32), x)

    with pytest.raises(RuntimeError, match="no such number"):
        by("reference", f, np.float32(1))


def _run(device: str, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "import treadle as td, treadle.numpy as tnp\n" + program,
        ],
        env=os.environ | {"TREADLE_DEVICE": device},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_environment_chooses_the_device() -> None:
    found = _run(
        "reference",
        "f = td.jit(td.grad(lambda x: tnp.sum(tnp.sin(x @ x))))\n"
        "x = tnp.eye(3)\n"
        "print(f.lower(x).compile().program.target.name, float(f(x).sum()))",
    )
    assert found.stdout.split()[0] == "reference", found.stderr
    assert abs(float(found.stdout.split()[1]) - (6 * np.cos(1) + 12)) < 1e-4


def test_a_device_that_is_not_there_is_an_error() -> None:
    found = _run("abacus", "td.jit(lambda x: x + 1)(1.0)")
    assert (
        "TREADLE_DEVICE: there is no device 'abacus': take 'cpu' or 'reference'"
        in found.stderr
    )


# Placement ----------------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
PLACES = [d.name for d in td.devices()]


@pytest.mark.parametrize("place", [None, *PLACES])
def test_arrays_of_numpy_are_copied(place: str | None) -> None:
    x = X.copy()
    placed = td.device_put({"x": x}, place)["x"]
    x[:] = 0
    np.testing.assert_array_equal(placed, X)


def test_without_a_device_arrays_stay_where_they_are() -> None:
    x = td.device_put(X, "reference")
    assert td.device_put(x) is x
    made = td.device_put(X)
    assert (made + x).device == x.device
    np.testing.assert_array_equal(td.jit(lambda x: 2 * td.device_put(x))(X), 2 * X)
    assert td.device_put(2.0).dtype == tnp.float32


@pytest.mark.parametrize("place", PLACES)
def test_what_is_computed_from_placed_arrays_is_placed(place: str) -> None:
    x = td.device_put({"a": X, "n": 2.0}, place)
    f = lambda x: tnp.sum(tnp.sin(x["a"] @ x["a"])) * x["n"]  # noqa: E731
    wanted = f({"a": tnp.asarray(X), "n": 2.0})
    for out in (
        f(x),
        td.jit(f)(x),
        td.value_and_grad(td.jit(f))(x)[0],
        td.jit(lambda y: f({**x, "n": y}))(2.0),
        td.vmap(td.jit(lambda a: f({**x, "a": a})))(x["a"][None])[0],
        tnp.sort(x["a"] + tnp.ones(4) + X, 0)[0, 0] * 0 + f(x),
    ):
        assert out.device.name == place
        np.testing.assert_allclose(out, wanted, 1e-4)
    assert td.grad(td.jit(f))(x)["a"].device.name == place


def test_a_compiled_function_runs_on_the_device_of_its_arguments() -> None:
    f = td.jit(lambda x, y: x @ y)
    with mock.patch.object(program, "run", wraps=program.run) as run:
        f(X, tnp.asarray(X))
        f(td.device_put(X, "cpu"), X)
        assert not run.called
        out = f(td.device_put(X, "reference"), X)
        assert run.call_count == 1
        td.grad(lambda x: tnp.sum(f(x, x)))(out)
        assert run.call_count > 1
    np.testing.assert_allclose(out, X @ X, 1e-5, 1e-6)


def test_nothing_is_placed_unless_asked() -> None:
    x = tnp.asarray(X)
    assert x.device == td.jit(lambda x: x + 1)(x).device == td.devices()[0]


def test_a_block_has_a_default_device_of_its_own() -> None:
    f = td.jit(lambda x, n: (tnp.sin(x) @ x) * n)
    wanted = np.sin(X) @ X * 2
    for _ in range(3):
        f(X, 2.0)  # has a quick path now
    ahead = f.lower(X, 2.0).compile()
    with mock.patch.object(program, "run", wraps=program.run) as run:

        def runs(function: Callable[..., Any], *args: Any) -> int:
            before = run.call_count
            found = np.asarray(function(*args)).reshape(wanted.shape)
            np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)
            return run.call_count - before

        assert runs(f, X, 2.0) == 0
        with td.default_device("reference"):
            assert [runs(f, X, 2.0) for _ in range(3)] == [1, 1, 1]
            assert runs(td.vmap(f, (0, None)), X[None], 2.0) == 1
            before = run.call_count
            td.grad(lambda x: f(x, 2.0).sum())(X)
            assert run.call_count > before
            assert runs(f, td.device_put(X, "cpu"), 2.0) == 0
            assert runs(ahead, X, 2.0) == 0
            assert tnp.ones(2).device == td.devices()[1]
            assert tnp.ones(2, device="cpu").device == td.devices()[0]
            with td.default_device(td.devices()[0]):
                assert runs(f, X, 2.0) == 0
                assert tnp.ones(2).device == td.devices()[0]
            assert runs(f, X, 2.0) == 1
            with pytest.raises(RuntimeError), td.default_device("cpu"):
                raise RuntimeError
            made = tnp.ones(2) + 1
            assert runs(f, X, 2.0) == 1
        assert runs(f, X, 2.0) == 0
        assert made.device == td.devices()[0]  # nobody placed it
        for n in (2, 3, 5):  # sizes that vary
            x = np.ones((n, n), np.float32)
            with td.default_device("reference"):
                found = f(x, 1.0)
            np.testing.assert_allclose(found, np.full((n, n), n * np.sin(1)), 1e-5)
    with pytest.raises(
        ValueError, match=r"default_device: there is no device 'abacus'"
    ):
        td.default_device("abacus").__enter__()


@pytest.mark.parametrize("apply", [lambda f: f, td.jit, td.vmap])
def test_operands_on_two_devices_are_an_error(apply: Callable[..., Any]) -> None:
    a, b = (td.device_put(X, place) for place in PLACES)
    with pytest.raises(ValueError, match="two devices, cpu and reference") as error:
        apply(lambda a, b: a * b)(a, b)
    assert "td.device_put(x, 'cpu')" in str(error.value)


def test_a_placed_array_can_be_donated() -> None:
    x = td.device_put(X, "reference")
    step = td.jit(lambda x: x * 2, donate="x")
    np.testing.assert_array_equal(step(x), X * 2)
    with pytest.raises(DonatedError):
        np.asarray(x)


def test_misplaced() -> None:
    with pytest.raises(ValueError, match="no device 'gpu': take 'cpu' or 'reference'"):
        td.device_put(X, "gpu")
    with pytest.raises(TracerError, match="being traced"):
        td.jit(lambda x: td.device_put(x, "cpu"))(X)


@pytest.mark.parametrize("place", PLACES)
def test_arrays_without_elements_can_be_placed(place: str) -> None:
    x = td.device_put(np.zeros((0, 3), np.float32), place)
    out, total = td.jit(lambda x: (x * 2, tnp.sum(x)))(x)
    assert out.shape == (0, 3)
    assert float(total) == 0


def test_a_pickled_array_is_where_it_was(monkeypatch) -> None:
    there = td.device_put(np.arange(3.0), "reference")
    data = pickle.dumps([there, tnp.arange(3.0)])
    placed, free = pickle.loads(data)
    assert placed.device == there.device and type(free) is Array
    assert placed.tolist() == [0, 1, 2]
    # A process that has no such device takes the array as one that nobody placed.
    monkeypatch.setattr(array, "known", lambda: ())
    assert type(pickle.loads(data)[0]) is Array


def test_a_device_that_measures_nothing_says_so() -> None:
    profiled = td.profile(lambda x: x * 2, runs=1)
    for block, x in (("cpu", td.device_put(X, "reference")), ("reference", X)):
        with td.default_device(block), pytest.raises(NotImplementedError) as found:
            profiled(x)
        assert "device reference" in str(found.value)
        assert 'td.default_device("cpu")' in str(found.value)
    assert profiled(X).kernels
