"""dp-sgd: a network learns digits, or `--data`, with differential privacy.

What it learns depends little on any single image: the gradient of each is cut to a
length, and noise is added to their sum (M. Abadi et al., *Deep Learning with
Differential Privacy*, 2016). An accountant tells the privacy loss ε at δ, and a run
ends within its budget `--epsilon`.

The guarantee is for the model, against whoever does not know the seed. So publish
the weights alone: checkpoints hold the key of the noise, and `metrics.jsonl` losses of
training images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import nn, optim, rng, tree
from treadle.data import Loader, Source
from treadle.recipes import classify, privacy, supervised
from treadle.recipes.config import MOST_STEPS, option
from treadle.recipes.errors import UsageError
from treadle.recipes.step import TrainState
from treadle.recipes.task import Begun, Data, Facts, Learner, Metrics, Recipe, adamw

_AT_ONCE = 32
"""Images whose gradients are in memory at a time."""
_OVERFLOW = 40.0
"""A draw is larger than its room with a chance below exp(-40), far below every δ."""


@dataclass(frozen=True)
class Config(classify.Images):
    """The options."""

    steps: int = option(200, "how many updates to make", least=1, below=MOST_STEPS)
    batch_size: int = option(512, "examples per update, on average", least=1)
    learning_rate: float = option(
        2e-2, "the peak, after a warm-up; then it falls to a tenth", least=0
    )
    weight_decay: float = option(0.0, "how fast unused weights shrink", least=0)
    checkpoint_every: int = option(50, "steps between checkpoints, with tests", least=1)
    epsilon: float = option(3.0, "the privacy loss that is allowed", least=0)
    delta: float = option(
        1e-4, "the chance with which it may be larger", least=1e-12, below=1
    )
    noise: float | None = option(
        None, "deviation, in units of --clip (default: by --epsilon)", least=0.1
    )
    clip: float = option(1.0, "the length to which gradients are cut", least=1e-6)
    width: int = option(64, "units in the hidden layer", least=1)


class Classifier(nn.Module):
    """Images (*batch, height, width, channels) to logits (*batch, classes)."""

    hidden: nn.Linear
    out: nn.Linear

    def __init__(self, config: Config, facts: Facts, *, key: rng.Key) -> None:
        hidden_key, out_key = rng.split(key)
        self.hidden = nn.Linear(math.prod(facts["shape"]), config.width, key=hidden_key)
        self.out = nn.Linear(config.width, len(facts["classes"]), key=out_key)

    def __call__(self, images: td.Array) -> td.Array:
        x = images.reshape(*images.shape[:-3], self.hidden.in_features)
        return self.out(nn.tanh(self.hidden(x)))


def drawn(source: Source, config: Config) -> Source:
    """Batches by their numbers, as the accountant assumes them: each example is in one
    with the same chance, whatever the others are. A batch (1, room, ...) has room for
    more than are drawn; its last part says which places are taken."""
    mean = config.batch_size
    room = mean + _OVERFLOW / 3 + math.sqrt(_OVERFLOW**2 / 9 + 2 * _OVERFLOW * mean)
    room = _AT_ONCE * math.ceil(min(room, source.count) / _AT_ONCE)

    def fetch(numbers: np.ndarray) -> Any:
        random = np.random.default_rng((config.seed, int(numbers[0])))
        chosen = np.flatnonzero(random.random(source.count) < mean / source.count)
        chosen = chosen[:room]
        batch = *source.fetch(np.resize(chosen, room)), np.arange(room) < len(chosen)
        return tree.map(lambda x: x[None], batch)

    return Source(fetch, MOST_STEPS, slow=False)


def load(config: Config, begun: Begun | None = None) -> Data:
    """Images in batches, and how much noise their privacy takes: for a run that has
    begun, what it has."""
    found = classify.images(config)
    facts = supervised.describe(found, config.image_size)
    count = facts["training"]
    whole = supervised.in_batches(found, config, facts)
    if config.delta >= 1 / count:
        raise UsageError(
            f"--delta {config.delta:g} allows to publish one image of {count}\n"
            f"Choose a smaller one, such as --delta {0.1 / count:.0e}"
        )
    rate = config.batch_size / count
    noise = config.noise
    if noise is None and begun is not None:
        noise = begun.facts["noise"]
    if noise is None:
        noise = privacy.noise_for(config.epsilon, rate, config.steps, config.delta)
    else:
        privacy.check(config, noise, rate)
    facts |= {"rate": rate, "noise": noise}
    source = supervised.telling(found.train.source)
    batches = Loader(drawn(source, config), 1, shuffle=False)
    loss = privacy.spent(noise, rate, config.steps, config.delta)
    about = f"noise {noise:g}, so --steps {config.steps} spend epsilon {loss:.3g}"
    return Data(batches, whole.test, facts, f"{found.about}; {about}")


def longer(begun: Begun, steps: int) -> dict[str, Any]:
    """The budget that a run needs for more steps. It never grows unasked: what was
    promised to those in the pictures is for a person to change."""
    config, facts = begun
    needed = privacy.budget(facts["noise"], facts["rate"], steps, config.delta)
    return {"epsilon": needed} if needed > config.epsilon else {}


def clipped(
    facts: Facts, length: float, model: Any, batch: tuple[Any, Any]
) -> tuple[Metrics, Any]:
    """The metrics (n,) of each example, and its gradient (n, parameters), which is cut
    to a length."""

    def loss(model: Any, example: tuple[Any, Any]) -> Any:
        alone = tree.map(lambda x: x[None], example)
        value, (metrics, _) = supervised.loss(facts, model, alone, None)
        return value, {"loss": value, **metrics}

    def gradient(example: tuple[Any, Any]) -> tuple[Metrics, Any]:
        grads, metrics = td.grad(loss, has_aux=True)(model, example)
        grad = tree.ravel(grads)[0]
        norm = tnp.sqrt((grad**2).sum())
        return metrics, grad * (length / tnp.maximum(norm, length))

    return td.vmap(gradient)(batch)


def update(
    config: Config,
    facts: Facts,
    optimizer: optim.Transform,
    state: TrainState,
    batch: Any,
) -> tuple[TrainState, Metrics]:
    """A step along the sum of the cut gradients, with noise."""
    flat, unravel = tree.ravel(state.model)

    def more(total: Any, part: Any) -> tuple[Any, Metrics]:
        inputs, labels, taken = part
        taken = taken.astype(td.float32)
        metrics, grads = clipped(facts, config.clip, state.model, (inputs, labels))
        return total + taken @ grads, tree.map(lambda m: (m * taken).sum(), metrics)

    parts = tree.map(lambda x: x.reshape(-1, _AT_ONCE, *x.shape[2:]), batch)
    total, measured = td.scan(more, tnp.zeros_like(flat), parts)
    # The count that was expected: that of those drawn is no one's to know.
    noise = rng.normal(rng.fold_in(state.key, state.step), flat.shape)
    total = (total + facts["noise"] * config.clip * noise) / config.batch_size
    updates, after = optimizer.update(unravel(total), state.optimizer, state.model)
    model = optim.apply_updates(state.model, updates)
    count = tnp.maximum(batch[2].sum(), 1)
    metrics = {name: values.sum() / count for name, values in measured.items()}
    return TrainState(model, after, state.key, state.step), metrics


def learner(config: Config, facts: Facts, key: rng.Key) -> Learner:
    """The perceptron, and how it is trained."""
    model, optimizer = Classifier(config, facts, key=key), adamw(config)

    def told(step: int) -> Metrics:
        return {
            "epsilon": privacy.spent(facts["noise"], facts["rate"], step, config.delta)
        }

    return Learner(
        model,
        optimizer,
        partial(supervised.loss, facts),
        ("test_accuracy", "max"),
        update=partial(update, config, facts, optimizer),
        told=told,
    )


RECIPE = Recipe(
    name="dp-sgd",
    summary="a perceptron learns digits with differential privacy",
    config=Config,
    load=load,
    again=load,
    longer=longer,
    learner=learner,
)
