"""Cases of the ops that read and write at data-dependent places."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.core.ops.cases import (
    Case,
    Draw,
    booleans,
    complexes,
    constant,
    distinct,
    integers,
    normal,
)
from treadle.ops import dynamic, gather, scatter

X = normal(5, 6, 4)
OUTSIDE = integers(-2, 8, 3, 2)
REPEATED = integers(0, 3, 3, 2)
FIRST = {"axes": (0,), "sizes": (None,), "batch_dims": 0}
MIDDLE = {"axes": (1,), "sizes": (None,), "batch_dims": 0}
TWO = {"axes": (2, 0), "sizes": (None, None), "batch_dims": 0}
WINDOWS = {"axes": (1, 0), "sizes": (3, 2), "batch_dims": 0}
MIXED = {"axes": (2, 1), "sizes": (2, None), "batch_dims": 1}
BATCHED = {"axes": (1,), "sizes": (None,), "batch_dims": 1}


def _read(
    x: Any, indices: Any, axes: Any, sizes: Any, batch_dims: int, mode: str
) -> Any:
    """The definition in `treadle.ops.gather`, place by place."""
    if batch_dims:
        one = jax.vmap(
            lambda x, *i: _read(
                x, i, tuple(a - 1 for a in axes), sizes, batch_dims - 1, mode
            )
        )
        return one(x, *indices)
    lengths = [*x.shape]
    for a, n in zip(axes, sizes, strict=True):
        lengths[a] = n or 1
    kept = [
        n
        for a, n in enumerate(lengths)
        if (a, None) not in zip(axes, sizes, strict=True)
    ]

    def at(*place: Any) -> Any:
        starts = [jnp.int32(0)] * x.ndim
        inside = jnp.bool_(True)
        for a, i in zip(axes, place, strict=True):
            starts[a] = jnp.int32(i)
            inside &= (i >= 0) & (i <= x.shape[a] - lengths[a])
        # JAX clamps too, but counts indices below zero from the end.
        starts = [jnp.maximum(s, 0) for s in starts]
        out = lax.dynamic_slice(x, starts, lengths).reshape(kept)
        return jnp.where(inside, out, jnp.zeros_like(out)) if mode == "drop" else out

    for _ in indices[0].shape:
        at = jax.vmap(at)
    return at(*indices)


def _gather(label: str, x: Draw, indices: tuple[Draw, ...], params: dict) -> list[Case]:
    return [
        Case(
            gather.gather,
            lambda x, *i, p={**params, "mode": mode}: _read(x, i, **p),
            (x, *indices),
            {**params, "mode": mode},
            label=f"{label}-{mode}",
        )
        for mode in ("clip", "drop")
    ]


def _write(x: Any, updates: Any, *indices: Any, how: str, params: dict) -> Any:
    """Writes one element after the other, in order, through a flat numbering."""
    numbers = jnp.arange(x.size, dtype=jnp.int32).reshape(x.shape)
    # Numbers from 1: where nothing is read (mode "drop") there is a zero.
    places = _read(numbers + 1, indices, **params).reshape(-1) - 1
    places = jnp.where(places < 0, x.size, places)
    flat, values = x.reshape(-1), updates.reshape(-1)
    if how == "set":
        for n in range(values.size):
            flat = flat.at[places[n]].set(values[n], mode="drop")
    elif how == "multiply":
        for n in range(values.size):
            flat = flat.at[places[n]].multiply(
                values[n], mode="drop", unique_indices=True
            )
    else:
        flat = getattr(flat.at[places], how)(values, mode="drop")
    return flat.reshape(x.shape)


def _scatters(
    label: str, x: Draw, updates: Draw, indices: tuple[Draw, ...], params: dict
) -> list[Case]:
    ops = {
        scatter.scatter_add: "add",
        scatter.scatter_set: "set",
        scatter.scatter_mul: "multiply",
        scatter.scatter_min: "min",
        scatter.scatter_max: "max",
    }
    return [
        Case(
            op,
            lambda x, u, *i, how=how: _write(x, u, *i, how=how, params=params),
            (x, updates, *indices),
            params,
            label=label,
            second=how not in ("min", "max"),
        )
        for op, how in ops.items()
    ]


GATHERS = [
    *_gather("rows", X, (OUTSIDE,), FIRST),
    *_gather("middle", X, (OUTSIDE,), MIDDLE),
    *_gather("one", X, (integers(-1, 6),), MIDDLE),
    *_gather("two", X, (OUTSIDE, OUTSIDE), TWO),
    *_gather("windows", X, (OUTSIDE, OUTSIDE), WINDOWS),
    *_gather("batched", X, (integers(-2, 8, 5, 2),), BATCHED),
    *_gather("mixed", X, (integers(-2, 8, 5, 2),) * 2, MIXED),
    *_gather("int32", integers(0, 99, 5, 6), (OUTSIDE,), FIRST),
    *_gather("complex", complexes(5, 6), (OUTSIDE,), FIRST),
    *_gather("bool", booleans(5, 6), (integers(0, 5, 3, dtype="uint8"),), FIRST),
]

SCATTERS = [
    *_scatters(
        "rows",
        normal(4, 2),
        normal(3, 2),
        (integers(0, 3, 3),),
        {**FIRST, "mode": "drop"},
    ),
    *_scatters(
        "outside",
        distinct(4, 3),
        normal(5, 4),
        (constant([1, 1, -1, 4, 2], "int32"),),
        {**MIDDLE, "mode": "drop"},
    ),
    *_scatters(
        "windows",
        normal(4, 3),
        normal(3, 2, 2),
        (integers(-1, 4, 3), integers(-1, 4, 3)),
        {"axes": (1, 0), "sizes": (2, 2), "batch_dims": 0, "mode": "clip"},
    ),
    *_scatters(
        "batched",
        normal(2, 4),
        normal(2, 3),
        (integers(0, 4, 2, 3),),
        {"axes": (1,), "sizes": (None,), "batch_dims": 1, "mode": "drop"},
    ),
    Case(
        scatter.scatter_set,
        lambda x, u, i: x.at[i].set(u),
        (booleans(5), booleans(3), constant([0, 2, 2], "int32")),
        {**FIRST, "mode": "drop"},
        label="bool",
    ),
    Case(
        scatter.scatter_mul,
        lambda x, u, i: x.at[i].multiply(u, unique_indices=True),
        (normal(5), constant([0.0, 2.0]), constant([0, 2], "int32")),
        {**FIRST, "mode": "drop"},
        label="zero",
        second=False,
    ),
]


def _slices(label: str, *starts: Draw) -> list[Case]:
    sizes = (2, 6, 3)
    return [
        Case(
            dynamic.dynamic_slice,
            lambda x, *i: lax.dynamic_slice(x, i, sizes),
            (X, *starts),
            {"sizes": sizes},
            label=label,
        ),
        Case(
            dynamic.dynamic_update_slice,
            lambda x, u, *i: lax.dynamic_update_slice(x, u, i),
            (X, normal(*sizes), *starts),
            label=label,
        ),
    ]


DYNAMIC = [
    *_slices("inside", integers(0, 3), integers(0, 1), integers(0, 1)),
    *_slices("high", integers(5, 9), integers(5, 9), integers(5, 9)),
]

CASES = [*GATHERS, *SCATTERS, *DYNAMIC]
