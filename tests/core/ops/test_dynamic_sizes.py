"""The tables of the ops with axes of any size, against programs for one size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
from tests.core.dynamic import Arg, agree, differentiable, with_derivatives
from tests.core.ops.cases import Case
from tests.core.ops.test_ops import CASES, single


def _stacked(case: Case) -> list[Arg]:
    """The case's arguments with a new first axis, of any length."""

    def arg(i: int) -> Arg:
        def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
            examples = [single(case, seed)[i] for seed in range(shape[0])]
            return np.stack(examples)

        rank = np.ndim(case.draw()[i])
        return Arg("n" + " 1" * rank, draw)

    return [arg(i) for i in range(len(case.args))]


@pytest.mark.parametrize("case", [c for c in CASES if c.args], ids=lambda c: c.name)
def test_a_batch_of_any_size(case: Case) -> None:
    function: Any = case.function
    args = case.draw()
    if case.op.differentiable and differentiable(args):
        function = with_derivatives(function)
    agree(td.vmap(function), _stacked(case))
