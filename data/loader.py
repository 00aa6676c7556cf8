"""Batches in a seeded order, which go on exactly where they stopped."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from treadle import rng
from treadle.data.ahead import ahead
from treadle.data.order import Order
from treadle.data.sources import Collate, check_state, source_of, whole
from treadle.errors import at, user_source

_AHEAD = 2
_OTHER = """\
the state is that of a loader with {name}={theirs}, this one has {ours}{at}
Only with the same data and options does it go on with the batch that comes next."""


_REMEDIES = {
    "dataset": "\nWhat it was made of is yours: keep it beside the loader.",
    "num_workers": "\nThreads are an argument: `data.Loader(..., workers=2)`.",
    "sampler": "\nThe order follows from `seed` and `shuffle`.",
    "batch_sampler": "\nThe order follows from `seed` and `shuffle`.",
    "collate_fn": "\nIt is an argument: `data.Loader(..., collate=...)`.",
    "map": "\nIt is an argument: `data.Loader(..., transform=...)`.",
    "batch": "\nIt is an argument: `data.Loader(..., batch_size=...)`.",
    "shuffle": "\nIt is an argument: `data.Loader(..., shuffle=True)`.",
    "state_dict": "\nIts state is `loader.state()`.",
    "load_state_dict": "\n`loader.restore(state)` goes to where a state was taken.",
}


class Loader:
    """Batches of a data set, in another random order each epoch.

    The order follows from the seed and the epoch alone, so the place in it is all the
    state there is: two numbers, saved as JSON or in a checkpoint.

    Iterating gives the rest of the epoch; the next time the next one. `repeat` goes on
    for ever.

    Args:
      data: a pytree of arrays whose first axes count the examples (memory maps, too);
        or an object with `__len__` and `__getitem__`, as data sets of PyTorch, Hugging
        Face `datasets` and Grain have; or a `data.Source`, which fetches whole batches.
      batch_size: examples per batch.
      seed: determines the orders.
      shuffle: whether there is any; else the examples come as they lie.
      drop_last: whether the examples that don't fill a batch are left out of an epoch;
        else the last batch is smaller.
      shard: ``(which, of how many)``: this process sees one part of each epoch, all of
        equal size.
      collate: makes a batch of examples that come one by one: `data.stack`, `data.pad`,
        or a function of your own.
      transform: changes each batch, before it is handed out.
      prefetch: how many batches are made ahead, in the background; None: 2, but none of
        arrays in memory, of which the batch is made as quickly as it is handed over.
      workers: threads that get examples which come one by one.

    Raises:
      ValueError: if arrays have different lengths, a batch has more examples than there
        are, or an option is none.
      TypeError: if `data` is none of these.

    >>> import numpy as np
    >>> images, labels = np.zeros((10, 8, 8), np.float32), np.arange(10)
    >>> loader = Loader({"x": images, "y": labels}, batch_size=4, seed=0)
    >>> [batch["x"].shape for batch in loader]
    [(4, 8, 8), (4, 8, 8)]
    >>> loader.state()["epoch"]
    1
    """

    def __init__(
        self,
        data: Any,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = True,
        shard: tuple[int, int] = (0, 1),
        collate: Collate | None = None,
        transform: Callable[[Any], Any] | None = None,
        prefetch: int | None = None,
        workers: int = 0,
    ) -> None:
        batch_size = whole("Loader", "batch_size", batch_size, 1)
        workers = whole("Loader", "workers", workers, 0)
        self._source = source_of(data, collate, workers)
        which, shards = shard if isinstance(shard, tuple) else (-1, -1)
        if not 0 <= which < shards:
            raise ValueError(
                f"Loader: shard is (which, of how many), got {shard}{at(user_source())}"
            )
        own = self._source.count // shards
        least = batch_size if drop_last else 1
        if own < least:
            of_shards = f" in each of {shards} shards" if shards > 1 else ""
            raise ValueError(
                f"Loader: batches of {batch_size} can't be made of {own} examples"
                f"{of_shards}{at(user_source())}"
            )
        seed = whole("Loader", "seed", seed, 0)
        self._size, self._seed, self._shuffle = batch_size, seed, shuffle
        self._drop, self._shard, self._own = drop_last, (which, shards), own
        self._transform = transform
        if prefetch is None:
            prefetch = _AHEAD if self._source.slow or transform else 0
        self._ahead = whole("Loader", "prefetch", prefetch, 0)
        self._place = 0, 0
        self._order: tuple[int, Order] | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            remedy = _REMEDIES.get(name, "")
            where = at(user_source()) if remedy else ""
            raise AttributeError(
                f"a Loader has no `{name}`{where}{remedy}", name=name, obj=self
            )

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return self._own // self._size if self._drop else -(-self._own // self._size)

    def __iter__(self) -> Generator[Any]:
        """The batches that are left of this epoch."""
        return self._run(self._place[0])

    def repeat(self) -> Generator[Any]:
        """Batches without end, epoch after epoch."""
        return self._run(None)

    @property
    def place(self) -> tuple[int, int]:
        """The epoch, and which of its batches comes next."""
        return self._place

    def state(self) -> dict[str, int | bool]:
        """Which batch comes next, and of what: numbers, for JSON or a checkpoint."""
        epoch, batch = self._place
        return {"epoch": epoch, "batch": batch, **self._identity()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes to the place that a state tells.

          Raises:
            TypeError: if it is no state of a loader.
        ValueError: if it is the state of a loader with other data or options.
        """
        check_state("Loader", self.state(), state)
        for name, ours in self._identity().items():
            if int(state[name]) != ours:
                raise ValueError(
                    _OTHER.format(
                        name=name, theirs=state[name], ours=ours, at=at(user_source())
                    )
                )
        self._place = int(state["epoch"]), int(state["batch"])

    def _identity(self) -> dict[str, int | bool]:
        which, shards = self._shard
        return {
            "examples": self._source.count,
            "batch_size": self._size,
            "seed": self._seed,
            "shuffle": self._shuffle,
            "drop_last": self._drop,
            "shard": which,
            "shards": shards,
        }

    def _run(self, last: int | None) -> Generator[Any]:
        items = self._items(last)
        for batch, place in ahead(items, self._ahead) if self._ahead else items:
            # Before it is handed out: what is saved while it is used comes after it.
            self._place = place
            yield batch

    def _items(self, last: int | None) -> Generator[tuple[Any, tuple[int, int]]]:
        """Batches from the present place on, each with the place after it."""
        epoch, number = self._place
        while last is None or epoch <= last:
            batch = self._source.fetch(self._numbers(epoch, number))
            if self._transform is not None:
                batch = self._transform(batch)
            number += 1
            if number == len(self):
                epoch, number = epoch + 1, 0
            yield batch, (epoch, number)

    def _numbers(self, epoch: int, number: int) -> np.ndarray:
        begin = number * self._size
        end = min(begin + self._size, self._own)
        first = self._shard[0] * self._own
        places = slice(first + begin, first + end)
        if not self._shuffle:
            return np.arange(places.start, places.stop)
        if self._order is None or self._order[0] != epoch:
            key = rng.fold_in(rng.key(self._seed), epoch)
            self._order = epoch, Order(key, self._source.count)
        return self._order[1][places]
