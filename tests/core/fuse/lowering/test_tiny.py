"""Products of batches of tiny matrices, each element a sum of terms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.dynamic import same_bytes
from tests.core.fuse.native import runs_natively, steps_of
from treadle.plan.steps import ProductStep, walk

rng = np.random.default_rng(0)
FORMULAS = {
    "bij,bjk->bik": ((40, 3, 3), (40, 3, 3)),
    "bij,bkj->bik": ((15, 2, 5), (15, 4, 5)),
    "jbi,bjk->ibk": ((4, 40, 2), (40, 4, 3)),
    "abij,bajk->abik": ((3, 7, 3, 2), (7, 3, 2, 4)),
    "bijk,bkl->bijl": ((9, 2, 3, 3), (9, 3, 2)),
    "bij,bjk->bik, one": ((1, 4, 4), (1, 4, 4)),
}


def drawn(*shape: int, dtype: str = "float32") -> Any:
    return tnp.asarray(rng.normal(size=shape) * 9).astype(dtype)


def einsum(formula: str) -> Callable[..., Any]:
    return lambda x, y: tnp.einsum(formula.partition(", ")[0], x, y)


@pytest.mark.usefixtures("checked_by_reference")
@pytest.mark.parametrize("dtype", ["float32", "int32", "float16", "complex64"])
@pytest.mark.parametrize("formula", FORMULAS)
def test_are_native(formula: str, dtype: str) -> None:
    x, y = (drawn(*s, dtype=dtype) for s in FORMULAS[formula])
    runs_natively(einsum(formula), x, y)
    wanted = np.einsum(
        formula.partition(", ")[0], *(np.asarray(a, "complex128") for a in (x, y))
    )
    found = np.asarray(td.jit(einsum(formula))(x, y), "complex128")
    tolerance = 1e-2 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(found, wanted, tolerance, tolerance * 100)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("formula", FORMULAS)
def test_bits_are_those_of_the_matrix_kernel(formula: str, dtype: str) -> None:
    """Where the length of the sum is open, the kernel multiplies."""
    f = einsum(formula)
    x, y = (drawn(*s, dtype=dtype) for s in FORMULAS[formula])
    assert bool(_products(f, x, y)) == formula.endswith("one")
    letters = formula.partition("->")[0].split(",")
    names = {k: tuple(axes) for k, axes in zip("xy", letters, strict=True)}
    any_size = td.jit(f, dynamic=names)
    kinds = {type(s) for _, s in walk(any_size.lower(x, y).plan.steps)}
    assert ProductStep in kinds
    np.testing.assert_array_equal(any_size(x, y), td.jit(f)(x, y))


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "summed": lambda x, y: tnp.sum(x @ y, 0),
    "summed along rows": lambda x, y: tnp.sum(x @ y, 1),
    "worked on": lambda x, y: tnp.maximum(x @ y * 0.5 + x[:, :, :1], 0),
    "worked on and summed": lambda x, y: tnp.sum(tnp.sin(x @ y), (0, 1)),
    "a part": lambda x, y: tnp.concatenate([x @ y, y[:, :1] * 2], 1),
    "returned too": lambda x, y: (x @ y, (x @ y) * 2),
}
SHAPES: dict[str, Callable[[int], tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "rows": lambda n: ((6, n, 1), (6, 1, 4)),
    "columns": lambda n: ((6, 3, 2), (6, 2, n)),
    "terms": lambda n: ((6, 3, n), (6, n, 4)),
    "batches": lambda n: ((n, 3, 3), (n, 3, 3)),
    "square": lambda n: ((7, n, n), (7, n, n)),
}


@pytest.mark.usefixtures("checked_by_reference")
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_open_sizes_have_the_bits_of_fixed_ones(program: str, shapes: str) -> None:
    """Also where something sums what they make: the same things run together."""
    function = PROGRAMS[program]
    compiled = td.jit(function)
    for n in (7, 2, 1, 5):
        args = [drawn(*shape) for shape in SHAPES[shapes](n)]
        wanted = td.jit(lambda *xs: function(*xs))(*args)
        assert not (why := same_bytes(compiled(*args), wanted)), f"of {n}: {why}"


def test_larger_ones_are_products() -> None:
    x = drawn(7, 6, 6)
    assert _products(tnp.matmul, x, x)


def _products(f: Callable[..., Any], *args: Any) -> list[Any]:
    return [s for s in steps_of(f, *args) if isinstance(s, ProductStep)]
