"""Programs of nests of all kinds, on rows whose length is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import special

import treadle.numpy as tnp
from treadle import compile as compiler
from treadle import tree
from treadle.arraytype import ArrayType
from treadle.backends.cpu.sources import launch_source
from treadle.backends.devices import TARGETS
from treadle.dims import Scope
from treadle.plan.steps import NestStep, Step
from treadle.trace.stage import stage

ROWS = 9


def values(columns: int) -> np.ndarray:
    rng = np.random.default_rng(columns)
    return rng.standard_normal((ROWS, columns)).astype(np.float32)


def normed(x: Any) -> Any:
    centered = x - tnp.mean(x, -1, keepdims=True)
    return centered / tnp.sqrt(tnp.mean(centered * centered, -1, keepdims=True) + 0.5)


def _normed(x: np.ndarray) -> np.ndarray:
    centered = x - x.mean(-1, keepdims=True)
    return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 0.5)


def softmax(x: Any) -> Any:
    e = tnp.exp(x - tnp.max(x, axis=-1, keepdims=True))
    return e / tnp.sum(e, axis=-1, keepdims=True)


def updated(x: Any) -> Any:
    """A bias' gradient, and what an optimizer makes of it."""
    gradient = tnp.sum(x, 0)
    first, second = 0.9 * x[0] + 0.1 * gradient, x[1] * x[1] + gradient * gradient
    return x[2] - first / (tnp.sqrt(second) + 0.5)


def _updated(x: np.ndarray) -> np.ndarray:
    gradient = x.sum(0)
    first, second = 0.9 * x[0] + 0.1 * gradient, x[1] ** 2 + gradient**2
    return x[2] - first / (np.sqrt(second) + 0.5)


def added(x: Any) -> Any:
    return x.at[tnp.array([1, 1, 3])].add(x[:3])


def _added(x: np.ndarray) -> np.ndarray:
    result = x.copy()
    np.add.at(result, [1, 1, 3], x[:3])
    return result


PROGRAMS: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], Any]]] = {
    "elementwise": (lambda x: x * 2 + 1, lambda x: x * 2 + 1),
    "dear": (lambda x: tnp.exp(tnp.sin(x)), lambda x: np.exp(np.sin(x))),
    "norm": (normed, _normed),
    "softmax": (softmax, lambda x: special.softmax(x, -1)),
    "place of the most": (lambda x: tnp.argmax(x, -1), lambda x: x.argmax(-1)),
    "running": (lambda x: tnp.cumsum(x, -1), lambda x: x.cumsum(-1)),
    "columns": (lambda x: tnp.sum(x, 0), lambda x: x.sum(0)),
    "columns and more": (updated, _updated),
    "running columns": (lambda x: tnp.cumsum(x, 0), lambda x: x.cumsum(0)),
    "turned": (lambda x: x + x[:, ::-1], lambda x: x + x[:, ::-1]),
    "transposed": (
        lambda x: tnp.exp(x).T.reshape(x.shape) + x,
        lambda x: np.exp(x).T.reshape(x.shape) + x,
    ),
    "halves": (
        lambda x: (x.astype("bfloat16") + 1).sum(-1).astype("float32"),
        lambda x: x.sum(-1) + x.shape[-1],
    ),
    "everything": (lambda x: tnp.sum(x * x), lambda x: (x * x).sum()),
    "rows by number": (added, _added),
}


def kernels(steps: Sequence[Step]) -> list[list[str]]:
    """What nests are compiled as: the words of their keys but for the digest."""
    found = [s.launch for s in steps if isinstance(s, NestStep)]
    return [launch_source(launch).key.split()[:-1] for launch in found]


def kernels_of(f: Callable[..., Any], *shapes: tuple[int | str, ...]) -> set[str]:
    """The words of the kernels of a program. Sizes with a name are open, 128 here."""
    scope = Scope()
    opened = {n: scope.symbol(n, 128) for s in shapes for n in s if isinstance(n, str)}
    types = [
        ArrayType(tuple(opened.get(n, n) for n in shape), np.dtype("float32"))
        for shape in shapes
    ]
    graph = stage(lambda *args: tree.leaves(f(*args)), types)[0]
    with scope.compiling():
        steps = compiler.stages(graph, TARGETS["cpu"]).plan.steps
        return {word for words in kernels(steps) for word in words}
