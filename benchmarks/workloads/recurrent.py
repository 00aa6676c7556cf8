"""Recurrent networks."""

from dataclasses import dataclass

from workloads import initial
from workloads.dense import normal
from workloads.program import Program


@dataclass(frozen=True)
class GRU(Program):
    """A classifier of sequences by the last state of a GRU."""

    features: int = 64
    hidden: int = 256
    length: int = 50
    classes: int = 10
    batch_size: int = 32

    def drawn(self, rng):
        cell = initial.recurrent(rng, "cell", 3, self.features, self.hidden)
        return cell | initial.dense(rng, "out", self.classes, self.hidden)

    def examples(self, rng):
        labels = rng.integers(0, self.classes, self.batch_size)
        return normal(rng, self.batch_size, self.length, self.features), labels

    def loss(self, F, p, x, labels):
        return F.cross_entropy(F.linear(p["out"], F.gru(p["cell"], x)[:, -1]), labels)


@dataclass(frozen=True)
class LSTMLanguageModel(Program):
    """The next token by two layers of LSTM."""

    vocabulary: int = 2000
    width: int = 256
    layers: int = 2
    length: int = 64
    batch_size: int = 16

    def drawn(self, rng):
        found = initial.table(rng, "tokens", self.vocabulary, self.width)
        for i in range(self.layers):
            found |= initial.recurrent(rng, f"cells.{i}", 4, self.width, self.width)
        return found | initial.dense(rng, "out", self.vocabulary, self.width)

    def examples(self, rng):
        shape = self.batch_size, self.length + 1
        text = rng.integers(0, self.vocabulary, shape)
        return text[:, :-1].copy(), text[:, 1:].copy()

    def loss(self, F, p, tokens, labels):
        x = F.embed(p["tokens"], tokens)
        for i in range(self.layers):
            x = F.lstm(p["cells"][str(i)], x)
        return F.cross_entropy(F.linear(p["out"], x), labels)
