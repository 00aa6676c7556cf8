"""Operands of attention from those of the products that it is spelled with."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import treadle.numpy as tnp
from tests.core.fuse.graphs import traced
from treadle import nn
from treadle.control.spelled_parts import (
    DEPTH,
    VALUE_DEPTH,
    Parts,
    alike,
    joined,
    operands,
    parts_of,
    reshaped,
    transposed,
)
from treadle.control.spelled_weights import spelled
from treadle.ops.dot import dot_general
from treadle.run.eager import evaluate
from treadle.trace.interpreter import state
from treadle.trace.value import typeof

RNG = np.random.default_rng(0)
B, H, N, M, D, E = 2, 3, 4, 5, 6, 7
ROW = RNG.random((N, 1)) + 0.5
MASK = RNG.random((B, 1, 1, M)) < 0.7
MASK[..., 0] = True
NOTED = threading.local()


def drawn(*shape: int, dtype: Any = "float64") -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


def parts_for(
    function: Any, *args: Any, contract: Any, batch: Any, side: int = 0
) -> Any:
    """The parts for a product of weights with values, both of which a function gives,
    and the operands as arrays."""

    def told(*args: Any) -> Any:
        weights, value = function(*args)
        columns = contract[side][0]
        found = spelled(weights, columns, state.interpreter.writer)
        assert found is not None
        NOTED.parts = parts_of(found, value, side, contract, batch)
        pair = (weights, value) if side == 0 else (value, weights)
        out = dot_general(*pair, contract=contract, batch=batch)
        if NOTED.parts is None:
            return out
        NOTED.scale = found.scale * NOTED.parts.scale
        mask = joined(found.hidden, NOTED.parts, NOTED.parts.order)
        assert (mask is None) == (not found.hidden)
        return [out, *operands(found, NOTED.parts), *([] if mask is None else [mask])]

    outs = evaluate(traced(told, *args), args)
    NOTED.outs = [np.asarray(x, np.float64) for x in outs]
    return NOTED.parts


def attended(parts: Parts) -> np.ndarray:
    """Attention of the operands in NumPy, with the axes of the product."""
    _, q, k, v = NOTED.outs[:4]
    assert q.ndim == k.ndim == v.ndim == 4
    assert k.shape[2] == v.shape[2]
    repeats = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, repeats, 2), np.repeat(v, repeats, 2)
    if parts.groups and parts.shared:
        assert repeats > 1
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) * NOTED.scale
    terms = np.exp(scores - scores.max(-1, keepdims=True))
    weights = terms / terms.sum(-1, keepdims=True)
    out = np.einsum("bhqk,bkhd->bqhd", weights, v)
    (found,) = evaluate(traced(parts.spread, out), [out])
    return np.asarray(found)


def agree(parts: Parts | None, error: float = 1e-9) -> Parts:
    assert parts is not None
    np.testing.assert_allclose(attended(parts), NOTED.outs[0], error, 1e-7)
    return parts


def plain(q: Any, k: Any, v: Any) -> Any:
    return nn.softmax(q @ tnp.swapaxes(k, -1, -2), axis=-1), v


def turned(*xs: Any) -> Any:
    """Axes (examples, places, heads, depth) as those of products."""
    return [tnp.swapaxes(x, 1, 2) for x in xs]


def by_heads(q: Any, k: Any, v: Any) -> Any:
    return plain(*turned(q, k, v))


HEADS = {"contract": ((3,), (2,)), "batch": ((0, 1), (0, 1))}


def test_axes_of_heads_are_told_apart() -> None:
    args = drawn(B, N, H, D), drawn(B, M, H, D), drawn(B, M, H, E)
    parts = agree(parts_for(by_heads, *args, **HEADS))
    assert (parts.batch, parts.shared, parts.groups) == ([0], [1], [])
    assert (parts.queries, parts.keys) == (2, 3)
    assert parts.heads == [1]
    assert parts.order == [[0], [1], [2], [3]]
    assert parts.ahead == M - N
    assert parts.sizes == {0: B, 1: H, 2: N, 3: M, DEPTH: D, VALUE_DEPTH: E}
    assert parts.out == [0, 1, 2, VALUE_DEPTH]
    shapes = [(B, N, H, D), (B, M, H, D), (B, M, H, E)]
    assert [x.shape for x in NOTED.outs[1:]] == shapes
    # Where heads stand before places, each is an example.
    parts = agree(parts_for(plain, *turned(*args), **HEADS))
    assert (parts.batch, parts.shared, parts.heads) == ([0, 1], [], [])
    assert NOTED.outs[1].shape == (B * H, N, 1, D)


def test_two_matrices() -> None:
    args = drawn(N, D), drawn(M, D), drawn(M, E)
    sides = {"contract": ((1,), (0,)), "batch": ((), ())}
    parts = agree(parts_for(plain, *args, **sides))
    assert (parts.batch, parts.shared, parts.groups) == ([], [], [])
    # The other way round: values first.
    values_first = {"contract": ((0,), (1,)), "batch": ((), ()), "side": 1}
    parts = agree(parts_for(plain, *args, **values_first))
    assert parts.out == [VALUE_DEPTH, 0]


def test_keys_first() -> None:
    """Scores of keys by queries, turned."""

    def function(q: Any, k: Any, v: Any) -> Any:
        q, k, v = turned(q, k, v)
        return nn.softmax(tnp.swapaxes(k @ tnp.swapaxes(q, -1, -2), -1, -2)), v

    args = drawn(B, N, H, D), drawn(B, M, H, D), drawn(B, M, H, E)
    parts = agree(parts_for(function, *args, **HEADS))
    assert (parts.queries, parts.keys) == (3, 2)


def test_groups_of_queries_share_their_keys() -> None:
    """Queries (B, N, H, G, D), for keys (B, M, H, D)."""
    g = 2

    def function(q: Any, k: Any, v: Any) -> Any:
        scores = tnp.einsum("bqhgd,bkhd->bhgqk", q, k)
        return nn.softmax(scores, axis=-1), tnp.swapaxes(v, 1, 2)

    args = drawn(B, N, H, g, D), drawn(B, M, H, D), drawn(B, M, H, E)
    sides = {"contract": ((4,), (2,)), "batch": ((0, 1), (0, 1))}
    parts = agree(parts_for(function, *args, **sides))
    assert (parts.shared, len(parts.groups)) == ([1], 1)
    # No heads of keys at all: those of queries are groups.
    single = drawn(H, N, D), drawn(M, D), drawn(M, E)
    of_all = lambda q, k, v: (nn.softmax(tnp.einsum("hqd,kd->hqk", q, k)), v)  # noqa: E731
    sides = {"contract": ((2,), (0,)), "batch": ((), ())}
    parts = agree(parts_for(of_all, *single, **sides))
    assert (parts.batch, parts.shared, parts.groups) == ([], [], [0])


def test_repeated_heads_are_taken_as_they_were() -> None:
    def function(q: Any, k: Any, v: Any) -> Any:
        return by_heads(q, *(tnp.repeat(x, 2, 2) for x in (k, v)))

    args = drawn(B, N, 4, D), drawn(B, M, 2, D), drawn(B, M, 2, E)
    agree(parts_for(function, *args, **HEADS))
    assert [x.shape for x in NOTED.outs[1:]] == [
        (B, N, 4, D),
        (B, M, 2, D),
        (B, M, 2, E),
    ]
    # Only one of them, or not in the same way: all as they are.
    one = lambda q, k, v: by_heads(q, tnp.repeat(k, 2, 2), tnp.concatenate([v, v], 2))  # noqa: E731
    agree(parts_for(one, *args, **HEADS))
    assert [x.shape[2] for x in NOTED.outs[1:]] == [4, 4, 4]
    tiled = lambda q, k, v: by_heads(q, *(tnp.tile(x, (1, 1, 2, 1)) for x in (k, v)))  # noqa: E731
    agree(parts_for(tiled, *args, **HEADS))
    assert [x.shape[2] for x in NOTED.outs[1:]] == [4, 4, 4]
    deep = lambda q, k, v: by_heads(q, *(tnp.repeat(x, 2, 3) for x in (k, v)))  # noqa: E731
    agree(parts_for(deep, drawn(B, N, 2, 2 * D), *args[1:], **HEADS))
    assert NOTED.outs[2].shape == (B, M, 2, 2 * D)


def test_constant_factors_of_operands_go_to_the_scale() -> None:
    def function(q: Any, k: Any, v: Any) -> Any:
        return by_heads(3.0 * q / 2.0, k * 0.5, v)

    args = drawn(B, N, H, D), drawn(B, M, H, D), drawn(B, M, H, E)
    agree(parts_for(function, *args, **HEADS))
    assert NOTED.scale == 0.75
    np.testing.assert_array_equal(NOTED.outs[1], args[0])
    # What is no constant stays.
    other = lambda q, k, v: by_heads(q * tnp.sin(q), k, v)  # noqa: E731
    agree(parts_for(other, *args, **HEADS))
    assert NOTED.scale == 1


def test_halves_that_were_widened_are_read_as_halves() -> None:
    def function(q: Any, k: Any, v: Any) -> Any:
        q, k = (x.astype("float32") * 0.5 for x in (q, k))
        weights, v = by_heads(q, k, v)
        return weights.astype("float16"), v

    args = [
        drawn(*s, dtype="float16") for s in ((B, N, H, D), (B, M, H, D), (B, M, H, E))
    ]
    parts = agree(parts_for(function, *args, **HEADS), 0.1)
    assert NOTED.scale == 0.25
    assert parts.dtype == parts.result == np.float16
    # Narrowed before: what they were is not what the scores are of.
    narrow = lambda q, k, v: function(*(x.astype("float16") for x in (q, k)), v)  # noqa: E731
    wide = [x.astype("float32") for x in args[:2]]
    parts_for(narrow, *wide, args[2], **HEADS)
    assert NOTED.parts.query.value.dtype == np.float16


def masked(q: Any, k: Any, v: Any, m: Any) -> Any:
    q, k, v = turned(q, k, v)
    scores = q @ tnp.swapaxes(k, -1, -2)
    return nn.softmax(tnp.where(m, scores, -tnp.inf)), v


def test_masks_have_an_axis_of_each_kind() -> None:
    """Of length 1 where they are the same for all."""
    args = drawn(B, N, H, D), drawn(B, M, H, D), drawn(B, M, H, E)
    rng = np.random.default_rng(1)
    for shape in ((B, 1, 1, M), (B, H, N, M), (N, M), (1, H, N, M)):
        mask = rng.random(shape) < 0.8
        mask[..., 0] = True
        parts = parts_for(masked, *args, mask, **HEADS)
        full = mask.reshape((1,) * (4 - mask.ndim) + shape)
        assert (parts.batch, parts.heads) == ([0], [1])
        assert np.array_equal(NOTED.outs[4], full)
    # Two at once: where both hold.
    both = lambda q, k, v, m, n: masked(q, k, v, m & n)  # noqa: E731
    a, b = rng.random((B, 1, 1, M)) < 0.8, rng.random((1, 1, N, M)) < 0.8
    parts_for(both, *args, a, b, **HEADS)
    assert np.array_equal(NOTED.outs[4], a & b)


@pytest.mark.parametrize(
    ("shape", "batch"),
    [
        ((B, H, N, M), [0, 1]),
        ((N, M), [0, 1]),
        # A mask that is the same for all heads, or examples: the others are examples.
        ((B, 1, N, M), [0]),
        ((1, H, N, M), [1]),
        ((B, 1, 1, M), [0, 1]),
    ],
)
def test_masks_say_which_axes_are_examples(shape: Any, batch: Any) -> None:
    args = drawn(B, H, N, D), drawn(B, H, M, D), drawn(B, H, M, E)
    function = lambda q, k, v, m: masked(*turned(q, k, v), m)  # noqa: E731
    parts = parts_for(function, *args, np.ones(shape, bool), **HEADS)
    assert parts is not None
    assert parts.batch == batch
    assert sorted([*parts.batch, *parts.shared]) == [0, 1]


def test_values_by_rows_are_on_the_queries() -> None:
    def function(q: Any, k: Any, v: Any, r: Any) -> Any:
        q, k, v = turned(q, k, v)
        scores = q @ tnp.swapaxes(k, -1, -2)
        return nn.softmax(scores / r * 0.5), v

    args = drawn(B, N, H, D), drawn(B, M, H, D), drawn(B, M, H, E), ROW
    agree(parts_for(function, *args, **HEADS))
    np.testing.assert_allclose(NOTED.outs[1], args[0] / ROW[:, None])

    def times(q: Any, k: Any, v: Any, r: Any) -> Any:
        q, k, v = turned(q, k, v)
        return nn.softmax((q @ tnp.swapaxes(k, -1, -2)) * r), v

    scalar = np.array(1.5)
    agree(parts_for(times, *args[:3], scalar, **HEADS))
    np.testing.assert_allclose(NOTED.outs[1], args[0] * 1.5)


@pytest.mark.parametrize(
    ("function", "args", "sides"),
    [
        # A row of scores is little.
        (by_heads, ((B, 1, H, D), (B, M, H, D), (B, M, H, E)), HEADS),
        # No keys, no queries.
        (by_heads, ((B, N, H, D), (B, 0, H, D), (B, 0, H, E)), HEADS),
        (by_heads, ((B, 0, H, D), (B, M, H, D), (B, M, H, E)), HEADS),
        # Values of two axes of their own, or for each query.
        (
            plain,
            ((N, D), (M, D), (M, 2, E)),
            {"contract": ((1,), (0,)), "batch": ((), ())},
        ),
        (
            plain,
            ((N, D), (M, D), (N, M, E)),
            {"contract": ((1,), (1,)), "batch": ((0,), (0,))},
        ),
        # The heads are summed with the keys, or only in the values.
        (
            plain,
            ((H, N, D), (H, M, D), (M, E)),
            {"contract": ((2,), (0,)), "batch": ((), ())},
        ),
        # One query alone, which has no axis.
        (
            lambda q, k, v: (nn.softmax(k @ q), v),
            ((D,), (M, D), (M, E)),
            {"contract": ((0,), (0,)), "batch": ((), ())},
        ),
        # Scores that are summed over two axes.
        (
            lambda q, k, v: (nn.softmax(tnp.einsum("nde,mde->nm", q, k)), v),
            ((N, D, 2), (M, D, 2), (M, E)),
            {"contract": ((1,), (0,)), "batch": ((), ())},
        ),
    ],
)
def test_other_products_are_not_worth_it_or_no_attention(
    function: Any, args: Any, sides: Any
) -> None:
    assert parts_for(function, *(drawn(*s) for s in args), **sides) is None


def test_one_query_of_one_key_is_worth_it() -> None:
    args = drawn(B, 1, H, D), drawn(B, 1, H, D), drawn(B, 1, H, E)
    agree(parts_for(by_heads, *args, **HEADS))


def test_the_result_has_the_dtype_of_the_product() -> None:
    args = drawn(N, D), drawn(M, D), drawn(M, E)
    sides = {"contract": ((1,), (0,)), "batch": ((), ())}
    parts = agree(parts_for(plain, *args, **sides))
    half = parts.spread(np.ones((N, E), np.float32).reshape(1, N, 1, E))
    assert half.dtype == np.float64


def test_alike() -> None:
    x, y = np.ones((3, 1, 4)), np.arange(5.0).reshape(1, 5, 1)
    a, b = alike(x, y)
    assert a.shape == b.shape == (3, 5, 4)
    assert np.array_equal(b, np.broadcast_to(y, (3, 5, 4)))
    (same,) = alike(x)
    assert same is x
    assert reshaped(x, (3, 1, 4)) is x and reshaped(x, (12,)).shape == (12,)
    assert transposed(x, (0, 1, 2)) is x
    assert transposed(x, (2, 0, 1)).shape == (4, 3, 1)
    assert typeof(a).shape == (3, 5, 4)
