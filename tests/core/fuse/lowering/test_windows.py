"""Nests of windows on their own, against what their ops mean in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.evaluate import meant
from tests.core.fuse.graphs import traced
from tests.core.fuse.lowering.alone import (
    agrees,
    kernel,
    needs_copies,
    normal,
    op_names,
)
from tests.core.fuse.test_windows import FORMS as ALL
from treadle.fuse.lowering import windows
from treadle.fuse.lowering.windows import window_launches
from treadle.ops import window
from treadle.ops.movement import transpose

# What reads an empty array is filled instead.
FORMS = {name: form for name, form in ALL.items() if name != "nothing"}
NAMES = ["sum", "max", "min", "argmax", "argmin"]
SMALL = {
    "inside": ((1, 4, 4, 2), (2, 2), (1, 1), ((0, 0), (0, 0))),
    "before": ((1, 4, 4, 2), (2, 2), (1, 1), ((1, 0), (0, 0))),
    "after": ((1, 4, 4, 2), (2, 2), (1, 1), ((0, 0), (0, 1))),
    "padding only": ((1, 3, 3, 2), (2, 2), (2, 2), ((2, 0), (0, 3))),
}


def options(form: str) -> tuple[tuple[int, ...], dict[str, Any]]:
    shape, size, strides, padding = (FORMS | SMALL)[form]
    return shape, {"window": size, "strides": strides, "padding": padding}


def reduction(name: str, form: str) -> tuple[Any, np.ndarray]:
    shape, how = options(form)
    # Few values: extremes are often there twice.
    x = np.random.default_rng(0).integers(-3, 4, size=shape).astype(np.float32)
    return lambda x: getattr(window, f"reduce_window_{name}")(x, **how), x


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", [*FORMS, *SMALL])
@pytest.mark.usefixtures("elements")
def test_reductions(name: str, form: str) -> None:
    agrees(*_with(reduction(name, form)))


@pytest.fixture(params=["loop", "one by one"])
def elements(request: Any, monkeypatch: Any) -> str:
    """How the elements of windows are written."""
    monkeypatch.setattr(windows, "_FEW", 0 if request.param == "loop" else 100)
    return request.param


def _with(case: tuple[Any, np.ndarray]) -> tuple[Any, Any, np.ndarray]:
    function, x = case
    return function, window_launches, x


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_of_values_that_are_no_numbers(name: str) -> None:
    function, x = reduction(name, "stem")
    x[0, 1, 2], x[1, 3] = np.nan, -np.inf if name == "argmax" else np.inf
    agrees(function, window_launches, x)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("elements")
def test_padding_never_wins(name: str) -> None:
    for sign in (-5, 5):
        function, x = reduction(name, "padding only")
        agrees(function, window_launches, x * 0 + np.float32(sign))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.usefixtures("elements")
def test_numbers_put_back_into_an_array(form: str) -> None:
    shape, how = options(form)
    function, x = reduction("argmax", form)
    graph, _ = kernel(function, window_launches, x)
    ct = normal(*graph.outputs[0].type.shape)
    spatial = shape[1:-1]
    places = np.asarray(_meant(function, x))

    def put(ct: Any, places: Any) -> Any:
        return window.window_put(ct, places, spatial=spatial, **how)

    agrees(put, window_launches, ct, places)
    agrees(
        lambda ct: window.window_put(ct, spatial=spatial, **how), window_launches, ct
    )
    # Places beyond the array are of elements that are padding.
    agrees(put, window_launches, ct, np.full_like(places, -1))

    def pick(x: Any, places: Any) -> Any:
        return window.window_pick(x, places, **how)

    agrees(pick, window_launches, x, places)
    agrees(pick, window_launches, x, np.full_like(places, -1))


def _meant(function: Any, x: np.ndarray) -> Any:
    return meant(traced(function, x), [x])[0]


def test_what_is_inside_is_read_without_a_look(elements: str) -> None:
    """Only windows that reach beyond the array compare indices: once, or once for each
    of two rows or columns of four elements."""
    times, joins = (1, 0) if elements == "loop" else (2, 3)
    for form, looks in (
        ("inside", 0),
        ("before", 1),
        ("after", 1),
        ("padding only", 2),
    ):
        function, x = reduction("max", form)
        found = op_names(*agrees(function, window_launches, x))
        assert found.count("maximum") == joins + times * looks, form
        # An extreme may see an element twice; a window without elements is padding.
        assert ("select" in found) == (form == "padding only"), form
    function, x = reduction("sum", "before")
    selects = 1 if elements == "loop" else 4
    assert op_names(*agrees(function, window_launches, x)).count("select") == selects


def test_few_elements_are_no_loop() -> None:
    shape, how = (1, 4, 4, 2), {"strides": (2, 2), "padding": ((0, 0), (0, 0))}
    x = normal(*shape)
    (one,) = agrees(
        lambda x: window.reduce_window_sum(x, window=(1, 1), **how), window_launches, x
    )
    assert (one.nest.mid, one.nest.axis) == (0, "inner")
    (wide,) = agrees(
        lambda x: window.reduce_window_sum(x, window=(3, 4), **how), window_launches, x
    )
    assert (wide.nest.mid, wide.mid) == (1, (12,))


def test_transposed_pixels_have_no_one_step() -> None:
    _, how = options("inside")
    x, at = normal(1, 4, 4, 2), np.zeros((1, 3, 3, 2), np.int32)

    def turned(x: Any, places: Any) -> Any:
        x = transpose(x, permutation=(0, 2, 1, 3))
        return window.window_pick(x, places, **how)

    assert needs_copies(turned, window_launches, x, at)
    function = lambda x: window.reduce_window_sum(  # noqa: E731
        transpose(x, permutation=(0, 2, 1, 3)), **how
    )
    agrees(function, window_launches, x)


def test_only_the_ends_of_rows_move_indices() -> None:
    shape, how = options("channels first")
    x = normal(*shape)
    for function in (
        lambda x: window.reduce_window_max(x, **how),
        lambda x: window.window_put(x, spatial=shape[1:-1], **how),
    ):
        inside = [
            not any(o.gathers > 1 for o in launch.nest.operands)
            for launch in agrees(function, window_launches, x)
        ]
        assert inside == [False, True, False]


@pytest.mark.parametrize("sides", [(3, 3), (5, 4), (1, 11)])
@pytest.mark.parametrize("name", ["add", "max"])
def test_open_lines_have_the_bits_of_fixed_ones(
    name: str, sides: tuple[int, int]
) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 20, 70)).astype(np.float32)
    padding = ((0, 0), (0, 0), *((n // 2, n // 2) for n in sides))
    first = np.float32({"add": 0, "max": -np.inf}[name])

    def pooled(x: Any) -> Any:
        how = getattr(td.lax, name)
        return td.lax.reduce_window(x, first, how, (1, 1, *sides), None, padding)

    def both(x: Any) -> Any:
        return pooled(x), td.grad(lambda x: tnp.sum(pooled(x) ** 2))(x)

    opened = td.jit(both, dynamic={"x": (None, None, "h", "w")})
    for columns in (69, 70):
        got, wanted = opened(x[..., :columns]), td.jit(both)(x[..., :columns])
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(a, b, strict=True)
