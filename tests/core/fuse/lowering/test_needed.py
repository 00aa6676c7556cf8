"""Kernels without the instructions that no store needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array
from treadle import lax
from treadle.backends.devices import TARGETS
from treadle.compile import stages
from treadle.fuse.lowering.launches import Launch
from treadle.fuse.lowering.needed import needed
from treadle.kernels.lower import is_store
from treadle.kernels.nest import Instr

F = np.dtype(np.float32)
X, W = array(8, 8), array(8, 8)


def test_what_no_store_needs_is_left_out() -> None:
    body = [
        Instr("load", (), F, 0),
        Instr("load", (), F, 1),
        Instr("exp", (1,), F),
        Instr("const", (), F, 7.0),
        Instr("load", (), F, 2),
        Instr("mul", (0, 4), F),
        Instr("store", (5,), F, 3),
        Instr("add", (5, 2), F),
    ]
    instrs, accesses = needed(body, ["x", "dead", "y", "out"])
    assert accesses == ["x", "y", "out"]
    assert instrs == [
        Instr("load", (), F, 0),
        Instr("load", (), F, 1),
        Instr("mul", (0, 1), F),
        Instr("store", (2,), F, 2),
    ]


def test_constants_keep_what_they_are() -> None:
    body = [
        Instr("const", (), F, 1.0),
        Instr("reduce_sum", (0,), F),
        Instr("store", (1,), F, 0),
    ]
    assert needed(body, ["out"]) == (body, ["out"])


def twice(x: Any, w: Any) -> Any:
    """A layer norm whose derivative needs more of it than its value does."""
    centred = x - x.mean(1, keepdims=True)
    scale = lax.rsqrt(tnp.square(centred).mean(1, keepdims=True) + 1e-5)
    return tnp.sum(tnp.exp((centred * scale) @ w))


@pytest.mark.parametrize("function", [twice, td.grad(twice, argnums=(0, 1))])
def test_kernels_compute_nothing_that_they_do_not_store(function: Any) -> None:
    found = stages(td.jit(function).graph(X, W), TARGETS["reference"]).kernels
    for entry in found.entries:
        if not isinstance(entry.kernel, Launch):
            continue
        body, used = entry.kernel.nest.body, set[int]()
        for i in reversed(range(len(body))):
            assert is_store(body[i]) or i in used
            used.update(body[i].args)
        moves = {i.attr for i in body if i.name == "load" or is_store(i)}
        assert moves == set(range(len(entry.kernel.nest.operands)))
