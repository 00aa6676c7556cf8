"""Arguments of all kinds for tests of calls."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng, tree


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclass
class Record:
    x: Any
    power: int = 1


tree.register_dataclass(Record, static=["power"])


class Layer(nn.Module):
    weight: td.Array
    name: str = "layer"


class Model(nn.Module):
    layers: list
    extra: Any = None
    sizes: tuple = (1, 2)


def array(*values: float) -> td.Array:
    return tnp.array(values, np.float32)


def model(*layers: Any, extra: Any = None) -> Model:
    return Model([Layer(array(1, 2)), np.tanh, *layers], extra)


HELD = td.jit(lambda m: tree.map(lambda x: x + 1, m))

TREES: dict[str, Callable[[], Any]] = {
    "array": lambda: array(1, 2, 3),
    "tuple": lambda: (array(1), (array(2), array(3))),
    "list": lambda: [array(1), [], [array(2)]],
    "dict": lambda: {"b": array(1), "a": {"c": array(2), 1: array(3)}["c"], "d": {}},
    "numbered": lambda: {2: array(1), 1: array(2)},
    "none": lambda: (None, array(1), None),
    "named tuple": lambda: Pair(array(1), [array(2)]),
    "ordered dict": lambda: OrderedDict(b=array(1), a=array(2)),
    "default dict": lambda: defaultdict(list, b=array(1), a=array(2)),
    "dataclass": lambda: Record(array(1), 3),
    "module": model,
    "nested": lambda: {"m": [model(extra=model())]},
    "held": lambda: HELD(model(extra=model())),
    "opened": lambda: opened(HELD(model(extra=Layer(array(1))))),
    "rebuilt": lambda: tree.map(lambda x: x, model()),
    "mixed": lambda: model(extra={"f": abs, "a": (np.sin, Layer(array(3)))}),
    "cell": lambda: model(extra=nn.State(array(1))),
    "key": lambda: rng.key(3),
    "numpy": lambda: [np.arange(3.0), np.arange(6, dtype=np.int8).reshape(2, 3).T],
    "half": lambda: [tnp.ones(3, "bfloat16"), np.ones(2, np.float16)],
    "empty": lambda: [tnp.ones((0, 3)), np.ones((2, 0))],
    "scalars": lambda: [2, 2.5, True, np.float64(2), np.int8(3), 1j],
}


def opened(m: Any) -> Any:
    m.layers[0].weight  # noqa: B018
    return m


def values(out: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in tree.leaves(out)]


def same(found: Any, wanted: Any) -> None:
    assert tree.structure(found) == tree.structure(wanted)
    for a, b in zip(values(found), values(wanted), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


def twice(t: Any) -> Any:
    numbers = tree.map(lambda x: x._data if type(x) is rng.Key else x, t)
    return tree.map(lambda x: tnp.asarray(x) * 2, numbers)


def known(f: Any, *args: Any, **kwargs: Any) -> Any:
    """The function, after as many calls as make a path."""
    for _ in range(2):
        f(*args, **kwargs)
    return f


def made(count: int, size: int = 50) -> list[td.Array]:
    """Arrays in memory of the library's, full of 1, 2…"""
    return td.jit(lambda: [tnp.ones(size) * (i + 1) for i in range(count)])()
