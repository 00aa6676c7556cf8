"""Every function of `treadle.numpy` with axes of any size, against programs traced for
one size."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.dynamic import Arg, agree, bools, floats, ints, positive, rows, written

ARGS = {
    "x": floats("n m"),
    "y": floats("n m"),
    "u": floats("n"),
    "v": floats("m"),
    "t": floats("n m 4"),
    "s": floats("n n"),
    "p": positive("n m"),
    "i": ints("n m", 1, 5),
    "j": ints("n m", 1, 5),
    "k": ints("n", 0, 3),
    "b": bools("n m"),
    "c": bools("n m"),
    "h": floats("n 4"),
    "w": floats("4 m"),
    "z": Arg("n m", lambda rng, s: (rng.normal(size=s) + 1j).astype("complex64")),
    "e": floats("n 6"),
    "o": floats("3"),
    "d": floats("n 1"),
}
"""What the names in the expressions below stand for."""

FLOATS = (
    "abs absolute arcsinh arctan asinh atan angle cbrt ceil cos cosh deg2rad degrees "
    "exp exp2 expm1 floor isfinite isinf isnan isneginf isposinf nan_to_num negative "
    "positive rad2deg radians real reciprocal rint round sign signbit sin sinc sinh "
    "square tan tanh trunc imag conj conjugate ravel transpose flip fliplr flipud "
    "rot90 sum mean max min amax amin prod std var median all any argmax argmin ptp "
    "nanmax nanmean nanmin nanprod nanstd nansum nanvar nanargmax nanargmin cumsum "
    "cumprod sort argsort diff trace tril triu matrix_transpose count_nonzero copy "
    "asarray array zeros_like ones_like empty_like atleast_1d atleast_2d atleast_3d "
    "diagonal cov corrcoef average trapezoid"
)
UNIT = "acos arccos asin arcsin arctanh atanh log log10 log1p log2 sqrt"
TWO = (
    "add subtract multiply divide true_divide maximum minimum fmax fmin hypot "
    "arctan2 copysign fmod mod remainder floor_divide power pow float_power heaviside "
    "logaddexp logaddexp2 nextafter equal not_equal less less_equal greater "
    "greater_equal logical_and logical_or logical_xor isclose allclose array_equal "
    "divmod vdot vecdot"
)
INTEGERS = "bitwise_and bitwise_or bitwise_xor left_shift right_shift"

EXPRESSIONS = [
    *(f"tnp.{name}(x)" for name in FLOATS.split() if hasattr(tnp, name)),
    *(f"tnp.{name}(p)" for name in UNIT.split()),
    "tnp.acosh(p + 1), tnp.arccosh(p + 1)",
    *(f"tnp.{name}(p, y)" for name in TWO.split()),
    *(f"tnp.{name}(i, j)" for name in INTEGERS.split()),
    "tnp.invert(i), tnp.bitwise_not(i), tnp.logical_not(b)",
    # Broadcasting
    "x + u[:, None] * v",
    "x * v - 1",
    "t * u[:, None, None] + x[..., None]",
    "tnp.where(b, x, v), tnp.where(b, 1.0, u[:, None])",
    "tnp.select([b, c], [x, y], 2.0)",
    "tnp.clip(x, -1, v), x.clip(0)",
    "tnp.broadcast_to(v, x.shape), tnp.broadcast_to(d, (3, *x.shape))",
    "tnp.broadcast_arrays(u[:, None], v)",
    "x + tnp.zeros(tnp.broadcast_shapes(x.shape, v.shape))",
    "tnp.full_like(x, 2), tnp.full(x.shape, 1.5), tnp.zeros(x.shape), "
    "tnp.ones(x.shape[0]), tnp.empty(x.shape[:1])",
    # Sizes as numbers
    "x / x.shape[0] + x.shape[1] * 2",
    "i % i.shape[0], i // i.shape[1], i * i.size",
    "tnp.minimum(i, i.shape[1]), tnp.arange(x.shape[0]) < x.shape[1] // 2",
    "x * tnp.sqrt(x.shape[1] * 1.0), x * (1 / x.shape[1])",
    # Shapes
    "tnp.reshape(x, -1), x.reshape(x.size), x.reshape(1, -1), x.reshape(-1, 1)",
    "t.reshape(t.shape[0] * t.shape[1], 4), t.reshape(-1, 4)",
    "t.reshape(t.shape[0], t.shape[1], 2, t.shape[2] // 2), t.reshape(*x.shape, 2, 2)",
    "e.reshape(e.shape[0] * 2, 3), e.reshape(-1, 2), e.reshape(e.shape[0], -1)",
    "tnp.transpose(t, (2, 0, 1)), tnp.permute_dims(t, (1, 2, 0)), t.T, t.mT",
    "tnp.swapaxes(t, 0, 2), tnp.moveaxis(t, 0, -1)",
    "tnp.expand_dims(x, (0, 2)), tnp.squeeze(x[None, :, None], (0, 2))",
    "tnp.squeeze(x[:1], 0), tnp.squeeze(d, 1)",
    "tnp.ndim(x) + u, tnp.shape(x)[0] * u, tnp.size(x) * u, tnp.size(x, 1) * u",
    "tnp.flip(t, (0, 2)), tnp.rot90(x, 3), tnp.rot90(x, 2)",
    "tnp.astype(x, tnp.int32), tnp.int32(x), x.astype(tnp.float16), x.view(tnp.int32)",
    "tnp.real(z), tnp.imag(z), tnp.conj(z), tnp.angle(z), tnp.abs(z)",
    # Joining and cutting
    "tnp.concatenate([x, y, x], 0), tnp.concat([x, y], 1), "
    "tnp.concatenate([x, y], None)",
    "tnp.concatenate([x, tnp.zeros((2, x.shape[1]))])",
    "tnp.stack([x, y]), tnp.stack([x, y, x], -1), tnp.array([u, u])",
    "tnp.hstack([x, y]), tnp.vstack([x, y, v]), tnp.dstack([x, y]), "
    "tnp.hstack([u, v]), tnp.column_stack([u, x])",
    "tnp.append(x, y, 0), tnp.append(u, v)",
    "tnp.split(e, 3, 1), tnp.split(e, [2, 3], 1), tnp.array_split(e, 4, 1), "
    "tnp.hsplit(e, 2)",
    "tnp.split(x, [1], 0), tnp.vsplit(x, [1]), tnp.array_split(u, [-1])",
    "tnp.unstack(t, 2), tnp.unstack(w)",
    "tnp.tile(x, 2), tnp.tile(x, (2, 1, 3)), tnp.tile(v, (u.shape[0], 1))",
    "tnp.repeat(x, 2), tnp.repeat(x, 3, 0), tnp.repeat(d, v.shape[0], 1)",
    "tnp.roll(x, 1), tnp.roll(x, -1, 1)",
    "tnp.pad(x, 1), tnp.pad(x, ((0, 2), (1, 0)), constant_values=3)",
    "tnp.pad(x, 1, 'edge')",
    # Indexing
    "x[0], x[-1], x[:, 0], x[:, -1], x[..., None], x[None, 0]",
    "x[x.shape[0] - 1], x[:, x.shape[1] // 2]",
    "x[1:], x[:-1], x[:, 1:], x[-1:], x[:1], t[0, :, 1:3]",
    "x[::2], x[:, ::-1], x[::-1], x[1::2]",
    "x[: x.shape[0] // 2], x[x.shape[0] // 2 :], u[: u.shape[0]]",
    "x[k], x[:, k % x.shape[1]], x[k, k % x.shape[1]], x[[0, -1]]",
    "x[k[0]], x[k[:, None] % 2, 0], x[td.stop_gradient(k)[::-1]]",
    "x[tnp.arange(x.shape[0]), k % x.shape[1]]",
    "x.at[0].set(1), x.at[:, 0].add(v[0]), x.at[1:].multiply(2), x.at[-1].min(0)",
    "x.at[k].add(1), x.at[k].set(v), x.at[k, 0].max(2), x.at[k].get(mode='fill')",
    "x.at[: x.shape[0] // 2].set(0), u.at[u.shape[0] - 1].set(1)",
    "x.at[k].apply(tnp.sin), x.at[k[0]].divide(2), x.at[k].subtract(1)",
    "tnp.take(x, k, 0), tnp.take(x, k), tnp.take(h, k % 4, 1)",
    "tnp.take_along_axis(x, tnp.argsort(x, 1), 1), "
    "tnp.take_along_axis(x, i[:, :1] - 1, 1)",
    # Reductions
    "x.sum(0), x.sum(1), x.mean(0), x.mean(1, keepdims=True), t.mean((0, 2))",
    "x.var(0), x.var(1), x.std(1, keepdims=True), t.var((0, 1)), tnp.var(x, 1, ddof=1)",
    "x.max(0), x.min(1), x.argmax(1), x.argmin(0), tnp.all(b, 0), tnp.any(b, 1)",
    "tnp.sum(x, where=b), tnp.mean(x, where=b), tnp.max(x, 1, initial=0)",
    "tnp.sum(i, 1), tnp.prod(i, 0), tnp.mean(i), tnp.sum(b), tnp.mean(b, 0)",
    "tnp.average(x, 0), tnp.average(x, 1, v), tnp.average(x, weights=p)",
    "tnp.median(x, 0), tnp.quantile(x, 0.3, 1), tnp.percentile(x, 40, 0)",
    "tnp.cumsum(x, 0), tnp.cumsum(x, 1, reverse=True), tnp.cumprod(p, 1)",
    "tnp.cumsum(i, 0), tnp.cumsum(b, 1)",
    "tnp.sort(x, 0), tnp.argsort(x, 0), tnp.sort(i, 1), tnp.sort(x, None)",
    "tnp.top_k(x, 1)",
    "tnp.diff(x, axis=0), tnp.diff(u), tnp.diff(e, 2, 1)",
    "tnp.cov(x), tnp.cov(x, rowvar=False), tnp.cov(u), tnp.corrcoef(x)",
    "tnp.trapezoid(x, v), tnp.trapezoid(x, axis=0)",
    "tnp.linalg.norm(x), tnp.linalg.norm(x, axis=1), tnp.linalg.norm(x, 1, 0)",
    "td.scipy.special.erf(x)",
    # Products
    "h @ w, w.T @ h.T, u @ x, x @ v, u @ u",
    "tnp.matmul(t, w), tnp.dot(h, w), tnp.inner(x, y), tnp.outer(u, v)",
    "tnp.matvec(x, v), tnp.vecmat(u, x), tnp.tensordot(x, y), tnp.kron(h, w)",
    "tnp.tensordot(t, t, ((0, 2), (0, 2))), tnp.tensordot(h, w, 1)",
    "x @ y.T @ x, s @ s, s @ x",
    "tnp.einsum('ij,ij->i', x, y), tnp.einsum('ij,kj->ik', x, y)",
    "tnp.einsum('ijk,ij,j->ik', t, x, v), tnp.einsum('ij->ji', x)",
    "tnp.einsum('ii->i', s), tnp.einsum('ii', s), tnp.einsum('i,j', u, v)",
    "tnp.einsum('...k,kl->...l', t, w), tnp.einsum('bij,bkj->bik', t, t)",
    "tnp.cross(h[:, :3], o)",
    "tnp.convolve(u, o, 'same'), tnp.convolve(u, o), tnp.correlate(u, o, 'full')",
    # Made of sizes
    "tnp.arange(x.shape[0]), tnp.arange(1, x.shape[0] + 1), tnp.arange(2.0)",
    "tnp.arange(0, x.shape[0], 2), tnp.arange(x.shape[0] - 1, -1, -1)",
    "tnp.arange(x.shape[0], dtype=tnp.float32)",
    "tnp.linspace(0, 1, x.shape[0]), tnp.linspace(0, 1, x.shape[0], False)",
    "tnp.logspace(0, 1, x.shape[0])",
    "tnp.eye(x.shape[0]), tnp.eye(*x.shape), tnp.identity(u.shape[0])",
    "tnp.eye(x.shape[0], k=1), tnp.eye(x.shape[0], k=-2)",
    "tnp.tri(x.shape[0]), tnp.tri(*x.shape, 1), tnp.tril(x, 1), tnp.triu(x, -1)",
    "tnp.diag(u), tnp.diag(u, 1), tnp.diag(s), tnp.diag(x), tnp.trace(s)",
    "tnp.diagonal(t), tnp.diagonal(s, 0)",
    "tnp.meshgrid(u, v), tnp.meshgrid(u, v, indexing='ij')",
    "tnp.indices(x.shape), tnp.diag_indices(u.shape[0])",
    "tnp.vander(u, 3), tnp.vander(u, 3, True)",
    "tnp.unravel_index(k, x.shape), tnp.ravel_multi_index((k, k), x.shape)",
    "tnp.unravel_index(tnp.argmax(x), x.shape)",
    "tnp.searchsorted(tnp.sort(u), v), tnp.digitize(x, tnp.sort(u))",
    "tnp.bincount(k, length=5), tnp.bincount(k, u, length=5)",
    "tnp.interp(v, tnp.arange(4.0), o[0] + tnp.arange(4.0))",
    "tnp.interp(v, tnp.cumsum(p[:, 0]), u)",
    "tnp.isin(k, k[:1]), tnp.isin(i, k)",
    "tnp.iscomplexobj(x) + u, tnp.cross(o, h[:, :3])",
]
MORE = [
    "tnp.nonzero(b, size=4), tnp.flatnonzero(b, size=4), tnp.argwhere(b, size=3)",
    "tnp.nonzero(b, size=b.size), tnp.where(b, size=3), tnp.extract(b, x, size=4)",
    "tnp.compress(b[:, 0], x, 0, size=2)",
    "tnp.unique(i, size=6), tnp.unique(k, True, True, True, size=4)",
    "tnp.unique_all(k, size=4), tnp.unique_counts(k, size=4), "
    "tnp.unique_inverse(k, size=4), tnp.unique_values(k, size=4)",
    "tnp.union1d(k, k + 1, size=8), tnp.intersect1d(k, i, size=5)",
    "tnp.setdiff1d(i, k, size=4), tnp.setxor1d(i, k, size=5)",
    "tnp.cumulative_sum(x, axis=1, include_initial=True), "
    "tnp.cumulative_prod(u), tnp.nancumsum(x, 0), tnp.nancumprod(p, 1)",
    "tnp.diff(u, prepend=0), tnp.unwrap(3 * u)",
    "tnp.ediff1d(x, 1, 2)",
    "tnp.gradient(h, axis=1), tnp.gradient(h, 2.0, axis=1, edge_order=2)",
    "tnp.choose(k, [u, u + 1, u * 2]), tnp.piecewise(x, [b], [tnp.sin, 2.0])",
    "tnp.histogram(x, 4), tnp.histogram_bin_edges(x, 3, (0, 1))",
    "tnp.histogram2d(u, u + 1, 3), tnp.histogramdd(h, 2)",
    "tnp.polyval(o, x), tnp.polyder(o) * u[0], tnp.polyint(o) + u[0], tnp.poly(o)",
    "tnp.polyfit(u, u * u, 2), tnp.polyfit(x[:, 0], x, 1), "
    "tnp.roots(o, strip_zeros=False) + u[0]",
    "tnp.polyadd(o, o) * u[0], tnp.polysub(o, o), tnp.polydiv(o, o[:2]), "
    "tnp.polymul(u, o)",
    "tnp.insert(x, 0, 9, 0), tnp.insert(x, k[0], v, 0), tnp.delete(x, 0, 0)",
    "tnp.delete(x, k[0], 0), tnp.resize(x, (3, 2))",
    "tnp.put(x, k[:1], 1, inplace=False), tnp.place(x, b, u, inplace=False)",
    "tnp.put_along_axis(x, i[:, :1] - 1, 5, 1, inplace=False)",
    "tnp.fill_diagonal(x, 3, inplace=False), tnp.fill_diagonal(s, u, inplace=False)",
    "x[tnp.ix_(k % 1, k % 1)], tnp.diag_indices_from(s), tnp.diagflat(u)",
    "tnp.gcd(i, j), tnp.lcm(i, j), tnp.bitwise_count(i)",
    "tnp.packbits(b, 1)",
    "tnp.unpackbits(i.astype(tnp.uint8), 1), tnp.i0(x)",
    "tnp.frexp(x), tnp.ldexp(x, i), tnp.modf(x), tnp.spacing(x)",
    "tnp.bartlett(u.shape[0]), tnp.hanning(u.shape[0]), tnp.hamming(u.shape[0])",
    "tnp.blackman(u.shape[0]), tnp.kaiser(u.shape[0], 3)",
    "tnp.vectorize(lambda a, b: a * b)(x, v), "
    "tnp.vectorize(tnp.dot, signature='(n),(n)->()')(x, y)",
    "tnp.apply_along_axis(tnp.cumsum, 1, x), tnp.apply_over_axes(tnp.sum, t, (0, 2))",
    "tnp.fromfunction(lambda a, b: a + b, x.shape)",
    "tnp.nanmedian(x, 1), tnp.nanquantile(x, 0.3, 0), tnp.nanpercentile(x, 20, 1)",
    "tnp.partition(x, 0), tnp.argpartition(x, 0), tnp.lexsort([x[0], y[0]])",
    "tnp.sort_complex(x), tnp.around(x), tnp.fabs(x), tnp.bitwise_invert(i)",
    "tnp.isreal(z), tnp.iscomplex(z), tnp.atan2(x, p), tnp.array_equiv(x, y)",
    "tnp.bitwise_left_shift(i, j), tnp.bitwise_right_shift(i, j)",
    "tnp.block([[x, y], [y, x]]), tnp.dsplit(t, 2), tnp.rollaxis(t, 2)",
    "tnp.geomspace(1, 8, u.shape[0]), tnp.linspace(u, u + 1, 3, axis=-1)",
    "tnp.repeat(x, k, 0, total_repeat_length=7), tnp.roll(x, k[0], 0)",
    "tnp.pad(x, 1, 'linear_ramp'), tnp.pad(x, 1, 'mean'), tnp.pad(x, 1, 'maximum')",
    "x.at[k].set(1, mode='clip'), x.at[k + 5].add(1, mode='wrap'), x.at[b].set(0)",
    "tnp.take(x, k + 5, 0, mode='wrap'), tnp.searchsorted(tnp.arange(40.0), x)",
    "tnp.var(x, 0, where=b), tnp.sum(x, 1, initial=2), tnp.any(b, 1, where=b)",
    "tnp.cov(x, y), tnp.ravel(x, order='F')",
    "tnp.cov(x, aweights=v)",
    "tnp.isscalar(x) + u, tnp.isrealobj(x) + u",
]
"""Takes long."""
FIXED = {
    "tril_indices triu_indices tril_indices_from triu_indices_from": (
        "the indices are constants: the size is fixed"
    ),
    "trim_zeros mask_indices": "the shape depends on values",
    "from_dlpack save savez load fromfile frombuffer fromstring fromiter array2string "
    "array_str array_repr get_printoptions set_printoptions printoptions": (
        "takes no traced array"
    ),
    "result_type promote_types finfo iinfo dtype isdtype issubdtype can_cast": (
        "of dtypes"
    ),
    "einsum_path iterable": "of Python's values",
}
GUARDED = {
    "tnp.trace(x)": "the shorter axis",
    "tnp.diagonal(x)": "the shorter axis",
    "tnp.diag(u), tnp.diag(u, 1), tnp.diag(s), tnp.diag(x), tnp.trace(s)": "shorter",
    "tnp.median(x)": "one middle element or two",
    "tnp.median(x, 0), tnp.quantile(x, 0.3, 1), tnp.percentile(x, 40, 0)": "middle",
    "tnp.cov(x)": "of one variable it is a scalar",
    "tnp.corrcoef(x)": "of one variable it is a scalar",
    "tnp.cov(x), tnp.cov(x, rowvar=False), tnp.cov(u), tnp.corrcoef(x)": "a scalar",
    "tnp.einsum('ijk,ij,j->ik', t, x, v), tnp.einsum('ij->ji', x)": "the best order",
    "tnp.convolve(u, o, 'same'), tnp.convolve(u, o), tnp.correlate(u, o, 'full')": (
        "the longer vector"
    ),
    "tnp.interp(v, tnp.cumsum(p[:, 0]), u)": "a table of one entry has no slope",
    "tnp.diagonal(t), tnp.diagonal(s, 0)": "the shorter axis",
    "tnp.ediff1d(x, 1, 2)": "one element has no differences",
    "tnp.packbits(b, 1)": "a single byte",
    "tnp.linspace(0, 1, x.shape[0]), tnp.linspace(0, 1, x.shape[0], False)": (
        "the step is a factor of 1"
    ),
    "tnp.bartlett(u.shape[0]), tnp.hanning(u.shape[0]), tnp.hamming(u.shape[0])": "one",
    "tnp.blackman(u.shape[0]), tnp.kaiser(u.shape[0], 3)": "a window of one number",
    "tnp.cov(x, aweights=v)": "of one variable it is a scalar",
}
"""What may be traced again for some sizes, and what it depends on."""


@pytest.mark.slow
@pytest.mark.parametrize("expression", rows(MORE))
def test_more_functions_of_arrays_of_any_size(expression: str) -> None:
    function, args = written(expression, ARGS, {"td": td, "tnp": tnp, "np": np})
    agree(function, args, guards=GUARDED.get(expression, ""))


@pytest.mark.parametrize("expression", rows(EXPRESSIONS))
def test_a_function_of_arrays_of_any_size(expression: str) -> None:
    function, args = written(expression, ARGS, {"td": td, "tnp": tnp, "np": np})
    agree(function, args, guards=GUARDED.get(expression, ""))


def test_every_function_is_tried() -> None:
    text = " ".join(EXPRESSIONS + MORE)
    fixed = " ".join(FIXED).split()
    for name in dir(tnp):
        value = getattr(tnp, name)
        if name.startswith("_") or isinstance(value, type | ModuleType | np.dtype):
            continue
        if callable(value) and name not in fixed:
            assert f"tnp.{name}(" in text, name
