"""Contractions and convolutions by NumPy's einsum, of floats in double precision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple
from functools import reduce

import numpy as np

from treadle.backends.reference.memory import Where, apart
from treadle.backends.reference.nests import wide
from treadle.fuse.lowering.launches import ProductKernel
from treadle.kernels.contract import Contraction
from treadle.kernels.convolve import Axis, ConvSpec


def run(product: ProductKernel, a: Where, b: Where, c: Where) -> None:
    """Writes c = a · b, without the epilogue."""
    if isinstance(product.contraction, Contraction):
        _contract(product.contraction, a, b, c)
    else:
        _convolve(product.contraction, a, b, c, product.filter_gradient)


def _einsum(text: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.einsum(text, wide(x), wide(y), optimize=True)


def _contract(what: Contraction, a: Where, b: Where, c: Where) -> None:
    (a_dtype, b_dtype, dtype), batch = what.dtypes, (what.b0, what.b1)
    x = a.view(a_dtype, (*batch, what.m, what.k), astuple(what.a))
    y = b.view(b_dtype, (*batch, what.k, what.n), astuple(what.b))
    out = c.view(dtype, (*batch, what.m, what.n), astuple(what.c))
    apart(out, x, y)
    if what.packed is not None:
        x, y = x.astype(what.packed), y.astype(what.packed)
    if what.short:
        x, y = x.astype(dtype), y.astype(dtype)
    for i in np.ndindex(batch):
        out[i] = _einsum("mk,kn->mn", x[i], y[i])


def _convolve(spec: ConvSpec, a: Where, b: Where, c: Where, gradient: bool) -> None:
    """The convolution, or its derivative by the filter, which is c then, and b the
    derivative by the output."""
    taps, pixels = (c, b) if gradient else (b, c)
    shape = (spec.images_in, spec.y.size, spec.x.size, spec.channels)
    x = a.view(spec.dtypes[0], shape, astuple(spec.input))
    rows = spec.z.taps * spec.y.taps
    shape = (rows, spec.x.taps, spec.channels // spec.groups, spec.features)
    of_taps, of_pixels = spec.dtypes[1:] if not gradient else spec.dtypes[:0:-1]
    w = taps.view(of_taps, shape, astuple(spec.filter))
    shape = (spec.images, spec.y.out, spec.x.out, spec.features)
    y = pixels.view(of_pixels, shape, astuple(spec.output))
    result, other = (w, y) if gradient else (y, w)
    apart(result, x, other)
    total = np.zeros(result.shape)
    text = "nyxc,nyxf->cf" if gradient else "nyxc,cf->nyxf"
    for tap, seen in _seen(spec, x):
        arrays = (total[tap], seen, y) if gradient else (total, seen, w[tap])
        for part in zip(*(np.split(a, spec.groups, -1) for a in arrays), strict=True):
            part[0][...] += _einsum(text, *part[1:])
    result[...] = total


def _seen(spec: ConvSpec, x: np.ndarray) -> Iterator[tuple[tuple, np.ndarray]]:
    """For each tap of the filter, what it sees at all pixels: (b, y, x, c)."""
    volumes = x.reshape(-1, spec.z.size, *x.shape[1:])
    axes = spec.z, spec.y, spec.x
    for dz, dy, dx in np.ndindex(*(axis.taps for axis in axes)):
        at, inside = zip(*map(_indices, axes, (dz, dy, dx)), strict=True)
        present = reduce(np.logical_and.outer, inside)[..., None]
        seen = np.where(present, volumes[np.ix_(np.arange(len(volumes)), *at)], 0)
        yield (dz * spec.y.taps + dy, dx), seen.reshape(spec.images, *seen.shape[-3:])


def _indices(axis: Axis, tap: int) -> tuple[np.ndarray, np.ndarray]:
    """The input's index at each output of an axis, and whether there is an element."""
    at = np.arange(axis.out) * axis.stride + tap * axis.dilation - axis.padding
    index, between = np.divmod(at, axis.in_dilation)
    inside = (index >= 0) & (index < axis.size) & (between == 0)
    return np.where(inside, index, 0), inside
