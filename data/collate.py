"""Batches made of examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import tree
from treadle.errors import at, user_source

_SHAPES = """\
examples of one batch have different shapes in {place}: {shapes}{at}
To fill up the shorter ones: `collate=data.pad`."""
_FORMS = """\
examples of one batch are different pytrees: {first} and {other}{at}
Give a function of your own that makes a batch of examples: `collate=`."""
_SMALL = {np.dtype(float): np.float32, np.dtype(int): np.int32}


def stack(examples: Sequence[Any]) -> Any:
    """The examples as one pytree of arrays with an axis more in front.

    Python's numbers, and lists of them, become float32 or int32. Strings stay a list.

    Raises:
      ValueError: if there are none, or they are different pytrees, or differ in shapes.

    >>> stack([{"x": [1.0, 2.0], "label": 3}, {"x": [5.0, 6.0], "label": 7}])
    {'label': array([3, 7], dtype=int32), 'x': array([[1., 2.],
           [5., 6.]], dtype=float32)}
    """
    return _columns(examples, _stacked)


def pad(examples: Sequence[Any], value: Any = 0, multiple_of: int = 1) -> Any:
    """The same, of arrays that differ in shapes: shorter ones are filled up at the end.

    Args:
      value: what they are filled up with.
      multiple_of: what the lengths of the batch are rounded up to.

    >>> pad([[1, 2, 3], [4]])
    array([[1, 2, 3],
           [4, 0, 0]], dtype=int32)
    """
    if multiple_of < 1:
        raise ValueError(
            f"pad: multiple_of is 1 or more, got {multiple_of!r}{at(user_source())}"
        )

    def padded(place: str, arrays: list[np.ndarray]) -> np.ndarray:
        if len({x.ndim for x in arrays}) > 1:
            return _stacked(place, arrays)
        lengths = np.max([x.shape for x in arrays], axis=0, initial=0)
        whole = [-(-int(n) // multiple_of) * multiple_of for n in lengths]
        made = np.full((len(arrays), *whole), value, np.result_type(*arrays))
        for row, x in zip(made, arrays, strict=True):
            row[tuple([slice(n) for n in x.shape])] = x
        return made

    return _columns(examples, padded)


def _columns(examples: Sequence[Any], join: Any) -> Any:
    rows = []
    form: tree.Structure | None = None
    for example in examples:
        leaves, own = tree.flatten(example, is_leaf=lambda x: isinstance(x, list))
        if form is not None and own != form:
            raise ValueError(_FORMS.format(first=form, other=own, at=at(user_source())))
        form = own
        rows.append(leaves)
    if form is None:
        raise ValueError(f"a batch is of one example or more{at(user_source())}")
    columns = [
        list(column)
        if isinstance(column[0], str | bytes)
        else join(tree.key_name(path) or "them", [_array(x) for x in column])
        for path, column in zip(tree.paths(form), zip(*rows, strict=True), strict=True)
    ]
    return form.unflatten(columns)


def _stacked(place: str, arrays: list[np.ndarray]) -> np.ndarray:
    shapes = {x.shape for x in arrays}
    if len(shapes) > 1:
        shown = ", ".join(map(str, sorted(shapes)[:4]))
        raise ValueError(
            _SHAPES.format(place=place, shapes=shown, at=at(user_source()))
        )
    return np.stack(arrays)


def _array(x: Any) -> np.ndarray:
    found = np.asarray(x)
    if isinstance(x, int | float | list) and not isinstance(x, bool | np.generic):
        small = _SMALL.get(found.dtype)
        if small is not None and (small is np.float32 or _fits(found)):
            return found.astype(small)
    return found


def _fits(x: np.ndarray) -> bool:
    return bool((np.abs(x) < 1 << 31).all())
