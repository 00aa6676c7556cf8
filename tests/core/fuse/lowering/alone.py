"""One equation on its own: its kernel, run in NumPy, and what the op means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.core.fuse.evaluate import Memory, meant
from tests.core.fuse.graphs import program_of, traced
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.lowering.check import check_kernels
from treadle.fuse.lowering.launches import KernelEntry, Kernels, Launch, ProductKernel
from treadle.ir.graph import Equation, Graph

Lower = Callable[[Equation, Dataflow], Launch | ProductKernel | list[Launch] | None]


def last(graph: Graph) -> Equation:
    """The equation that makes the only result."""
    (out,) = graph.outputs
    (eq,) = [eq for eq in graph.equations if out in eq.outputs]
    return eq


def kernel(function: Any, lower: Lower, *args: Any) -> tuple[Graph, Any]:
    """The graph of a function whose last equation is not fused, and its kernel; the
    others are views."""
    graph = traced(function, *args)
    return graph, lower(last(graph), program_of(graph))


def agrees(function: Any, lower: Lower, *args: Any, rtol: float = 1e-5) -> Any:
    """Asserts that the kernel of a function's last equation gives what that means."""
    graph, found = kernel(function, lower, *args)
    assert found is not None, "operands must be copied"
    memory = Memory()
    for v, x in zip(graph.inputs, args, strict=True):
        memory.put(v, x)
    kernels = found if isinstance(found, list) else [found]
    for k in kernels:
        if isinstance(k, ProductKernel):
            memory.product(k)
        else:
            memory.launch(k)
    entries = tuple(map(KernelEntry, kernels))
    check_kernels(Kernels(graph.inputs, graph.outputs, entries, {}))
    (wanted,) = meant(graph, args)
    np.testing.assert_allclose(memory.get(graph.outputs[0]), wanted, rtol, 1e-5)
    return found


def needs_copies(function: Any, lower: Lower, *args: Any) -> bool:
    """Whether an operand's views have no loops."""
    return kernel(function, lower, *args)[1] is None


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def op_names(launch: Launch) -> Sequence[str]:
    return [i.name for i in launch.nest.body]
