"""Each optimizer reaches the minima of the usual test functions.

Rosenbrock's valley from (-1.2, 1), Beale's function from (1, 1), and a quadratic with
eigenvalues from 1 to 1000, each with a parameter of its own: minima are known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import optim, rng, tree

CURVATURES = np.geomspace(1.0, 1000.0, 9).astype(np.float32)
TURN = np.linalg.qr(np.random.default_rng(0).normal(size=(9, 9)))[0].astype(np.float32)
START = {
    "rosenbrock": np.array([-1.2, 1.0], np.float32),
    "beale": np.array([1.0, 1.0], np.float32),
    "quadratic": np.ones((3, 3), np.float32),
}
MINIMA = {
    "rosenbrock": np.array([1.0, 1.0]),
    "beale": np.array([3.0, 0.5]),
    "quadratic": np.full((3, 3), 0.5),
}


def rosenbrock(p: Any) -> Any:
    return 100 * (p[1] - p[0] ** 2) ** 2 + (1 - p[0]) ** 2


def beale(p: Any) -> Any:
    x, y = p[0], p[1]
    terms = [c - x + x * y ** (n + 1) for n, c in enumerate((1.5, 2.25, 2.625))]
    return sum(term**2 for term in terms)


def quadratic(p: Any) -> Any:
    x = TURN @ (p.reshape(9) - 0.5)
    return 0.5 * (tnp.asarray(CURVATURES) * x**2).sum()


FUNCTIONS = {"rosenbrock": rosenbrock, "beale": beale, "quadratic": quadratic}


def _down(rate: float, steps: int) -> optim.Schedule:
    return optim.cosine_decay_schedule(rate, steps)


def _up_and_down(rate: float, steps: int) -> optim.Schedule:
    return optim.warmup_cosine_decay_schedule(0.0, rate, 200, steps)


# For each: how it is made for a number of steps, and how many it gets.
OPTIMIZERS: dict[str, tuple[Callable[[int], optim.Transform], int]] = {
    "sgd": (lambda n: optim.sgd(1e-3), 30000),
    "sgd momentum": (lambda n: optim.sgd(5e-4, 0.95, nesterov=True), 6000),
    "adam": (lambda n: optim.adam(_down(0.05, n)), 3000),
    "adamw": (lambda n: optim.adamw(_down(0.05, n), weight_decay=0.0), 3000),
    "nadam": (lambda n: optim.nadam(_down(0.05, n)), 3000),
    "amsgrad": (lambda n: optim.amsgrad(_down(1.0, n)), 6000),
    "adamax": (lambda n: optim.adamax(_down(0.05, n)), 6000),
    "adabelief": (lambda n: optim.adabelief(_down(0.05, n)), 3000),
    "yogi": (lambda n: optim.yogi(_down(0.05, n)), 6000),
    "radam": (lambda n: optim.radam(_up_and_down(0.05, n)), 6000),
    "rmsprop": (lambda n: optim.rmsprop(_down(0.02, n)), 6000),
    "adagrad": (lambda n: optim.adagrad(0.5), 6000),
    "adadelta": (lambda n: optim.adadelta(_down(1.0, n), 0.99, 1e-4), 30000),
    "adan": (lambda n: optim.adan(_down(0.05, n)), 3000),
    "ademamix": (
        lambda n: optim.ademamix(
            _down(0.02, n), b3=0.99, alpha=optim.linear_schedule(0.0, 2.0, n)
        ),
        6000,
    ),
    "simplified_ademamix": (
        lambda n: optim.simplified_ademamix(_down(1e-3, n), alpha=1.0),
        6000,
    ),
    "adopt": (lambda n: optim.adopt(_down(0.05, n), b2=0.99), 6000),
    "lion": (lambda n: optim.lion(_down(0.01, n), weight_decay=0.0), 6000),
    "sign_sgd": (lambda n: optim.sign_sgd(_down(0.002, n)), 40000),
    "signum": (lambda n: optim.signum(_down(0.01, n)), 10000),
    "rprop": (lambda n: optim.rprop(0.01), 6000),
    "novograd": (lambda n: optim.novograd(_down(0.02, n)), 10000),
    "lars": (lambda n: optim.lars(_down(1.0, n), trust_coefficient=0.01), 10000),
    "lamb": (lambda n: optim.lamb(_down(0.05, n)), 6000),
    "adafactor": (lambda n: optim.adafactor(_down(0.1, n), momentum=0.9), 6000),
    "muon": (lambda n: optim.muon(_down(0.05, n)), 6000),
    "soap": (lambda n: optim.soap(_down(0.05, n), weight_decay=0.0), 3000),
    "sophia": (
        lambda n: optim.sophia(
            _down(0.03, n),
            b1=0.9,
            b2=0.999,
            weight_decay=0.0,
            gamma=0.1,
            update_interval=1,
            key=rng.key(0),
        ),
        20000,
    ),
    "prodigy": (lambda n: optim.prodigy(_down(1.0, n)), 6000),
    "lookahead": (lambda n: optim.lookahead(optim.adam(_down(0.05, n))), 6000),
    "schedule_free_sgd": (
        lambda n: optim.schedule_free_sgd(1.5e-3, weight_lr_power=0.0),
        100000,
    ),
    "schedule_free_adamw": (lambda n: optim.schedule_free_adamw(0.05), 6000),
    "polyak_sgd": (lambda n: optim.polyak_sgd(), 10000),
    "lbfgs": (lambda n: optim.lbfgs(), 60),
    "lbfgs backtracking": (
        lambda n: optim.lbfgs(
            line_search=optim.scale_by_backtracking_linesearch(
                40, decrease_factor=0.5, increase_factor=10.0
            )
        ),
        300,
    ),
    "sgd zoom": (
        lambda n: optim.chain(optim.sgd(1.0), optim.scale_by_zoom_linesearch()),
        6000,
    ),
    "kahan": (lambda n: optim.kahan(optim.adam(_down(0.05, n))), 3000),
}
TOGETHER = ("polyak_sgd", "lbfgs", "lbfgs backtracking", "sgd zoom", "prodigy")
"""Those with one number for all parameters: they get one function at a time."""


def _minimum(optimizer: optim.Transform, loss: Any, start: Any, steps: int) -> Any:
    @td.jit
    def train(params: Any, state: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            params, state = carry
            value, grads = td.value_and_grad(loss)(params)
            updates, state = optimizer.update(
                grads, state, params, value=value, value_fn=loss
            )
            return (optim.apply_updates(params, updates), state), None

        return td.scan(body, (params, state), None, length=steps)[0]

    return train(start, optimizer.init(start))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_minima(name: str) -> None:
    make, steps = OPTIMIZERS[name]
    start = tree.map(tnp.asarray, START)
    if name in TOGETHER:
        found = {}
        for key, function in FUNCTIONS.items():
            last, state = _minimum(make(steps), function, start[key], steps)
            found[key] = last
    else:

        def loss(p: Any) -> Any:
            return sum(function(p[key]) for key, function in FUNCTIONS.items())

        found, state = _minimum(make(steps), loss, start, steps)
        if name.startswith(("lookahead", "schedule_free")):
            found = optim.averaged(found, state)
    for key, expected in MINIMA.items():
        np.testing.assert_allclose(found[key], expected, atol=0.02, err_msg=key)
