"""The named parts of a step, each of which can be restored alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from treadle import tree
from treadle.checkpoint import orbax_format
from treadle.tree import LEAF

# What objects call the pair that tells their place and goes to one.
_PAIRS = (
    ("state", "restore"),
    ("get_state", "set_state"),
    ("state_dict", "load_state_dict"),
)
_NAME = re.compile(r"(?!data-)\w[\w.-]*")


class Items(dict[str, Any]):
    """Several named things that are saved together, and restored together or alone.

    A thing is a pytree, a `Json`, or an object that knows its place: a `data.Loader`,
    an iterator of Grain's, whatever has ``state`` and ``restore``, ``get_state`` and
    ``set_state``, or ``state_dict`` and ``load_state_dict``.

    To restore, give `Items` with a template for each that is wanted: a pytree; the
    object that is to go to its place; or None for what was saved, as it was saved.

    >>> import numpy as np
    >>> from treadle import data
    >>> from treadle.checkpoint import restore, save
    >>> loader = data.Loader(np.arange(6), batch_size=2)
    >>> first = next(iter(loader))
    >>> save("all", Items(model={"w": 1.0}, data=loader, config=Json({"layers": [2]})))
    >>> again = data.Loader(np.arange(6), batch_size=2)
    >>> restore("all", Items(config=None, data=again))["config"], again.place
    ({'layers': [2]}, (0, 1))
    >>> restore("all", item="model")
    {'w': 1.0}
    """

    def __init__(self, *items: Any, **named: Any) -> None:
        super().__init__(*items, **named)
        for name in self:
            reserved = name in (orbax_format.METRICS, "descriptor")
            if not isinstance(name, str) or reserved or not _NAME.fullmatch(name):
                raise ValueError(
                    f"no item can be called {name!r}: names are made of letters, "
                    "digits, '_', '-' and '.', and 'metrics' is taken"
                )


class Json(NamedTuple):
    """What is saved as JSON: dicts, lists, strings, numbers, booleans, None."""

    value: Any


class Keeper(NamedTuple):
    """Of an object that knows its place: how to ask for it, and to go there."""

    get: Callable[[], Any]
    set: Callable[[Any], None]


def keeper(value: Any) -> Keeper | None:
    """How an object's place is told; None for a pytree."""
    if isinstance(value, Json | Items) or tree.structure(value) is not LEAF:
        return None
    for get, go in _PAIRS:
        if callable(getattr(value, get, None)) and callable(getattr(value, go, None)):
            return Keeper(getattr(value, get), getattr(value, go))
    return None


def as_json(name: str, value: Any) -> Any:
    """A copy of what JSON holds.

    Raises:
      TypeError: if JSON can't hold it.
    """
    try:
        copy = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"{name} can't be JSON: {error}") from error
    if copy != _lists(value):
        raise TypeError(f"{name} can't be JSON: the keys of a dict are strings")
    return copy


def _lists(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_lists(one) for one in value]
    if isinstance(value, dict):
        return {key: _lists(one) for key, one in value.items()}
    return value
