"""Random programs on arrays of several sizes: one trace serves them, or says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.dynamic import same_bytes
from tests.core.fuse.random_programs import REFUSED, Generator, Program
from tests.core.fuse.random_rules import RULES, generate

SMOOTH = ("float32", "float32", "float64")
NARROW = ("float32", "float16", "bfloat16")
SIZES = (2, 1, 5, 9)

AMONG = (
    *("{0} * 3 + tnp.sum({0})", "{0} * {0} + tnp.mean({0}, 0)", "{0} - tnp.mean({0})"),
    "{0} * {0} - tnp.sum({0} * 0.3, -1, keepdims=True)",
    "tnp.stack([{0} * {0}, {0}]).sum(0) - 0.5",
    "tnp.concatenate([{0} * {0}, {0} * 0.7], 0) * 0.5 - 0.1",
    "tnp.sum({0}[..., None] @ {0}[..., None, :] * 0.3, -2)",
    "tnp.sum(tnp.tanh({0}[..., :3, None] @ {0}[..., None, :]), 0)",
)
ROUNDED = (
    "(lambda x: tnp.repeat(x[::2] + x[1::2], 2, 0) * 0.5)({0})",
    "(lambda x: tnp.repeat(x[::4], 2, 0) - x[::2])({0})",
    "(lambda x: tnp.repeat(x[::2][::2], 2, 0)[: x.shape[0] - x.shape[0] // 2])({0})",
    "(lambda x: tnp.stack([x[::2], x[1::2]], 1).reshape(x.shape) + {0})({0}[::-1])",
    "(lambda x: tnp.repeat(x[::2] + x[1::2], 2, 0)[: {0}.shape[0]])"
    "(tnp.pad({0}, [(0, -{0}.shape[0] % 4)] + [(0, 0)] * ({0}.ndim - 1)))",
    "(lambda x: x[::2][: x.shape[0] // 4].sum(0) * x)({0} * 0.5)",
    "(lambda x: x[: len(x) - len(x) % 3].reshape(3, -1, *x.shape[1:]).sum(0))"
    "({0}[::2][::2] + {0}[::4])",
    "(lambda x: tnp.broadcast_to(x, (len(x), *x.shape)).swapaxes(0, 1)"
    ".reshape(-1, *x.shape[1:])[: 2 * len(x)])(tnp.tile({0}.T, 2).T)",
    "(lambda x: x[2::2][::-4] + x[2::8][::-1])({0}[: len({0}) - len({0}) % 4])",
    "(lambda x: x[: (len(x) - 2) // 3 * 3 + 1 : 3])({0}[: len({0}) - len({0}) % 4])",
)
TRANSFORMS = ("tnp.fft.fft({0}).real * 0.1", "tnp.fft.irfft(tnp.fft.rfft({0}))")


def of_sizes(g: Generator) -> None:
    """What rounds otherwise where a length is 1."""
    if (a := g.pick(rank=1)) is not None:
        g.add(g.r.choice(AMONG), a)


def rounded(g: Generator) -> None:
    """What is halved, or filled up to a multiple: of some lengths alone, or of all."""
    if (a := g.pick(rank=1)) is not None:
        g.add(g.r.choice(ROUNDED), a)


def transforms(g: Generator) -> None:
    a = g.pick(rank=1, pred=lambda v: v.dtype.name in SMOOTH and v.shape[-1] > 1)
    if a is not None:
        g.add(g.r.choice(TRANSFORMS), a)


NUMBERS = (
    *(
        "n",
        "1 / (n + 1)",
        "(n + 1) ** -0.5",
        "(n - 1)",
        "n // 2",
        "n % 3",
        "-n",
        "n / 3",
    ),
    *("tnp.asarray(n)", "tnp.float32(n)", "max(n, 4)", "tnp.array([n, n - 1])[1]"),
)
IN_BODIES = (
    "td.scan(lambda c, x: (tnp.tanh(c * # + x), x * #), {0}[0], {0})[1]",
    "td.scan(lambda c, x: (c * 0.5 + #, tnp.sum(x * #) * c), 1.0 * #, {0})[1]",
    "td.scan(lambda c, x: (tnp.tanh(c + x.T @ (x * #)), c), {0}[0].T @ {0}[0], {0})[0]",
    "td.scan(lambda c, i: (tnp.tanh(c * i * #), None), {0}, tnp.arange(n) * #)[0]",
    "td.fori_loop(0, n % 4, lambda i, c: tnp.tanh(c * # + {0}), {0})",
    "td.fori_loop(0, tnp.asarray(n) % 4, lambda i, c: tnp.tanh(c * # + i), {0})",
    "td.cond(tnp.sum({0}) < #, lambda x: x * #, lambda x: x - #, {0})",
    "td.vmap(lambda x: tnp.tanh(x * #).sum() * x)({0})",
    "td.vmap(lambda x: td.scan(lambda c, _: (tnp.sin(c * #), c), x, None, 2)[0])({0})",
    "td.remat(lambda x: tnp.sin(x * #) @ (x * #).T)({0})",
    "tnp.where(tnp.arange({0}.shape[-1]) < #, {0}, #)",
    "td.scan(lambda c, x: (c, tnp.where(x < #, x, c[-1])), {0}[n // 2], {0})[1]",
)


def numbers_in_bodies(g: Generator) -> None:
    """What a size is, where bodies of loops, of branches and of batches use it."""
    if (a := g.pick(rank=1)) is None:
        return
    text = g.r.choice(IN_BODIES)
    while "#" in text:
        text = text.replace("#", f"({g.r.choice(NUMBERS)})", 1)
    g.add(f"(lambda n: {text})({{0}}.shape[{g.r.choice([0, -1])}])", a)


SIZED = RULES | {of_sizes: 16.0, transforms: 2.0}
WITH_RESTS = SIZED | {rounded: 60.0}
WITH_NUMBERS = SIZED | {numbers_in_bodies: 120.0}


def sample(often: int, first: int = 2000) -> list[Any]:
    """A few seeds, and the others with `make test-all`."""
    quick = range(first, first + often)
    rest = [seed for seed in range(2000, 2400) if seed not in quick]
    return [*quick, *(pytest.param(seed, marks=pytest.mark.slow) for seed in rest)]


def outcome(function: Callable[..., Any], args: list[Any]) -> Any:
    """What a function gives, or the kind of error that it raises."""
    try:
        return function(*args)
    except REFUSED as error:
        return type(error)


def agree_at_sizes(
    program: Program, function: Callable[..., Any], sizes: Sequence[int] = SIZES
) -> None:
    """A compiled function that meets several sizes gives what one gives, compiled for
    each, that has seen no other."""
    print(program.source())
    length = program.length()
    if length is None:
        pytest.skip("no axis to change")
    compiled = td.jit(function)
    for n in (length, *sizes):
        args = program.resized(length, n)
        found, wanted = (
            outcome(f, args) for f in (compiled, td.jit(lambda *xs: function(*xs)))
        )
        if isinstance(wanted, type):
            assert found is wanted, f"of length {n}: {found}"
        else:
            why = "an error" if isinstance(found, type) else same_bytes(found, wanted)
            assert not why, f"of length {n}: {why} {found if why == 'an error' else ''}"


@pytest.mark.parametrize("seed", sample(12))
def test_values(seed: int) -> None:
    program = generate(seed, SMOOTH, 6, rules=SIZED)
    agree_at_sizes(program, program.function())


@pytest.mark.parametrize("seed", sample(4))
def test_rests(seed: int) -> None:
    program = generate(seed, SMOOTH, 5, rules=WITH_RESTS)
    agree_at_sizes(program, program.function(), (8, 16, 2, 5, 12, 24, 7))


@pytest.mark.parametrize("seed", sample(2, 2010))
def test_numbers_in_bodies(seed: int) -> None:
    program = generate(seed, SMOOTH, 5, rules=WITH_NUMBERS)
    agree_at_sizes(program, program.function())


@pytest.mark.parametrize("seed", sample(1, 2010))
def test_gradients_of_numbers_in_bodies(seed: int) -> None:
    program = generate(seed, SMOOTH, 4, rules=WITH_NUMBERS)
    if "while_loop" in program.source() or not program.smooth():
        pytest.skip("nothing to differentiate in reverse")
    agree_at_sizes(program, program.gradient())


@pytest.mark.parametrize("seed", sample(6))
def test_values_of_halves(seed: int) -> None:
    program = generate(seed, NARROW, 6, rules=SIZED)
    agree_at_sizes(program, program.function())


@pytest.mark.parametrize("seed", sample(7))
def test_complex_values(seed: int) -> None:
    program = generate(seed, ("complex64", "complex64", "complex128"), 6)
    agree_at_sizes(program, program.function())


@pytest.mark.parametrize("seed", sample(6))
def test_gradients(seed: int) -> None:
    program = generate(seed, SMOOTH, 5, rules=SIZED)
    if "while_loop" in program.source() or not program.smooth():
        pytest.skip("nothing to differentiate in reverse")
    agree_at_sizes(program, program.gradient())


@pytest.mark.parametrize("seed", sample(10))
def test_batches(seed: int) -> None:
    """Nothing in the program depends on the size of the batch."""
    program = generate(seed, SMOOTH, 6)
    if not program.smooth():
        pytest.skip("nothing to batch")
    print(program.source())
    function, _ = program.batched()
    compiled = td.jit(function)
    for n in (3, *SIZES):
        args = program.batched(n)[1]
        wanted = td.jit(lambda *xs: function(*xs))(*args)
        why = same_bytes(compiled(*args), wanted)
        assert not why, f"of {n} examples: {why}"


OPERATIONS = (tnp.add, tnp.subtract, tnp.multiply, tnp.maximum, tnp.true_divide)


@pytest.mark.parametrize("seed", range(12))
def test_numbers_of_sizes(seed: int) -> None:
    """What is computed of sizes alone, each number used often."""

    def function(x: Any) -> Any:
        rng = np.random.default_rng(seed)
        n, m = x.shape
        numbers = [n, tnp.asarray(m), n / m, 1 / n, np.float32(0.5), tnp.power(m, 2)]
        for _ in range(40):
            apply = OPERATIONS[rng.integers(len(OPERATIONS))]
            a, b = (numbers[-i] for i in rng.integers(1, 7, 2))
            numbers.append(tnp.clip(apply(a, b), -n, 1e3))
        carry = tuple(numbers[-int(i)] for i in rng.integers(1, 47, 2))
        _, carried = td.scan(lambda c, r: (c, r * c[0] + c[1]), carry, x)
        return x * numbers[-1], carried, numbers[-6:]

    compiled = td.jit(function)
    for n in (3, *SIZES):
        x = np.random.default_rng(n).normal(size=(n, n + 2)).astype(np.float32)
        why = same_bytes(compiled(x), td.jit(lambda x: function(x))(x))
        assert not why, f"of length {n}: {why}"
    assert compiled.report().traces == 2, compiled.report()
