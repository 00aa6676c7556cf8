"""What functions of two operands have besides: NumPy's methods of ufuncs."""

from __future__ import annotations

from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.np.oracle import same
from tests.refused import refused

NUMBERS = np.random.default_rng(0)
X = NUMBERS.uniform(0.5, 2, size=(5, 4)).astype(np.float32)
WHOLE = NUMBERS.integers(1, 9, size=(5, 4)).astype(np.int32)
MASK = NUMBERS.random((5, 4)) > 0.4
NUMERIC = "add subtract multiply divide maximum minimum fmax fmin logaddexp logaddexp2"
OTHERS = "hypot power floor_divide remainder logical_and logical_or logical_xor"
NAMES = f"{NUMERIC} {OTHERS} bitwise_and bitwise_or bitwise_xor".split()
EACH = pytest.mark.parametrize("name", NAMES)


def operand(name: str) -> Any:
    return WHOLE if "bitwise" in name else X


def twice(function: Any, *args: Any) -> Any:
    """What a function gives, eagerly and compiled alike."""
    found = function(*args)
    same(td.jit(function)(*args), found, 40)
    return found


@EACH
def test_reduce_is_a_fold(name: str) -> None:
    ours, numpys, x = getattr(tnp, name), getattr(np, name), operand(name)
    for axis in (0, 1, -1):
        found = twice(lambda v, a=axis: ours.reduce(v, axis=a), x)
        same(found, reduce(numpys, list(np.moveaxis(x, axis, 0))), 40)
    found = ours.reduce(x, axis=1, keepdims=True, initial=1, where=MASK)
    rows = [reduce(numpys, r[m], x.dtype.type(1)) for r, m in zip(x, MASK, strict=True)]
    same(found, np.array(rows)[:, None], 40)


@EACH
def test_accumulate_keeps_each_step(name: str) -> None:
    ours, x = getattr(tnp, name), operand(name)
    for axis in (0, 1):
        found = twice(lambda v, a=axis: ours.accumulate(v, axis=a), x)
        parts = [
            ours.reduce(x.take(range(i + 1), axis), axis=axis)
            for i in range(x.shape[axis])
        ]
        same(found, np.stack(parts, axis), 40)


@EACH
@pytest.mark.parametrize("places", [[0, 2], [0, 3, 1, 3], [2, 2, 0]], ids=str)
def test_reduceat_takes_pieces(name: str, places: list[int]) -> None:
    ours, numpys, x = getattr(tnp, name), getattr(np, name), operand(name)
    for axis in (0, 1):
        n = x.shape[axis]
        ends = [*places[1:], n]
        parts = [
            reduce(numpys, [x.take(k, axis) for k in range(i, max(j, i + 1))])
            for i, j in zip(places, ends, strict=True)
        ]
        found = ours.reduceat(x, places, axis=axis)
        same(found, np.stack(parts, axis).astype(found.dtype), 40)
        traced = td.jit(lambda v, at, a=axis: ours.reduceat(v, at, axis=a))
        same(traced(x, np.array(places)), found, 40)


@EACH
def test_outer_and_at(name: str) -> None:
    ours, numpys, x = getattr(tnp, name), getattr(np, name), operand(name)
    same(twice(ours.outer, x, x[0]), numpys.outer(x, x[0]), 40)
    if name.startswith(("logical", "floor")):
        return
    places, wanted = ([0, 1, 1, 0], [2, 3, 3, 2]), x.copy()
    numpys.at(wanted, places, x[1])
    found = twice(lambda v, y: ours.at(v, places, y, inplace=False), x, x[1])
    same(found, wanted, 40)


def test_sums_and_logarithms_along_several_axes() -> None:
    for axis in (None, (0, 1), ()):
        same(tnp.add.reduce(WHOLE, axis), np.add.reduce(WHOLE, axis).astype(np.int32))
        same(tnp.logaddexp.reduce(X, axis), np.logaddexp.reduce(X, axis), 40)
    same(tnp.add.reduce(MASK), np.add.reduce(MASK).astype(np.int32))
    same(tnp.hypot.reduce(X[:0]), np.zeros(4, np.float32))
    same(tnp.add.reduce(X, dtype="float64"), np.add.reduce(X, dtype="float64"))


def test_derivatives_and_batches_are_jaxs() -> None:
    at = np.array([0, 2])

    def loss(np: Any, x: Any) -> Any:
        pieces = np.multiply.reduceat(x, at)
        moved = np.add.at(x, ([0, 0], [1, 1]), x[2, :2], inplace=False)
        return pieces.sum() + (x * moved).sum() + np.logaddexp.reduce(x).prod()

    wanted = jax.grad(lambda x: loss(jnp, x))(X)
    slope = td.grad(lambda x: loss(tnp, x))
    same(slope(X), wanted, 100)
    same(td.jit(slope)(X), wanted, 100)
    for name in ("subtract", "hypot"):
        function = getattr(tnp, name)
        found = td.vmap(lambda r, f=function: f.reduce(r))(X)
        same(found, function.reduce(X, axis=1))


def test_what_numpys_ufuncs_say_of_themselves() -> None:
    for name in NAMES:
        ours, numpys = getattr(tnp, name), getattr(np, name)
        assert (ours.nin, ours.nout) == (numpys.nin, numpys.nout)
        assert ours.identity == numpys.identity or name == "hypot"


def test_what_is_refused() -> None:
    refused(
        lambda: tnp.add.at(X, [0], 1.0),
        NotImplementedError,
        "arrays don't change",
        "`x = x.at[i].add(y)`",
    )
    refused(lambda: tnp.less.reduce(X), TypeError, "less gives bool for float32")
    refused(
        lambda: tnp.subtract.reduce(X, axis=None),
        ValueError,
        "the order of several axes",
    )
    refused(lambda: tnp.add.reduceat(X, [0.5]), TypeError, "indices are integers")
    refused(lambda: tnp.add.reduceat(X, [[0]]), ValueError, "one axis, got an array")
    refused(lambda: tnp.fmax.reduce(X[:0]), ValueError, "fmax has no identity")
    with pytest.raises(IndexError, match="index 7 is out of range"):
        tnp.add.reduceat(X, [0, 7])


@pytest.mark.parametrize("dtype", ["uint8", "uint64", "int16", "bool"])
def test_bits_of_nothing_are_all_set(dtype: str) -> None:
    x = (WHOLE % 2).astype(dtype)
    same(tnp.bitwise_and.reduce(x[:0]), np.bitwise_and.reduce(x[:0]), 0)
    found = tnp.bitwise_and.reduce(x, axis=1, where=MASK)
    same(found, np.bitwise_and.reduce(x, axis=1, where=MASK), 0)
