"""Every function of the array API standard 2024.12, beside its reference namespace:
values, dtypes, shapes, and errors where the standard demands one.

The reference refuses what the standard leaves open (mixed kinds, more arguments): the
calls are such as it defines. Default dtypes are each library's own.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import array_api_strict as strict
import numpy as np
import pytest

import treadle.numpy as tnp

Call = Callable[..., Any]

REAL = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
FLOATING = REAL + COMPLEX
SIGNED = ("int8", "int16", "int32", "int64")
INTEGER = (*SIGNED, "uint8", "uint16", "uint32", "uint64")
NUMERIC = INTEGER + FLOATING
ALL = ("bool", *NUMERIC)


@pytest.fixture(autouse=True, scope="module")
def version() -> Any:
    with strict.ArrayAPIStrictFlags(api_version="2024.12"):
        yield


def numbers(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    """Some of either sign, small enough for every dtype, none on a branch cut."""
    generator = np.random.default_rng(seed + len(shape))
    if dtype == "bool":
        return generator.random(shape) < 0.5
    if dtype.startswith("u"):
        return generator.integers(1, 6, shape).astype(dtype)
    if dtype.startswith("int"):
        return generator.choice([-4, -3, -1, 1, 2, 5], shape).astype(dtype)
    x = generator.uniform(-2.2, 2.2, shape)
    if dtype.startswith("complex"):
        x = x + 1j * generator.uniform(-2.2, 2.2, shape)
    return x.astype(dtype)


def plain(x: Any) -> Any:
    """A result as NumPy's arrays and Python's values."""
    if isinstance(x, tuple | list):
        return [plain(v) for v in x]
    if hasattr(x, "__dlpack__"):
        return np.from_dlpack(x)
    return x


class Wide:
    """Marks a result whose dtype is a default: of it, only the kind is compared."""

    def __init__(self, call: Call) -> None:
        self.call = call

    def __call__(self, *args: Any) -> Any:
        return self.call(*args)


def same(ours: Any, theirs: Any, wide: bool) -> None:
    if isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            same(a, b, wide)
    elif isinstance(theirs, np.ndarray):
        assert ours.shape == theirs.shape
        assert ours.dtype.kind == theirs.dtype.kind
        assert wide or ours.dtype == theirs.dtype
        digits = 2e-5 if ours.dtype.itemsize <= 4 or ours.dtype == "c8" else 1e-12
        np.testing.assert_allclose(ours, theirs, digits, digits)
    else:
        assert ours == theirs


def both(call: Call, *arrays: np.ndarray) -> None:
    theirs = plain(call(strict, *[strict.asarray(a) for a in arrays]))
    ours = plain(call(tnp, *[tnp.asarray(a) for a in arrays]))
    same(ours, theirs, isinstance(call, Wide))


# Elementwise --------------------------------------------------------------------------

UNARY = {
    FLOATING: "acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p "
    "log2 reciprocal sin sinh sqrt tan tanh",
    NUMERIC: "abs isfinite isinf isnan negative positive round sign square",
    INTEGER + REAL: "ceil floor trunc",
    COMPLEX: "conj imag real",
    REAL: "signbit",
    ("bool",): "logical_not",
    ("bool", *INTEGER): "bitwise_invert",
}
BINARY = {
    NUMERIC: "add multiply subtract equal not_equal",
    FLOATING: "divide pow",
    REAL: "atan2 copysign hypot logaddexp nextafter",
    INTEGER + REAL: "floor_divide remainder maximum minimum greater greater_equal less "
    "less_equal",
    ("bool",): "logical_and logical_or logical_xor",
    ("bool", *INTEGER): "bitwise_and bitwise_or bitwise_xor",
    INTEGER: "bitwise_left_shift bitwise_right_shift",
}
OF_ONE = {n: kinds for kinds, names in UNARY.items() for n in names.split()}
OF_TWO = {n: kinds for kinds, names in BINARY.items() for n in names.split()}
POSITIVE = {"acosh", "log", "log10", "log2", "sqrt", "pow"}


@pytest.mark.parametrize("name", OF_ONE)
def test_of_one_operand(name: str) -> None:
    for dtype in OF_ONE[name]:
        if name == "negative" and dtype.startswith("u"):
            continue
        x = numbers(dtype, 3, 4)
        x = np.tanh(x) if name in ("acos", "asin", "atanh", "log1p") else x
        x = abs(x) + x.dtype.type(1) if name in POSITIVE and dtype in REAL else x
        for y in (x, x[0, 0], x[:0]):
            both(lambda xp, y: getattr(xp, name)(y), np.asarray(y))


@pytest.mark.parametrize("name", OF_TWO)
def test_of_two_operands(name: str) -> None:
    for dtype in OF_TWO[name]:
        x, y = numbers(dtype, 3, 4), numbers(dtype, 4, seed=1)
        if name == "pow" and dtype in REAL:
            x, y = abs(x), abs(y)
        y = y % 4 if "shift" in name else y
        call = lambda xp, x, y: getattr(xp, name)(x, y)  # noqa: E731
        both(call, x, y)
        if "shift" not in name:
            both(call, y, x)
        number = 2.0 if dtype in FLOATING else dtype == "bool" or 2
        both(lambda xp, x, y=number: getattr(xp, name)(x, y), x)


# What remains, by name ----------------------------------------------------------------

A, B = numbers("float64", 3, 4), numbers("float64", 3, 4, seed=7)
V, W = numbers("float32", 12), numbers("float32", 12, seed=5)
N, ORDER = numbers("int32", 3, 4), np.array([2, 0, 1])
P = numbers("bool", 3, 4)
T = numbers("float32", 2, 3, 4)
Z = numbers("complex128", 3, 4)


def dtype_of(x: Any) -> str:
    return str(getattr(x, "name", x)).removeprefix("array_api_strict.")


def reduced(name: str, *arrays: np.ndarray, **options: Any) -> list[Any]:
    """Calls over axes, with and without keepdims."""
    axes: tuple[Any, ...] = (None, 0, -1)
    if name not in ("argmax", "argmin"):
        axes += ((0, 1),) if options else ((0, 1), ())
    return [
        (Wide(lambda xp, x, o=o: getattr(xp, name)(x, **o)), x)
        for x in arrays
        for axis in axes
        for o in ({"axis": axis, "keepdims": True}, {"axis": axis} | options)
    ]


def of(name: str, *arrays: Any, **options: Any) -> Any:
    """The call ``name(*arrays, **options)``; what is no array is given as it is."""

    def call(xp: Any, *xs: Any) -> Any:
        rest = iter(xs)
        filled = [next(rest) if isinstance(a, np.ndarray) else a for a in arrays]
        wanted = {k: getattr(xp, v) if k == "dtype" else v for k, v in options.items()}
        return getattr(xp, name)(*filled, **wanted)

    return call, *[a for a in arrays if isinstance(a, np.ndarray)]


def each(name: str, *arrays: Any) -> Any:
    """A call with a list of arrays."""
    return lambda xp, *xs: getattr(xp, name)(list(xs)), *arrays


def wide(case: Any) -> Any:
    return Wide(case[0]), *case[1:]


CASES: dict[str, list[Any]] = {
    "all": [*reduced("all", P, A)],
    "any": [*reduced("any", P, A)],
    "arange": [
        of("arange", 5, dtype="int32"),
        of("arange", 1, 7, 2, dtype="float64"),
        of("arange", 5.0, 0, -1.5, dtype="float32"),
        wide(of("arange", 4)),
    ],
    "argmax": reduced("argmax", A, N),
    "argmin": reduced("argmin", A, N),
    "argsort": [
        wide(of("argsort", x, axis=axis, descending=down))
        for x in (A, N)
        for axis in (0, -1)
        for down in (False, True)
    ],
    "asarray": [
        of("asarray", [[1, 2], [3, 4]], dtype="int16"),
        of("asarray", A, copy=True),
        of("asarray", True),
        wide(of("asarray", [1.5, 2])),
    ],
    "astype": [
        (lambda xp, x, d=d: xp.astype(x, getattr(xp, d)), x)
        for x, d in ((A, "float32"), (A, "int32"), (N, "complex64"), (P, "uint8"))
    ],
    "broadcast_arrays": [(lambda xp, x, y: xp.broadcast_arrays(x, y), A, V[:4])],
    "broadcast_to": [
        of("broadcast_to", A, (2, 3, 4)),
        of("broadcast_to", A[:1], (3, 4)),
    ],
    "can_cast": [
        (lambda xp, a=a, b=b: xp.can_cast(getattr(xp, a), getattr(xp, b)),)
        for a, b in (("int8", "int16"), ("float64", "float32"), ("uint8", "int8"))
    ],
    "clip": [
        of("clip", A, -0.5, 0.5),
        of("clip", A, max=0.0),
        of("clip", N, 0),
        (lambda xp, x, y: xp.clip(x, xp.minimum(y, 0.0), 1.0), A, B),
    ],
    "concat": [
        each("concat", A, B),
        (lambda xp, x, y: xp.concat([x, y], axis=None), A, V.astype(float)),
        (lambda xp, x, y: xp.concat((x, y), axis=-1), A, B),
    ],
    "count_nonzero": reduced("count_nonzero", P, N),
    "cumulative_prod": [
        of("cumulative_prod", A, axis=0),
        wide(of("cumulative_prod", N, axis=1, include_initial=True)),
    ],
    "cumulative_sum": [
        of("cumulative_sum", V),
        of("cumulative_sum", A, axis=1, include_initial=True),
        of("cumulative_sum", N, axis=-1, dtype="int64"),
    ],
    "diff": [
        of("diff", A),
        of("diff", A, axis=0, n=2),
        (lambda xp, x, y: xp.diff(x, axis=0, prepend=y, append=y), A, B[:1]),
    ],
    "empty": [(lambda xp: xp.empty((2, 3), dtype=xp.int8) * 0,)],
    "empty_like": [(lambda xp, x: xp.empty_like(x).shape, A)],
    "expand_dims": [of("expand_dims", A, axis=a) for a in (0, 1, -1)],
    "eye": [of("eye", 3, 4, k=1, dtype="float32"), wide(of("eye", 2))],
    "finfo": [
        (lambda xp, d=d: [float(getattr(xp.finfo(getattr(xp, d)), k)) for k in LIMITS],)
        for d in FLOATING
    ],
    "flip": [of("flip", A), of("flip", A, axis=0), of("flip", T, axis=(0, -1))],
    "from_dlpack": [(lambda xp, x: xp.from_dlpack(A), A)],
    "full": [of("full", (2, 2), 3, dtype="float32"), wide(of("full", 2, True))],
    "full_like": [of("full_like", A, 2.5), of("full_like", A, 2, dtype="int8")],
    "iinfo": [
        (lambda xp, d=d: [int(getattr(xp.iinfo(getattr(xp, d)), k)) for k in RANGE],)
        for d in INTEGER
    ],
    "isdtype": [
        (lambda xp, d=d: [xp.isdtype(getattr(xp, d), k) for k in KINDS],) for d in ALL
    ],
    "linspace": [
        of("linspace", 0.0, 1.0, 5, dtype="float64"),
        of("linspace", 3, -1, 4, dtype="float32", endpoint=False),
    ],
    "matmul": [
        of("matmul", A, B.T.copy()),
        of("matmul", T, T.swapaxes(1, 2).copy()),
        of("matmul", A, V[:4].astype(float)),
        of("matmul", V, W),
        of("matmul", N, N.T.copy()),
        of("matmul", Z, Z.T.copy()),
    ],
    "matrix_transpose": [of("matrix_transpose", T)],
    "max": [*reduced("max", N), of("max", A, axis=0)],
    "mean": [*reduced("mean", A), of("mean", Z, axis=1)],
    "meshgrid": [
        (lambda xp, x, y: xp.meshgrid(x, y, indexing="ij"), V[:3], W[:2]),
        (lambda xp, x, y: xp.meshgrid(x, y), V[:3], W[:2]),
    ],
    "min": [*reduced("min", N), of("min", A, axis=0)],
    "moveaxis": [of("moveaxis", T, 0, -1), of("moveaxis", T, (0, 1), (2, 0))],
    "nonzero": [wide(of("nonzero", P)), wide(of("nonzero", N))],
    "ones": [of("ones", (2, 3), dtype="bool"), wide(of("ones", 3))],
    "ones_like": [of("ones_like", A), of("ones_like", A, dtype="uint8")],
    "permute_dims": [of("permute_dims", T, (2, 0, 1))],
    "prod": [*reduced("prod", A, N), of("prod", N, dtype="float64")],
    "repeat": [
        of("repeat", A, 2),
        of("repeat", A, 3, axis=1),
        of("repeat", A, np.array([2, 0, 1]), axis=0),
    ],
    "reshape": [
        of("reshape", A, (2, -1)),
        of("reshape", A, (12,)),
        of("reshape", A, (4, 3)),
    ],
    "result_type": [
        (lambda xp, a=a, b=b: dtype_of(xp.result_type(getattr(xp, a), getattr(xp, b))),)
        for group in (SIGNED, INTEGER[4:], FLOATING)
        for a in group
        for b in group
    ],
    "roll": [
        of("roll", A, 2),
        of("roll", A, (1, -1), axis=(0, 1)),
        of("roll", T, 1, axis=2),
    ],
    "searchsorted": [
        wide(of("searchsorted", np.sort(V), W)),
        wide(of("searchsorted", np.sort(V), V, side="right")),
    ],
    "sort": [
        of("sort", x, axis=a, descending=d)
        for x in (A, N)
        for a in (0, -1)
        for d in (0, 1)
    ],
    "squeeze": [of("squeeze", T[:1], 0), of("squeeze", T[:, :1, :1], (1, -1))],
    "stack": [each("stack", A, B), (lambda xp, x, y: xp.stack((x, y), axis=-1), A, B)],
    "std": [*reduced("std", A, correction=1.0), *reduced("std", T)],
    "sum": [*reduced("sum", A, N, numbers("uint8", 3, 4)), of("sum", N, dtype="int8")],
    "take": [of("take", A, ORDER, axis=0), of("take", V, ORDER)],
    "take_along_axis": [of("take_along_axis", A, ORDER[:, None].copy(), axis=1)],
    "tensordot": [
        (lambda xp, x, y, n=n: xp.tensordot(x, y, axes=n), A, B.T.copy())
        for n in (0, 1)
    ]
    + [(lambda xp, x, y: xp.tensordot(x, y, axes=((0, 1), (0, 1))), A, B)],
    "tile": [of("tile", A, (2, 1)), of("tile", V, (2, 2))],
    "tril": [of("tril", A), of("tril", T, k=1)],
    "triu": [of("triu", A), of("triu", T, k=-1)],
    "unique_all": [wide(of("unique_all", N))],
    "unique_counts": [wide(of("unique_counts", N))],
    "unique_inverse": [wide(of("unique_inverse", N))],
    "unique_values": [of("unique_values", N), of("unique_values", A)],
    "unstack": [of("unstack", A), of("unstack", T, axis=-1)],
    "var": [*reduced("var", A, correction=1.0), *reduced("var", T)],
    "vecdot": [
        of("vecdot", A, B),
        of("vecdot", Z, Z[::-1].copy()),
        of("vecdot", A, B, axis=-2),
    ],
    "where": [of("where", P, A, B), of("where", P, A, 0.0)],
    "zeros": [of("zeros", (2, 3), dtype="complex64"), wide(of("zeros", ()))],
    "zeros_like": [of("zeros_like", A), of("zeros_like", A, dtype="bool")],
}
LIMITS = ("bits", "eps", "max", "min", "smallest_normal")
RANGE = ("bits", "max", "min")
KINDS = ("bool", "signed integer", "unsigned integer", "integral", "real floating")
KINDS = (*KINDS, "complex floating", "numeric")


@pytest.mark.parametrize("name", CASES)
def test_functions(name: str) -> None:
    for call, *arrays in CASES[name]:
        both(call, *arrays)


# Linear algebra -----------------------------------------------------------------------

SQUARE = numbers("float64", 2, 3, 3)
SPD = SQUARE @ SQUARE.swapaxes(1, 2) + np.eye(3)
LINALG: dict[str, list[Any]] = {
    "cholesky": [of("cholesky", SPD), of("cholesky", SPD, upper=True)],
    "cross": [of("cross", A[:, :3].copy(), B[:, :3].copy())],
    "det": [of("det", SQUARE)],
    "diagonal": [of("diagonal", T), of("diagonal", T, offset=1)],
    "eigh": [
        of("eigvalsh", SPD),
        (lambda xp, x: rebuilt(*xp.eigh(x)), SPD),
    ],
    "eigvalsh": [of("eigvalsh", SPD)],
    "inv": [of("inv", SQUARE)],
    "matmul": [of("matmul", A, B.T.copy())],
    "matrix_norm": [of("matrix_norm", SQUARE, ord=o) for o in ("fro", "nuc", 1, -2)],
    "matrix_power": [of("matrix_power", SQUARE, n) for n in (-2, 0, 3)],
    "matrix_rank": [wide(of("matrix_rank", SQUARE))],
    "matrix_transpose": [of("matrix_transpose", T)],
    "outer": [of("outer", V, W)],
    "pinv": [of("pinv", A)],
    "qr": [
        (lambda xp, x, m=m: xp.qr(x, mode=m).Q @ xp.qr(x, mode=m).R, A)
        for m in ("reduced", "complete")
    ],
    "slogdet": [of("slogdet", SQUARE)],
    "solve": [of("solve", SQUARE, SPD), of("solve", SQUARE, V[:3].astype(float))],
    "svd": [(lambda xp, x: composed(*xp.svd(x, full_matrices=False)), A)],
    "svdvals": [of("svdvals", A)],
    "tensordot": [(lambda xp, x, y: xp.tensordot(x, y, axes=1), A, B.T.copy())],
    "trace": [of("trace", A), of("trace", T, offset=-1)],
    "vecdot": [of("vecdot", A, B)],
    "vector_norm": [
        of("vector_norm", A, axis=a, ord=o)
        for a in (None, 0)
        for o in (1, 2, np.inf, 0)
    ],
}


def rebuilt(values: Any, vectors: Any) -> Any:
    return (vectors * values[..., None, :]) @ vectors.mT


def composed(u: Any, s: Any, vh: Any) -> Any:
    return (u * s[..., None, :]) @ vh


@pytest.mark.parametrize("name", LINALG)
def test_linear_algebra(name: str) -> None:
    for call, *arrays in LINALG[name]:
        theirs = plain(call(strict.linalg, *[strict.asarray(a) for a in arrays]))
        ours = plain(call(tnp.linalg, *[tnp.asarray(a) for a in arrays]))
        same(ours, theirs, isinstance(call, Wide))


# Errors, names, objects ---------------------------------------------------------------

DEMANDED: dict[str, Call] = {
    "shapes that don't broadcast": lambda xp: xp.ones((3,)) + xp.ones((2,)),
    "broadcast_to": lambda xp: xp.broadcast_to(xp.ones((3,)), (2,)),
    "concat of other ranks": lambda xp: xp.concat([xp.ones((3,)), xp.ones((3, 1))]),
    "expand_dims": lambda xp: xp.expand_dims(xp.ones((3,)), axis=3),
    "flip": lambda xp: xp.flip(xp.ones((3,)), axis=1),
    "index out of range": lambda xp: xp.ones((3,))[4],
    "int of several": lambda xp: int(xp.ones((3,))),
    "float of complex": lambda xp: float(xp.asarray(1j)),
    "index of a float": lambda xp: [1, 2][xp.asarray(1.0)],
    "matmul of scalars": lambda xp: xp.matmul(xp.asarray(1.0), xp.ones((3,))),
    "matmul of other lengths": lambda xp: xp.ones((2, 3)) @ xp.ones((2, 3)),
    "matrix_transpose of a vector": lambda xp: xp.matrix_transpose(xp.ones((3,))),
    "reshape to another size": lambda xp: xp.reshape(xp.ones((3,)), (2,)),
    "squeeze of a longer axis": lambda xp: xp.squeeze(xp.ones((3,)), axis=0),
    "stack of other shapes": lambda xp: xp.stack([xp.ones((3,)), xp.ones((2,))]),
    "sum over no axis": lambda xp: xp.sum(xp.ones((3,)), axis=1),
    "unstack of a scalar": lambda xp: xp.unstack(xp.asarray(1.0)),
    "an unknown kind": lambda xp: xp.isdtype(xp.float32, "floating"),
    "max of nothing": lambda xp: xp.max(xp.ones((0,))),
    "too many indices": lambda xp: xp.ones((3,))[0, 0],
    "bool of several": lambda xp: bool(xp.ones((3,))),
    "cholesky of a vector": lambda xp: xp.linalg.cholesky(xp.ones((3,))),
    "det of an oblong": lambda xp: xp.linalg.det(xp.ones((2, 3))),
    "cross of lengths 4": lambda xp: xp.linalg.cross(xp.ones((4,)), xp.ones((4,))),
}


@pytest.mark.parametrize("what", DEMANDED)
def test_errors(what: str) -> None:
    kinds = (TypeError, ValueError, IndexError)
    with pytest.raises((*kinds, AttributeError)):
        DEMANDED[what](strict)
    with pytest.raises(kinds):
        DEMANDED[what](tnp)


# Of the standard after 2024.12.
LATER = {"broadcast_shapes", "isin", "eig", "eigvals"}


def standard(module: ModuleType) -> set[str]:
    """The names of functions of the standard."""
    found = {
        n
        for n, f in vars(module).items()
        if isinstance(f, FunctionType)
        and f.__module__.startswith(strict.__name__)
        and not n.startswith("_")
    }
    return {n for n in found if "flags" not in n and "requires" not in n} - LATER


def test_no_function_is_left_out() -> None:
    covered = {*OF_ONE, *OF_TWO, *CASES}
    assert standard(strict) - covered == set()
    assert covered - standard(strict) == set()
    assert all(hasattr(tnp, name) for name in covered)
    helpers = {"conj", "finfo", "normalize_axis_tuple", "reshape"}
    assert standard(strict.linalg) - helpers == set(LINALG)
