"""Contractions on their own: their loops, and what they give by einsum."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import treadle.numpy as tnp
from tests.core.fuse import evaluate
from tests.core.fuse.graphs import equation, program_of, traced
from tests.core.fuse.lowering.alone import agrees, needs_copies, normal
from treadle.fuse.cluster import Cluster
from treadle.fuse.lowering.products import product
from treadle.kernels.contract import Contraction
from treadle.ops.dot import dot_general
from treadle.ops.movement import reshape, transpose

SIZES = {"b": 2, "c": 3, "m": 4, "p": 2, "n": 5, "q": 3, "k": 6, "l": 2}


def dot(x: str, y: str) -> Any:
    """The product of arrays with named axes: those that both have, and are upper case,
    are batches; others that both have are summed over."""
    batch = [a for a in x if a.isupper()]
    sums = [a for a in x if a in y and not a.isupper()]
    pairs = [
        tuple(tuple(s.index(a) for a in axes) for s in (x, y)) for axes in (sums, batch)
    ]
    contract, batches = pairs
    return lambda a, b: dot_general(a, b, contract=contract, batch=batches)


def arrays(x: str, y: str, sizes: dict[str, int] = SIZES) -> list[np.ndarray]:
    return [
        normal(*(sizes[a.lower()] for a in axes), seed=i)
        for i, axes in enumerate((x, y))
    ]


def product_of(x: str, y: str, sizes: dict[str, int] = SIZES) -> Any:
    return agrees(dot(x, y), product, *arrays(x, y, sizes)).contraction


CASES = [
    "mk,kn",
    "km,kn",
    "mk,nk",
    "km,nk",
    "k,k",
    "mk,k",
    "k,kn",
    "Bmk,Bkn",
    "BCmk,BCkn",
]
CASES += [
    "mkl,kln",
    "mkl,nkl",
    "mpk,kn",
    "mk,knq",
    "mBk,kBn",
    "BmCk,BCkn",
    "m,n",
    "B,B",
]


@pytest.mark.parametrize("case", CASES)
def test_values(case: str) -> None:
    found = product_of(*case.split(","))
    assert found.flops == 2 * np.prod([SIZES[a] for a in set(case.lower()) - {","}])


@pytest.mark.parametrize("case", ["mk,kn", "Bmk,Bkn", "mkl,kln", "mk,knq", "mBk,kBn"])
def test_sizes_of_one(case: str) -> None:
    names = sorted(set(case.lower()) - {","})
    for ones in itertools.product((False, True), repeat=len(names)):
        sizes = SIZES | {a: 1 for a, one in zip(names, ones, strict=True) if one}
        product_of(*case.split(","), sizes)


def test_axes_that_step_alike_are_one_loop() -> None:
    found = product_of("Bpmk", "Bkn")
    assert (found.b0, found.b1, found.m, found.n, found.k) == (1, 2, 8, 5, 6)
    found = product_of("mkl", "klnq")
    assert (found.b0, found.b1, found.m, found.n, found.k) == (1, 1, 4, 15, 12)
    found = product_of("BCmk", "BCkn")
    assert (found.b0, found.b1) == (1, 6)


def test_rows_that_don_t_step_alike_are_batches() -> None:
    def rows(x: Any, y: Any) -> Any:
        return dot("mpk", "kn")(transpose(x, permutation=(1, 0, 2)), y)

    found = agrees(rows, product, normal(4, 2, 6), normal(6, 5)).contraction
    assert (found.b0, found.b1, found.m) == (1, 2, 4)
    assert (found.a.b1, found.b.b1, found.c.b1) == (6, 0, 20)


def test_operands_are_swapped_where_the_columns_are_the_first_s() -> None:
    def turned(x: Any, y: Any) -> Any:
        return transpose(dot("mk", "kn")(x, y), permutation=(1, 0)) * 1.0

    x, y = arrays("mk", "kn")
    graph = traced(turned, x, y)
    flow, eq = program_of(graph), equation(graph, "dot_general")
    found = product(eq, flow)
    assert found is not None
    # The result is stored as it is seen: columns of it are the first's rows.
    assert (found.a[0], found.b[0]) == (graph.inputs[1], graph.inputs[0])
    what = found.contraction
    assert (what.m, what.n, what.k, what.c.row, what.c.column) == (5, 4, 6, 4, 1)


def test_views_of_operands_are_strides() -> None:
    def seen(x: Any, y: Any) -> Any:
        return dot("mk", "kn")(x[::2, ::-1], y[1:])

    found = agrees(seen, product, normal(8, 6), normal(7, 5))
    assert (found.a[1], found.b[1]) == (5, 5)
    assert (found.contraction.a.row, found.contraction.a.column) == (12, -1)


def test_what_needs_more_loops_must_be_copied() -> None:
    x, y = normal(2, 3, 4, 6), normal(6, 5)

    def many(x: Any, y: Any) -> Any:
        # Three free axes that no two of which step as one.
        return dot("mpqk", "kn")(transpose(x, permutation=(2, 1, 0, 3)), y)

    agrees(many, product, x, y)

    def more(x: Any, y: Any) -> Any:
        return dot("Bmpqk", "Bkn")(transpose(x, permutation=(0, 3, 2, 1, 4)), y)

    assert needs_copies(more, product, normal(2, 2, 3, 4, 6), normal(2, 6, 5))

    def sums(x: Any, y: Any) -> Any:
        return dot("mkl", "kln")(transpose(x, permutation=(0, 2, 1)), y)

    assert needs_copies(sums, product, normal(4, 2, 6), normal(6, 2, 5))

    def both(x: Any, y: Any) -> Any:
        turn = (0, 2, 1)
        return dot("mkl", "nkl")(
            transpose(x, permutation=turn), transpose(y, permutation=turn)
        )

    agrees(both, product, normal(4, 2, 6), normal(5, 2, 6))

    def broken(x: Any, y: Any) -> Any:
        x = reshape(transpose(x, permutation=(1, 0)), shape=(4, 6))
        return dot("mk", "kn")(x, y)

    assert needs_copies(broken, product, normal(3, 8), y)


def test_sums_and_columns_step_alike_on_both_sides() -> None:
    def gap(x: Any, y: Any) -> Any:
        return dot("mkl", "kln")(x[:, :, :2], y)

    assert needs_copies(gap, product, normal(4, 6, 3), normal(6, 2, 5))

    def columns(x: Any, y: Any) -> Any:
        return dot("mk", "knq")(x, transpose(y, permutation=(0, 2, 1)))

    assert needs_copies(columns, product, normal(4, 6), normal(6, 3, 5))


def test_a_result_without_columns_has_the_step_of_one() -> None:
    found = agrees(dot("k", "k"), product, normal(6), normal(6, seed=1))
    assert found.contraction.c.column == 1


def crossed(x: Any, y: Any) -> Any:
    """A product with two batch loops, as x is turned."""
    return dot("BCmk", "BCkn")(transpose(x, permutation=(1, 0, 2, 3)), y)


EPILOGUES: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
    "batches": (
        lambda x, y, b: crossed(x, y) + b,
        [(3, 2, 4, 6), (2, 3, 6, 5), (3, 4, 5)],
    ),
    "rows of its own": (
        lambda x, y, b: dot("mpk", "kn")(x, y) + b,
        [(4, 2, 6), (6, 5), (2, 5)],
    ),
    "another shape": (
        lambda x, y, b: reshape(dot("mk", "kn")(x, y), shape=(4, 2, 3)) + b,
        [(4, 5), (5, 6), (4, 2, 3)],
    ),
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues_have_the_loops_of_their_product(name: str) -> None:
    function, shapes = EPILOGUES[name]
    groups = evaluate.agrees(function, *[normal(*s) for s in shapes])
    (node,) = groups.nodes
    assert isinstance(node, Cluster)
    assert node.product is not None
    found, epilogue = node.product.contraction, node.product.epilogue
    assert isinstance(found, Contraction)
    assert epilogue is not None
    assert epilogue.outer == (found.b0, found.b1, found.m)
    assert epilogue.inner == found.n


def test_loops_are_one_only_if_the_result_steps_alike() -> None:
    def piece(x: Any, y: Any, z: Any) -> Any:
        return tnp.concatenate([dot("mpk", "kn")(x, y), z], 1)

    groups = evaluate.agrees(piece, normal(4, 2, 6), normal(6, 5), normal(4, 1, 5))
    assert len(groups.flow.parts) == 1
