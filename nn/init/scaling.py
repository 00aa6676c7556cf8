"""Initialisers that look at the fans of a weight, so that signals keep their size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any, Literal

import treadle as td
import treadle.numpy as tnp
from treadle.errors import at, user_source
from treadle.nn import check
from treadle.nn.init.basic import (
    Initializer,
    Shape,
    normal,
    truncated_normal,
    uniform,
)

Axes = int | Sequence[int]
Mode = Literal["fan_in", "fan_out", "fan_avg", "fan_geo_avg"]
Distribution = Literal["normal", "truncated_normal", "uniform"]
_NO_SIZES = "the sizes of a weight are ints of 0 or more, got {shape}{at}"
_INITIALISER = """\
an initialiser takes a key, a shape and a dtype; it was called with ({given}){at}
It is one already, and goes as it is where one is asked for: `weight_init=\
nn.init.glorot_normal`. With axes of one's own: `nn.init.variance_scaling`."""
_MODES = ("fan_in", "fan_out", "fan_avg", "fan_geo_avg")
_DISTRIBUTIONS = ("normal", "truncated_normal", "uniform")


def fans(
    shape: Shape, in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = ()
) -> tuple[int, int]:
    """The inputs of one output, and the outputs of one input.

    Args:
      in_axis, out_axis: one axis or several.
      batch_axis: axes along which there are independent weights. All other axes are
        windows, which count for both.

    Raises:
      TypeError: for sizes that are no ints.
      ValueError: for negative ones.

    >>> fans((3, 3, 16, 32))
    (144, 288)
    >>> fans((8, 16, 4, 64), in_axis=1, out_axis=(2, 3), batch_axis=0)
    (16, 256)
    """
    if any(not hasattr(n, "__index__") for n in shape):
        raise TypeError(_NO_SIZES.format(shape=tuple(shape), at=at(user_source())))
    if any(n < 0 for n in shape):
        raise ValueError(_NO_SIZES.format(shape=tuple(shape), at=at(user_source())))
    if len(shape) < 2:
        n = math.prod(shape)
        return n, n
    n_in, n_out, batch = (_size(shape, a) for a in (in_axis, out_axis, batch_axis))
    window = math.prod(shape) // max(n_in * n_out * batch, 1)
    return window * n_in, window * n_out


def _size(shape: Shape, axes: Axes) -> int:
    each = axes if isinstance(axes, Sequence) else (axes,)
    return math.prod(shape[index(axis)] for axis in each)


def _one_of(function: str, name: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(
            f"{function}: {name} is one of {', '.join(choices)}; got "
            f"{value!r}{at(user_source())}"
        )


def variance_scaling(
    scale: float,
    mode: Mode,
    distribution: Distribution,
    *,
    in_axis: Axes = -2,
    out_axis: Axes = -1,
    batch_axis: Axes = (),
) -> Initializer:
    """An initialiser whose variance is ``scale / fan`` (He 2015, Glorot 2010).

    Args:
      mode: which fan: that of the inputs, of the outputs, their mean, or their
        geometric mean.
      distribution: normal, normal without its tails beyond two standard deviations, or
        uniform.
      in_axis, out_axis, batch_axis: as `fans` takes them.

    Raises:
      ValueError: for another mode or distribution.

    >>> from treadle import rng
    >>> he = variance_scaling(2.0, "fan_in", "normal")
    >>> round(float(he(rng.key(0), (200, 300)).std()), 2)
    0.1
    """
    check.within("variance_scaling", "scale", scale)
    _one_of("variance_scaling", "mode", mode, _MODES)
    _one_of("variance_scaling", "distribution", distribution, _DISTRIBUTIONS)

    def init(key: Any = None, shape: Any = None, dtype: Any = tnp.float32) -> td.Array:
        if not hasattr(shape, "__len__"):
            given = ", ".join(repr(x) for x in (key, shape) if x is not None)
            raise TypeError(_INITIALISER.format(given=given, at=at(user_source())))
        fan_in, fan_out = fans(shape, in_axis, out_axis, batch_axis)
        choices = {
            "fan_in": fan_in,
            "fan_out": fan_out,
            "fan_avg": (fan_in + fan_out) / 2,
            "fan_geo_avg": math.sqrt(fan_in * fan_out),
        }
        stddev = math.sqrt(scale / max(choices[mode], 1))
        if distribution == "uniform":
            return uniform(math.sqrt(3) * stddev)(key, shape, dtype)
        draw = normal if distribution == "normal" else truncated_normal
        return draw(stddev)(key, shape, dtype)

    return init


fan_in_uniform = variance_scaling(1 / 3, "fan_in", "uniform")
"""Evenly from ±1/sqrt(fan_in): PyTorch's default for linear and convolution layers."""
lecun_normal = variance_scaling(1.0, "fan_in", "truncated_normal")
lecun_uniform = variance_scaling(1.0, "fan_in", "uniform")
glorot_normal = variance_scaling(1.0, "fan_avg", "truncated_normal")
glorot_uniform = variance_scaling(1.0, "fan_avg", "uniform")
he_normal = variance_scaling(2.0, "fan_in", "truncated_normal")
he_uniform = variance_scaling(2.0, "fan_in", "uniform")


def xavier_uniform(gain: float = 1.0) -> Initializer:
    """PyTorch's: `glorot_uniform` times a gain.

    >>> from treadle import rng
    >>> round(float(xavier_uniform(2.0)(rng.key(0), (200, 400)).max()), 2)
    0.2
    """
    return variance_scaling(gain**2, "fan_avg", "uniform")


def xavier_normal(gain: float = 1.0) -> Initializer:
    """PyTorch's: `glorot_normal` with its tails, times a gain.

    >>> from treadle import rng
    >>> round(float(xavier_normal(2.0)(rng.key(0), (200, 600)).std()), 2)
    0.1
    """
    return variance_scaling(gain**2, "fan_avg", "normal")


def kaiming_uniform(
    mode: Literal["fan_in", "fan_out"] = "fan_in",
    nonlinearity: str = "leaky_relu",
    slope: float = 0.0,
) -> Initializer:
    """PyTorch's: evenly from ±gain * sqrt(3 / fan), with the `calculate_gain` of what
    comes after the layer (He 2015). By default that is `relu`: `he_uniform`.

    Raises:
      ValueError: for another mode or nonlinearity.

    >>> from treadle import rng
    >>> draw = kaiming_uniform("fan_out", "linear")
    >>> round(float(draw(rng.key(0), (200, 300)).max()), 2)
    0.1
    """
    return _kaiming("kaiming_uniform", mode, nonlinearity, slope, "uniform")


def kaiming_normal(
    mode: Literal["fan_in", "fan_out"] = "fan_in",
    nonlinearity: str = "leaky_relu",
    slope: float = 0.0,
) -> Initializer:
    """PyTorch's: normal with standard deviation ``gain / sqrt(fan)``, with the
    `calculate_gain` of what comes after the layer (He 2015). By default that is `relu`:
    `he_normal` with its tails.

    Raises:
      ValueError: for another mode or nonlinearity.

    >>> from treadle import rng
    >>> draw = kaiming_normal(nonlinearity="linear")
    >>> round(float(draw(rng.key(0), (100, 300)).std()), 2)
    0.1
    """
    return _kaiming("kaiming_normal", mode, nonlinearity, slope, "normal")


def _kaiming(
    name: str,
    mode: Literal["fan_in", "fan_out"],
    nonlinearity: str,
    slope: float,
    distribution: Distribution,
) -> Initializer:
    _one_of(name, "mode", mode, ("fan_in", "fan_out"))
    gain = calculate_gain(nonlinearity, slope)
    return variance_scaling(gain**2, mode, distribution)


def calculate_gain(nonlinearity: str, slope: float = 0.01) -> float:
    """By how much weights before a nonlinearity must be larger, so that its results
    keep the size of its inputs, as PyTorch has it.

    Args:
      nonlinearity: linear, sigmoid, tanh, relu, leaky_relu or selu.
      slope: that of `leaky_relu`.

    Raises:
      ValueError: for another one.

    >>> round(calculate_gain("relu"), 4), calculate_gain("leaky_relu", 1.0)
    (1.4142, 1.0)
    """
    gains = {
        "linear": 1.0,
        "sigmoid": 1.0,
        "tanh": 5 / 3,
        "relu": math.sqrt(2),
        "leaky_relu": math.sqrt(2 / (1 + slope**2)),
        "selu": 0.75,
    }
    _one_of("calculate_gain", "nonlinearity", nonlinearity, tuple(gains))
    return gains[nonlinearity]
