"""Products read weights of a byte that are scaled in groups as they are: the graphs,
and what they compute beside NumPy's in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import traced
from tests.core.passes.shown import lines, passed, untouched
from treadle import dtypes
from treadle.backends.cpu.device import CPUTarget
from treadle.ir.graph import Graph
from treadle.ops.dot import dot_general
from treadle.passes.grouped import group_bytes, read_bytes
from treadle.passes.pipeline import optimise
from treadle.trace.lowering import Multiplied

BYTES = (np.dtype("int8"), np.dtype("uint8"))
FLOATS = (dtypes.float32, dtypes.bfloat16, dtypes.float16)
HOW = Multiplied(bytes_=BYTES, beside_bytes=FLOATS)

A, G, N = 3, 32, 20
K = A * G
RNG = np.random.default_rng(0)
W = RNG.integers(0, 256, (K, N)).astype(np.uint8)
W[:2] = [[0], [255]]
S = RNG.uniform(0.5, 1, (A, N)).astype(np.float32)
Z = RNG.integers(0, 256, (A, N)).astype(np.uint8)
B = RNG.normal(size=(A, N)).astype(np.float32)
X = RNG.normal(size=(4, K)).astype(np.float32)
NEGATIVE = W.view(np.int8)


def grouped(graph: Graph) -> Graph:
    return read_bytes(graph, HOW)


def merged(q: Any) -> Any:
    return q.reshape(K, N)


def spread(x: Any, a: Any, dtype: Any = None) -> Any:
    """A number for each group and column, along the terms of it."""
    return a.astype(dtype or x.dtype)[:, None]


def groups(x: Any, w: Any, dtype: Any = None) -> Any:
    return w.reshape(A, G, N).astype(dtype or x.dtype)


def zeros(x: Any, w: Any, s: Any, z: Any) -> Any:
    return x @ merged((groups(x, w) - spread(x, z)) * spread(x, s))


def integers(x: Any, w: Any, s: Any, z: Any) -> Any:
    wide = np.dtype(np.int32)
    q = (groups(x, w, wide) - spread(x, z, wide)).astype(x.dtype)
    return x @ merged(spread(x, s) * q)


def scales(x: Any, w: Any, s: Any) -> Any:
    return x @ merged(groups(x, w) * spread(x, s))


def eight(x: Any, w: Any, s: Any) -> Any:
    return x @ merged((groups(x, w) - 8) * spread(x, s))


def affine(x: Any, w: Any, s: Any, b: Any) -> Any:
    return x @ merged(groups(x, w) * spread(x, s) + spread(x, b))


def less(x: Any, w: Any, s: Any, b: Any) -> Any:
    return x @ merged(groups(x, w) * spread(x, s) - spread(x, b))


def repeated(x: Any, w: Any, s: Any, z: Any) -> Any:
    library = np if isinstance(x, np.ndarray) else tnp
    z, s = (library.repeat(a, G, axis=0).astype(x.dtype) for a in (z, s))
    return x @ ((w.astype(x.dtype) - z) * s)


def rows(x: Any, w: Any, s: Any, z: Any) -> Any:
    """Weights, scales and zeros in rows of the terms of a column."""
    w, s, z = w.T.reshape(N, A, G), s.T[:, :, None], z.T[:, :, None]
    q = (w.astype(x.dtype) - z.astype(x.dtype)) * s.astype(x.dtype)
    return x @ q.reshape(N, K).T


def left(x: Any, w: Any, s: Any, z: Any) -> Any:
    w, s, z = w.T.reshape(N, A, G), s.T[:, :, None], z.T[:, :, None]
    q = (w.astype(x.dtype) - z.astype(x.dtype)) * s.astype(x.dtype)
    return q.reshape(N, K) @ x.T


def of_columns(x: Any, w: Any, s: Any, z: Any) -> Any:
    return x @ ((w.astype(x.dtype) - z[0].astype(x.dtype)) * s[0].astype(x.dtype))


def of_columns_and_groups(x: Any, w: Any, s: Any, z: Any) -> Any:
    return x @ merged((groups(x, w) - z[0].astype(x.dtype)) * spread(x, s))


def together(x: Any, w: Any, s: Any, z: Any) -> Any:
    """Three matrices of weights, a row for each."""
    w, s, z = (a.reshape(3, -1, *a.shape[1:]) for a in (w, s, z))
    q = (w.astype(x.dtype) - z.astype(x.dtype)) * s.astype(x.dtype)
    return x[:3, None, :G] @ q


FORMS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (zeros, (W, S, Z)),
    (zeros, (NEGATIVE, S, Z.view(np.int8))),
    (integers, (W, S, Z)),
    (integers, (NEGATIVE, S, Z.view(np.int8))),
    (scales, (W, S)),
    (eight, (W, S)),
    (affine, (NEGATIVE, S, B)),
    (less, (W, S, B)),
    (repeated, (W, S, Z)),
    (rows, (W, S, Z)),
    (left, (W, S, Z)),
    (of_columns, (W, S, Z)),
    (of_columns_and_groups, (W, S, Z)),
    (together, (W, S, Z)),
]
EACH = pytest.mark.parametrize(
    ("form", "args"), FORMS, ids=[f"{f.__name__}-{a[0].dtype}" for f, a in FORMS]
)


@EACH
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_what_is_written_out_is_read_as_bytes(form, args, dtype) -> None:
    graph = traced(form, X.astype(dtype), *args)
    found = optimise(graph, _Target())
    (product,) = [eq for eq in found.equations if eq.op is dot_general]
    assert any(a.type.dtype in BYTES for a in product.inputs)
    assert product.outputs[0].type.dtype == dtypes.float32


@EACH
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_results_are_those_of_weights_written_out(form, args, dtype) -> None:
    x = X.astype(dtype)
    # Integers of 64 bits are no floats: zeros are taken away as these are.
    exact = zeros if form is integers else form
    expected = exact(*[a.astype(np.float64) for a in (x, *args)])
    eps = max(4 * float(tnp.finfo(dtype).eps), 1e-6)
    tolerance = np.abs(expected).max() * eps
    for found in (td.jit(form)(x, *args), form(*map(tnp.asarray, (x, *args)))):
        found = np.asarray(found).astype(np.float64)
        np.testing.assert_allclose(found, expected, 0, tolerance)


class _Target(CPUTarget):
    """Has products of bytes on all machines."""

    multiplied = CPUTarget().multiplied._replace(bytes_=BYTES, beside_bytes=FLOATS)


def test_graphs_keep_their_meaning() -> None:
    found = passed(grouped, zeros, X, W, S, Z)
    (product,) = [line for line in found if "dot_general" in line]
    assert f":f32[{A},4,{N}]" in product
    assert "reduce_sum[axes=(0,)]" in found[-2]


def test_halves_are_rounded_once() -> None:
    found = lines(grouped(traced(scales, X.astype(dtypes.bfloat16), W, S)))
    assert f":bf16[4,{N}] = convert[dtype=bfloat16]" in found[-2]


def _unlike(x: Any, w: Any, s: Any, z: Any) -> Any:
    """Differences of bytes that wrap around."""
    return x @ merged((w.reshape(A, G, N) - z[:, None]).astype(x.dtype) * s[:, None])


def _each(x: Any, w: Any, s: Any, z: Any) -> Any:
    """A scale for each term."""
    return x @ (w.astype(x.dtype) * tnp.ones((K, 1)) - z[0].astype(x.dtype))


def _truncated(x: Any, w: Any, s: Any, z: Any) -> Any:
    q = (groups(x, w) * spread(x, s)).astype("int32")
    return x @ merged(q.astype(x.dtype) - spread(x, z))


@pytest.mark.parametrize("form", [_unlike, _each, _truncated])
def test_what_is_no_such_form_is_written_out(form) -> None:
    assert untouched(lambda graph: group_bytes(graph, HOW), form, X, W, S, Z)


def test_of_many_rows_weights_are_written_out() -> None:
    def first(rows: int, dtype: Any) -> bool:
        x = np.ones((rows, K), dtype)
        return untouched(lambda graph: group_bytes(graph, HOW), zeros, x, W, S, Z)

    assert not first(G // 2, np.float32)
    assert first(G // 2 + 1, np.float32)


def test_few_rows_and_many_have_programs_of_their_own() -> None:
    """And the bits that they have of fixed sizes."""
    opened = td.jit(zeros, dynamic={"x": ("n", None)})
    for count in (4, 1, 7, 40, 50, 2):
        x = RNG.normal(size=(count, K)).astype(np.float32)
        found = np.asarray(opened(x, W, S, Z))
        np.testing.assert_array_equal(found, np.asarray(td.jit(zeros)(x, W, S, Z)))


def test_weights_that_are_mapped_over() -> None:
    x, (w, s, z) = X[:, None], [np.stack([a] * 4) for a in (W, S, Z)]
    found = np.asarray(td.jit(td.vmap(zeros))(x, w, s, z))[:, 0]
    expected = zeros(*[a.astype(np.float64) for a in (X, W, S, Z)])
    np.testing.assert_allclose(found, expected, 0, np.abs(expected).max() * 1e-6)


@pytest.mark.parametrize("how", [Multiplied(), HOW._replace(beside_bytes=())])
def test_nothing_is_done_without_kernels_of_bytes(how: Multiplied) -> None:
    graph = traced(zeros, X, W, S, Z)
    assert group_bytes(graph, how) is graph
