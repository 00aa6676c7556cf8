"""Attention that is spelled with products and softmax: that it is recognised, and what
it gives beside JAX and beside the program as it is spelled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn
from treadle.backends.cpu.device import CPUTarget
from treadle.check import check
from treadle.compile import Stages, stages
from treadle.control import spelled
from treadle.plan.steps import CallsStep, walk

Args = dict[str, Any]

BATCH, HEADS, QUERIES, KEYS, DEPTH = 2, 3, 20, 20, 8


def softmax(lib: Any, x: Any) -> Any:
    return (nn if lib is tnp else jax.nn).softmax(x, axis=-1)


def log_softmax(lib: Any, x: Any) -> Any:
    return (nn if lib is tnp else jax.nn).log_softmax(x, axis=-1)


def by_heads(lib: Any, a: Args) -> Any:
    """Matrices behind swapped axes; the scale on the scores."""
    q, k, v = (lib.swapaxes(a[n], 1, 2) for n in "qkv")
    scores = q @ lib.swapaxes(k, -1, -2) / np.sqrt(DEPTH)
    return lib.swapaxes(softmax(lib, scores) @ v, 1, 2)


def causal_by_where(lib: Any, a: Args) -> Any:
    """`einsum`; the scale on the queries; a triangle, and -inf."""
    scores = lib.einsum("bqhd,bkhd->bhqk", a["q"] * DEPTH**-0.5, a["k"])
    seen = lib.tril(lib.ones(scores.shape[-2:], bool))
    weights = softmax(lib, lib.where(seen, scores, -lib.inf))
    return lib.einsum("bhqk,bkhd->bqhd", weights, a["v"])


def causal_by_places(lib: Any, a: Args) -> Any:
    """Places compared, which makes an additive mask; own exponentials and sums."""
    scores = lib.einsum("bqhd,bkhd->bhqk", a["q"], a["k"]) * 0.3
    places = lib.arange(a["q"].shape[1])
    scores = scores + lib.where(places[:, None] < places[None], -1e9, 0.0)
    terms = lib.exp(scores - scores.max(-1, keepdims=True))
    weights = terms / terms.sum(-1, keepdims=True)
    return lib.einsum("bhqk,bkhd->bqhd", weights, a["v"])


def causal_of_floats(lib: Any, a: Args) -> Any:
    """A triangle of floats, of which zeros are asked for."""
    scores = lib.einsum("bqhd,bkhd->bhqk", a["q"], a["k"]) / lib.sqrt(DEPTH)
    triangle = lib.tril(lib.ones(scores.shape[-2:]))
    weights = softmax(lib, lib.where(triangle == 0, -1e9, scores))
    return lib.einsum("bhqk,bkhd->bqhd", weights, a["v"])


def causal_by_complement(lib: Any, a: Args) -> Any:
    """One less a triangle, times a large number."""
    scores = lib.einsum("bqhd,bkhd->bhqk", a["q"], a["k"])
    triangle = lib.tri(*scores.shape[-2:])
    weights = softmax(lib, scores - (1.0 - triangle) * 1e9)
    return lib.einsum("bhqk,bkhd->bqhd", weights, a["v"])


def padded(lib: Any, a: Args) -> Any:
    """A mask of booleans (batch, keys) that broadcasts, and logarithms of weights."""
    scores = lib.einsum("bqhd,bkhd->bhqk", a["q"], a["k"])
    scores = lib.where(a["real"][:, None, None], scores, -lib.inf)
    weights = lib.exp(log_softmax(lib, scores))
    return lib.einsum("bhqk,bkhd->bqhd", weights, a["v"])


def padded_by_floats(lib: Any, a: Args) -> Any:
    """Floats (batch, 1, 1, keys) that are added; a temperature that is learned."""
    q, k, v = (a[n].transpose(0, 2, 1, 3) for n in "qkv")
    scores = lib.matmul(q, k.transpose(0, 1, 3, 2)) * a["warm"]
    real = lib.asarray(a["real"]).astype(q.dtype)
    scores = scores + (1.0 - real)[:, None, None] * -1e9
    return lib.matmul(softmax(lib, scores), v).transpose(0, 2, 1, 3)


def biased(lib: Any, a: Args) -> Any:
    """A bias by heads, and a triangle of booleans."""
    scores = lib.einsum("bqhd,bkhd->bhqk", a["q"], a["k"]) + a["bias"]
    scores = lib.where(~a["upper"], scores, -1e10)
    return lib.einsum("bhqk,bkhd->bqhd", softmax(lib, scores), a["v"])


def dropped(lib: Any, a: Args) -> Any:
    """Weights that are left out, and others that count more."""
    scores = lib.einsum("bqhd,bkhd->bhqk", a["q"], a["k"])
    weights = softmax(lib, scores)
    weights = lib.where(a["kept"], weights / 0.8, 0.0)
    return lib.einsum("bhqk,bkhd->bqhd", weights, a["v"])


def dropped_by_factors(lib: Any, a: Args) -> Any:
    """The same by zeros and ones; other shapes, and the values first."""
    scores = lib.einsum("bqhd,bkhd->bhqk", a["q"], a["k"])
    ones = lib.asarray(a["kept"]).astype(a["q"].dtype)
    weights = softmax(lib, scores) * ones / 0.8
    return lib.einsum("bkhd,bhqk->bqhd", a["v"], weights)


def repeated(lib: Any, a: Args) -> Any:
    """Fewer heads of keys and values, each repeated."""
    k, v = (lib.repeat(a[n][:, :, :1], HEADS, axis=2) for n in "kv")
    q, k, v = (x.transpose(0, 2, 1, 3) for x in (a["q"], k, v))
    scores = q @ k.swapaxes(-1, -2)
    scores = lib.where(a["real"][:, None, None], scores, -1e9)
    return (softmax(lib, scores) @ v).transpose(0, 2, 1, 3)


def grouped(lib: Any, a: Args) -> Any:
    """One head of keys and values for all, which broadcasts."""
    q, k, v = (a[n].transpose(0, 2, 1, 3) for n in "qkv")
    k, v = k[:, :1], v[:, :1]
    scores = lib.einsum("bhqd,bgkd->bhqk", q, k) * 0.5
    return lib.einsum("bhqk,bgkd->bqhd", softmax(lib, scores), v)


def of_one_head(lib: Any, a: Args) -> Any:
    """Neither examples nor heads: two matrices."""
    q, k, v = (a[n][0, :, 0] for n in "qkv")
    seen = lib.tril(lib.ones((q.shape[0], k.shape[0])))
    scores = lib.where(seen > 0, q @ k.T, -lib.inf)
    return softmax(lib, scores) @ v


def normalised_by_factor(lib: Any, a: Args) -> Any:
    """Exponentials times one over their sum; a sum of exponentials without maxima."""
    terms = lib.exp(lib.einsum("bqhd,bkhd->bhqk", a["q"], a["k"]) * 0.1)
    weights = terms * (1 / terms.sum(-1)[..., None])
    return lib.einsum("bhqk,bkhd->bqhd", weights, a["v"])


def window(lib: Any, a: Args) -> Any:
    """A band: this place and four before."""
    scores = lib.einsum("bqhd,bkhd->bhqk", a["q"], a["k"])
    row = lib.arange(scores.shape[-2])[:, None]
    column = lib.arange(scores.shape[-1])[None]
    seen = (column <= row) & (row - column < 5)
    weights = softmax(lib, lib.where(seen, scores, -lib.inf))
    return lib.einsum("bhqk,bkhd->bqhd", weights, a["v"])


SPELLINGS: dict[str, Callable[[Any, Args], Any]] = {
    f.__name__: f
    for f in (
        *(by_heads, causal_by_where, causal_by_places, causal_of_floats),
        *(causal_by_complement, padded, padded_by_floats, biased, dropped),
        *(dropped_by_factors, repeated, grouped, of_one_head, window),
        normalised_by_factor,
    )
}
BANDS = {
    **dict.fromkeys(
        ("causal_by_where", "causal_by_places", "causal_of_floats"), (None, 0)
    ),
    **dict.fromkeys(("causal_by_complement", "of_one_head"), (None, 0)),
    "window": (4, 0),
}


def draw(dtype: Any = np.float32, length: int = QUERIES) -> Args:
    rng = np.random.default_rng(0)
    shape = (BATCH, length, HEADS, DEPTH)
    arrays = {n: rng.standard_normal(shape).astype(dtype) for n in "qkv"}
    scores = (BATCH, HEADS, length, length)
    return arrays | {
        "real": np.arange(length) < np.array([[length], [length - 7]]),
        "warm": dtype(0.7),
        "bias": rng.standard_normal((HEADS, length, length)).astype(dtype),
        "upper": np.triu(np.ones((length, length), bool), 1),
        "kept": rng.random(scores) < 0.8,
    }


def close(found: Any, expected: Any, error: float = 2e-5) -> None:
    for x, y in zip(td.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(x), y, rtol=error, atol=error)


def loss(lib: Any, spelling: Any, fixed: Args) -> Any:
    def function(moving: Args) -> Any:
        return lib.sum(lib.sin(spelling(lib, fixed | moving)))

    return function


def split(args: Args, names: str = "qkv") -> tuple[Args, Args]:
    moving = {n: args[n] for n in names}
    return moving, {n: x for n, x in args.items() if n not in moving}


def gradient(spelling: Any, fixed: Args) -> Any:
    return lambda moving: td.value_and_grad(loss(tnp, spelling, fixed))(moving)


def attentions(made: Stages) -> list[Any]:
    calls = [s for _, s in walk(made.plan.steps) if isinstance(s, CallsStep)]
    return [s.call.script for s in calls]


@pytest.fixture
def as_spelled(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Calls it to have programs as they are spelled."""
    return lambda: monkeypatch.setattr(spelled, "spelled", lambda *args: None)


@pytest.mark.parametrize("name", SPELLINGS)
def test_is_recognised(name: str) -> None:
    """There are only kernels in a training step, and nothing as large as the scores."""
    moving, fixed = split(draw())
    made = stages(td.trace(gradient(SPELLINGS[name], fixed))(moving), CPUTarget())
    check(made)
    found = attentions(made)
    assert [a.backward for a in found] == [False, True]
    assert {a.reach for a in found} == {BANDS.get(name, (None, None))}
    shared = HEADS if name not in ("repeated", "grouped", "of_one_head") else 1
    assert {a.key[1] for a in found} <= {shared, 1}
    types = [v.type for eq in made.graph.equations for v in eq.outputs]
    floats = [t.size for t in types if td.dtypes.is_float(t.dtype)]
    assert max(floats) < BATCH * HEADS * QUERIES * KEYS


@pytest.mark.parametrize("name", SPELLINGS)
def test_values_and_gradients(name: str, as_spelled: Callable[[], None]) -> None:
    spelling = SPELLINGS[name]
    moving, fixed = split(draw())
    found = td.jit(gradient(spelling, fixed))(moving)
    expected = jax.jit(jax.value_and_grad(loss(jnp, spelling, fixed)))(moving)
    close(found, expected)
    as_spelled()
    close(found, td.jit(gradient(spelling, fixed))(moving))
