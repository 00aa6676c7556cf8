"""A row of the table of layers: one of ours, one of theirs, and how they correspond."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import treadle.numpy as tnp
from tests.oracles.layers.references import Arrays, Reference
from treadle import nn

Taken = Callable[[Arrays], np.ndarray]


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _same(x: Any, *_: Any) -> Any:
    return x


def _run(layer: Any, *inputs: Any) -> Any:
    return layer(*inputs)


@dataclass(frozen=True)
class Row:
    """
    name: shown in test ids, unique.
    ours: makes our layer. theirs: makes the reference; weights are copied from it.
    inputs: in our layout, the batch first.
    weights: by our path (``"layers.0.weight"``), how to take it from their weights,
      gradients and buffers by name. All parameters and State cells must be there.
    to_theirs: changes an input to their layout; to_ours changes an output, or the
      gradient of an input, back.
    call: how ours is called.
    batched: whether examples are independent: what `vmap` gives for each is what the
      whole batch gives.
    tolerance: relative and absolute, for float32. half: for bfloat16, as a share of the
      largest number; None where there is no such layer.
    """

    name: str
    ours: Callable[[], Any]
    theirs: Callable[[], Reference]
    inputs: tuple[np.ndarray, ...]
    weights: Mapping[str, Taken] = field(default_factory=dict)
    to_theirs: Callable[[np.ndarray], np.ndarray] = _same
    to_ours: Callable[[np.ndarray], np.ndarray] = _same
    call: Callable[..., Any] = _run
    batched: bool = True
    tolerance: float = 2e-5
    half: float | None = 0.03

    def pair(self) -> tuple[Any, Reference]:
        """Both layers, with the same weights."""
        theirs = self.theirs()
        return self.with_weights(self.ours(), theirs.state()), theirs

    def with_weights(self, layer: Any, values: Arrays) -> Any:
        """Our layer with weights taken from theirs."""
        for path, take in self.weights.items():
            layer = nn.at(layer, partial(find, path=path)).set(
                tnp.asarray(np.array(take(values), order="C"))
            )
        return layer


def find(layer: Any, path: str) -> Any:
    """What stands at a path such as ``layers.0.weight``."""
    for part in path.split("."):
        layer = layer[int(part)] if part.isdigit() else getattr(layer, part)
    return layer


def named(name: str) -> Taken:
    """Theirs as it is."""
    return lambda values: values[name]


def transposed(name: str) -> Taken:
    """Theirs is (out, in), ours (in, out)."""
    return lambda values: values[name].T


def kernel(name: str) -> Taken:
    """Theirs is (out, in, *window), ours (*window, in, out)."""
    return lambda values: np.moveaxis(values[name], (0, 1), (-1, -2))


def channels_second(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(x, -1, 1)


def channels_last(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(x, 1, -1)


images: dict[str, Any] = {"to_theirs": channels_second, "to_ours": channels_last}
"""For rows whose channels are last here and second there."""
