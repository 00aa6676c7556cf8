"""Mathematical functions on vectors, as internal functions of the module they serve.

Every function is written once for float and double with the operators of `lanes.Value`,
and its IR text is made once per (name, type).
"""

from __future__ import annotations

from functools import lru_cache

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import Value, mangled, type_name
from treadle.backends.cpu.math.exp import EXPONENTIALS
from treadle.backends.cpu.math.special import SPECIAL
from treadle.backends.cpu.math.trig import CIRCULAR
from treadle.backends.cpu.run.shared import LEAST, SHARED

FUNCTIONS = {**EXPONENTIALS, **CIRCULAR, **SPECIAL}
"""From op name to the function that writes its code: `Value`s in, a `Value` out."""


def call(name: str, x: Value, *others: Value) -> Value:
    """Calls the library function `name`, adding it to the module if it is new there."""
    args = (x, *others)
    symbol = _symbol(name, x.kind, x.lanes)
    if symbol not in x.b.library:
        made = _definition(name, x.kind, x.lanes, len(args))
        x.b.library |= made.library
        x.b.library[symbol] = "\n".join(made.lines)
        x.b.declarations |= made.declarations
    texts = ", ".join(f"{a.type} {a.text}" for a in args)
    return x.new(f"call {x.type} {symbol}({texts})")


def _symbol(name: str, kind: str, lanes: int) -> str:
    return f"@treadle.{name}.{mangled(kind, lanes)}"


@lru_cache(maxsize=1024)
def _definition(name: str, kind: str, lanes: int, arity: int) -> Builder:
    b = Builder()
    of = type_name(kind, lanes)
    args = [Value(b, f"%x{i}", kind, lanes) for i in range(arity)]
    parameters = ", ".join(f"{of} {a.text}" for a in args)
    with b.function(f"define internal {of} {_symbol(name, kind, lanes)}({parameters})"):
        result = FUNCTIONS[name](*args)
        b(f"ret {of} {result.text}")
    # One element's is computed once a row or less: not worth a copy for each place.
    # Of vectors, a call would cost some per cent: they have constants in registers.
    shares = lanes == 1 and len(b.lines) > LEAST
    b.lines[0] = b.lines[0].replace(" {", f" {SHARED if shares else 'alwaysinline'} {{")
    return b
