"""Random programs of members of a named axis against the same on whole arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treadle as td
import treadle.numpy as tnp
from tests.core.transforms.programs import STEPS, matrices
from tests.core.transforms.test_properties import close

MEMBERS = 3

# What a member does, and what that is for the array of all.
TOGETHER: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "sum": (
        lambda x, y: tnp.tanh(td.psum(x, "i")),
        lambda x, y: tnp.tanh(tnp.sum(x, 0, keepdims=True) + 0 * x),
    ),
    "centred": (
        lambda x, y: x - td.pmean(x, "i"),
        lambda x, y: x - tnp.mean(x, 0, keepdims=True),
    ),
    "most": (
        lambda x, y: td.pmax(x, "i") * y,
        lambda x, y: tnp.max(x, 0, keepdims=True) * y,
    ),
    "mixed": (
        lambda x, y: tnp.tanh(tnp.einsum("mij,mj->ij", td.all_gather(x, "i"), y)),
        lambda x, y: tnp.tanh(tnp.einsum("mij,nmj->nij", x, y)),
    ),
    "rows": (
        lambda x, y: td.psum_scatter(tnp.sin(x), "i")[:, None] * y,
        lambda x, y: tnp.sum(tnp.sin(x), 0)[:, :, None] * y,
    ),
    "exchange": (
        lambda x, y: td.all_to_all(x, "i", 0, 0) * y,
        lambda x, y: tnp.swapaxes(x, 0, 1) * y,
    ),
    "send": (
        lambda x, y: td.ppermute(x, "i", [(0, 2), (1, 0)]) + y,
        lambda x, y: tnp.stack([x[1], 0 * x[1], x[0]]) + y,
    ),
    "shuffle": (
        lambda x, y: td.pshuffle(x, "i", [1, 2, 0]) * y,
        lambda x, y: x[np.array([1, 2, 0])] * y,
    ),
    "number": (
        lambda x, y: x * (1.0 + td.axis_index("i")),
        lambda x, y: x * tnp.arange(1.0, 4.0)[:, None, None].astype(x.dtype),
    ),
}

WRAPS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda f: f,
    "jit": td.jit,
    "remat": td.remat,
    "scan": lambda f: lambda x, y: td.scan(lambda c, y: (f(c, y), None), x, y[None])[0],
    "vmap": lambda f: lambda x, y: td.vmap(f)(x[None], y[None])[0],
}

names = st.sampled_from(sorted(TOGETHER) + sorted(STEPS))
lines = st.tuples(
    names, st.sampled_from(sorted(WRAPS)), st.integers(0, 3), st.integers(0, 5)
)
programs = st.lists(lines, min_size=2, max_size=5).filter(
    lambda steps: any(name in TOGETHER for name, *_ in steps)
)


def run(steps: Any, step: Callable[[str, str], Any], x: Any, y: Any) -> Any:
    values = [x, y]
    for name, wrap, first, second in steps:
        a, b = values[-1 - first % len(values)], values[second % len(values)]
        values.append(step(name, wrap)(a, b))
    return values[-1]


def member(name: str, wrap: str) -> Any:
    return WRAPS[wrap](TOGETHER[name][0] if name in TOGETHER else STEPS[name])


def whole(name: str, wrap: str) -> Any:
    return TOGETHER[name][1] if name in TOGETHER else td.vmap(STEPS[name])


def pulled(f: Any) -> Any:
    def back(x: Any, y: Any, ct: Any) -> Any:
        out, pullback = td.vjp(f, x, y)
        return out, pullback(ct)

    return back


def agrees(steps: Any, seed: int) -> None:
    """Results, and derivatives inside and outside of the vmap, also compiled."""

    def alone(x: Any, y: Any) -> Any:
        return run(steps, member, x, y)

    def together(x: Any, y: Any) -> Any:
        return run(steps, whole, x, y)

    args = matrices(seed, 3, MEMBERS)
    wanted = pulled(together)(*args)
    close(td.vmap(pulled(alone), axis_name="i")(*args), wanted)
    close(pulled(td.vmap(alone, axis_name="i"))(*args), wanted)
    close(td.jit(td.vmap(pulled(alone), axis_name="i"))(*args), wanted)


@settings(max_examples=5)
@given(programs, st.integers(0, 1000))
def test_members_are_rows_of_the_whole(steps: Any, seed: int) -> None:
    agrees(steps, seed)


@pytest.mark.slow
@settings(max_examples=150)
@given(programs, st.integers(0, 1000))
def test_members_of_many_programs(steps: Any, seed: int) -> None:
    agrees(steps, seed)
