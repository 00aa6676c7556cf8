"""The tables of the ops with axes of any size, against programs for one size."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
from tests.core.dynamic import Arg, agree, rows, with_derivatives
from tests.core.ops import elementwise_cases
from tests.core.ops.cases import Case
from tests.core.ops.dynamic_rows import ROWS, Row
from tests.core.ops.test_ops import CASES, single


def name_of(row: Case | Row) -> str:
    return row.name


def _examples(case: Case, i: int, count: int) -> np.ndarray:
    """Argument i of the case, several times."""
    wide = case.op.name == "bitcast"
    return np.stack(
        [case.draw(seed)[i] if wide else single(case, seed)[i] for seed in range(count)]
    )


def _stacked(case: Case) -> list[Arg]:
    """The case's arguments with a new first axis, of any length."""

    def arg(i: int, example: np.ndarray) -> Arg:
        axes = ["n", *map(str, example.shape)]
        return Arg(" ".join(axes), lambda rng, shape: _examples(case, i, shape[0]))

    return [arg(i, x) for i, x in enumerate(case.draw())]


@pytest.mark.parametrize("case", rows([c for c in CASES if c.args], name_of))
def test_a_batch_of_any_size(case: Case) -> None:
    function = case.function
    both = with_derivatives(case.op, function) if case.smooth else function
    agree(td.vmap(both), _stacked(case))


def _of_any_shape(case: Case) -> list[Arg]:
    """The case's arguments, the elements repeated along axes of any length."""

    def arg(i: int, rank: int) -> Arg:
        def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
            return np.resize(_examples(case, i, 1), shape)

        return Arg(("", "n", "n m")[rank], draw)

    return [arg(i, x.ndim) for i, x in enumerate(case.draw())]


@pytest.mark.parametrize("case", rows(elementwise_cases.CASES, name_of))
def test_elements_of_any_shape(case: Case) -> None:
    agree(with_derivatives(case.op, case.function), _of_any_shape(case))


@pytest.mark.parametrize("row", rows(ROWS, name_of))
def test_axes_of_any_length(row: Row) -> None:
    function = with_derivatives(row.op, row.function)
    agree(function, row.args, row.sizes, row.guards)
