"""Layers of every kind of model, and functions of arrays."""

from __future__ import annotations

from typing import Any

import treadle as td
from tests.core.dynamic import floats, ints, positive
from treadle import nn, rng

ARGS = {
    "x": floats("n 6"),
    "s": floats("n t 8"),
    "c": floats("n k 8"),
    "a": floats("n t 2 4"),
    "i": ints("n t", 0, 5),
    "l": ints("n", 0, 6),
    "p": positive("n 6"),
    "im": floats("n h w 3"),
    "z": floats("n t"),
}
KEY = rng.key(0)
LAYERS: dict[str, Any] = {
    "linear": nn.Linear(6, 5, key=KEY),
    "mlp": nn.MLP([6, 7, 3], key=KEY),
    "norm": nn.LayerNorm(8),
    "rms": nn.RMSNorm(8),
    "batch_norm": nn.BatchNorm(6),
    "embed": nn.Embedding(5, 8, key=KEY),
    "mha": nn.MultiHeadAttention(8, 2, key=KEY),
    "lstm": nn.LSTMCell(8, 4, key=KEY),
    "gru": nn.GRUCell(8, 4, key=KEY),
    "conv": nn.Conv2d(3, 4, 3, padding="SAME", key=KEY),
    "strided": nn.Conv2d(3, 4, 3, stride=2, padding=1, key=KEY),
    "drop": nn.Dropout(0.3),
    "sequential": nn.Sequential(nn.Linear(6, 4, key=KEY), nn.relu),
}


def run(cell: Any, frames: Any) -> Any:
    """A recurrent layer over (length, batch, width)."""
    start = cell.initial(frames.shape[1:2])
    if isinstance(start, tuple):
        step: Any = lambda c, x: ((new := cell(x, c)), new[0])  # noqa: E731
    else:
        step = lambda c, x: ((new := cell(x, c)), new)  # noqa: E731
    return td.scan(step, start, frames)[1]


def dropped(layer: Any, x: Any) -> Any:
    return layer(x, key=rng.key(5))


NAMES = {"run": run, "dropped": dropped}
ACTIVATIONS = (
    "relu relu6 leaky_relu elu celu selu hard_sigmoid hard_silu hard_tanh sparse_plus "
    "sparse_sigmoid squareplus gelu silu sigmoid log_sigmoid softplus softsign "
    "tanh mish softmax log_softmax logsumexp"
)
EXPRESSIONS = [
    *(f"nn.{name}(s)" for name in ACTIVATIONS.split()),
    "nn.softmax(s, 1), nn.softmax(z, 0), nn.logsumexp(z, 1), nn.glu(s), nn.swiglu(s)",
    "nn.one_hot(l, 6), nn.one_hot(l, i.shape[1])",
    "linear(x), mlp(x), sequential(x), linear(x[0])",
    "norm(s), rms(s), nn.softmax(norm(s))",
    "nn.stateful(batch_norm)(x + 0)[0]",
    "nn.inference(batch_norm)(x)",
    "embed(i), embed(i) @ s.mT, norm(embed(i)) + s",
    "dropped(drop, s)",
    "mha(s), mha(s, causal=True)",
    "mha(s, context=c), mha(s, mask=i[:, None, None] > 1)",
    "nn.attention(a, a, a), nn.attention(a, a, a, causal=True)",
    "run(lstm, tnp.swapaxes(s, 0, 1)), run(gru, tnp.swapaxes(s, 0, 1))",
    "nn.cross_entropy(x, l), nn.cross_entropy(x, l, 0.1).mean()",
    "nn.cross_entropy(x, p), nn.binary_cross_entropy(x, p).mean()",
    "nn.squared_error(x, p).mean(), nn.absolute_error(x, p), nn.huber(x, p).sum()",
    "nn.kl_divergence(nn.log_softmax(x), nn.log_softmax(p)).mean()",
    "conv(im), nn.relu(strided(im)).mean((1, 2)), nn.global_avg_pool(im)",
    "nn.max_pool(im, 2), nn.avg_pool(im, 2), nn.MaxPool2d(2)(conv(im))",
    "nn.max_pool(im, 3, 2, 1), nn.avg_pool(im, 3, 1, 'SAME'), "
    "nn.AvgPool2d(2, 1)(im), nn.max_pool(im[0], 2, 1)",
]
GUARDED = {
    "nn.stateful(batch_norm)(x + 0)[0]": "statistics of one value are an error",
    EXPRESSIONS[-2]: "windows that fill the image, or do not",
}
SIZES = {"nn.stateful(batch_norm)(x + 0)[0]": ((3,), (2,), (8,), (17,))}
NOT_LAYERS = (
    "at combine count draw_key field inference parameters partition state stateful "
    "summary training Module PrecisionWarning State"
)
