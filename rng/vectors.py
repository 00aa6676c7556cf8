"""Random vectors and matrices: multivariate normal, orthogonal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import treadle.numpy as tnp
from treadle import Array, dtypes
from treadle.dims import plain
from treadle.dtypes import DTypeLike
from treadle.errors import at, user_source
from treadle.rng.key import Key, as_shape, check_key
from treadle.rng.normal import normal
from treadle.rng.uniform import fitting_shape

_METHODS = ("cholesky", "eigh", "svd")


def multivariate_normal(
    key: Key,
    mean: Any,
    cov: Any,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    method: str = "cholesky",
) -> Array:
    """Normal vectors of a mean and a covariance, shape ``(*shape, n)``.

    Differentiable in both.

    Args:
      mean: shape ``(..., n)``.
      cov: shape ``(..., n, n)``, symmetric.
      shape: that of the leading axes; those of mean and cov by default.
      dtype: that of the result; of mean and cov by default.
      method: how cov is factored: "cholesky" is the fastest; "eigh" and "svd" also take
        a covariance without full rank.

    Raises:
      ValueError: if the shapes don't fit each other, or for another method.

    >>> from treadle import rng
    >>> x = rng.multivariate_normal(rng.key(0), [1.0, 2.0], [[2.0, 0.3], [0.3, 0.5]])
    >>> x.shape
    (2,)
    """
    check_key("multivariate_normal", key)
    mean, cov = tnp.asarray(mean), tnp.asarray(cov)
    n = mean.shape[-1] if mean.ndim else 0
    if mean.ndim < 1 or cov.ndim < 2 or cov.shape[-2:] != (n, n):
        raise ValueError(
            "multivariate_normal: mean has shape (..., n) and cov (..., n, n), got "
            f"{mean.shape} and {cov.shape}{at(user_source())}"
        )
    if method not in _METHODS:
        raise ValueError(
            f"multivariate_normal: method is one of {', '.join(_METHODS)}, got "
            f"{method!r}{at(user_source())}"
        )
    if dtype is None:
        dtype = dtypes.to_float(tnp.result_type(mean, cov))
    mean, cov = mean.astype(dtype), cov.astype(dtype)
    lead = fitting_shape("multivariate_normal", shape, mean[..., 0], cov[..., 0, 0])
    x = normal(key, (*lead, n), dtype)
    return mean + tnp.squeeze(_root(cov, method) @ x[..., None], -1)


def _root(cov: Array, method: str) -> Array:
    """A matrix that is `cov`, multiplied by its own transpose."""
    if method == "cholesky":
        return tnp.linalg.cholesky(cov)
    if method == "eigh":
        values, vectors = tnp.linalg.eigh(cov)
        return vectors * tnp.sqrt(tnp.maximum(values, 0))[..., None, :]
    u, values, _ = tnp.linalg.svd(cov)
    return u * tnp.sqrt(values)[..., None, :]


def orthogonal(
    key: Key,
    n: int,
    shape: Sequence[int] = (),
    dtype: DTypeLike = tnp.float32,
    m: int | None = None,
) -> Array:
    """Matrices spread evenly over the orthogonal ones; over the unitary ones, if dtype
    is complex: shape ``(*shape, n, m)``, m being n by default.

    If n and m differ, the fewer of rows and columns are orthonormal.

    By F. Mezzadri, How to generate random matrices from the classical compact groups,
    Notices of the AMS 54 (2007).
    """
    check_key("orthogonal", key)
    rows, columns = plain(n), plain(n if m is None else m)
    if min(rows, columns) < 0:
        raise ValueError(
            f"orthogonal: no matrix has {rows} rows and {columns} columns"
            f"{at(user_source())}"
        )
    lead = as_shape("orthogonal", shape)
    x = normal(key, (*lead, max(rows, columns), min(rows, columns)), dtype)
    q, r = tnp.linalg.qr(x)
    found = q * tnp.sign(tnp.linalg.diagonal(r))[..., None, :]
    return found if rows >= columns else tnp.swapaxes(found, -1, -2)
