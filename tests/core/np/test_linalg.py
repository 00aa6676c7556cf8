"""Linear algebra, against NumPy, SciPy and JAX, and by finite differences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import treadle as td
import treadle.numpy as tnp
from tests.core.dynamic import Arg, agree, gradient_of
from tests.core.np.linalg_cases import CASES, DEFINITE, SQUARE, TALL, Case, Draw
from tests.core.ops.test_ops import check_adjoint, check_jvp, random_like
from treadle import dtypes, tree

every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
QUICK = ("cholesky", "solve", "slogdet", "lstsq", "svd", "eig", "norm-nuc")


def quick_or_slow(cases: list[Case]) -> Any:
    """Tests of cases, most of them with the slow ones."""
    params = [
        pytest.param(c, id=c.name, marks=[pytest.mark.slow] * (c.name not in QUICK))
        for c in cases
    ]
    return pytest.mark.parametrize("case", params)


TOLERANCE = {"float64": 1e-10, "complex128": 1e-10, "float32": 3e-4, "complex64": 3e-4}


def assert_close(found: Any, wanted: Any, tolerance: float) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    size = np.abs(wanted[np.isfinite(wanted)]).max(initial=1)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * size)


@pytest.mark.parametrize("dtype", TOLERANCE)
@every_case
def test_values_are_those_of_numpy(case: Case, dtype: str) -> None:
    args = case.draw(dtype)
    found, wanted = case(*args), case.wanted(*args)
    assert len(found) == len(wanted)
    for f, w in zip(found, wanted, strict=True):
        assert_close(f, w, TOLERANCE[dtype])
        if np.asarray(w).dtype.kind in "fc":
            assert np.asarray(f).dtype == np.asarray(w).dtype


def moving(values: Any) -> list[int]:
    """The places of the values that have derivatives."""
    return [i for i, x in enumerate(values) if dtypes.is_differentiable(x.dtype)]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@quick_or_slow([c for c in CASES if c.smooth])
def test_derivatives_agree_with_finite_differences(case: Case, dtype: str) -> None:
    """Both modes, and one after the other."""
    xs = tuple(case.draw(dtype))
    ts, us = (tuple(random_like(xs, seed)) for seed in (1, 4))
    there = moving(case(*xs))

    def function(*xs: Any) -> tuple[Any, ...]:
        outs = case(*xs)
        return tuple(outs[i] for i in there)

    cts = tuple(random_like(function(*xs), 2))
    check_jvp(function, xs, ts)
    check_adjoint(function, xs, ts, cts)
    for first in (
        lambda *xs: td.jvp(function, xs, ts)[1],
        lambda *xs: td.vjp(function, *xs)[1](cts),
    ):
        check_jvp(first, xs, us)


def gradients(case: Case) -> Callable[..., Any]:
    """The results, and gradients of a number made of them."""

    def loss(*args: Any) -> Any:
        outs = case(*args)
        moved = [outs[i] for i in moving(outs)]
        parts = [tnp.real(o * tnp.conj(o)) for o in moved]
        return sum([tnp.sum(p) for p in parts], start=tnp.zeros(())), outs

    numbers = tuple(range(len(case.args)))
    return td.value_and_grad(loss, numbers, has_aux=True)


@every_case
def test_vmap_is_a_loop(case: Case) -> None:
    examples = [case.draw(seed=i) for i in range(2)]
    stacked = [np.stack(xs) for xs in zip(*examples, strict=True)]
    found = td.vmap(case)(*stacked)
    for i, example in enumerate(examples):
        for f, w in zip(found, case(*example), strict=True):
            assert_close(np.asarray(f)[i], w, 1e-12)


@quick_or_slow(CASES)
def test_compiled_is_eager(case: Case) -> None:
    args = case.draw("float32")
    function = gradients(case) if case.smooth else case
    found, wanted = td.jit(function)(*args), function(*args)
    for f, w in zip(tree.leaves(found), tree.leaves(wanted), strict=True):
        assert_close(f, w, 1e-4)


OPEN: dict[str, Callable[..., Any]] = {
    "solve": lambda a, b: tnp.linalg.solve(a, b),
    "inv": lambda a, b: tnp.linalg.inv(a),
    "lstsq": lambda a, b: tnp.linalg.lstsq(a, b).x,
    "svd": lambda a, b: tnp.linalg.svd(a).S,
    "eigh": lambda a, b: tnp.linalg.eigh(a).eigenvalues,
    "lu_solve": lambda a, b: tnp.linalg.lu_solve(tnp.linalg.lu_factor(a), b),
    "norm": lambda a, b: tnp.linalg.norm(a, "nuc"),
    "matrix_power": lambda a, b: tnp.linalg.matrix_power(a, 3),
    "polar": lambda a, b: tnp.linalg.polar(a).U,
    "toeplitz": lambda a, b: tnp.linalg.toeplitz(b, a[0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPEN)
def test_sizes_may_be_open(name: str) -> None:
    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        x = 0.1 * rng.normal(size=shape)
        if len(shape) == 2:
            x += np.diag(1.0 + np.arange(shape[0]))
        return x.astype("float32")

    agree(gradient_of(OPEN[name]), [Arg("n n", draw), Arg("n", draw)])


@pytest.mark.slow
def test_functions_of_matrices_of_open_sizes() -> None:
    """Few complex numbers are summed in another order, so that bits may differ."""

    def loss(a: Any) -> Any:
        root = tnp.linalg.sqrtm(a @ a.T).real
        return tnp.sum(tnp.linalg.solve_sylvester(a, root, a.T) ** 2)

    compiled = td.jit(td.value_and_grad(loss), dynamic={"a": ("n", "n")})
    for n in (3, 5, 8):
        a = np.eye(n) * (1 + np.arange(n)) + 0.1
        wanted = td.value_and_grad(loss)(a)
        for f, w in zip(compiled(a), wanted, strict=True):
            assert_close(f, w, 1e-10)
    assert compiled.report().traces == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_computed_in_single_precision(dtype: str) -> None:
    a = tnp.asarray(DEFINITE(np.random.default_rng(0))).astype(dtype)
    wide = a.astype("float32")
    for f in (
        tnp.linalg.cholesky,
        tnp.linalg.inv,
        tnp.linalg.det,
        tnp.linalg.svdvals,
        lambda a: tnp.linalg.solve(a, a[0]),
        lambda a: tnp.linalg.eigh(a).eigenvalues,
    ):
        found = f(a)
        assert found.dtype == a.dtype
        np.testing.assert_array_equal(found, f(wide).astype(dtype))


# Against JAX --------------------------------------------------------------------------


@pytest.fixture
def wide_jax() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


GRADIENTS: dict[str, tuple[Callable[..., Any], Draw]] = {
    "cholesky": (lambda np, a: np.linalg.cholesky(a), DEFINITE),
    "det": (lambda np, a: np.linalg.det(a), SQUARE),
    "det of a singular matrix": (
        lambda np, a: np.linalg.det(a),
        lambda rng: np.diag([1.0, 2.0, 0.0]) @ rng.normal(size=(3, 3)),
    ),
    "slogdet": (lambda np, a: np.linalg.slogdet(a)[1], SQUARE),
    "eigvalsh of equal eigenvalues": (
        lambda np, a: np.linalg.eigvalsh(a),
        lambda rng: np.eye(3),
    ),
    "singular values that are equal": (
        lambda np, a: np.linalg.svd(a, compute_uv=False),
        lambda rng: np.eye(3),
    ),
    "pinv": (lambda np, a: np.linalg.pinv(a), TALL),
    "pinv of lower rank": (
        lambda np, a: np.linalg.pinv(a),
        lambda rng: rng.normal(size=(4, 1)) @ rng.normal(size=(1, 3)),
    ),
    "inv of a singular matrix": (
        lambda np, a: np.linalg.inv(a),
        lambda rng: np.zeros((2, 2)),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_those_of_jax(name: str, wide_jax: None) -> None:
    function, draw = GRADIENTS[name]
    a = draw(np.random.default_rng(0))
    t = np.random.default_rng(1).normal(size=a.shape)
    wanted = jax.jvp(lambda a: function(jnp, a), (a,), (t,))
    found = td.jvp(lambda a: function(tnp, a), (a,), (t,))
    for f, w in zip(found, wanted, strict=True):
        f, w = np.asarray(f), np.asarray(w)
        np.testing.assert_array_equal(np.isfinite(f), np.isfinite(w))
        np.testing.assert_allclose(
            f[np.isfinite(f)], w[np.isfinite(w)], rtol=1e-8, atol=1e-8
        )


# What is not a matter of numbers ------------------------------------------------------

NORMS = [
    *[(ord, axis) for ord in (np.inf, 1, 2, 0, 3) for axis in (0, -1)],
    *[(ord, (-2, -1)) for ord in (None, "fro", "nuc", np.inf, 1, 2)],
]


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 0, 3), (2, 3, 0)])
def test_norms_of_nothing(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape)
    for ord, axis in NORMS:
        for keep in (False, True):
            found = tnp.linalg.norm(tnp.asarray(x), ord, axis, keep)
            np.testing.assert_array_equal(found, np.linalg.norm(x, ord, axis, keep))
    compiled = td.jit(lambda x: tnp.linalg.norm(x, np.inf, (-2, -1)))
    np.testing.assert_array_equal(compiled(x), np.linalg.norm(x, np.inf, (-2, -1)))


def test_empty_matrices() -> None:
    la = tnp.linalg
    none, tall = tnp.zeros((0, 0)), tnp.zeros((3, 0))
    few = tnp.zeros((0, 3, 2))
    assert la.cholesky(none).shape == la.inv(none).shape == (0, 0)
    assert la.det(tnp.zeros((2, 0, 0))).tolist() == [1, 1]
    assert [x.tolist() for x in la.slogdet(none)] == [1, 0]
    assert la.solve(none, tnp.zeros(0)).shape == (0,)
    assert la.solve(tnp.eye(3), tnp.zeros((3, 0))).shape == (3, 0)
    for mode in ("reduced", "complete"):
        for x, y in zip(la.qr(tall, mode), np.linalg.qr(tall, mode), strict=True):
            np.testing.assert_array_equal(x, y)
    for full in (False, True):
        found, wanted = la.svd(tall, full), np.linalg.svd(tall, full)
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(x, y)
        found, wanted = la.svd(few, full), np.linalg.svd(few, full)
        for x, y in zip(found, wanted, strict=True):
            assert x.shape == y.shape
    assert [x.shape for x in la.lu(few)] == [(0, 3, 3), (0, 3, 2), (0, 2, 2)]
    assert la.cond(tnp.zeros((0, 2, 2))).shape == (0,)
    assert la.pinv(tall).shape == (0, 3)
    assert la.eigh(none).eigenvectors.shape == la.eig(none).eigenvectors.shape == (0, 0)
    assert la.matrix_rank(tall) == 0
    assert la.lstsq(tall, tnp.ones(3)).residuals == 3
    assert la.expm(none).shape == (0, 0)
    assert la.lu_factor(tall)[1].shape == (0,)
    assert la.cholesky(tnp.zeros((0, 3, 3))).shape == (0, 3, 3)
    assert td.jit(la.cholesky)(tnp.zeros((0, 3, 3))).shape == (0, 3, 3)


def test_singular_matrices_give_what_jax_gives() -> None:
    a = np.zeros((2, 2), np.float32)
    for name, f in {
        "inv": lambda la: la.inv(a),
        "solve": lambda la: la.solve(a, np.ones(2, np.float32)),
        "cholesky": lambda la: la.cholesky(-np.eye(2, dtype=np.float32)),
        "slogdet": lambda la: tuple(la.slogdet(a)),
    }.items():
        for x, y in zip(
            tree.leaves(f(tnp.linalg)), jax.tree.leaves(f(jnp.linalg)), strict=True
        ):
            np.testing.assert_array_equal(x, y, err_msg=name)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_slogdet_of_matrices_of_order_two(dtype: str) -> None:
    (a,) = random_like([np.zeros((40, 2, 2), dtype)], 3)
    a[:5] = [
        [[1, 2], [2, 4]],
        [[0, 1], [1, 0]],
        [[0, 0], [0, 1]],
        [[1e20, 1], [1, 3e-20]],
        [[1e-20, 1e-20], [1e20, 3e20]],
    ]
    wide = a.astype(np.result_type(dtype, np.float64))
    for f in (tnp.linalg.slogdet, td.jit(tnp.linalg.slogdet)):
        for found, wanted in zip(f(a), np.linalg.slogdet(wide), strict=True):
            np.testing.assert_allclose(found, wanted, atol=TOLERANCE[dtype])
    if not dtypes.is_complex(a.dtype):
        found = td.grad(lambda a: tnp.linalg.slogdet(a)[1].sum())(a[5:])
        wanted = np.swapaxes(np.linalg.inv(wide[5:]), 1, 2)
        assert_close(found, wanted, TOLERANCE[dtype])
    (_, size), (_, change) = td.jvp(tnp.linalg.slogdet, (a[5:],), (a[:-5],))
    moved = np.trace(np.linalg.solve(wide[5:], wide[:-5]), axis1=1, axis2=2)
    assert_close(size, np.linalg.slogdet(wide[5:])[1], TOLERANCE[dtype])
    assert_close(change, moved.real, TOLERANCE[dtype])


def test_eigenvalues_of_what_is_not_finite() -> None:
    a = np.stack([np.full((3, 3), np.nan), np.eye(3)])
    for f in (tnp.linalg.eig, td.jit(tnp.linalg.eig)):
        w, v = f(a)
        assert np.isnan(w[0]).all()
        assert np.isnan(v[0]).all()
        np.testing.assert_array_equal(w[1], np.ones(3))


def test_one_matrix_for_many_right_sides_is_factored_once() -> None:
    a, b = np.eye(3, dtype=np.float32) * 2, np.ones((5, 3), np.float32)
    many = td.jit(td.vmap(tnp.linalg.solve, in_axes=(None, 0)))
    np.testing.assert_array_equal(many(a, b), b / 2)
    assert many.explain(a, b).count("sgetrf") == 1
    assert "host" not in many.explain(a, b)


WRONG = {
    "cholesky takes square matrices, got shape (2, 3): 2 rows and 3 columns": (
        lambda: tnp.linalg.cholesky(tnp.ones((2, 3)))
    ),
    "det takes matrices, got shape (3,)": lambda: tnp.linalg.det(tnp.ones(3)),
    "solve: shapes (2, 2) and (3, 1): the second needs 2 rows": (
        lambda: tnp.linalg.solve(tnp.eye(2), tnp.ones(3))
    ),
    "qr: mode is 'reduced', 'complete', 'r' or 'raw', got 'full'": (
        lambda: tnp.linalg.qr(tnp.eye(2), "full")  # type: ignore[call-overload]
    ),
    "eigh: UPLO is 'L' or 'U', got 'X'": lambda: tnp.linalg.eigh(tnp.eye(2), "X"),
    "norm: order 'nuc' over 1 axes": lambda: tnp.linalg.norm(tnp.ones(2), "nuc"),
    "norm: order 3 of matrices": lambda: tnp.linalg.norm(tnp.eye(2), 3),
    "multi_dot: shapes (2, 3), (2, 3) don't fit": (
        lambda: tnp.linalg.multi_dot([tnp.ones((2, 3)), tnp.ones((2, 3))])
    ),
    "cond of empty matrices": lambda: tnp.linalg.cond(tnp.zeros((0, 0))),
    "matrix_rank: give tol or rtol": (
        lambda: tnp.linalg.matrix_rank(tnp.eye(2), 1.0, rtol=1.0)
    ),
    "solve_triangular: trans is": (
        lambda: tnp.linalg.solve_triangular(tnp.eye(2), tnp.ones(2), trans=3)
    ),
    "schur: output is 'real' or 'complex', got 'r'": (
        lambda: tnp.linalg.schur(tnp.eye(2), "r")
    ),
    "polar: side is 'right' or 'left', got 'up'": (
        lambda: tnp.linalg.polar(tnp.eye(2), "up")
    ),
    "solve_sylvester: shapes (2, 2), (3, 3) and (2, 2) don't fit": (
        lambda: tnp.linalg.solve_sylvester(tnp.eye(2), tnp.eye(3), tnp.eye(2))
    ),
    "eigh_tridiagonal takes the n numbers of a diagonal and the n - 1 beside": (
        lambda: tnp.linalg.eigh_tridiagonal(tnp.ones(2), tnp.ones(2))
    ),
    "eigh_tridiagonal: select='v'": (
        lambda: tnp.linalg.eigh_tridiagonal(tnp.ones(2), tnp.ones(1), select="v")
    ),
    "expm_frechet: shapes (2, 2) and (3, 3) differ": (
        lambda: tnp.linalg.expm_frechet(tnp.eye(2), tnp.eye(3))
    ),
    "leslie: f has one number more than s, got 2 and 2": (
        lambda: tnp.linalg.leslie(tnp.ones(2), tnp.ones(2))
    ),
    "hadamard: n is a power of 2, got 6": lambda: tnp.linalg.hadamard(6),
    "pascal: kind is one of": lambda: tnp.linalg.pascal(3, "left"),
    "block_diag takes matrices, got shape (1, 2, 2)": (
        lambda: tnp.linalg.block_diag(tnp.ones((1, 2, 2)))
    ),
    "companion takes vectors of at least 2 numbers": (
        lambda: tnp.linalg.companion(tnp.ones(1))
    ),
    "tensorsolve: shapes (2, 3) and (2,)": (
        lambda: tnp.linalg.tensorsolve(tnp.ones((2, 3)), tnp.ones(2))
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_errors_name_the_shapes_and_the_line(message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        WRONG[message]()
    assert f"at {__file__}:" in str(caught.value)


def test_what_is_not_determined_has_no_derivative() -> None:
    a = tnp.ones((3, 2))
    for f in (
        lambda a: tnp.linalg.qr(a, "complete").Q,
        lambda a: tnp.linalg.svd(a).U,
    ):
        with pytest.raises(NotImplementedError, match=r"not\s+determined") as caught:
            td.jvp(f, (a,), (a,))
        assert f"at {__file__}:" in str(caught.value)


CONSTANT: dict[str, Callable[..., Any]] = {
    "hilbert": lambda la, n: la.hilbert(n),
    "invhilbert": lambda la, n: la.invhilbert(n),
    "pascal": lambda la, n: la.pascal(n),
    "pascal-lower": lambda la, n: la.pascal(n, "lower"),
    "pascal-upper": lambda la, n: la.pascal(n, "upper"),
    "invpascal": lambda la, n: la.invpascal(n),
    "invpascal-lower": lambda la, n: la.invpascal(n, "lower"),
    "helmert": lambda la, n: la.helmert(n),
    "helmert-full": lambda la, n: la.helmert(n, full=True),
    "dft": lambda la, n: la.dft(n),
    "dft-n": lambda la, n: la.dft(n, "n"),
    "dft-sqrtn": lambda la, n: la.dft(n, scale="sqrtn"),
}


@pytest.mark.parametrize("name", CONSTANT)
def test_matrices_that_are_known_by_their_size(name: str) -> None:
    for n in (1, 2, 5):
        found = CONSTANT[name](tnp.linalg, n)
        wanted = CONSTANT[name](scipy.linalg, n)
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-6)
        assert found.dtype == ("complex64" if "dft" in name else "float32")
    np.testing.assert_array_equal(tnp.linalg.hadamard(8), scipy.linalg.hadamard(8))
    wide = tnp.linalg.hilbert(3, dtype="float64")
    np.testing.assert_array_equal(wide, scipy.linalg.hilbert(3))


def test_factors_that_are_not_unique_have_no_derivative() -> None:
    for f in (lambda a: tnp.linalg.schur(a).T, tnp.linalg.hessenberg):
        with pytest.raises(NotImplementedError, match="are not unique") as caught:
            td.grad(lambda a, f=f: f(a).sum())(tnp.eye(3))
        assert f"at {__file__}:" in str(caught.value)


def test_matrices_of_batches_of_vectors() -> None:
    c = np.random.default_rng(0).normal(size=(2, 3, 4))
    for name in ("toeplitz", "hankel", "circulant", "companion", "fiedler"):
        found = getattr(tnp.linalg, name)(c)
        wanted = getattr(scipy.linalg, name)(c[1, 2])
        np.testing.assert_allclose(found[1, 2], wanted, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("n", [2, 3])
def test_determinants_of_small_matrices(n: int, dtype: str) -> None:
    rng = np.random.default_rng(n)
    a = rng.normal(size=(50, n, n)).astype(dtype)
    if np.iscomplexobj(a):
        a += (1j * rng.normal(size=a.shape)).astype(dtype)
    wanted = np.linalg.det(a.astype(np.promote_types(a.dtype, "float64")))
    for det in (tnp.linalg.det, td.jit(tnp.linalg.det)):
        found = np.asarray(det(a))
        assert found.dtype == dtype
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-6)
    assert tnp.linalg.det(np.zeros((n, n), dtype)) == 0
