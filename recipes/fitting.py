"""Training from Python: the loop of the recipes, for any model and data."""

from __future__ import annotations

import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from signal import SIGINT
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import nn, optim, rng, tree
from treadle.data import DataSet, Source, source_of
from treadle.recipes import given, loop, runs
from treadle.recipes import metrics as metrics_file
from treadle.recipes.callbacks import Callback
from treadle.recipes.config import Training, from_dict
from treadle.recipes.display import Display, Quiet, display
from treadle.recipes.errors import DivergedError, UsageError, from_python
from treadle.recipes.runs import Run
from treadle.recipes.step import make_test
from treadle.recipes.task import (
    Data,
    Facts,
    Learner,
    Metrics,
    Recipe,
    adamw,
    batches,
    in_turn,
)

_TEST_BATCH = 512
_SAMPLE = 256
"""By how many of the first examples data are told from others."""

Compared = Callable[[Any, Any], Any]
"""``(outputs, targets) -> array``, of which the mean is taken."""


@dataclass(frozen=True)
class _Fit(Recipe):
    @property
    def anew(self) -> str:
        """How another run of it is started."""
        return "give another run_dir"


@dataclass(frozen=True)
class Fitted:
    """What became of a training.

    metrics: of the last test; where there are no examples for testing, those of the
      last logged step.
    rows: the metrics of all logged steps.
    stopped: why it ended before its last step, if it did.
    """

    model: Any
    step: int
    metrics: dict[str, float]
    rows: list[dict[str, Any]]
    stopped: str | None


def fit(
    model: Any,
    data: Any,
    *,
    test: Any = None,
    loss: Compared | None = None,
    metrics: Mapping[str, Compared] | None = None,
    optimizer: optim.Transform | None = None,
    epochs: float | None = None,
    run_dir: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    show: bool = True,
    **options: Any,
) -> Fitted:
    """Trains a model, with checkpoints from which it goes on.

    Args:
      model: takes a batch of inputs; or a `Learner`, which has its own loss and
        optimizer, and for which a batch is whatever `data` gives.
      data: a pair of arrays (inputs, targets), or what `data.Loader` takes and gives
        such pairs.
      test: other data for testing; or the share of `data` to be set apart, such as 0.2.
      loss: by default the cross-entropy where targets are whole numbers, else the
        squared error.
      metrics: what else is measured, by name; by default the accuracy of classes.
      optimizer: by default AdamW with a warm-up and half a cosine.
      epochs: how often to go through the data, instead of `steps`.
      run_dir: where checkpoints and metrics are kept. If a run is there already, it
        goes on. By default nothing is kept.
      show: whether progress is shown.
      options: those of all recipes: `steps`, `batch_size`, `learning_rate`,
        `weight_decay`, `seed`, `log_every`, `checkpoint_every` (also how often is
        tested), `keep`, `accumulate`, `patience`, `tensorboard`, `profile`.

    Raises:
      UsageError: for options that are unknown or wrong; if nothing of the model is to
        be trained; if the training diverges; if `run_dir` holds a run with other data.
      StructureError: if it holds one with another model.
      KeyboardInterrupt: after Ctrl-C, when the step is made and saved.

    >>> import numpy as np
    >>> from treadle import nn, recipes, rng
    >>> x = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    >>> y = x @ np.array([1.0, 2.0, 3.0], np.float32)
    >>> model = nn.Linear(3, 1, key=rng.key(0))
    >>> options = dict(steps=200, learning_rate=0.1, weight_decay=0.0, show=False)
    >>> fitted = recipes.fit(model, (x, y), test=0.2, **options)
    >>> fitted.metrics["test_loss"] < 1e-3
    True
    """
    with from_python():
        return _fit(
            model,
            data,
            test,
            (loss, metrics, optimizer, callbacks),
            epochs,
            run_dir,
            display(sys.stdout) if show else Quiet(),
            options,
        )


def _fit(
    model: Any,
    data: Any,
    test: Any,
    functions: tuple[Any, Any, Any, Any],
    epochs: float | None,
    run_dir: str | Path | None,
    screen: Display,
    options: dict[str, Any],
) -> Fitted:
    if test is None and options.get("patience") is not None:
        raise UsageError("patience counts tests: give examples in test=")
    seed = options.get("seed", 0)
    train_source, test_source = _parts(data, test, seed)
    config = from_dict(Training, options, "fit")
    if epochs is not None:
        steps = given.steps(epochs, train_source.count, options, config)
        config = from_dict(Training, options | {"steps": steps}, "fit")
    loss, metrics, optimizer, callbacks = given.check_functions(*functions)
    loaded = _data(model, train_source, test_source, config)
    made = partial(_learner, model, train_source, loss, metrics, optimizer, config)
    recipe = _Fit(
        runs.FIT,
        "trained from Python",
        Training,
        lambda config: loaded,
        lambda config, facts, key: made(),
    )
    with _run(recipe, config, loaded.facts, run_dir, screen.note) as run:
        with runs.claimed(run):
            found = loop.train(run, loaded, made(), screen, callbacks)
        rows = metrics_file.read(run.metrics)
    if found.interrupted is not None and found.step < config.steps:
        if found.interrupted == SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + found.interrupted)
    last = rows[-1] if rows else {}
    numbers = {n: v for n, v in last.items() if n not in ("step", "seconds")}
    return Fitted(found.model, found.step, found.tested or numbers, rows, found.stopped)


def evaluate(
    model: Any,
    data: Any,
    *,
    run_dir: str | Path | None = None,
    best: bool = False,
    loss: Compared | None = None,
    metrics: Mapping[str, Compared] | None = None,
) -> dict[str, float]:
    """Tests a model with data: as it is, or as a run of `fit` has trained it.

    Args:
      model, loss, metrics: as `fit` takes them.
      data: as `fit` takes them; of a `DataSet` the part for testing, if there is one.
      run_dir: where `fit` has kept the run whose latest checkpoint is tested.
      best: take its best checkpoint instead.

    Raises:
      UsageError: if there is no such run, or it has no checkpoint.
      StructureError: if it holds one of another model.
      DamagedError: if none of its checkpoints is intact.

    >>> import numpy as np
    >>> from treadle import nn, recipes, rng
    >>> x, y = np.ones((4, 3), np.float32), np.zeros(4, np.float32)
    >>> model = nn.Linear(3, 1, bias=False, key=rng.key(0))
    >>> model = model.replace(weight=np.ones((3, 1), np.float32))
    >>> recipes.evaluate(model, (x, y))
    {'test_loss': 9.0}
    """
    if isinstance(data, DataSet):
        data = data.train if data.test is None else data.test
    source = source_of(data)
    learner = _learner(model, source, loss, metrics, None, Training())
    if run_dir is None:
        if best:
            raise UsageError("best=True is about a run: give its run_dir")
        trained = learner.evaluated(learner.model, _optimizer(learner, model))
    else:
        trained = _kept(Path(run_dir), learner, model, best)
    return make_test(learner, partial(in_turn, source, _TEST_BATCH))(trained)


def _optimizer(learner: Learner, model: Any) -> Any:
    """The state that a `Learner` of the user's finds its averages in."""
    is_own = isinstance(model, Learner)
    return learner.optimizer.init(learner.model) if is_own else None


def _kept(folder: Path, learner: Learner, model: Any, best: bool) -> Any:
    """The model of a run's checkpoint, as it is used."""
    if not runs.exists(folder):
        raise UsageError(f"run_dir {folder}: there is no run")
    run = runs.load(folder, {})
    with loop.manager_of(run, None) as manager:
        step = manager.best_step() if best else manager.latest_step()
        if step is None:
            raise UsageError(f"run_dir {folder}: has no checkpoint of that kind yet")
        state = {"model": learner.model}
        optimizer = _optimizer(learner, model)
        if optimizer is not None:
            state["optimizer"] = optimizer
        found = manager.restore({"state": state}, step if best else None, partial=True)[
            "state"
        ]
    return learner.evaluated(found["model"], found.get("optimizer"))


def _parts(data: Any, test: Any, seed: int) -> tuple[Source, Source | None]:
    """The examples for training, and those for testing."""
    if isinstance(data, DataSet):
        data, test = data.train, data.test if test is None else test
    source = source_of(data)
    share = given.share(test)
    if share is None:
        return source, None if test is None else source_of(test)
    held = round(share * source.count)
    if not 0 < held < source.count:
        raise UsageError(
            f"test={test} of {source.count} examples leaves nothing to "
            f"{'train' if held else 'test'} with"
        )
    order = np.asarray(rng.permutation(rng.key(seed), source.count))

    def part(chosen: np.ndarray) -> Source:
        return Source(lambda n: source.fetch(chosen[n]), len(chosen), source.slow)

    return part(np.sort(order[held:])), part(np.sort(order[:held]))


def _data(model: Any, train: Source, test: Source | None, config: Training) -> Data:
    sample = train.fetch(np.arange(min(_SAMPLE, train.count)))
    given.check_batch(model, sample)
    leaves = [np.ascontiguousarray(x) for x in tree.leaves(sample)]
    facts = {
        "training": train.count,
        "test": 0 if test is None else test.count,
        "examples": "examples",
        "shapes": [list(x.shape[1:]) for x in leaves],
        "checksum": zlib.crc32(b"".join(x.tobytes() for x in leaves)),
    }
    tests: Callable[[], Iterator[Any]] = lambda: iter(())  # noqa: E731
    if test is not None:
        tests = partial(in_turn, test, _TEST_BATCH)
    return Data(batches(train, config), tests, facts)


def _learner(
    model: Any,
    source: Source,
    loss: Compared | None,
    metrics: Mapping[str, Compared] | None,
    optimizer: optim.Transform | None,
    config: Training,
) -> Learner:
    if isinstance(model, Learner):
        if not loss is metrics is optimizer is None:
            raise UsageError("a Learner has its loss, metrics and optimizer already")
        return replace(model, model=_copied(model.model))
    if not callable(model) or isinstance(model, type):
        raise UsageError(
            f"{model!r:.80} is no model: fit takes an object of an nn.Module, or a "
            "`recipes.Learner`"
        )
    if nn.count(model) == 0:
        raise UsageError(
            f"nothing of this {type(model).__name__} is to be trained: it has no "
            "parameters, or all are frozen (`nn.unfreeze` lets them be trained)"
        )
    _, targets = source.fetch(np.arange(min(_SAMPLE, source.count)))
    targets = np.asarray(targets)
    if loss is None:
        classes = targets.dtype.kind in "biu"
        limits = (int(targets.min()), int(targets.max())) if classes else ()
        loss = partial(_cross_entropy, *limits) if classes else _squared_error
        if metrics is None and classes:
            metrics = {"accuracy": _hits}
    measured = partial(_measured, loss, dict(metrics or {}))
    optimizer = optimizer or adamw(config)
    return Learner(_copied(model), optimizer, measured, ("test_loss", "min"))


def _copied(model: Any) -> Any:
    """A step reuses the arrays that it is given; the user's stay as they are."""
    return tree.map(lambda x: tnp.asarray(np.array(x)), model)


def _measured(
    loss: Compared,
    metrics: Mapping[str, Compared],
    model: Any,
    batch: Any,
    key: rng.Key | None,
) -> tuple[td.Array, tuple[Metrics, Any]]:
    inputs, targets = batch
    outputs, model = nn.stateful(model, key=key)(inputs)
    value = loss(outputs, targets).mean()
    found = {
        name: measure(outputs, targets).mean() for name, measure in metrics.items()
    }
    return value, (found, model)


def _cross_entropy(low: int, high: int, outputs: Any, targets: Any) -> td.Array:
    """low, high: the classes that are among the first examples."""
    given.check_classes(outputs, low, high)
    if outputs.ndim != targets.ndim + 1:
        raise UsageError(
            f"whole targets of shape {targets.shape} are no classes for outputs of "
            f"shape {outputs.shape}: there is one less axis of them, that of classes\n"
            "One-hot targets become classes by `y.argmax(-1)`."
        )
    return nn.cross_entropy(outputs, targets)


def _squared_error(outputs: Any, targets: Any) -> td.Array:
    """Outputs of one number need no axis of their own in the targets."""
    if outputs.ndim == targets.ndim + 1 and outputs.shape[-1] == 1:
        outputs = outputs[..., 0]
    return nn.squared_error(outputs, targets)


def _hits(outputs: Any, targets: Any) -> td.Array:
    return (outputs.argmax(-1) == targets).astype(td.float32)


@contextmanager
def _run(
    recipe: Recipe,
    config: Training,
    facts: Facts,
    folder: str | Path | None,
    note: Callable[[str], None],
) -> Iterator[Run]:
    """The run in a folder, new or to be gone on with; or one that is not kept."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="treadle-fit-") as temporary:
            try:
                yield runs.create(recipe, config, facts, Path(temporary))
            except DivergedError as error:
                there = [t for t in str(error).splitlines() if temporary not in t]
                kept = "With run_dir=, what was before that step is kept."
                raise DivergedError("\n".join([*there, kept])) from None
        return
    folder = Path(folder)
    if not runs.exists(folder):
        yield runs.create(recipe, config, facts, folder)
        return
    try:
        run = runs.load(folder, {runs.FIT: recipe})
    except UsageError as error:
        raise UsageError(f"{error}\nTo train from Python, {recipe.anew}.") from None
    runs.check_same_data(run, facts)
    changed = runs.changes(run.config, config)
    if changed:
        note(f"changed: {', '.join(changed)}")
    yield replace(run, config=config)
