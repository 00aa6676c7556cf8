"""Small graphs, and what fusion makes of them, to ask its parts about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import treadle as td
from treadle.backends.cpu.device import CPUTarget
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.grouping.partition import Partition, partition
from treadle.ir.graph import Equation, Graph


def array(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


def traced(function: Callable[..., Any], *args: np.ndarray) -> Graph:
    """The graph of a function, as it is written."""
    return td.jit(function).graph(*args)


def program_of(graph: Graph) -> Dataflow:
    return Dataflow(graph, CPUTarget().lowering)


def grouped(function: Callable[..., Any], *args: np.ndarray) -> Partition:
    """The nodes that the function's equations become."""
    return partition(traced(function, *args), CPUTarget().lowering)


def equation(graph: Graph, name: str) -> Equation:
    """The only equation of an op."""
    (found,) = [eq for eq in graph.equations if eq.op.name == name]
    return found
