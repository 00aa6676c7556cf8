"""Models in another dtype."""

from __future__ import annotations

from typing import Any, TypeVar

import treadle as td
from treadle import tree
from treadle.nn.check import is_floating
from treadle.nn.state import State

Model = TypeVar("Model")


def cast(model: Model, dtype: Any, where: Any = None, *, state: bool = False) -> Model:
    """A model whose floating arrays have another dtype: parameters and buffers.

    Layers compute in the dtype of their parameters, so a model that is cast to bfloat16
    computes in it; those with a `dtype` of their own keep that. To compute in another
    dtype than that of the parameters: `nn.Precision`.

    Args:
      where: what `treadle.tree.select` takes: patterns (``"encoder"``), a class, a
        function of path and array, a mask; all by default.
      state: whether what State cells hold (running statistics, caches) is cast too.

    >>> import treadle as td
    >>> from treadle import nn, rng
    >>> mlp = nn.MLP((2, 8, 1), key=rng.key(0))
    >>> nn.cast(mlp, td.bfloat16, where="layers.0").layers[0]
    Linear(in_features=2, out_features=8, weight=bf16[2,8], bias=bf16[8])
    """
    dtype = td.dtypes.canonical(dtype)
    chosen = tree.select(True if where is None else where)
    if not state:
        chosen &= ~tree.select(State, required=False)
    leaves, form = tree.flatten(model)
    pairs = zip(leaves, chosen.flags(leaves, form), strict=True)
    return form.unflatten(
        [x.astype(dtype) if wanted and is_floating(x) else x for x, wanted in pairs]
    )
