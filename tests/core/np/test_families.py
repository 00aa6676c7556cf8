"""Families of NumPy's functions: one expression, read by NumPy and by Treadle: eagerly,
compiled, and for a batch; gradients."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.np.oracle import bools, floats, ints, same

Function = Callable[[Any, Any], Any]
f32 = np.float32

X = floats(4, 5)
HOLES = X.copy()
HOLES[0, 1], HOLES[2, 1:] = np.nan, np.nan
EXTREMES = [0, -0.0, 1, -1.5, 3e38, 1e-40, -1e-45, np.inf, -np.inf, np.nan, 2**-126]
ARGS = {
    "x": X,
    "y": floats(4, 5, seed=9),
    "h": HOLES,
    "i": ints(4, 5),
    "j": ints(4, 5, seed=7),
    "b": bools(4, 5),
    "u": np.random.default_rng(4).integers(0, 255, (3, 4)).astype(np.uint8),
    "v": floats(5, seed=2),
    "e": f32(EXTREMES),
    "k": np.int32([0, 1, -1, -149, -200, 300, -30, 127, 128]),
    "t": np.float32([0, 1, 3, 4]),
    "o": f32([1, -2, 3]),
    "p": f32([2, 1]),
}

DIFFERENCES: dict[str, Function] = {
    "diff": lambda np, a: np.diff(a.x, prepend=0, append=a.x[:, :1]),
    "diff of truths": lambda np, a: np.diff(a.b),
    "ediff1d": lambda np, a: np.ediff1d(a.x, to_end=a.o, to_begin=9),
    "gradient": lambda np, a: np.gradient(a.x),
    "gradient, edges": lambda np, a: np.gradient(a.x, 0.5, axis=1, edge_order=2),
    "gradient, places": lambda np, a: np.gradient(a.x, a.t, a.v + 9 * SPREAD),
    "gradient, both": lambda np, a: np.gradient(a.x, a.t, axis=0, edge_order=2),
    "unwrap": lambda np, a: np.unwrap(a.x * 9, axis=0),
    "unwrap, integers": lambda np, a: np.unwrap(a.i, period=5),
    "cumulative_sum": lambda np, a: np.cumulative_sum(
        a.x, axis=1, include_initial=True
    ),
    "cumulative_prod": lambda np, a: np.cumulative_prod(a.v, include_initial=True),
    "nancumsum": lambda np, a: np.nancumsum(a.h, axis=1),
    "nancumprod": lambda np, a: np.nancumprod(a.h),
    "interp": lambda np, a: np.interp(a.x, a.t, a.x[:, 0], left=-1, right=99),
    "interp, complex": lambda np, a: np.interp(a.x, a.o, a.t[:3] * 1j, period=1.75),
    "cumsum of a scalar": lambda np, a: [np.cumsum(a.o[0], 0), np.cumprod(a.o[0], -1)],
    "interp, period": lambda np, a: np.interp(a.x, a.o, a.t[:3], period=1.75),
}
SPREAD = f32([0, 1, 2, 4, 5])
POLYNOMIALS: dict[str, Function] = {
    "polyval": lambda np, a: np.polyval(a.o, a.x),
    "polyadd": lambda np, a: np.polyadd(a.o, a.p),
    "polysub": lambda np, a: np.polysub(a.p, a.o),
    "polymul": lambda np, a: np.polymul(a.o, a.p),
    "polydiv": lambda np, a: np.polydiv(a.v, a.p)[0],
    "polyder": lambda np, a: [np.polyder(a.v), np.polyder(a.v, 2)],
    "polyint": lambda np, a: [np.polyint(a.v), np.polyint(a.v, 2, a.p)],
    "poly": lambda np, a: np.poly(a.o),
    "select": lambda np, a: np.select([a.x > 1, a.x < -1], [a.x, 2 * a.x], 0.5),
    "choose": lambda np, a: np.choose(abs(a.i) % 3, [a.x, a.x * 2, a.y]),
    "choose, wrap": lambda np, a: np.choose(a.i, [a.x, a.y], mode="wrap"),
    "choose, clip": lambda np, a: np.choose(a.i, [a.x, a.y], mode="clip"),
    "piecewise": lambda np, a: np.piecewise(
        a.x, [a.x > 1, a.x < -1], [lambda v: v * 2, -5.0, lambda v: v * 0 + 1]
    ),
}
EDITS: dict[str, Function] = {
    "insert": lambda np, a: np.insert(a.x, 1, 9),
    "insert several": lambda np, a: np.insert(a.x, [1, 1, 4], a.y[:, :3], axis=1),
    "insert, slice": lambda np, a: np.insert(a.x, slice(0, 2), 7, axis=0),
    "insert row": lambda np, a: np.insert(a.x, 2, a.v, axis=0),
    "insert column": lambda np, a: np.insert(a.x, -1, a.x[:, 0], axis=1),
    "insert, order": lambda np, a: np.insert(a.v, [2, 0], a.p),
    "delete": lambda np, a: np.delete(a.x, 1),
    "delete columns": lambda np, a: np.delete(a.x, [0, -1], axis=1),
    "delete, slice": lambda np, a: np.delete(a.x, slice(None, None, 2), axis=0),
    "resize": lambda np, a: [np.resize(a.x, (3, 9)), np.resize(a.x[:0], 3)],
    "diagflat": lambda np, a: np.diagflat(a.v, 1),
    "indices_from": lambda np, a: [
        np.tril_indices_from(a.x, 1),
        np.triu_indices_from(a.x),
        np.diag_indices_from(a.x[:, :4]),
    ],
    "indices": lambda np, a: [np.indices((2, 3)), np.indices((2, 3), sparse=True)],
    "mgrid": lambda np, a: [np.mgrid[0:2, 1:4], np.mgrid[0:1:3j, 0:2], np.mgrid[:3]],
    "ogrid": lambda np, a: np.ogrid[0:2, 1:7:2],
    "r_ and c_": lambda np, a: [np.r_[0:3, a.v, 5], np.c_[a.v, a.v], np.c_[a.x, a.y]],
    "block": lambda np, a: np.block([[a.x, a.x], [a.x[:1], a.v]]),
    "rollaxis": lambda np, a: [np.rollaxis(a.x[None], 2), np.rollaxis(a.x[None], 0, 2)],
    "dsplit": lambda np, a: np.dsplit(a.x[None, None], [1, 2]),
    "order F": lambda np, a: [
        np.reshape(a.x, (2, -1), order="F"),
        np.ravel(a.x, order="F"),
    ],
    "geomspace, two signs": lambda np, a: np.geomspace(a.o[1], a.o[2], 3)[[0, 2]],
    "geomspace": lambda np, a: [np.geomspace(1, 256, 9), np.geomspace(-1, -1000, 4)],
    "linspace": lambda np, a: np.linspace(a.x[0], a.v + 3, 4, axis=1),
    "linspace, step": lambda np, a: np.linspace(0, 1, 5, retstep=True),
    "lexsort": lambda np, a: np.lexsort((a.i % 3, a.j % 2)),
    "sort_complex": lambda np, a: np.sort_complex(a.v),
}
PADS: dict[str, Function] = {
    **{
        mode: lambda np, a, mode=mode: np.pad(a.x, ((1, 2), (0, 3)), mode)
        for mode in ("linear_ramp", "maximum", "minimum", "mean", "median", "reflect")
    },
    "constants": lambda np, a: np.pad(
        a.x, ((1, 2), (0, 3)), constant_values=((1, 2), (3, 4))
    ),
    "stat_length": lambda np, a: np.pad(a.i, 2, "mean", stat_length=2),
    "odd": lambda np, a: np.pad(a.x, 2, "reflect", reflect_type="odd"),
    "odd, symmetric": lambda np, a: np.pad(a.x, 2, "symmetric", reflect_type="odd"),
    "ramps": lambda np, a: np.pad(a.i, 3, "linear_ramp", end_values=((1, 2), (3, 4))),
}
NUMBERS: dict[str, Function] = {
    "gcd": lambda np, a: [np.gcd(a.i, a.j), np.gcd(a.u, 12)],
    "lcm": lambda np, a: np.lcm(a.i, a.j),
    "bitwise_count": lambda np, a: [np.bitwise_count(a.i), np.bitwise_count(a.u)],
    "packbits": lambda np, a: [
        np.packbits(a.b),
        np.packbits(a.b, axis=1, bitorder="little"),
    ],
    "unpackbits": lambda np, a: [
        np.unpackbits(a.u),
        np.unpackbits(a.u, axis=0, count=9, bitorder="little"),
        np.unpackbits(a.u, axis=1, count=-3),
        np.unpackbits(a.u, axis=1, count=40),
    ],
    "frexp": lambda np, a: np.frexp(a.e),
    "ldexp": lambda np, a: np.ldexp(a.e[:, None], a.k),
    "modf": lambda np, a: np.modf(a.e),
    "spacing": lambda np, a: np.spacing(a.e),
    "windows": lambda np, a: [
        *(w(n) for w in (np.bartlett, np.hanning, np.blackman) for n in (0, 1, 2, 8)),
        np.hamming(5),
        np.kaiser(9, 4.0),
    ],
    "i0": lambda np, a: np.i0(a.x * 6),
    "real or not": lambda np, a: [np.isreal(a.x + 1j * a.b), np.iscomplex(a.x + 0j)],
    "fabs": lambda np, a: [np.fabs(a.i), np.around(a.x, 1)],
    "array_equiv": lambda np, a: [np.array_equiv(a.x, a.x[:1]), np.array_equiv(a.x, 1)],
    "array_equal": lambda np, a: np.array_equal(a.h, a.h, equal_nan=True),
}
METHODS = (
    "lower higher midpoint nearest hazen weibull median_unbiased normal_unbiased "
    "interpolated_inverted_cdf inverted_cdf averaged_inverted_cdf closest_observation"
)
SAMPLES: dict[str, Function] = {
    "nanmedian": lambda np, a: np.nanmedian(a.h, axis=1),
    "nanquantile of nothing": lambda np, a: np.nanquantile(
        np.zeros((2, 3, 0)), 0.5, axis=(0, 1)
    ),
    "nanquantile": lambda np, a: np.nanquantile(a.h, f32([0.2, 0.7]), axis=0),
    "nanpercentile": lambda np, a: np.nanpercentile(a.h, 30, axis=1, keepdims=True),
    "median of axes": lambda np, a: np.median(a.x[None], axis=(0, 2)),
    "quantile of axes": lambda np, a: np.quantile(
        a.x[None], f32(0.3), axis=(0, 2), keepdims=True
    ),
    **{
        method: lambda np, a, m=method: np.quantile(
            a.x, f32([0, 0.1, 0.25, 0.5, 0.9, 1]), axis=1, method=m
        )
        for method in METHODS.split()
    },
    "quantile with weights": lambda np, a: np.quantile(
        a.x, f32([0, 0.3, 0.8, 1]), axis=1, weights=SPREAD, method="inverted_cdf"
    ),
    "percentile with weights": lambda np, a: np.percentile(
        a.x, 30, weights=np.abs(a.y) * a.b, method="inverted_cdf", keepdims=True
    ),
    "nanquantile with weights": lambda np, a: np.nanquantile(
        a.h, f32([0.2, 0.7]), axis=0, weights=np.abs(a.y), method="inverted_cdf"
    ),
    "var, where": lambda np, a: np.var(a.x, axis=0, where=a.b | (a.y < 1), ddof=1),
    "std, correction": lambda np, a: np.std(a.x, axis=1, correction=1),
    "var, mean": lambda np, a: np.var(
        a.x, axis=1, mean=np.mean(a.x, axis=1, keepdims=True)
    ),
    "sum, initial": lambda np, a: np.sum(a.x, axis=0, initial=3),
    "prod, initial": lambda np, a: np.prod(a.x, axis=0, initial=3, where=a.b),
    "any, where": lambda np, a: np.any(a.b, axis=0, where=a.x > 0),
    "all, where": lambda np, a: np.all(a.b, axis=1, where=a.x > 0),
    "average": lambda np, a: np.average(a.x, axis=1, weights=SPREAD + 1, returned=True),
    "cov of two": lambda np, a: np.cov(a.x, a.y),
    "cov, weights": lambda np, a: np.cov(
        a.x, fweights=COUNTS, aweights=f32([1, 2, 3, 4, 5])
    ),
    "cov, dtype": lambda np, a: np.cov(a.x.astype("int32"), a.y, dtype="float32"),
    "cov, bias": lambda np, a: np.cov(a.x, rowvar=False, bias=True),
    "corrcoef of two": lambda np, a: np.corrcoef(a.x[0], a.v),
    "nansum": lambda np, a: np.nansum(a.h, axis=0, where=a.b, initial=2),
    "nanmax": lambda np, a: np.nanmax(a.h, axis=0, where=a.b, initial=-9),
    "nanmean": lambda np, a: np.nanmean(a.h, axis=1, where=a.b | (a.x < 9)),
    "nanvar": lambda np, a: np.nanvar(a.h[:2], axis=1, where=a.x[:2] < 9),
    "nanstd, mean": lambda np, a: np.nanstd(
        a.h, axis=1, dtype="float32", mean=np.nanmean(a.h, axis=1, keepdims=True)
    ),
    "trace, dtype": lambda np, a: np.trace(a.i, dtype="float32"),
    "meshgrid, sparse": lambda np, a: [
        *np.meshgrid(a.v, a.x[0], sparse=True),
        *np.meshgrid(a.v, a.x[0], a.y[0], sparse=True, indexing="ij"),
    ],
    "vdot": lambda np, a: np.vdot(a.x + 1j * a.y, a.x - 2j * a.y),
    "cross of planes": lambda np, a: np.cross(a.x[:, :2], a.y[:, :3]),
    "cross, axes": lambda np, a: np.cross(a.x[:3], a.y[:3, :5].T, axisa=0, axisc=0),
    "einsum of lists": lambda np, a: np.einsum(a.x, [0, 1], a.y, [2, 1], [0, 2]),
}
COUNTS = np.array([1, 2, 1, 3, 1])
FAMILIES = {
    "differences": DIFFERENCES,
    "polynomials": POLYNOMIALS,
    "edits": EDITS,
    "pads": PADS,
    "numbers": NUMBERS,
    "samples": SAMPLES,
}
ALL = [(family, name) for family, members in FAMILIES.items() for name in members]


def given(module: Any = np, arrays: dict[str, Any] = ARGS) -> Any:
    return SimpleNamespace(**{n: module.asarray(x) for n, x in arrays.items()})


def leaves(x: Any) -> list[Any]:
    if isinstance(x, list | tuple):
        return [leaf for part in x for leaf in leaves(part)]
    return [x]


NARROW = {"float64": "float32", "int64": "int32", "complex128": "complex64"}


def near(found: Any, expected: Any, close: float = 16) -> None:
    """As `same`; NumPy's wide dtypes count as ours, of the numbers that have none."""
    found, expected = leaves(found), [np.asarray(e) for e in leaves(expected)]
    assert len(found) == len(expected)
    for f, e in zip(found, expected, strict=True):
        if f.dtype != e.dtype:
            e = e.astype(NARROW.get(e.dtype.name, e.dtype))
        same(f, e, close)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(("family", "name"), ALL)
def test_agrees_with_numpy(family: str, name: str) -> None:
    function = FAMILIES[family][name]
    near(function(tnp, given(tnp)), function(np, given()))


@pytest.mark.parametrize("family", FAMILIES)
def test_compiled(family: str) -> None:
    functions = FAMILIES[family].values()

    def every(arrays: dict[str, Any]) -> list[Any]:
        return [leaves(f(tnp, given(tnp, arrays))) for f in functions]

    near(td.jit(every)(ARGS), every(ARGS), 32)


@pytest.mark.parametrize("family", FAMILIES)
def test_batched(family: str) -> None:
    """A batch of two: the second holds the elements in another order."""
    other = {n: x[::-1] for n, x in ARGS.items()}
    other |= {n: ARGS[n] for n in "topv"}
    both = {n: np.stack([x, other[n]]) for n, x in ARGS.items()}

    def every(arrays: dict[str, Any]) -> list[Any]:
        return leaves([f(tnp, given(tnp, arrays)) for f in FAMILIES[family].values()])

    found = td.vmap(every)(both)
    singles = zip(every(ARGS), every(other), strict=True)
    near(found, [np.stack([np.asarray(s) for s in pair]) for pair in singles], 32)


@pytest.mark.parametrize("family", ["differences", "polynomials", "edits", "samples"])
def test_gradients(family: str) -> None:
    """Of a weighted sum of all results, in x, y and v: by finite differences, in double
    precision."""
    functions = FAMILIES[family].values()
    wide = {n: x.astype(float) if x.dtype == f32 else x for n, x in ARGS.items()}

    def score(moving: dict[str, Any]) -> Any:
        total = tnp.zeros((), float)
        holder = given(tnp, wide | moving)
        for k, f in enumerate(functions):
            for leaf in leaves(f(tnp, holder)):
                if leaf.dtype == np.float64:
                    flat = tnp.nan_to_num(leaf).ravel()
                    weights = np.cos(np.arange(flat.size) + 1.0 * k)
                    total = total + (weights * flat).sum()
        return total

    rng = np.random.default_rng(5)
    moving = {n: wide[n] for n in "xyv"}
    along = {n: rng.normal(size=x.shape) for n, x in moving.items()}
    step = 1e-6
    ends = [
        float(score({n: moving[n] + side * step * along[n] for n in moving}))
        for side in (1, -1)
    ]
    slope = td.grad(score)(moving)
    found = sum([float((slope[n] * along[n]).sum()) for n in moving])
    np.testing.assert_allclose(found, (ends[0] - ends[1]) / (2 * step), rtol=1e-5)


def test_in_place_is_refused() -> None:
    x = tnp.arange(6.0).reshape(2, 3)
    calls = {
        "put": lambda **o: tnp.put(x, [1, -1], [7.0, 8.0], **o),
        "place": lambda **o: tnp.place(x, x > 2, [1.0, 2.0], **o),
        "put_along_axis": lambda **o: tnp.put_along_axis(
            x, tnp.array([[2], [0]]), 9.0, 1, **o
        ),
        "fill_diagonal": lambda **o: tnp.fill_diagonal(x, 5.0, **o),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=rf"{name} can't change(.|\n)*inplace=Fal"):
            call()
        expected = np.arange(6.0, dtype=f32).reshape(2, 3)
        other = {
            "put": ([1, -1], [7.0, 8.0]),
            "place": (expected > 2, [1.0, 2.0]),
            "put_along_axis": (np.array([[2], [0]]), 9.0, 1),
            "fill_diagonal": (5.0,),
        }
        getattr(np, name)(expected, *other[name])
        same(call(inplace=False), expected)


TALL = [((5, 2), True), ((5, 2), False), ((2, 5), True), ((3, 3, 3), False)]


@pytest.mark.parametrize(("shape", "wrap"), TALL)
def test_fill_diagonal(shape: Any, wrap: bool) -> None:
    expected = floats(*shape)
    found = tnp.fill_diagonal(tnp.array(expected), f32([1, 2]), wrap, inplace=False)
    np.fill_diagonal(expected, f32([1, 2]), wrap)
    same(found, expected)


def test_places_that_are_traced() -> None:
    x, i = tnp.array(ARGS["x"]), np.int32([3, 1])
    same(td.jit(lambda i: tnp.insert(x, i, 0, 1))(i), np.insert(X, i, 0, 1))
    same(td.jit(lambda i: tnp.delete(x, i, 0))(2), np.delete(X, 2, 0))
    delete = lambda i, **o: tnp.delete(x, i, 1, **o)  # noqa: E731
    same(td.jit(lambda i: delete(i, assume_unique_indices=True))(i), np.delete(X, i, 1))
    with pytest.raises(td.errors.TracerError, match="assume_unique_indices=True"):
        td.jit(delete)(i)
    same(td.jit(lambda k: tnp.roll(x, k, 1))(7), np.roll(X, 7, 1))
    rows = np.arange(4 * 5 * 20).reshape(4, 5, 20)
    for by, axis in ((3, 0), (-13, 1), (25, 2), (True, 0), (np.uint8(255), 2)):
        found = td.jit(lambda k, axis=axis: tnp.roll(tnp.asarray(rows), k, axis))(by)
        same(found, np.roll(rows, int(by), axis))
    each = td.vmap(lambda row, k: tnp.roll(row, k, -1))(tnp.asarray(rows), np.arange(4))
    same(each, np.stack([np.roll(rows[k], k, -1) for k in range(4)]))
    repeat = lambda n, total: tnp.repeat(x, n, 0, total_repeat_length=total)  # noqa: E731
    counts = np.int32([2, 0, 1, 3])
    for total in (6, 4, 9):
        expected = jnp.repeat(X, counts, 0, total_repeat_length=total)
        same(td.jit(lambda n, t=total: repeat(n, t))(counts), expected)
    with pytest.raises(td.errors.TracerError, match=r"total_repeat_length=n"):
        td.jit(lambda n: tnp.repeat(x, n, 0))(counts)
    same(tnp.repeat(x, tnp.array(counts), 0), np.repeat(X, counts, 0))


def test_functions_of_elements() -> None:
    def clamp(x: Any, low: Any, high: float) -> Any:
        return tnp.where(x < low, low, x) * high

    mapped = tnp.vectorize(clamp, excluded={2})
    same(mapped(X, X[:1], 2.0), np.maximum(X, X[:1]) * 2)
    inner = tnp.vectorize(lambda a, b: (a @ b, b), signature="(n),(n,m)->(m),(n,m)")
    left, right = floats(2, 1, 3), floats(4, 3, 2)
    found = td.jit(inner)(left, right)
    same(found[0], np.einsum("abn,bnm->abm", np.broadcast_to(left, (2, 4, 3)), right))
    assert found[1].shape == (2, 4, 3, 2)
    with pytest.raises(
        ValueError, match=r"axis 'n' of its signature has lengths 3 and"
    ):
        inner(left, right[:, :2])
    with pytest.raises(ValueError, match=r"is no signature such as"):
        tnp.vectorize(clamp, signature="n->n")
    with pytest.raises(ValueError, match=r"returns an array of shape \(2,\)"):
        tnp.vectorize(lambda v: v[:2], signature="(n)->()")(X)
    same(
        tnp.apply_along_axis(lambda v, k: tnp.outer(v[:k], v), 0, X, 2),
        np.apply_along_axis(lambda v, k: np.outer(v[:k], v), 0, X, 2),
    )
    same(tnp.apply_over_axes(tnp.sum, X, [0, 1]), np.apply_over_axes(np.sum, X, [0, 1]))
    found = tnp.fromfunction(lambda i, j: i == 2 * j, (3, 2), dtype=int)
    same(found, np.fromfunction(lambda i, j: i == 2 * j, (3, 2), dtype=int))


def test_polynomials_with_leading_zeros() -> None:
    p, q = f32([0, 0, 1, 2]), f32([0, 3, 1])
    same(tnp.polymul(p, q, trim_leading_zeros=True), np.polymul(p, q))
    quotient, rest = tnp.polydiv(
        f32([1, 5, 6, 1]), f32([1, 2]), trim_leading_zeros=True
    )
    for f, e in zip((quotient, rest), np.polydiv([1, 5, 6, 1], [1, 2]), strict=True):
        np.testing.assert_allclose(f, e)
    longer = f32([2, 3, 1])
    for f, e in zip(tnp.polydiv(p[2:], longer), np.polydiv(p[2:], longer), strict=True):
        np.testing.assert_array_equal(f, e)


@pytest.mark.parametrize("places", [0, 7, -1, [3, 3, 0], list(range(7)) * 3])
def test_known_places_join_pieces(places: Any) -> None:
    x = np.arange(14.0).reshape(2, 7)
    values = np.arange(2.0 * np.size(places)).reshape(2, -1)
    same(
        td.jit(lambda x, v: tnp.insert(x, places, v, 1))(x, values),
        np.insert(x, places, values, 1),
    )
    if np.max(places) < 7:
        same(td.jit(lambda x: tnp.delete(x, places, 1))(x), np.delete(x, places, 1))
    x = np.arange(99.0)
    same(
        td.jit(lambda x: tnp.delete(x, slice(None, None, 3)))(x),
        np.delete(x, slice(None, None, 3)),
    )


@pytest.mark.parametrize("n", [1, 10, 32, 33])
def test_few_and_many_numbers_are_counted(n: int) -> None:
    x = np.random.default_rng(n).integers(-2, n + 3, 1000)
    inside = x[(x >= 0) & (x < n)]
    found = td.jit(lambda x: tnp.bincount(x, length=n))(x)
    np.testing.assert_array_equal(found, np.bincount(inside, minlength=n))
