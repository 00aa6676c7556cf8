"""Running compiled programs: threads, donation, failures, kinds of arguments."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.compare import hard_conditions
from treadle.backends.cpu import threads
from treadle.errors import DonatedError


@pytest.fixture
def restored_threads() -> Iterator[None]:
    before = threads.num_threads()
    yield
    threads.set_num_threads(before)


def block(x: Any, w: Any, i: Any) -> Any:
    h = tnp.tanh(x @ w + 1)
    e = tnp.exp(h - tnp.max(h, axis=-1, keepdims=True))
    p = e / tnp.sum(e, axis=-1, keepdims=True)
    return p, tnp.sum(p * x), tnp.mean(h, axis=0), p.at[i].add(h[i]), h.T @ p


def arguments(rows: int = 67) -> tuple[Any, ...]:
    random = np.random.default_rng(0)
    x, w = random.normal(size=(rows, 48)), random.normal(size=(48, 48))
    index = random.integers(0, rows, 31)
    return x.astype(np.float32), w.astype(np.float32), index


def test_results_do_not_depend_on_the_number_of_threads(restored_threads: None) -> None:
    loss = lambda *args: sum(tnp.sum(tnp.sin(o)) for o in block(*args))  # noqa: E731
    results = []
    for count in (1, 2, 3):
        threads.set_num_threads(count)
        with hard_conditions():
            outs = td.jit(lambda *args: (block(*args), td.grad(loss, 1)(*args)))(
                *arguments()
            )
        results.append([np.asarray(x) for x in td.tree.flatten(outs)[0]])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_calls_from_several_python_threads_overlap() -> None:
    step = td.jit(block)
    inputs = [(x * k, w, i) for k in range(8) for x, w, i in [arguments()]]
    wanted = [np.asarray(step(*args)[0]) for args in inputs]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            found = list(pool.map(lambda args: np.asarray(step(*args)[0]), inputs))
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(a, b)


def test_a_donated_array_can_not_be_used_again() -> None:
    step = td.jit(lambda state, g: state - g, donate="state")
    state = tnp.ones(100)
    new = step(state, tnp.ones(100))
    np.testing.assert_array_equal(new, np.zeros(100))
    for use in (lambda: state + 1, lambda: np.asarray(state), lambda: step(state, 1.0)):
        with pytest.raises(DonatedError):
            use()


def test_donation_leaves_views_and_other_arrays_alone() -> None:
    step = td.jit(lambda a, b: (a + b, a * b), donate=("a",))
    a, b = td.jit(lambda: (tnp.ones(64), tnp.ones(64) * 3))()
    seen = np.asarray(a)
    added, times = step(a, b)
    np.testing.assert_array_equal(seen, np.ones(64))
    np.testing.assert_array_equal(added, np.full(64, 4.0))
    np.testing.assert_array_equal(times, np.full(64, 3.0))
    np.testing.assert_array_equal(b, np.full(64, 3.0))


class Unlucky(Exception):
    pass


def test_an_exception_in_a_callback_keeps_its_type() -> None:
    def fail(x: Any) -> Any:
        if np.any(x > 2):
            raise Unlucky("too large")
        return x

    shape = td.ShapeDtype((3,), np.dtype(np.float32))
    step = td.jit(lambda x: td.pure_callback(fail, shape, x * 2) + 1)
    with pytest.raises(Unlucky, match="too large"):
        step(tnp.ones(3) * 5)
    np.testing.assert_array_equal(step(tnp.ones(3)), np.full(3, 3.0))


def test_outputs_outlive_the_program() -> None:
    step = td.jit(block)
    outs = step(*arguments())
    before = [np.array(x) for x in outs]
    del step
    gc.collect()
    for _ in range(3):
        td.jit(block)(*[a[::-1].copy() for a in arguments()])
    for a, b in zip(outs, before, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x,
        lambda x: np.asfortranarray(x),
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: x[::-1][::-1],
        lambda x: x.astype(">f4").astype(np.float32),
        lambda x: tnp.asarray(x),
    ],
)
def test_arguments_may_lie_anyhow_in_memory(make: Any) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = td.jit(lambda x: x * 2 + tnp.sum(x, axis=1, keepdims=True))(make(x))
    np.testing.assert_array_equal(found, x * 2 + x.sum(1, keepdims=True))


@pytest.mark.parametrize("value", [3, 2.5, True, np.float32(2), np.int32(4)])
def test_scalars_are_arguments(value: Any) -> None:
    function = lambda v: (v, v * 2)  # noqa: E731
    with td.disable_jit():
        wanted = function(tnp.asarray(value))
    for a, b in zip(td.jit(function)(value), wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_results_that_are_arguments_are_arrays_of_their_own() -> None:
    x = np.ones(4, np.float32)
    same, again = td.jit(lambda x: (x, x))(x)
    x[:] = 5
    np.testing.assert_array_equal(same, np.ones(4))
    np.testing.assert_array_equal(again, np.ones(4))
