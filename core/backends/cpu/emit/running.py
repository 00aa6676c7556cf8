"""Running reductions: what is carried from element to element, and how it grows.

In a column nest the elements that follow each other are vectors, and each is combined
with the vector before. In a row nest they are the lanes of one vector: partial results
of neighbouring lanes are combined, then those of pairs, and so on, and the whole with
what came before the vector. The linear recurrence goes from lane to lane instead: as a
combination of pairs it could overflow where the recurrence does not.

What is carried is the last result, in one value, or in two where adding rounds: the
total of the blocks before (see `BLOCK_TURNS`) and that of this block, so that a sum of
millions is rounded little more than one of hundreds, and goes on growing.
"""

from __future__ import annotations

import math

import numpy as np

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import (
    Value,
    constant,
    intrinsic,
    register_kind,
    select,
)
from treadle.backends.cpu.emit.ops import extremum
from treadle.backends.cpu.emit.reduce import Reduction
from treadle.backends.cpu.math import library

Values = list[Value]


def identity(b: Builder, name: str, dtype: np.dtype, lanes: int) -> Value:
    """What running reduction `name` begins with."""
    kind = register_kind(dtype)
    if name == "logsumexp":
        return constant(b, -math.inf, kind, lanes)
    if name in ("sum", "linear") and kind in ("float", "double"):
        # Minus zero is the number that changes no sum.
        return constant(b, -0.0 if name == "sum" else 0.0, kind, lanes)
    return Reduction(name, dtype).identity(b, lanes)[0]


def rounds(name: str, dtype: np.dtype) -> bool:
    """Whether each step is rounded to the size of the total."""
    kind = register_kind(dtype)
    return name == "logsumexp" or (name == "sum" and kind in ("float", "double"))


def carried_first(b: Builder, name: str, dtype: np.dtype, lanes: int) -> Values:
    """What is carried at first."""
    return [identity(b, name, dtype, lanes)] * (1 + rounds(name, dtype))


def settled(name: str, dtype: np.dtype, state: Values) -> Values:
    """What is carried after a block: its total becomes part of that of all blocks."""
    if len(state) == 1:
        return state
    total, block = state
    after = advanced(name, dtype, total, [block])
    nothing = identity(block.b, name, dtype, block.lanes)
    if name != "sum":
        return [after, nothing]
    # The next block begins with what this addition has lost (Kahan, 1965).
    lost = block - (after - total)
    finite = intrinsic("fabs", lost).compare("olt", math.inf)
    return [after, select(finite, lost, nothing)]


def step(
    name: str, dtype: np.dtype, state: Values, args: Values
) -> tuple[Value, Values]:
    """The next result, and what is carried on."""
    *total, block = state
    block = advanced(name, dtype, block, args)
    result = advanced(name, dtype, total[0], [block]) if total else block
    return result, [*total, block]


def advanced(name: str, dtype: np.dtype, before: Value, args: Values) -> Value:
    """The next result, from the one before and the operands."""
    if name == "linear":
        return args[0] * before + args[1]
    if name == "logsumexp":
        return _log_add_exp(before, args[0])
    return Reduction(name, dtype).combine([before], args)[0]


def _log_add_exp(x: Value, y: Value) -> Value:
    distance = -intrinsic("fabs", x - y)
    more = library.call("log1p", library.call("exp", distance))
    result = extremum(x, y, True, True) + more
    # Of two equal infinities the distance is not a number.
    return select(x.compare("oeq", y), x + math.log(2), result)


def along_lanes(
    name: str, dtype: np.dtype, state: Values, args: Values
) -> tuple[Value, Values]:
    """The results in all lanes, and what is carried on; the state is of scalars. Lanes
    that are not there must come last, and hold the identity."""
    if name == "linear":
        result = _lane_by_lane(name, dtype, state[0], args)
        return result, [result.lane(result.lanes - 1)]
    (x,) = args
    nothing = identity(x.b, name, dtype, x.lanes)
    distance = 1
    while distance < x.lanes:
        x = advanced(name, dtype, _moved_up(x, nothing, distance), [x])
        distance *= 2
    wide = [part.splat(x.lanes) for part in state]
    result, (*_, block) = step(name, dtype, wide, [x])
    return result, [*state[:-1], block.lane(x.lanes - 1)]


def _moved_up(x: Value, nothing: Value, distance: int) -> Value:
    """Every lane's value `distance` lanes on; `nothing` comes in."""
    order = ", ".join(
        f"i32 {lane - distance if lane >= distance else x.lanes + lane}"
        for lane in range(x.lanes)
    )
    return x.new(
        f"shufflevector {x.type} {x.text}, {x.type} {nothing.text},"
        f" <{x.lanes} x i32> <{order}>"
    )


def _lane_by_lane(name: str, dtype: np.dtype, before: Value, args: Values) -> Value:
    text, lanes = "poison", args[0].lanes
    for lane in range(lanes):
        before = advanced(name, dtype, before, [a.lane(lane) for a in args])
        text = before.b.op(
            f"insertelement {args[0].type} {text}, {before.type} {before.text},"
            f" i64 {lane}"
        )
    return Value(before.b, text, before.kind, lanes)


def masked(name: str, dtype: np.dtype, args: Values, mask: Value | None) -> Values:
    """The operands, with the identity in lanes that are not there."""
    if mask is None or name == "linear":
        return args
    nothing = identity(mask.b, name, dtype, args[0].lanes)
    return [select(mask, args[0], nothing)]
