"""Special functions of mathematics that models use, elementwise."""

from __future__ import annotations

from treadle.np.elementwise import floating_function
from treadle.ops import unary

__all__ = ["digamma", "erf", "erf_inv", "erfc", "lgamma", "logistic", "rsqrt"]

erf = floating_function(unary.erf, "erf", "The error function.")
erfc = floating_function(unary.erfc, "erfc", "``1 - erf(x)``, accurate for large x.")
erf_inv = floating_function(
    unary.erf_inv, "erf_inv", "The inverse of the error function."
)
lgamma = floating_function(
    unary.lgamma, "lgamma", "The logarithm of the absolute value of the gamma function."
)
digamma = floating_function(
    unary.digamma, "digamma", "The derivative of the logarithm of the gamma function."
)
logistic = floating_function(
    unary.logistic, "logistic", "``1 / (1 + exp(-x))``, the sigmoid."
)
rsqrt = floating_function(unary.rsqrt, "rsqrt", "``1 / sqrt(x)``.")
