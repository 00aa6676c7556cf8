"""The default device, and programs on the reference target as a device."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.backends import devices
from treadle.compile import executable_of
from treadle.run.array import Array


def by(name: str, function: object, *args: object, donate: tuple = ()) -> list[Array]:
    """What a device gives for a function."""
    graph = td.jit(function).graph(*args)
    return executable_of(graph, donate, devices.TARGETS[name])(args)


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
        "print(f.lower(x).target.name, float(f(x).sum()))",
    )
    assert found.stdout.split()[0] == "reference", found.stderr
    assert abs(float(found.stdout.split()[1]) - (6 * np.cos(1) + 12)) < 1e-4


def test_a_device_that_is_not_there_is_an_error() -> None:
    found = _run("abacus", "td.jit(lambda x: x + 1)(1.0)")
    assert "TREADLE_DEVICE must be 'cpu' or 'reference', not 'abacus'" in found.stderr
