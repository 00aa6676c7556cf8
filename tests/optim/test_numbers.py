"""Every number of every transform is in its state: read, set, and heeded there."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.optim.trees import traces
from tests.refused import refused
from treadle import optim, rng, tree

SHAPES = "shapes of the state depend on it"
STATIC = {
    "memory_size": SHAPES,
    "min_dim_size_to_factor": SHAPES,
    "max_size": SHAPES,
    "steps": "so many products are written into the program",
    "warmup_steps": "a number of the schedule that stands for the learning rate",
}
"""Numbers that are no hyperparameters, and why."""

GIVEN: dict[str, Any] = {
    "key": rng.key(0),
    "optimizer": optim.sgd(0.1),
    "inner": optim.sgd(0.1),
    "measures": {"norm": optim.global_norm},
    "learning_rate": 0.1,
    "momentum": 0.9,
    "decay": 0.5,
    "b1": 0.9,
    "b3": 0.9,
    "weight_decay": 0.1,
    "eta": 0.1,
    "gamma": 0.5,
    "every": 2,
    "clipping": 0.01,
    "clipping_threshold": 0.1,
    "clip_threshold": 0.1,
    "clip_power": 0.25,
    "threshold": 5.0,
    "max_norm": 0.1,
    "max_delta": 0.1,
    "factor": 0.5,
    "consistent_rms": 0.2,
    "eps_root": 1e-3,
    "max_learning_rate": 1.0,
    "approx_dec_rtol": 1e-6,
    "max_consecutive_errors": 2,
    "patience": 1,
}
"""For options without a default, or with one at which they are idle."""

PART: dict[tuple[str, str], str] = {
    ("adafactor", "momentum"): "decay",
    ("adafactor", "clipping_threshold"): "threshold",
    ("polyak_sgd", "scaling"): "learning_rate",
    ("schedule_free_adamw", "b2"): "decay",
}
"""Where the part of a chain that an option goes to has another name for it."""

PARAMS = {"w": tnp.arange(6.0).reshape(2, 3) / 3 - 1, "b": tnp.ones((1, 3))}
ANY = {"factor", "f_min"}
"""Numbers that may be negative."""

IDLE = {"approx_dec_rtol"}
"""What matters where losses differ by rounding alone: not here."""

OTHER = (0.45, 3.0, 0.0, 300.0, 0.02, 1.0)
"""What numbers are set to: what is in range."""


def _is_number(option: inspect.Parameter) -> bool:
    words = str(option.annotation).replace("|", " ").split()
    return bool({"Hyperparameter", "float", "int"} & set(words))


def _numbers(make: Callable[..., Any]) -> list[str]:
    return [n for n, o in inspect.signature(make).parameters.items() if _is_number(o)]


ALL = {
    name: make
    for name, make in vars(optim).items()
    if inspect.isfunction(make)
    and inspect.signature(make).return_annotation == "Transform"
    and _numbers(make)
}


def _made(name: str) -> Any:
    options = inspect.signature(ALL[name]).parameters
    given = GIVEN | ({"matrices": {"w": True, "b": False}} if name == "muon" else {})
    return ALL[name](**{n: given[n] for n in options if n in given})


@pytest.mark.parametrize("name", ALL)
def test_every_number_is_in_the_state(name: str) -> None:
    assert {own for _, own in _settable(name)} == set(_numbers(ALL[name])) - set(STATIC)


@pytest.mark.parametrize("name", ALL)
def test_numbers_out_of_range_are_refused(name: str) -> None:
    """What is not a number, and below 0 whatever that makes no sense for."""
    options = inspect.signature(ALL[name]).parameters
    given = {n: GIVEN[n] for n in options if n in GIVEN}
    for option in _numbers(ALL[name]):
        for bad in (math.nan,) if option in ANY else (math.nan, -0.5):
            refused(
                lambda o=option, v=bad: ALL[name](**given | {o: v}),
                ValueError,
                f"{PART.get((name, option), option)} must be",
                f"got {bad}",
            )


def _settable(name: str) -> list[tuple[str, str]]:
    """The names of numbers in the state, each with that of its option."""
    found = optim.hyperparameters(_made(name).init(PARAMS))
    part = {n: PART.get((name, n), n) for n in _numbers(ALL[name])}
    return [
        (key, own)
        for key in found
        for own, called in part.items()
        if key.rpartition(".")[2] == called
    ]


def _loss(params: Any) -> Any:
    return (params["w"] ** 2).sum() + 0.1 * (params["b"] ** 4).sum()


@pytest.mark.parametrize("name", ALL)
def test_a_number_that_is_set_is_heeded_without_a_trace(name: str) -> None:
    optimizer = _made(name)

    def step(params: Any, state: Any, factor: Any) -> Any:
        value, grads = td.value_and_grad(_loss)(params)
        grads = tree.map(lambda g: factor * g, grads)
        updates, state = optimizer.update(
            grads, state, params, value=value, value_fn=_loss
        )
        return optim.apply_updates(params, updates), state

    jitted, count = traces(step)
    bad = [np.nan] * 2 if name == "apply_if_finite" else []

    def path(state: Any) -> np.ndarray:
        params = PARAMS
        for factor in (1.0, -0.7, *bad, 0.0, 0.2, 5.0, 1.0, 1.0):
            params, state = jitted(params, state, factor)
        return _flat((params, state))

    first = path(optimizer.init(PARAMS))
    for key in {key for key, own in _settable(name) if own not in IDLE}:
        assert any(
            not np.array_equal(path(state), first, equal_nan=True)
            for state in _others(optimizer, key)
        ), key
    assert len(count) == 1


def _flat(values: Any) -> np.ndarray:
    """All parameters and moments, without the numbers themselves."""

    def is_hyper(x: Any) -> bool:
        return isinstance(x, optim.Hyperparameters)

    leaves = tree.leaves(values, is_leaf=is_hyper)
    arrays = [x for x in leaves if not is_hyper(x) and x.dtype.kind in "fi"]
    return np.concatenate([np.ravel(x) for x in arrays])


def _others(optimizer: Any, key: str) -> Iterator[Any]:
    """Fresh states with another value of a number."""
    for value in OTHER:
        try:
            yield optim.set_hyperparameters(optimizer.init(PARAMS), **{key: value})
        except ValueError:  # out of range
            continue
