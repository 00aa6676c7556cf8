"""finetune-lora: a language model of Hugging Face's learns from your texts, at the cost
of a small one.

`--model` is a local folder of a GPT-2 or Llama, with its tokenizer; `--data` a text, or
lines of JSON, or a folder of such files. The model stays as it is: trained and saved
are adapters of low rank beside its weights. `treadle sample RUN` lets both write, and
`treadle export RUN FOLDER` writes a folder like the model's, with the adapters in it.

E. Hu et al., *LoRA: Low-Rank Adaptation of Large Language Models*, 2021.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import models, nn, rng
from treadle.data import Source
from treadle.recipes.config import MOST_STEPS, Training, option
from treadle.recipes.data import passages
from treadle.recipes.data.pretrained import Folder
from treadle.recipes.errors import UsageError, unplaced
from treadle.recipes.task import (
    Data,
    Facts,
    Learner,
    Metrics,
    Recipe,
    Trained,
    adamw,
    batches,
    in_turn,
)

_HELD_OUT = 10
_NO_DATA = """\
--data PATH is missing: a text file, or .jsonl with "text", or "prompt" and "completion"
"""


@dataclass(frozen=True)
class Config(Training):
    """The options."""

    steps: int = option(300, "how many updates to make", least=1, below=MOST_STEPS)
    batch_size: int = option(8, "rows of text per update", least=1)
    learning_rate: float = option(
        1e-3, "the peak, after a warm-up; then it falls to a tenth", least=0
    )
    model: str | None = option(None, "a Hugging Face folder of a GPT-2 or Llama")
    data: str | None = option(None, "a .txt or .jsonl file, or a folder of them")
    context: int = option(128, "how many tokens a row has", least=2)
    adapt: str = option(
        "layers.*.attention", "layers with adapters: patterns, with commas between them"
    )
    rank: int = option(8, "of the adapters", least=1)
    alpha: float = option(16.0, "how much adapters count, times the rank", least=0)
    dropout: float = option(0.0, "of what adapters take in", least=0, below=1)


@dataclass(frozen=True)
class Sampling:
    """What `treadle sample` is asked for."""

    prompt: str = option("", "what the text begins with")
    length: int = option(100, "how many tokens to write at most", least=1)
    temperature: float = option(0.8, "0: the likeliest; 1: as it was learnt", least=0)
    seed: int = option(0, "other numbers give other texts", least=0, below=2**64)


def load(config: Config) -> Data:
    """The texts as rows of tokens; a tenth of the rows is for testing."""
    folder = Folder(config.model)
    if config.data is None:
        raise UsageError(_NO_DATA.strip())
    found = passages.read(config.data)
    rows = passages.rows(found, folder.encode, folder.ends[0], config.context + 1)
    count = len(rows.tokens)
    held = max(1, count // _HELD_OUT)
    if count <= held:
        raise UsageError(
            f"--data {config.data}: of {len(found)} texts, {count} rows of --context "
            f"{config.context} tokens can be made: too few to train and to test with"
        )
    order = np.asarray(rng.permutation(rng.key(config.seed), count))
    test, train = np.sort(order[:held]), np.sort(order[held:])
    told = int(rows.told[train].sum())
    facts = {
        "training": told,
        "test": int(rows.told[test].sum()),
        "examples": "tokens",
        "passages": rows.passages,
        "checksum": rows.checksum,
        "model": folder.checksum(),
    }
    return Data(
        batches(_source(rows, train), config),
        partial(_in_turn, _source(rows, test), config.batch_size),
        facts,
        f"{len(found)} texts, {told:,} tokens to be told in {len(train)} rows",
    )


def _source(rows: passages.Rows, which: np.ndarray) -> Source:
    def fetch(numbers: np.ndarray) -> Any:
        chosen = which[numbers]
        return rows.tokens[chosen], rows.told[chosen]

    return Source(fetch, len(which), slow=False)


def _in_turn(source: Source, size: int) -> Iterator[tuple[Any, int]]:
    """Batches for a test, each counting as many tokens as are told in it."""
    for batch, _ in in_turn(source, size):
        yield batch, int(batch[1].sum())


def loss(
    base: Any, adapters: Any, batch: tuple[Any, Any], key: rng.Key | None
) -> tuple[td.Array, tuple[Metrics, Any]]:
    """The cross-entropy of each token that is to be told, given those before it.

    In tests, the model comes whole (`Learner.evaluated`).
    """
    tokens, told = map(tnp.asarray, batch)
    model = adapters if key is None else nn.combine(adapters, base)
    logits, _ = nn.stateful(model, key=key)(tokens[:, :-1])
    following, told = tokens[:, 1:], told[:, 1:]
    count = tnp.maximum(told.sum(), 1)
    errors = nn.cross_entropy(logits, following)
    hits = logits.argmax(-1) == following
    value = tnp.where(told, errors, 0).sum() / count
    accuracy = (hits & told).sum() / count
    return value, ({"accuracy": accuracy.astype(td.float32)}, adapters)


def learner(config: Config, facts: Facts, key: rng.Key) -> Learner:
    """Adapters, and the model beside which they are trained."""
    model = Folder(config.model).model()
    _check_context(config, model)
    where = [pattern.strip() for pattern in config.adapt.split(",")]
    options: Any = {"rank": config.rank, "alpha": config.alpha}
    try:
        adapted = nn.lora(model, where, dropout=config.dropout, key=key, **options)
    except ValueError as error:
        raise UsageError(
            f"--adapt {config.adapt}: {unplaced(error)}\nLayers are called "
            "layers.*.attention.query, layers.*.feed_forward.up and so on."
        ) from None
    adapters, base = nn.partition(nn.training(adapted))
    return Learner(
        adapters,
        adamw(config),
        partial(loss, base),
        best=("test_loss", "min"),
        evaluated=lambda adapters, optimizer: nn.combine(adapters, base),
    )


def _check_context(config: Config, model: Any) -> None:
    known = _positions(model)
    if known is not None and config.context > known:
        raise UsageError(
            f"--context {config.context}: {config.model} knows {known} positions"
        )


def _positions(model: Any) -> int | None:
    """How many tokens a model can look back, where that has an end."""
    return model.positions.weight.shape[0] if isinstance(model, models.GPT2) else None


def sample(trained: Trained, wanted: Sampling) -> Iterator[str]:
    """The prompt, then what the model writes after it, as it is written."""
    folder = Folder(trained.config.model)
    given = folder.encode(wanted.prompt) or folder.ends[:1]
    known = _positions(trained.model)
    if known is not None:
        if wanted.length >= known:
            raise UsageError(
                f"--length {wanted.length}: the model knows {known} tokens"
            )
        given = given[-(known - wanted.length) :]
    options: Any = {}
    if wanted.temperature:
        options = {"temperature": wanted.temperature, "key": rng.key(wanted.seed)}
    model = nn.merge_lora(nn.inference(trained.model))
    tokens, shown = list(given), folder.decode(given)
    yield wanted.prompt
    prompts = np.array([given])
    for more in models.stream(
        model, prompts, wanted.length, eos=folder.ends, **options
    ):
        written = np.asarray(more)[0].tolist()
        tokens += takewhile(lambda token: token not in folder.ends, written)
        # The last character may lack some of its bytes yet.
        text = folder.decode(tokens).rstrip("\N{REPLACEMENT CHARACTER}")
        yield text[len(shown) :]
        shown = shown + text[len(shown) :]
    yield folder.decode(tokens)[len(shown) :]


def export(trained: Trained, folder: Path) -> None:
    """A folder like that of the model, with the adapters in its weights."""
    merged = nn.unfreeze(nn.merge_lora(nn.inference(trained.model)))
    models.to_huggingface(folder, merged, like=trained.config.model)


RECIPE = Recipe(
    name="finetune-lora",
    summary="a GPT-2 or Llama of --model learns from your texts, by small adapters",
    config=Config,
    load=load,
    learner=learner,
    sample=sample,
    sampling=Sampling,
    export=export,
)
