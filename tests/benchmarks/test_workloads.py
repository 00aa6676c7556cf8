"""The programs of the benchmarks, small, in Treadle."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from tests.benchmarks.tiny import PROGRAMS, harness, machine, workloads

STEPS = 3


def test_each_program_is_tried_with_all_its_options():
    assert PROGRAMS.keys() == workloads.PROGRAMS.keys()
    for name, program in workloads.PROGRAMS.items():
        small = PROGRAMS[name]
        assert type(small) is type(program)
        for field in ("dtype", "trains"):
            assert getattr(small, field) == getattr(program, field)


# Those that need least to compile; tests/oracles/benchmarks compares all.
@pytest.mark.parametrize("name", ["mlp-tiny", "vae", "embedding-bag", "wide-and-deep"])
def test_training_lessens_the_loss(name):
    step = workloads.build_step(PROGRAMS[name], "treadle")
    first, *_, last = harness.losses(step, STEPS)
    assert last < first


def test_a_program_that_does_not_train_gives_what_numpy_gives():
    program = PROGRAMS["product"]
    (found,) = workloads.build_step(program, "treadle").results()
    np.testing.assert_allclose(
        found, np.matmul(*program.batch(0)), rtol=1e-5, atol=1e-5
    )


def test_arithmetic_is_counted_as_by_hand():
    sizes, batch = (64, 64, 10), 32
    products = [a * b for a, b in itertools.pairwise(sizes)]
    by_hand = 2 * batch * (3 * sum(products) - products[0])
    assert workloads.load("mlp-tiny").flops() == by_hand
    gpt = workloads.GPT(vocabulary=96, width=32, layers=2, heads=2, length=15)
    known = workloads.Workload(
        layers=2, width=32, heads=2, length=15, batch_size=8, vocabulary=96
    )
    assert gpt.flops() == known.flops()
    net = workloads.ResNet(widths=(4, 8), blocks=1, size=8, batch_size=1)
    pixels = 64
    convolutions = [
        (pixels * 9 * 3 * 4, 2),  # no gradient by the images
        (pixels * 9 * 4 * 4, 3),
        (pixels * 9 * 4 * 4, 3),
        (pixels // 4 * 9 * 4 * 8, 3),
        (pixels // 4 * 9 * 8 * 8, 3),
        (pixels // 4 * 4 * 8, 3),
        (8 * 10, 3),
    ]
    assert net.flops() == sum(2 * n * times for n, times in convolutions)
    experts = PROGRAMS["experts"]
    assert experts.flops() < dataclasses.replace(experts, top=4).flops()


def test_the_limit_is_a_rate_of_a_machine():
    assert 1e9 < machine.flops_per_second() < 1e14
    assert math.log2(machine.lanes()).is_integer()
