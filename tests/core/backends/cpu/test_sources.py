"""Kernels that are begun while a program is still planned are those that it calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import compile as compiler
from treadle.backends.cpu import sources
from treadle.backends.devices import TARGETS


def keys_of(function: Callable, *args: td.ShapeDtype) -> tuple[set[str], set[str]]:
    """The kernels that are begun, and those that the plan calls."""
    graph = td.jit(function).trace(*args).graph
    stages = compiler.stages(graph, TARGETS["reference"])
    begun = sources.lowered(stages.kernels)
    called = sources.sources_of(stages.plan.steps)
    assert len({s.key for s in begun}) == len(begun)
    return {s.key for s in begun}, {s.key for s in called}


def network(x: td.Array, w: td.Array) -> td.Array:
    return tnp.sort(tnp.tanh(x @ w + 1).sum(0)) * 2


def powers(x: td.Array, w: td.Array) -> td.Array:
    def turn(carry: td.Array, _: None) -> tuple[td.Array, td.Array]:
        carry = tnp.tanh(carry @ w)
        return carry, carry.sum(-1)

    return td.scan(turn, x, None, length=5)[1]


def chosen(x: td.Array, w: td.Array) -> td.Array:
    return td.cond(x[0, 0] > 0, lambda a: tnp.exp(a @ w), lambda a: a - 1, x)


@pytest.mark.parametrize("function", [network, powers, chosen])
def test_what_is_begun_is_all_that_is_called(function: Callable) -> None:
    matrix = td.ShapeDtype((8, 8), "float32")
    begun, called = keys_of(function, matrix, matrix)
    assert begun == called and len(begun) > 1


def test_loops_over_few_numbers_are_left_to_the_linker() -> None:
    def count(x: td.Array) -> td.Array:
        return td.fori_loop(0, 1000, lambda i, a: tnp.sin(a) + i, x)

    begun, called = keys_of(count, td.ShapeDtype((3,), "float32"))
    assert begun < called
