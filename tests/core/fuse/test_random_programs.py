"""Random programs: compiled, their gradients compiled, and batched and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
from tests.core.fuse import awkward
from tests.core.fuse.compare import agrees, agrees_exactly
from tests.core.fuse.random_rules import RULES, generate
from tests.core.fuse.seen_rules import SEEN

pytestmark = pytest.mark.usefixtures("checked_by_reference")


SMOOTH = ("float32", "float32", "float64")


def sample(seeds: range, often: int) -> list[Any]:
    """The first seeds, and the others with `make test-all`."""
    rest = [pytest.param(seed, marks=pytest.mark.slow) for seed in seeds[often:]]
    return [*seeds[:often], *rest]


@pytest.mark.parametrize("seed", sample(range(1000, 1220), 100))
def test_compiled_agrees_with_eager(seed: int) -> None:
    program = generate(seed)
    print(program.source())
    agrees(program.function(), program.arguments())


@pytest.mark.parametrize("seed", sample(range(2000, 2060), 30))
def test_compiled_complex_numbers_agree_with_eager(seed: int) -> None:
    program = generate(seed, ("complex64", "complex64", "complex128"), 8)
    print(program.source())
    agrees(program.function(), program.arguments())


@pytest.mark.parametrize("seed", sample(range(3000, 3200), 30))
def test_compiled_agrees_where_it_once_did_not(seed: int) -> None:
    dtypes = ("float32", "float64", "complex64") if seed % 2 else ("complex128",)
    program = generate(seed, dtypes, 6, rules=RULES | SEEN)
    print(program.source())
    agrees(program.function(), program.arguments())


@pytest.mark.parametrize("seed", sample(range(200), 100))
def test_awkward_programs_agree_to_the_last_bit(seed: int) -> None:
    program = awkward.generate(seed)
    print(program.source())
    agrees_exactly(program.function(), program.arguments())


@pytest.mark.parametrize("seed", sample(range(60), 30))
def test_compiled_gradients_agree_with_eager(seed: int) -> None:
    program = generate(seed, SMOOTH, 6)
    if not program.smooth():
        pytest.skip("nothing to differentiate in reverse")
    print(program.source())
    agrees(program.gradient(), program.arguments())


@pytest.mark.parametrize("seed", sample(range(60), 30))
def test_compiled_batches_agree_with_eager(seed: int) -> None:
    program = generate(seed, SMOOTH, 6)
    if not program.smooth():
        pytest.skip("nothing to batch")
    print(program.source())
    agrees(*program.batched())


@pytest.mark.parametrize("length", [0, 1, 2])
def test_scans_of_few_steps_agree_with_eager(length: int) -> None:
    def f(c: object, xs: object, w: object) -> object:
        def step(c, x):  # type: ignore[no-untyped-def]
            return (c[0] * w + x, c[1]), (c[1], x[::-1])

        return td.scan(step, (c, w), xs)

    xs = np.arange(length * 3, dtype=np.float32).reshape(length, 3)
    agrees(f, (np.ones(3, np.float32), xs, np.float32([1, 2, 3])))
