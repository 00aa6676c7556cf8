"""Linear layers over any axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn import check, init
from treadle.nn.module import Module

Ints = int | Sequence[int]


def _ints(layer: str, name: str, value: Any) -> tuple[int, ...]:
    rank = len(value) if hasattr(value, "__len__") else 1
    return check.per_axis(layer, name, value, rank)


class LinearGeneral(Module):
    """A linear layer from some axes of its input to other axes, which come last.

    Shapes: the axes of the input that are not in `axis`, in their order, then
    `out_features`; the weight is (*in_features, *out_features).

    Args:
      in_features, out_features: the lengths of axes, one or several.
      axis: which axes of the input have the lengths `in_features`; by default the last
        ones.
      bias: whether there is one.
      weight_init, bias_init: draw them; the weight as that of a `Linear` with as many
        features. By default evenly from ±1/sqrt of the number of inputs.
      dtype: in which the layer computes; by default that of its parameters.
      param_dtype: in which the parameters are made.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> heads = nn.LinearGeneral(6, (2, 4), key=rng.key(0))
    >>> heads(tnp.ones((5, 6))).shape
    (5, 2, 4)
    >>> together = nn.LinearGeneral((2, 4), 6, key=rng.key(0))
    >>> together(tnp.ones((5, 2, 4))).shape
    (5, 6)
    """

    in_features: tuple[int, ...]
    out_features: tuple[int, ...]
    axis: tuple[int, ...]
    dtype: Any
    weight: td.Array
    bias: td.Array | None

    def __init__(
        self,
        in_features: Ints,
        out_features: Ints,
        *,
        axis: Ints | None = None,
        bias: bool = True,
        weight_init: init.Initializer = init.fan_in_uniform,
        bias_init: init.Initializer | None = None,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        name = "LinearGeneral"
        self.in_features = _ints(name, "in_features", in_features)
        self.out_features = _ints(name, "out_features", out_features)
        count = len(self.in_features)
        if axis is None:
            axis = tuple(range(-count, 0))
        self.axis = tuple(axis) if isinstance(axis, Sequence) else (axis,)
        if len(self.axis) != count:
            raise ValueError(
                f"{name}: {count} in_features {self.in_features} for the axes "
                f"{self.axis}{at(user_source())}"
            )
        self.dtype = check.dtype(dtype)
        weight_key, bias_key = rng.split(key)
        inputs, outputs = math.prod(self.in_features), math.prod(self.out_features)
        drawn = weight_init(weight_key, (inputs, outputs), param_dtype)
        self.weight = drawn.reshape(*self.in_features, *self.out_features)
        draw = bias_init or init.bias_uniform(inputs)
        self.bias = draw(bias_key, self.out_features, param_dtype) if bias else None

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x = check.as_array(x)
        wanted = dict(zip(self.axis, self.in_features, strict=True))
        if any(not -x.ndim <= a < x.ndim or x.shape[a] != n for a, n in wanted.items()):
            raise ValueError(
                f"LinearGeneral takes arrays with axes of the lengths {wanted}, got "
                f"{td.typeof(x)}{at(user_source())}"
            )
        x, weight, bias = check.operands(
            "LinearGeneral", self.dtype, x, self.weight, self.bias
        )
        x = tnp.tensordot(x, weight, (self.axis, tuple(range(len(self.axis)))))
        return x if bias is None else x + bias


class Einsum(Module):
    """``einsum(equation, x, weight) + bias``.

    Args:
      equation: as of `tnp.einsum`, of two operands, with its result written out.
      weight_shape: the lengths of the axes of the weight.
      bias: whether there is one; it has those axes of the result that the weight has.
      weight_init, bias_init: draw them. By default evenly from ±1/sqrt of the number of
        weights that are summed up in one element of the result.
      dtype: in which the layer computes; by default that of its parameters.
      param_dtype: in which the parameters are made.

    Raises:
      ValueError: for an equation that is not such a one.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> layer = nn.Einsum("...f,fhd->...hd", (6, 2, 4), key=rng.key(0))
    >>> layer(tnp.ones((5, 6))).shape, layer.bias.shape
    ((5, 2, 4), (2, 4))
    """

    equation: str
    dtype: Any
    weight: td.Array
    bias: td.Array | None

    def __init__(
        self,
        equation: str,
        weight_shape: Sequence[int],
        *,
        bias: bool = True,
        weight_init: init.Initializer | None = None,
        bias_init: init.Initializer | None = None,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        self.equation = "".join(equation.split())
        self.dtype = check.dtype(dtype)
        shape = _ints("Einsum", "weight_shape", weight_shape)
        _, of_weight, out = _parts(self.equation)
        if len(of_weight) != len(shape):
            raise ValueError(
                f"Einsum: {equation!r} has {len(of_weight)} axes for a weight of the "
                f"shape {shape}{at(user_source())}"
            )
        sizes = dict(zip(of_weight, shape, strict=True))
        fan_in = math.prod([n for label, n in sizes.items() if label not in out])
        weight_key, bias_key = rng.split(key)
        draw_weight = weight_init or init.bias_uniform(fan_in)
        draw_bias = bias_init or init.bias_uniform(fan_in)
        self.weight = draw_weight(weight_key, shape, param_dtype)
        kept = tuple([sizes[label] for label in out if label in sizes])
        self.bias = draw_bias(bias_key, kept, param_dtype) if bias else None

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x, weight, bias = check.operands(
            "Einsum", self.dtype, x, self.weight, self.bias
        )
        out = tnp.einsum(self.equation, x, weight)
        if bias is None:
            return out
        of_x, of_weight, of_out = _parts(self.equation)
        sizes = dict(zip(of_weight, weight.shape, strict=True))
        shape: list[int] = []
        for label in of_out.replace("...", "."):
            others = x.ndim - len(of_x.replace("...", "")) if label == "." else 1
            shape += [sizes.get(label, 1)] * others
        return out + bias.reshape(shape)


def _parts(equation: str) -> tuple[str, str, str]:
    """The labels of the input, of the weight, and of the result."""
    left, arrow, out = equation.partition("->")
    x, comma, weight = left.partition(",")
    whole = arrow and comma and "," not in weight and "." not in weight
    if not whole or len(set(weight)) != len(weight):
        raise ValueError(
            "Einsum takes an equation such as '...i,io->...o': the labels of the "
            "input, those of the weight (each once, no dots), and those of the result; "
            f"got {equation!r}{at(user_source())}"
        )
    return x, weight, out
