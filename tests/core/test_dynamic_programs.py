"""Whole programs on batches, lengths and images of any size, equal by accident to each
other and to the widths of layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.dynamic import Arg, agree, bools, floats, gradient_of, ints, rows
from treadle import nn, rng

WIDTH = 8
KEY = rng.key(0)
# Sizes that are also widths of layers, or equal each other, prove nothing.
BATCHES = ((5,), (1,), (2,), (WIDTH,), (20,), (10,))
LENGTHS = ((3, 5), (1, 1), (WIDTH, 2), (5, WIDTH), (WIDTH, WIDTH), (1, 17))
IMAGES = ((2, 6, 5), (1, 1, 1), (3, 3, 3), (1, 4, 17), (4, 4, 4))
MLP = nn.MLP([20, WIDTH, 10], key=KEY)
BLOCK = nn.MultiHeadAttention(WIDTH, 2, key=KEY)
NORM = nn.LayerNorm(WIDTH)
EMBED = nn.Embedding(11, WIDTH, key=KEY)
LSTM = nn.LSTMCell(WIDTH, WIDTH, key=KEY)
CONV = nn.Conv2d(WIDTH, WIDTH, 3, padding="SAME", key=KEY)


def softmax(x: Any) -> Any:
    z = tnp.exp(x - x.max(0, keepdims=True))
    return z / z.sum(0, keepdims=True), nn.softmax(x, 1)


def classifier(x: Any, labels: Any) -> Any:
    loss = nn.cross_entropy(MLP(x), labels)
    return loss.mean(), loss.sum() / x.shape[0], (loss > loss.mean()).sum()


def transformer(tokens: Any) -> Any:
    x = EMBED(tokens)
    x = x + BLOCK(NORM(x), causal=True)
    logits = x @ EMBED.weight.T
    return nn.cross_entropy(logits[:, :-1], tokens[:, 1:]).sum() / tokens.size


def attention_by_hand(x: Any) -> Any:
    b, t, d = x.shape
    heads = x.reshape(b, t, 2, d // 2).swapaxes(1, 2)
    scores = heads @ heads.mT / (d // 2) ** 0.5
    causal = tnp.tril(tnp.ones((t, t), bool))
    scores = tnp.where(causal, scores, -1e9)
    mixed = nn.softmax(scores) @ heads
    return mixed.swapaxes(1, 2).reshape(b * t, d).reshape(b, t, d)


def recurrent(x: Any) -> Any:
    frames = x.swapaxes(0, 1)
    start = LSTM.initial(x.shape[:1])
    _, out = td.scan(lambda c, f: ((new := LSTM(f, c)), new[0]), start, frames)
    return out.mean(0), out.swapaxes(0, 1)[:, -1]


def image(x: Any) -> Any:
    x = nn.relu(CONV(x))
    x = x + CONV(x)
    return x.mean((1, 2)), x.var((0, 1, 2))


def noisy(x: Any) -> Any:
    drop = nn.Dropout(0.4)
    return drop(x, key=rng.key(1)), x + rng.normal(rng.key(2), x.shape)


def padded(x: Any) -> Any:
    """To a multiple of 4, and in groups of 4."""
    x = tnp.pad(x, ((0, -x.shape[0] % 4), (0, 0)))
    return x.reshape(-1, 4, WIDTH).sum(1)


def losses(x: Any) -> Any:
    return tnp.mean(x * x), x.var(), x.std(0), tnp.square(x - x.mean(0)).mean()


def flattened(x: Any) -> Any:
    b, t, d = x.shape
    return (x.reshape(b * t, d) @ tnp.ones((d, 3))).reshape(b, t, 3), x.reshape(-1, 4)


def accidents(x: Any, y: Any) -> Any:
    """Axes that meet are those that are named alike; all else stays apart."""
    return x @ y, x.T @ x, (x[:, :, None] * y[None]).sum(1), x * tnp.ones(WIDTH)


def best(x: Any) -> Any:
    values, places = tnp.top_k(x, 3)
    return values, places, tnp.argmax(x, 0), tnp.take_along_axis(x, places, 1)


def masked(x: Any, keep: Any) -> Any:
    total = tnp.where(keep[..., None], x, 0).sum(1)
    return total / tnp.maximum(keep.sum(1), 1)[:, None]


PROGRAMS: dict[str, tuple[Any, list[Arg], Any, str]] = {
    "softmax": (softmax, [floats("n m")], LENGTHS, ""),
    "classifier": (classifier, [floats("n 20"), ints("n", 0, 10)], BATCHES, ""),
    "transformer": (
        transformer,
        [ints("n t", 0, 11)],
        ((3, 5), (1, 2), (8, 8), (2, 17)),
        "",
    ),
    "attention": (attention_by_hand, [floats(f"n t {WIDTH}")], LENGTHS, ""),
    "recurrent": (recurrent, [floats(f"n t {WIDTH}")], LENGTHS, ""),
    "image": (image, [floats(f"n h w {WIDTH}")], IMAGES, ""),
    "noise": (noisy, [floats(f"n {WIDTH}")], BATCHES, ""),
    "padded": (padded, [floats(f"n {WIDTH}")], BATCHES, "a multiple already, or not"),
    "losses": (losses, [floats(f"n {WIDTH}")], BATCHES, ""),
    "flattened": (flattened, [floats(f"n t {WIDTH}")], LENGTHS, ""),
    "accidents": (
        accidents,
        [floats(f"n {WIDTH}"), floats(f"{WIDTH} m")],
        LENGTHS,
        "",
    ),
    "best": (best, [floats(f"n {WIDTH}")], BATCHES, ""),
    "masked": (masked, [floats(f"n t {WIDTH}"), bools("n t")], LENGTHS, ""),
}


@pytest.mark.parametrize("name", rows(list(PROGRAMS)))
def test_program_and_gradient(name: str) -> None:
    function, args, sizes, guards = PROGRAMS[name]
    agree(gradient_of(function), args, sizes, guards)


def test_a_training_step() -> None:
    def step(weights: Any, x: Any, labels: Any) -> Any:
        def loss(weights: Any) -> Any:
            hidden = tnp.maximum(x @ weights[0] + weights[1], 0)
            return nn.cross_entropy(hidden @ weights[2], labels).mean()

        value, grads = td.value_and_grad(loss)(weights)
        return [w - 0.1 * g for w, g in zip(weights, grads, strict=True)], value

    draw = np.random.default_rng(0)
    shapes = (20, WIDTH), (WIDTH,), (WIDTH, 10)
    weights = [draw.normal(size=s).astype("float32") for s in shapes]
    agree(
        lambda x, labels: step(weights, x, labels),
        [floats("n 20"), ints("n", 0, 10)],
        BATCHES,
    )


def test_axes_that_broadcast_ask_for_their_sizes() -> None:
    """Whether (n,) and (20,) go together depends on n."""
    compiled = td.jit(lambda x: x + np.ones(20, np.float32))
    for n in (20, 1, 20):
        x = np.arange(n, dtype=np.float32)
        assert np.array_equal(compiled(x), x + np.ones(20))
    for n in (2, 19):
        with pytest.raises(ValueError, match="broadcast"):
            compiled(np.ones(n, np.float32))


def mixed(x: Any) -> Any:
    """Its numbers come from a loop that is one function, beside an order of the rows:
    where the loop's buffers lie depends on how many there are."""
    share = rng.beta(KEY, 0.4, 0.4)
    return share * x + (1 - share) * x[rng.permutation(KEY, x.shape[0])]


def test_small_loops_beside_what_has_open_sizes() -> None:
    agree(mixed, [floats("n 8")], ((6,), (9,), (17,), (100,)))
