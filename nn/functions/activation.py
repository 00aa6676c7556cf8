"""Activation functions: arrays in, arrays of the same shape out."""

from __future__ import annotations

import math
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.dims import is_dim
from treadle.errors import at, user_source
from treadle.nn import check
from treadle.scipy import special

Array = td.Array
Axis = int | tuple[int, ...] | None


def relu(x: Array) -> Array:
    """``max(x, 0)``, with derivative 0 at 0. NaN stays NaN.

    >>> import treadle.numpy as tnp
    >>> relu(tnp.array([-1.0, 2.0]))
    Array([0., 2.], dtype=float32)
    """
    return tnp.where(tnp.less_equal(x, 0), 0, x)


def relu6(x: Array) -> Array:
    """``min(max(x, 0), 6)``.

    >>> import treadle.numpy as tnp
    >>> relu6(tnp.array([-1.0, 8.0]))
    Array([0., 6.], dtype=float32)
    """
    return tnp.where(tnp.greater_equal(x, 6), 6, relu(x))


def leaky_relu(x: Array, negative_slope: float = 0.01) -> Array:
    """``x`` where positive, ``negative_slope * x`` elsewhere.

    >>> import treadle.numpy as tnp
    >>> leaky_relu(tnp.array([-1.0, 2.0]), negative_slope=0.1)
    Array([-0.1,  2. ], dtype=float32)
    """
    return tnp.where(tnp.greater(x, 0), x, tnp.multiply(negative_slope, x))


def elu(x: Array, alpha: float = 1.0) -> Array:
    """``x`` where positive, ``alpha * (exp(x) - 1)`` elsewhere (Clevert 2015).

    >>> import treadle.numpy as tnp
    >>> elu(tnp.array([-1.0, 2.0]))
    Array([-0.6321,  2.    ], dtype=float32)
    """
    # The branch not taken must not overflow: its derivative would be 0 * inf.
    above = tnp.greater(x, 0)
    below = tnp.expm1(tnp.where(above, 0, x))
    return tnp.where(above, x, alpha * below)


def celu(x: Array, alpha: float = 1.0) -> Array:
    """``x`` where positive, ``alpha * (exp(x / alpha) - 1)`` elsewhere: an `elu` whose
    slope is 1 at 0 for every alpha (Barron 2017).

    >>> import treadle.numpy as tnp
    >>> celu(tnp.array([-1.0, 2.0]), alpha=2.0)
    Array([-0.7869,  2.    ], dtype=float32)
    """
    return alpha * elu(tnp.divide(x, alpha))


def selu(x: Array) -> Array:
    """The scaled `elu` that keeps mean 0 and variance 1 (Klambauer 2017).

    >>> import treadle.numpy as tnp
    >>> selu(tnp.array([-1.0, 2.0]))
    Array([-1.1113,  2.1014], dtype=float32)
    """
    return 1.0507009873554805 * elu(x, 1.6732632423543772)


def gelu(x: Array, approximate: bool = True) -> Array:
    """``x`` times the probability that a normal variable is less (Hendrycks 2016).

    Args:
      approximate: use the tanh formula of the GPT models; if False, the error function.

    >>> import treadle.numpy as tnp
    >>> gelu(tnp.array([-1.0, 2.0]))
    Array([-0.1588,  1.9546], dtype=float32)
    """
    x = tnp.asarray(x)
    if approximate:
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return x * (0.5 * (1.0 + tnp.tanh(inner)))
    return x * (0.5 * (1.0 + special.erf(x * math.sqrt(0.5))))


def quick_gelu(x: Array) -> Array:
    """``x * sigmoid(1.702 * x)``, the first approximation of `gelu`, which CLIP uses.

    >>> import treadle.numpy as tnp
    >>> quick_gelu(tnp.array([-1.0, 2.0]))
    Array([-0.1542,  1.9357], dtype=float32)
    """
    return x * special.expit(tnp.multiply(1.702, x))


def sigmoid(x: Array) -> Array:
    """``1 / (1 + exp(-x))``.

    >>> import treadle.numpy as tnp
    >>> sigmoid(tnp.array([-1.0, 2.0]))
    Array([0.2689, 0.8808], dtype=float32)
    """
    return special.expit(x)


def log_sigmoid(x: Array) -> Array:
    """The logarithm of `sigmoid`, without underflow.

    >>> import treadle.numpy as tnp
    >>> log_sigmoid(tnp.array([-1000.0, 0.0]))
    Array([-1000.    ,    -0.6931], dtype=float32)
    """
    return -softplus(tnp.negative(x))


def silu(x: Array) -> Array:
    """``x * sigmoid(x)``, also called swish (Elfwing 2017).

    >>> import treadle.numpy as tnp
    >>> silu(tnp.array([-1.0, 2.0]))
    Array([-0.2689,  1.7616], dtype=float32)
    """
    return x * special.expit(x)


def softplus(x: Array) -> Array:
    """``log(1 + exp(x))``, a smooth `relu`.

    >>> import treadle.numpy as tnp
    >>> softplus(tnp.array([0.0, 1000.0]))
    Array([   0.6931, 1000.    ], dtype=float32)
    """
    return tnp.logaddexp(x, 0.0)


def softsign(x: Array) -> Array:
    """``x / (1 + |x|)``.

    >>> import treadle.numpy as tnp
    >>> softsign(tnp.array([-1.0, 2.0]))
    Array([-0.5   ,  0.6667], dtype=float32)
    """
    return x / (1 + tnp.abs(x))


def mish(x: Array) -> Array:
    """``x * tanh(softplus(x))`` (Misra 2019).

    >>> import treadle.numpy as tnp
    >>> mish(tnp.array([-1.0, 2.0]))
    Array([-0.3034,  1.944 ], dtype=float32)
    """
    return x * tnp.tanh(softplus(x))


def tanh(x: Array) -> Array:
    """The hyperbolic tangent.

    >>> import treadle.numpy as tnp
    >>> tanh(tnp.array([-1.0, 2.0]))
    Array([-0.7616,  0.964 ], dtype=float32)
    """
    return tnp.tanh(x)


def glu(x: Array, axis: int = -1) -> Array:
    """The first half of an axis, gated by the `sigmoid` of the second half (Dauphin
    2017).

    Shapes: ``(..., 2 n) -> (..., n)``.

    Raises:
      ValueError: if the length is odd.

    >>> import treadle.numpy as tnp
    >>> glu(tnp.array([1.0, 2.0, 0.0, 100.0]))
    Array([0.5, 2. ], dtype=float32)
    """
    value, gate = _halves("glu", x, axis)
    return value * sigmoid(gate)


def swiglu(x: Array, axis: int = -1) -> Array:
    """`silu` of the first half of an axis, times the second half (Shazeer 2020).

    Shapes: ``(..., 2 n) -> (..., n)``.

    Raises:
      ValueError: if the length is odd.

    >>> import treadle.numpy as tnp
    >>> swiglu(tnp.array([0.0, 100.0, 1.0, 2.0]))
    Array([  0., 200.], dtype=float32)
    """
    gate, value = _halves("swiglu", x, axis)
    return silu(gate) * value


def geglu(x: Array, axis: int = -1, approximate: bool = True) -> Array:
    """`gelu` of the first half of an axis, times the second half (Shazeer 2020).

    Shapes: ``(..., 2 n) -> (..., n)``.

    Raises:
      ValueError: if the length is odd.

    >>> import treadle.numpy as tnp
    >>> geglu(tnp.array([0.0, 100.0, 1.0, 2.0]))
    Array([  0., 200.], dtype=float32)
    """
    gate, value = _halves("geglu", x, axis)
    return gelu(gate, approximate) * value


def reglu(x: Array, axis: int = -1) -> Array:
    """`relu` of the first half of an axis, times the second half (Shazeer 2020).

    Shapes: ``(..., 2 n) -> (..., n)``.

    Raises:
      ValueError: if the length is odd.

    >>> import treadle.numpy as tnp
    >>> reglu(tnp.array([-1.0, 100.0, 1.0, 2.0]))
    Array([  0., 200.], dtype=float32)
    """
    gate, value = _halves("reglu", x, axis)
    return relu(gate) * value


def _halves(name: str, x: Array, axis: int) -> tuple[Array, Array]:
    x = check.as_array(x)
    n = x.shape[axis] if x.ndim else 1
    if n % 2:
        raise ValueError(
            f"{name} halves an axis, which must have an even length; got "
            f"{td.typeof(x)} and axis {axis}{at(user_source())}"
        )
    lead = (slice(None),) * (axis % x.ndim)
    return x[(*lead, slice(n // 2))], x[(*lead, slice(n // 2, None))]


def softmax(x: Array, axis: Axis = -1, where: tnp.ArrayLike | None = None) -> Array:
    """``exp(x) / sum(exp(x))`` along an axis (or several), without overflow.

    Halves are computed in float32.

    Args:
      where: the elements that count: the others get 0. Where none does, all get 0.

    >>> import treadle.numpy as tnp
    >>> softmax(tnp.array([0.0, 0.0, -1000.0]))
    Array([0.5, 0.5, 0. ], dtype=float32)
    """
    if where is None:
        return special.softmax(tnp.asarray(x), axis)
    weights = special.softmax(_chosen(x, where, axis), axis)
    return tnp.where(where, weights, 0)


def _chosen(x: Array, where: tnp.ArrayLike, axis: Axis) -> Array:
    """x with -inf in place of what does not count; where nothing counts, zeros."""
    some = tnp.any(where, axis, keepdims=True)
    return tnp.where(where, x, tnp.where(some, -math.inf, 0))


def log_softmax(x: Array, axis: Axis = -1, where: tnp.ArrayLike | None = None) -> Array:
    """The logarithm of `softmax`, without underflow. Halves are computed in float32.

    Args:
      where: the elements that count: the others get minus infinity.

    >>> import treadle.numpy as tnp
    >>> log_softmax(tnp.array([0.0, -1000.0]))
    Array([    0., -1000.], dtype=float32)
    """
    x = check.as_array(x)
    wide = check.wide(x)
    if where is not None:
        wide = _chosen(wide, where, axis)
    shifted = wide - top(wide, axis)
    out = shifted - tnp.log(tnp.exp(shifted).sum(axis, keepdims=True))
    if where is not None:
        out = tnp.where(where, out, -math.inf)
    return check.narrow(out, x)


def softmin(x: Array, axis: Axis = -1) -> Array:
    """`softmax` of ``-x``: the least element gets the most.

    >>> import treadle.numpy as tnp
    >>> softmin(tnp.array([0.0, 0.0, 1000.0]))
    Array([0.5, 0.5, 0. ], dtype=float32)
    """
    return softmax(-tnp.asarray(x), axis)


def gumbel_softmax(
    x: Array,
    key: rng.Key,
    temperature: float = 1.0,
    hard: bool = False,
    axis: int = -1,
) -> Array:
    """A random choice by the scores ``x`` (logarithms of odds) that has derivatives:
    `softmax` of the scores with Gumbel noise (Jang 2016).

    Args:
      temperature: towards 0, nearly all goes to one element.
      hard: whether the result is 1 at one place and 0 elsewhere. Its derivatives are
        those of the soft choice.

    >>> from treadle import rng
    >>> import treadle.numpy as tnp
    >>> gumbel_softmax(tnp.array([0.0, 100.0]), rng.key(0), hard=True)
    Array([0., 1.], dtype=float32)
    """
    check.positive("gumbel_softmax", "temperature", temperature)
    x = tnp.asarray(x)
    noisy = check.wide(x) + rng.gumbel(key, x.shape, check.wide(x).dtype)
    soft = softmax(noisy / temperature, axis)
    if hard:
        chosen = tnp.arange(x.shape[axis]) == tnp.argmax(soft, axis)[..., None]
        chosen = tnp.moveaxis(chosen.astype(soft.dtype), -1, axis)
        soft = soft + td.stop_gradient(chosen - soft)
    return check.narrow(soft, x)


def logsumexp(
    x: Array,
    axis: Axis = -1,
    keepdims: bool = False,
    *,
    where: tnp.ArrayLike | None = None,
) -> Array:
    """``log(sum(exp(x)))`` along an axis, without overflow. Halves are computed in
    float32. Of no elements, minus infinity.

    Args:
      where: the elements that count. `td.scipy.special.logsumexp` takes factors, too.

    >>> import treadle.numpy as tnp
    >>> logsumexp(tnp.array([1000.0, 0.0]))
    Array(1000., dtype=float32)
    """
    x = check.as_array(x)
    wide = check.wide(x)
    if where is not None:
        wide = tnp.where(where, wide, -math.inf)
    largest = top(wide, axis)
    # Where everything is -inf, so is the result, not NaN.
    largest = tnp.where(tnp.isfinite(largest), largest, 0)
    out = tnp.log(tnp.exp(wide - largest).sum(axis, keepdims=True)) + largest
    return check.narrow(out if keepdims else tnp.squeeze(out, axis), x)


def logmeanexp(
    x: Array,
    axis: Axis = -1,
    where: tnp.ArrayLike | None = None,
    keepdims: bool = False,
) -> Array:
    """``log(mean(exp(x)))`` along an axis, without overflow. where: the elements that
    count.

    >>> import treadle.numpy as tnp
    >>> logmeanexp(tnp.array([1000.0, 1000.0]))
    Array(1000., dtype=float32)
    """
    x = check.as_array(x)
    wide = check.wide(x)
    count = tnp.ones_like(wide).sum(axis, keepdims=keepdims, where=where)
    total = logsumexp(wide, axis, keepdims, where=where)
    return check.narrow(total - tnp.log(count), x)


def log1mexp(x: Array) -> Array:
    """``log(1 - exp(-x))`` of positive numbers, exact for small and large ones (Mächler
    2012).

    >>> import treadle.numpy as tnp
    >>> log1mexp(tnp.array([1e-10, 1.0]))
    Array([-23.0259,  -0.4587], dtype=float32)
    """
    x = tnp.asarray(x)
    small = tnp.less(x, math.log(2))
    # Of the branch not taken, the derivative must not be infinite.
    near, far = tnp.where(small, x, 1), tnp.where(small, 1, x)
    return tnp.where(small, tnp.log(-tnp.expm1(-near)), tnp.log1p(-tnp.exp(-far)))


def top(x: Array, axis: Axis) -> Array:
    """The largest element, for results that don't depend on what is subtracted."""
    # Of a size that is not fixed, the least that it may be.
    size: Any = x.size
    least = size.range()[0] if is_dim(size) else size
    nothing = None if least and least > 0 else -math.inf
    return tnp.max(td.stop_gradient(x), axis, keepdims=True, initial=nothing)


def one_hot(
    labels: tnp.ArrayLike,
    num_classes: int,
    dtype: td.dtypes.DTypeLike = tnp.float32,
    *,
    axis: int = -1,
) -> Array:
    """1 at the label's place, 0 elsewhere: ``(...) -> (..., num_classes)``.

    A label that is no class gives zeros.

    Args:
      axis: of the result, along which the classes are.

    Raises:
      TypeError: for labels that are no integers.
      ValueError: for fewer classes than none.

    >>> import treadle.numpy as tnp
    >>> one_hot(tnp.array([2, 0]), 3)
    Array([[0., 0., 1.],
           [1., 0., 0.]], dtype=float32)
    """
    labels = check.as_array(labels)
    if not td.dtypes.is_integer(labels.dtype):
        raise TypeError(
            f"one_hot takes integer labels, got {td.typeof(labels)}{at(user_source())}"
        )
    check.within("one_hot", "num_classes", num_classes)
    chosen = (labels[..., None] == tnp.arange(num_classes)).astype(dtype)
    return chosen if axis == -1 else tnp.moveaxis(chosen, -1, axis)
