"""Networks of linear layers and tables."""

import itertools
from dataclasses import dataclass

import numpy as np

from workloads import initial
from workloads.program import Program


def layers(rng: np.random.Generator, name: str, sizes: tuple[int, ...]):
    """The weights of linear layers in a row."""
    found: initial.Weights = {}
    for i, (n_in, n_out) in enumerate(itertools.pairwise(sizes)):
        found |= initial.dense(rng, f"{name}.{i}", n_out, n_in)
    return found


def mlp(F, p, x, count: int):
    """As many linear layers with relu between them."""
    for i in range(count - 1):
        x = F.relu(F.linear(p[str(i)], x))
    return F.linear(p[str(count - 1)], x)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Normal numbers in float32."""
    return rng.standard_normal(shape, np.float32)


@dataclass(frozen=True)
class Perceptron(Program):
    """A small classifier."""

    sizes: tuple[int, ...] = (64, 64, 10)
    batch_size: int = 32

    def drawn(self, rng):
        return layers(rng, "layers", self.sizes)

    def examples(self, rng):
        labels = rng.integers(0, self.sizes[-1], self.batch_size)
        return normal(rng, self.batch_size, self.sizes[0]), labels

    def loss(self, F, p, x, labels):
        return F.cross_entropy(mlp(F, p["layers"], x, len(self.sizes) - 1), labels)


@dataclass(frozen=True)
class VAE(Program):
    """A variational autoencoder of binary images; its noise is given."""

    pixels: int = 784
    hidden: int = 400
    latent: int = 20
    batch_size: int = 128

    def drawn(self, rng):
        encoder = layers(rng, "encoder", (self.pixels, self.hidden))
        mean = initial.dense(rng, "mean", self.latent, self.hidden)
        spread = initial.dense(rng, "spread", self.latent, self.hidden)
        decoder = layers(rng, "decoder", (self.latent, self.hidden, self.pixels))
        return encoder | mean | spread | decoder

    def examples(self, rng):
        x = rng.random((self.batch_size, self.pixels), np.float32)
        return x, normal(rng, self.batch_size, self.latent)

    def loss(self, F, p, x, noise):
        hidden = F.relu(F.linear(p["encoder"]["0"], x))
        mean, spread = F.linear(p["mean"], hidden), F.linear(p["spread"], hidden)
        code = mean + F.exp(0.5 * spread) * noise
        error = F.binary_cross_entropy(mlp(F, p["decoder"], code, 2), x)
        divergence = -0.5 * (1 + spread - mean * mean - F.exp(spread)).mean()
        return error + divergence * (self.latent / self.pixels)


@dataclass(frozen=True)
class NeuralODE(Program):
    """A network's flow by Runge and Kutta's fourth-order method."""

    width: int = 2
    hidden: int = 64
    steps: int = 200
    batch_size: int = 32

    def drawn(self, rng):
        return layers(rng, "field", (self.width, self.hidden, self.width))

    def examples(self, rng):
        return tuple(normal(rng, self.batch_size, self.width) for _ in range(2))

    def loss(self, F, p, start, end):
        def field(y):
            hidden = F.tanh(F.linear(p["field"]["0"], y))
            return F.linear(p["field"]["1"], hidden)

        def advance(y, _):
            h = 1 / self.steps
            k1 = field(y)
            k2 = field(y + h / 2 * k1)
            k3 = field(y + h / 2 * k2)
            k4 = field(y + h * k3)
            return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

        return F.squared_error(F.repeat(advance, start, self.steps), end)


@dataclass(frozen=True)
class EmbeddingBag(Program):
    """A linear classifier of bags of words."""

    words: int = 50_000
    width: int = 64
    classes: int = 10
    length: int = 50
    batch_size: int = 64

    def drawn(self, rng):
        table = initial.table(rng, "table", self.words, self.width)
        return table | initial.dense(rng, "out", self.classes, self.width)

    def examples(self, rng):
        words = rng.integers(0, self.words, (self.batch_size, self.length))
        return words, rng.integers(0, self.classes, self.batch_size)

    def loss(self, F, p, words, labels):
        return F.cross_entropy(
            F.linear(p["out"], F.embedding_bag(p["table"], words)), labels
        )


@dataclass(frozen=True)
class WideAndDeep(Program):
    """Recommendation by a weight for each category, and by a network of embeddings
    (Cheng 2016). All columns share one table, each with its own rows."""

    rows: int = 200_000
    columns: int = 26
    numbers: int = 13
    width: int = 16
    hidden: int = 256
    batch_size: int = 256

    def drawn(self, rng):
        sizes = (self.columns * self.width + self.numbers, self.hidden, self.hidden, 1)
        return (
            initial.table(rng, "wide.table", self.rows, 1)
            | initial.table(rng, "deep.table", self.rows, self.width)
            | layers(rng, "deep", sizes)
        )

    def examples(self, rng):
        each = self.rows // self.columns
        ids = rng.integers(0, each, (self.batch_size, self.columns))
        ids += each * np.arange(self.columns)
        clicked = rng.integers(0, 2, (self.batch_size, 1)).astype(np.float32)
        return ids, normal(rng, self.batch_size, self.numbers), clicked

    def loss(self, F, p, ids, numbers, clicked):
        wide = F.embedding_bag(p["wide"]["table"], ids)
        deep = F.embed(p["deep"]["table"], ids).reshape(ids.shape[0], -1)
        score = mlp(F, p["deep"], F.concat([deep, numbers]), 3)
        return F.binary_cross_entropy(wide + score, clicked)


@dataclass(frozen=True)
class Experts(Program):
    """A layer of experts of which each token uses some, and a classifier."""

    width: int = 128
    hidden: int = 512
    experts: int = 8
    top: int = 2
    tokens: int = 1024
    classes: int = 10

    def drawn(self, rng):
        shape = self.experts, self.width, self.hidden
        return (
            initial.dense(rng, "router", self.experts, self.width, bias=False)
            | {"up": normal(rng, *shape) * self.width**-0.5}
            | {"down": normal(rng, *np.array(shape)[[0, 2, 1]]) * self.hidden**-0.5}
            | initial.dense(rng, "out", self.classes, self.width)
        )

    def examples(self, rng):
        labels = rng.integers(0, self.classes, self.tokens)
        return normal(rng, self.tokens, self.width), labels

    def loss(self, F, p, x, labels):
        return F.cross_entropy(
            F.linear(p["out"], x + F.experts(p, x, self.top)), labels
        )
