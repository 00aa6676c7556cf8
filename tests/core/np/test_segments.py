"""Reductions over segments, against JAX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.np.oracle import same
from treadle.errors import TracerError

rng = np.random.default_rng(3)
DATA = rng.normal(size=(40, 3)).astype(np.float32)
IDS = rng.integers(-2, 9, 40).astype(np.int32)
NAMES = ("sum", "prod", "max", "min")


def ours(name: str) -> Any:
    return getattr(td, f"segment_{name}")


def theirs(name: str) -> Any:
    return getattr(jax.ops, f"segment_{name}")


@pytest.mark.parametrize("mode", [None, "drop", "clip"])
@pytest.mark.parametrize("bucket_size", [None, 7])
@pytest.mark.parametrize("name", NAMES)
def test_values(name: str, bucket_size: int | None, mode: str | None) -> None:
    kwargs = {"num_segments": 8, "bucket_size": bucket_size, "mode": mode}
    jax_mode = {"drop": jax.lax.GatherScatterMode.FILL_OR_DROP}.get(mode, mode)
    wanted = theirs(name)(DATA, IDS, **{**kwargs, "mode": jax_mode})
    same(ours(name)(DATA, IDS, **kwargs), wanted)
    same(td.jit(lambda x, i: ours(name)(x, i, **kwargs))(DATA, IDS), wanted)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "float16", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_dtypes(name: str, dtype: str) -> None:
    data = rng.integers(0, 3, (12, 2)).astype(dtype)
    ids = np.array([0, 1, 0, 3, 3, 3, 0, 1, 1, 0, 3, 0], np.int32)
    with jax.enable_x64(dtype == "float64"):
        wanted = np.asarray(theirs(name)(data, ids, 5))
    same(td.jit(lambda x, i: ours(name)(x, i, 5))(data, ids), wanted)


@pytest.mark.parametrize("bucket_size", [None, 2])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_of_bools_are_bools(name: str, bucket_size: int | None) -> None:
    data, ids = DATA[:12] > 0, np.array([0, 1, 0, 3, 3, 3, 0, 1, 1, 0, 3, 0], np.int32)
    wanted = theirs(name)(data, ids, 5)
    same(ours(name)(data, ids, 5, bucket_size=bucket_size), wanted)
    found = td.jit(lambda x, i: ours(name)(x, i, 5, bucket_size=bucket_size))
    same(found(data, ids), wanted)
    assert found(data, ids).dtype == td.bool_


@pytest.mark.parametrize("kind", ["int8", "uint8", "int64", "uint64"])
def test_ids_of_all_dtypes_are_dropped_where_out_of_range(kind: str) -> None:
    ids = np.array([0, 1, 100, 2, 1], kind)
    if kind[0] == "i":
        ids[3] = -1
    if kind.endswith("64"):
        ids[2] = 2**32  # 0, if it were cut off
    found = td.segment_sum(tnp.ones(5), tnp.asarray(ids), 200 if kind == "int8" else 2)
    np.testing.assert_array_equal(found[:2], [1, 2])


@pytest.mark.parametrize("bucket_size", [None, 7])
@pytest.mark.parametrize("name", ["sum", "max", "min"])
def test_gradients(name: str, bucket_size: int | None) -> None:
    weights = rng.normal(size=(8, 3)).astype(np.float32)
    ids = np.concatenate([np.arange(8), IDS[8:]]).astype(np.int32)  # none is empty

    def loss(reduce: Any) -> Any:
        return lambda x: (weights * reduce(x, ids, 8, bucket_size=bucket_size)).sum()

    same(td.jit(td.grad(loss(ours(name))))(DATA), jax.grad(loss(theirs(name)))(DATA))


def test_the_gradient_of_products_is_exact_at_zeros() -> None:
    data = np.array([2.0, 0.0, 3.0, 0.0, 0.0, 5.0], np.float64)
    ids = np.array([0, 0, 1, 2, 2, 1])
    found = td.grad(lambda x: td.segment_prod(x, ids, 3).sum())(data)
    np.testing.assert_array_equal(found, [0.0, 2.0, 5.0, 0.0, 0.0, 3.0])
    td.check_grads(lambda x: td.segment_prod(x, ids, 3), (data + 0.5,), order=2)


@pytest.mark.parametrize("in_axes", [(0, 0), (0, None), (None, 0)])
def test_vmap(in_axes: tuple[int | None, int | None]) -> None:
    data = rng.normal(size=(2, 40, 3)).astype(np.float32)
    ids = rng.integers(0, 5, (2, 40)).astype(np.int32)
    args = [x if a == 0 else x[0] for x, a in zip((data, ids), in_axes, strict=True)]
    for name in NAMES:
        found = td.jit(td.vmap(lambda x, i, n=name: ours(n)(x, i, 5), in_axes))(*args)
        wanted = jax.vmap(lambda x, i, n=name: theirs(n)(x, i, 5), in_axes)(*args)
        same(found, wanted)


def test_the_number_of_segments_is_found_where_it_can_be() -> None:
    found = td.segment_sum(tnp.arange(4), tnp.array([0, 3, 0, 1]))
    np.testing.assert_array_equal(found, [2, 3, 0, 1])
    assert td.segment_max(tnp.zeros((0, 2)), tnp.zeros(0, int)).shape == (0, 2)
    assert td.segment_sum(tnp.array([True, True]), tnp.array([0, 0]))[0] == 2


def test_sizes_may_vary() -> None:
    @td.jit(dynamic={"x": ("n", None), "i": ("n",)})
    def reduced(x: Any, i: Any) -> Any:
        return td.segment_sum(x, i, 8), td.segment_max(x, i, 8, bucket_size=7)

    for n in (1, 20, 40):
        got = reduced(DATA[:n], IDS[:n])
        same(got[0], theirs("sum")(DATA[:n], IDS[:n], 8))
        same(got[1], theirs("max")(DATA[:n], IDS[:n], 8))


def test_rows_of_all_widths_are_divided_among_threads() -> None:
    for width in (1, 15, 64, 300):
        data = rng.normal(size=(3000, width)).astype(np.float32)
        ids = rng.integers(0, 50, 3000)
        found = td.jit(lambda x, i: td.segment_sum(x, i, 50))(data, ids)
        wanted = np.zeros((50, width), np.float32)
        np.add.at(wanted, ids, data)
        np.testing.assert_array_equal(found, wanted)


def test_errors_say_what_to_do() -> None:
    with pytest.raises(TracerError, match=r"num_segments=n"):
        td.jit(td.segment_sum)(DATA, IDS)
    with pytest.raises(TypeError, match="segment_ids are integers, got f32"):
        td.segment_sum(DATA, DATA[:, 0], 3)
    with pytest.raises(ValueError, match=r"a number for each row.*i32\[39\]"):
        td.segment_sum(DATA, IDS[1:], 3)
    with pytest.raises(ValueError, match="'sideways' is none of"):
        td.segment_sum(DATA, IDS, 3, mode="sideways")
    with pytest.raises(ValueError, match="bucket_size=0"):
        td.segment_sum(DATA, IDS, 3, bucket_size=0)
    for name in ("segment_max", "segment_min"):
        with pytest.raises(TypeError, match=rf"{name}: complex.*got data c64.*`abs`"):
            getattr(td, name)(DATA * np.complex64(1j), IDS, 3)


def test_ids_are_counted_on_from_the_other_end() -> None:
    ids = tnp.array([-1, 5, 0])
    found = td.segment_sum(tnp.ones(3), ids, 4, mode="wrap")
    np.testing.assert_array_equal(found, [1, 1, 0, 1])
