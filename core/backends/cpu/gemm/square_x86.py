"""A square of 16 rows of 16 floats, turned in registers, in assembly for AVX-512.

LLVM makes the same instructions of shuffles in IR, but takes milliseconds for each
square of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.backends.cpu.emit.builder import Builder

_SIDE, _GROUP = 16, 4
_VECTOR = f"<{_SIDE} x float>"
_NEAR = "vshuff32x4 $$0x44,", "vshuff32x4 $$0xee,"
_FAR = "vshuff32x4 $$0x88,", "vshuff32x4 $$0xdd,"


def turned_square(
    b: Builder, start: str, step: str, count: str | None = None
) -> list[str]:
    """Vectors of the same element of each of 16 rows, which are `step` bytes apart: of
    the i64 `count` first elements, the others are zeros, and not read."""
    rows = [f"${i}" for i in range(_SIDE)]
    spare = [f"${_SIDE + i}" for i in range(_GROUP)]
    place, thrice = f"${_SIDE + _GROUP}", f"${_SIDE + _GROUP + 1}"
    first = _SIDE + _GROUP + 2  # of the inputs, after that which is tied
    distance, mask = f"${first + 1}", f"${first + 2}"
    zeros = "" if count is None else " {%k1}{z}"
    text = [] if count is None else [f"kmovw {mask[0]}{{{mask[1:]}:k}}, %k1"]
    text.append(f"leaq ({distance},{distance},2), {thrice}")
    places = f"({place})", f"({place},{distance})", f"({place},{distance},2)"
    for group in range(_GROUP):
        for i, at in enumerate((*places, f"({place},{thrice})")):
            text.append(f"vmovups {at}, {rows[_GROUP * group + i]}{zeros}")
        text.append(f"leaq ({place},{distance},4), {place}")
    text += _shuffles(rows, spare)
    outputs = ["=&v"] * (_SIDE + _GROUP) + ["=&r"] * 2
    inputs = [str(_SIDE + _GROUP), "r"] + ([] if count is None else ["r"])
    clobbered = ["~{memory}"] if count is None else ["~{k1}", "~{memory}"]
    constraints = ",".join([*outputs, *inputs, *clobbered])
    kinds = ", ".join([_VECTOR] * (_SIDE + _GROUP) + ["ptr", "i64"])
    given = f"ptr {start}, i64 {step}"
    if count is not None:
        bits = b.op(f"shl i64 1, {count}")
        given += f", i64 {b.op(f'sub i64 {bits}, 1')}"
    joined = "\\0A".join(text)
    found = b.op(
        f'call {{ {kinds} }} asm sideeffect "{joined}", "{constraints}"({given})'
    )
    return [
        b.op(f"extractvalue {{ {kinds} }} {found}, {number}") for number in range(_SIDE)
    ]


def shuffled_square(b: Builder, rows: Sequence[str]) -> list[str]:
    """Vectors of the same word of each of 16 vectors of words."""
    words = f"<{_SIDE} x i32>"
    text = "\\0A".join(
        _shuffles(
            [f"${i}" for i in range(_SIDE)], [f"${_SIDE + i}" for i in range(_GROUP)]
        )
    )
    kinds = ", ".join([words] * (_SIDE + _GROUP))
    outputs = ["=v"] * _SIDE + ["=&v"] * _GROUP
    constraints = ",".join(outputs + [str(i) for i in range(_SIDE)])
    given = ", ".join(f"{words} {row}" for row in rows)
    found = b.op(f'call {{ {kinds} }} asm "{text}", "{constraints}"({given})')
    return [b.op(f"extractvalue {{ {kinds} }} {found}, {i}") for i in range(_SIDE)]


def _shuffles(rows: list[str], spare: list[str]) -> list[str]:
    """Squares of four inside of each 16 bytes, then squares of these pieces."""
    text = []
    for group in range(_GROUP):
        mine = rows[_GROUP * group : _GROUP * (group + 1)]
        text += _crossed(mine, spare, ("vunpcklps", "vunpckhps"), pairs=True)
        text += _crossed(spare, mine, ("vunpcklpd", "vunpckhpd"), pairs=False)
    for i in range(_GROUP):
        mine = rows[i::_GROUP]
        text += _crossed(mine, spare, _NEAR, pairs=True)
        text += _crossed(spare, mine, _FAR, pairs=False)
    return text


def _crossed(
    given: list[str], to: list[str], ways: tuple[str, str], pairs: bool
) -> list[str]:
    """Two vectors of each two: of neighbours, if `pairs`, else of those two apart."""
    x, y, z, w = given
    both = ((x, y), (z, w)) if pairs else ((x, z), (y, w))
    return [
        f"{way} {second}, {first}, {to[2 * number + which]}"
        for number, (first, second) in enumerate(both)
        for which, way in enumerate(ways)
    ]
