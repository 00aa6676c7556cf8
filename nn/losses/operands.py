"""What losses demand of their arguments, and the dtype that they compute in."""

from __future__ import annotations

from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle.errors import at, user_source
from treadle.nn import check

Array = td.Array


def same(name: str, prediction: Any, *targets: Any) -> tuple[Array, ...]:
    """All as arrays of one shape, in the dtype in which the loss is computed: to
    broadcast (n,) against (n, 1) is a slip.

    Raises:
      ValueError: if the shapes differ.
    """
    arrays = [check.as_array(x) for x in (prediction, *targets)]
    if any(x.shape != arrays[0].shape for x in arrays[1:]):
        types = [str(td.typeof(x)) for x in arrays]
        raise ValueError(
            f"{name} takes {'two' if len(arrays) == 2 else 'three'} arrays of one "
            f"shape; got {', '.join(types[:-1])} and {types[-1]}{at(user_source())}\n"
            "Broadcasting is not meant here: `x[..., None]` or `x.reshape(...)` first."
        )
    wide = check.wide(arrays[0])
    return wide, *[x.astype(wide.dtype) for x in arrays[1:]]


def narrow(loss: Array, prediction: Any) -> Array:
    """The loss in the dtype of the predictions."""
    return check.narrow(loss, check.as_array(prediction))


def among(values: Array, where: Any) -> Array:
    """The values that count, and 0 for the others."""
    return values if where is None else tnp.where(where, values, 0)


def by_number(name: str, logits: Array, labels: Array) -> bool:
    """Whether labels are numbers of classes, not probabilities of each.

    Raises:
      ValueError: if the shapes don't fit.
    """
    numbers = td.dtypes.is_integer(labels.dtype)
    if labels.shape == (logits.shape[:-1] if numbers else logits.shape):
        return numbers
    raise ValueError(
        f"{name} takes logits (..., classes) and integer labels (...), or "
        f"probabilities (..., classes); got logits {td.typeof(logits)} and labels "
        f"{td.typeof(labels)}{at(user_source())}{_labels_remedy(logits, labels)}"
    )


def _labels_remedy(logits: Array, labels: Array) -> str:
    numbers = td.dtypes.is_integer(labels.dtype)
    if labels.shape == logits.shape:  # one-hot
        return "\nGive classes, `labels.argmax(-1)`, or floats, `labels.astype(float)`."
    if labels.shape == logits.shape[:-1]:
        return "\nClasses are integers: `labels.astype(int)`."
    if numbers and labels.shape == (*logits.shape[:-1], 1):
        return "\nOne class for each row of logits: `labels[..., 0]`."
    return ""


def chosen(labels: Array, classes: Any) -> Array:
    """Where each label's class is, (..., classes); a masked sum rather than a gather
    fuses with the pass over the row, and so does its derivative."""
    if labels.dtype.itemsize < 4:  # can't count to the number of classes, perhaps
        labels = labels.astype(tnp.int32)
    return labels[..., None] == tnp.arange(classes, dtype=labels.dtype)
