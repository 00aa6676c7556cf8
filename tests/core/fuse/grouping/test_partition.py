"""Which equations share a node; what is copied, made in place, or attached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.evaluate import agrees
from tests.core.fuse.graphs import array, traced
from tests.core.fuse.lowering.alone import normal
from tests.core.plan.build import kernels_of
from treadle.backends.devices import TARGETS
from treadle.fuse.cluster import Cluster
from treadle.fuse.grouping.partition import Joined, Partition, Scattered, partition
from treadle.fuse.lowering.launches import Copy, Launch
from treadle.ops.dot import dot_general
from treadle.ops.movement import transpose
from treadle.ops.window import reduce_window_sum
from treadle.passes.pipeline import optimise

TARGET = TARGETS["reference"]
X, W = array(3, 4), array(4, 5)


def parted(function: Callable[..., Any], *args: Any) -> Partition:
    return partition(optimise(traced(function, *args), TARGET), TARGET.lowering)


def names(part: Partition) -> list[list[str]]:
    return [[eq.op.name for eq in node.equations] for node in part.nodes]


def products(part: Partition) -> list[bool]:
    """For each cluster, whether it is the epilogue of a product."""
    return [n.product is not None for n in part.nodes if isinstance(n, Cluster)]


NODES: dict[str, tuple[Any, list[list[str]]]] = {
    "elementwise": (lambda x, w: tnp.tanh(x) * 2.0, [["tanh", "mul"]]),
    "a sum of it": (lambda x, w: tnp.sum(tnp.tanh(x), 1), [["tanh", "reduce_sum"]]),
    "an epilogue": (lambda x, w: x @ w + 1.0, [["dot_general", "add"]]),
    "a dear one": (
        lambda x, w: tnp.tanh(tnp.exp(tnp.sin(x @ w))),
        [["dot_general"], ["sin", "exp", "tanh"]],
    ),
    "a copied operand": (
        lambda x, w: tnp.reshape(x.T, (3, 4)) @ w,
        [["transpose"], ["dot_general"]],
    ),
    "a returned view": (lambda x, w: tnp.exp(x).T, [["exp"], ["transpose"]]),
    "a returned reshape": (lambda x, w: tnp.exp(x).reshape(12), [["exp"]]),
    "a returned view of an input": (lambda x, w: x.T, [["transpose"]]),
    "pieces": (
        lambda x, w: tnp.concatenate([tnp.exp(x), tnp.sin(x)]),
        [["exp"], ["sin"], ["concatenate"]],
    ),
    "a run of a view": (
        lambda x, w: tnp.cumsum(x.T.reshape(12), 0),
        [["transpose"], ["cumsum"]],
    ),
}


@pytest.mark.parametrize("name", NODES)
def test_nodes(name: str) -> None:
    function, wanted = NODES[name]
    assert names(parted(function, X, W)) == wanted


@pytest.mark.parametrize("batch", [(), (2,)])
def test_a_product_with_a_copied_operand_lies_as_its_reader_sees_it(
    batch: tuple[int, ...],
) -> None:
    def f(x: Any, w: Any) -> Any:
        rows = tnp.reshape(x[..., :2], (*batch, 60, 2))  # axes without one step
        z = w @ tnp.swapaxes(rows, -1, -2)
        return tnp.maximum(tnp.swapaxes(z, -1, -2) + 1.0, 0)

    x, w = array(*batch, 20, 3, 3), array(*batch, 16, 2)
    part = parted(f, x, w)
    (node,) = [n for n in part.nodes if isinstance(n, Cluster) and n.product]
    assert node.product is not None
    contraction = node.product.contraction
    assert (contraction.m, contraction.n) == (60, 16)
    agrees(f, normal(*x.shape), normal(*w.shape))


def test_a_product_has_one_epilogue() -> None:
    part = parted(lambda x, w: (lambda y: (y + 1.0, tnp.sum(y, 1)))(x @ w), X, W)
    assert sorted(products(part)) in ([False, True], [False])
    both = parted(lambda x, w: (x @ w) + (x @ w * 2.0), X, W)
    assert sum(products(both)) == 1


def test_an_epilogue_of_two_products_belongs_to_one() -> None:
    part = parted(lambda x, w, y: x @ w + y @ w, X, W, X)
    assert products(part) == [True]
    assert len(part.nodes) == 2


def test_pieces_are_made_in_their_places() -> None:
    part = parted(lambda x, w: tnp.concatenate([tnp.exp(x), x, tnp.sin(x)]), X, W)
    (joined,) = [b for b in part.built.values() if isinstance(b, Joined)]
    assert joined.fill is None
    assert len(joined.moves) == 1
    assert sorted(offset for _, offset, _ in part.flow.parts.values()) == [0, 24]


WIDE = normal(40, 50)
"""Smaller ones are chosen element by element."""


def test_pieces_among_each_other_are_made_together() -> None:
    part = parted(lambda x: tnp.stack([tnp.exp(x), tnp.sin(x), tnp.cos(x)], -1), WIDE)
    assert names(part) == [["exp", "sin", "cos"], ["concatenate"]]
    # Not where they lie one after the other, for another operation has its own loops.
    apart = parted(lambda x: tnp.stack([tnp.exp(x), tnp.sin(x)]), WIDE)
    assert names(apart) == [["exp"], ["sin"], ["concatenate"]]


@pytest.mark.parametrize(
    ("function", "moves"),
    [
        (lambda x: tnp.stack([x, x[::-1]], -1), 1),
        (lambda x: tnp.stack([x, tnp.zeros_like(x)], -1), 1),
        (lambda x: tnp.stack([x, x[::-1], x], -1), 3),
        (lambda x: tnp.stack([x, x[::-1]], 0), 2),
    ],
)
def test_two_pieces_that_take_turns_are_moved_together(
    function: Any, moves: int
) -> None:
    part = parted(function, WIDE)
    (joined,) = [b for b in part.built.values() if isinstance(b, Joined)]
    assert len(joined.moves) == moves
    agrees(function, normal(*WIDE.shape))


def test_a_number_is_written_with_what_it_takes_turns_with() -> None:
    def function(x: Any) -> Any:
        return x.astype("complex64"), (x * 2).astype("complex64") * 1j

    x = (9 * WIDE).astype("int8")
    _, kernels = kernels_of(function, x)
    nests = [e.kernel.nest for e in kernels.entries if isinstance(e.kernel, Launch)]
    assert all([nest.operands[-1].beside for nest in nests])
    for a, b in zip(td.jit(function)(x), function(x), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "piece",
    [
        lambda x: (lambda y: (tnp.concatenate([y, x]), y))(tnp.exp(x)),  # returned
        lambda x: (lambda y: tnp.concatenate([y, x]) * tnp.sum(y))(tnp.exp(x)),  # read
        lambda x: (lambda y: tnp.concatenate([y, y]))(tnp.exp(x)),  # there twice
        lambda x: tnp.concatenate([tnp.cumsum(x, 0), x]),  # no cluster's
        lambda x: tnp.concatenate([x, x]),  # nobody's
        lambda x: tnp.concatenate([tnp.argmax(x, 1), tnp.argmax(x, 0)]),  # places
    ],
)
def test_pieces_that_are_moved(piece: Any) -> None:
    assert not parted(piece, X).flow.parts


def test_products_are_pieces_too() -> None:
    part = parted(lambda x, w: tnp.concatenate([x @ w, tnp.ones((1, 5))]), X, W)
    assert len(part.flow.parts) == 1


def test_padded_arrays_are_filled() -> None:
    def fill(value: float) -> Any:
        part = parted(lambda x: tnp.pad(tnp.exp(x), 1, constant_values=value), X)
        (joined,) = [b for b in part.built.values() if isinstance(b, Joined)]
        assert joined.moves == []
        return joined.fill

    assert isinstance(fill(0.0), Copy)
    assert isinstance(fill(2.0), Launch)


def test_a_piece_comes_after_what_fills_its_whole() -> None:
    def function(x: Any) -> Any:
        return tnp.pad(tnp.exp(x), 1, constant_values=tnp.sum(tnp.cumsum(x, 0)))

    part = parted(function, X)
    order = [n for n, _ in enumerate(part.nodes)]
    place = {eq.op.name: n for n in order for eq in part.nodes[n].equations}
    assert place["reduce_sum"] < place["exp"] < place["pad"]


def test_a_scatter_begins_as_a_copy_of_its_operand() -> None:
    part = parted(lambda x: tnp.exp(x).T.at[np.array([0, 1])].add(1.0), X)
    (scattered,) = [b for b in part.built.values() if isinstance(b, Scattered)]
    assert isinstance(scattered.begin, Launch)
    zeros = parted(lambda x: tnp.zeros((3, 4)).at[np.array([0, 1])].add(x[:2]), X)
    (scattered,) = [b for b in zeros.built.values() if isinstance(b, Scattered)]
    assert scattered.begin == Copy(None, scattered.launch.bindings[-1].atom)


I = np.array([2, 0], np.int32)  # noqa: E741


def between(x: Any) -> Any:
    """A piece whose cluster makes also what its whole is filled with."""
    e = tnp.exp(x)
    return tnp.pad(e * 2.0, 1, constant_values=tnp.sum(tnp.cumsum(e, 0)))


def crossed(x: Any, y: Any) -> Any:
    """A product with two batch loops, whose rows are one only where it lies alone."""
    x = transpose(x, permutation=(1, 0, 2, 3, 4))
    return dot_general(x, y, contract=((4,), (2,)), batch=((0, 1), (0, 1)))


@pytest.mark.parametrize(
    ("function", "args"),
    [
        # Inline values that are also wanted in memory.
        (lambda x: (lambda a: (a, x + a, tnp.sum(a)))(tnp.arange(4.0) * 2), [X]),
        (lambda x, i: (lambda a: a[i] * a[:2])(tnp.arange(4) * 2), [X, I]),
        (lambda x: (tnp.arange(12.0) * 2).reshape(3, 4), [X]),
        # Products whose result lies as it is read; whose operands are copied.
        (lambda x, w: tnp.cumsum((x @ w).T, 1), [X, W]),
        (lambda x, w: tnp.sort((x @ w).T, -1), [X, W]),
        (
            lambda x, y: tnp.einsum("pakbq,qbnak->pbna", x, y),
            [normal(2, 3, 4, 3, 2), normal(2, 3, 5, 3, 4)],
        ),
        (
            lambda x, y: tnp.einsum("akcl,lnka->anc", x, y),
            [normal(2, 3, 4, 5), normal(5, 6, 3, 2)],
        ),
        (lambda x, w: ((x @ w).T, (x @ w).reshape(15)), [X, W]),
        # One that no kernel makes, so that it lies as it is written.
        (
            lambda i, j: (i @ j).T * 2,
            [np.arange(12, dtype=np.int32).reshape(3, 4), np.eye(4, 5, dtype=np.int32)],
        ),
        # Two readers that could both be its epilogue.
        (lambda x, w: (lambda y: (y + 1.0, y * 2.0))(x @ w), [X, W]),
        # Scatters of views.
        (lambda x, i, u: x[1:].reshape(8)[1:].at[i].add(u), [X, I, normal(2)]),
        (
            lambda x, i, u: x.at[i].set(tnp.reshape(u[:, 1:], (2, 3))),
            [normal(4, 3), I, normal(3, 3)],
        ),
        # Pieces of joins.
        (between, [X]),
        (lambda x, w: tnp.concatenate([x @ w, x], 1), [X, W]),
        (
            lambda x, y: tnp.concatenate([crossed(x, y), tnp.ones((3, 2, 2, 1, 5))], 3),
            [normal(2, 3, 2, 3, 4), normal(3, 2, 4, 5)],
        ),
        (lambda x: tnp.concatenate([x[1:].reshape(8)[1:]] * 2), [X]),
        (lambda x: tnp.concatenate([tnp.arange(4.0) * 2, x[0]]), [X]),
    ],
)
def test_programs_give_what_they_mean(function: Any, args: Any) -> None:
    agrees(function, *[normal(*a.shape) if a is X or a is W else a for a in args])


def test_zeros_that_a_loop_begins_with_are_in_no_memory() -> None:
    def function(x: Any) -> Any:
        return td.scan(lambda c, r: (c + r, c), tnp.zeros((2, 4)), x)

    assert names(parted(function, array(3, 2, 4))) == [["scan"]]


def test_what_is_made_of_nothing_is_filled() -> None:
    def function(x: Any) -> Any:
        return reduce_window_sum(x, window=(2,), strides=(1,), padding=((1, 1),))

    _, kernels = kernels_of(function, array(2, 0, 1))
    assert [type(e.kernel) for e in kernels.entries] == [Copy]
    agrees(function, array(2, 0, 1))


def test_what_has_no_elements_has_no_kernel() -> None:
    assert parted(lambda x: tnp.cumsum(x, 0), array(0, 4)).built == {}
