"""Functions of numbers that users wrote as LLVM IR: checked, called in nests, or for
each element of arrays."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import Value, register_kind, type_name
from treadle.backends.cpu.run import native
from treadle.backends.cpu.target import llvm
from treadle.trace.foreign import Function, LibraryFunction, ScalarCode, address_of

_DTYPES = {
    **{"float": "float32", "double": "float64"},
    **{"i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64"},
}
_NAME = r'@(?:"([^"]+)"|([-\w$.]+))'  # (not compiled here: few programs need them)
_GROUP = r"\s#\d+(?=[\s{,)]|$)"
_EXTERNAL = "external"


def parsed(text: str) -> ScalarCode:
    """LLVM IR that defines one function of numbers (others in it are internal).

    Raises:
      ValueError: saying why, if it is anything else.
    """
    # Both are closed here, the module first: a collector would not keep to that.
    with llvm().create_context() as context:
        try:
            module = llvm().parse_assembly(text, context)
        except RuntimeError as error:
            raise ValueError(f"LLVM rejects it:\n{error}") from None
        with module:
            return _code(text, module)


def _code(text: str, module: Any) -> ScalarCode:
    try:
        module.verify()
    except RuntimeError as error:
        raise ValueError(f"LLVM rejects it:\n{error}") from None
    defined = [f for f in module.functions if not f.is_declaration]
    entries = [f for f in defined if f.linkage.name == _EXTERNAL]
    if len(entries) != 1:
        names = ", ".join([f"@{f.name}" for f in entries])
        raise ValueError(
            f"it must define one function, and others as `internal`; it defines "
            f"{names or 'none'}"
        )
    (entry,) = entries
    result, operands = _signature(entry)
    own = {f.name for f in defined} | {g.name for g in module.global_variables}
    stem = f"user.{blake2b(text.encode(), digest_size=10).hexdigest()}."
    declared = [f for f in module.functions if f.is_declaration]
    pieces = [
        *[_plain(str(g)) for g in module.global_variables],
        *[_internal(_plain(str(f))) for f in defined],
    ]
    body = re.sub(_NAME, lambda m: _renamed(m, own, stem), "\n".join(pieces))
    if "!" in body:
        raise ValueError("metadata (`!…`) is not supported")
    return ScalarCode(
        stem + entry.name,
        body,
        tuple([_plain(str(f)).strip().removeprefix("declare ") for f in declared]),
        tuple(operands),
        result,
    )


def _signature(entry: Any) -> tuple[str, list[str]]:
    """The dtypes of the result and of the arguments."""
    kinds = [str(a.type) for a in entry.arguments]
    line = next(x for x in str(entry).splitlines() if x.startswith("define"))
    result = re.search(r"([\w*<> ]+?)\s*@", line.removeprefix("define"))
    kind = result.group(1).split()[-1] if result else "?"
    if not kinds:
        raise ValueError(f"@{entry.name} takes no argument")
    for k in (kind, *kinds):
        if k not in _DTYPES:
            raise ValueError(
                f"@{entry.name} is a function of `{', '.join(kinds)}` that gives "
                f"`{kind}`: numbers are {', '.join(f'`{k}`' for k in _DTYPES)}"
            )
    return _DTYPES[kind], [_DTYPES[k] for k in kinds]


def _plain(text: str) -> str:
    """Without comments and groups of attributes, which are numbered by module."""
    lines = [x for x in text.splitlines() if not x.startswith(";")]
    return re.sub(_GROUP, "", "\n".join(lines))


def _internal(text: str) -> str:
    text = re.sub(r"^define (?:internal |private )?", "define internal ", text)
    return re.sub(r"\)([^)\n]*)\{", r") alwaysinline \1{", text, count=1)


def _renamed(found: re.Match[str], own: set[str], stem: str) -> str:
    name = found.group(1) or found.group(2)
    return f'@"{stem}{name}"' if name in own else found.group(0)


def of_function(function: Function, operands: Sequence[str], result: str) -> ScalarCode:
    """The call of a C function of numbers, for names of dtypes."""
    name = _linked(function)
    kinds = {dtype: kind for kind, dtype in _DTYPES.items()}
    unsigned = {f"u{d}": k for d, k in kinds.items() if k.startswith("i")}
    of = {**kinds, **unsigned}
    given = ", ".join([f"{of[d]} %{i}" for i, d in enumerate(operands)])
    symbol = f"call.{name}"
    text = (
        f'define internal {of[result]} @"{symbol}"({given}) alwaysinline {{\n'
        f'  %found = call {of[result]} @"{name}"({given})\n'
        f"  ret {of[result]} %found\n}}"
    )
    types = ", ".join([of[d] for d in operands])
    declared = f'{of[result]} @"{name}"({types})'
    return ScalarCode(symbol, text, (declared,), tuple(operands), result)


def _linked(function: Function) -> str:
    """The name by which modules refer to a function."""
    address = address_of(function)
    name = f"foreign.{address:x}"
    if isinstance(function, LibraryFunction):
        key = f"{function.library}\0{function.symbol}"
        digest = blake2b(key.encode(), digest_size=6).hexdigest()
        name = f"foreign.{digest}.{function.symbol}"
    native.register_symbol(name, address)
    return name


def emit_call(code: ScalarCode, args: Sequence[Value]) -> Value:
    """Calls it for each lane."""
    first = args[0]
    b, lanes = first.b, max([a.lanes for a in args])
    b.library[code.symbol] = code.text
    for signature in code.declared:
        b.declare(signature)
    kind = register_kind(dtypes.canonical(code.result))
    spread = [a if a.lanes == lanes else a.splat(lanes) for a in args]
    if lanes == 1:
        return Value(b, _call(b, code, kind, [(a.kind, a.text) for a in args]), kind, 1)
    whole, out = type_name(kind, lanes), "poison"
    for lane in range(lanes):
        numbers = [
            (a.kind, b.op(f"extractelement {a.type} {a.text}, i64 {lane}"))
            for a in spread
        ]
        one = _call(b, code, kind, numbers)
        out = b.op(f"insertelement {whole} {out}, {kind} {one}, i64 {lane}")
    return Value(b, out, kind, lanes)


def _call(b: Builder, code: ScalarCode, kind: str, args: list[tuple[str, str]]) -> str:
    given = ", ".join([f"{k} {text}" for k, text in args])
    return b.op(f'call {kind} @"{code.symbol}"({given})')


def call(code: ScalarCode, arrays: Sequence[Any]) -> np.ndarray:
    """The result for each element of NumPy's arrays, which are broadcast."""
    wide = [np.ascontiguousarray(a) for a in np.broadcast_arrays(*arrays)]
    shape = np.broadcast_shapes(*[np.shape(a) for a in arrays])
    out = np.empty(shape, dtypes.canonical(code.result))
    places = np.array([a.ctypes.data for a in (*wide, out)], np.int64)
    _loop(code)(places.ctypes.data, out.size)
    return out


@cache
def _loop(code: ScalarCode) -> Any:
    key = f"elements {code!r}"
    symbol = f"elements_{blake2b(key.encode(), digest_size=8).hexdigest()}"
    source = native.Source(key, symbol, lambda: _emit(code, symbol))
    address = native.load([source])[key]
    return ctypes.CFUNCTYPE(None, ctypes.c_size_t, ctypes.c_int64)(address)


def _emit(code: ScalarCode, symbol: str) -> str:
    b = Builder()
    kinds = [register_kind(dtypes.canonical(d)) for d in (*code.operands, code.result)]
    with b.function(f'define void @"{symbol}"(ptr %places, i64 %count) nounwind'):
        bases = []
        for i in range(len(kinds)):
            slot = b.op(f"getelementptr ptr, ptr %places, i64 {i}")
            bases.append(b.op(f"load ptr, ptr {slot}"))
        with b.loop("0", "%count") as place:
            at = [
                b.op(f"getelementptr {k}, ptr {p}, i64 {place}")
                for k, p in zip(kinds, bases, strict=True)
            ]
            args = [
                Value(b, b.op(f"load {k}, ptr {a}"), k, 1)
                for k, a in zip(kinds[:-1], at, strict=False)
            ]
            found = emit_call(code, args)
            b(f"store {found.type} {found.text}, ptr {at[-1]}")
        b("ret void")
    return b.text()
