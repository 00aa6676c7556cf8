"""Work that is done ahead, in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class _End:
    """What comes after the last item. error: why it was the last one, if it failed."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def ahead(items: Iterator[T], count: int) -> Iterator[T]:
    """The same items, of which up to `count` are made before they are asked for.

    An error comes where its item would have come. The thread ends with the iterator.
    """
    made: queue.Queue[Any] = queue.Queue(count)
    over = threading.Event()
    worker = threading.Thread(
        target=_make, args=(items, made, over), name="treadle-data", daemon=True
    )
    worker.start()
    try:
        while True:
            item = made.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        over.set()
        # It may wait for a place.
        while worker.is_alive():
            try:
                made.get_nowait()
            except queue.Empty:
                worker.join(0.001)


def _make(items: Iterator[Any], made: queue.Queue[Any], over: threading.Event) -> None:
    end = _End(None)
    try:
        for item in items:
            made.put(item)
            if over.is_set():
                return
    except BaseException as error:
        end = _End(error)
    made.put(end)
