"""Compiled without a host callback, equal to eager code, and generic in sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import treadle as td
from tests.core.fuse.compare import agrees, hard_conditions, values
from treadle.backends.cpu.sources import sources_of
from treadle.plan.steps import HostStep, walk


def steps_of(function: Callable[..., Any], *args: Any) -> list[Any]:
    """The steps of a compiled function, those in loops too."""
    return [s for _, s in walk(td.jit(function).lower(*args).plan.steps)]


def runs_natively(function: Callable[..., Any], *args: Any) -> None:
    """Asserts that a function is compiled throughout, and equal to eager code; and that
    no bit of its results depends on the number of tasks."""
    hosts = [
        s.call.op.name for s in steps_of(function, *args) if isinstance(s, HostStep)
    ]
    assert not hosts, f"no native lowering for {', '.join(hosts)}"
    agrees(function, args)
    with hard_conditions():
        many = values(td.jit(function)(*args))
    for found, wanted in zip(values(td.jit(function)(*args)), many, strict=True):
        np.testing.assert_array_equal(bits(found), bits(wanted))


def bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.uint8)


def shares_kernels(
    function: Callable[..., Any], first: Sequence[Any], second: Sequence[Any]
) -> None:
    """Asserts that arguments of other sizes need no new kernel."""

    def keys(args: Sequence[Any]) -> set[str]:
        plan = td.jit(function).lower(*args).plan
        return {source.key for source in sources_of(plan.steps)}

    assert keys(second) <= keys(first)
