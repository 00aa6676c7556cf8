"""What someone does who has read the pages and no code, in one go."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import data, metrics, nn, optim, rng, weights
from treadle.errors import DonatedError

KEY = rng.key(0)


def test_a_deep_copy_outlives_a_donated_model():
    """It is how one keeps what a step takes: a target network, a best model."""
    model = nn.cast(nn.MLP((4, 8, 2), key=KEY), tnp.bfloat16)
    optimizer = optim.adamw(0.1)

    @td.jit(donate=("model", "state"))
    def step(model, state):
        grads = td.grad(lambda m: m(tnp.ones((3, 4))).astype("float32").sum())(model)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state

    before = [np.array(x) for x in td.tree.leaves(model)]
    state = optimizer.init(model)
    kept = copy.deepcopy((model, state))
    first = step(model, state)
    with pytest.raises(DonatedError, match=r"donated to step"):
        td.tree.leaves(model)[0].tolist()
    assert all(map(np.array_equal, td.tree.leaves(kept[0]), before))
    assert td.tree.equal(step(*kept), first)


X = tnp.ones((2, 4))
MLP = nn.MLP((4, 8, 2), key=KEY)
RNN = nn.RNN(nn.LSTMCell(4, 8, key=KEY))


def _linear(key):
    return nn.Linear(4, 4, key=key)


MISTAKES = {
    "a negative size": (lambda: nn.Linear(-4, 3, key=KEY), ValueError, r"\(-4, 3\)"),
    "a string for a size": (lambda: nn.Linear("4", 3, key=KEY), TypeError, "'4', 3"),
    "one size": (lambda: nn.MLP((4,), key=KEY), ValueError, r"two or more.*\(4,\)"),
    "no dtype": (lambda: nn.cast(MLP, "bf16"), TypeError, "'bf16' is not.*bfloat16"),
    "a model of ints": (lambda: nn.cast(MLP, "int32"), TypeError, "got int32"),
    "a class for a layer": (
        lambda: nn.Sequential(nn.Linear(4, 4, key=KEY), nn.Dropout),
        TypeError,
        r"got the class Dropout(.|\n)*`Dropout\(...\)`",
    ),
    "a layer for a maker": (
        lambda: nn.Stack(_linear(KEY), 2, key=KEY),
        TypeError,
        r"got Linear(.|\n)*nn\.Stack\.of",
    ),
    "no weight": (
        lambda: nn.WeightNorm(nn.Dropout(0.1)),
        AttributeError,
        "Dropout has no field `weight`; its fields are rate",
    ),
    "a function without": (
        lambda: nn.SpectralNorm(nn.relu, key=KEY),
        TypeError,
        "takes a layer, got <function relu",
    ),
    "a number for a place": (lambda: nn.at(MLP, 3).get(), TypeError, "a path.*got 3"),
    "half a carry": (
        lambda: RNN(tnp.ones((2, 3, 4)), tnp.ones((2, 8))),
        ValueError,
        r"LSTMCell.*\(f32\[2,8\], f32\[2,8\]\); got f32\[2,8\]",
    ),
    "nothing to cache": (
        lambda: nn.with_cache(MLP, 2, 9),
        ValueError,
        "no layer of this MLP keeps keys",
    ),
    "more places than there are": (
        lambda: nn.with_cache(nn.PositionalEmbedding(8, 4, key=KEY), 2, 9),
        ValueError,
        "has 8 places, and a cache was asked for with room for 9",
    ),
    "a list of groups": (
        lambda: optim.partition([optim.sgd(0.1)], optim.groups(a="**")),
        TypeError,
        "dict of transforms by name, got",
    ),
    "a list to chain": (
        lambda: optim.chain([optim.sgd(0.1)]),
        TypeError,
        r"got \[<sgd>\](.|\n)*One after the other",
    ),
    "one measure": (
        lambda: optim.monitor(optim.global_norm),
        TypeError,
        r"a dict of functions(.|\n)*`optim.monitor\(\{",
    ),
    "a list of metrics": (
        lambda: metrics.Collection([metrics.Mean()]),
        TypeError,
        r"a dict of metrics by name(.|\n)*metrics.Mean\(\)",
    ),
    "a class of metrics": (
        lambda: metrics.Collection({"loss": metrics.Mean}),
        TypeError,
        r"'loss' is the class Mean(.|\n)*`Mean\(...\)`",
    ),
    "no metric": (
        lambda: metrics.Collection({"loss": 3}),
        TypeError,
        "by name, got {'loss': 3}",
    ),
    "the best none": (lambda: metrics.TopKAccuracy(0), ValueError, "k is 1.*got 0"),
    "metrics side by side": (
        lambda: metrics.merged([metrics.Mean(), metrics.Mean()]),
        TypeError,
        r"not a list of them(.|\n)*a\.merge\(b\)",
    ),
    "a model into a model": (
        lambda: weights.into(MLP, MLP),
        TypeError,
        r"got MLP(.|\n)*weights\.of\(model\)",
    ),
    "nothing to save": (
        lambda: weights.save("none.safetensors", "model"),
        ValueError,
        "no array in 'model'",
    ),
    "batches of half an example": (
        lambda: data.Loader((X,), 2.5),
        ValueError,
        "batch_size is an int of 1 or more, got 2.5",
    ),
    "fewer than no threads": (
        lambda: data.Loader((X,), 2, workers=-1),
        ValueError,
        "workers is an int of 0 or more, got -1",
    ),
    "half a shard": (
        lambda: data.Loader((X,), 2, shard=2),
        ValueError,
        r"\(which, of how many\), got 2",
    ),
    "a stream of nothing": (
        lambda: data.Stream([1, 2], 0),
        ValueError,
        "batch_size is an int of 1 or more, got 0",
    ),
    "another state": (
        lambda: data.Loader((X,), 2).restore({"step": 1}),
        TypeError,
        r"dict of epoch, batch.*got {'step': 1}",
    ),
    "a batch of none": (lambda: data.stack([]), ValueError, "one example or more"),
    "rounded up to nothing": (
        lambda: data.pad([[1]], multiple_of=0),
        ValueError,
        "multiple_of is 1 or more, got 0",
    ),
    "too few targets": (
        lambda: data.augment.mixup(KEY, X, tnp.ones((3, 2))),
        ValueError,
        r"as many targets as images, got f32\[3,2\] for f32\[2,4\]",
    ),
    "names that differ": (
        lambda: weights.Rule("a.{i}", "b.{j}"),
        ValueError,
        "the same {variables}",
    ),
}


@pytest.mark.parametrize("case", MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_answered(case):
    """With the value, the remedy and the line."""
    call, kind, text = case
    with pytest.raises(kind, match=text) as caught:
        call()
    assert f"at {__file__}:" in str(caught.value)


def test_a_thread_is_no_line_of_the_users():
    with pytest.raises(ValueError, match="have different shapes") as caught:
        list(data.Loader([[1, 2], [3]], 2))
    assert "threading.py" not in str(caught.value)
