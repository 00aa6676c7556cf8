"""The gamma function and what is made of it."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

import treadle.numpy as tnp
from treadle.api.custom import custom_jvp
from treadle.api.jacobian import stop_gradient
from treadle.errors import at, user_source
from treadle.np.made import floating_function
from treadle.np.operands import ArrayLike, as_array
from treadle.ops import unary
from treadle.run.array import Array
from treadle.scipy.operands import floats, in_single, whole
from treadle.scipy.special.elementary import xlog1py
from treadle.scipy.special.loops import epsilon

gammaln = floating_function(
    unary.lgamma,
    "gammaln",
    "The logarithm of the absolute value of the gamma function.",
)
digamma = floating_function(
    unary.digamma, "digamma", "The derivative of the logarithm of the gamma function."
)
loggamma = floating_function(
    unary.lgamma,
    "loggamma",
    "The logarithm of the gamma function: of complex numbers, the one that jumps only "
    "at the negative axis; of real ones, that of its absolute value.",
)
_MOST_DERIVATIVES = 100


def polygamma(n: ArrayLike, x: ArrayLike, /) -> Array:
    """The n-th derivative of `digamma`, elementwise.

    Args:
      n: not negative; an int, or an array of whole numbers, by which there is no
        derivative.

    Raises:
      ValueError: if n is an int, and not from 0 to 100.

    >>> import treadle as td
    >>> td.scipy.special.polygamma(1, 1.0)
    Array(1.6449, dtype=float32)
    """
    if not isinstance(n, int) or isinstance(n, bool):
        k, v = floats("polygamma", n, x)
        sign = tnp.where(tnp.round(k / 2) * 2 == k, -1.0, 1.0)
        order = tnp.where(k > 0, k, 1.0)
        higher = sign * tnp.exp(gammaln(order + 1)) * zeta(order + 1, v)
        return tnp.where(k == 0, digamma(v), higher)
    if not 0 <= n <= _MOST_DERIVATIVES:
        raise ValueError(
            f"polygamma: the order n is between 0 and {_MOST_DERIVATIVES}, got {n}"
            f"{at(user_source())}"
        )
    (v,) = floats("polygamma", x)
    return unary.polygamma(v, n=n) if n else unary.digamma(v)


def gammasgn(x: ArrayLike, /) -> Array:
    """The sign of the gamma function: that of zero at zeros, not a number at other
    poles."""
    return _gammasgn_of(*floats("gammasgn", x))


def _gammasgn_of(x: Any) -> Any:
    below = tnp.floor(x)
    even = tnp.floor(below / 2) * 2 == below
    sign = tnp.where((x > 0) | even, tnp.ones_like(x), -1.0)
    sign = tnp.where((x < 0) & (below == x), math.nan, sign)
    return tnp.where(x == 0, tnp.copysign(1.0, x), tnp.where(x != x, x, sign))


def _sign_below(x: Any) -> Any:
    """The sign of what is divided by the gamma function: at its poles that is 0."""
    pole = (x < 0) & (tnp.floor(x) == x)
    return tnp.where(pole, 1.0, _gammasgn_of(x))


def gamma(x: ArrayLike, /) -> Array:
    """The gamma function."""
    return in_single(_gamma_of, "gamma", x)


def _gamma_of(x: Any) -> Any:
    return gammasgn(x) * tnp.exp(gammaln(tnp.where(x == -math.inf, math.nan, x)))


def factorial(n: ArrayLike, exact: bool = False) -> Array:
    """``n! = Γ(n + 1)``, 0 for negative n.

    Raises:
      ValueError: if it is to be exact: arrays have no integers of any length.
    """
    if exact:
        raise ValueError(
            f"factorial: exact=True is not there{at(user_source())}\n"
            "Use `math.factorial` of an int."
        )
    return in_single(_factorial_of, "factorial", n)


def _factorial_of(n: Any) -> Any:
    return tnp.where(n < 0, 0.0, tnp.exp(gammaln(tnp.where(n < 0, 0.0, n) + 1)))


def multigammaln(a: ArrayLike, d: int) -> Array:
    """The logarithm of the multivariate gamma function of dimension d, an int."""
    d = whole("multigammaln", "the dimension d", d, 1)
    return in_single(partial(_multigammaln_of, d), "multigammaln", a)


def _multigammaln_of(d: int, a: Any) -> Any:
    total = d * (d - 1) / 4 * math.log(math.pi) + gammaln(a)
    for k in range(1, d):
        total = total + gammaln(a - k / 2)
    return total


def poch(z: ArrayLike, m: ArrayLike, /) -> Array:
    """Pochhammer's symbol, ``Γ(z + m) / Γ(z)``."""
    return in_single(_poch_of, "poch", z, m)


def _poch_of(z: Any, m: Any) -> Any:
    # Between poles, a quotient of those of positive numbers: DLMF 5.5.3.
    poles, pole = _is_pole(z) & _is_pole(z + m), _is_pole(z + m)
    turned = tnp.where(tnp.floor(m / 2) * 2 == m, 1.0, -1.0)
    z = tnp.where(poles, 1 - z - m, z)
    value = _poch_apart(tnp.where(pole & ~poles, 1.0, z), m)
    value = tnp.where(pole & ~poles, math.inf, value)
    value = tnp.where(_is_pole(z) & (m == math.inf), 0.0, value)
    return tnp.where(poles, turned * value, value)


def _is_pole(x: Any) -> Any:
    return (x <= 0) & (tnp.floor(x) == x) & (x > -math.inf)


def _poch_apart(z: Any, m: Any) -> Any:
    ends = z + m
    sign = gammasgn(ends) * _sign_below(z)
    value = sign * tnp.exp(gammaln(ends) - gammaln(z))
    far = z > epsilon(z) ** (-1 / 3) * tnp.maximum(1.0, m * m)
    value = tnp.where(far, _power(*(tnp.where(far, x, 1.0) for x in (z, m))), value)
    # Where it is 1 anyway, it has its derivative.
    return tnp.where((m == 0) & (value != 1), 1.0, value)


def _power(z: Any, m: Any) -> Any:
    """Γ(z + m) / Γ(z) for z far above m², where logarithms of both are the same.

    Abramowitz and Stegun, 6.1.47.
    """
    third = (m - 2) * (3 * m - 1) / (12 * z)
    return z**m * (1 + m * (m - 1) / (2 * z) * (1 + third))


def comb(
    N: ArrayLike, k: ArrayLike, *, exact: bool = False, repetition: bool = False
) -> Array:
    """In how many ways k of N things can be chosen, 0 where k is not from 0 to N.

    Args:
      repetition: whether a thing can be chosen again.

    Raises:
      ValueError: if it is to be exact: arrays have no integers of any length.
    """
    if exact:
        raise ValueError(
            f"comb: exact=True is not there{at(user_source())}\n"
            "Use `math.comb` of ints."
        )
    return in_single(partial(_comb_of, repetition), "comb", N, k)


def _comb_of(repetition: bool, n: Any, k: Any) -> Any:
    if repetition:
        n = n + k - 1
    inside = (k >= 0) & (k <= n) & (n >= 0)
    endless = inside & (n == math.inf)
    n = tnp.where(inside & ~endless, n, 1.0)
    least = tnp.where(endless & (k > 0), math.inf, 0.0)
    k = tnp.where(inside & ~endless, k, 0.0)
    ways = tnp.exp(-tnp.log1p(n) - betaln_with(n - k + 1, k + 1, n + 2))
    return tnp.where(inside, tnp.maximum(ways, least), 0.0)


# The beta function --------------------------------------------------------------------

_STIRLING = (
    *(43867 / 244188, -3617 / 122400, 1 / 156, -691 / 360360, 1 / 1188),
    *(-1 / 1680, 1 / 1260, -1 / 360, 1 / 12),
)
_OF_DIGAMMA = (691 / 32760, -1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12)
_LARGE = 10.0
"""From here on Stirling's series has all digits."""


def stirling(x: Any) -> Any:
    """What Stirling's formula for `gammaln` lacks, for numbers from 10 on."""
    u = 1 / (x * x)
    total: Any = 0.0
    for c in _STIRLING:
        total = total * u + c
    return total / x


def betaln(a: ArrayLike, b: ArrayLike, /) -> Array:
    """The logarithm of the beta function ``Γ(a) Γ(b) / Γ(a + b)``, without the
    differences of large numbers that this would be. Of whole numbers up to 0 it is
    finite where the poles cancel, and infinite elsewhere.

    >>> import treadle as td
    >>> td.scipy.special.betaln(1.0, 1e6)
    Array(-13.8155, dtype=float32)
    """
    return in_single(_betaln_of, "betaln", a, b)


def _is_end(x: Any) -> Any:
    """A pole, or minus infinity."""
    return (x <= 0) & (tnp.floor(x) == x)


def _reflected(a: Any, b: Any) -> tuple[Any, Any, Any, Any]:
    """Where a or b is a pole of the gamma function, and where what is infinite cancels;
    there, two numbers with the same beta function up to its sign, and (1, 1) at other
    poles. That sign is (-1) ** b for a pole in a.

    DLMF 5.5.3. By the number that is no pole there is no derivative.
    """
    of_a = _is_end(a)
    of_b = _is_end(b) & ~of_a
    pole, other, first = of_a | of_b, tnp.where(of_a, b, a), 1 - a - b
    counted = (tnp.floor(other) == other) & (other > 0)
    finite = pole & counted & (first > 0) & (first < math.inf)
    still_a, still_b = stop_gradient(a), stop_gradient(b)
    a = tnp.where(of_a, 1 - a - still_b, tnp.where(of_b, still_a, a))
    b = tnp.where(of_b, 1 - b - still_a, tnp.where(of_a, still_b, b))
    a, b = (tnp.where(pole & ~finite, 1.0, x) for x in (a, b))
    return pole, finite, a, b


def _betaln_of(a: Any, b: Any) -> Any:
    pole, finite, a, b = _reflected(a, b)
    return tnp.where(pole & ~finite, math.inf, _betaln_beside(a, b))


def _betaln_beside(a: Any, b: Any) -> Any:
    """`betaln` beside the poles."""
    small, large = tnp.minimum(a, b), tnp.maximum(a, b)
    pole, far = (small == 0) & (large >= 0), (small > 0) & (large == math.inf)
    a, b = (tnp.where(pole | far, 1.0, x) for x in (a, b))
    ends = tnp.where(pole, math.inf, -math.inf)
    return tnp.where(pole | far, ends, betaln_with(a, b, a + b))


def _with_total(a: Any, b: Any, total: Any) -> Any:
    small, large = tnp.minimum(a, b), tnp.maximum(a, b)
    far, both = large >= _LARGE, small >= _LARGE
    # Of each as it was given: what is the same everywhere is computed once.
    of_a, of_b = gammaln(a), gammaln(b)
    few = of_a + of_b - gammaln(total)
    high = tnp.where(far, large, _LARGE)
    low = tnp.where(both, small, _LARGE)
    ratio = tnp.where(far, small, 1.0) / high
    # log Γ(large) - log Γ(small + large), in its large parts by hand.
    rest = stirling(high) - stirling(high * (1 + ratio))
    one = (
        tnp.where(a < b, of_a, of_b)
        + rest
        + small
        - small * tnp.log(high * (1 + ratio))
    )
    one = one - xlog1py(high - 0.5, ratio)
    two = 0.5 * math.log(2 * math.pi) - 0.5 * tnp.log(high) + rest + stirling(low)
    two = two + (low - 0.5) * tnp.log(ratio / (1 + ratio)) - high * tnp.log1p(ratio)
    return tnp.where(both, two, tnp.where(far, one, few))


betaln_with = custom_jvp(_with_total)
"""`betaln` of floats, which is also given their sum."""


@betaln_with.defjvp
def _betaln_jvp(primals: Any, tangents: Any) -> Any:
    (a, b, total), (da, db, both) = primals, tangents
    of_total = digamma(total)
    tangent = _digamma_below(a, b, total, of_total) * da
    tangent = tangent + _digamma_below(b, a, total, of_total) * db
    return betaln_with(a, b, total), tangent + of_total * (da + db - both)


def _digamma_below(a: Any, b: Any, total: Any, of_total: Any) -> Any:
    """The digamma function of a, less that of a + b; of large ones by the difference of
    their asymptotic series, which those of their values has not the digits of.

    DLMF 5.11.2.
    """
    far = (a >= _LARGE) & (total >= _LARGE)
    x, y = (tnp.where(far, v, _LARGE) for v in (a, total))
    ratio = tnp.where(far, b, 0.0) / x
    rest = _rest_of_digamma(x) - _rest_of_digamma(y)
    below = rest - (tnp.log1p(ratio) + ratio / (2 * y))
    return tnp.where(far, below, digamma(a) - of_total)


def _rest_of_digamma(x: Any) -> Any:
    """What it has from its third term on, for numbers from 10 on."""
    u = 1 / (x * x)
    total: Any = 0.0
    for c in _OF_DIGAMMA:
        total = (total + c) * u
    return total


def beta(a: ArrayLike, b: ArrayLike, /) -> Array:
    """The beta function, ``Γ(a) Γ(b) / Γ(a + b)``."""
    return in_single(_beta_of, "beta", a, b)


def _beta_of(a: Any, b: Any) -> Any:
    sign = gammasgn(a) * gammasgn(b) * _sign_below(a + b)
    of_a = _is_end(a)
    other, first = tnp.where(of_a, b, a), 1 - a - b
    # Two poles are infinite with a sign, too.
    counted = (tnp.floor(other) == other) & (first > 0) & (first < math.inf)
    turned = counted & (other % 2 == 1)
    sign = tnp.where(of_a | _is_end(b), tnp.where(turned, -1.0, 1.0), sign)
    return sign * tnp.exp(_betaln_of(a, b))


# The zeta function --------------------------------------------------------------------


def bernoulli(n: int) -> Array:
    """Bernoulli's numbers, from number 0 to n, an int. (Number 1 is -1/2.)

    >>> import treadle as td
    >>> td.scipy.special.bernoulli(2)
    Array([ 1.    , -0.5   ,  0.1667], dtype=float32)
    """
    n = whole("bernoulli", "n", n, 0)
    return as_array(np.array([float(b) for b in _bernoulli(n)], np.float32))


def _bernoulli(n: int) -> list[Fraction]:
    found = [Fraction(1)]
    for m in range(1, n + 1):
        terms = [math.comb(m + 1, k) * b for k, b in enumerate(found)]
        found.append(-sum(terms, Fraction(0)) / (m + 1))
    return found


_BEFORE = 9
_AFTER = 12
_EULER_MACLAURIN = tuple(
    [float(b) / math.factorial(2 * j) for j, b in enumerate(_bernoulli(24)[2::2], 1)]
)


def zeta(x: ArrayLike, q: ArrayLike | None = None, /) -> Array:
    """Hurwitz' zeta function, ``Σₖ (q + k) ** -x`` for x > 1; Riemann's, if there is no
    q.

    >>> import treadle as td
    >>> td.scipy.special.zeta(2.0)
    Array(1.6449, dtype=float32)
    """
    return in_single(_zeta_of, "zeta", x, 1.0 if q is None else q)


def _zeta_of(x: Any, q: Any) -> Any:
    inside = (x > 1) & (q > 0) & (x < math.inf) & (q < math.inf)
    s, base = tnp.where(inside, x, 2.0), tnp.where(inside, q, 1.0)
    # All powers at once: a power is much code.
    steps = tnp.arange(_BEFORE + 1, dtype=base.dtype)
    powers = tnp.power(base[..., None] + steps, -s[..., None])
    end, last = base + _BEFORE, powers[..., -1]
    total = tnp.sum(powers[..., :-1], axis=-1) + last * (end / (s - 1) + 0.5)
    term = last * (s / end)
    for j, c in enumerate(_EULER_MACLAURIN):
        total = total + c * term
        term = term * ((s + (2 * j + 1)) / end) * ((s + (2 * j + 2)) / end)
    pole = (x == 1) | ((q <= 0) & (tnp.floor(q) == q) & (x > 1))
    outside = tnp.where(pole, math.inf, math.nan)
    outside = tnp.where((x == math.inf) & (q >= 1), tnp.where(q > 1, 0.0, 1.0), outside)
    outside = tnp.where((x > 1) & (q == math.inf), 0.0, outside)
    return tnp.where(inside, total, outside)
