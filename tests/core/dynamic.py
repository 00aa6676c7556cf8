"""Programs with axes of any size against programs traced for one size."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import dtypes, tree
from treadle.trace.op import Op

Function = Callable[..., Any]

# The first size is the one for which the program is planned.
SIZES: tuple[tuple[int, ...], ...] = ((3,), (1,), (8,), (17,))
PAIRS = ((3, 5), (1, 1), (2, 17), (8, 8), (17, 1))
TRIPLES = ((3, 5, 2), (1, 1, 1), (2, 1, 17), (5, 8, 8))
BY_COUNT = {1: SIZES, 2: PAIRS, 3: TRIPLES}


def rows(items: Sequence[Any], name: Callable[[Any], str] = str) -> list[Any]:
    """Parameters of a test; those that say so are slow."""
    return [
        pytest.param(
            item,
            id=name(item)[:70],
            marks=[pytest.mark.slow] if getattr(item, "slow", False) else [],
        )
        for item in items
    ]


class Arg(NamedTuple):
    """An argument: its axes, by name where they are dynamic ("n 4 m"), and how its
    elements are drawn from a generator for a shape."""

    axes: str
    draw: Callable[[np.random.Generator, tuple[int, ...]], Any]

    @property
    def names(self) -> tuple[str | None, ...]:
        return tuple([None if a.isdigit() else a for a in self.axes.split()])

    def array(self, rng: np.random.Generator, sizes: dict[str, int]) -> np.ndarray:
        lengths = [int(a) if a.isdigit() else sizes[a] for a in self.axes.split()]
        return np.asarray(self.draw(rng, tuple(lengths)))


def floats(axes: str, dtype: str = "float32") -> Arg:
    return Arg(axes, lambda rng, shape: rng.normal(size=shape).astype(dtype))


def positive(axes: str, low: float = 0.3, high: float = 0.9) -> Arg:
    return Arg(axes, lambda rng, s: rng.uniform(low, high, s).astype("float32"))


def ints(axes: str, low: int = 0, high: int = 4, dtype: str = "int32") -> Arg:
    return Arg(axes, lambda rng, s: rng.integers(low, high, s).astype(dtype))


def bools(axes: str) -> Arg:
    return Arg(axes, lambda rng, shape: rng.random(shape) < 0.5)


def stacked(
    args: Sequence[Arg], sizes: Sequence[tuple[int, ...]] | None = None
) -> tuple[list[Arg], list[tuple[int, ...]]]:
    """The arguments with a first axis of any size more, and sizes to try."""

    def stack(a: Arg) -> Arg:
        def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
            return np.stack([a.draw(rng, shape[1:]) for _ in range(shape[0])])

        return Arg(f"batch {a.axes}", draw)

    count = len(_names(args))
    return [stack(a) for a in args], [
        (batch, *chosen)
        for batch, chosen in zip(
            (2, 1, 3, 2, 8, 17), sizes or BY_COUNT[count], strict=False
        )
    ]


def _names(args: Sequence[Arg]) -> list[str]:
    """The names of dynamic axes, in the order in which they appear."""
    return list(dict.fromkeys(n for a in args for n in a.names if n))


def _with_names(function: Function, count: int) -> Function:
    """The function with parameters that have names: a0, a1…"""
    names = ", ".join([f"a{i}" for i in range(count)])
    return eval(f"lambda {names}: function({names})", {"function": function})


def same_bytes(found: Any, wanted: Any) -> str:
    """What differs between two trees of arrays; "" if nothing does."""
    found, wanted = tree.leaves(found), tree.leaves(wanted)
    if len(found) != len(wanted):
        return f"{len(found)} arrays for {len(wanted)}"
    for i, (f, w) in enumerate(zip(found, wanted, strict=True)):
        f, w = np.asarray(f), np.asarray(w)
        if f.shape != w.shape or f.dtype != w.dtype:
            return f"result {i} is {f.dtype}{f.shape} for {w.dtype}{w.shape}"
        if f.tobytes() != w.tobytes():
            return f"result {i}, {f.dtype}{f.shape}, differs"
    return ""


_ASKS_ABOUT_ONE = "is one("
"""Where a size is 1, sums are added up in another order, so that there is another
program: bits matter more than a trace."""


def agree(
    function: Function,
    args: Sequence[Arg],
    sizes: Sequence[tuple[int, ...]] | None = None,
    guards: str = "",
) -> None:
    """Runs a function with dynamic axes at all sizes: the results must be those of
    programs traced for each size, and the function traced only once.

    sizes: of the names of axes, in the order in which they appear.
    guards: why it may be traced again for some sizes, if it may.
    """
    names = _names(args)
    dynamic = {f"a{i}": a.names for i, a in enumerate(args) if any(a.names)}
    compiled = td.jit(_with_names(function, len(args)), dynamic=dynamic)
    for chosen in sizes or BY_COUNT[len(names)]:
        rng = np.random.default_rng(sum(chosen))
        bound = dict(zip(names, chosen, strict=True))
        arrays = [a.array(rng, bound) for a in args]
        found = compiled(*arrays)
        wanted = td.jit(lambda *xs: function(*xs))(*arrays)
        assert not (why := same_bytes(found, wanted)), f"sizes {bound}: {why}"
        most = 4 if _ASKS_ABOUT_ONE in str(compiled.report()) else 1
        if compiled.report().traces > most and not guards:
            pytest.fail(f"sizes {bound}: {compiled.report()}")


def written(
    expression: str, args: dict[str, Arg], names: dict[str, Any]
) -> tuple[Function, list[Arg]]:
    """The function that an expression is of those arguments that it names."""
    used = [n for n in args if re.search(rf"(?<![\w.'])({n})\b(?!['=])", expression)]
    text = f"lambda {', '.join(used)}: ({expression})"
    return eval(text, names), [args[n] for n in used]


def gradient_of(function: Function) -> Function:
    """The results of a function of arrays, and the gradients of a number made of them
    in the arguments that have any."""

    def both(*args: Any) -> Any:
        moving = [i for i, a in enumerate(args) if dtypes.is_differentiable(a.dtype)]

        def loss(*floats: Any) -> Any:
            given = list(args)
            for i, x in zip(moving, floats, strict=True):
                given[i] = x
            outs = function(*given)
            real = [o for o in tree.leaves(outs) if dtypes.is_float(o.dtype)]
            return sum([tnp.sum(tnp.sin(o)) for o in real], start=tnp.zeros(())), outs

        chosen = [args[i] for i in moving]
        numbers = tuple(range(len(moving)))
        (_, outs), grads = td.value_and_grad(loss, numbers, has_aux=True)(*chosen)
        return outs, grads

    return both


def with_derivatives(op: Op, function: Function) -> Function:
    """The results of a function that an op stands for and, if that is differentiable,
    the cotangents of the arguments when those of the results are they themselves."""

    def both(*args: Any) -> Any:
        moving = [a for a in args if dtypes.is_differentiable(a.dtype)]
        if not op.differentiable or not moving:
            return function(*args)
        outs, pullback = td.vjp(function, *args)
        cts = tree.map(lambda o: o if dtypes.is_differentiable(o.dtype) else None, outs)
        return outs, [c for c in pullback(cts) if c is not None]

    return both
