"""Models in another dtype."""

from __future__ import annotations

from typing import Any, TypeVar

import treadle as td
from treadle import tree
from treadle.errors import at, user_source
from treadle.nn.state import State

Model = TypeVar("Model")


def cast(model: Model, dtype: Any, where: Any = None) -> Model:
    """A model whose floating arrays have another dtype: parameters and buffers.

    Layers compute in the dtype of their parameters, so a model that is cast to bfloat16
    computes in it; those with a `dtype` of their own keep that. What State cells hold
    (running statistics) stays as it is.

    Args:
      where: what `treadle.tree.select` takes: patterns (``"encoder"``), a class, a
        function of path and array, a mask; all by default.

    Raises:
      TypeError: for a dtype that is none of floating-point numbers.

    >>> import treadle as td
    >>> from treadle import nn, rng
    >>> mlp = nn.MLP((2, 8, 1), key=rng.key(0))
    >>> nn.cast(mlp, td.bfloat16, where="layers.0").layers[0]
    Linear(in_features=2, out_features=8, weight=bf16[2,8], bias=bf16[8])
    """
    dtype = td.dtypes.canonical(dtype)
    if not td.dtypes.is_float(dtype):
        raise TypeError(
            f"nn.cast is for floating dtypes, such as bfloat16; got {dtype}"
            f"{at(user_source())}"
        )
    cells = tree.select(State, required=False)
    chosen = tree.select(True if where is None else where) & ~cells
    leaves, form = tree.flatten(model)
    pairs = zip(leaves, chosen.flags(leaves, form), strict=True)
    return form.unflatten(
        [x.astype(dtype) if wanted and _is_floating(x) else x for x, wanted in pairs]
    )


def _is_floating(x: Any) -> bool:
    return td.is_array(x) and td.dtypes.is_float(td.typeof(x).dtype)
