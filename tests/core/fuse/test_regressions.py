"""Small programs that were once compiled wrongly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.compare import agrees
from treadle.ops.conv import conv_general

pytestmark = pytest.mark.usefixtures("checked_by_reference")


def array(*shape: int, dtype: Any = np.float32) -> Any:
    size = int(np.prod(shape))
    values = np.sin(np.arange(size, dtype=np.float64) * 1.7 + 0.3)
    return tnp.asarray(values.reshape(shape).astype(dtype))


def same_value_forwards_and_backwards(x: Any) -> Any:
    y = x * 0.5
    return tnp.maximum(tnp.flip(y, axis=0), y)


def updates_of_a_regrouped_argument(x: Any) -> Any:
    return tnp.reshape(x, (16, 2, 5)).at[3:14].set(2)


def updates_of_a_regrouped_value(x: Any) -> Any:
    y = tnp.tanh(x)
    z = tnp.reshape(y, (16, 10))
    return z.at[3:14].add(2), z.at[tnp.arange(3)].set(1), y


def mean_of_means_of_a_square(x: Any) -> Any:
    rows = tnp.mean(x, axis=1, keepdims=True)
    return rows - tnp.mean(rows, axis=0, keepdims=True)


def row_statistics_added_to_columns(x: Any, y: Any) -> Any:
    return y - tnp.exp(x - tnp.max(x, axis=1, keepdims=True))


def vector_times_matrix(x: Any, y: Any) -> Any:
    return x @ y


def softmax_of_a_reshape(x: Any) -> Any:
    flat = tnp.reshape(tnp.minimum(x, x), (-1,))
    return tnp.exp(flat - tnp.max(flat, axis=-1, keepdims=True))


def one_hot_regrouped(i: Any) -> Any:
    hot = (i[..., None] == tnp.arange(16)).astype("float32")
    regrouped = tnp.reshape(hot, (4, 3, 4))
    return regrouped * regrouped


def scan_from_a_computed_scalar(x: Any, y: Any) -> Any:
    norm = tnp.sqrt(tnp.sum(x * x) + 1)
    rows = tnp.sum(y, axis=1)
    out, _ = td.scan(lambda c, r: (c * 0.5 + r, tnp.cos(c)), norm, rows)
    return tnp.minimum(x, rows[0]), out


def gather_from_a_computed_scalar(i: Any) -> Any:
    return tnp.broadcast_to(tnp.sum(i) * 2, (4,))[i]


def reshaped_broadcast_updated(x: Any) -> Any:
    spread = tnp.reshape(tnp.broadcast_to(x, (70, 4)), (56, 1, 1, 5))
    return spread.at[20:45].multiply(2)


def strided_operand_of_an_empty_product(x: Any, y: Any) -> Any:
    return tnp.einsum("abc,w->abcw", y, tnp.reshape(x, (-1,))[1:4:2])


def reshaped_dot_with_itself(x: Any) -> Any:
    y = tnp.where(x > 0, x, x * 0.5)
    flat = tnp.reshape(y, (-1,))
    return tnp.sum(y, axis=1), flat @ flat


def transposed_half_product(x: Any, y: Any) -> Any:
    return tnp.einsum("ab,aw->wb", x, y) * 0.25


def two_batches_of_outer_products(x: Any, y: Any) -> Any:
    return td.vmap(lambda a, b: tnp.einsum("abc,wax->bcxw", a, b) * 0.25)(x, y)


def scan_that_reverses_its_carry(x: Any, c: Any) -> Any:
    return td.scan(lambda c, x: (tnp.flip(c * 0.5, 0), c + x), c, x)


def divided_by_one_of_its_elements(x: Any) -> Any:
    y = tnp.exp(-tnp.abs(x))
    return y / y[4]


def update_of_all_of_an_axis_of_length_one(i: Any, u: Any, x: Any) -> Any:
    return td.vmap(lambda i, u, x: x.at[i % 1].add(u))(i, u, x)


def gather_from_the_view_of_a_value_beside_it(x: Any) -> Any:
    y = x ^ tnp.broadcast_to(x, (2, 5, 2))
    return tnp.where(y < 20, y.ravel()[y + 1], 9)


def index_into_computed_indices(i: Any) -> Any:
    return tnp.cos(tnp.arange(5.0))[i]


def picked_from_its_own_reshape(i: Any, x: Any) -> Any:
    flat = tnp.reshape(x + 1.5, (-1,))
    return flat == flat[i], flat[i]


def log_density(x: Any, mean: Any, scale: Any) -> Any:
    return -0.5 * ((x - mean) / scale) ** 2 - tnp.log(scale)


def gradient_of_densities_that_share_parameters(m: Any, s: Any, noise: Any) -> Any:
    def bound(m: Any, s: Any) -> Any:
        x = m + tnp.exp(s) * noise
        prior = log_density(x[:, 0], 0, tnp.exp(x[:, 1]))
        return tnp.sum(prior - tnp.sum(log_density(x, m, tnp.exp(s)), axis=1))

    return td.grad(bound, (0, 1))(m, s)


def diagonal_of_a_product(x: Any, y: Any) -> Any:
    return tnp.diagonal(x @ y)


def diagonal_of_a_part_of_a_product(x: Any, y: Any) -> Any:
    return tnp.diagonal((x @ y)[1:])


def diagonal_of_a_hessian(x: Any, w: Any) -> Any:
    i = tnp.arange(3)
    return td.hessian(lambda x: tnp.sum(tnp.tanh(w @ x)))(x)[i, i]


def pixels_of_a_convolution(x: Any, w: Any) -> Any:
    y = convolution(x, w)
    return tnp.diagonal(y), tnp.take(y, tnp.asarray([[[0, 1]], [[1, 0]]]), axis=0)


def pixels_of_a_depthwise_convolution(x: Any, w: Any) -> Any:
    y = convolution(x, w, feature_groups=3)
    return tnp.diagonal(y, axis1=1, axis2=2), y[tnp.asarray([1, 0])]


def convolution(x: Any, w: Any, feature_groups: int = 1) -> Any:
    return conv_general(
        x,
        w,
        strides=(1, 1),
        padding=((1, 1), (1, 1)),
        lhs_dilation=(1, 1),
        rhs_dilation=(1, 1),
        feature_groups=feature_groups,
    )


def product_regrouped_forwards_and_backwards(x: Any, y: Any) -> Any:
    rows = tnp.reshape(x @ y, (2, 12))
    return rows * 2 + rows[:, ::-1]


def scan_from_a_root_that_divides(z: Any) -> Any:
    root = tnp.sqrt(tnp.sum(z * z) + 1)
    return td.scan(lambda c, x: (c * 0.5, x * 2), root, z / root)


def total(tree: Any) -> Any:
    return sum([tnp.sum(tnp.sin(leaf)) for leaf in td.tree.leaves(tree)])


BESIDE = tnp.asarray(np.array([1, 5, 3, 9, 2], np.int32).reshape(1, 5, 1))
INTEGERS = tnp.asarray(np.int32([1, 3, 2]))
HALVES = {"dtype": td.bfloat16}
PROGRAMS: list[tuple[Callable[..., Any], tuple]] = [
    (same_value_forwards_and_backwards, (array(8, 2),)),
    (mean_of_means_of_a_square, (array(5, 5),)),
    (row_statistics_added_to_columns, (array(1, 7), array(7, 7))),
    (softmax_of_a_reshape, (array(2, 3),)),
    (one_hot_regrouped, (INTEGERS,)),
    (scan_from_a_computed_scalar, (array(1, 2), array(3, 2))),
    (gather_from_a_computed_scalar, (INTEGERS,)),
    (reshaped_broadcast_updated, (array(70, 1),)),
    (strided_operand_of_an_empty_product, (array(2, 2), array(0, 2, 7))),
    (reshaped_dot_with_itself, (array(5, 8, 8),)),
    (transposed_half_product, (array(3, 5, **HALVES), array(3, 4, **HALVES))),
    (two_batches_of_outer_products, (array(3, 2, 8, 8), array(3, 2, 2, 8))),
    (divided_by_one_of_its_elements, (array(7),)),
    (update_of_all_of_an_axis_of_length_one, (INTEGERS, array(3), array(3, 1))),
    (scan_that_reverses_its_carry, (array(4, 3), array(3))),
    (index_into_computed_indices, (INTEGERS,)),
    (picked_from_its_own_reshape, (tnp.arange(6), array(2, 3))),
    (gradient_of_densities_that_share_parameters, (array(2), array(2), array(1, 2))),
    (product_regrouped_forwards_and_backwards, (array(4, 5), array(5, 6))),
    (gather_from_the_view_of_a_value_beside_it, (BESIDE,)),
    (vector_times_matrix, (array(40) + 1j * array(40), 1j * array(40, 33))),
    (scan_from_a_root_that_divides, (array(5) - 2j * array(5),)),
    (lambda x: tnp.stack([x, x], axis=1), (array(0, 0),)),
    (lambda x: (x, x, x[0], tnp.ones((2,)), x.T), (array(3, 4),)),
]

PLACES_OF_PRODUCTS: list[tuple[Callable[..., Any], tuple]] = [
    (diagonal_of_a_product, (array(2, 3, 4), array(2, 4, 5))),
    (diagonal_of_a_part_of_a_product, (array(3, 3, 4), array(3, 4, 5))),
    (diagonal_of_a_hessian, (array(3), array(3, 3))),
    (pixels_of_a_convolution, (array(2, 4, 4, 3), array(3, 3, 3, 5))),
    (pixels_of_a_depthwise_convolution, (array(2, 4, 4, 3), array(3, 3, 1, 6))),
]
PROGRAMS += PLACES_OF_PRODUCTS
PROGRAMS += [
    (updates_of_a_regrouped_argument, (array(5, 4, 4, 2),)),
    (updates_of_a_regrouped_value, (array(5, 32),)),
]
PROGRAMS += [
    (lambda *args, f=f: td.grad(lambda *a: total(f(*a)), (0, 1))(*args), args)
    for f, args in PLACES_OF_PRODUCTS
]


# The number tells programs of one name (lambdas) apart; an address would change.
NAMES = [f"{n}-{function.__name__}" for n, (function, _) in enumerate(PROGRAMS)]


@pytest.mark.parametrize(("function", "args"), PROGRAMS, ids=NAMES)
def test_compiled_agrees_with_eager(function: Callable[..., Any], args: tuple) -> None:
    agrees(function, args)
