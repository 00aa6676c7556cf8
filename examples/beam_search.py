"""Beam search: the likeliest sentence of a language model, as a `scan`.

Each step extends every kept sentence by every word and keeps the best. With as many
kept as there are sentences, nothing is lost: that is checked against a search of all.
"""

import itertools

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng

END = 0


class Model(nn.Module):
    """A recurrent network with random weights: what it says is not known beforehand."""

    embedding: nn.Embedding
    cell: nn.GRUCell
    out: nn.Linear

    def __init__(self, words, width, *, key):
        k1, k2, k3 = rng.split(key, 3)
        self.embedding = nn.Embedding(words, width, key=k1)
        self.cell = nn.GRUCell(width, width, key=k2)
        self.out = nn.Linear(width, words, key=k3)

    def start(self):
        return tnp.zeros(self.out.weight.shape[0])

    def __call__(self, state, word):
        """The next state, and how likely each next word is."""
        state = self.cell(self.embedding(word), state)
        return state, nn.log_softmax(8 * self.out(state))


def beam_search(model, length, width):
    """The best sentences and their scores, the best one first.

    A sentence that has ended goes on with END, at no cost.
    """

    def step(carry, i):
        sentences, states, last, scores = carry
        states, likely = td.vmap(model)(states, last)
        words = likely.shape[-1]
        ended = (last == END) & (i > 0)
        stay = tnp.where(tnp.arange(words) == END, 0.0, -tnp.inf)
        likely = tnp.where(ended[:, None], stay, likely)
        scores, places = tnp.top_k((scores[:, None] + likely).ravel(), width)
        parents, last = places // words, places % words
        sentences = sentences[parents].at[:, i].set(last)
        states = states[parents]
        return (sentences, states, last, scores), None

    # In the beginning all are the same: only one of them counts.
    scores = tnp.where(tnp.arange(width) == 0, 0.0, -tnp.inf)
    states = tnp.broadcast_to(model.start(), (width, *model.start().shape))
    init = tnp.zeros((width, length), int), states, tnp.zeros(width, int), scores
    (sentences, _, _, scores), _ = td.scan(step, init, tnp.arange(length))
    return sentences, scores


def score(model, sentence):
    """The log likelihood of a sentence up to its first END."""

    def step(carry, word):
        state, last, ended = carry
        state, likely = model(state, last)
        value = tnp.where(ended, tnp.where(word == END, 0.0, -tnp.inf), likely[word])
        return (state, word, ended | (word == END)), value

    init = model.start(), tnp.array(END), tnp.array(False)
    return td.scan(step, init, sentence)[1].sum()


def main(words=5, length=5):
    model = Model(words, 16, key=rng.key(12))
    every = tnp.array(list(itertools.product(range(words), repeat=length)))
    scores = td.jit(td.vmap(lambda s: score(model, s)))(every)
    best = every[scores.argmax()]
    print(f"best of all {len(every)} sentences: {best}, {scores.max():.4f}")
    search = td.jit(beam_search, static=("length", "width"))
    found = {}
    for width in (1, 3, words ** (length - 1)):
        sentences, likely = search(model, length, width)
        found[width] = likely[0].item()
        print(f"of {width:3} kept: {sentences[0]}, {found[width]:.4f}")
        assert abs(score(model, sentences[0]) - likely[0]) < 1e-3
        assert likely[0] < scores.max() + 1e-3
    assert (sentences[0] == best).all() and abs(likely[0] - scores.max()) < 1e-3
    assert found[1] < found[3]  # greedy words do not make the best sentence


if __name__ == "__main__":
    main()
