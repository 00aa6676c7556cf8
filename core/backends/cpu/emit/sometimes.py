"""Stores at places that data say, which happen only where those are inside an array.

A nest says so by a choice between what is to be stored and what changes nothing: what
is there, or the neutral element. A vector of places is written so; but a row at one
place, or one element, is left alone where its place is outside, which takes less.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from treadle.backends.cpu.emit.reduce import COMBINING, Reduction
from treadle.ir import scalar
from treadle.kernels.lower import NestOrder, is_store
from treadle.kernels.nest import BROADCAST, CONTIGUOUS, Nest


class Kept(NamedTuple):
    """Of a store that leaves what is there unless a condition holds.

    left_out: what need not be done: the choice, and the load of what is there.
    """

    where: int
    value: int
    left_out: tuple[int, ...]


def kept_where_not(plan: NestOrder) -> dict[int, Kept]:
    """By store, those of a nest that happen sometimes."""
    nest, found = plan.nest, {}
    users = Counter(a for instr in nest.body for a in instr.args)
    for i, instr in enumerate(nest.body):
        if not is_store(instr) or len(instr.args) < 2:
            continue
        choice = instr.args[0]
        if nest.body[choice].name != scalar.SELECT or users[choice] > 1:
            continue
        where, value, other = nest.body[choice].args
        if any(plan.varying[a] for a in (where, *instr.args[1:])):
            continue
        if nest.operands[instr.attr].inner not in (BROADCAST, CONTIGUOUS):
            continue
        if instr.name != "store" and _is_neutral(nest, i, other):
            found[i] = Kept(where, value, (choice,))
        elif _is_there(nest, i, other) and users[other] == 1:
            found[i] = Kept(where, value, (choice, other))
    return found


def _is_there(nest: Nest, store: int, other: int) -> bool:
    """Whether a store would write what it finds."""
    load, places = nest.body[other], nest.body[store].args[1:]
    return (
        nest.body[store].name == "store"
        and load.name == "load"
        and load.args == places
        and nest.operands[load.attr].written
    )


def _is_neutral(nest: Nest, store: int, other: int) -> bool:
    """Whether a store that combines would change nothing."""
    number, how = nest.body[other], nest.body[store].name.removeprefix("store_")
    neutral = Reduction(COMBINING[how], number.dtype).neutral
    return number.name == "const" and number.attr == neutral
