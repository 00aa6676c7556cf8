"""Rows for shapes, slices, reads and writes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from tests.core.lax.cases import Case, bools, floats, ints

X = floats(5, 6, 4)
I = np.int32  # noqa: E741

SHAPES = [
    Case("iota", lambda lax, x: x + lax.iota("float32", 4), (floats(4),)),
    Case(
        "broadcasted_iota",
        lambda lax, x: x * lax.broadcasted_iota("float32", (2, 3), 1),
        (floats(2, 3),),
    ),
    Case("full", lambda lax, x: lax.full((2, 3), x), (floats(),)),
    Case("full_like", lambda lax, x: lax.add(x, lax.full_like(x, 2)), (X,)),
    Case("broadcast", lambda lax, x: lax.broadcast(x, (2, 3)), (floats(4),)),
    Case(
        "broadcast_in_dim",
        lambda lax, x: lax.broadcast_in_dim(x, (3, 2, 4), (0, 2)),
        (floats(3, 1),),
    ),
    Case(
        "reshape", lambda lax, x: lax.reshape(x, (4, 6), (2, 0, 1)), (floats(2, 3, 4),)
    ),
    Case("collapse", lambda lax, x: lax.collapse(x, 1, 3), (X,)),
    Case("collapse-end", lambda lax, x: lax.collapse(x, 1), (X,)),
    Case("expand_dims", lambda lax, x: lax.expand_dims(x, (0, -1)), (X,)),
    Case("squeeze", lambda lax, x: lax.squeeze(x, (0, -1)), (floats(1, 3, 1),)),
    Case("transpose", lambda lax, x: lax.transpose(x, (2, 0, 1)), (X,)),
    Case("rev", lambda lax, x: lax.rev(x, (0, 2)), (X,)),
    Case(
        "concatenate",
        lambda lax, x, y: lax.concatenate([x, y, x], 1),
        (floats(2, 3), floats(2, 1)),
    ),
    Case(
        "pad",
        lambda lax, x, v: lax.pad(x, v, [(1, 2, 0), (0, 1, 2)]),
        (floats(3, 2), floats()),
    ),
    Case(
        "pad-negative",
        lambda lax, x, v: lax.pad(x, v, [(-1, 2, 1), (3, -2, 0)]),
        (floats(3, 4), floats()),
    ),
    Case(
        "pad-both",
        lambda lax, x, v: lax.pad(x, v, [(-2, -1, 2)]),
        (floats(5), floats()),
    ),
    Case("slice", lambda lax, x: lax.slice(x, (1, 0, 2), (5, 6, 3), (2, 5, 1)), (X,)),
    Case("slice_in_dim", lambda lax, x: lax.slice_in_dim(x, 1, -1, 2, axis=1), (X,)),
    Case("slice_in_dim-none", lambda lax, x: lax.slice_in_dim(x, None, 3), (X,)),
    Case(
        "index_in_dim", lambda lax, x: lax.index_in_dim(x, -2, 1, keepdims=False), (X,)
    ),
    Case("split", lambda lax, x: tuple(lax.split(x, (1, 3, 2), 1)), (X,)),
    Case("tile", lambda lax, x: lax.tile(x, (2, 3)), (floats(2, 3),)),
    Case("optimization_barrier", lambda lax, x: lax.optimization_barrier(x), (X,)),
]

DYNAMIC = [
    Case(
        "dynamic_slice",
        lambda lax, x, i, j, k: lax.dynamic_slice(x, (i, j, k), (2, 3, 4)),
        (X, I(3), I(1), I(0)),
    ),
    Case(
        "dynamic_slice-beyond",
        lambda lax, x, i, j, k: lax.dynamic_slice(x, (i, j, k), (2, 3, 2)),
        (X, I(9), I(-2), I(-9)),
    ),
    Case(
        "dynamic_slice-vector",
        lambda lax, x, i: lax.dynamic_slice(x, i, (2, 3, 4)),
        (X, ints(3, low=0, high=4)),
    ),
    Case(
        "dynamic_slice-static",
        lambda lax, x: lax.dynamic_slice(x, (-3, 1, 0), (2, 3, 4)),
        (X,),
    ),
    Case(
        "dynamic_slice-uint8",
        lambda lax, x, i: lax.dynamic_slice_in_dim(x, i, 2),
        (X, np.uint8(200)),
    ),
    Case(
        "dynamic_slice_in_dim",
        lambda lax, x, i: lax.dynamic_slice_in_dim(x, i, 2, axis=-1),
        (X, I(1)),
    ),
    Case(
        "dynamic_index_in_dim",
        lambda lax, x, i: lax.dynamic_index_in_dim(x, i, 1),
        (X, I(-1)),
    ),
    Case(
        "dynamic_index_in_dim-gone",
        lambda lax, x, i: lax.dynamic_index_in_dim(x, i, 1, False),
        (X, I(4)),
    ),
    Case(
        "dynamic_update_slice",
        lambda lax, x, u, i, j: lax.dynamic_update_slice(x, u, (i, j, 0)),
        (X, floats(2, 3, 4), I(2), I(5)),
    ),
    Case(
        "dynamic_update_slice_in_dim",
        lambda lax, x, u, i: lax.dynamic_update_slice_in_dim(x, u, i, 1),
        (X, floats(5, 2, 4), I(-3)),
    ),
    Case(
        "dynamic_update_index_in_dim",
        lambda lax, x, u, i: lax.dynamic_update_index_in_dim(x, u, i, 1),
        (X, floats(5, 4), I(3)),
    ),
    Case(
        "dynamic_update_index_in_dim-1",
        lambda lax, x, u, i: lax.dynamic_update_index_in_dim(x, u, i, 1),
        (X, floats(5, 1, 4), I(3)),
    ),
]


def _numbers(lax: Any, kind: str, *numbers: Any, **batching: Any) -> Any:
    return getattr(lax, f"{kind}DimensionNumbers")(*numbers, **batching)


def _gather(
    name: str, x: Any, i: Any, numbers: tuple, sizes: tuple, **batching: Any
) -> list[Case]:
    def by(mode: Any, **fill: Any) -> Case:
        def function(lax: Any, x: Any, i: Any) -> Any:
            how = _numbers(lax, "Gather", *numbers, **batching)
            return lax.gather(x, i, how, sizes, mode=mode, **fill)

        # By default JAX takes places inside for granted: so do its derivatives.
        smooth = mode is not None
        return Case(f"gather-{name}-{mode}{len(fill)}", function, (x, i), smooth)

    return [by("clip"), by("fill", fill_value=0.5), by("fill"), by(None)]


def _scatter(
    name: str, x: Any, i: Any, u: Any, numbers: tuple, **batching: Any
) -> list[Case]:
    """Of those whose order matters to JAX only with places that differ."""
    kinds = [
        "scatter_add",
        "scatter_sub",
        "scatter_mul",
        "scatter_min",
        "scatter_max",
        "scatter",
    ]

    def by(kind: str, mode: str) -> Case:
        def function(lax: Any, x: Any, i: Any, u: Any) -> Any:
            how = _numbers(lax, "Scatter", *numbers, **batching)
            return getattr(lax, kind)(
                x,
                i,
                u,
                how,
                mode=mode,
                unique_indices=lax is jax.lax and kind == "scatter_mul",
            )

        # JAX's own derivatives of extremes are wrong where places are moved inside.
        moved = kind in ("scatter_min", "scatter_max") and mode == "clip"
        return Case(f"{kind}-{name}-{mode}", function, (x, i, u), not moved)

    return [by(kind, mode) for kind in kinds for mode in ("clip", "drop")]


ROWS = np.array([[4], [0], [7], [-2], [2]], "int32")
PLACES = np.array([[[3, 1], [0, 5]], [[-1, 2], [4, 9]]], "int32")
APART = np.array([[4], [0], [2]], "int32")

GATHERS = [
    *_gather("rows", X, ROWS, ((1, 2), (0,), (0,)), (1, 6, 4)),
    *_gather("middle", X, ROWS, ((0, 2), (1,), (1,)), (5, 1, 4)),
    *_gather("parts", X, ROWS, ((0, 1, 2), (), (1,)), (2, 3, 3)),
    *_gather("two", X, PLACES, ((2,), (0, 1), (0, 1)), (1, 1, 4)),
    *_gather("turned", X, PLACES, ((0, 3), (1,), (1, 0)), (2, 1, 3)),
    *_gather("inner", X, PLACES, ((1, 2, 3), (), (2, 0)), (2, 2, 3)),
    *_gather("first", X, ROWS, ((1,), (0, 2), (1,)), (1, 2, 1)),
    *_gather("one", X, np.array([2, 3], "int32"), ((0,), (0, 1), (0, 1)), (1, 1, 4)),
    *_gather(
        "batch",
        X,
        ints(5, 3, 1, low=-1, high=7),
        ((2,), (1,), (1,)),
        (1, 1, 4),
        operand_batching_dims=(0,),
        start_indices_batching_dims=(0,),
    ),
    *_gather(
        "batch-behind",
        X,
        ints(3, 4, 6, 1, low=-1, high=6),
        ((), (0,), (0,)),
        (1, 1, 1),
        operand_batching_dims=(1, 2),
        start_indices_batching_dims=(2, 1),
    ),
    Case(
        "gather-none",
        lambda lax, x: lax.gather(
            x,
            np.zeros((3, 0), "int32"),
            _numbers(lax, "Gather", (1, 2), (), ()),
            (2, 3),
        ),
        (floats(2, 3),),
    ),
    Case(
        "gather-int",
        lambda lax, x, i: lax.gather(
            x, i, _numbers(lax, "Gather", (), (0,), (0,)), (1,)
        ),
        (ints(5), ROWS),
    ),
    Case(
        "gather-bool",
        lambda lax, x, i: lax.gather(
            x, i, _numbers(lax, "Gather", (), (0,), (0,)), (1,)
        ),
        (bools(5), ROWS),
    ),
    Case(
        "gather-uint8",
        lambda lax, x, i: lax.gather(
            x, i, _numbers(lax, "Gather", (), (0,), (0,)), (1,), mode="clip"
        ),
        (floats(5), ROWS.astype("uint8")),
    ),
]

SCATTERS = [
    *_scatter("rows", X, APART, floats(3, 6, 4), ((1, 2), (0,), (0,))),
    *_scatter("middle", X, APART, floats(5, 3, 4), ((0, 2), (1,), (1,))),
    *_scatter("two", X, PLACES, floats(2, 2, 4), ((2,), (0, 1), (0, 1))),
    *_scatter(
        "parts",
        X,
        np.array([[0], [3]], "int32"),
        floats(2, 2, 2, 4),
        ((0, 2, 3), (), (1,)),
    ),
    *_scatter("one", X, np.array([2, 3], "int32"), floats(4), ((0,), (0, 1), (0, 1))),
    *_scatter(
        "batch",
        floats(3, 5),
        np.array([[[1], [9]], [[0], [4]], [[3], [2]]], "int32"),
        floats(3, 2),
        ((), (1,), (1,)),
        operand_batching_dims=(0,),
        scatter_indices_batching_dims=(0,),
    ),
    Case(
        "scatter_add-repeated",
        lambda lax, x, i, u: lax.scatter_add(
            x, i, u, _numbers(lax, "Scatter", (1,), (0,), (0,))
        ),
        (floats(4, 2), np.array([[1], [1], [3]], "int32"), floats(3, 2)),
    ),
    Case(
        "scatter_apply",
        lambda lax, x: lax.scatter_apply(
            x,
            APART,
            lambda v: v * v + 1,
            _numbers(lax, "Scatter", (), (0,), (0,)),
            update_shape=(3,),
        ),
        (floats(5),),
        smooth=False,
    ),
]
CASES = [*SHAPES, *DYNAMIC, *GATHERS, *SCATTERS]
