"""Where examples come from: arrays, and objects that give examples by their number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from operator import index
from typing import Any

import numpy as np

import treadle as td
from treadle import tree
from treadle.data.collate import stack
from treadle.errors import at, user_source

Collate = Callable[[Sequence[Any]], Any]
"""From examples to a batch of them."""

_LENGTHS = """\
arrays of different lengths can't be the examples of one data set{at}
{found}
The first axis counts the examples."""
_NO_SOURCE = """\
a data set is a pytree of arrays, or has `__len__` and `__getitem__`, or is a \
`data.Source`; got {found}{at}"""
_COUNT = """\
a Source was asked for {wanted} examples, and fetched{place} {found}{at}
The first axes of what `fetch(numbers)` gives count examples: one for each number."""
_STREAM = """
What can only be iterated over goes in a `data.Stream`."""


@dataclass(frozen=True)
class Source:
    """Examples that are had by their numbers.

    fetch: from the numbers of some examples, as int64 (n,), to a batch of them: a
      pytree of arrays whose first axes count them.
    count: how many examples there are.
    slow: whether to fetch ahead, in the background.

    >>> squares = Source(lambda numbers: numbers**2, count=100)
    >>> squares.fetch(np.array([3, 5]))
    array([ 9, 25])
    """

    fetch: Callable[[np.ndarray], Any]
    count: int
    slow: bool = True


def whole(owner: str, name: str, value: Any, least: int) -> int:
    """An option that counts something.

    Raises:
      ValueError: if it is no int, or less than `least`.
    """
    if hasattr(value, "__index__") and index(value) >= least:
        return index(value)
    raise ValueError(
        f"{owner}: {name} is an int of {least} or more, got {value!r}"
        f"{at(user_source())}"
    )


def check_state(owner: str, own: Mapping[str, Any], given: Any) -> None:
    """
    Raises:
      TypeError: if what was given to `restore` lacks what a state has.
    """
    if not isinstance(given, Mapping) or not own.keys() <= given.keys():
        raise TypeError(
            f"{owner}.restore takes what `state()` gave, a dict of {', '.join(own)}; "
            f"got {given!r:.80}{at(user_source())}"
        )


def source_of(data: Any, collate: Collate | None = None, workers: int = 0) -> Source:
    """A data set as a source.

    data: a pytree of arrays, whose first axes count the examples; or an object with
      `__len__` and `__getitem__`, as PyTorch's data sets, Hugging Face's and Grain's
      sources; or a `Source`, or what has one as its attribute `source`.
    collate: how a batch is made of examples that come one by one.
    workers: threads that get them.

    Raises:
      ValueError: if arrays have different lengths.
      TypeError: if it is none of these.
    """
    if isinstance(data, Source):
        return replace(data, fetch=_counted(data.fetch))
    if isinstance(getattr(data, "source", None), Source):
        return data.source
    if _is_arrays(data):
        return _of_arrays(data)
    if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        remedy = _STREAM if hasattr(data, "__iter__") else ""
        text = _NO_SOURCE.format(found=type(data).__name__, at=at(user_source()))
        raise TypeError(text + remedy)
    if hasattr(data, "with_format") and hasattr(data, "column_names"):
        columns = data.with_format("numpy")
        if collate is None:
            return Source(lambda numbers: columns[numbers], len(data))
    return Source(_one_by_one(data, collate or stack, workers), len(data))


def _counted(fetch: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], Any]:
    """A user's `fetch`, whose batches have as many examples as were asked for."""

    def fetched(numbers: np.ndarray) -> Any:
        batch = fetch(numbers)
        for path, x in tree.flatten_with_path(batch)[0]:
            if td.is_array(x) and np.ndim(x) and np.shape(x)[0] != len(numbers):
                raise ValueError(
                    _COUNT.format(
                        wanted=len(numbers),
                        place=f" in {tree.key_name(path)}" if path else "",
                        found=td.typeof(x),
                        at=at(user_source()),
                    )
                )
        return batch

    return fetched


def _is_arrays(data: Any) -> bool:
    # Lists count as pytrees; a list of examples has a length and items, too.
    leaves = tree.leaves(data)
    return bool(leaves) and all(
        td.is_array(x) and not isinstance(x, np.generic) and np.ndim(x) for x in leaves
    )


def _of_arrays(data: Any) -> Source:
    lengths = {
        tree.key_name(path) or "it": x.shape[0]
        for path, x in tree.leaves_with_path(data)
    }
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name}: {n}" for name, n in lengths.items())
        raise ValueError(_LENGTHS.format(found=found, at=at(user_source())))
    # A memory map stays one: `np.asarray` would make a view without its class.
    arrays = tree.map(lambda x: np.asarray(x) if isinstance(x, td.Array) else x, data)
    slow = any(isinstance(x, np.memmap) for x in tree.leaves(arrays))
    (count,) = set(lengths.values())
    return Source(lambda n: tree.map(lambda x: x.take(n, 0), arrays), count, slow)


def _one_by_one(
    data: Any, collate: Collate, workers: int
) -> Callable[[np.ndarray], Any]:
    pool = ThreadPoolExecutor(workers, "treadle-data") if workers else None

    def example(number: int) -> Any:
        try:
            return data[number]
        except Exception as error:
            error.add_note(f"(example {number} of {type(data).__name__})")
            raise

    def fetch(numbers: np.ndarray) -> Any:
        wanted = numbers.tolist()
        many = getattr(data, "__getitems__", None)
        if pool is not None:
            found = list(pool.map(example, wanted))
        elif many is not None:
            found = many(wanted)
        else:
            found = [example(n) for n in wanted]
        return collate(found)

    return fetch
