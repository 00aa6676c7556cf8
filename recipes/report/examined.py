"""What is seen of a run by running its model: layers, kernels, samples."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from treadle.checkpoint import DamagedError, Manager
from treadle.errors import StructureError
from treadle.optional import needed_for
from treadle.recipes import loop, profiles
from treadle.recipes.errors import UsageError
from treadle.recipes.report import facts, layers
from treadle.recipes.report.parts import Part, Picture, Table, Text
from treadle.recipes.runs import Run
from treadle.recipes.step import make_step, next_batch
from treadle.recipes.task import Data, Learner, Trained

_RUNS = 3
_LENGTH = 400
"""The characters of a sample."""
_MISSING = "left out"


def parts(run: Run, learner: Learner, manager: Manager) -> list[Part]:
    """Whatever can be seen of a run; what can't is said."""
    template = loop.beginning(learner, run.config)
    said: list[Part] = []
    try:
        notes: list[str] = []
        checkpoint = loop.restored(manager, template, notes.append)
        said += [Text(_MISSING, note) for note in notes]
    except (StructureError, DamagedError) as error:
        return [Text(_MISSING, f"layers, kernels and samples: {error}", "alarm")]
    trained = manager.latest_step() is not None
    found = _samples(run, learner, checkpoint) if trained else []
    try:
        data = run.data()
    except UsageError as error:
        kept = profiles.read(run.profile)
        found += [] if kept is None else [facts.kernels(kept)]
        return [*said, *found, Text(_MISSING, f"what needs the data: {error}")]
    return [*said, *found, *_of_layers(run, learner, data, checkpoint)]


def _of_layers(
    run: Run, learner: Learner, data: Data, checkpoint: loop.Checkpoint
) -> list[Part]:
    state, config = checkpoint.state, run.config
    model = state.evaluated(learner)
    batches = data.batches.repeat()
    taken = next_batch(batches, config.accumulate)
    batch = taken if config.accumulate == 1 else next(batches)
    batches.close()

    def kernels() -> Table:
        kept = profiles.read(run.profile)
        if kept is None:
            step = make_step(learner, config.accumulate)
            kept = profiles.kernels(profiles.measured(step, state, taken, _RUNS))
        return facts.kernels(kept)

    return [
        _tried("model", lambda: layers.summary(model, learner.loss, batch)),
        _tried("activations", lambda: layers.activations(model, learner.loss, batch)),
        _tried("gradients", lambda: layers.gradients(model, learner.loss, batch)),
        _tried(facts.KERNELS, kernels),
    ]


def _tried(title: str, make: Callable[[], Part]) -> Part:
    """A part; why there is none, where a recipe's own code does not allow it: the rest
    of a report is worth having without it."""
    try:
        return make()
    except Exception as error:
        return Text(title, f"{_MISSING}: {type(error).__name__}: {error}")


def _samples(run: Run, learner: Learner, checkpoint: loop.Checkpoint) -> list[Part]:
    write = run.recipe.sample
    if write is None:
        return []
    model = checkpoint.state.evaluated(learner)
    trained = Trained(model, run.config, run.facts, run.folder)
    wanted = run.recipe.sampling()
    try:
        return [*_pieces(write(trained, wanted))]
    except UsageError as error:
        return [Text("sample", f"{_MISSING}: {error}")]


def _pieces(pieces: Iterator[Any]) -> Iterator[Part]:
    text = ""
    for piece in pieces:
        if isinstance(piece, str):
            text += piece
            if len(text) >= _LENGTH:
                break
        else:
            yield Picture("sample", _png(piece))
    if text:
        yield Text("sample", text)


def _png(pixels: Any) -> bytes:
    with needed_for("writing pictures"):
        from PIL import Image

    out = io.BytesIO()
    Image.fromarray(np.asarray(pixels)).save(out, format="PNG")
    return out.getvalue()
