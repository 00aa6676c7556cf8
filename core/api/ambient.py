"""Ambient values: what a function reads and writes without taking and returning it.

The state cells of layers and the stream from which they draw keys change while a model
runs. Whoever keeps such values makes an `Ambient` of them. A loop then carries them
from iteration to iteration, `cond` takes them from the branch that ran, and `remat`
returns them: the program does what its plain Python would.

Other transforms leave them alone: what one call of `vmap`, `jit` or `grad` writes has
no meaning outside of it. `Ambient.transform` says to which call the values belong.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from treadle import tree
from treadle.errors import at, user_source
from treadle.trace.interpreter import state
from treadle.trace.value import typeof


class Ambient(ABC):
    """Values that loops, branches and `remat` take along while they are `opened`.

    >>> import treadle as td, treadle.numpy as tnp
    >>> class Tally(td.Ambient):
    ...     count = 0
    ...
    ...     def read(self):
    ...         return self.count
    ...
    ...     def write(self, values):
    ...         self.count = values
    >>> def body(carry, x):
    ...     tally.count = tally.count + x
    ...     return carry, None
    >>> with Tally().opened() as tally:
    ...     _ = td.scan(body, None, tnp.array([1, 2, 3]))
    >>> tally.count
    Array(6, dtype=int32)
    """

    transform: Any = None
    """The call of a transform to which the values belong, as `current_transform` gives
    it. In another one they may be read, but must not be written."""

    @abstractmethod
    def read(self) -> Any:
        """The values now: a pytree of arrays and numbers."""

    @abstractmethod
    def write(self, values: Any) -> None:
        """Puts others in their place."""

    @contextmanager
    def opened(self) -> Iterator[Self]:
        """Makes the values ambient for a block. They belong to the transform in which
        it stands."""
        self.transform = state.interpreter
        _open.stack.append(self)
        try:
            yield self
        finally:
            _open.stack.pop()


class _Open(threading.local):
    def __init__(self) -> None:
        self.stack: list[Ambient] = []


_open = _Open()


def ambients() -> Sequence[Ambient]:
    """What is open now, the innermost last.

    >>> ambients()
    ()
    """
    return tuple(_open.stack)


_CHANGED = """\
{}: what {} changes without passing it (a state cell, a random stream) must keep its \
structure and types
  goes in:   {before}
  comes out: {after}{}
Give it a value of that type before."""


class Surroundings:
    """The ambients that belong to the transform that is running, and their values."""

    def __init__(self) -> None:
        self.home = state.interpreter
        self.ambients = [a for a in _open.stack if a.transform is self.home]
        self.leaves, self.form = self.now()

    def now(self) -> tuple[list[Any], tree.Structure]:
        """The leaves of what the ambients hold at this moment, and their structure."""
        return tree.flatten([a.read() for a in self.ambients])

    def kept_values(self, what: str, name: str) -> list[Any]:
        """The leaves at this moment, inside the body of a loop or branch.

        Raises:
          TypeError: if their structure or types have changed.
        """
        leaves, form = self.now()
        types, before = [
            [typeof(x).strong() for x in values] for values in (leaves, self.leaves)
        ]
        if form == self.form and types == before:
            return leaves
        shown = [f"{t} as {f}" for t, f in ((before, self.form), (types, form))]
        raise TypeError(
            _CHANGED.format(
                what, name, at(user_source()), before=shown[0], after=shown[1]
            )
        )

    def put(self, leaves: Sequence[Any], form: tree.Structure | None = None) -> None:
        """Gives the ambients other values, of the transform that is running."""
        values = (form or self.form).unflatten(leaves)
        for ambient, value in zip(self.ambients, values, strict=True):
            ambient.write(value)
            ambient.transform = state.interpreter

    def update(self, places: Sequence[int], values: Sequence[Any]) -> None:
        """Gives some leaves other values."""
        leaves = list(self.leaves)
        for i, value in zip(places, values, strict=True):
            leaves[i] = value
        self.put(leaves)

    @contextmanager
    def inside(self, leaves: Sequence[Any]) -> Iterator[None]:
        """For the body of a transform: the ambients have these values, and afterwards
        those that they had."""
        self.put(leaves)
        try:
            yield
        finally:
            self.put(self.leaves)
            for ambient in self.ambients:
                ambient.transform = self.home

    def changed(self, leaves: Sequence[Any]) -> list[int]:
        """Which leaves are not those that were found here."""
        pairs = zip(leaves, self.leaves, strict=True)
        return [i for i, (new, old) in enumerate(pairs) if new is not old]
