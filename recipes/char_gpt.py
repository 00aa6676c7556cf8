"""char-gpt: a small GPT learns to write, character by character, or `--tokens bpe`.

By default it reads Python's standard library; `--data FILE` gives it another text.
`treadle sample RUN` lets it write. The architecture is that of A. Radford et al.,
*Language Models are Unsupervised Multitask Learners*, 2019.
"""

from __future__ import annotations

import math
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
from treadle.recipes.data.text import Corpus, Survey, Vocabulary
from treadle.recipes.data.tokens import Tokens, Utf8
from treadle.recipes.errors import UsageError, unknown
from treadle.recipes.task import (
    Begun,
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

_HELD_OUT, _TEST_WINDOWS = 10, 256


@dataclass(frozen=True)
class Config(Training):
    """The options."""

    steps: int = option(1500, "how many updates to make", least=1, below=MOST_STEPS)
    batch_size: int = option(16, "windows of text per update", least=1)
    learning_rate: float = option(
        2e-3, "the peak, after a warm-up; then it falls to a tenth", least=0
    )
    data: str | None = option(None, "a text file (default: Python's own sources)")
    context: int = option(128, "how many characters or tokens it looks back", least=2)
    tokens: str = option("characters", "what it reads and writes: characters or bpe")
    characters: int = option(128, "how many different ones it knows", least=2)
    vocabulary: int = option(512, "how many tokens of --tokens bpe", least=257)
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


def load(config: Config, begun: Begun | None = None) -> Data:
    """Windows of the corpus; its last tenth is for testing."""
    if config.tokens not in _READERS:
        raise unknown("kind of --tokens", config.tokens, _READERS)
    with Corpus(config.data) as corpus:
        survey = corpus.survey()
        _check_length(config, corpus.name, survey.length)
        windows, test, facts = _READERS[config.tokens](config, corpus, survey, begun)
    fetch = partial(_windows, test, config.context + 1, config.context)
    held_out = Source(fetch, min((len(test) - 1) // config.context, _TEST_WINDOWS))
    facts |= {"test": held_out.count * config.context, "checksum": survey.checksum}
    tests = partial(in_turn, held_out, config.batch_size)
    return Data(batches(windows, config), tests, facts)


def _characters(config: Config, corpus: Corpus, survey: Survey, begun: Any) -> Any:
    """Windows to train with, numbers to test with, and facts."""
    vocabulary = Vocabulary.of(survey.counts, config.characters)
    train, test = _parts(corpus.numbers(vocabulary, survey.length))
    size = config.context + 1
    windows = Source(partial(_windows, train, size, 1), len(train) - size + 1)
    about = {"examples": "characters", "characters": vocabulary.characters}
    return windows, test, {"training": len(train), **about}


def _pieces(config: Config, corpus: Corpus, survey: Survey, begun: Any) -> Any:
    """As `_characters`; text becomes tokens when a window is fetched."""
    train, test = _parts(corpus.numbers(Utf8(), survey.size))
    # A run keeps its tokens: another version of the package might learn others.
    kept = begun is not None and begun.config.vocabulary == config.vocabulary
    form = begun.facts.get("tokenizer") if kept else None
    tokens = Tokens(form) if form else Tokens.of(train, config.vocabulary)
    size = config.context + 1
    _check_length(config, corpus.name, survey.size, tokens.longest)
    fetch = partial(tokens.windows, train, size)
    held = tokens.held(test, config.context, _TEST_WINDOWS)
    ratio = (len(held.numbers) - 1) / held.characters
    about = {"examples": "bytes", "tokenizer": tokens.form, "per_character": ratio}
    windows = Source(fetch, len(train) - tokens.reach(size))
    return windows, held.numbers, {"training": len(train), **about}


_READERS = {"characters": _characters, "bpe": _pieces}


def _parts(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    held_out = len(numbers) // _HELD_OUT
    return numbers[:-held_out], numbers[-held_out:]


def _check_length(config: Config, source: str, length: int, longest: int = 1) -> None:
    windows_end = config.context * longest + config.batch_size
    least = max(
        _HELD_OUT * (config.context * longest + 1),
        -(-windows_end * _HELD_OUT // (_HELD_OUT - 1)),
    )
    if length < least:
        raise UsageError(
            f"{source}: {length} characters are too few\n"
            f"With --context {config.context} and --batch-size {config.batch_size} it "
            f"takes at least {least}: choose a longer text, or smaller ones of these."
        )


def _windows(numbers: Any, size: int, stride: int, which: np.ndarray) -> np.ndarray:
    starts = which.astype(np.int64)[:, None] * stride
    return numbers[starts + np.arange(size)].astype(np.int32)


def loss(
    facts: Facts, model: Any, windows: Any, key: rng.Key | None
) -> tuple[td.Array, tuple[Metrics, Any]]:
    """The cross-entropy of each next token, given those before it; in tests, in bits
    per character, too, which compares models with other tokens."""
    seen, following = windows[:, :-1], windows[:, 1:]
    logits, model = nn.stateful(model, key=key)(seen)
    value = nn.cross_entropy(logits, following).mean()
    hits = logits.argmax(-1) == following
    metrics = {"accuracy": hits.astype(td.float32).mean()}
    if key is None:
        per_character = facts.get("per_character", 1.0)
        metrics["bits_per_character"] = value * (per_character / math.log(2))
    return value, (metrics, model)


def learner(config: Config, facts: Facts, key: rng.Key) -> Learner:
    """The GPT and its optimizer."""
    if config.width % config.heads:
        raise UsageError(
            f"--width {config.width} can't be split among --heads {config.heads}\n"
            f"Choose a multiple, such as --width {config.heads * 32}"
        )
    model = GPT(config, len(_coder(facts)), key=key)
    return Learner(model, adamw(config), partial(loss, facts), ("test_loss", "min"))


def _coder(facts: Facts) -> Vocabulary | Tokens:
    known = facts.get("characters")
    return Tokens(facts["tokenizer"]) if known is None else Vocabulary(known)


def sample(trained: Trained, wanted: Sampling) -> Iterator[str]:
    """The prompt, then what the model writes after it, as it is written."""
    vocabulary = _coder(trained.facts)
    model: GPT = nn.inference(trained.model)
    context = model.places.entries
    # It needs something to go on from: most texts have lines.
    written = vocabulary.encode(wanted.prompt or "\n")[-context:]
    yield wanted.prompt
    speak = vocabulary.speaker()
    for n in range(wanted.length):
        key = rng.fold_in(rng.key(wanted.seed), n)
        window = np.zeros(context, np.int32)
        window[: len(written)] = written
        last = len(written) - 1
        number = int(_next_character(model, window, last, wanted.temperature, key))
        written = np.append(written, number)[-context:]
        yield speak(number)


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
    summary="a small GPT learns to write Python, or what --data holds",
    config=Config,
    load=load,
    again=load,
    learner=learner,
    sample=sample,
)
