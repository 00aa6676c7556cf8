"""`treadle.scipy.sparse.linalg`: linear equations, solved by applying the matrix.

    x, info = td.scipy.sparse.linalg.cg(A, b)

Derivatives are those of the equation: they solve another one by the same method, and go
through no iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from treadle import np as tnp
from treadle.api.args import as_results
from treadle.api.boundary import boundary
from treadle.api.implicit import Vectors, custom_linear_solve
from treadle.api.jacobian import linear_transpose, stop_gradient
from treadle.api.loops import scan
from treadle.api.while_loops import while_loop
from treadle.errors import at, user_source
from treadle.np.operands import operand
from treadle.scipy.flat import Flat
from treadle.trace.value import typeof

__all__ = ["bicgstab", "cg", "gmres"]

Map = Callable[[Any], Any]


class _Problem(NamedTuple):
    """``matvec(x) = b`` for vectors, and when x is good enough.

    least: the norm of the residual where an iteration ends.
    """

    matvec: Map
    precondition: Map
    b: Any
    x: Any
    least: Any
    maxiter: int

    def residual(self, x: Any) -> Any:
        return self.b - self.matvec(x)


Method = Callable[[_Problem], tuple[Any, Any, Any]]
"""Gives x, the norm of its residual, and how many iterations that took."""


@boundary
def cg(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
) -> tuple[Any, Any]:
    """Solves ``A x = b`` by conjugate gradients, for a Hermitian, positive definite A.

    Args:
      A: a linear function from a pytree of arrays like `b` to another one, or a square
        matrix. What it closes over may be differentiated.
      b: a pytree of floating or complex arrays.
      x0: where to start; zeros if None. It has no derivative.
      tol, atol: the residual's norm may be the larger one of `atol` and `tol` times the
        norm of `b`.
      maxiter: how many iterations there may be; 10 for each unknown if None.
      M: a preconditioner: a linear function or matrix, about the inverse of A.

    Returns:
      (x, info), where info is 0 if the residual became small enough, else after how
      many iterations it was not.

    Raises:
      StructureError, TypeError, ValueError: if A gives what is not like `b`.

    >>> import treadle as td, treadle.numpy as tnp
    >>> x, info = td.scipy.sparse.linalg.cg(lambda x: 4.0 * x, tnp.array([8.0, 2.0]))
    >>> x
    Array([2. , 0.5], dtype=float32)
    """
    return _solve("cg", _cg, A, b, x0, tol, atol, maxiter, M)


@boundary
def bicgstab(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
) -> tuple[Any, Any]:
    """Solves ``A x = b`` by stabilised biconjugate gradients, for any A.

    Arguments, results and errors are those of `cg`.

    >>> import treadle as td, treadle.numpy as tnp
    >>> A = tnp.array([[2.0, 1.0], [0.0, 4.0]])
    >>> td.scipy.sparse.linalg.bicgstab(A, tnp.array([4.0, 8.0]))[0]
    Array([1., 2.], dtype=float32)
    """
    return _solve("bicgstab", _bicgstab, A, b, x0, tol, atol, maxiter, M)


@boundary
def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    restart: int = 20,
    maxiter: int | None = None,
    M: Any = None,
) -> tuple[Any, Any]:
    """Solves ``A x = b`` by restarted minimal residuals, for any A.

    Arguments, results and errors are those of `cg`, but for:

    Args:
      restart: how many vectors are kept, and how often A is applied in one iteration.
      maxiter: counts these iterations. They also end where the residual doesn't shrink.

    >>> import treadle as td, treadle.numpy as tnp
    >>> A = tnp.array([[2.0, 1.0], [0.0, 4.0]])
    >>> td.scipy.sparse.linalg.gmres(A, tnp.array([4.0, 8.0]))[0]
    Array([1., 2.], dtype=float32)
    """
    method = partial(_gmres, restart=restart)
    return _solve("gmres", method, A, b, x0, tol, atol, maxiter, M)


def _solve(
    name: str,
    method: Method,
    A: Any,
    b: Any,
    x0: Any,
    tol: float,
    atol: float,
    maxiter: int | None,
    M: Any,
) -> tuple[Any, Any]:
    function = _function(name, "A", A)
    vectors = Vectors(name, "b", b, function)
    flat, form = Flat(vectors.types), vectors.form
    b = form.unflatten(as_results(vectors.leaves))
    start = flat.ravel(
        [tnp.zeros(t.shape, t.dtype) for t in vectors.types]
        if x0 is None
        else vectors.flat(stop_gradient(x0), "x0")
    )
    most = max(10 * start.size, 1) if maxiter is None else maxiter
    precondition = (lambda x: x) if M is None else _function(name, "M", M)

    def on_vectors(of: Map, what: str) -> Map:
        def applied(x: Any) -> Any:
            given = form.unflatten(as_results(flat.unravel(x)))
            return flat.ravel(vectors.flat(of(given), what))

        return applied

    def solve(M: Map, matvec: Map, b: Any) -> tuple[Any, Any]:
        right = flat.ravel(vectors.flat(b, "b"))
        least = tnp.maximum(atol, tol * tnp.linalg.norm(right))
        problem = _Problem(
            on_vectors(matvec, "A"),
            on_vectors(M, "M"),
            right,
            start,
            least,
            most,
        )
        x, norm, steps = method(problem)
        info = tnp.where(norm <= least, 0, tnp.maximum(steps, 1))
        return form.unflatten(as_results(flat.unravel(x))), info

    def transposed_M(x: Any) -> Any:
        return linear_transpose(precondition, b)(x)[0]

    return custom_linear_solve(
        function,
        b,
        partial(solve, precondition),
        partial(solve, precondition if M is None else transposed_M),
        has_aux=True,
    )


def _function(name: str, what: str, A: Any) -> Map:
    if callable(A):
        return A
    matrix = tnp.asarray(operand(f"{name}: {what}", A))
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"{name}: {what} must be a linear function or a square matrix, got "
            f"{typeof(matrix)}{at(user_source())}"
        )
    return lambda x: matrix @ x


def _vdot(x: Any, y: Any) -> Any:
    # A sum runs with what makes x and y, which a product would need in memory.
    return tnp.sum(tnp.conj(x) * y)


def _square(x: Any) -> Any:
    return tnp.real(_vdot(x, x))


def _ratio(x: Any, y: Any) -> Any:
    """x / y, and 0 where that is not known: then the iteration stands still."""
    return tnp.where(y == 0, 0, x / tnp.where(y == 0, 1, y))


def _cg(problem: _Problem) -> tuple[Any, Any, Any]:
    """M. R. Hestenes, E. Stiefel: Methods of conjugate gradients for solving linear
    systems (1952)."""
    least, M = problem.least**2, problem.precondition

    def going(carry: Any) -> Any:
        *_, square, k = carry
        return (square > least) & (k < problem.maxiter)

    def step(carry: Any) -> Any:
        x, r, p, old, _, k = carry
        image = problem.matvec(p)
        length = _ratio(old, _vdot(p, image))
        x, r = x + length * p, r - length * image
        z = M(r)
        new = _vdot(r, z)
        return x, r, z + _ratio(new, old) * p, new, _square(r), k + 1

    r = problem.residual(problem.x)
    z = M(r)
    init = problem.x, r, z, _vdot(r, z), _square(r), 0
    x, *_, square, k = while_loop(going, step, init)
    return x, tnp.sqrt(square), k


def _bicgstab(problem: _Problem) -> tuple[Any, Any, Any]:
    """H. A. van der Vorst: Bi-CGSTAB (1992)."""
    least, M = problem.least**2, problem.precondition
    shadow = problem.residual(problem.x)

    def going(carry: Any) -> Any:
        _, r, _, _, rho, k = carry
        return (_square(r) > least) & (k < problem.maxiter) & (rho != 0)

    def step(carry: Any) -> Any:
        x, r, p, v, rho, k = carry
        ahead = M(p)
        v = problem.matvec(ahead)
        alpha = _ratio(rho, _vdot(shadow, v))
        half = r - alpha * v
        other = M(half)
        t = problem.matvec(other)
        omega = _ratio(_vdot(t, half), _vdot(t, t))
        x = x + alpha * ahead + omega * other
        r = half - omega * t
        new = _vdot(shadow, r)
        beta = _ratio(new, rho) * _ratio(alpha, omega)
        return x, r, r + beta * (p - omega * v), v, new, k + 1

    init = (
        problem.x,
        shadow,
        shadow,
        tnp.zeros_like(shadow),
        _vdot(shadow, shadow),
        0,
    )
    x, r, *_, k = while_loop(going, step, init)
    return x, tnp.sqrt(_square(r)), k


def _gmres(problem: _Problem, restart: int) -> tuple[Any, Any, Any]:
    """Y. Saad, M. H. Schultz: GMRES (1986), preconditioned from the right, so that the
    residual is that of the equation."""
    n = problem.b.size
    count = min(restart, n)

    def going(carry: Any) -> Any:
        _, _, norm, before, k = carry
        return (norm > problem.least) & (norm < before) & (k < problem.maxiter)

    def cycle(carry: Any) -> Any:
        x, r, norm, _, k = carry
        basis, H = _arnoldi(problem, _ratio(r, norm), count)
        right = tnp.zeros(count + 1, basis.dtype).at[0].set(norm)
        weights = tnp.linalg.lstsq(H.T, right)[0]
        x = x + problem.precondition(weights @ basis[:count])
        r = problem.residual(x)
        return x, r, tnp.linalg.norm(r), norm, k + 1

    r = problem.residual(problem.x)
    norm = tnp.linalg.norm(r)
    init = problem.x, r, norm, tnp.full_like(norm, tnp.inf), 0
    x, _, norm, _, k = while_loop(going, cycle, init)
    return x, norm, k


def _arnoldi(problem: _Problem, first: Any, count: int) -> tuple[Any, Any]:
    """An orthonormal basis of Krylov's space, and its images: row j of H holds the
    coordinates of the image of vector j.

    Where the space is complete, what follows is zero.
    """
    basis = tnp.zeros((count + 1, first.size), first.dtype).at[0].set(first)
    few = 10 * tnp.finfo(first.dtype).eps

    def step(basis: Any, j: Any) -> tuple[Any, Any]:
        w = problem.matvec(problem.precondition(basis[j]))
        size = tnp.linalg.norm(w)
        # Once more, for what rounding left of the others.
        h = tnp.conj(basis) @ w
        w = w - h @ basis
        again = tnp.conj(basis) @ w
        w = w - again @ basis
        norm = tnp.linalg.norm(w)
        norm = tnp.where(norm > few * size, norm, 0)
        h = (h + again).at[j + 1].set(norm)
        return basis.at[j + 1].set(_ratio(w, norm)), h

    return scan(step, basis, tnp.arange(count))
