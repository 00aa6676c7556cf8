"""The array API standard, dtypes, devices, files; what other libraries make of our
arrays. (The standard's own test suite is too slow to run each time.)"""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import scipy.linalg
import scipy.special
from sklearn.preprocessing import StandardScaler

import treadle as td
import treadle.numpy as tnp
from tests.core.np.oracle import floats, same
from treadle import dtypes

X = floats(3, 4)

NAMES = """
__array_api_version__ __array_namespace_info__ e inf nan newaxis pi bool int8 int16
int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128 arange
asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones
ones_like tril triu zeros zeros_like astype can_cast finfo iinfo isdtype result_type
abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift
bitwise_invert bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos
cosh divide equal exp expm1 floor floor_divide greater greater_equal hypot imag
isfinite isinf isnan less less_equal log log1p log2 log10 logaddexp logical_and
logical_not logical_or logical_xor maximum minimum multiply negative nextafter
not_equal positive pow real reciprocal remainder round sign signbit sin sinh square
sqrt subtract tan tanh trunc take take_along_axis matmul matrix_transpose tensordot
vecdot broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims
repeat reshape roll squeeze stack tile unstack argmax argmin count_nonzero nonzero
searchsorted where unique_all unique_counts unique_inverse unique_values argsort sort
cumulative_prod cumulative_sum max mean min prod std sum var all any diff
"""
NOT_HERE = {
    "arrays of": "float4_e2m1fn float6_e2m3fn float6_e3m2fn float8_e3m4 float8_e4m3 "
    "float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz "
    "float8_e8m0fnu int1 int2 int4 uint1 uint2 uint4 object_",
    "NumPy's own machinery": "ufunc frompyfunc ComplexWarning",
}


def test_every_name_of_the_standard() -> None:
    assert [n for n in NAMES.split() if not hasattr(tnp, n)] == []


def test_every_name_of_jax() -> None:
    left = " ".join(NOT_HERE.values()).split()
    public = [n for n in dir(jnp) if not n.startswith("_") and n not in left]
    assert [n for n in public if not hasattr(tnp, n)] == []


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_the_namespace_of_an_array() -> None:
    x = tnp.array(X)
    assert x.__array_namespace__() is tnp
    assert x.__array_namespace__(api_version="2024.12") is tnp
    assert tnp.__array_api_version__ == "2024.12"
    with pytest.raises(ValueError, match=r"2030\.12 is not supported"):
        x.__array_namespace__(api_version="2030.12")
    seen: list[Any] = []
    td.jit(lambda x: seen.append(x.__array_namespace__()) or (x.device and x))(X)
    assert seen == [tnp]
    info = tnp.__array_namespace_info__()
    assert info.capabilities()["boolean indexing"]
    assert info.default_device() == x.device and x.device in info.devices()
    assert info.default_dtypes()["integral"] == tnp.array(1).dtype
    assert set(info.dtypes(kind="real floating")) == {"float32", "float64"}
    assert "bfloat16" not in info.dtypes() and len(info.dtypes()) == 13


KINDS = [
    "bool",
    "signed integer",
    "unsigned integer",
    "integral",
    "real floating",
    "complex floating",
    "numeric",
    ("bool", "integral"),
    np.float32,
]


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_kinds_of_dtypes(dtype: np.dtype) -> None:
    for kind in KINDS:
        assert tnp.isdtype(dtype, kind) == jnp.isdtype(dtype, kind), kind
    abstract = "generic number integer signedinteger unsignedinteger inexact floating"
    for name in (*abstract.split(), "complexfloating"):
        kind = getattr(tnp, name)
        assert tnp.issubdtype(dtype, kind) == jnp.issubdtype(dtype, kind), name
    for other in dtypes.ALL:
        assert tnp.issubdtype(dtype, other) == (dtype == other)
        if dtypes.bfloat16 not in (dtype, other):
            assert tnp.can_cast(dtype, other) == np.can_cast(dtype, other)
    if dtypes.is_differentiable(dtype):
        limits = ml_dtypes.finfo(dtypes.to_real(dtype))
        assert tnp.finfo(tnp.zeros(1, dtype)).eps == limits.eps
    elif dtype != dtypes.bool_:
        assert tnp.iinfo(dtype).max == np.iinfo(dtype).max


def test_wrong_dtypes() -> None:
    with pytest.raises(
        ValueError, match=r"'floating' is neither(.|\n)*'real floating'"
    ):
        tnp.isdtype(tnp.float32, "floating")
    with pytest.raises(ValueError, match="int32 is no floating-point dtype"):
        tnp.finfo(tnp.int32)
    with pytest.raises(ValueError, match="float32 is no integer dtype"):
        tnp.iinfo(tnp.float32)
    assert tnp.isscalar(2) and not tnp.isscalar(X) and tnp.isrealobj(X)
    assert tnp.dtype("bfloat16") == tnp.bfloat16


def test_dlpack_both_ways() -> None:
    x = tnp.array(X)
    assert np.shares_memory(np.from_dlpack(x), np.asarray(x))
    same(jnp.from_dlpack(x), X)
    same(tnp.from_dlpack(jnp.asarray(X)), X)
    assert not np.shares_memory(tnp.from_dlpack(X, copy=True), X)
    assert np.shares_memory(tnp.from_dlpack(X), X)


def test_devices() -> None:
    x = tnp.zeros(2, device="reference")
    assert x.device.name == "reference" and (x + 1).device == x.device
    assert tnp.array(X).to_device("reference").device == x.device
    assert tnp.eye(2, device=tnp.array(X).device).device.name == "cpu"
    for made in (
        tnp.arange(3, device=x.device),
        tnp.full_like(x, 3, device=x.device),
        tnp.asarray([1.0], device="reference"),
        tnp.linspace(0, 1, 3, device=x.device),
    ):
        assert made.device == x.device
    with pytest.raises(ValueError, match="there is no device 'tpu'"):
        tnp.ones(2, device="tpu")
    code = "import treadle.numpy as tnp; print(tnp.ones(2).device)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "Device('cpu')\n", done.stderr


def test_other_libraries() -> None:
    x = tnp.array(X)
    same(scipy.special.expit(x), scipy.special.expit(X))
    np.testing.assert_allclose(scipy.linalg.pinv(x), scipy.linalg.pinv(X), rtol=1e-4)
    scaled = StandardScaler().fit_transform(x)
    np.testing.assert_allclose(scaled, StandardScaler().fit_transform(X), rtol=1e-5)


def test_shapes_and_methods_as_numpys() -> None:
    x = tnp.array(X)
    for shape in (np.array([2, 6]), np.array(12), tnp.array([6, 2]), [3, -1]):
        same(x.reshape(shape), X.reshape(np.asarray(shape)))
    same(x.reshape(2, 6, order="F"), X.reshape(2, 6, order="F"))
    same(x.diagonal(1), X.diagonal(1))
    same(x.trace(), X.trace(), 8)
    same(x.ptp(0), np.ptp(X, 0))
    same(x.std(1, correction=1), X.std(1, ddof=1), 8)
    same(x.argsort(descending=True, stable=True), np.argsort(-X).astype(np.int32))
    same(x.compress([True, False, True], 0), X[[0, 2]])
    same(x.conjugate(), X)
    same(x[0].sort().searchsorted(0.0), np.int32(np.searchsorted(np.sort(X[0]), 0)))
    same((x > 0).nonzero()[1], np.nonzero(X > 0)[1].astype(np.int32))
    assert x.itemsize == 4 and isinstance(x, tnp.ndarray)
    same(tnp.matmul(x, x.T, precision="highest"), X @ X.T, 16)
    half, byte = X.astype(np.float16), (X * 40).astype(np.int8)
    product = lambda a, b, **o: tnp.einsum("ij,jk", a, b, **o)  # noqa: E731
    for f in (tnp.matmul, tnp.dot, tnp.inner, product):
        b = half.T if f is not tnp.inner else half
        wide = half.astype(np.float32) @ half.T.astype(np.float32)
        same(f(half, b, preferred_element_type=np.float32), wide, 16)
    same(
        tnp.matmul(byte, byte.T, preferred_element_type=np.int32),
        byte.astype(np.int32) @ byte.T.astype(np.int32),
    )
    with pytest.raises(ValueError, match="precision 'lowest' is none of"):
        tnp.dot(x, x.T, precision="lowest")


def test_files(tmp_path: Path) -> None:
    x, half = tnp.array(X), tnp.array(X).astype(tnp.bfloat16)
    tnp.save(tmp_path / "x.npy", x)
    same(tnp.load(tmp_path / "x.npy"), X)
    same(np.load(tmp_path / "x.npy"), X)
    tnp.savez(tmp_path / "both.npz", x, half=half)
    found = tnp.load(tmp_path / "both.npz")
    same([found["arr_0"], found["half"]], [x, half])
    same(tnp.frombuffer(X.tobytes()).reshape(3, 4), X)
    same(tnp.fromstring("1 2 3", dtype=int, sep=" "), np.int32([1, 2, 3]))
    same(tnp.fromiter(iter([1.5, 2.5])), np.float32([1.5, 2.5]))
    text = tmp_path / "x.bin"
    X.tofile(text)
    same(tnp.fromfile(text), X.ravel())
    raw = io.BytesIO()
    np.save(raw, np.array([{}]))
    raw.seek(0)
    with pytest.raises(ValueError, match="allow_pickle"):
        tnp.load(raw)
    with tnp.printoptions(precision=2):
        assert tnp.array_repr(tnp.array(1.23456)) == "Array(1.23, dtype=float32)"
        assert tnp.array_str(x[0]) == np.array_str(X[0])
        assert tnp.array2string(x, separator=",") == np.array2string(X, separator=",")
