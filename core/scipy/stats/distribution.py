"""What all distributions have in common: their parameters, support, and what follows
of few functions by arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import treadle.numpy as tnp
from treadle.errors import at, user_source
from treadle.np.operands import ArrayLike
from treadle.run.array import Array
from treadle.scipy.operands import floats

Function = Callable[..., Any]
"""``(y, *shapes) -> value``, of a variable within the support."""
Condition = Callable[..., Any]
"""``(*shapes) -> bool``: whether they are those of a distribution."""
Support = tuple[float, float] | Callable[..., tuple[Any, Any]]
"""The least and the largest value, if need be of the shapes."""


class Distribution:
    """Parameters of a distribution of one variable, by position or by name.

    shapes: the names of its parameters that have no default.
    inside: a number within the support, which stands for those that are not.
    proper: which values of the shapes are those of a distribution; of others all its
      functions are not a number. By default those above 0.
    """

    _defaults: dict[str, float]

    def __init__(
        self,
        name: str,
        doc: str,
        shapes: Sequence[str],
        support: Support,
        inside: Any,
        proper: Condition | None,
    ) -> None:
        self._name, self._shapes = name, tuple(shapes)
        self._support, self._inside = support, inside
        self._proper = proper or _all_positive
        self.__doc__ = doc

    def __repr__(self) -> str:
        return f"treadle.scipy.stats.{self._name}"

    def _arguments(
        self, method: str, x: ArrayLike, args: Sequence[Any], named: dict[str, Any]
    ) -> list[Any]:
        """The variable and all parameters, in order."""
        names = (*self._shapes, *self._defaults)
        given = dict(zip(names, args, strict=False))
        twice = [n for n in named if n in given]
        unknown = [n for n in named if n not in names]
        given = self._defaults | given | named
        missing = [n for n in self._shapes if n not in given]
        if twice or unknown or missing or len(args) > len(names):
            problem = (
                f"no {' and '.join(missing)}"
                if missing
                else f"{' and '.join(twice)} given twice"
                if twice
                else f"no parameter {' or '.join(unknown)}"
                if unknown
                else f"{len(args)} parameters"
            )
            raise TypeError(
                f"{self._name}.{method}: {problem}{at(user_source())}\n"
                f"Its parameters are {', '.join(names)}."
            )
        label = f"{self._name}.{method}"
        return floats(label, x, *[given[n] for n in names])

    def _ends(self, shapes: Sequence[Any]) -> tuple[Any, Any]:
        return self._support(*shapes) if callable(self._support) else self._support

    def _within(
        self, y: Any, shapes: Sequence[Any], function: Function, below: Any, above: Any
    ) -> Any:
        """A function of what is within the support, and its values beyond the ends."""
        low, high = self._ends(shapes)
        under, over = y < low, y > high
        inside = self._inside(*shapes) if callable(self._inside) else self._inside
        value = function(tnp.where(under | over, inside, y), *shapes)
        value = tnp.where(under, below, tnp.where(over, above, value))
        return tnp.where(y != y, math.nan, value)


def _all_positive(*shapes: Any) -> Any:
    return math.prod([s > 0 for s in shapes], start=True)


class Continuous(Distribution):
    """A continuous distribution: of ``loc + scale * y``, where y is standard.

    Its functions take the variable (of `ppf` and `isf`: the probability), the shapes,
    and `loc` and `scale`; they broadcast, and have derivatives by all of these.
    """

    _defaults = {"loc": 0.0, "scale": 1.0}  # noqa: RUF012

    def __init__(
        self,
        name: str,
        doc: str,
        shapes: Sequence[str] = (),
        *,
        logpdf: Function,
        support: Support = (-math.inf, math.inf),
        inside: Any = 0.5,
        proper: Condition | None = None,
        **functions: Function,
    ) -> None:
        """functions: `cdf`, `sf`, `logcdf`, `logsf`, `ppf`, `isf`, as far as they are
        more than arithmetic with the others."""
        super().__init__(name, doc, shapes, support, inside, proper)
        self._logpdf, self._functions = logpdf, functions

    def logpdf(self, x: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """The logarithm of the density; minus infinity outside of the support."""
        return self._log_density("logpdf", x, args, named)

    def pdf(self, x: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """The density."""
        return tnp.exp(self._log_density("pdf", x, args, named))

    def _log_density(self, method: str, x: Any, args: Any, named: Any) -> Any:
        x, *shapes, loc, scale = self._arguments(method, x, args, named)
        beyond = -math.inf
        value = self._within((x - loc) / scale, shapes, self._logpdf, beyond, beyond)
        return self._valid(value - tnp.log(scale), shapes, scale)

    def cdf(self, x: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """The probability of at most x."""
        return self._cumulative("cdf", x, args, named, 0.0, 1.0)

    def sf(self, x: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """The probability of more than x, accurate in the upper tail."""
        return self._cumulative("sf", x, args, named, 1.0, 0.0)

    def logcdf(self, x: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """The logarithm of `cdf`."""
        return self._cumulative("logcdf", x, args, named, -math.inf, 0.0)

    def logsf(self, x: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """The logarithm of `sf`."""
        return self._cumulative("logsf", x, args, named, 0.0, -math.inf)

    def ppf(self, q: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """The inverse of `cdf`.

        Raises:
          NotImplementedError: for distributions where it has no formula.
        """
        return self._inverse("ppf", q, args, named)

    def isf(self, q: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """The inverse of `sf`.

        Raises:
          NotImplementedError: for distributions where it has no formula.
        """
        return self._inverse("isf", q, args, named)

    def _cumulative(
        self, method: str, x: Any, args: Any, named: Any, below: Any, above: Any
    ) -> Any:
        x, *shapes, loc, scale = self._arguments(method, x, args, named)
        y = (x - loc) / scale
        value = self._within(y, shapes, self._found(method), below, above)
        return self._valid(value, shapes, scale)

    def _found(self, method: str) -> Function:
        """A cumulative function: its own, or made of another one."""
        own = self._functions
        if method in own:
            return own[method]
        if method == "cdf":
            if "logcdf" in own:
                return lambda y, *shapes: tnp.exp(own["logcdf"](y, *shapes))
            if "sf" in own:
                return lambda y, *shapes: 1 - own["sf"](y, *shapes)
        elif method == "sf":
            if "logsf" in own:
                return lambda y, *shapes: tnp.exp(own["logsf"](y, *shapes))
            if "cdf" in own:
                return lambda y, *shapes: 1 - own["cdf"](y, *shapes)
        elif method in ("logcdf", "logsf"):
            plain = self._found(method.removeprefix("log"))
            return lambda y, *shapes: tnp.log(plain(y, *shapes))
        raise NotImplementedError(
            f"{self._name} has no {method}: there is no formula for it"
            f"{at(user_source())}"
        )

    def _inverse(self, method: str, q: Any, args: Any, named: Any) -> Any:
        q, *shapes, loc, scale = self._arguments(method, q, args, named)
        function = self._found(method)
        low, high = self._ends(shapes)
        first, last = (low, high) if method == "ppf" else (high, low)
        inside = (q > 0) & (q < 1)
        y = function(tnp.where(inside, q, 0.5), *shapes)
        ends = tnp.where(q == 1, last, tnp.full_like(q, math.nan))
        ends = tnp.where(q == 0, first, ends)
        return self._valid(loc + scale * tnp.where(inside, y, ends), shapes, scale)

    def _valid(self, value: Any, shapes: Sequence[Any], scale: Any) -> Any:
        return tnp.where((scale > 0) & self._proper(*shapes), value, math.nan)


class Discrete(Distribution):
    """A distribution of whole numbers, all moved by `loc`.

    Its functions take the number, the shapes and `loc`; they broadcast, and have
    derivatives by the shapes.
    """

    _defaults = {"loc": 0.0}  # noqa: RUF012

    def __init__(
        self,
        name: str,
        doc: str,
        shapes: Sequence[str],
        *,
        logpmf: Function,
        support: Support,
        inside: Any = 0.0,
        proper: Condition,
        cdf: Function | None = None,
    ) -> None:
        super().__init__(name, doc, shapes, support, inside, proper)
        self._logpmf, self._cdf = logpmf, cdf

    def logpmf(self, k: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """The logarithm of the probability of k; minus infinity outside of the
        support, and for numbers that are not whole."""
        return self._log_mass("logpmf", k, args, named)

    def pmf(self, k: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """The probability of k."""
        return tnp.exp(self._log_mass("pmf", k, args, named))

    def _log_mass(self, method: str, k: Any, args: Any, named: Any) -> Any:
        k, *shapes, loc = self._arguments(method, k, args, named)
        k, beyond = k - loc, -math.inf
        broken = tnp.floor(k) < k
        value = self._within(k, shapes, self._logpmf, beyond, beyond)
        value = tnp.where(broken, beyond, value)
        return tnp.where(self._proper(*shapes), value, math.nan)

    def cdf(self, k: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """The probability of at most k.

        Raises:
          NotImplementedError: for distributions where it has no formula.
        """
        k, *shapes, loc = self._arguments("cdf", k, args, named)
        if self._cdf is None:
            raise NotImplementedError(
                f"{self._name} has no cdf: there is no formula for it"
                f"{at(user_source())}"
            )
        k = tnp.floor(k - loc)
        value = self._within(k, shapes, self._cdf, 0.0, 1.0)
        value = tnp.where(k == math.inf, 1.0, value)
        return tnp.where(self._proper(*shapes), value, math.nan)
