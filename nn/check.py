"""What layers demand of their inputs, and how they say so; the dtype of sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.errors import at, user_source, warn
from treadle.np.contract import check_precision

_TOO_WIDE = """\
{layer} computes in {dtype}, and takes a {found} in it{at}
Convert the data once, before training: `x.astype(np.{dtype})`. For a model that \
computes in {found.dtype}, make its parameters so: `param_dtype=` of its layers."""


class PrecisionWarning(UserWarning):
    """Data are wider than what the model computes in."""


def dtype(value: Any) -> Any:
    """The `dtype` option of a layer as its field: None, or one that hashes."""
    return None if value is None else td.dtypes.canonical(value)


def precision(layer: str, value: Any) -> Any:
    """The `precision` option of a layer as its field.

    Raises:
      ValueError: if there is no such precision.
    """
    check_precision(layer, value)
    return value


def operands(layer: str, compute: Any, x: Any, *params: Any) -> list[td.Array]:
    """An input and parameters of a layer in the dtype in which it computes.

    That is `compute`, or that of the parameters if it is None: what a model computes in
    follows from the model, not from its data. A layer without parameters computes in
    the dtype of its input. Complex inputs stay complex. Parameters that are None stay
    so.

    >>> import numpy as np
    >>> x, weight = operands("Linear", None, np.ones(2, np.float16), tnp.ones(2))
    >>> x.dtype
    dtype('float32')
    """
    x = as_array(x)
    found = td.typeof(x)
    given = [p for p in params if p is not None]
    if compute is None:
        compute = tnp.result_type(*given) if given else td.dtypes.to_float(found.dtype)
    elif any([td.dtypes.is_complex(p.dtype) for p in given]):
        compute = tnp.result_type(compute, *given)
    if td.dtypes.is_complex(found.dtype):
        compute = tnp.result_type(compute, found.dtype)
    elif found.dtype.itemsize > max(compute.itemsize, 4) and td.dtypes.is_float(
        found.dtype
    ):
        warn(
            _TOO_WIDE.format(
                layer=layer, dtype=compute, found=found, at=at(user_source())
            ),
            PrecisionWarning,
        )
    return [
        v if v is None or v.dtype == compute else v.astype(compute)
        for v in (x, *params)
    ]


def within(
    owner: str, name: str, value: Any, low: float = 0.0, high: float = math.inf
) -> None:
    """An option from `low` to `high`. What is traced, or an array, is not looked at.

    Raises:
      ValueError: if it is not, or NaN.
    """
    if isinstance(value, int | float) and not low <= value <= high:
        wanted = f"{low:g} or more" if high == math.inf else f"from {low:g} to {high:g}"
        raise ValueError(
            f"{owner}: {name} is {wanted}, got {value!r}{at(user_source())}"
        )


def positive(owner: str, name: str, value: Any) -> None:
    """An option above 0. What is traced, or an array, is not looked at.

    Raises:
      ValueError: if it is not, or NaN.
    """
    if isinstance(value, int | float) and not value > 0:
        raise ValueError(
            f"{owner}: {name} is more than 0, got {value!r}{at(user_source())}"
        )


def is_floating(x: Any) -> bool:
    """Whether it is an array of floating-point numbers: real ones, no keys."""
    return td.is_array(x) and td.dtypes.is_float(td.typeof(x).dtype)


def floats_as(values: Any, dtype: Any) -> Any:
    """A pytree with its floating arrays in a dtype."""
    return tree.map(lambda x: x.astype(dtype) if is_floating(x) else x, values)


def as_array(x: Any) -> td.Array:
    """`x` itself if it is an array, be it NumPy's."""
    return x if td.is_array(x) else tnp.asarray(x)


def last_axis(layer: str, x: Any, size: int, name: str) -> td.Array:
    """`x` as an array, if its last axis has the length that the layer was made for.

    Raises:
      ValueError: naming the layer, what it takes, and what it got.
    """
    x = as_array(x)
    if x.ndim and x.shape[-1] == size:
        return x
    raise ValueError(
        f"{layer} takes arrays of shape (..., {name}={size}), got {td.typeof(x)}"
        f"{at(user_source())}{_hint(x, size)}"
    )


def _hint(x: Any, size: int) -> str:
    if size in x.shape:
        return f"\nAxis {x.shape.index(size)} has that length: `tnp.moveaxis` it last."
    return ""


def wide(x: Any) -> Any:
    """The array as statistics of it are computed: halves and integers as float32."""
    narrow = x.dtype.itemsize < 4 or not td.dtypes.is_differentiable(x.dtype)
    return x.astype(tnp.float32) if narrow else x


def narrow(out: Any, x: Any) -> Any:
    """What was computed from `wide(x)` in the dtype of x; of integers, as it is."""
    return out.astype(td.dtypes.to_float(x.dtype))


def scaled(out: Any, x: Any, weight: Any, bias: Any) -> Any:
    """``out * weight + bias`` of what was computed from `wide(x)`, in the dtype of x.
    A weight or bias that is None is left out."""
    if weight is not None:
        out = out * wide(weight)
    return narrow(out if bias is None else out + wide(bias), x)


_AXES = {1: "length", 2: "height, width", 3: "depth, height, width"}
"""What spatial axes are called, by how many there are."""


def spatial(layer: str, x: Any, rank: int, channels: int | None = None) -> td.Array:
    """`x` as an array, if it is (..., *spatial, channels) with `rank` spatial axes.

    Raises:
      ValueError: naming the layer, what it takes, and what it got.
    """
    x = as_array(x)
    if x.ndim > rank and channels in (None, x.shape[-1]):
        return x
    wanted = "channels" if channels is None else f"channels={channels}"
    axes = _AXES.get(rank, f"{rank} spatial axes")
    hint = ""
    if x.ndim > rank and x.shape[-1 - rank] == channels:
        hint = f"\nChannels are last: `tnp.moveaxis(x, {-1 - rank}, -1)`."
    elif channels == 1 and x.ndim >= rank:
        hint = "\nGive it an axis for the channel: `x[..., None]`."
    raise ValueError(
        f"{layer} takes arrays of shape (..., {axes}, {wanted}), got "
        f"{td.typeof(x)}{at(user_source())}{hint}"
    )


def per_axis(
    layer: str, name: str, value: Any, rank: int, low: int = 1
) -> tuple[int, ...]:
    """An option with an int for each spatial axis, given as one for all or each.

    Raises:
      ValueError: if it is neither, or one is less than `low`.
    """
    try:
        many = hasattr(value, "__len__")
        values = tuple([index(v) for v in (value if many else (value,) * rank)])
    except TypeError:
        values = ()
    if len(values) == rank and min(values) >= low:
        return values
    kind = {0: "a non-negative int", 1: "a positive int"}[low]
    each = "" if rank == 1 else f" or {_COUNTS.get(rank, rank)} of them"
    raise ValueError(
        f"{layer}: {name} is {kind}{each}, got {value!r}{at(user_source())}"
    )


_COUNTS = {2: "two", 3: "three"}


def padding(
    layer: str, value: Any, rank: int, names: tuple[str, ...] = ("SAME", "VALID")
) -> Padding:
    """An option that says what is added at both ends of each spatial axis: one of the
    names in any case, or a (before, after) pair for each axis, given as an int for all
    axes, an int for each, or pairs.

    Raises:
      ValueError: if it is none of these.
    """
    if isinstance(value, str) and value.upper() in names:
        return value.upper()
    try:
        each = value if hasattr(value, "__len__") else (value,) * rank
        ends = [v if hasattr(v, "__len__") else (v, v) for v in each]
        pairs = tuple([(index(before), index(after)) for before, after in ends])
    except (TypeError, ValueError):
        pairs = ()
    if len(pairs) == rank and min(map(min, pairs)) >= 0:
        return pairs
    quoted = ", ".join([f'"{name}"' for name in names])
    raise ValueError(
        f"{layer}: padding is {quoted}{', ' * bool(quoted)}an int, or an int or a pair "
        f"for each spatial axis ({rank} here), got {value!r}{at(user_source())}"
    )


Padding = str | tuple[tuple[int, int], ...]


def pads(
    padding: Padding, sizes: Sequence[int], reach: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """What `padding` says, as pairs, for axes with windows that reach over so many
    elements. "SAME" makes as many windows as strides fit; "CAUSAL" ends each window
    with the element of its own."""
    if padding == "VALID":
        return ((0, 0),) * len(sizes)
    if padding == "CAUSAL":
        return tuple([(r - 1, 0) for r in reach])
    if padding == "SAME":
        return tuple(td.lax.padtype_to_pads(sizes, reach, strides, padding))
    assert not isinstance(padding, str)
    return padding
