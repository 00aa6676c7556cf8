"""Builds nests for tests, runs them natively, and interprets them with NumPy.

An operand is bound to a NumPy view of shape (outer..., mid..., inner, gathers...), with
broadcast dimensions of stride zero.
"""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.special as special

from treadle.backends.cpu.emit.nest import emit
from treadle.backends.cpu.emit.tasks import scratch_bytes, scratch_rows
from treadle.backends.cpu.run import native
from treadle.kernels.check import check
from treadle.kernels.lower import is_store
from treadle.kernels.nest import (
    BROADCAST,
    CONTIGUOUS,
    PAIRED,
    STRIDED,
    Instr,
    Nest,
    Operand,
)

_KINDS = {0: BROADCAST, 1: CONTIGUOUS, 2: PAIRED}
_numbers = itertools.count()


@dataclass
class Maker:
    """Collects a nest's instructions. Values are instruction numbers.

    sizes: of the outer and mid dimensions and inner.
    """

    outer: tuple[int, ...]
    inner: int
    mid: tuple[int, ...] = ()
    axis: str = "inner"
    serial: bool = False
    operands: list[Operand] = field(default_factory=list)
    views: list[Any] = field(default_factory=list)
    body: list[Instr] = field(default_factory=list)

    def operand(self, view: np.ndarray, gathers: int = 0) -> int:
        """Binds a view of the full iteration shape (see the module's text)."""
        shape = (*self.outer, *self.mid, self.inner)
        assert view.shape[: len(shape)] == shape, (view.shape, shape)
        assert view.ndim == len(shape) + gathers
        strides = _steps(view)
        along = strides[len(shape) - 1]
        kind = _KINDS.get(along, STRIDED)
        mids = strides[len(self.outer) : len(shape) - 1]
        self.operands.append(Operand(view.dtype, kind, mid=any(mids), gathers=gathers))
        self.views.append(view)
        return len(self.operands) - 1

    def iota(self, start: int, steps: tuple[int, ...], dtype: Any) -> int:
        """An affine function of the indices: steps per outer, mid and inner index."""
        kind = {0: BROADCAST, 1: CONTIGUOUS}.get(steps[-1], STRIDED)
        mids = steps[len(self.outer) : -1]
        self.operands.append(
            Operand(np.dtype(dtype), kind, kind="index", mid=any(mids))
        )
        self.views.append((start, steps))
        return len(self.operands) - 1

    def load(self, operand: Any, *indices: int) -> int:
        if isinstance(operand, np.ndarray):
            operand = self.operand(operand, len(indices))
        return self._add("load", indices, self.operands[operand].dtype, operand)

    def store(self, operand: Any, value: int, *indices: int, how: str = "") -> int:
        if isinstance(operand, np.ndarray):
            operand = self.operand(operand, len(indices))
        name = f"store_{how}" if how else "store"
        dtype = self.operands[operand].dtype
        return self._add(name, (value, *indices), dtype, operand)

    def const(self, number: Any, dtype: Any) -> int:
        return self._add("const", (), np.dtype(dtype), number)

    def op(self, name: str, *args: int, dtype: Any = None, attr: Any = None) -> int:
        found = dtype or self.body[args[-1]].dtype
        return self._add(name, args, np.dtype(found), attr)

    def _add(self, name: str, args: Any, dtype: np.dtype, attr: Any) -> int:
        self.body.append(Instr(name, tuple(args), dtype, attr))
        return len(self.body) - 1

    def nest(self) -> Nest:
        nest = Nest(
            len(self.outer),
            len(self.mid),
            self.axis,
            tuple(self.operands),
            tuple(self.body),
            self.serial,
        )
        check(nest)
        return nest

    def run(self, tasks: int = 1, lanes: int = 0, entry: str = "task") -> None:
        """Compiles the nest and runs all its tasks on the bound arrays."""
        nest = self.nest()
        block, keep = self._arguments(nest, tasks)
        function = compiled(nest, entry, lanes)
        for task in range(tasks):
            function(block.ctypes.data, task, 0)
        del keep

    def _arguments(self, nest: Nest, tasks: int) -> tuple[np.ndarray, Any]:
        words = [tasks, *self.outer, *self.mid, self.inner]
        keep = None
        if scratch_rows(nest):
            size = scratch_bytes(nest, self.inner)
            keep = np.full(size * tasks + 64, 0xFF, np.uint8)
            words += [keep.ctypes.data, size]
        dims = len(self.outer) + len(self.mid)
        for operand, view in zip(self.operands, self.views, strict=True):
            if operand.kind == "index":
                start, steps = view
            else:
                start, steps = view.__array_interface__["data"][0], _steps(view)
            words += [start, *steps[:dims]]
            words += [steps[dims]] if operand.inner == STRIDED else []
            words += steps[dims + 1 :]
        return np.array(words, np.int64), keep

    def interpret(self) -> dict[int, np.ndarray]:
        """What the stores write, by operand, computed in float64."""
        return _interpret(self)


def softmax() -> Maker:
    """Of four rows of 20: three sweeps, and the exponentials are kept."""
    m = Maker((4,), 20)
    x = m.load(np.zeros((4, 20), np.float32))
    e = m.op("exp", m.op("sub", x, m.op("reduce_max", x)))
    m.store(np.zeros((4, 20), np.float32), m.op("div", e, m.op("reduce_sum", e)))
    return m


def _steps(view: np.ndarray) -> list[int]:
    """Strides in elements; zero for dimensions of size 1, as planners write them."""
    return [s // view.itemsize for s in view.strides]


def compiled(nest: Nest, entry: str = "task", lanes: int = 0) -> Any:
    symbol = "kernel"
    key = f"{nest!r} {entry} {lanes}"
    source = native.Source(key, symbol, lambda: emit(nest, symbol, entry, lanes))
    address = native.load([source])[key]
    words = 6 if entry == "tile" else 2
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * words)(address)


def _interpret(maker: Maker) -> dict[int, np.ndarray]:
    shape = (*maker.outer, *maker.mid, maker.inner)
    results = {
        k: view.astype(_wide(view.dtype))
        for k, view in enumerate(maker.views)
        if isinstance(view, np.ndarray)
    }
    values: list[np.ndarray] = []
    for instr in maker.body:
        args = [values[a] for a in instr.args]
        if instr.name == "load":
            value = _load(maker, instr, args, shape)
        elif is_store(instr):
            value = args[0]
            _store(maker, instr, args, results, shape)
        elif instr.name == "const":
            value = np.full(shape, instr.attr, _wide(instr.dtype))
        elif instr.name.startswith("reduce_"):
            value = _reduce(maker, instr, args[0])
        else:
            with np.errstate(all="ignore"):
                value = np.asarray(REFERENCE[instr.name](instr, *args))
            value = value.astype(_wide(instr.dtype))
        values.append(value)
    return results


def _wide(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float64) if dtype.kind not in "biu" else dtype


def _load(maker: Maker, instr: Instr, args: Any, shape: Any) -> np.ndarray:
    view = maker.views[instr.attr]
    if maker.operands[instr.attr].kind == "index":
        start, steps = view
        grid = np.indices(shape)
        value = start + sum(g * s for g, s in zip(grid, steps, strict=True))
    elif args:
        value = view[(*np.indices(shape), *args)]
    else:
        value = view
    return value.astype(_wide(instr.dtype))


def _store(maker: Maker, instr: Instr, args: Any, results: Any, shape: Any) -> None:
    target = results[instr.attr]
    if not args[1:] and instr.name == "store":
        target[...] = args[0]
        return
    place = (*np.indices(shape), *args[1:])
    # Broadcast dimensions of the target are one place: write through strides.
    pinned = tuple(
        p * (s != 0)
        for p, s in zip(place, _steps(maker.views[instr.attr]), strict=True)
    )
    how = {
        "store": None,
        "store_add": np.add,
        "store_mul": np.multiply,
        "store_max": np.maximum,
        "store_min": np.minimum,
    }[instr.name]
    if how is None:
        target[pinned] = args[0]
    else:
        how.at(target, pinned, args[0])
    results[instr.attr] = target[
        tuple(
            i * (s != 0)
            for i, s in zip(
                np.indices(target.shape),
                _steps(maker.views[instr.attr]),
                strict=True,
            )
        )
    ]


def _reduce(maker: Maker, instr: Instr, value: np.ndarray) -> np.ndarray:
    if maker.axis == "inner":
        axes: tuple[int, ...] = (len(maker.outer),)
    else:
        axes = tuple(range(len(maker.outer), len(maker.outer) + len(maker.mid)))
    full = np.broadcast_to(value, (*maker.outer, *maker.mid, maker.inner))
    name = instr.name.removeprefix("reduce_")
    if name.startswith("arg"):
        merged = full.reshape(*maker.outer, -1, *full.shape[axes[-1] + 1 :])
        result = getattr(np, name)(merged, axis=len(maker.outer))
        result = np.expand_dims(result, axes)
    else:
        how = {
            "sum": np.add,
            "prod": np.multiply,
            "max": np.maximum,
            "min": np.minimum,
            "and": np.bitwise_and,
            "or": np.bitwise_or,
        }[name]
        result = how.reduce(full, axis=axes, keepdims=True)
    return np.broadcast_to(result, full.shape).astype(_wide(instr.dtype))


def _integer_division(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    safe = np.where(y == 0, 1, y)
    if x.dtype.kind == "u":
        return np.where(y == 0, np.iinfo(x.dtype).max, x // safe)
    wide = np.abs(x.astype(object)) // np.abs(safe.astype(object))
    signed = np.where((x < 0) != (safe < 0), -wide, wide)
    bits = 8 * x.itemsize
    wrapped = (signed + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    return np.where(y == 0, -1, wrapped.astype(x.dtype))


def _div(_: Instr, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x / y if x.dtype.kind == "f" else _integer_division(x, y)


def _rem(_: Instr, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "f":
        return np.fmod(x, y)
    return np.where(y == 0, x, x - _integer_division(x, y) * y)


def _plain(function: Any) -> Any:
    return lambda instr, *args: function(*args)


def _power(instr: Instr, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """With Python's integers, of which the last bits are kept."""
    width = 8 * x.itemsize
    signed = x.dtype.kind == "i"

    def one(base: int, exponent: int) -> int:
        found = pow(int(base), int(exponent) % (1 << (width - signed)), 1 << width)
        return found - (signed and found >> (width - 1)) * (1 << width)

    return np.array([*map(one, x.ravel(), y.ravel())], x.dtype).reshape(x.shape)


def _shift(kind: str) -> Any:
    def shift(_: Instr, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        bits = 8 * x.itemsize
        unsigned = np.dtype(f"u{x.itemsize}")
        beyond = y.view(unsigned) >= bits
        count = np.where(beyond, 0, y)
        if kind == "left":
            return np.where(beyond, 0, np.left_shift(x, count))
        if kind == "logical":
            moved = np.right_shift(x.view(unsigned), count.view(unsigned))
            return np.where(beyond, 0, moved).astype(unsigned).view(x.dtype)
        signed = np.dtype(f"i{x.itemsize}")
        count = np.where(beyond, bits - 1, y).astype(signed)
        return np.right_shift(x.view(signed), count).view(x.dtype)

    return shift


def _convert(instr: Instr, x: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "f" and instr.dtype.kind in "iu":
        info = np.iinfo(instr.dtype)
        clipped = np.nan_to_num(x, nan=0.0, posinf=1e300, neginf=-1e300)
        exact = [max(info.min, min(info.max, int(v))) for v in clipped.ravel()]
        return np.array(exact, instr.dtype).reshape(x.shape)
    return x.astype(instr.dtype)


def _bitcast(instr: Instr, x: np.ndarray) -> np.ndarray:
    narrow = x.astype(np.float32) if x.dtype.kind == "f" else x
    return narrow.view(instr.dtype)


REFERENCE: dict[str, Any] = {
    **{
        ours: _plain(getattr(np, theirs))
        for ours, theirs in {
            **dict.fromkeys(("add", "maximum", "minimum", "abs", "sign", "floor"), ""),
            **dict.fromkeys(("ceil", "trunc", "exp", "exp2", "log", "log1p"), ""),
            **dict.fromkeys(("expm1", "log2", "sqrt", "cbrt", "sin", "cos"), ""),
            **dict.fromkeys(("tan", "sinh", "cosh", "tanh", "bitwise_and"), ""),
            **dict.fromkeys(("bitwise_or", "bitwise_xor"), ""),
            **{"sub": "subtract", "mul": "multiply", "neg": "negative"},
            **{"round": "round", "pow": "power", "asin": "arcsin"},
            **{"acos": "arccos", "atan": "arctan", "atan2": "arctan2"},
            **{"asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh"},
            **{"eq": "equal", "ne": "not_equal", "lt": "less", "gt": "greater"},
            **{"le": "less_equal", "ge": "greater_equal", "select": "where"},
            **{"is_finite": "isfinite", "bitwise_not": "invert"},
        }.items()
        for theirs in [theirs or ours]
    },
    "erf": _plain(special.erf),
    "erfc": _plain(special.erfc),
    "erf_inv": _plain(special.erfinv),
    "lgamma": _plain(special.gammaln),
    "digamma": _plain(special.digamma),
    "polygamma": lambda instr, x: special.polygamma(instr.attr, x).astype(x.dtype),
    "logistic": _plain(special.expit),
    "softplus": _plain(lambda x: np.logaddexp(x, 0).astype(x.dtype)),
    "rsqrt": _plain(lambda x: 1 / np.sqrt(x)),
    "multiply_add": lambda instr, x, y, z: (
        (-1 if instr.attr == "product" else 1) * x * y
        + (-z if instr.attr == "term" else z)
    ),
    "div": _div,
    "rem": _rem,
    "convert": _convert,
    "bitcast": _bitcast,
    "shift_left": _shift("left"),
    "shift_right_logical": _shift("logical"),
    "shift_right_arithmetic": _shift("arithmetic"),
    "integer_pow": lambda instr, x: x ** np.asarray(instr.attr, x.dtype),
    "power_of_integers": _power,
    "population_count": _plain(lambda x: np.bitwise_count(x.view(f"u{x.itemsize}"))),
    "clz": _plain(
        lambda x: np.vectorize(
            lambda v: 8 * x.itemsize - int(v).bit_length(), otypes=[x.dtype]
        )(x.view(f"u{x.itemsize}"))
    ),
}
