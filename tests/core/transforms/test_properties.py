"""What holds for every program: the transforms agree with each other and compose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import treadle as td
from tests.core.dynamic import same_bytes
from tests.core.transforms.programs import Program, matrices, programs
from treadle.ops.arithmetic import mul

seeds = st.integers(0, 1000)


def close(found: Any, wanted: Any, tolerance: float = 1e-9) -> None:
    for f, w in zip(td.tree.leaves(found), td.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(f, w, rtol=tolerance, atol=tolerance)


def inner(xs: Any, ys: Any) -> float:
    pairs = zip(td.tree.leaves(xs), td.tree.leaves(ys), strict=True)
    return sum(float(np.vdot(np.asarray(x), np.asarray(y))) for x, y in pairs)


def gradient(program: Callable[..., Any], ct: np.ndarray) -> Callable[..., Any]:
    return lambda *xs: td.vjp(program, *xs)[1](ct)


@given(programs, seeds)
def test_forward_and_reverse_are_adjoint(program: Program, seed: int) -> None:
    x, y, dx, dy, ct = matrices(seed, 5)
    out, tangent = td.jvp(program, (x, y), (dx, dy))
    again, pullback = td.vjp(program, x, y)
    close(again, out)
    a, b = inner(ct, tangent), inner(pullback(ct), (dx, dy))
    assert abs(a - b) <= 1e-9 * (1 + abs(a))


@given(programs, seeds)
def test_jvp_is_the_derivative(program: Program, seed: int) -> None:
    x, y, dx, dy = matrices(seed, 4)
    step = 1e-6
    high = program(x + step * dx, y + step * dy)
    low = program(x - step * dx, y - step * dy)
    difference = (np.asarray(high) - np.asarray(low)) / (2 * step)
    close(td.jvp(program, (x, y), (dx, dy))[1], difference, 1e-5)


@given(programs, seeds)
def test_linearize_is_jvp(program: Program, seed: int) -> None:
    x, y, dx, dy = matrices(seed, 4)
    out, linear = td.linearize(program, x, y)
    close((out, linear(dx, dy)), td.jvp(program, (x, y), (dx, dy)))
    close(linear(2 * dx, 2 * dy), 2 * np.asarray(linear(dx, dy)))


@given(programs, seeds)
def test_second_derivatives_commute(program: Program, seed: int) -> None:
    """Forward over reverse, reverse over reverse and reverse over forward."""
    x, y, dx, dy, ct = matrices(seed, 5)
    over = td.jvp(gradient(program, ct), (x, y), (dx, dy))[1]

    def along(x: Any, y: Any) -> Any:
        return td.jvp(program, (x, y), (dx, dy))[1]

    close(td.vjp(along, x, y)[1](ct), over)
    _, pullback = td.vjp(gradient(program, ct), x, y)
    close(pullback((dx, dy)), over)


@given(programs, seeds, st.sampled_from([0, 1, 2, -1]), st.sampled_from([0, 1, 2]))
def test_vmap_is_a_loop(program: Program, seed: int, axis: int, out: int) -> None:
    xs, ys = matrices(seed, 2, 4)
    wanted = np.stack([program(x, y) for x, y in zip(xs, ys, strict=True)], out)
    moved = np.moveaxis(xs, 0, axis)
    close(td.vmap(program, in_axes=(axis, 0), out_axes=out)(moved, ys), wanted)
    shared = np.stack([program(x, ys[0]) for x in xs])
    close(td.vmap(program, in_axes=(0, None))(xs, ys[0]), shared)


@given(programs, seeds)
def test_vmap_of_gradients_is_a_loop(program: Program, seed: int) -> None:
    xs, ys, cts = matrices(seed, 3, 4)
    rows = [gradient(program, ct)(x, y) for x, y, ct in zip(xs, ys, cts, strict=True)]
    wanted = tuple(np.stack(column) for column in zip(*rows, strict=True))
    close(td.vmap(lambda x, y, ct: gradient(program, ct)(x, y))(xs, ys, cts), wanted)
    # The other way round: the gradient of the vectorised program.
    close(gradient(td.vmap(program), cts)(xs, ys), wanted)


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "jit": td.jit,
    "jvp": lambda f: lambda x, y: td.jvp(f, (x, y), (y, x))[1],
    "vjp": lambda f: lambda x, y: td.vjp(f, x, y)[1](x)[1],
    "linearize": lambda f: lambda x, y: td.linearize(f, x, y)[1](y, y),
    "vmap": lambda f: (
        lambda x, y: td.vmap(lambda s: f(x, mul(y, s)), out_axes=0)(
            np.array([1.0, 0.5])
        )[1]
    ),
}


@given(
    programs,
    seeds,
    st.lists(st.sampled_from(sorted(WRAPPERS)), min_size=1, max_size=3),
    st.integers(0, 3),
)
def test_jit_anywhere_changes_nothing(
    program: Program, seed: int, wrappers: list[str], at: int
) -> None:
    x, y = matrices(seed, 2)

    def build(position: int | None) -> Any:
        f: Any = program
        for n, name in enumerate(wrappers):
            f = td.jit(f) if n == position else f
            f = WRAPPERS[name](f)
        return td.jit(f) if position is not None and position >= len(wrappers) else f

    plain = [w for w in wrappers if w != "jit"]
    wanted = program
    for name in plain:
        wanted = WRAPPERS[name](wanted)
    close(build(at)(x, y), wanted(x, y), 1e-8)


@settings(max_examples=12)
@given(programs, seeds)
def test_batches_of_any_size_are_those_of_one(program: Program, seed: int) -> None:
    def gradient_too(x: Any, y: Any) -> Any:
        out, pullback = td.vjp(program, x, y)
        return out, pullback(out)

    batch = ("batch", None, None)
    compiled = td.jit(td.vmap(gradient_too), dynamic={"x": batch, "y": batch})
    for n in (3, 1, 2, 8):
        x, y = matrices(seed, 2, n)
        wanted = td.jit(td.vmap(gradient_too))(x, y)
        assert not same_bytes(compiled(x, y), wanted)
