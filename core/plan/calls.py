"""What is known of a repeated call of a compiled program: a device may make a quick
path of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from treadle.arraytype import ArrayType
from treadle.reading import Reading
from treadle.structure import Structure

Path = Callable[[tuple, dict], Any]
"""From (args, kwargs) to the result, a pytree, or NotImplemented for arguments that are
not what the path was made for."""


class Runnable(Protocol):
    """A linked program as one call: ``run`` gets the address of an array of words (of
    the arena, the inputs, the outputs, the constants, then `slot_count` minus their
    number more) and gives 0, or another number if it failed."""

    @property
    def slot_count(self) -> int: ...

    def run(self, slots: int) -> int: ...


class Signature(NamedTuple):
    """What a path may be called with.

    captured: arrays that come before the arguments' leaves. types: of both, in order.
    prepare: makes an Array of a leaf that is none, or whose address is not known; None
      if that can't be.
    """

    captured: tuple[Any, ...]
    args: Reading
    kwargs: Reading
    types: Sequence[ArrayType]
    prepare: Callable[[Any], Any]


class Run(NamedTuple):
    """What a path runs: `Executable` explains the words.

    outputs: type and size class of each result, and the argument whose memory it may
      take over (-1: none).
    donated: the leaves that are given up. marker: what their `_view` is from then on.
    fail: raises what stopped a program. form: the structure of the result.
    """

    program: Any
    arena: Any
    slots: int
    outputs: Sequence[tuple[ArrayType, Any, int]]
    constants: Sequence[int]
    donated: Sequence[int]
    marker: Any
    fail: Callable[[], Any]
    form: Structure
