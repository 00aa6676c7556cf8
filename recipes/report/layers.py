"""What the layers of a trained model do with a batch: work, activations, gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import treadle as td
from treadle import nn, tree
from treadle.nn.overview import layer_table
from treadle.recipes.report.parts import Table
from treadle.recipes.task import Loss

_MODEL = "model"
_SUMS = ("norm", "mean", "std", "zeros")


class _Scored(nn.Module):
    """A model behind its loss, so that a batch is all that is needed to call it."""

    model: Any
    loss: Loss

    def __init__(self, model: Any, loss: Loss) -> None:
        self.model, self.loss = model, loss

    def __call__(self, batch: Any) -> Any:
        return self.loss(self.model, batch, None)[0]


def summary(model: Any, loss: Loss, batch: Any) -> Table:
    """`nn.summary` of a model, without its first row: that of the loss."""
    head, _, *rows = layer_table(_Scored(nn.inference(model), loss), batch, timed=True)
    rows = [[_named(path), *rest] for path, *rest in rows]
    numbers = frozenset(range(4, len(head)))
    note = "Of a call on one batch, without gradients; a layer's time is its own alone."
    return Table("model", head, rows, numbers, frozenset({0, 2, 3}), note)


def _named(path: str) -> str:
    """A path within the model."""
    return path.removeprefix(_MODEL).removeprefix(".") or "(the model)"


def activations(model: Any, loss: Loss, batch: Any) -> Table:
    """What each layer gives for a batch, in a test."""

    def run(model: Any, batch: Any) -> Any:
        return loss(nn.inference(model), batch, None)[0]

    _, found = nn.capture(run)(model, batch)
    rows = []
    for path, output in found.items():
        for value in map(np.asarray, tree.leaves(output)):
            if np.issubdtype(value.dtype, np.number):
                rows.append([path, _shape(value), *_numbers(value)])
    head = ["layer", "shape", *_SUMS, "least", "greatest"]
    return _table("activations", head, rows, "Outputs of layers for one batch.")


def gradients(model: Any, loss: Loss, batch: Any) -> Table:
    """The gradient of the loss of a batch, by parameter."""

    @td.jit
    def gradient(model: Any, batch: Any) -> Any:
        return td.grad(lambda m: loss(nn.inference(m), batch, None)[0])(model)

    values = _named_leaves(model)
    rows = []
    # What is not trained has no gradient.
    for name, grad in _named_leaves(gradient(model, batch)).items():
        norm = _number(np.linalg.norm(values[name].astype(np.float64)))
        rows.append([name, _shape(grad), norm, *_numbers(grad)])
    head = ["parameter", "shape", "its norm", *_SUMS, "least", "greatest"]
    note = "Of the loss of one batch, as in a test; the columns after the parameter's "
    return _table("gradients", head, rows, note + "own norm are of the gradient.")


def _named_leaves(model: Any) -> dict[str, np.ndarray]:
    leaves, form = tree.flatten(model)
    return {
        tree.key_name(path).lstrip("."): np.asarray(leaf)
        for path, leaf in zip(tree.paths(form), leaves, strict=True)
    }


def _table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], note: str
) -> Table:
    numbers = frozenset(range(2, len(head)))
    return Table(title, head, rows, numbers, frozenset({0, 1}), note)


def _shape(value: np.ndarray) -> str:
    return repr(td.typeof(value))


def _numbers(value: np.ndarray) -> list[str]:
    """Norm, mean, deviation, share of zeros, least and greatest of an array."""
    if not value.size:
        return [""] * (len(_SUMS) + 2)
    x = value.astype(np.float64)
    zeros = f"{100 * np.mean(x == 0):.1f} %"
    found = (np.linalg.norm(x), x.mean(), x.std(), zeros, x.min(), x.max())
    return [one if isinstance(one, str) else _number(one) for one in found]


def _number(value: Any) -> str:
    return f"{value:.3g}"
