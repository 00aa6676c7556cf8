"""What hyperparameters may be is said where they are written."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.refused import refused
from treadle import nn, optim, rng, tree

PARAMS = {"w": tnp.ones(3), "b": tnp.ones(())}
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": optim.sgd,
    "adam": optim.adam,
    "adamw": optim.adamw,
    "lion": optim.lion,
    "rmsprop": optim.rmsprop,
}
EXPECTS = "expected a number, or a schedule"
LATER = "`state = optimizer.init(params)`"


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_parameters_are_no_learning_rate(name: str) -> None:
    make = OPTIMIZERS[name]
    model = nn.Linear(2, 3, key=rng.key(0))
    remedy = f"`optimizer = optim.{name}(1e-3)`"
    refused(lambda: make(model, 1e-3), TypeError, EXPECTS, "=Linear(", remedy, LATER)
    refused(lambda: make(PARAMS, 1e-3), TypeError, EXPECTS, remedy)
    refused(lambda: make(tree.leaves(model)), TypeError, EXPECTS, remedy)
    refused(lambda: make(iter([tnp.ones(2)])), TypeError, EXPECTS, remedy)
    refused(lambda: make(tnp.ones(2)), TypeError, EXPECTS, remedy)
    message = refused(lambda: make("fast"), TypeError, EXPECTS, f"{name}: learning")
    assert LATER not in message


@pytest.mark.parametrize("bad", [math.nan, np.float32("nan"), tnp.array(math.nan)])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_rate_that_is_no_number(name: str, bad: Any) -> None:
    make = OPTIMIZERS[name]
    refused(lambda: make(bad), ValueError, f"{name}: learning_rate must be", "got nan")
    schedule = optim.cosine_decay_schedule(bad, 100)
    refused(lambda: make(schedule), ValueError, "not NaN, got cosine")


@pytest.mark.parametrize("bad", [-1e-3, -1, np.float64(-0.1), tnp.array(-1.0)])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_negative_rate(name: str, bad: Any) -> None:
    make = OPTIMIZERS[name]
    said = (f"{name}: learning_rate must be 0 or more, got -", "negate the loss")
    refused(lambda: make(bad), ValueError, *said)


OTHERS: list[tuple[Callable[[], Any], str]] = [
    (lambda: optim.adam(1e-3, b1=1.5), "adam: b1 must be from 0 to 1, got 1.5"),
    (lambda: optim.adamw(1e-3, b2=math.nan), "adamw: b2 must be from 0 to 1, got nan"),
    (lambda: optim.adamw(1e-3, weight_decay=-1), "weight_decay must be 0 or more"),
    (lambda: optim.adam(1e-3, eps=-1e-8), "adam: eps must be 0 or more, got -1e-08"),
    (lambda: optim.lion(1e-3, b1=-0.9), "lion: b1 must be from 0 to 1"),
    (lambda: optim.rmsprop(1e-3, decay=2), "rmsprop: decay must be from 0 to 1"),
    (lambda: optim.sgd(1e-3, momentum=-0.5), "momentum must be 0 or more"),
    (lambda: optim.scale(math.nan), "not NaN, got nan"),
    (lambda: optim.scale_by_learning_rate(-1.0), "learning_rate must be 0 or more"),
    (lambda: optim.clip(-1.0), "clip: max_delta must be 0 or more"),
    (lambda: optim.clip_by_global_norm(math.nan), "max_norm must be 0 or more"),
    (lambda: optim.average_parameters(1.1), "average_parameters: decay must be from"),
]


@pytest.mark.parametrize(("mistake", "message"), OTHERS)
def test_other_numbers(mistake: Callable[[], Any], message: str) -> None:
    refused(mistake, ValueError, message)


def test_a_change_to_what_may_not_be() -> None:
    state = optim.adam(1e-3).init(PARAMS)
    for bad in (math.nan, -1.0, tnp.array(-1.0)):
        with pytest.raises(ValueError, match="set_hyperparameters: learning_rate must"):
            optim.set_hyperparameters(state, learning_rate=bad)
    # Of several models with a rate each, one is wrong.
    many = td.vmap(lambda rate: optim.sgd(rate).init(PARAMS))(tnp.array([0.1, 0.2]))
    with pytest.raises(ValueError, match="must be 0 or more"):
        optim.set_hyperparameters(many, learning_rate=tnp.array([0.1, -0.2]))


def test_what_is_allowed() -> None:
    for rate in (0, 0.0, 1, np.float32(0.1), tnp.array(0.1), lambda count: 0.1):
        optim.adam(rate, b1=0.0).init(PARAMS)
    optim.scale(-1.0)
    optim.sgd(optim.linear_schedule(0.1, 0.0, 10), momentum=lambda count: 0.9)

    @td.jit
    def made_inside(rate: Any) -> Any:
        return optim.hyperparameters(optim.sgd(rate).init(PARAMS))["learning_rate"]

    assert float(made_inside(0.5)) == 0.5
    # What is traced is taken as it is.
    assert float(td.grad(lambda rate: made_inside(rate) * 2)(-0.5)) == 2.0
