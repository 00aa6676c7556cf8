"""The names of dtypes: functions that convert, and dtypes wherever one is wanted."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import dtypes, nn, rng

NAMES = [d.name for d in dtypes.ALL]
pairs = pytest.mark.parametrize("name", NAMES)


def both(name: str) -> tuple[Any, np.dtype]:
    return getattr(tnp, name), np.dtype(getattr(ml_dtypes, name, name))


@pairs
@pytest.mark.parametrize("value", [True, 3, 2.75, [1, 2], np.arange(3, dtype=np.uint8)])
def test_a_call_converts(name: str, value: Any) -> None:
    ours, _ = both(name)
    with jax.enable_x64(True):
        theirs = getattr(jnp, name)(jnp.asarray(value))
    for found in (ours(value), td.jit(lambda: ours(value))(), td.jit(ours)(value)):
        assert found.dtype == theirs.dtype and not td.typeof(found).weak
        np.testing.assert_array_equal(np.asarray(found), theirs)


def test_what_is_traced_is_converted() -> None:
    def f(x: Any, i: Any) -> Any:
        return tnp.float32(x) * tnp.float16(0.5) + tnp.int32(i) * tnp.float32(x) ** 2

    def g(x: Any, i: Any) -> Any:
        return jnp.float32(x) * jnp.float16(0.5) + jnp.int32(i) * jnp.float32(x) ** 2

    x = np.float32([0.5, -1, 3])
    np.testing.assert_array_equal(td.jit(f)(x, 2.9), g(x, 2.9))
    found = td.vmap(td.grad(f), (0, None))(x, 2)
    np.testing.assert_allclose(found, jax.vmap(jax.grad(g), (0, None))(x, 2), 1e-6)
    assert td.grad(lambda x: tnp.float64(x) * 3)(tnp.float32(2)).dtype == tnp.float32


@pytest.mark.parametrize("name", ["int8", "uint8", "float16", "complex64", "bool_"])
def test_nothing_is_zero(name: str) -> None:
    ours, zero = getattr(tnp, name)(), getattr(np, name)()
    assert (ours.shape, ours.dtype, ours.item()) == ((), zero.dtype, zero.item())


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(TypeError, match="got a str: '2'"):
        tnp.float32("2")
    with pytest.raises(TypeError, match=r"can't convert c64\[\] to float32"):
        tnp.float32(2j)
    with pytest.raises(TypeError, match=r"can't convert c128\[1\] to float32"):
        tnp.float32([2j])
    with pytest.raises(OverflowError, match=r"300 out of bounds(.|\n)*test_scalar"):
        tnp.int8(300)
    with pytest.raises(OverflowError, match=r"-1 out of bounds(.|\n)*test_scalar"):
        tnp.uint8([[-1]])
    with pytest.raises(ValueError, match=r"NaN to integer(.|\n)*test_scalar"):
        tnp.int8(float("nan"))


@pytest.mark.parametrize("name", ["int8", "uint8", "int32", "bool", "float16"])
def test_arrays_are_converted_alike_eagerly_and_compiled(name: str) -> None:
    ours, _ = both(name)
    x = np.float32([np.nan, np.inf, -np.inf, 1e20, 300, -5, 2.7, -0.0])
    for f in (
        ours,
        lambda x: tnp.asarray(x, name),
        lambda x: tnp.array(x).astype(name),
    ):
        np.testing.assert_array_equal(f(x), td.jit(f)(x))
        np.testing.assert_array_equal(td.jit(lambda f=f: f(x))(), td.jit(f)(x))
    np.testing.assert_array_equal(ours(x.tolist()), td.jit(ours)(x))


@pairs
def test_it_is_a_dtype_to_us_numpy_and_jax(name: str) -> None:
    ours, theirs = both(name)
    assert ours == theirs and theirs == ours and ours == theirs.type == ours
    assert ours == name or name == "bfloat16"  # NumPy has no string for it
    assert not ours.__ne__(theirs) and not theirs.__ne__(ours)
    assert ours != np.dtype("V3") and ours not in (3, "no dtype", object())
    assert {theirs: 1}[ours] == {ours: 1}[theirs] == 1 and hash(ours) == hash(theirs)
    assert type(np.dtype(ours)) is type(theirs) and np.dtype(ours) == theirs
    assert isinstance(ours, np.dtype) and td.dtypes.canonical(ours) is theirs
    made = [np.zeros(3, ours), np.zeros(3).astype(ours), np.zeros(8, theirs).view(ours)]
    made += [np.asarray([1], dtype=ours), np.empty_like(np.zeros(3), dtype=ours)]
    made += [tnp.zeros(3, ours), tnp.ones(3).astype(ours), tnp.zeros(3, theirs.name)]
    made += [tnp.ones(3, theirs).view(ours), tnp.ones(3).sum(dtype=ours)]
    with jax.enable_x64(True):
        made += [jnp.zeros(3, ours), jnp.zeros(3).astype(ours)]
    assert [x.dtype for x in made] == [theirs] * len(made) == [ours] * len(made)
    assert td.ShapeDtype((2,), ours) == td.ShapeDtype((2,), theirs)


@pairs
def test_functions_of_dtypes_take_it(name: str) -> None:
    ours, theirs = both(name)
    for other in NAMES:
        b, d = both(other)
        assert tnp.promote_types(ours, b) == tnp.promote_types(theirs, d)
        assert tnp.result_type(ours, b, 1) == tnp.result_type(theirs, d, 1)
        assert tnp.can_cast(ours, b) == tnp.can_cast(theirs, d)
        assert tnp.issubdtype(ours, b) == tnp.isdtype(ours, b) == (theirs == d)
    for kind in (np.floating, np.integer, np.inexact, np.generic):
        assert np.issubdtype(ours, kind) == np.issubdtype(theirs, kind)
        assert tnp.issubdtype(ours, kind) == jnp.issubdtype(theirs, kind)
        assert jnp.issubdtype(ours, kind) == jnp.issubdtype(theirs, kind)
    limits: Any = tnp.iinfo if theirs.kind in "iu" else tnp.finfo
    if name != "bool":
        assert limits(ours).max == limits(theirs).max
    if theirs.kind == "f":
        assert jnp.finfo(ours).eps == np.finfo(ours).eps == np.finfo(theirs).eps
    known = tnp.__array_namespace_info__().dtypes()
    assert known.get(name, ours) == ours


@pairs
def test_attributes_copies_and_text(name: str) -> None:
    ours, theirs = both(name)
    for what in ("name", "kind", "itemsize", "type", "char", "shape", "byteorder"):
        assert getattr(ours, what) == getattr(theirs, what)
    assert not hasattr(ours, "no_such_thing")
    assert repr(ours) == repr(theirs) and f"{ours}" == str(ours) == str(theirs)
    for same in (
        pickle.loads(pickle.dumps(ours)),
        copy.copy(ours),
        copy.deepcopy(ours),
    ):
        assert same is ours
    assert getattr(td, "bool_" if name == "bool" else name) is ours


def test_models_and_jit_know_it_as_the_dtype_that_it_is() -> None:
    f = td.jit(lambda x, dtype: x.astype(dtype), static="dtype")
    for dtype in (tnp.int8, td.int8):
        assert f(tnp.ones(2), dtype=dtype).dtype == tnp.int8
    assert f.report().traces == 1
    first, second = (
        nn.Linear(2, 3, dtype=d, param_dtype=p, key=rng.key(0))
        for d, p in ((tnp.bfloat16, tnp.float16), ("bfloat16", "float16"))
    )
    assert td.tree.structure(first) == td.tree.structure(second)
    assert repr(first) == repr(second) and first.weight.dtype == tnp.float16
