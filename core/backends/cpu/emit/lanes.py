"""Arithmetic on vectors of lanes, written as LLVM IR text.

A `Value` is a named IR value of some register kind ("float", "i32", "i1", ...) with 1
lane (a scalar) or several (a vector). Its operators emit instructions into a `Builder`,
so code generators read like the formulas they emit::

    r = (n * -LN2_HIGH) + x

Half floats live in registers as float, bools as i1 (bytes 0 and 1 in memory).
"""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import cache

import numpy as np

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.target import host
from treadle.records import record

_FLOATS = ("half", "float", "double")
_SHORT = {"float": "f32", "double": "f64"}

Number = int | float | bool


def host_lanes() -> int:
    """Lanes per vector: the float32s that fit the widest registers of this machine."""
    return host().vector_bytes // 4


@cache
def half_name(dtype: np.dtype) -> str:
    """ "float16" or "bfloat16", or nothing for other dtypes."""
    return dtype.name if dtype.name in ("float16", "bfloat16") else ""


@cache
def memory_kind(dtype: np.dtype) -> str:
    """The IR type of one element in memory."""
    name = dtype.name
    if half_name(dtype):
        return "i16"
    if name.startswith("float"):
        return {"float32": "float", "float64": "double"}[name]
    if name == "bool":
        return "i8"
    return f"i{8 * dtype.itemsize}"


@cache
def register_kind(dtype: np.dtype) -> str:
    """The IR type of one lane in a register."""
    if dtype.kind == "b":
        return "i1"
    return "float" if half_name(dtype) else memory_kind(dtype)


def native(dtype: np.dtype) -> bool:
    """Whether kernels can hold values of this dtype."""
    return dtype.kind in "biu" or dtype.name in ("float32", "float64", half_name(dtype))


def is_signed(dtype: np.dtype) -> bool:
    return dtype.kind == "i"


def type_name(kind: str, lanes: int) -> str:
    return kind if lanes == 1 else f"<{lanes} x {kind}>"


def mangled(kind: str, lanes: int) -> str:
    """The type's name inside intrinsic names: v16f32, i64, p0."""
    short = "p0" if kind == "ptr" else _SHORT.get(kind, kind)
    return short if lanes == 1 else f"v{lanes}{short}"


def bits(kind: str) -> int:
    """Bits of a register kind."""
    if kind.startswith("i"):
        return int(kind[1:])
    return {"half": 16, "float": 32, "double": 64}[kind]


def literal(number: Number, kind: str, lanes: int = 1) -> str:
    """A constant as IR text, splat over the lanes."""
    if kind == "float":
        number = _single(number)
    if kind in _FLOATS:
        text = "0x" + struct.pack(">d", float(number)).hex().upper()
    elif kind == "i1":
        text = "true" if number else "false"
    else:
        width = bits(kind)
        wrapped = int(number) & ((1 << width) - 1)
        text = str(wrapped - (1 << width) if wrapped >> (width - 1) else wrapped)
    return text if lanes == 1 else f"splat ({kind} {text})"


_SINGLE, _LARGE = struct.Struct("f"), 3e38


def _single(number: Number) -> float:
    """The nearest number that a float has."""
    if type(number) is float and abs(number) < _LARGE:
        return _SINGLE.unpack(_SINGLE.pack(number))[0]
    with np.errstate(over="ignore"):
        return float(np.float32(number))


@record(slots=True, eq=False)
class Value:
    """An IR value. Operators take a Value of the same kind, or a Python number.

    A scalar meeting a vector is splat. `number` is set on constants. A product of
    floats remembers its `factors`: what is added to it, or to which it is added, makes
    one `multiply_add` of the two. So formulas say where they round once, and no pass of
    LLVM decides it by what stands around them. A half float may remember its bits
    (`word`), which are what memory holds of it, or what it holds of this vector and of
    another one in turns (`both`, see `turns`). A vector of equal elements remembers
    the `one` of them. Nobody changes one. (Frozen, it takes four times as long to make:
    a kernel has thousands.)
    """

    b: Builder
    text: str
    kind: str
    lanes: int
    number: Number | None = None
    factors: tuple[Value, Value] | None = None
    word: Value | None = None
    both: Value | None = None
    one: Value | None = None

    @property
    def type(self) -> str:
        return type_name(self.kind, self.lanes)

    @property
    def is_float(self) -> bool:
        return self.kind in _FLOATS

    def like(self, number: Number) -> Value:
        """A constant of this value's type."""
        return constant(self.b, number, self.kind, self.lanes)

    def new(self, expression: str, kind: str | None = None) -> Value:
        """Emits an instruction; its result has this value's lanes."""
        return Value(self.b, self.b.op(expression), kind or self.kind, self.lanes)

    def op(self, opcode: str, other: Value | Number) -> Value:
        x, y = matched(self, other)
        return x.new(f"{opcode} {x.type} {x.text}, {y.text}")

    def rounded_once(self) -> Value:
        """This value for good: a product that no sum takes apart."""
        return self if self.factors is None else replace(self, factors=None)

    def __add__(self, other: Value | Number) -> Value:
        if self.factors:
            return multiply_add(*self.factors, other)
        if isinstance(other, Value) and other.factors:
            return multiply_add(*other.factors, self)
        return self.op("fadd" if self.is_float else "add", other)

    def __sub__(self, other: Value | Number) -> Value:
        if self.factors:
            return multiply_add(*self.factors, -other)
        if isinstance(other, Value) and other.factors:
            x, y = other.factors
            return multiply_add(-x, y, self)
        return self.op("fsub" if self.is_float else "sub", other)

    def __mul__(self, other: Value | Number) -> Value:
        if not self.is_float:
            return self.op("mul", other)
        x, y = matched(self, other)
        product = x.op("fmul", y)
        return Value(self.b, product.text, x.kind, x.lanes, factors=(x, y))

    def __truediv__(self, other: Value | Number) -> Value:
        return self.op("fdiv", other)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Number) -> Value:
        return self.like(other) - self

    def __rtruediv__(self, other: Number) -> Value:
        return self.like(other) / self

    def __neg__(self) -> Value:
        if self.is_float:
            return self.new(f"fneg {self.type} {self.text}")
        return self.like(0) - self

    def __and__(self, other: Value | Number) -> Value:
        return self.op("and", other)

    def __or__(self, other: Value | Number) -> Value:
        return self.op("or", other)

    def __xor__(self, other: Value | Number) -> Value:
        return self.op("xor", other)

    def __invert__(self) -> Value:
        return self.op("xor", -1 if self.kind != "i1" else True)

    def __lshift__(self, other: Value | Number) -> Value:
        return self.op("shl", other)

    def compare(self, how: str, other: Value | Number) -> Value:
        """how: an LLVM predicate ("olt", "une", "slt", "ult", "eq", ...)."""
        x, y = matched(self, other)
        compare = "fcmp" if x.is_float else "icmp"
        return x.new(f"{compare} {how} {x.type} {x.text}, {y.text}", "i1")

    def is_nan(self) -> Value:
        return self.compare("uno", 0.0)

    def cast(self, opcode: str, kind: str) -> Value:
        """opcode: sext, zext, trunc, sitofp, fpext, bitcast, ..."""
        target = type_name(kind, self.lanes)
        return self.new(f"{opcode} {self.type} {self.text} to {target}", kind)

    def as_int(self) -> Value:
        """The bits of a float, as an integer of the same width."""
        return self.cast("bitcast", f"i{bits(self.kind)}")

    def as_float(self) -> Value:
        """The float with these bits."""
        return self.cast("bitcast", {"i32": "float", "i64": "double"}[self.kind])

    def splat(self, lanes: int) -> Value:
        """This scalar in every lane."""
        if self.lanes == lanes:
            return self
        if self.number is not None:
            return constant(self.b, self.number, self.kind, lanes)
        vector = type_name(self.kind, lanes)
        one = self.b.op(
            f"insertelement {vector} poison, {self.kind} {self.text}, i64 0"
        )
        spread = self.b.op(
            f"shufflevector {vector} {one}, {vector} poison,"
            f" <{lanes} x i32> zeroinitializer"
        )
        return Value(self.b, spread, self.kind, lanes, one=self)

    def shuffle(self, order: list[int], other: Value | None = None) -> Value:
        """A vector of the lanes in this order; those of `other` come behind."""
        mask = ", ".join(f"i32 {i}" for i in order)
        behind = other.text if other else "poison"
        text = self.b.op(
            f"shufflevector {self.type} {self.text}, {self.type} {behind},"
            f" <{len(order)} x i32> <{mask}>"
        )
        return Value(self.b, text, self.kind, len(order))

    def lane(self, index: int | str) -> Value:
        if self.lanes == 1:
            return self
        text = self.b.op(f"extractelement {self.type} {self.text}, i64 {index}")
        return Value(self.b, text, self.kind, 1)


def constant(b: Builder, number: Number, kind: str, lanes: int = 1) -> Value:
    return Value(b, literal(number, kind, lanes), kind, lanes, number)


def matched(x: Value | Number, y: Value | Number) -> tuple[Value, Value]:
    """Both as Values with the same number of lanes; at least one must be a Value."""
    if not isinstance(x, Value):
        y, x = matched(y, x)  # type: ignore[arg-type]
        return x, y
    if not isinstance(y, Value):
        return x, x.like(y)
    if x.lanes == y.lanes:
        return x, y
    lanes = max(x.lanes, y.lanes)
    return x.splat(lanes), y.splat(lanes)


def select(condition: Value, yes: Value | Number, no: Value | Number) -> Value:
    yes, no = matched(yes, no)
    lanes = max(condition.lanes, yes.lanes)
    condition, yes, no = condition.splat(lanes), yes.splat(lanes), no.splat(lanes)
    return yes.new(
        f"select {condition.type} {condition.text}, {yes.type} {yes.text},"
        f" {no.type} {no.text}"
    )


def intrinsic(name: str, x: Value, *others: Value | Number) -> Value:
    """Calls an overloaded intrinsic whose arguments and result have one type."""
    values = [x, *(v if isinstance(v, Value) else x.like(v) for v in others)]
    lanes = max(v.lanes for v in values)
    values = [v.splat(lanes) for v in values]
    kind = values[0].type
    symbol = f"@llvm.{name}.{mangled(x.kind, lanes)}"
    x.b.declare(f"{kind} {symbol}({', '.join([kind] * len(values))})")
    arguments = ", ".join(f"{kind} {v.text}" for v in values)
    return values[0].new(f"call {kind} {symbol}({arguments})")


def counted_intrinsic(name: str, x: Value, flag: bool) -> Value:
    """Calls ctlz, cttz or abs, which take an i1 "is poison" flag."""
    symbol = f"@llvm.{name}.{mangled(x.kind, x.lanes)}"
    x.b.declare(f"{x.type} {symbol}({x.type}, i1)")
    flag_text = "true" if flag else "false"
    return x.new(f"call {x.type} {symbol}({x.type} {x.text}, i1 {flag_text})")


def fma(x: Value, y: Value | Number, z: Value | Number) -> Value:
    """x * y + z, rounded once."""
    target = host()
    if x.kind == "float" and target.arch == "x86_64" and "fma" not in target.flags:
        # Not by calls of the C library: doubles hold the product exactly.
        wide = [v if isinstance(v, Value) else x.like(v) for v in (x, y, z)]
        x, y, z = (v.cast("fpext", "double") for v in wide)
        return (x * y + z).cast("fptrunc", "float")
    return intrinsic("fma", x, y, z)


def multiply_add(x: Value, y: Value | Number, z: Value | Number) -> Value:
    """x * y + z, rounded once if that is one instruction here."""
    return intrinsic("fmuladd", x, y, z)


def has_scale_instruction() -> bool:
    """Whether `scale` is one instruction here (elsewhere it is a call per lane)."""
    return "avx512f" in host().flags


def has_mask_registers() -> bool:
    """Whether masked loads and stores cost no more than others (elsewhere they may be a
    branch per lane)."""
    return "avx512vl" in host().flags


def scale(x: Value, n: Value) -> Value:
    """x * 2**n for whole floats n, rounded once: one instruction for a vector."""
    if (width := bits(x.kind) * x.lanes) > 512:
        order = [*range(x.lanes)]
        halves = order[: x.lanes // 2], order[x.lanes // 2 :]
        low, high = (scale(x.shuffle(h), n.shuffle(h)) for h in halves)
        return low.shuffle(order, high)
    if width not in (128, 256, 512) or (width < 512 and not has_mask_registers()):
        return _ldexp(x, n.cast("fptosi", f"i{bits(x.kind)}"))
    symbol = f"@llvm.x86.avx512.mask.scalef.p{x.kind[0].replace('f', 's')}.{width}"
    mask, rounding = f"i{max(8, x.lanes)}", "" if width < 512 else ", i32"
    x.b.declare(f"{x.type} {symbol}({x.type}, {x.type}, {x.type}, {mask}{rounding})")
    texts = f"{x.type} {x.text}, {n.type} {n.text}, {x.type} poison, {mask} -1"
    return x.new(f"call {x.type} {symbol}({texts}{rounding and ', i32 4'})")


def _ldexp(x: Value, n: Value) -> Value:
    """x * 2**n for integers n."""
    symbol = f"@llvm.ldexp.{mangled(x.kind, x.lanes)}.{mangled(n.kind, n.lanes)}"
    x.b.declare(f"{x.type} {symbol}({x.type}, {n.type})")
    return x.new(f"call {x.type} {symbol}({x.type} {x.text}, {n.type} {n.text})")


def lane_numbers(b: Builder, kind: str, lanes: int) -> Value:
    """The vector 0, 1, 2, ..."""
    if lanes == 1:
        return constant(b, 0, kind)
    return Value(b, _counted(kind, lanes), kind, lanes)


@cache
def _counted(kind: str, lanes: int) -> str:
    texts = (literal(i, kind) for i in range(lanes))
    return "<" + ", ".join(f"{kind} {t}" for t in texts) + ">"
