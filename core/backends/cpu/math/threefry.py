"""Threefry-2x32 with 20 rounds: two words of a key and of a counter give two words.

J. K. Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
"""

from __future__ import annotations

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import Value, intrinsic, mangled
from treadle.backends.cpu.run.shared import MANY, SHARED

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def words(k0: Value, k1: Value, x0: Value, x1: Value) -> tuple[Value, Value]:
    """Calls the function for vectors of i32, once in a block for the same ones."""
    given = (k0, k1, x0, x1)
    b, pair = x0.b, f"{{ {x0.type}, {x0.type} }}"
    symbol = f"@treadle.threefry.{mangled(x0.kind, x0.lanes)}"
    if symbol not in b.library:
        b.library[symbol] = _definition(b, symbol, pair, x0)
    call = f"call {pair} {symbol}({', '.join(f'{x.type} {x.text}' for x in given)})"
    made = b.in_block(call)
    first, second = (x0.new(f"extractvalue {pair} {made}, {i}") for i in range(2))
    return first, second


def _definition(b: Builder, symbol: str, pair: str, like: Value) -> str:
    inner = Builder()
    parameters = [Value(inner, f"%x{i}", like.kind, like.lanes) for i in range(4)]
    signature = ", ".join(f"{x.type} {x.text}" for x in parameters)
    how = "alwaysinline" if 1 < like.lanes < MANY else SHARED
    with inner.function(f"define internal {pair} {symbol}({signature}) {how}"):
        first, second = _rounds(*parameters)
        half = inner.op(f"insertvalue {pair} poison, {first.type} {first.text}, 0")
        both = inner.op(f"insertvalue {pair} {half}, {second.type} {second.text}, 1")
        inner(f"ret {pair} {both}")
    b.declarations |= inner.declarations
    return "\n".join(inner.lines)


def _rounds(k0: Value, k1: Value, x0: Value, x1: Value) -> tuple[Value, Value]:
    keys = (k0, k1, k0 ^ k1 ^ _PARITY)
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = intrinsic("fshl", x1, x1, distance) ^ x0
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + (keys[(group + 2) % 3] + (group + 1))
    return x0, x1
