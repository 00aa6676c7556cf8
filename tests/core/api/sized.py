"""Functions compiled once for many sizes, against the same compiled for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import treadle as td
from treadle import tree


def random(*shape: int) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    return rng.normal(size=shape).astype(np.float32)


def same(found: Any, expected: Any) -> None:
    """Whether two results are equal, byte for byte."""
    assert tree.structure(found) == tree.structure(expected)
    for x, y in zip(tree.leaves(found), tree.leaves(expected), strict=True):
        assert td.typeof(x) == td.typeof(y)
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def check(
    function: Callable[..., Any],
    arguments: Callable[[int], Sequence[Any]],
    sizes: Sequence[int] = (4, 6, 1, 2, 3, 8, 17),
    **options: Any,
) -> Any:
    """Calls a jitted function at several sizes, each as a static program would answer.
    Gives the report."""
    dynamic = td.jit(function, **options)
    for n in sizes:
        args = arguments(n)
        same(dynamic(*args), td.jit(function, dynamic=False)(*args))
    report = dynamic.report()
    assert not [note for note in report.notes if "failed" in note]
    return report
