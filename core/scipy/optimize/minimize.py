"""minimize: where a function of many unknowns is smallest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, NamedTuple, TypeVar

import numpy as np

from treadle import dtypes
from treadle import np as tnp
from treadle.api.args import as_results, check_function, name_of
from treadle.api.boundary import boundary
from treadle.api.grad import grad, value_and_grad
from treadle.api.implicit import Vectors, custom_root
from treadle.errors import at, user_source
from treadle.scipy.flat import Flat
from treadle.scipy.optimize.quasi_newton import BFGS, Limits, Memory, descend, lbfgs
from treadle.scipy.sparse.linalg import cg
from treadle.trace.stage import known_value

T = TypeVar("T")

_MESSAGES = (
    "The gradient is as small as it should be.",
    "It took as many steps as there may be (`maxiter`).",
    "No lower value was found along the direction: x is as near to a minimum as "
    "rounding lets it come, or the function is not smooth.",
    "The function or its gradient is not finite.",
)
_OPTIONS = {"gtol": 1e-5, "maxiter": None, "line_search_maxiter": 20, "maxcor": 10}


class OptimizeResults(NamedTuple):
    """What `minimize` found: a pytree of arrays.

    x: like `x0`. fun: the function's value there. jac: its gradient.
    success: whether the gradient is small enough; status: 0, or why not (`message`).
    nit: how many steps were made; nfev, njev: how often the function and its gradient
      were computed.
    hess_inv: for BFGS, about the inverse of the Hessian at x, for the numbers of x in
      one vector; else None.
    """

    x: Any
    fun: Any
    jac: Any
    success: Any
    status: Any
    nit: Any
    nfev: Any
    hess_inv: Any

    @property
    def njev(self) -> Any:
        """How often the gradient was computed: with each value of the function."""
        return self.nfev

    @property
    def message(self) -> str:
        """The status in words; of a traced one, all that it may mean."""
        status = known_value(self.status)
        if status is None or np.ndim(np.asarray(status)):
            return " ".join([f"{i}: {text}" for i, text in enumerate(_MESSAGES)])
        return _MESSAGES[int(status)]


@boundary
def minimize(
    fun: Callable[Concatenate[T, ...], Any],
    x0: T,
    args: Sequence[Any] = (),
    *,
    method: str = "BFGS",
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:
    """x for which ``fun(x, *args)`` is smallest, near `x0`.

    The derivative of x is that of the minimum, where the gradient is zero: `args` and
    what `fun` closes over may be differentiated, in forward and reverse mode, of any
    order, without going through the steps. (It needs a Hessian that is positive
    definite.)

    Args:
      fun: gives a real scalar; x is a pytree of floating arrays like `x0`.
      x0: where to start. It has no derivative.
      args: what `fun` is given besides.
      method: "BFGS", which keeps a matrix with a row for each unknown, or "L-BFGS",
        which keeps the last few steps.
      tol: as the option `gtol`.
      options: of ``gtol`` (1e-5), how large the largest number of the gradient may be;
        ``maxiter`` (200 for each unknown, at most 15000), the number of steps;
        ``line_search_maxiter`` (20), that of evaluations in each; ``maxcor`` (10), how
        many steps L-BFGS keeps.

    Raises:
      TypeError, ValueError: for other methods and options, or if `fun` gives no real
        scalar.

    >>> import treadle as td, treadle.numpy as tnp
    >>> def rosenbrock(x, a):
    ...     return tnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (a - x[:-1]) ** 2)
    >>> @td.jit
    ... def lowest(x, a):
    ...     return td.scipy.optimize.minimize(rosenbrock, x, (a,), tol=1e-3)
    >>> found = lowest(tnp.zeros(2), 1.0)
    >>> found.x
    Array([1., 1.], dtype=float32)
    >>> found.message
    'The gradient is as small as it should be.'
    """
    check_function("minimize", fun)
    chosen = _options(tol, options)
    if method not in ("BFGS", "L-BFGS"):
        raise ValueError(
            f"minimize: method {method!r} is neither 'BFGS' nor 'L-BFGS'"
            f"{at(user_source())}"
        )
    gradient = grad(lambda x: _scalar(fun, fun(x, *args)))
    vectors = Vectors("minimize", "x0", x0, gradient)
    flat = Flat(vectors.types)
    if dtypes.is_complex(flat.dtype):
        raise TypeError(
            f"minimize: x0 is complex ({vectors.types}){at(user_source())}\n"
            "Give the real and the imaginary part as two arrays: `(x.real, x.imag)`."
        )
    memory = BFGS if method == "BFGS" else lbfgs(chosen["maxcor"])
    x, facts = custom_root(
        gradient,
        vectors.form.unflatten(as_results(vectors.leaves)),
        _solver(lambda x: _scalar(fun, fun(x, *args)), vectors, flat, memory, chosen),
        lambda hessian, y: cg(hessian, y)[0],
        has_aux=True,
    )
    jac, status, steps, evaluations, inverse = facts
    # Once more, for its derivative.
    value = fun(x, *args)
    return OptimizeResults(
        x, value, jac, status == 0, status, steps, evaluations, inverse
    )


def _solver(
    value: Callable[[Any], Any],
    vectors: Vectors,
    flat: Flat,
    memory: Memory,
    options: Mapping[str, Any],
) -> Callable[[Any, Any], Any]:
    """Gives the minimum, and facts of the way to it: what `custom_root` calls."""
    most = options["maxiter"]
    limits = Limits(
        options["gtol"],
        min(200 * max(flat.ends[-1], 1), 15000) if most is None else most,
        options["line_search_maxiter"],
    )

    def tree_of(x: Any) -> Any:
        return vectors.form.unflatten(as_results(flat.unravel(x)))

    def solve(_: Any, guess: Any) -> Any:
        x = flat.ravel(vectors.flat(guess, "x0"))
        of_vector = value_and_grad(lambda x: tnp.astype(value(tree_of(x)), flat.dtype))
        end = descend(of_vector, x, memory, limits)
        inverse = end.memory[0] if memory is BFGS else None
        facts = tree_of(end.gradient), end.status, end.steps, end.evaluations, inverse
        return tree_of(end.x), facts

    return solve


def _options(tol: Any, options: Any) -> dict[str, Any]:
    given = dict(options or {})
    if unknown := sorted(set(given) - set(_OPTIONS)):
        raise TypeError(
            f"minimize has no option {unknown[0]!r}{at(user_source())}\n"
            f"There are {', '.join(map(repr, _OPTIONS))}."
        )
    if tol is not None:
        given.setdefault("gtol", tol)
    return {**_OPTIONS, **given}


def _scalar(fun: Callable[..., Any], value: Any) -> Any:
    value = tnp.asarray(value)
    if value.shape or not np.issubdtype(value.dtype, np.floating):
        raise TypeError(
            f"minimize: {name_of(fun)} must give a real scalar, got {value.type}"
            f"{at(user_source())}"
        )
    return value
