"""How much privacy a training with noise loses: what `dp_sgd` asks an accountant."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from treadle.optional import needed_for
from treadle.recipes.errors import UsageError


@cache
def _loss_of_a_step(noise: float, rate: float) -> Any:
    with needed_for("the accountant of privacy"):
        from dp_accounting.pld import privacy_loss_distribution

    # Rounded up to a thousandth: the bound stays one.
    return privacy_loss_distribution.from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=1e-3
    )


def spent(noise: float, rate: float, steps: int, delta: float) -> float:
    """ε at δ after some steps, each with noise of that deviation, in units of the
    length to which gradients are cut, and each image in it with the chance `rate`."""
    composed = _loss_of_a_step(noise, rate).self_compose(steps)
    return float(composed.get_epsilon_for_delta(delta))


def noise_for(epsilon: float, rate: float, steps: int, delta: float) -> float:
    """The least noise, to a thousandth, with which so many steps lose at most ε.

    Raises:
      UsageError: if no noise is enough.
    """
    enough, least = 1.0, 0.1
    while spent(enough, rate, steps, delta) > epsilon:
        enough, least = 2 * enough, enough
        if enough > 1000:
            raise UsageError(
                f"--epsilon {epsilon:g}: no noise is enough for {steps} steps\n"
                "Choose a larger one, fewer --steps, or a smaller --batch-size."
            )
    while enough - least > 1e-3:
        middle = (enough + least) / 2
        if spent(middle, rate, steps, delta) > epsilon:
            least = middle
        else:
            enough = middle
    return math.ceil(1e3 * enough) / 1e3


def budget(noise: float, rate: float, steps: int, delta: float) -> float:
    """The least ε, to a hundredth, within which so many steps stay."""
    return math.ceil(100 * spent(noise, rate, steps, delta)) / 100


def check(config: Any, noise: float, rate: float) -> None:
    """
    Raises:
      UsageError: if the steps spend more than the budget.
    """

    def within(steps: int) -> bool:
        return spent(noise, rate, steps, config.delta) <= config.epsilon

    if within(config.steps):
        return
    fewer, most = 0, config.steps
    while most - fewer > 1:
        middle = (fewer + most) // 2
        fewer, most = (middle, most) if within(middle) else (fewer, middle)
    needed = budget(noise, rate, config.steps, config.delta)
    raise UsageError(
        f"--steps {config.steps}: with noise {noise:g} the budget --epsilon "
        f"{config.epsilon:g} is spent after {fewer} steps\n"
        f"Make fewer; or allow what they spend: --epsilon {needed:g}; or start a run "
        "without --noise: then the noise that is needed is found."
    )
