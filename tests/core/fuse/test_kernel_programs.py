"""Random programs with attention, convolutions and norms of groups, and their
gradients, compiled: against the same without a compiler."""

from __future__ import annotations

import pytest

from tests.core.fuse.compare import agrees
from tests.core.fuse.kernel_rules import generate_kernels

pytestmark = pytest.mark.usefixtures("checked_by_reference")

SMOOTH = ("float32", "float32", "float64")


@pytest.mark.parametrize("seed", range(8))
def test_compiled_agrees_with_eager(seed: int) -> None:
    program = generate_kernels(seed, (*SMOOTH, "bfloat16"), 8)
    print(program.source())
    agrees(program.function(), program.arguments())


@pytest.mark.parametrize("seed", range(100, 106))
def test_compiled_gradients_agree_with_eager(seed: int) -> None:
    program = generate_kernels(seed, SMOOTH, 6)
    if not program.smooth():
        pytest.skip("nothing to differentiate in reverse")
    print(program.source())
    agrees(program.gradient(), program.arguments())


@pytest.mark.parametrize("seed", range(200, 203))
def test_compiled_batches_agree_with_eager(seed: int) -> None:
    program = generate_kernels(seed, SMOOTH, 5)
    if not program.smooth():
        pytest.skip("nothing to batch")
    print(program.source())
    agrees(*program.batched())
