"""Batches of examples that can only be had one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from treadle.data.ahead import ahead
from treadle.data.collate import stack
from treadle.data.sources import Collate, check_state, whole
from treadle.errors import at, user_source

_EMPTY = "an epoch has fewer examples than a batch of {size}{at}"


class _Place(NamedTuple):
    """epoch, batch: which batch comes next. source: what the examples' own iterator
    says of its place, if it does."""

    epoch: int
    batch: int
    source: Any = None


class Stream:
    """Batches of what can only be iterated over: files read in order, PyTorch's and
    Hugging Face's iterable data sets, a Grain pipeline.

    Iterating gives the rest of an epoch, as with a `Loader`; an epoch ends when the
    examples do. To go on after a restart, iterators that know their place
    (`get_state`/`set_state` as Grain's, `state_dict`/`load_state_dict` as Hugging
    Face's) are asked for it and set to it; of others, the examples that were seen
    are passed over.

    Args:
      examples: can be iterated over anew for each epoch; or a function that gives an
        iterator for the number of an epoch.
      batch_size: examples per batch.
      drop_last: whether examples that don't fill the last batch are left out.
      collate, transform, prefetch: as those of `Loader`.

    >>> stream = Stream(lambda epoch: iter(range(5)), batch_size=2)
    >>> [batch.tolist() for batch in stream]
    [[0, 1], [2, 3]]
    """

    def __init__(
        self,
        examples: Iterable[Any] | Callable[[int], Iterator[Any]],
        batch_size: int,
        *,
        drop_last: bool = True,
        collate: Collate = stack,
        transform: Callable[[Any], Any] | None = None,
        prefetch: int = 2,
    ) -> None:
        if not (callable(examples) or hasattr(examples, "__iter__")):
            raise TypeError(
                "Stream takes examples to iterate over, or a function that gives an "
                f"iterator of them; got {type(examples).__name__}{at(user_source())}"
            )
        if hasattr(examples, "__next__"):
            raise TypeError(
                f"Stream needs its examples anew each epoch, but a "
                f"{type(examples).__name__} ends once{at(user_source())}\n"
                "Give a function that makes one: `lambda epoch: ...`."
            )
        self._size = whole("Stream", "batch_size", batch_size, 1)
        self._ahead = whole("Stream", "prefetch", prefetch, 0)
        self._examples, self._drop = examples, drop_last
        self._collate, self._transform = collate, transform
        self._place = _Place(0, 0)

    def __iter__(self) -> Iterator[Any]:
        """The batches that are left of this epoch."""
        epoch = self._place.epoch
        items = self._items()
        for batch, place in ahead(items, self._ahead) if self._ahead else items:
            self._place = place
            yield batch
        self._place = _Place(epoch + 1, 0)

    def repeat(self) -> Iterator[Any]:
        """Batches without end, epoch after epoch.

        Raises:
          ValueError: if an epoch has too few examples for a batch.
        """
        while True:
            empty = self._place.batch == 0
            for batch in self:
                empty = False
                yield batch
            if empty:
                raise ValueError(_EMPTY.format(size=self._size, at=at(user_source())))

    def state(self) -> dict[str, Any]:
        """Which batch comes next: for JSON or a checkpoint."""
        return {**self._place._asdict(), "batch_size": self._size}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes to the place that a state tells.

        Raises:
          ValueError: if it is that of a stream of other batches.
        """
        check_state("Stream", self.state(), state)
        if int(state["batch_size"]) != self._size:
            raise ValueError(
                f"the state is that of a stream of batches of {state['batch_size']}, "
                f"these are of {self._size}{at(user_source())}"
            )
        self._place = _Place(int(state["epoch"]), int(state["batch"]), state["source"])

    def _items(self) -> Iterator[tuple[Any, _Place]]:
        """Batches from the present place on, each with the place after it."""
        epoch, number, source = self._place
        examples, keeper = self._open(epoch)
        if source is not None and keeper is not None:
            keeper.set(source)
        else:
            seen = number * self._size
            next(itertools.islice(examples, seen, seen), None)
        while found := list(itertools.islice(examples, self._size)):
            if len(found) < self._size and self._drop:
                return
            batch = self._collate(found)
            if self._transform is not None:
                batch = self._transform(batch)
            number += 1
            yield batch, _Place(epoch, number, keeper.get() if keeper else None)

    def _open(self, epoch: int) -> tuple[Iterator[Any], _Keeper | None]:
        source: Any = self._examples
        if not hasattr(source, "__iter__"):
            examples = source(epoch)
            return examples, _keeper(examples)
        if hasattr(source, "set_epoch"):
            source.set_epoch(epoch)
        examples = iter(source)
        return examples, _keeper(examples) or _keeper(source)


class _Keeper(NamedTuple):
    """Of an iterator that knows its place: how to ask for it, and to go there."""

    get: Callable[[], Any]
    set: Callable[[Any], None]


def _keeper(examples: Any) -> _Keeper | None:
    for get, set in (("get_state", "set_state"), ("state_dict", "load_state_dict")):
        if hasattr(examples, get) and hasattr(examples, set):
            return _Keeper(getattr(examples, get), getattr(examples, set))
    return None
