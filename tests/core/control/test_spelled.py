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

BATCH, HEADS, LENGTH, DEPTH = 2, 3, 64, 8


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


def draw(dtype: Any = np.float32, length: int = LENGTH) -> Args:
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
    assert max(floats) < BATCH * HEADS * LENGTH**2


QUICK = ("by_heads", "causal_by_places", "padded_by_floats", "dropped")
ALL = [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in SPELLINGS]


@pytest.mark.parametrize("name", ALL)
def test_values_and_gradients(name: str, as_spelled: Callable[[], None]) -> None:
    spelling = SPELLINGS[name]
    moving, fixed = split(draw())
    found = td.jit(gradient(spelling, fixed))(moving)
    expected = jax.jit(jax.value_and_grad(loss(jnp, spelling, fixed)))(moving)
    close(found, expected)
    as_spelled()
    close(found, td.jit(gradient(spelling, fixed))(moving))


def squares(lib: Any, spelling: Any, fixed: Args) -> Any:
    """A sum of squares of derivatives."""
    by = td if lib is tnp else jax
    grad = by.grad(loss(lib, spelling, fixed))
    return lambda moving: sum([(x**2).sum() for x in by.tree.leaves(grad(moving))])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["causal_by_places", "padded_by_floats", "dropped"])
def test_second_derivatives(name: str) -> None:
    """Forward over reverse, and reverse over reverse, in double precision."""
    moving, fixed = split(draw(np.float64))

    def second(lib: Any, by: Any) -> Any:
        function = squares(lib, SPELLINGS[name], fixed)
        return lambda xs: (by.grad(function)(xs), by.jvp(function, (xs,), (xs,)))

    with jax.enable_x64(True):
        expected = jax.jit(second(jnp, jax))(moving)
        close(td.jit(second(tnp, td))(moving), expected, 1e-9)


def test_derivatives_by_a_bias() -> None:
    moving, fixed = split(draw())
    moving["bias"] = fixed.pop("bias")
    found = td.jit(td.grad(loss(tnp, biased, fixed)))(moving)
    close(found, jax.jit(jax.grad(loss(jnp, biased, fixed)))(moving))


def test_mapped_over_examples_and_heads() -> None:
    q, k, v = (draw()[n] for n in "qkv")

    def mapped(lib: Any, by: Any) -> Any:
        def one(q: Any, k: Any, v: Any) -> Any:
            return softmax(lib, q @ k.T * 0.3) @ v

        heads = by.vmap(one, in_axes=(1, 1, 1), out_axes=1)
        return by.vmap(heads, in_axes=(0, None, 0))

    made = stages(td.trace(mapped(tnp, td))(q, k[0], v), CPUTarget())
    assert len(attentions(made)) == 1
    found = td.jit(mapped(tnp, td))(q, k[0], v)
    close(found, jax.jit(mapped(jnp, jax))(q, k[0], v))


@pytest.mark.parametrize(
    "name", [pytest.param("by_heads", marks=pytest.mark.slow), "causal_by_where"]
)
def test_lengths_that_vary(name: str) -> None:
    """One trace for all."""
    spelling, traces = SPELLINGS[name], []

    @td.jit(dynamic={"moving": (None, "t", None, None)})
    def step(moving: Args) -> Any:
        traces.append(0)
        return gradient(spelling, {})(moving)

    for length in (64, 1, 7, 130):
        moving, _ = split(draw(length=length))
        expected = jax.jit(jax.value_and_grad(loss(jnp, spelling, {})))(moving)
        close(step(moving), expected, 1e-4)
    assert len(traces) == 1


def of_matrices(lib: Any, seen: Any, added: Any, a: Args) -> Any:
    """One head, with what is not seen at -inf."""
    q, k, v = (a[n][0, :, 0] for n in "qkv")
    scores = lib.where(seen, q @ k.T, -lib.inf)
    return softmax(lib, scores + added) @ v


def test_queries_that_see_nothing() -> None:
    """Hidden by -inf they are not-a-number, by other numbers they are not."""
    a = draw()
    seen = np.ones((LENGTH, LENGTH), bool)
    seen[3], seen[5, 10:] = False, False
    found = td.jit(lambda a: of_matrices(tnp, seen, 0.0, a))(a)
    close(found, of_matrices(jnp, seen, 0.0, a))
    assert np.isnan(np.asarray(found)).all(-1).tolist() == (~seen.any(-1)).tolist()
    # The first places are padding: of these, queries see nothing else.
    real = np.arange(LENGTH) >= 5
    low, seen = np.where(real, 0.0, -1e9).astype(np.float32), ~a["upper"]

    def padded(lib: Any, a: Args) -> Any:
        return of_matrices(lib, seen, lib.where(real, 0.0, -1e9), a)

    close(td.jit(lambda a: padded(tnp, a))(a), of_matrices(jnp, seen, low, a))


def test_what_reads_the_weights_stays_right() -> None:
    moving, _ = split(draw())

    def function(lib: Any) -> Any:
        def of(a: Args) -> Any:
            weights = softmax(lib, lib.einsum("bqhd,bkhd->bhqk", a["q"], a["k"]))
            out = lib.einsum("bhqk,bkhd->bqhd", weights, a["v"])
            return lib.sum(lib.sin(out)) - lib.sum(weights * lib.log(weights))

        return of

    found = td.jit(td.value_and_grad(function(tnp)))(moving)
    close(found, jax.jit(jax.value_and_grad(function(jnp)))(moving), 2e-4)


def test_what_is_at_hand_is_not_made_again() -> None:
    """Weights that a loop closes over, one row of them, and what is no softmax."""
    q, k, v = (draw()[n][0, :, 0] for n in "qkv")

    def loop(q: Any, k: Any, v: Any) -> Any:
        weights = nn.softmax(q @ k.T)
        return td.scan(lambda c, _: (weights @ c, None), v, length=3)[0]

    def shifted(q: Any, k: Any, v: Any) -> Any:
        terms = tnp.exp(q @ k.T)
        return (terms / (terms.sum(-1, keepdims=True) + 1)) @ v

    def by_columns(q: Any, k: Any, v: Any) -> Any:
        return nn.softmax(q @ k.T, axis=0) @ v

    def plain(q: Any, k: Any, v: Any) -> Any:
        return nn.softmax(q @ k.T) @ v

    for function in (loop, shifted, by_columns):
        assert "attention" not in str(td.trace(function)(q, k, v))
    assert "attention" not in str(td.trace(plain)(q[:1], k, v))
    assert "attention" in str(td.trace(plain)(q, k, v))


def test_halves_are_read_as_they_are() -> None:
    """With scores in float32, and weights as narrow as the values."""
    arrays = [draw()[n].astype(tnp.bfloat16) for n in "qkv"]

    def function(q: Any, k: Any, v: Any) -> Any:
        scores = tnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=tnp.float32)
        weights = nn.softmax(scores).astype(q.dtype)
        return tnp.einsum("bhqk,bkhd->bqhd", weights, v)

    made = stages(td.trace(function)(*arrays), CPUTarget())
    assert [a.dtype for a in attentions(made)] == [tnp.bfloat16]
    found = td.jit(function)(*arrays)
    assert found.dtype == tnp.bfloat16
    q, k, v = (np.asarray(x, np.float32) for x in arrays)
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
    expected = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
    close(found.astype(np.float32), expected, 0.01)


@pytest.mark.parametrize("by", [0.0, np.inf, np.nan])
def test_factors_that_are_no_numbers_to_divide_by(by: float) -> None:
    def scaled(q: Any, k: Any, v: Any) -> Any:
        weights = nn.softmax(q @ k.T / 2) / by
        return weights @ v, (nn.softmax(q @ k.T * by) * by) @ v

    q, k, v = np.random.default_rng(0).standard_normal((3, 5, 4)).astype(np.float32)
    with np.errstate(all="ignore"):
        expected = scaled(*map(tnp.asarray, (q, k, v)))
    for found, wanted in zip(td.jit(scaled)(q, k, v), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
