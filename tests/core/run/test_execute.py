"""Running compiled programs: threads, donation, failures, kinds of arguments."""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.compare import hard_conditions
from tests.core.kernels.walls import walled
from treadle.backends.cpu.run import threads
from treadle.backends.cpu.run.executor import Program
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
    for count in (1, 2, 3, 5, 7):
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


@pytest.mark.usefixtures("only_new_objects")
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
        lambda x: np.broadcast_to(x, x.shape),
        lambda x: (
            np.frombuffer(b"-" + x.tobytes(), np.uint8)[1:].view("f4").reshape(3, 4)
        ),
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


def test_an_interrupted_call_leaves_no_donated_array_that_looks_intact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C during a call: Python raises as soon as the compiled code returns."""
    step = td.jit(lambda a, b: (a * 2, b[:5] * 3), donate=("a", "b"))
    a, b = td.jit(lambda: (tnp.ones(100) * 1, tnp.ones(100) * 2))()
    run = Program.run

    def interrupted(program: Program, slots: int) -> int:
        run(program, slots)
        raise KeyboardInterrupt

    monkeypatch.setattr(Program, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        step(a, b)
    for given in (a, b):
        with pytest.raises(DonatedError):
            np.asarray(given)


def test_a_donated_argument_may_be_one_of_several_equal_objects() -> None:
    step = td.jit(lambda a, x, y: (a + x * y, a), donate="a")
    for _ in range(3):
        a, x = td.jit(lambda: (tnp.ones(50) * 1, tnp.ones(50) * 2))()
        address = a.address()
        new, old = step(a, x, x)
        assert address in (new.address(), old.address())
        np.testing.assert_array_equal(new, np.full(50, 5.0))
        np.testing.assert_array_equal(old, np.ones(50))


def test_a_donated_argument_that_is_returned_as_it_came_stays_where_it_is() -> None:
    step = td.jit(lambda frozen, x: (frozen, frozen[:3] + x), donate="frozen")
    (frozen,) = td.jit(lambda: [tnp.arange(3e5) * 1])()
    buffer = frozen.owned_buffer()
    for _ in range(3):
        frozen, out = step(frozen, 1.0)
        assert frozen.owned_buffer() is buffer
        np.testing.assert_array_equal(out, [1, 2, 3])
    np.testing.assert_array_equal(frozen, np.arange(3e5, dtype=np.float32))


def test_failures_in_several_threads_keep_to_their_threads() -> None:
    meeting = threading.Barrier(4, timeout=120)

    def fail(x: Any) -> Any:
        meeting.wait()
        raise Unlucky(int(x))

    step = td.jit(lambda x: td.pure_callback(fail, x, x))

    def call(i: int) -> int:
        with pytest.raises(Unlucky) as caught:
            step(np.int32(i))
        meeting.wait()
        return caught.value.args[0]

    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert list(pool.map(call, range(4))) == [0, 1, 2, 3]


def test_a_callback_may_call_the_program_that_calls_it() -> None:
    number = td.ShapeDtype((), np.dtype(np.float32))

    @td.jit
    def factorial(n: Any) -> Any:
        smaller = lambda n: n * td.pure_callback(factorial, number, n - 1)  # noqa: E731
        return td.cond(n <= 1, lambda n: n * 0 + 1, smaller, n)

    assert factorial(np.float32(6)) == math.factorial(6)


def test_a_failure_in_a_loop_leaves_the_program_usable() -> None:
    calls: list[int] = []

    def third_fails(x: Any) -> Any:
        calls.append(len(calls))
        if calls[-1] == 2:
            raise Unlucky
        return x + 1

    step = td.jit(
        lambda x: td.fori_loop(
            0, 5, lambda i, c: td.pure_callback(third_fails, x, c), x
        )
    )
    x = tnp.ones(1000)
    with pytest.raises(Unlucky):
        step(x)
    np.testing.assert_array_equal(step(x), np.full(1000, 6.0))
    np.testing.assert_array_equal(x, np.ones(1000))


def test_numpy_may_ask_for_no_copy() -> None:
    x = tnp.ones(3)
    assert np.array(x, dtype=np.float32, copy=False).flags.writeable is False
    with pytest.raises(ValueError, match="copy=False"):
        np.array(x, dtype=np.float64, copy=False)


@pytest.mark.parametrize("rows", [2**33, 2**12])
def test_arrays_that_fit_nowhere_are_memory_errors(rows: int) -> None:
    with pytest.raises(MemoryError, match="bytes"):
        td.jit(lambda: tnp.zeros((rows, 2**33)))()
    np.testing.assert_array_equal(td.jit(lambda x: x + 1)(np.ones(2)), [2, 2])


@pytest.mark.parametrize("dtype", [np.uint32, np.float32])
def test_nothing_is_read_of_an_array_that_ends_where_it_begins(dtype: Any) -> None:
    memory, flat = walled(8, dtype)
    nothing = np.ndarray((0,), dtype, flat, flat.nbytes)
    padded = td.jit(lambda x: tnp.pad(x, (1, 2)))
    for x in (nothing, tnp.from_dlpack(nothing)):
        np.testing.assert_array_equal(padded(x), np.zeros(3, dtype))
        summed = td.jit(lambda x: tnp.sum(x.reshape(2, 0, 4), 1))(x)
        np.testing.assert_array_equal(summed, np.zeros((2, 4), dtype))
    del x, nothing, flat, memory
