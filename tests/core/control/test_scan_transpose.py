"""Linear loops that run backwards, beside JAX and the matrices that they are."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import traced
from treadle.control.scan import scan
from treadle.control.scan_transpose import transpose_scan
from treadle.ir.graph import Graph
from treadle.trace.op import Linear, Zero
from treadle.trace.value import typeof

RNG = np.random.default_rng(0)
F4 = np.dtype(np.float32)
N = 4
K, W, C, D = (RNG.normal(size=2).astype(F4) for _ in range(4))
KS, XS = (RNG.normal(size=(N, 2)).astype(F4) for _ in range(2))


def step(k: Any, w: Any, c: Any, d: Any, a: Any, x: Any) -> Any:
    """Linear in w, the carries and x; the second carry never meets the first row."""
    new = c * k + x * a + w
    return new, d * k + c, new * a, d - w


ARGS = (K, W, C, D, KS, XS)
BODY = traced(step, K, W, C, D, KS[0], XS[0])
PARAMS: dict[str, Any] = {"n_consts": 2, "n_carry": 2, "length": N}
LINEAR = (False, True, True, True, False, True)


def loop(*args: Any, reverse: bool = False) -> list[Any]:
    return scan(*args, graph=BODY, reverse=reverse, **PARAMS)


def theirs(reverse: bool) -> Any:
    def function(w: Any, c: Any, d: Any, xs: Any) -> Any:
        rows: list[Any] = [None] * N
        for i in reversed(range(N)) if reverse else range(N):
            c, d, *rows[i] = step(K, w, c, d, KS[i], xs[i])
        return c, d, *(jnp.stack(ys) for ys in zip(*rows, strict=True))

    return function


def transposed(cts: Any, linear: Any = LINEAR, reverse: bool = False) -> list[Any]:
    args = [
        Linear(typeof(x)) if lin else x for x, lin in zip(ARGS, linear, strict=True)
    ]
    return transpose_scan(cts, *args, bind=scan, graph=BODY, reverse=reverse, **PARAMS)


CTS = (C + 1, D - 1, KS + 2, XS - 3)
OUTS = [typeof(x) for x in CTS]


def close(found: Any, wanted: Any) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("given", ["1111", "1000", "0100", "0010", "0001", "1001"])
def test_cotangents_are_those_of_jax(given: str, reverse: bool) -> None:
    """Of results without cotangents nothing comes."""
    zeros = [np.zeros(t.shape, F4) for t in OUTS]
    cts = [
        ct if g == "1" else Zero(t) for ct, g, t in zip(CTS, given, OUTS, strict=True)
    ]
    full = [z if isinstance(ct, Zero) else ct for ct, z in zip(cts, zeros, strict=True)]
    wanted = jax.vjp(theirs(reverse), W, C, D, XS)[1](tuple(full))
    found = transposed(cts, reverse=reverse)
    assert found[0] is None and found[4] is None
    for ct, right in zip([found[i] for i in (1, 2, 3, 5)], wanted, strict=True):
        if ct is None:
            assert not np.any(right)
        else:
            np.testing.assert_allclose(ct, right, 1e-5, 1e-6)


def test_what_is_known_has_no_cotangents() -> None:
    found = transposed(CTS, (False, False, True, True, False, False))
    assert [ct is None for ct in found] == [True, True, False, False, True, True]
    full = transposed(CTS)
    close(found[2:4], full[2:4])
    found = transposed(CTS, (False, True, False, False, False, True))
    assert [ct is None for ct in found] == [True, False, True, True, True, False]
    close((found[1], found[5]), (full[1], full[5]))


def loops(graph: Graph) -> list[Any]:
    return [eq for eq in graph.equations if eq.op is scan]


def test_one_loop_runs_back_with_what_moves() -> None:
    """Sums for the constants, cotangents of carries, rows of what is linear."""

    def function(*cts: Any) -> Any:
        return [ct for ct in transposed(cts) if ct is not None]

    (eq,) = loops(traced(function, *CTS))
    assert eq.params["reverse"] and eq.params["length"] == N
    assert (eq.params["n_consts"], eq.params["n_carry"]) == (1, 3)
    body = eq.params["graph"]
    assert [len(body.inputs), len(body.outputs)] == [1 + 3 + 1 + 2, 3 + 1]
    # Of the second carry alone none comes to the rows of ones, but by the first.
    zeros = [Zero(t) for t in OUTS]
    one = lambda ct: [c for c in transposed([*zeros[:3], ct]) if c is not None]  # noqa: E731
    (eq,) = loops(traced(one, XS))
    assert eq.params["n_carry"] == 3
    assert len(eq.params["graph"].inputs) == 1 + 3 + 1 + 1


def test_carries_that_nothing_comes_to_are_left_out() -> None:
    """A sum that only the first of two carries goes into."""
    body = traced(lambda c, d, x: (c + x, d * 2, c), C, D, XS[0])
    args = [Linear(typeof(x)) for x in (C, D, XS)]
    params: Any = {"n_consts": 0, "n_carry": 2, "length": N, "reverse": False}

    def function(ct: Any, cys: Any) -> Any:
        cts = [ct, Zero(typeof(D)), cys]
        found = transpose_scan(cts, *args, bind=scan, graph=body, **params)
        assert found[1] is None
        return found[0], found[2]

    found = function(C, KS)
    close(found, (C + KS.sum(0), C + KS[::-1].cumsum(0)[::-1] - KS))
    (eq,) = loops(traced(function, C, KS))
    assert eq.params["n_carry"] == 1
    # A carry whose cotangent does not come from a later one.
    body = traced(lambda c, d, x: (d, x, c), C, D, XS[0])
    cts = [C, D, Zero(typeof(KS))]
    found = transpose_scan(cts, *args, bind=scan, graph=body, **params)
    for ct, right in zip(found, jax.vjp(_shifted, C, D, XS)[1]((C, D)), strict=True):
        np.testing.assert_allclose(ct if ct is not None else 0 * right, right)


def _shifted(c: Any, d: Any, xs: Any) -> Any:
    for x in xs:
        c, d = d, x
    return c, d


def test_the_body_is_made_once() -> None:
    bodies = [loops(traced(lambda *cts: transposed(cts)[1], *CTS))[0] for _ in range(2)]
    assert bodies[0].params["graph"] is bodies[1].params["graph"]


def test_sums_are_no_weak_numbers() -> None:
    body = traced(lambda w, c: (c * 2 + w, c), np.float32(1), np.float32(1))
    w = np.float32(3)
    loop = lambda w: scan(  # noqa: E731
        *(w, w), graph=body, n_consts=1, n_carry=1, length=N, reverse=False
    )[0]
    assert float(td.grad(loop)(w)) == 15 + 16
    (eq,) = [eq for eq in loops(traced(td.grad(loop), w)) if eq.params["reverse"]]
    assert not any(t.weak for t in eq.params["graph"].in_types)


def test_whole_numbers_are_no_linear_carries() -> None:
    body = traced(lambda i, c: (i + 1, c * 2), np.int32(0), C)
    params: Any = {"n_consts": 0, "n_carry": 2, "length": N, "reverse": False}
    args = [np.int32(0), Linear(typeof(C))]
    with pytest.raises(TypeError, match=r"carries i32\[\] can't be transposed"):
        transpose_scan(
            [Zero(typeof(args[0])), C], *args, bind=scan, graph=body, **params
        )
    # As a constant or a row they may be known.
    body = traced(lambda i, c, j: c * i * j, np.int32(0), C, np.int32(0))
    numbers = np.arange(1, N + 1, dtype=np.int32)
    _, found, _ = transpose_scan(
        [C],
        *(np.int32(2), Linear(typeof(C)), numbers),
        bind=scan,
        graph=body,
        **params | {"n_consts": 1, "n_carry": 1},
    )
    close([found], [C * 24 * 16])


@pytest.mark.parametrize("reverse", [False, True])
def test_as_a_matrix(reverse: bool) -> None:
    """The transposed loop is the transposed matrix, whichever way they run."""

    def flat(v: Any) -> Any:
        outs = loop(K, v[:2], v[2:4], v[4:6], KS, v[6:].reshape(N, 2), reverse=reverse)
        return tnp.concatenate([tnp.ravel(x) for x in outs])

    v = np.zeros(6 + 2 * N, F4)
    matrix = np.asarray(td.jacfwd(flat)(v))
    ct = RNG.normal(size=len(matrix)).astype(F4)
    (found,) = td.linear_transpose(flat, v)(ct)
    np.testing.assert_allclose(found, matrix.T @ ct, 1e-4, 1e-5)
    assert jnp.asarray(matrix).shape == (4 + 4 * N, 6 + 2 * N)
