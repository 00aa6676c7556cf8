"""What a recipe is: its options, its data, and what learns from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

import treadle.numpy as tnp
from treadle import optim
from treadle.data import Labelled, Loader, Source
from treadle.recipes.config import Training, option
from treadle.recipes.errors import UsageError, command, option_text

Facts = dict[str, Any]
"""What a run keeps of its data: plain JSON. The same data, read with the same options,
gives the same facts."""

Metrics = dict[str, Any]
"""Numbers by name, averages over a batch."""

Loss = Callable[[Any, Any, Any], tuple[Any, tuple[Metrics, Any]]]
"""``(model, batch, key) -> (loss, (metrics, model))``: the model comes back with its
new state. Without a key it is a test: no augmentation, no dropout. What has no loss
gives None for it."""

Update = Callable[[Any, Any], tuple[Any, Metrics]]
"""``(state, batch) -> (state, metrics)``, of a `TrainState`; it is compiled."""


@dataclass(frozen=True)
class Data:
    """Examples to learn from, and examples that are only for testing.

    test: makes an iterator of (batch, number of examples in it).
    about: what was found, for the user.
    """

    batches: Loader
    test: Callable[[], Iterable[tuple[Any, int]]]
    facts: Facts
    about: str = ""


def batches(examples: Labelled | Source, config: Training) -> Loader:
    """Examples in random order, as the options say.

    Raises:
      UsageError: if there are fewer than a batch.
    """
    source = examples if isinstance(examples, Source) else examples.source
    if config.batch_size > source.count:
        raise UsageError(
            f"{option_text('batch_size', config.batch_size)}: there are {source.count} "
            "training examples only\nIt has to be as many or fewer."
        )
    return Loader(source, config.batch_size, seed=config.seed)


def in_turn(source: Source, size: int) -> Iterator[tuple[Any, int]]:
    """All examples once, in batches, each with its size: for tests."""
    for start in range(0, source.count, size):
        numbers = np.arange(start, min(start + size, source.count))
        yield source.fetch(numbers), len(numbers)


@dataclass(frozen=True)
class Learner:
    """A model as it is at first, and how it is trained.

    best: the metric that tells how good a checkpoint is, and which extreme is best.
    evaluated: from the model and its optimizer's state to the model that is tested and
      used; `optim.averaged` where averages of the weights are kept.
    update: makes a step, where that is more than following the gradient of the loss;
      the number of steps is then counted, and the loss is for tests.
    told: what the number of steps alone tells, such as the privacy that is spent: with
      each test.
    """

    model: Any
    optimizer: optim.Transform
    loss: Loss
    best: tuple[str, Literal["min", "max"]]
    evaluated: Callable[[Any, Any], Any] = lambda model, optimizer: model
    update: Update | None = None
    told: Callable[[int], Metrics] | None = None


@dataclass(frozen=True)
class Sampling:
    """The options of `treadle sample` for a run of a recipe that writes."""

    prompt: str = option("", "what the text begins with")
    length: int = option(500, "how many characters to write", least=0)
    temperature: float = option(0.8, "0: the likeliest; 1: as in the corpus", least=0)
    seed: int = option(0, "other numbers give other texts", least=0, below=2**64)


class Trained(NamedTuple):
    """What a run has come to.

    model: as it is used (`Learner.evaluated`).
    folder: the run's.
    """

    model: Any
    config: Any
    facts: Facts
    folder: Path


class Begun(NamedTuple):
    """With which options a run began, and what it keeps of its data."""

    config: Any
    facts: Facts


@dataclass(frozen=True)
class Recipe:
    """What `treadle train NAME` runs.

    config: a dataclass of `option` fields.
    load: from the options to the data.
    again: from the options and a `Begun` to the data of a run that has begun, where
      something was found by them that is to stay, such as a tokenizer. By default they
      are loaded as at first.
    longer: the options, by name, with which a run goes on for so many steps, where that
      takes more than `steps`.
    learner: from the options, the data's facts and a key to what is trained.
    sample: writes with a trained model, as `sampling` says, piece by piece: texts, and
      pictures, which are bytes (height, width) or (height, width, 3). None for recipes
      that don't write.
    sampling: the options of `sample`.
    details: what else is told of a trained model, line by line, after a test.
    export: writes a trained model to a folder for others to use.
    file: where it was found, if that is a file of the user's.
    """

    name: str
    summary: str
    config: type[Training]
    load: Callable[[Any], Data]
    learner: Callable[[Any, Facts, Any], Learner]
    sample: Callable[[Trained, Any], Iterator[str | np.ndarray]] | None = None
    sampling: type = Sampling
    details: Callable[[Trained, Data], Iterator[str]] | None = None
    export: Callable[[Trained, Path], None] | None = None
    again: Callable[[Any, Begun], Data] | None = None
    longer: Callable[[Begun, int], dict[str, Any]] | None = None
    file: str | None = None

    @property
    def place(self) -> str:
        """What commands name it by."""
        return self.file or self.name

    @property
    def anew(self) -> str:
        """How another run of it is started."""
        return command("train", self.place)

    @property
    def code(self) -> Path | None:
        """The file itself."""
        return None if self.file is None else Path(self.file.partition(":")[0])


def adamw(config: Training, mask: Any = None) -> optim.Transform:
    """AdamW with a warm-up and half a cosine, from the options of all recipes.

    mask: which parameters decay, as `optim.adamw` takes it; all by default.
    """
    warmup = max(1, min(100, config.steps // 10))
    schedule = optim.warmup_cosine_decay_schedule(
        init_value=0.0,
        peak_value=config.learning_rate,
        warmup_steps=warmup,
        decay_steps=max(config.steps, warmup + 1),
        end_value=config.learning_rate / 10,
    )
    return optim.adamw(schedule, weight_decay=config.weight_decay, mask=mask)


def averaging(optimizer: optim.Transform, decay: float) -> optim.Transform:
    """An optimizer that keeps a moving average of the weights, and of the statistics of
    norms: `optim.averaged`.

    The decay grows to what is given: else a short training would be averaged with what
    it began with.
    """

    def grown(count: Any) -> Any:
        return tnp.minimum(decay, (count + 1) / (count + 10))

    return optim.chain(optimizer, optim.average_parameters(grown, state=True))
