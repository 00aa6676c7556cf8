"""Gradients of tables are gathered by what reads them: the same bits, less memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import optim
from treadle.passes import sparse

ROWS, WIDTH = 300, 40


@pytest.fixture(autouse=True)
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse, "_BYTES", 1)
    monkeypatch.setenv("TREADLE_CACHE_DIR", "")


def drawn(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)


def both(
    function: Callable[..., Any], args: Any, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[np.ndarray], int]:
    """Results, which must have the bits that they have without the pass; and how much
    less memory there is for temporaries."""

    def run() -> tuple[list[np.ndarray], int]:
        jitted = td.jit(lambda *args: function(*args))
        arena = jitted.lower(*args).plan.arena
        return [np.asarray(a) for a in td.tree.leaves(jitted(*args))], arena

    found, arena = run()
    with monkeypatch.context() as patch:
        patch.setattr(sparse, "_BYTES", 1 << 60)
        plain, before = run()
    for a, b in zip(found, plain, strict=True):
        assert a.tobytes() == b.tobytes()
    return found, before - arena


def spread(m: Any, row: tuple[int, ...], mode: str) -> Callable[..., Any]:
    def function(table: Any, index: Any, updates: Any) -> Any:
        total = m.zeros((ROWS, *row), updates.dtype).at[index].add(updates, mode=mode)
        return table * 0.5 + m.sin(total)

    return function


@pytest.mark.parametrize("mode", ["drop", "clip"])
@pytest.mark.parametrize(
    ("row", "places", "dtype"),
    [
        ((WIDTH,), (20,), np.float32),
        ((WIDTH,), (4, 5), np.float64),
        ((8, 5), (3, 2, 2), np.float32),
    ],
)
def test_rows_that_are_added(
    row: Any, places: Any, dtype: Any, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = np.random.default_rng(0).integers(-ROWS - 9, ROWS + 9, places)
    index.flat[-3:] = index.flat[:3]
    index.flat[3] = ROWS - 1
    table, updates = drawn(ROWS, *row, dtype=dtype), drawn(*places, *row, dtype=dtype)
    args = table, index.astype(np.int32), updates
    (found,), less = both(spread(tnp, row, mode), args, monkeypatch)
    assert less > table.nbytes // 2
    with jax.enable_x64(dtype == np.float64):
        wanted = spread(jnp, row, mode)(*map(jnp.asarray, args))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def _trained(table: Any, index: Any, wanted: Any) -> Any:
    optimizer = optim.chain(
        optim.clip_by_global_norm(0.5), optim.adamw(0.1, weight_decay=0.01)
    )

    def loss(table: Any) -> Any:
        return tnp.square(table[index].mean(1) - wanted).sum()

    state = optimizer.init(table)
    for _ in range(3):
        grads = td.grad(loss)(table)
        updates, state = optimizer.update(grads, state, table)
        table = optim.apply_updates(table, updates)
    return table


def test_a_clipped_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    index = np.random.default_rng(0).integers(0, ROWS, (10, 4)).astype(np.int32)
    args = drawn(ROWS, WIDTH), index, drawn(10, WIDTH)
    (found,), _ = both(_trained, args, monkeypatch)
    optax = pytest.importorskip("optax")

    def loss(table: Any) -> Any:
        return jnp.square(table[index].mean(1) - args[2]).sum()

    optimizer = optax.chain(
        optax.clip_by_global_norm(0.5), optax.adamw(0.1, weight_decay=0.01)
    )
    table = jnp.asarray(args[0])
    state = optimizer.init(table)
    for _ in range(3):
        updates, state = optimizer.update(jax.grad(loss)(table), state, table)
        table = optax.apply_updates(table, updates)
    np.testing.assert_allclose(found, table, rtol=1e-3, atol=1e-4)


AS_BEFORE: dict[str, Callable[..., Any]] = {
    "a result": lambda t, i, u: t.at[i].add(u),
    "short rows": lambda t, i, u: tnp.sin(t[:, :8].at[i].add(u[:, :8])),
    "a factor": lambda t, i, u: t.at[i].add(u) @ u.T,
    "onto others": lambda t, i, u: tnp.sin((t + 1).at[i].add(u)),
    "as many as rows": lambda t, i, u: tnp.sin(t[:25].at[i % 25].add(u)),
}


@pytest.mark.parametrize("name", AS_BEFORE)
def test_what_stays_as_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    index = np.arange(20, dtype=np.int32) * 3

    def function(index: Any, updates: Any) -> Any:
        return AS_BEFORE[name](tnp.zeros((ROWS, WIDTH)), index, updates)

    _, less = both(function, (index, drawn(20, WIDTH)), monkeypatch)
    assert less == 0


def test_open_numbers_of_updates() -> None:
    axes = {"index": ("count",), "updates": ("count", None)}
    function = spread(tnp, (WIDTH,), "drop")
    open_ = td.jit(function, dynamic=axes)
    for count in (20, 7, 31, 1):
        index = np.random.default_rng(count).integers(-9, ROWS + 9, count)
        args = drawn(ROWS, WIDTH), index.astype(np.int32), drawn(count, WIDTH)
        fixed = td.jit(function, dynamic=False)(*args)
        assert np.asarray(open_(*args)).tobytes() == np.asarray(fixed).tobytes()
    assert open_.report().traces == 1
