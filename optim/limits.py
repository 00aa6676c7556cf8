"""What hyperparameters may be, said where they are written."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import treadle as td
from treadle import tree
from treadle.errors import TracerError, at, user_source
from treadle.optim.schedule import Schedule, show

_FROM_0 = (0.0, math.inf)
_FROM_1 = (1.0, math.inf)
_ABOVE_0 = (math.ulp(0.0), math.inf)
_PART = (0.0, 1.0)
_LIMITS = {
    "learning_rate": _FROM_0,
    "weight_decay": _FROM_0,
    "eps": _FROM_0,
    "eps_root": _FROM_0,
    "momentum": _FROM_0,
    "max_norm": _FROM_0,
    "max_delta": _FROM_0,
    "clipping": _FROM_0,
    "every": _FROM_1,
    "max_consecutive_errors": _FROM_0,
    "eta": _FROM_0,
    "patience": _FROM_1,
    "rtol": _PART,
    "atol": _FROM_0,
    "cooldown": _FROM_0,
    "accumulation_size": _FROM_1,
    "min_scale": _FROM_0,
    "b1": _PART,
    "b2": _PART,
    "b3": _PART,
    "decay": _PART,
    "alpha": _FROM_0,
    "approx_dec_rtol": _FROM_0,
    "clip_power": _FROM_0,
    "clip_threshold": _ABOVE_0,
    "clip_by_block_rms: threshold": _ABOVE_0,
    "scale_by_radam: threshold": (4.0, math.inf),  # its formula has a root of n - 4
    "consistent_rms": _ABOVE_0,
    "curv_rtol": _PART,
    "d0": _ABOVE_0,
    "d_coef": _ABOVE_0,
    "decay_power": _FROM_0,
    "decrease_factor": _PART,
    "eta_minus": _PART,
    "eta_plus": _FROM_1,
    "reduce_on_plateau: factor": _PART,
    "frequency": _FROM_1,
    "gamma": _FROM_0,
    "increase_factor": _FROM_1,
    "initial_accumulator_value": _FROM_0,
    "max_learning_rate": _ABOVE_0,
    "max_size": _FROM_0,
    "max_step_size": _ABOVE_0,
    "max_steps": _FROM_1,
    "memory_size": _FROM_1,
    "min_dim_size_to_factor": _FROM_1,
    "min_norm": _FROM_0,
    "min_step_size": _ABOVE_0,
    "scale_factor": _FROM_0,
    "slope_rtol": _PART,
    "slow_step_size": _PART,
    "step_offset": _FROM_0,
    "steps": _FROM_1,
    "stepsize_precision": _FROM_0,
    "sync_period": _FROM_1,
    "tol": _FROM_0,
    "trust_coefficient": _FROM_0,
    "update_interval": _FROM_1,
    "warmup_steps": _FROM_0,
    "weight_lr_power": _FROM_0,
}
"""By name, or by transform and name where one name has several meanings."""
_PARAMETERS = """
An optimizer gets the parameters later: `optimizer = optim.{0}(1e-3)`, then
`state = optimizer.init(params)`."""
_ASCEND = "\nTo ascend, negate the loss."


def check(transform: str, **values: Any) -> None:
    """Checks the hyperparameters of a new transform.

    Raises:
      TypeError: for what is neither a number nor a schedule, such as parameters.
      ValueError: for a number that is NaN, or that its name excludes.
    """
    for name, value in values.items():
        check_one(transform, name, value, ())


def check_one(where: str, name: str, value: Any, shape: tuple[int, ...]) -> None:
    """The same for one of a given shape; `where` is the function that got it."""
    leaves = tree.leaves(value)
    if not isinstance(value, Schedule):
        if callable(value) and not any(map(_shape, leaves)):
            return
        if _shape(value) != shape:
            raise TypeError(_not_a_number(where, name, value, shape))
    least, most = (-math.inf, math.inf)
    if not isinstance(value, Schedule):
        any_number = _LIMITS.get(name, (least, most))
        least, most = _LIMITS.get(f"{where}: {name}", any_number)
    for number in filter(_is_known, leaves):
        wrong = np.isnan(np.asarray(number, np.float64)).any()
        inside = (np.asarray(number) >= least) & (np.asarray(number) <= most)
        if wrong or not np.all(inside):
            raise ValueError(
                f"{where}: {name} must be {_range(least, most)}, got {show(value)}"
                f"{at(user_source())}"
                f"{_ASCEND if name == 'learning_rate' and not wrong else ''}"
            )


def _range(least: float, most: float) -> str:
    if least == -math.inf:
        return "a number, not NaN"
    if least == math.ulp(0.0):
        return "more than 0"
    return f"{least:g} or more" if most == math.inf else f"from {least:g} to {most:g}"


def _shape(value: Any) -> tuple[int, ...] | None:
    try:
        return td.typeof(value).shape
    except TypeError:
        return None


def _is_known(value: Any) -> bool:
    """Whether it is a number or an array that is not being traced."""
    try:
        return _shape(value) is not None and np.asarray(value) is not None
    except TracerError:
        return False


def _not_a_number(where: str, name: str, value: Any, shape: tuple[int, ...]) -> str:
    kind = f"an array of shape {shape}" if shape else "a number"
    parameters = any(map(_shape, tree.leaves(value))) or hasattr(value, "__next__")
    remedy = _PARAMETERS.format(where) if name == "learning_rate" and parameters else ""
    return (
        f"{where}: {name}={value!r:.60}: expected {kind}, or a schedule (a function of "
        f"the step count){at(user_source())}{remedy}"
    )
