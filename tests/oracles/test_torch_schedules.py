"""Schedules against PyTorch's schedulers and those of transformers, at every step."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch.optim import lr_scheduler

from treadle import optim

STEPS = 100
RATE = 0.5
FALLS = {"linear": "linear", "cosine": "cosine", "sqrt": "1-sqrt"}
# For each, ours and theirs; the rate of their optimizer is RATE.
TABLE: dict[str, tuple[Callable, Callable]] = {
    "CosineAnnealingLR": (
        optim.cosine_decay_schedule(RATE, STEPS, alpha=0.02),
        lambda o: lr_scheduler.CosineAnnealingLR(o, STEPS, eta_min=0.01),
    ),
    "CosineAnnealingWarmRestarts": (
        optim.cosine_restarts_schedule(RATE, 7, end_value=0.01),
        lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 7, eta_min=0.01),
    ),
    "CosineAnnealingWarmRestarts growing": (
        optim.cosine_restarts_schedule(RATE, 5, 2),
        lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5, 2),
    ),
    "CosineAnnealingWarmRestarts by three": (
        optim.cosine_restarts_schedule(RATE, 1, 3),
        lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 1, 3),
    ),
    "CyclicLR": (
        optim.cyclic_schedule(0.1, 1.0, 10, 25),
        lambda o: lr_scheduler.CyclicLR(o, 0.1, 1.0, 10, 25),
    ),
    "CyclicLR triangular2": (
        optim.cyclic_schedule(0.1, 1.0, 10, cycle_decay=0.5),
        lambda o: lr_scheduler.CyclicLR(o, 0.1, 1.0, 10, mode="triangular2"),
    ),
    "CyclicLR exp_range": (
        optim.cyclic_schedule(0.1, 1.0, 10, step_decay=0.97),
        lambda o: lr_scheduler.CyclicLR(o, 0.1, 1.0, 10, mode="exp_range", gamma=0.97),
    ),
    "StepLR": (
        optim.exponential_decay(RATE, 7, 0.3, staircase=True),
        lambda o: lr_scheduler.StepLR(o, 7, 0.3),
    ),
    "MultiStepLR": (
        optim.piecewise_constant_schedule(RATE, {5: 0.5, 30: 0.1}),
        lambda o: lr_scheduler.ChainedScheduler(
            [
                lr_scheduler.MultiStepLR(o, [5], 0.5),
                lr_scheduler.MultiStepLR(o, [30], 0.1),
            ]
        ),
    ),
    "ConstantLR": (
        optim.piecewise_constant_schedule(RATE / 3, {10: 3.0}),
        lambda o: lr_scheduler.ConstantLR(o, 1 / 3, 10),
    ),
    "LinearLR": (
        optim.linear_schedule(RATE / 3, RATE, 10),
        lambda o: lr_scheduler.LinearLR(o, 1 / 3, total_iters=10),
    ),
    "ExponentialLR": (
        optim.exponential_decay(RATE, 1, 0.9),
        lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    ),
    "PolynomialLR": (
        optim.polynomial_schedule(RATE, 0.0, 2.5, 40),
        lambda o: lr_scheduler.PolynomialLR(o, 40, 2.5),
    ),
    "LambdaLR": (
        optim.Schedule(lambda t, rate: rate / (1 + t), {"rate": RATE}),
        lambda o: lr_scheduler.LambdaLR(o, lambda t: 1 / (1 + t)),
    ),
    "ChainedScheduler": (
        optim.product_schedule(
            optim.linear_schedule(0.1, 1.0, 10), optim.exponential_decay(RATE, 1, 0.9)
        ),
        lambda o: lr_scheduler.ChainedScheduler(
            [
                lr_scheduler.LinearLR(o, 0.1, total_iters=10),
                lr_scheduler.ExponentialLR(o, 0.9),
            ]
        ),
    ),
    "SequentialLR": (
        optim.join_schedules(
            [
                optim.linear_schedule(0.1 * RATE, RATE, 10),
                optim.exponential_decay(RATE, 1, 0.9),
            ],
            [10],
        ),
        lambda o: lr_scheduler.SequentialLR(
            o,
            [
                lr_scheduler.LinearLR(o, 0.1, total_iters=10),
                lr_scheduler.ExponentialLR(o, 0.9),
            ],
            [10],
        ),
    ),
    "inverse square root": (
        optim.inverse_sqrt_schedule(RATE, 10),
        lambda o: transformers.get_inverse_sqrt_schedule(o, 10),
    ),
    "inverse square root with a timescale": (
        optim.inverse_sqrt_schedule(RATE, 10, 50),
        lambda o: transformers.get_inverse_sqrt_schedule(o, 10, 50),
    ),
    **{
        f"warmup, stable, decay: {name}": (
            optim.warmup_stable_decay_schedule(
                RATE, 10, 30, 20, 0.1 * RATE, 0.1 * RATE, decay=ours
            ),
            lambda o, n=name: transformers.get_wsd_schedule(
                o, 10, 20, num_stable_steps=30, min_lr_ratio=0.1, decay_type=n
            ),
        )
        for ours, name in FALLS.items()
    },
}


@pytest.mark.parametrize("name", TABLE)
def test_schedules_are_theirs(name: str) -> None:
    ours, theirs = TABLE[name]
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], RATE)
    scheduler: Any = theirs(optimizer)
    for step in range(STEPS):
        expected = optimizer.param_groups[0]["lr"]
        np.testing.assert_allclose(
            ours(step), expected, rtol=2e-5, atol=2e-6, err_msg=str(step)
        )
        optimizer.step()
        with warnings.catch_warnings():
            # A sequence of theirs calls its parts in a way that they warn of.
            warnings.simplefilter("ignore", UserWarning)
            scheduler.step()
