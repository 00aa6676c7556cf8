"""Weights that are the softmax of products: what is found of how they are spelled, by
making them again of it in NumPy."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import treadle.numpy as tnp
from tests.core.fuse.graphs import traced
from treadle import nn
from treadle.control.spelled_values import Seen
from treadle.control.spelled_weights import Spelled, spelled
from treadle.run.array import Array
from treadle.run.eager import evaluate
from treadle.trace.interpreter import state
from treadle.trace.value import Tracer

RNG = np.random.default_rng(0)
N, M = 4, 5
Q, K = RNG.normal(size=(N, 3)), RNG.normal(size=(M, 3))
MASK = RNG.random((N, M)) < 0.6
MASK[:, 0] = True
BIAS = RNG.normal(size=(N, M))
ROW = RNG.random((N, 1)) + 0.5
NOTED = threading.local()
GIVEN = (Q, K, MASK, BIAS, ROW)


def find(function: Any, columns: int = 1, dtype: Any = "float64") -> Spelled | None:
    """What is found of weights; the values that it names are outputs of the graph."""

    def told(*args: Any) -> Any:
        weights = function(*args)
        NOTED.found = spelled(weights, columns, state.interpreter.writer)
        NOTED.atoms = {}
        outs = [weights]
        for value in values_of(NOTED.found):
            NOTED.atoms[id(value)] = len(outs)
            outs.append(value)
        return outs

    args = [x.astype(dtype) if x.dtype != np.bool_ else x for x in GIVEN]
    graph = traced(told, *args)
    NOTED.outs = [np.asarray(x, np.float64) for x in evaluate(graph, args)]
    return NOTED.found


def values_of(found: Spelled | None) -> list[Any]:
    if found is None:
        return []
    seen = [found.scores, *(s for s, _ in found.factors), *(s for s, _ in found.biases)]
    seen += [c.seen for c in (*found.hidden, *found.low, *found.kept)]
    return [s.value for s in seen]


def array(seen: Seen, ndim: int = 2) -> np.ndarray:
    """A value with the axes of the weights."""
    x = NOTED.outs[NOTED.atoms[id(seen.value)]]
    named = [i for i, axis in enumerate(seen.axes) if axis is not None]
    x = x.reshape([x.shape[i] for i in named])
    axes = [seen.axes[i] for i in named]
    x = x.transpose(np.argsort(axes))
    return np.expand_dims(x, [i for i in range(ndim) if i not in axes])


def all_hold(conditions: Any) -> np.ndarray:
    hold = np.ones((N, M), bool)
    for seen, negated in conditions:
        hold &= (array(seen) != 0) ^ negated
    return hold


def again(found: Spelled) -> np.ndarray:
    """The weights that the parts say."""
    scores = array(found.scores) * found.scale
    for seen, divides in found.factors:
        scores = scores / array(seen) if divides else scores * array(seen)
    for seen, scale in found.biases:
        scores = scores + array(seen) * scale
    scores = np.where(all_hold(found.low), scores, -1e9)
    scores = np.where(all_hold(found.hidden), scores, -np.inf)
    terms = np.exp(scores - scores.max(found.columns, keepdims=True))
    weights = terms / terms.sum(found.columns, keepdims=True)
    return np.where(all_hold(found.kept), weights, 0) * found.rate


def soft(s: Any) -> Any:
    return nn.softmax(s, axis=-1)


def by_sums(s: Any) -> Any:
    terms = tnp.exp(s - s.max(-1, keepdims=True))
    return terms / terms.sum(-1, keepdims=True)


def by_factor(s: Any) -> Any:
    terms = tnp.exp(s)
    return terms * (1 / terms.sum(-1, keepdims=True))


def by_logarithms(s: Any) -> Any:
    return tnp.exp(nn.log_softmax(s, axis=-1))


def by_sum_of_logarithms(s: Any) -> Any:
    most = s.max(-1, keepdims=True)
    total = tnp.log(tnp.exp(s - most).sum(-1, keepdims=True)) + most
    return tnp.exp(s - total)


def plain_logarithm(s: Any) -> Any:
    return tnp.exp(s - tnp.log(tnp.exp(s).sum(-1, keepdims=True)))


WAYS = [soft, by_sums, by_factor, by_logarithms, by_sum_of_logarithms, plain_logarithm]

# What is done to scores, and how many: factors, biases, hidden, low.
SCORES: dict[str, tuple[Any, tuple[int, int, int, int]]] = {
    "plain": (lambda s, m, b, r: s, (0, 0, 0, 0)),
    "scaled": (lambda s, m, b, r: s * 0.5 / 2.0, (0, 0, 0, 0)),
    "turned": (lambda s, m, b, r: 3.0 * -s, (0, 0, 0, 0)),
    "cast": (lambda s, m, b, r: s.astype("float32") * 2.0, (0, 0, 0, 0)),
    "by rows": (lambda s, m, b, r: s * r, (1, 0, 0, 0)),
    "over rows": (lambda s, m, b, r: s / r * 0.5, (1, 0, 0, 0)),
    "bias": (lambda s, m, b, r: s * 2.0 + b, (0, 1, 0, 0)),
    "bias first": (lambda s, m, b, r: (b + s) * 0.5, (0, 1, 0, 0)),
    "less a bias": (lambda s, m, b, r: (s - b) * 0.5, (0, 1, 0, 0)),
    "two": (lambda s, m, b, r: (s + b) * 0.5 - b[:1] + b, (0, 3, 0, 0)),
    "same for all": (lambda s, m, b, r: s + r, (0, 0, 0, 0)),
    "hidden": (lambda s, m, b, r: tnp.where(m, s, -tnp.inf), (0, 0, 1, 0)),
    "not hidden": (lambda s, m, b, r: tnp.where(~m, -tnp.inf, s), (0, 0, 1, 0)),
    "low": (lambda s, m, b, r: tnp.where(m, s, -1e9), (0, 0, 0, 1)),
    "low, scaled": (lambda s, m, b, r: tnp.where(m, s, -1e8) * 20.0, (0, 0, 0, 1)),
    "added": (lambda s, m, b, r: s + tnp.where(m, 0.0, -tnp.inf), (0, 0, 1, 0)),
    "taken": (lambda s, m, b, r: s - tnp.where(m, 0.0, tnp.inf), (0, 0, 1, 0)),
    "other": (lambda s, m, b, r: s + tnp.where(~m, -1e30, 0.0), (0, 0, 0, 1)),
    # Of doubles something of the scores is left beside these.
    "little": (lambda s, m, b, r: s + tnp.where(m, 0.0, -1e9), (0, 1, 0, 0)),
    "small": (lambda s, m, b, r: s + tnp.where(m, 0.0, -3.0), (0, 1, 0, 0)),
    "all": (
        lambda s, m, b, r: tnp.where(m, (s * 0.5 + b) * 2.0, -tnp.inf),
        (0, 1, 1, 0),
    ),
}


@pytest.mark.parametrize("name", SCORES)
def test_scores(name: str) -> None:
    of, counts = SCORES[name]
    found = find(lambda q, k, m, b, r: soft(of(q @ k.T, m, b, r)))
    assert found is not None
    parts = found.factors, found.biases, found.hidden, found.low
    assert tuple(map(len, parts)) == counts
    np.testing.assert_allclose(again(found), NOTED.outs[0], 1e-5, 1e-6)
    assert np.array_equal(array(found.scores), Q @ K.T)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["plain", "all"])
def test_ways_to_spell_a_softmax(way: Any, name: str) -> None:
    of, _ = SCORES[name]
    found = find(lambda q, k, m, b, r: way(of(q @ k.T, m, b, r)))
    assert found is not None
    np.testing.assert_allclose(again(found), NOTED.outs[0], 1e-9, 1e-12)


@pytest.mark.parametrize(
    ("leave", "rate", "kept"),
    [
        (lambda w, m: w * 2.0, 2, 0),
        (lambda w, m: 3.0 * w / 2.0, 1.5, 0),
        (lambda w, m: tnp.where(m, w, 0.0) / 0.8, 1.25, 1),
        (lambda w, m: tnp.where(~m, 0.0, w), 1, 1),
        (lambda w, m: w * m.astype("float64"), 1, 1),
        (lambda w, m: w * (m.astype("float64") * 4.0), 4, 1),
        (lambda w, m: (1.0 - m.astype("float64")) * w * 4.0, 4, 1),
        (lambda w, m: w.astype("float32") * 2.0, 2, 0),
        (lambda w, m: tnp.where(m, w, 0.0) * m[:1].astype("float64"), 1, 2),
    ],
)
def test_weights_that_are_left_out(leave: Any, rate: float, kept: int) -> None:
    found = find(lambda q, k, m, b, r: leave(soft(q @ k.T), m))
    assert found is not None
    assert (found.rate, len(found.kept)) == (rate, kept)
    np.testing.assert_allclose(again(found), NOTED.outs[0], 1e-6, 1e-12)


def test_views_of_weights_and_scores() -> None:
    found = find(lambda q, k, m, b, r: soft((k @ q.T).T * 2.0), 1)
    assert found is not None and found.scores.axes == (1, 0)
    np.testing.assert_allclose(again(found), NOTED.outs[0], 1e-9)
    found = find(lambda q, k, m, b, r: nn.softmax(q @ k.T, axis=0).T, 1)
    assert found is not None and found.scores.axes == (1, 0)
    found = find(lambda q, k, m, b, r: soft(q @ k.T)[None, :, None], 3)
    assert found is not None and found.scores.axes == (1, 3)


@pytest.mark.parametrize(
    "function",
    [
        lambda q, k, m, b, r: nn.softmax(q @ k.T, axis=0),
        lambda q, k, m, b, r: nn.softmax(q @ k.T, axis=(0, 1)),
        lambda q, k, m, b, r: soft(tnp.sin(q @ k.T)),
        lambda q, k, m, b, r: soft(b),
        lambda q, k, m, b, r: soft((q @ k.T) * b),
        lambda q, k, m, b, r: soft((q @ k.T + b) * r + b),
        lambda q, k, m, b, r: soft(tnp.where(m, q @ k.T, -5.0)),
        lambda q, k, m, b, r: soft(tnp.where(m, q @ k.T, 1e9)),
        lambda q, k, m, b, r: soft(-tnp.where(m, q @ k.T, -1e9)),
        lambda q, k, m, b, r: soft(tnp.where(m, q @ k.T, -1e9) * 1e-5),
        lambda q, k, m, b, r: soft(b - q @ k.T),
        lambda q, k, m, b, r: soft(q @ k.T) + 0.5,
        lambda q, k, m, b, r: tnp.where(m, soft(q @ k.T), 0.5),
        lambda q, k, m, b, r: soft(q @ k.T) * b,
        lambda q, k, m, b, r: soft(q @ k.T) * tnp.where(m, 2.0, 3.0),
        lambda q, k, m, b, r: (lambda t: t / (t.sum(-1, keepdims=True) + 1))(
            tnp.exp(q @ k.T)
        ),
        lambda q, k, m, b, r: (lambda t: t / t.sum(0, keepdims=True))(tnp.exp(q @ k.T)),
        lambda q, k, m, b, r: (lambda t, u: t / u.sum(-1, keepdims=True))(
            tnp.exp(q @ k.T), tnp.exp(q @ k.T + b)
        ),
        lambda q, k, m, b, r: tnp.exp(q @ k.T - tnp.exp(q @ k.T).sum(-1)[:, None]),
        lambda q, k, m, b, r: tnp.exp(
            q @ k.T - tnp.log(tnp.exp(q @ k.T - r).sum(-1))[:, None]
        ),
    ],
)
def test_what_is_not_found(function: Any) -> None:
    assert find(function) is None


def test_a_product_may_be_either_term() -> None:
    """What is tried first and is none leaves nothing behind."""
    found = find(lambda q, k, m, b, r: soft(tnp.sin(b) * 2.0 + (q @ k.T) * 3.0))
    assert found is not None
    assert (found.scale, len(found.biases)) == (3, 1)
    np.testing.assert_allclose(again(found), NOTED.outs[0], 1e-9)
    hides = lambda q, k, m, b, r: soft(tnp.where(m, tnp.sin(b), -tnp.inf) + q @ k.T)  # noqa: E731
    found = find(hides)
    assert found is not None
    assert (len(found.hidden), len(found.biases)) == (0, 1)


def test_half_floats_hide_with_less() -> None:
    hide = lambda least: (  # noqa: E731
        lambda q, k, m, b, r: soft(tnp.where(m, q @ k.T, least))
    )
    assert find(hide(-3e4), dtype="float16") is not None
    assert find(hide(-3e4)) is None
    assert find(hide(-5e3), dtype="float16") is None


def test_long_ways_are_not_followed() -> None:
    def chain(n: int) -> Any:
        def function(q: Any, k: Any, m: Any, b: Any, r: Any) -> Any:
            s = q @ k.T
            for _ in range(n):
                s = s * 1.5
            return soft(s)

        return function

    assert find(chain(20)) is not None
    assert find(chain(30)) is None


def test_weights_from_elsewhere_are_at_hand() -> None:
    weights = tnp.asarray(np.eye(3))
    assert isinstance(weights, Array) and not isinstance(weights, Tracer)
    found = []
    traced(lambda q: found.append(spelled(weights, 1, state.interpreter.writer)), Q)
    assert found == [None]
