"""`treadle.lax.linalg` against `jax.lax.linalg`: names, order and shapes of results."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
from tests.core.lax.cases import floats

A = floats(2, 4, 4)
SPD = A @ A.transpose(0, 2, 1) + 4 * np.eye(4, dtype="float32")
B = floats(2, 4, 3)
H = B.copy()
TAUS = 2 / (1 + (np.tril(B, -1) ** 2).sum(-2))
REFLECTIONS = H, TAUS
R, V = np.triu(floats(4, 4)), floats(4)
DIAGONALS = [floats(2, 4) * (np.arange(4) != i) for i in (0, 9, 3)]
DIAGONALS = [x.astype("float32") for x in DIAGONALS]

ROWS: dict[str, Any] = {
    "cholesky": lambda m: m.cholesky(SPD),
    "cholesky-update": lambda m: m.cholesky_update(R, V),
    "eig": lambda m: m.eig(A),
    "eig-left": lambda m: m.eig(A, compute_right_eigenvectors=False),
    "eig-right": lambda m: m.eig(A, compute_left_eigenvectors=False),
    "hessenberg": lambda m: m.hessenberg(A),
    "householder": lambda m: m.householder_product(*REFLECTIONS),
    "householder-fewer": lambda m: m.householder_product(H, TAUS[:, :2]),
    **{
        f"ormqr-{left}-{turned}": (
            lambda m, o=(left, turned): m.ormqr(
                H, TAUS, B if o[0] else A, left=o[0], transpose=o[1]
            )
        )
        for left in (True, False)
        for turned in (True, False)
    },
    "qr-pivoting": lambda m: [
        abs(x) for x in m.qr(B, pivoting=True, full_matrices=False)
    ],
    "schur": lambda m: m.schur(A),
    "symmetric-product": lambda m: m.symmetric_product(
        B, SPD, alpha=2.0, beta=0.5, symmetrize_output=True
    ),
    "tridiagonal": lambda m: m.tridiagonal(SPD),
    "tridiagonal-upper": lambda m: m.tridiagonal(SPD, lower=False),
    "tridiagonal-solve": lambda m: m.tridiagonal_solve(*DIAGONALS, B),
    "eigh": lambda m: abs(m.eigh(SPD)[0]) + m.eigh(SPD)[1][:, None],
    "lu": lambda m: m.lu(A),
    "lu-tall": lambda m: m.lu(B),
    "permutation": lambda m: m.lu_pivots_to_permutation(
        np.array([2, 3, 2], "int32"), 4
    ),
    "qr": lambda m: [abs(x) for x in m.qr(B, full_matrices=False)],
    "qr-full": lambda m: [abs(x) for x in m.qr(B, full_matrices=True)][1],
    "svd": lambda m: [abs(x) for x in m.svd(B, full_matrices=False)],
    "svd-values": lambda m: m.svd(B, compute_uv=False),
    **{
        f"triangular-{left}-{lower}-{turned}-{unit}": (
            lambda m, o=(left, lower, turned, unit): m.triangular_solve(
                SPD,
                B if o[0] else B.transpose(0, 2, 1),
                left_side=o[0],
                lower=o[1],
                transpose_a=o[2],
                unit_diagonal=o[3],
            )
        )
        for left in (True, False)
        for lower in (True, False)
        for turned in (True, False)
        for unit in (True, False)
    },
}


@pytest.mark.parametrize("name", ROWS)
def test_it_is_what_jax_gives(name: str) -> None:
    found, wanted = ROWS[name](td.lax.linalg), ROWS[name](jax.lax.linalg)
    for f, w in zip(td.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert f.dtype == w.dtype
        np.testing.assert_allclose(f, w, rtol=2e-4, atol=2e-5)


def complexes(*shape: int) -> np.ndarray:
    return floats(*shape) + 1j * floats(*shape)[::-1]


def wide(*xs: Any) -> list[Any]:
    return [np.asarray(x, np.result_type(x, np.float64)) for x in xs]


LINEAR = td.lax.linalg
SMOOTH: dict[str, Any] = {
    "householder": (LINEAR.householder_product, wide(B[0], TAUS[0])),
    "ormqr": (LINEAR.ormqr, wide(B[0], TAUS[0], A[0])),
    "ormqr-complex": (
        lambda *x: LINEAR.ormqr(*x, left=False, transpose=True),
        wide(complexes(4, 3), complexes(3), complexes(2, 4)),
    ),
    "tridiagonal-solve": (
        LINEAR.tridiagonal_solve,
        wide(*[x[0] for x in DIAGONALS], B[0]),
    ),
    "cholesky-update": (
        LINEAR.cholesky_update,
        wide(np.tril(A[0], 0).T + 2 * np.eye(4), V),
    ),
    "symmetric-product": (
        lambda a, c: LINEAR.symmetric_product(a, c, beta=0.5),
        wide(B[0], SPD[0]),
    ),
    "eig-left": (
        lambda a: LINEAR.eig(a, compute_right_eigenvectors=False)[1],
        wide(A[0] + np.diag(np.arange(4) * 4)),
    ),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_to_second_order_are_those_of_differences(name: str) -> None:
    function, args = SMOOTH[name]
    td.check_grads(function, args, order=2, eps=1e-4)


@pytest.mark.parametrize("name", SMOOTH)
def test_examples_are_what_each_is_alone(name: str) -> None:
    function, args = SMOOTH[name]
    many = [np.stack([x, 2 * x, -x]) for x in args]
    found = td.jit(td.vmap(function))(*many)
    wanted = [function(*[x[i] for x in many]) for i in range(3)]
    np.testing.assert_allclose(found, np.stack(wanted), rtol=1e-9, atol=1e-12)


def test_complex_factors_are_of_their_matrices() -> None:
    r, w = np.triu(complexes(4, 4)), complexes(4)
    updated = np.asarray(LINEAR.cholesky_update(r, w))
    wanted = r.conj().T @ r + np.outer(w, w.conj())
    np.testing.assert_allclose(updated.conj().T @ updated, wanted, rtol=1e-4)
    a = complexes(4, 3).astype("complex128")
    q, taus = np.linalg.qr(a, "raw")
    product = LINEAR.householder_product(q.T, taus)
    np.testing.assert_allclose(product, np.linalg.qr(a).Q, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_pivots_of_tridiagonal_equations_are_exchanged(size: int) -> None:
    rng = np.random.default_rng(size)
    dl, d, du, b = *rng.normal(size=(3, size)), rng.normal(size=(size, 2))
    dl, du = np.append(0, dl[1:]), np.append(du[:-1], 0)
    d[size // 2] = 0 if size > 1 else d[0]
    matrix = np.diag(d) + np.diag(dl[1:], -1) + np.diag(du[:-1], 1)
    found = LINEAR.tridiagonal_solve(dl, d, du, b)
    np.testing.assert_allclose(found, np.linalg.solve(matrix, b), rtol=1e-8)


def test_singular_tridiagonal_equations_have_finite_solutions() -> None:
    none, one = np.zeros(3), np.ones((3, 1))
    assert not np.isfinite(LINEAR.tridiagonal_solve(none, none, none, one)).any()
    found = LINEAR.tridiagonal_solve(none, none, none, one, perturb_singular=True)
    assert np.isfinite(found).all()
    d = np.array([1.0, 1e-30, 2.0])
    found = LINEAR.tridiagonal_solve(none, d, none, one, perturb_singular=True)
    np.testing.assert_allclose(found, [[1], [1e30], [0.5]], rtol=1e-12)


@pytest.mark.parametrize("name", ["hessenberg", "tridiagonal", "schur", "eig"])
@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (0, 3, 3)])
def test_nothing_and_single_numbers_have_factors(
    name: str, shape: tuple[int, ...]
) -> None:
    found = getattr(LINEAR, name)(np.ones(shape, "float32"))
    if shape == (0, 0):
        assert all(x.size == 0 for x in td.tree.leaves(found))
        return
    wanted = getattr(jax.lax.linalg, name)(np.ones(shape, "float32"))
    for f, w in zip(td.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(f, w)
        assert f.dtype == w.dtype


@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (3, 0, 0), (0, 2, 3)])
@pytest.mark.parametrize("full", [True, False])
def test_columns_without_elements_stay_in_their_order(
    shape: tuple[int, ...], full: bool
) -> None:
    a = np.zeros(shape, "float32")
    ours = td.lax.linalg.qr(a, pivoting=True, full_matrices=full)
    theirs = jax.lax.linalg.qr(a, pivoting=True, full_matrices=full)
    assert [x.dtype for x in ours] == [y.dtype for y in theirs]
    for x, y in zip(ours[:2], theirs[:2], strict=True):
        np.testing.assert_array_equal(x, y)
    # (JAX gives zeros of columns that have no rows.)
    wanted = np.broadcast_to(np.arange(shape[-1]), (*shape[:-2], shape[-1]))
    np.testing.assert_array_equal(ours[2], wanted)


def test_results_are_arrays_where_nothing_is_to_do() -> None:
    """Not those of the caller, who may write into them."""
    none, one = np.zeros((0, 0), "float32"), np.ones((2, 2), "float32")
    found = [*td.lax.linalg.hessenberg(none), *td.lax.linalg.tridiagonal(none)]
    found += [td.lax.linalg.tridiagonal_solve(*[none.ravel()] * 3, none)]
    found += [td.numpy.linalg.matrix_power(one, 1)]
    one[:] = 7
    assert all(isinstance(x, td.Array) for x in found)
    assert float(found[-1].sum()) == 4


@pytest.mark.parametrize("subset", [2, (1,), (0.5, 2), "ab"])
def test_subsets_are_pairs_of_integers(subset: Any) -> None:
    with pytest.raises(TypeError, match="eigh: subset_by_index is a pair of integers"):
        td.lax.linalg.eigh(A, subset_by_index=subset)


def test_order_of_no_pivots_is_that_of_the_rows() -> None:
    packed, pivots, order = LINEAR.lu(np.ones((2, 0), "float32"))
    assert (packed.shape, pivots.shape, list(order)) == ((2, 0), (0,), [0, 1])


def test_what_has_no_derivative_says_so() -> None:
    for name in ("hessenberg", "tridiagonal"):
        with pytest.raises(NotImplementedError, match=f"lax.linalg.{name} .* has no"):
            td.jvp(getattr(LINEAR, name), (SPD[0],), (SPD[0],))
    with pytest.raises(NotImplementedError, match="enable_eigvec_derivs=True"):
        td.jvp(lambda a: LINEAR.eig(a, enable_eigvec_derivs=False), (A,), (A,))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: LINEAR.householder_product(A[0], np.ones(5)), "a factor for each"),
        (lambda: LINEAR.householder_product(B[0].T, np.ones(2)), "3 rows"),
        (lambda: LINEAR.ormqr(B[0], TAUS[0], B[0].T), "second needs 4 rows"),
        (lambda: LINEAR.tridiagonal_solve(V, V, V[:3], B[0]), "each has 4 numbers"),
        (lambda: LINEAR.cholesky_update(A[0], V[:3]), "the vector has 4 numbers"),
        (lambda: LINEAR.symmetric_product(B[0], np.eye(3)), "the rows of the first"),
        (lambda: LINEAR.eigh(SPD, subset_by_index=(1, 5)), "of 4 numbers"),
        (lambda: LINEAR.hessenberg(B), "square matrices"),
    ],
)
def test_shapes_that_do_not_fit_are_named(call: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()
