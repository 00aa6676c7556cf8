"""Products that sum: values, derivatives, and that they are one `dot_general`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.np.oracle import (
    Case,
    check,
    check_batched,
    check_gradient,
    floats,
    ints,
)


def product(name: str, *shapes: tuple[int, ...]) -> Case:
    label = f"{name}-{'-'.join(map(str, shapes))}"
    args = [floats(*s, seed=i) for i, s in enumerate(shapes)]
    return Case(label, lambda np, *xs: getattr(np, name)(*xs), tuple(args), close=8)


def formula(text: str, *shapes: tuple[int, ...]) -> Case:
    args = [floats(*s, seed=i) for i, s in enumerate(shapes)]
    return Case(text, lambda np, *xs: np.einsum(text, *xs), tuple(args), close=16)


CASES = [
    product("matmul", (3,), (3,)),
    product("matmul", (2, 3), (3,)),
    product("matmul", (3,), (3, 4)),
    product("matmul", (2, 3), (3, 4)),
    product("matmul", (5, 2, 3), (3, 4)),
    product("matmul", (6, 5, 2, 3), (3,)),
    product("matmul", (2, 3), (5, 3, 4)),
    product("matmul", (3,), (5, 3, 4)),
    product("matmul", (5, 2, 3), (5, 3, 4)),
    product("matmul", (6, 5, 2, 3), (5, 3, 4)),
    product("matmul", (5, 2, 3), (6, 1, 3, 4)),
    product("matmul", (6, 1, 2, 3), (1, 5, 3, 4)),
    product("matmul", (1, 2, 3), (5, 3, 4)),
    product("matmul", (1, 2, 3), (1, 3, 4)),
    product("matmul", (7, 1, 5, 2, 3), (1, 6, 5, 3, 4)),
    product("dot", (2, 3), (3, 4)),
    product("dot", (2, 3), (5, 3, 4)),
    product("dot", (), (3, 4)),
    product("vdot", (2, 3), (2, 3)),
    product("inner", (2, 3), (4, 3)),
    product("outer", (2, 3), (4,)),
    product("vecdot", (5, 1, 3), (4, 3)),
    product("matvec", (5, 2, 3), (3,)),
    product("vecmat", (5, 2), (2, 3)),
    product("cross", (4, 3), (3,)),
    *[
        Case(
            f"{name}-{mode}-{n}-{k}",
            lambda np, x, y, f=name, m=mode: getattr(np, f)(x, y, m),
            (floats(n), floats(k, seed=1)),
            close=8,
        )
        for name in ("convolve", "correlate")
        for mode in ("full", "same", "valid")
        for n, k in ((7, 3), (7, 4), (3, 6), (5, 5))
    ],
    product("kron", (2, 3), (4, 5)),
    product("kron", (3,), (2, 2)),
    product("tensordot", (2, 3, 4), (3, 4, 5)),
    Case(
        "tensordot-axes",
        lambda np, x, y: np.tensordot(x, y, axes=((0, 2), (1, 0))),
        (floats(2, 3, 4), floats(4, 2, 5)),
        close=8,
    ),
    Case("matmul-int", lambda np, x, y: x @ y, (ints(2, 3), ints(3, 4))),
    Case("matmul-mixed", lambda np, x, y: x @ y, (floats(2, 3), ints(3, 4))),
    formula("ij,jk->ik", (2, 3), (3, 4)),
    formula("ij,jk", (2, 3), (3, 4)),
    formula("ij->ji", (2, 3)),
    formula("ij->", (2, 3)),
    formula("ij->j", (2, 3)),
    formula("ii->i", (3, 3)),
    formula("ii", (3, 3)),
    formula("iij->ij", (3, 3, 4)),
    formula("i,i->i", (3,), (3,)),
    formula("i,j->ij", (3,), (4,)),
    formula("ij,ij->ji", (3, 4), (3, 4)),
    formula("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    formula("bqhd,bkhd->bhqk", (2, 4, 3, 5), (2, 6, 3, 5)),
    formula("bhqk,bkhd->bqhd", (2, 3, 4, 6), (2, 6, 3, 5)),
    formula("...ij,...jk->...ik", (5, 2, 3), (3, 4)),
    formula("...ij,jk", (5, 2, 3), (3, 4)),
    formula("b...,b->...", (2, 3, 4), (2,)),
    formula("...i,...i", (5, 3), (5, 3)),
    formula("i...->...", (2, 3, 4)),
    formula("ijk,k->i", (2, 3, 4), (4,)),
    formula("ijk,l->ijl", (2, 3, 4), (5,)),
    formula("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    formula("ij,jk,ik->", (2, 3), (3, 4), (2, 4)),
    formula("a,ab,abc->abc", (2,), (2, 3), (2, 3, 4)),
    formula("ea,fb,abcd,gc,hd->efgh", (2, 3), (2, 3), (3, 3, 3, 3), (2, 3), (2, 3)),
    formula("ij , jk -> ik", (2, 3), (3, 4)),
    formula("...,...->...", (4, 1), (3,)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_agrees(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_batched(case: Case) -> None:
    check_batched(case)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_gradient(case: Case) -> None:
    if case.args[0].dtype == np.float32:
        check_gradient(case)


def ops_of(function: Any, *shapes: tuple[int, ...]) -> list[str]:
    graph = td.jit(function).graph(*[tnp.ones(s) for s in shapes])
    return [eq.op.name for eq in graph.equations]


@pytest.mark.parametrize(
    "x, y",
    [
        ((4, 3), (3, 5)),
        ((2, 4, 3), (3, 5)),
        ((2, 4, 3), (2, 3, 5)),
        ((3,), (2, 3, 5)),
        ((2, 4, 3), (3,)),
    ],
)
def test_matmul_is_one_contraction(x: Any, y: Any) -> None:
    assert ops_of(lambda a, b: a @ b, x, y) == ["dot_general"]


def test_einsum_of_attention_is_one_contraction() -> None:
    def scores(q: Any, k: Any) -> Any:
        return tnp.einsum("bhqd,bhkd->bhqk", q, k)

    assert ops_of(scores, (2, 3, 4, 5), (2, 3, 6, 5)) == ["dot_general"]


def test_the_contraction_of_a_batch_with_a_matrix_names_plain_axes() -> None:
    graph = td.jit(tnp.matmul).graph(tnp.ones((2, 4, 3)), tnp.ones((3, 5)))
    assert graph.equations[0].params == {
        "contract": ((2,), (0,)),
        "batch": ((), ()),
    }


@pytest.mark.parametrize(
    "use, message",
    [
        (lambda x: x @ x, r"matmul: shapes \(2, 3\) and \(2, 3\).*length 3.*length 2"),
        (lambda x: x @ tnp.ones(()), "a scalar is no matrix"),
        (lambda x: tnp.ones((4, 2, 3)) @ tnp.ones((5, 3, 2)), "leading axes"),
        (lambda x: tnp.dot(x, x), r"dot: shapes \(2, 3\) and \(2, 3\)"),
        (lambda x: tnp.inner(x, x[:, :2]), r"last axes of shapes"),
        (lambda x: tnp.tensordot(x, x, 1), "different lengths"),
        (lambda x: tnp.einsum("ij,jk->ik", x, x), "axis 'j'.*lengths 3 and 2"),
        (lambda x: tnp.einsum("ij,jk->ik", x), "2 operands, got 1"),
        (lambda x: tnp.einsum("ijk->k", x), r"'ijk'.*shape \(2, 3\)"),
        (lambda x: tnp.einsum("ij->ik", x), "no operand has"),
        (lambda x: tnp.einsum("i1->i", x), "axes are letters"),
        (lambda x: tnp.einsum("ii->i", x[:1]), r"lengths 1 and 3.*shape \(1, 3\)"),
        (lambda x: tnp.einsum("ii", x.T[:, :1]), "lengths 3 and 1"),
        (lambda x: tnp.einsum("iji,jk->k", x[:, :, None], x.T), "lengths 2 and 1"),
    ],
)
def test_errors(use: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        use(tnp.ones((2, 3)))


def test_formula_comes_first() -> None:
    with pytest.raises(TypeError, match="einsum takes a formula first"):
        tnp.einsum(tnp.ones(2), "i")


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 257, 600])
@pytest.mark.parametrize("columns", [1, 7, 33, 64, 101])
def test_products_with_a_vector(rows: int, columns: int) -> None:
    """Each width has blocks of its own, and few columns several totals."""
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(rows, columns)), rng.normal(size=rows)
    w, x = w.astype("float32"), x.astype("float32")
    wide = x.astype("float64") @ w.astype("float64")
    np.testing.assert_allclose(td.jit(lambda x, w: x @ w)(x, w), wide, 1e-5, 2e-5)
    found = td.jit(lambda x, w: w.T @ x)(x, w)
    np.testing.assert_allclose(found, wide, 1e-5, 2e-5)


@pytest.mark.parametrize("columns", [5, 70])
def test_a_product_with_a_vector_rounds_its_terms_once(columns: int) -> None:
    x = np.array([1 + 2**-11, 1 + 2**-12], "float32")
    y = np.array([-1, 1 + 2**-12], "float32")
    found = td.jit(lambda x, w: x @ w)(x, np.tile(y[:, None], columns))
    np.testing.assert_array_equal(found, np.full(columns, 2.0**-24, "float32"))


@pytest.mark.parametrize("n", [4, 33, 300])
def test_a_vector_times_a_constant_in_a_scan(n: int) -> None:
    rng = np.random.default_rng(0)
    w = (rng.normal(size=(n, n)) / np.sqrt(n)).astype("float32")
    x = rng.normal(size=n).astype("float32")
    wanted = x.astype("float64")
    for _ in range(5):
        wanted = np.tanh(w @ wanted)
    step = lambda x, _: (tnp.tanh(w @ x), None)  # noqa: E731
    found = td.jit(lambda x: td.scan(step, x, None, length=5)[0])(x)
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)


BOOLEANS: dict[str, tuple[Any, Any]] = {
    "matmul": (tnp.matmul, np.matmul),
    "dot": (tnp.dot, np.dot),
    "inner": (lambda x, y: tnp.inner(x, y.T), lambda x, y: np.inner(x, y.T)),
    "tensordot": (
        lambda x, y: tnp.tensordot(x, y, 1),
        lambda x, y: np.tensordot(x, y, 1),
    ),
    "einsum": (
        lambda x, y: tnp.einsum("ij,jk", x, y),
        lambda x, y: np.einsum("ij,jk", x, y),
    ),
    "vdot": (lambda x, y: tnp.vdot(x[0], y[:, 0]), lambda x, y: np.vdot(x[0], y[:, 0])),
    "convolve": (
        lambda x, y: tnp.convolve(x[0], y[0]),
        lambda x, y: np.convolve(x[0], y[0]),
    ),
}


@pytest.mark.parametrize("name", BOOLEANS)
def test_booleans_make_booleans(name: str) -> None:
    ours, theirs = BOOLEANS[name]
    draw = np.random.default_rng(0)
    x, y = draw.random((3, 4)) > 0.6, draw.random((4, 5)) > 0.6
    for function in (ours, td.jit(ours)):
        found = function(tnp.asarray(x), tnp.asarray(y))
        assert found.dtype == tnp.bool_
        np.testing.assert_array_equal(found, theirs(x, y))
    counts = tnp.matmul(x, y, preferred_element_type=tnp.int32)
    np.testing.assert_array_equal(counts, x.astype(int) @ y.astype(int))
