"""What layers demand of their inputs, and how they say so; the dtype of sums."""

from __future__ import annotations

from operator import index
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle.errors import at, user_source, warn

_TOO_WIDE = """\
{layer} computes in {dtype}, and takes a {found} in it{at}
Convert the data once, before training: `x.astype(np.{dtype})`. For a model that \
computes in {found.dtype}, make its parameters so: `param_dtype=` of its layers."""


class PrecisionWarning(UserWarning):
    """Data are wider than what the model computes in."""


def dtype(value: Any) -> Any:
    """The `dtype` option of a layer as its field: None, or one that hashes."""
    return None if value is None else td.dtypes.canonical(value)


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
    if compute is None:
        given = [p for p in params if p is not None]
        compute = tnp.result_type(*given) if given else td.dtypes.to_float(found.dtype)
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


def image(layer: str, x: Any, channels: int | None = None) -> td.Array:
    """`x` as an array, if it is (..., height, width, channels).

    Raises:
      ValueError: naming the layer, what it takes, and what it got.
    """
    x = as_array(x)
    if x.ndim >= 3 and channels in (None, x.shape[-1]):
        return x
    wanted = "channels" if channels is None else f"channels={channels}"
    hint = ""
    if x.ndim >= 3 and x.shape[-3] == channels:
        hint = "\nChannels are last: `tnp.moveaxis(x, -3, -1)`."
    raise ValueError(
        f"{layer} takes arrays of shape (..., height, width, {wanted}), got "
        f"{td.typeof(x)}{at(user_source())}{hint}"
    )


def pair(layer: str, name: str, value: Any) -> tuple[int, int]:
    """A positive option for height and width, given as one number or two.

    Raises:
      ValueError: if it is neither.
    """
    try:
        values = tuple(map(index, value if hasattr(value, "__len__") else (value,) * 2))
    except TypeError:
        values = ()
    if len(values) != 2 or min(values) < 1:
        raise ValueError(
            f"{layer}: {name} is a positive int or two of them, got {value!r}"
            f"{at(user_source())}"
        )
    return values[0], values[1]


def padding(
    layer: str, value: Any, sizes: tuple, window: tuple, strides: tuple
) -> tuple[tuple[int, int], tuple[int, int]]:
    """The elements to add before and after, for height and width.

    value: "SAME" (as many outputs as strides fit in the input), "VALID" (none), an int,
    an int each for height and width, or a (before, after) pair each.

    Raises:
      ValueError: if it is none of these.
    """
    if value == "VALID":
        return (0, 0), (0, 0)
    if value == "SAME":
        pads = []
        for n, k, s in zip(sizes, window, strides, strict=True):
            total = max((-(-n // s) - 1) * s + k - n, 0)
            pads.append((total // 2, total - total // 2))
        return tuple(pads)  # type: ignore[return-value]
    if isinstance(value, int):
        return (value, value), (value, value)
    if isinstance(value, tuple | list) and len(value) == 2:
        ends = [(v, v) if isinstance(v, int) else tuple(v) for v in value]
        if all(len(e) == 2 for e in ends):
            return tuple(ends)  # type: ignore[return-value]
    raise ValueError(
        f'{layer}: padding is "SAME", "VALID", an int, or two ints or pairs, '
        f"got {value!r}"
    )
