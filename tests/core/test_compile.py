"""The pipeline as a whole: one executable for a graph, and its report."""

from __future__ import annotations

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle.compile import executable_of


def test_a_graph_is_compiled_once() -> None:
    graph = td.jit(lambda x: tnp.sin(x) * 2).graph(tnp.ones(3))
    program = executable_of(graph)
    assert executable_of(graph) is program
    (out,) = program([np.zeros(3, np.float32)])
    np.testing.assert_array_equal(out, np.zeros(3))


def test_a_program_without_equations() -> None:
    x = tnp.arange(3)
    same, constant, empty = td.jit(lambda x: (x, tnp.ones(2), tnp.zeros((0, 2))))(x)
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(constant, np.ones(2))
    assert empty.shape == (0, 2)
    assert td.jit(lambda: ())() == ()
