"""Keys and bits are those of JAX's default generator, bit for bit."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import treadle as td
import treadle.numpy as tnp
from treadle import rng

SHAPES: list[tuple[int, ...]] = [(), (1,), (7,), (3, 5), (2, 0, 3), (4, 1, 33)]
DTYPES = ["uint8", "uint16", "uint32"]


def equal(ours: Any, theirs: Any) -> None:
    if isinstance(ours, rng.Key):
        ours, theirs = rng.key_data(ours), jax.random.key_data(theirs)
    found, expected = np.asarray(ours), np.asarray(theirs)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@given(st.integers(-(2**31), 2**32 - 1))
def test_seeds(seed: int) -> None:
    equal(rng.key(seed), jax.random.key(seed))


@given(st.integers(0, 2**63 - 1))
def test_seeds_of_64_bits(seed: int) -> None:
    with jax.enable_x64(True):
        equal(rng.key(seed), jax.random.key(seed))


def test_a_seed_may_be_traced() -> None:
    equal(td.jit(rng.key)(np.int32(-5)), jax.random.key(-5))
    assert td.jit(rng.key)(np.int64(2**40 + 3)).data.tolist() == [256, 3]


@pytest.mark.parametrize("num", [1, 2, 5, (3,), (2, 3), ()])
def test_split(num: Any) -> None:
    key = rng.split(rng.key(3), num)
    assert key.shape == (num if isinstance(num, tuple) else (num,))
    equal(key, jax.random.split(jax.random.key(3), num))


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_fold_in(seed: int, data: int) -> None:
    key, other = rng.key(seed), jax.random.key(seed)
    equal(rng.fold_in(key, data), jax.random.fold_in(other, np.uint32(data)))


def test_the_number_folded_in_may_be_traced() -> None:
    key = rng.key(1)
    equal(
        td.jit(rng.fold_in)(key, np.int32(9)),
        jax.random.fold_in(jax.random.key(1), 9),
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_bits(shape: tuple[int, ...], dtype: str) -> None:
    expected = jax.random.bits(jax.random.key(11), shape, dtype)
    equal(rng.bits(rng.key(11), shape, dtype), expected)
    with td.disable_jit():
        equal(rng.bits(rng.key(11), shape, dtype), expected)


def test_bits_of_64() -> None:
    with jax.enable_x64(True):
        expected = jax.random.bits(jax.random.key(11), (5, 3), "uint64")
    equal(rng.bits(rng.key(11), (5, 3), "uint64"), expected)


# Keys are pytrees ---------------------------------------------------------------------


def test_keys_pass_through_transformations() -> None:
    key, other = rng.key(0), jax.random.key(0)
    keys, others = rng.split(key, 4), jax.random.split(other, 4)
    equal(td.jit(lambda k: rng.split(k)[1])(key), jax.random.split(other)[1])
    equal(
        td.vmap(lambda k: rng.bits(k, (3,)))(keys),
        jax.vmap(lambda k: jax.random.bits(k, (3,)))(others),
    )
    equal(
        td.vmap(lambda k, i: rng.fold_in(k, i), in_axes=(None, 0))(key, tnp.arange(3)),
        jax.vmap(lambda i: jax.random.fold_in(other, i))(np.arange(3)),
    )


def test_a_scan_carries_keys() -> None:
    def step(key: rng.Key, _: Any) -> Any:
        key, used = rng.split(key)
        return key, rng.bits(used, (2,))

    last, numbers = td.scan(step, rng.key(5), None, length=3)
    key, expected = rng.key(5), []
    for _ in range(3):
        key, used = rng.split(key)
        expected.append(rng.bits(used, (2,)))
    equal(last.data, key.data)
    equal(numbers, tnp.stack(expected))


def test_keys_have_no_gradient() -> None:
    def loss(params: dict[str, Any]) -> Any:
        return (params["scale"] * rng.normal(params["key"], (3,))).sum()

    grads = td.grad(loss)({"scale": 2.0, "key": rng.key(0)})
    assert grads["key"].data is None
    assert grads["scale"].item() == rng.normal(rng.key(0), (3,)).sum().item()


def test_keys_as_arrays_of_keys() -> None:
    keys = rng.split(rng.key(0), (2, 3))
    assert keys.shape == (2, 3) and keys.ndim == 2 and len(keys) == 2
    assert keys[1].shape == (3,) and keys[1, 2].shape == ()
    assert keys[..., 0].shape == (2,) and keys.reshape(6).shape == (6,)
    equal(keys[1, 2].data, keys.data[1, 2])
    first, second = rng.split(rng.key(0))
    assert first.shape == second.shape == ()


def test_paths_name_the_bits() -> None:
    [(path, leaf)], _ = td.tree.flatten_with_path({"key": rng.key(0)})
    assert td.tree.key_name(path) == "['key'].data"
    assert leaf.dtype == tnp.uint32


def test_a_clone_has_the_same_bits() -> None:
    equal(rng.clone(rng.key(2**31)), jax.random.clone(jax.random.key(2**31)))


def test_round_trip_of_bits() -> None:
    key = rng.wrap_key_data(np.array([3, 4], np.uint32))
    assert rng.key_data(key).tolist() == [3, 4]


# Errors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [
        lambda key: key + 1,
        lambda key: 2 * key,
        lambda key: -key,
        lambda key: np.asarray(key),
        lambda key: tnp.array(key),
        lambda key: np.sin(key),
    ],
)
def test_a_key_is_not_an_array(use: Any) -> None:
    with pytest.raises(TypeError, match=r"key is not an array[\s\S]*rng\.normal"):
        use(rng.key(0))


@pytest.mark.parametrize("wrong", [0, np.zeros(2, np.uint32), None, tnp.ones(3)])
@pytest.mark.parametrize("draw", [rng.normal, rng.uniform, rng.bits])
def test_what_is_no_key(draw: Any, wrong: Any) -> None:
    message = rf"{draw.__name__} takes a random key[\s\S]*rng\.key\(0\)"
    with pytest.raises(TypeError, match=message):
        draw(wrong, (2,))


def test_several_keys_where_one_is_needed() -> None:
    keys = rng.split(rng.key(0))
    with pytest.raises(ValueError, match=r"one key.*shape \(2,\)[\s\S]*vmap"):
        rng.normal(keys, (3,))
    with pytest.raises(TypeError, match=r"one key[\s\S]*rng\.split"):
        _, _ = rng.key(0)


def test_shapes_and_seeds() -> None:
    key = rng.key(0)
    with pytest.raises(TypeError, match=r"normal: shape must be a tuple[\s\S]*\(3,\)"):
        rng.normal(key, 3)
    with pytest.raises(TypeError, match=r"seed is an integer, got 0\.5"):
        rng.key(0.5)
    with pytest.raises(ValueError, match="64 bits"):
        rng.key(2**70)
    with pytest.raises(TypeError, match="floating-point type, got int32"):
        rng.normal(key, (3,), "int32")
    with pytest.raises(TypeError, match=r"uint32\[\.\.\., 2\]"):
        rng.wrap_key_data(np.zeros(3, np.uint32))


def test_negative_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"uniform: shape \(-1, 3\) has a negative"):
        rng.uniform(rng.key(0), (-1, 3))
