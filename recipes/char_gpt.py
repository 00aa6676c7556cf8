"""char-gpt: a small GPT learns to write, character by character.

By default it reads Python's standard library; `--corpus FILE` gives it another text.
`treadle sample RUN` lets it write. The architecture is that of A. Radford et al.,
*Language Models are Unsupervised Multitask Learners*, 2019.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.data import Source
from treadle.recipes.config import MOST_STEPS, Training, option
from treadle.recipes.data.text import Corpus, Vocabulary
from treadle.recipes.errors import UsageError
from treadle.recipes.task import (
    Data,
    Facts,
    Learner,
    Metrics,
    Recipe,
    Sampling,
    Trained,
    adamw,
    batches,
    in_turn,
)

_HELD_OUT = 10
_TEST_WINDOWS = 256


@dataclass(frozen=True)
class Config(Training):
    """The options."""

    steps: int = option(1500, "how many updates to make", least=1, below=MOST_STEPS)
    batch_size: int = option(16, "windows of text per update", least=1)
    learning_rate: float = option(
        2e-3, "the peak, after a warm-up; then it falls to a tenth", least=0
    )
    corpus: str | None = option(None, "a text file (default: Python's own sources)")
    context: int = option(128, "how many characters it looks back", least=2)
    characters: int = option(128, "how many different ones it knows", least=2)
    width: int = option(128, "the size of a character's vector", least=1)
    layers: int = option(4, "transformer blocks", least=1)
    heads: int = option(4, "attention heads in each block", least=1)
    dropout: float = option(0.0, "the share of each block left out", least=0, below=1)


class Block(nn.Module):
    """Attention, then a perceptron; each adds to what it reads (pre-norm)."""

    attention_norm: nn.LayerNorm
    attention: nn.MultiHeadAttention
    mlp_norm: nn.LayerNorm
    mlp: nn.MLP
    dropout: nn.Dropout

    def __init__(self, config: Config, *, key: rng.Key) -> None:
        attention_key, mlp_key = rng.split(key)
        width = config.width
        self.attention_norm = nn.LayerNorm(width)
        self.attention = nn.MultiHeadAttention(width, config.heads, key=attention_key)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.MLP((width, 4 * width, width), activation=nn.gelu, key=mlp_key)
        self.dropout = nn.Dropout(config.dropout)

    def __call__(self, x: td.Array) -> td.Array:
        attended = self.attention(self.attention_norm(x), causal=True)
        x = x + self.dropout(attended)
        return x + self.dropout(self.mlp(self.mlp_norm(x)))


class GPT(nn.Module):
    """Characters (*batch, length) to logits of what follows (*batch, length, known)."""

    characters: nn.Embedding
    places: nn.Embedding
    blocks: list[Block]
    norm: nn.LayerNorm
    out: nn.Linear

    def __init__(self, config: Config, known: int, *, key: rng.Key) -> None:
        first, second, third, *keys = rng.split(key, 3 + config.layers)
        self.characters = nn.Embedding(known, config.width, key=first)
        self.places = nn.Embedding(config.context, config.width, key=second)
        self.blocks = [Block(config, key=k) for k in keys]
        self.norm = nn.LayerNorm(config.width)
        self.out = nn.Linear(config.width, known, key=third)

    def __call__(self, characters: td.Array) -> td.Array:
        x = self.characters(characters)
        x = x + self.places(tnp.arange(characters.shape[-1]))
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))


def load(config: Config) -> Data:
    """Windows of the corpus; its last tenth is for testing."""
    with Corpus(config.corpus) as corpus:
        length, counts, checksum = corpus.survey()
        _check_length(config, corpus.name, length)
        vocabulary = Vocabulary.of(counts, config.characters)
        numbers = corpus.numbers(vocabulary, length)
    test = numbers[length - length // _HELD_OUT :]
    train = numbers[: length - len(test)]
    size = config.context + 1
    windows = Source(partial(_windows, train, size, 1), len(train) - size + 1)
    count = min((len(test) - 1) // config.context, _TEST_WINDOWS)
    held_out = Source(partial(_windows, test, size, config.context), count)
    facts = {
        "training": len(train),
        "test": count * config.context,
        "examples": "characters",
        "characters": vocabulary.characters,
        "checksum": checksum,
    }
    in_windows = partial(in_turn, held_out, config.batch_size)
    return Data(batches(windows, config), in_windows, facts)


def _check_length(config: Config, source: str, length: int) -> None:
    windows_end = config.context + config.batch_size
    least = max(
        _HELD_OUT * (config.context + 1),
        -(-windows_end * _HELD_OUT // (_HELD_OUT - 1)),
    )
    if length < least:
        raise UsageError(
            f"{source}: {length} characters are too few\n"
            f"With --context {config.context} and --batch-size {config.batch_size} it "
            f"takes at least {least}: choose a longer text, or smaller ones of these."
        )


def _windows(
    numbers: np.ndarray, size: int, stride: int, which: np.ndarray
) -> np.ndarray:
    starts = which.astype(np.int64)[:, None] * stride
    return numbers[starts + np.arange(size)].astype(np.int32)


def loss(
    model: Any, windows: Any, key: rng.Key | None
) -> tuple[td.Array, tuple[Metrics, Any]]:
    """The cross-entropy of each next character, given those before it."""
    seen, following = windows[:, :-1], windows[:, 1:]
    logits, model = nn.stateful(model, key=key)(seen)
    value = nn.cross_entropy(logits, following).mean()
    hits = logits.argmax(-1) == following
    return value, ({"accuracy": hits.astype(td.float32).mean()}, model)


def learner(config: Config, facts: Facts, key: rng.Key) -> Learner:
    """The GPT and its optimizer."""
    if config.width % config.heads:
        raise UsageError(
            f"--width {config.width} can't be split among --heads {config.heads}\n"
            f"Choose a multiple, such as --width {config.heads * 32}"
        )
    model = GPT(config, len(facts["characters"]), key=key)
    return Learner(model, adamw(config), loss, best=("test_loss", "min"))


def sample(trained: Trained, wanted: Sampling) -> Iterator[str]:
    """The prompt, then what the model writes after it, as it is written."""
    vocabulary = Vocabulary(trained.facts["characters"])
    model: GPT = nn.inference(trained.model)
    context = model.places.entries
    written = vocabulary.encode(wanted.prompt)[-context:] if wanted.prompt else None
    if written is None:
        # It needs something to go on from: most texts have lines.
        written = vocabulary.encode("\n")
    yield wanted.prompt
    for n in range(wanted.length):
        key = rng.fold_in(rng.key(wanted.seed), n)
        window = np.zeros(context, np.int32)
        window[: len(written)] = written
        last = len(written) - 1
        number = _next_character(model, window, last, wanted.temperature, key)
        written = np.append(written, int(number))[-context:]
        yield vocabulary.decode(written[-1:])


@td.jit
def _next_character(
    model: GPT, window: Any, last: Any, temperature: Any, key: rng.Key
) -> td.Array:
    """What follows the place `last`; what stands after it is not seen."""
    logits = model(window)[last]
    chosen = rng.categorical(key, logits / tnp.maximum(temperature, 1e-6))
    return tnp.where(temperature > 0, chosen, logits.argmax(-1))


RECIPE = Recipe(
    name="char-gpt",
    summary="a small GPT learns to write Python, or what --corpus holds",
    config=Config,
    load=load,
    learner=learner,
    sample=sample,
)
