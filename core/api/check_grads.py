"""Derivatives against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import dtypes, tree
from treadle.api.args import as_results, check_arguments, check_function, name_of
from treadle.api.boundary import boundary
from treadle.api.linear import jvp, vjp
from treadle.api.tangents import differentiable_leaves
from treadle.errors import at, user_source
from treadle.trace.value import typeof

_EXACT = {"float64": 1e-5, "complex128": 1e-5, "float32": 2e-3, "complex64": 2e-3}
_HALF = 0.1
"""By how much a derivative may differ, by dtype; the other ones are half floats."""

_STEP = 2.0**-11
_HALF_STEP = 2.0**-4
_DIFFERS = """\
check_grads: {what} is wrong
  it gives {found}, finite differences give {wanted}; {allowed:.2g} apart is allowed{at}
If the function is steep or not smooth here, choose another point, `eps=`, `atol=` or \
`rtol=`; float64 arguments are more exact."""


@boundary
def check_grads(
    function: Callable[..., Any],
    args: Sequence[Any],
    order: int = 1,
    modes: Sequence[str] = ("fwd", "rev"),
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
) -> None:
    """Compares a function's derivatives with finite differences.

    It is done along a random direction (the same one each time): ``jvp`` against
    differences, and ``vjp`` by how it fits to these.

    Args:
      function: from pytrees of arrays to a pytree of arrays.
      args: a tuple of its arguments, at which the function is smooth. What is not
        floating or complex stays as it is.
      order: how many derivatives are checked: those of derivatives too, if it is 2.
      modes: "fwd" for `jvp`, "rev" for `vjp`, or both.
      atol, rtol: by how much they may differ; by default what the dtypes allow.
      eps: the step of the differences.

    Raises:
      AssertionError: if a derivative is wrong; it names the derivative and the place.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.check_grads(tnp.sin, (1.0,), order=2)
    >>> f = td.custom_jvp(tnp.sin)
    >>> f.defjvps(lambda t, out, x: t)
    >>> td.check_grads(f, (1.0,), modes=["fwd"])
    Traceback (most recent call last):
      ...
    AssertionError: check_grads: the JVP of sin is wrong
    ...
    """
    check_function("check_grads", function)
    if not isinstance(args, tuple | list):
        raise TypeError(
            "check_grads takes a tuple of arguments: `td.check_grads(f, (x,))`"
            f"{at(user_source())}"
        )
    unknown = set(modes) - {"fwd", "rev"} or isinstance(modes, str)
    if unknown or not modes:
        raise ValueError(
            f'check_grads: modes are "fwd" and "rev", in a tuple; got {modes!r}'
            f"{at(user_source())}"
        )
    checker = _Checker(modes, atol, rtol, eps)
    checker.check(function, tuple(args), order, name_of(function))


class _Checker:
    def __init__(
        self,
        modes: Sequence[str],
        atol: float | None,
        rtol: float | None,
        eps: float | None,
    ) -> None:
        self.modes, self.atol, self.rtol, self.eps = modes, atol, rtol, eps

    def check(
        self, function: Callable[..., Any], args: tuple, order: int, name: str
    ) -> None:
        """Checks the function's derivative, and those of that if `order` says so."""
        point = _Point(function, args, self.eps)
        if "fwd" in self.modes:
            what = f"the JVP of {name}"
            out, tangent = jvp(function, args, point.direction)
            self._compare(point, out, point.out, f"the value beside {what}")
            self._compare(point, tangent, point.slope, what)
            if order > 1:

                def pushed(args: tuple, direction: tuple) -> Any:
                    return jvp(function, args, direction)

                self.check(pushed, (args, point.direction), order - 1, what)
        if "rev" in self.modes:
            what = f"the VJP of {name}"
            out, pullback = vjp(function, *args)
            self._compare(point, out, point.out, f"the value beside {what}")
            ct = _random(point.out, 1)
            found = _inner(pullback(ct), point.direction)
            wanted = _inner(ct, point.slope)
            scale = _inner(tree.map(np.abs, ct), tree.map(np.abs, point.slope))
            self._close(point, found, wanted, what, scale)
            if order > 1:

                def pulled(*args: Any) -> Any:
                    out, pullback = vjp(function, *args)
                    return pullback(tree.map(_if_smooth, out))

                self.check(pulled, args, order - 1, what)

    def _compare(self, point: _Point, found: Any, wanted: Any, what: str) -> None:
        ours, form = tree.flatten(found)
        for path, x, y in zip(tree.paths(form), ours, tree.leaves(wanted), strict=True):
            a, b = _wide(x), _wide(y)
            if a.size:
                worst = np.argmax(np.abs(a - b))
                where = f" at {tree.key_name(path)}" if path else ""
                scale = float(np.max(np.abs(b)))
                self._close(point, a.flat[worst], b.flat[worst], what + where, scale)

    def _close(
        self, point: _Point, found: Any, wanted: Any, what: str, scale: float
    ) -> None:
        atol = point.tolerance if self.atol is None else self.atol
        rtol = point.tolerance if self.rtol is None else self.rtol
        allowed = atol + rtol * float(np.abs(wanted))
        if self.atol is None and self.rtol is None:
            allowed += point.rounding(scale)
        # (A comparison with NaN is False.)
        if np.abs(found - wanted) <= allowed:
            return
        raise AssertionError(
            _DIFFERS.format(
                what=what,
                found=found,
                wanted=wanted,
                allowed=allowed,
                at=at(user_source()),
            )
        )


class _Point:
    """A function's value at a point, and its slope there along a random direction, by
    differences. None stands for what has no derivative.

    tolerance: how exact derivatives are, in the dtypes of arguments and results.
    """

    def rounding(self, scale: float) -> float:
        """What rounded arguments and results may make of differences of such a size: it
        grows with them, but not beyond what a wrong derivative is off by."""
        return min(self.rounded_out + self.rounded_in * scale, 0.03 * scale)

    def __init__(
        self, function: Callable[..., Any], args: tuple, eps: float | None
    ) -> None:
        leaves, form = tree.flatten(args)
        check_arguments(function, leaves, form, skip=0)
        moving = differentiable_leaves(leaves, form)
        arrays = as_results(leaves)
        leaves = [arrays[i] if moves else leaves[i] for i, moves in enumerate(moving)]
        rest = [x if moves else None for x, moves in zip(leaves, moving, strict=True)]
        self.direction = _random(form.unflatten(rest), 0)
        directions = tree.flatten_up_to(form, self.direction, none=True)

        def moved(step: float) -> Any:
            there = [
                x if d is None else (_wide(x) + step * _wide(d)).astype(d.dtype)
                for x, d in zip(leaves, directions, strict=True)
            ]
            return function(*form.unflatten(there))

        self.out = function(*form.unflatten(leaves))
        found = [typeof(x).dtype for x in (*leaves, *tree.leaves(self.out))]
        floats = [d.name for d in found if dtypes.is_differentiable(d)]
        self.tolerance = max([_EXACT.get(n, _HALF) for n in floats], default=0.0)
        eps = eps or (_HALF_STEP if self.tolerance == _HALF else _STEP)
        self.rounded_in = _last_bits(rest) / eps
        self.rounded_out = _last_bits(self.out) / eps
        low, high = moved(-eps), moved(eps)
        self.slope = tree.map(
            lambda x, a, b: (_wide(b) - _wide(a)) / (2 * eps) if _moves(x) else None,
            self.out,
            low,
            high,
        )


def _last_bits(values: Any) -> float:
    """A few last bits of the largest number among values."""
    sizes = [
        float(np.finfo(x.dtype).eps) * float(np.max(np.abs(_wide(x)), initial=0))
        for x in map(np.asarray, tree.leaves(values))
        if x.dtype.kind in "fc"
    ]
    return 2 * max(sizes, default=0.0)


def _moves(x: Any) -> bool:
    return dtypes.is_differentiable(typeof(x).dtype)


def _if_smooth(x: Any) -> Any:
    return x if _moves(x) else None


def _random(values: Any, seed: int) -> Any:
    """Numbers of the types of values; None for those without derivatives."""
    rng = np.random.default_rng(seed)

    def like(x: Any) -> Any:
        t = typeof(x)
        if not _moves(x):
            return None
        made = rng.normal(size=t.shape)
        if dtypes.is_complex(t.dtype):
            made = made + 1j * rng.normal(size=t.shape)
        return np.asarray(made).astype(t.dtype)

    return tree.map(like, values)


def _wide(x: Any) -> np.ndarray:
    """The values, so exact that differences of them lose nothing more."""
    values = np.asarray(x)
    is_complex = values.dtype.kind == "c"
    return values.astype(np.complex128 if is_complex else np.float64)


def _inner(xs: Any, ys: Any) -> float:
    pairs = zip(tree.leaves(xs), tree.leaves(ys), strict=True)
    return sum([float(np.sum(_wide(x) * _wide(y)).real) for x, y in pairs])
