"""Depthwise convolutions, and those of groups of few channels, whose taps of a row
meet pixels side by side.

Neighbouring outputs share most of what they meet. Of a row of taps, with a length and
a stride that are written into the code, each pixel is loaded once for all of a tile's
outputs, and each factor once. The sums of `depthwise`, in the same order::

    for each two vectors of channels               for each two vectors of channels
        for each row of taps                           for every four outputs of a row
            load its factors                               load their gradients
            for each pixel: up to eight sums               for each pixel: a row's sums

The second is the gradient by the filter: the sums of a row of taps. Groups of several
channels are done so one after the other, of one vector of features (see `row_lanes`).

Pixels and factors of bfloat16 become floats as they are loaded, once for all sums: of
two vectors, one has the even channels and the other the odd ones, which are the halves
of words. (Two products at a time, as in `depthwise_pairs`, would turn words for each of
them.)
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.backends.cpu.conv.row_lanes import (
    Groups,
    Lanes,
    Row,
    Vectors,
    turns,
)
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.kernel import machine_for
from treadle.backends.cpu.gemm.tile import Machine, lane_mask
from treadle.backends.cpu.target import host
from treadle.dims import one, settled
from treadle.dtypes import bfloat16
from treadle.kernels.convolve import FLAT, ConvSpec

OUTPUTS = 8
"""Of a tile: pixels beside each other serve several."""

_LENGTHS = range(3, 8)
_GROUP_LENGTHS = range(1, 8)
_STRIDES = 1, 2
_CODE = 8  # more than both
_PRODUCTS = 4  # at least, in turns of the loop over channels of a group, or one tap's
_TURN = 4  # outputs that the gradient by the filter adds at once, or half as many


def row_of(spec: ConvSpec) -> Row | None:
    """The row of taps of a convolution; None if it has another kernel, or if its
    lengths are not known."""
    x = spec.x
    lengths = x.taps, x.stride, x.dilation
    if spec.half not in (None, bfloat16) or not all(type(n) is int for n in lengths):
        return None
    if x.dilation != 1 or x.taps not in _LENGTHS or x.stride not in _STRIDES:
        return None
    return Row(x.taps, x.stride)


def row_of_groups(spec: ConvSpec) -> Row | None:
    """The row of taps of a convolution of groups of few channels, and of as many
    features; None of others. They are added up in another order, so that for open sizes
    it is a question like one of a user."""
    if spec.half is not None or one(spec.groups) or spec.z != FLAT:
        return None
    if spec.sums.kind != "f":
        return None
    machine = machine_for(spec.sums, host())
    lanes = machine.tile.lanes
    least = 2 if turns(machine.assembly) else lanes
    x, y = spec.x, spec.y
    columns = spec.input.column, spec.filter.column, spec.output.column
    sizes = spec.channels, spec.features, spec.groups, x.taps, x.stride
    steps = x.dilation, x.in_dilation, y.in_dilation
    code = settled(_coded, (least, lanes, *sizes, *steps, *columns))
    each, rest = divmod(code, _CODE**2)
    return Row(*divmod(rest, _CODE), each) if code else None


def _coded(
    least: int,
    most: int,
    channels: int,
    features: int,
    groups: int,
    taps: int,
    stride: int,
    *ones: int,
) -> int:
    """Channels of a group, taps and stride as one number; or 0."""
    each = channels // max(1, groups)
    if features != channels or not least <= each <= most or each & (each - 1):
        return 0
    if taps not in _GROUP_LENGTHS or stride not in _STRIDES or set(ones) != {1}:
        return 0
    return (each * _CODE + taps) * _CODE + stride


def _vectors(machine: Machine, row: Row, registers: int) -> int:
    """How many vectors at once have room, if one takes so many registers."""
    if row.each > 1:
        return 1
    return 2 if 2 * registers + 2 <= machine.tile.rows * machine.tile.vectors else 1


def _turn(machine: Machine, row: Row) -> int:
    """How many outputs the gradient by the filter adds at once: fewer, if there is room
    then for two vectors. Sums of one are so few that each waits for its last product.
    """
    counts = [_vectors(machine, row, row.taps + n) for n in (_TURN, _TURN // 2)]
    return _TURN // 2 if counts == [1, 2] else _TURN


def _channels(machine: Machine, row: Row) -> int:
    """How many channels of a group have room at once, with a sum for each tap and what
    turns a pixel."""
    tile = machine.tile
    room = tile.rows * tile.vectors + tile.vectors - _turn(machine, row)
    return _power_of_two(min(row.each, room // (row.taps + 1)))


def _power_of_two(most: int) -> int:
    """The largest of at most so many, and at least 1: it divides a group."""
    return 1 << (max(1, most).bit_length() - 1)


def _each(b: Builder, machine: Machine, count: int) -> list[tuple[str, str, int]]:
    """Loops over channels c0..c1-1: where each begins and ends, and how many vectors it
    takes. What is left is part of one."""
    loops, start = [], "%c0"
    for vectors in sorted({count, 1}, reverse=True):
        width = vectors * machine.tile.lanes
        whole = b.op(f"and i64 {b.op(f'sub i64 %c1, {start}')}, {-width}")
        stop = b.op(f"add i64 {start}, {whole}")
        loops.append((start, stop, vectors))
        start = stop
    return loops


def _pixel(b: Builder, line: str, number: int) -> str:
    """The address of a pixel, from the table."""
    entry = b.op(f"getelementptr ptr, ptr {line}, i64 {number}") if number else line
    return b.op(f"load ptr, ptr {entry}, align 8")


def emit_row_tile(
    b: Builder, machine: Machine, row: Row, outputs: int, parameters: str
) -> None:
    """``tile_N``, as `depthwise` has it for any taps; `add` is 0."""
    with b.function(f"define internal void @tile_{outputs}({parameters})"):
        place = b.op("load i64, ptr %places, align 8")
        table = b.op(f"getelementptr i8, ptr %table, i64 {place}")
        rows = b.op(f"udiv i64 %count, {row.taps}")
        shared = table, rows, _step(b, row)
        count = _vectors(machine, row, outputs + row.taps)
        loops = _each(b, machine, count)
        for start, stop, vectors in loops:
            width = str(vectors * machine.tile.lanes)
            with b.loop(start, stop, width) as c:
                channels = Vectors(b, machine, c, vectors, None)
                if outputs > 1:
                    _ask_ahead(b, channels, row, outputs, shared)
                _outputs(b, channels, row, outputs, shared)
        stop = loops[-1][1]
        left = b.op(f"sub i64 %c1, {stop}")
        with b.when(b.op(f"icmp sgt i64 {left}, 0")):
            mask = lane_mask(b, machine, left)
            _outputs(b, Vectors(b, machine, stop, 1, mask), row, outputs, shared)
        b("ret void")


def _step(b: Builder, row: Row) -> str:
    """Bytes from the factors of a tap to those of the next one in its row."""
    if row.taps == 1:
        return "0"
    first, second = (
        b.op(f"load i64, ptr {slot}, align 8")
        for slot in (b.op(f"getelementptr i64, ptr %steps, i64 {i}") for i in (1, 3))
    )
    return b.op(f"sub i64 {second}, {first}")


def _line(b: Builder, table: str, taps: str) -> tuple[str, str]:
    """The pixels that a row of taps begins at, and the bytes of its first factor."""
    entry = b.op(f"getelementptr [2 x i64], ptr %steps, i64 {taps}")
    line = b.op(f"load i64, ptr {entry}, align 8")
    entry = b.op(f"getelementptr i64, ptr {entry}, i64 1")
    factor = b.op(f"load i64, ptr {entry}, align 8")
    return b.op(f"getelementptr i8, ptr {table}, i64 {line}"), factor


def _outputs(
    b: Builder,
    channels: Vectors,
    row: Row,
    outputs: int,
    shared: tuple[str, str, str],
) -> None:
    table, rows, step = shared
    n = channels.outputs
    zeros = [(channels.type, "zeroinitializer")] * (outputs * n)
    with b.carrying("0", rows, "1", zeros) as turn:
        line, at = _line(b, table, b.op(f"mul i64 {turn.index}, {row.taps}"))
        first = b.op(f"getelementptr i8, ptr %factors, i64 {at}")
        if row.each == 1:
            lanes: Lanes = channels
            given = (lanes, row, outputs, line, (first, step))
            turn.next = _row_of_outputs(b, *given, turn.values)
        else:
            sums = [(channels.type, value) for value in turn.values]
            several = _power_of_two(min(row.each, _PRODUCTS // row.taps))
            with b.carrying("0", str(row.each), str(several), sums) as each:
                found = list(each.values)
                for i in range(several):
                    channel = b.op(f"add i64 {each.index}, {i}")
                    lanes = Groups(channels, row.each, channel, 1)
                    given = (lanes, row, outputs, line, (first, step))
                    found = _row_of_outputs(b, *given, found)
                each.next = found
            turn.next = list(each.values)
    for j in range(outputs):
        target = b.op(f"mul i64 {j}, %out_row")
        target = b.op(f"getelementptr i8, ptr %out, i64 {target}")
        channels.store(turn.values[j * n : j * n + n], target)


def _row_of_outputs(
    b: Builder,
    lanes: Lanes,
    row: Row,
    outputs: int,
    line: str,
    given: tuple[str, str],
    sums: Sequence[str],
) -> list[str]:
    """The sums, with what a row of taps gives.

    given: the factors of the first tap, and the step to the next one's.
    """
    factor, step = given
    factors = [lanes.factors(factor)]
    for _ in range(1, row.taps):
        factor = b.op(f"getelementptr i8, ptr {factor}, i64 {step}")
        factors.append(lanes.factors(factor))
    found, pixels = list(sums), range(row.pixels(outputs))
    if row.each == 1:
        for p in pixels:
            pixel = lanes.pixel(_pixel(b, line, p))
            for j, tap in row.met(p, outputs):
                lanes.add(found, j, pixel, factors[tap])
        return found
    # Of one vector there are so few sums that each waits for all others.
    met = [lanes.pixel(_pixel(b, line, p)) for p in pixels]
    for tap in range(row.taps):
        for j in range(outputs):
            lanes.add(found, j, met[j * row.stride + tap], factors[tap])
    return found


def _ask_ahead(
    b: Builder, lanes: Lanes, row: Row, outputs: int, shared: tuple[str, str, str]
) -> None:
    """Asks for what the row of outputs below meets, in rows and columns that are new to
    it: of the next tile it would be too late, for what comes from memory."""
    table, rows, _ = shared
    with b.loop("0", "%asked_y") as back:
        last = b.op(f"sub i64 {rows}, 1")
        more = b.op(f"icmp slt i64 {back}, {last}")
        number = b.op(
            f"sub i64 {last}, {b.op(f'select i1 {more}, i64 {back}, i64 {last}')}"
        )
        line, _ = _line(b, table, b.op(f"mul i64 {number}, {row.taps}"))
        for p in row.new(outputs):
            lanes.ask(_pixel(b, line, p))


ROW_SUMS = (
    "ptr %table, i64 %line, i64 %rows, i64 %columns, ptr %gradients, i64 %pixel, "
    "ptr %sums, i64 %below, i64 %apart, i64 %c0, i64 %c1"
)


def emit_row_sums(b: Builder, machine: Machine, row: Row) -> None:
    """``row_sums``: adds to the sums of a row of taps, which are `apart`, for channels
    c0..c1-1, what rows of outputs give, whose pixels begin `line` bytes apart in the
    table, and whose gradients are `pixel` bytes apart. below: how many bytes from
    pixels to those to be asked for, or 0."""
    with b.function(f"define internal void @row_sums({ROW_SUMS})"):
        count = _vectors(machine, row, row.taps + _turn(machine, row))
        loops = _each(b, machine, count)
        for start, stop, vectors in loops:
            width = str(vectors * machine.tile.lanes)
            with b.loop(start, stop, width) as c:
                _all_taps(b, Vectors(b, machine, c, vectors, None), row)
        stop = loops[-1][1]
        left = b.op(f"sub i64 %c1, {stop}")
        with b.when(b.op(f"icmp sgt i64 {left}, 0")):
            mask = lane_mask(b, machine, left)
            _all_taps(b, Vectors(b, machine, stop, 1, mask), row)
        b("ret void")


def _all_taps(b: Builder, channels: Vectors, row: Row) -> None:
    """Of groups, for some channels of each at a time."""
    if row.each == 1:
        _taps(b, channels, row)
        return
    several = _channels(channels.machine, row)
    with b.loop("0", str(row.each), str(several)) as c:
        _taps(b, Groups(channels, row.each, c, several), row)


def _taps(b: Builder, lanes: Lanes, row: Row) -> None:
    zeros = [(lanes.type, "zeroinitializer")] * (row.taps * lanes.taps)
    outputs = _turn(lanes.machine, row)
    whole = b.op(f"and i64 %columns, {-outputs}")
    asks = b.op("icmp ne i64 %below, 0")
    width = b.op("mul i64 %columns, %pixel")
    with b.carrying("0", "%rows", "1", zeros) as lines:
        line = b.op(
            f"getelementptr i8, ptr %table, i64 {b.op(f'mul i64 {lines.index}, %line')}"
        )
        gradients = b.op(f"mul i64 {lines.index}, {width}")
        gradients = b.op(f"getelementptr i8, ptr %gradients, i64 {gradients}")
        sums = list(lines.values)
        for start, stop, several in (("0", whole, outputs), (whole, "%columns", 1)):
            first = [(lanes.type, s) for s in sums]
            with b.carrying(start, stop, str(several), first) as turn:
                place = b.op(f"mul i64 {turn.index}, {row.stride}")
                place = b.op(f"getelementptr ptr, ptr {line}, i64 {place}")
                given = b.op(f"mul i64 {turn.index}, %pixel")
                given = b.op(f"getelementptr i8, ptr {gradients}, i64 {given}")
                with b.when(asks):
                    for p in row.new(several):
                        lanes.ask(_pixel(b, place, p))
                turn.next = _products(
                    b, lanes, row, several, (place, given), turn.values
                )
            sums = list(turn.values)
        lines.next = sums
    n, rows = lanes.taps, row.each
    for tap in range(row.taps):
        target = b.op(f"mul i64 {tap * rows}, %apart")
        target = b.op(f"getelementptr i8, ptr %sums, i64 {target}")
        lanes.add_to(target, lines.values[tap * n : tap * n + n])


def _products(
    b: Builder,
    lanes: Lanes,
    row: Row,
    outputs: int,
    places: tuple[str, str],
    sums: Sequence[str],
) -> list[str]:
    """The sums of a row of taps, with what some outputs give."""
    place, given = places
    gradients = []
    for j in range(outputs):
        if j:
            given = b.op(f"getelementptr i8, ptr {given}, i64 %pixel")
        gradients.append(lanes.gradients(given))
    found = list(sums)
    for p in range(row.pixels(outputs)):
        pixel = lanes.pixel(_pixel(b, place, p))
        for j, tap in row.met(p, outputs):
            lanes.add_turn(found, tap, pixel, gradients[j])
    return found
