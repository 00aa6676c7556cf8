"""When a kernel asks whether its rows have one element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle.numpy as tnp
from tests.core.fuse.graphs import program_of
from tests.core.passes.shown import opened
from treadle.arraytype import ArrayType
from treadle.dims import Scope
from treadle.fuse.lowering.launches import Binding, Launch
from treadle.fuse.lowering.rows import settle_rows
from treadle.ir.graph import Var
from treadle.kernels.nest import BROADCAST, CONTIGUOUS, Instr, Nest, Operand

F = np.dtype("float32")


def launch(
    outer: Any,
    inner: Any,
    *,
    computed: bool = True,
    axis: str = "inner",
    reduces: bool = True,
) -> Launch:
    """A nest that sums what it loads, or what it makes of that."""
    body = [Instr("load", (), F, 0)]
    if computed:
        body.append(Instr("exp", (0,), F))
    if reduces:
        body.append(Instr("reduce_sum", (len(body) - 1,), F))
    body.append(Instr("store", (len(body) - 1,), F, 1))
    operands = Operand(F, CONTIGUOUS), Operand(F, BROADCAST)
    bound = [Binding(Var(ArrayType((1,), F)), 0, (0,), s) for s in (False, True)]
    return Launch(
        Nest(1, 0, axis, operands, tuple(body)), (outer,), (), inner, tuple(bound)
    )


def asked(function: Callable[..., Any], rows: int, length: int, **how: Any) -> int:
    """How many guards there are after a kernel of a function's first reduction, and of
    what makes its operand, has been looked at."""
    graph, scope = opened(function, ("n", "m"), n=rows, m=length)
    n, m = graph.inputs[0].type.shape
    settle_rows(launch(n, m, **how), graph.equations[:2], program_of(graph))
    return len(scope.guards)


def twice(x: Any) -> Any:
    return tnp.exp(x).sum(1).sum(0)


def once(x: Any) -> Any:
    return tnp.exp(x).sum(1)


@pytest.mark.parametrize("length", [1, 5])
def test_few_rows_whose_sums_are_summed(length: int) -> None:
    """Both are asked whether they are very many, and only they whether they are one."""
    assert (asked(once, 3, length), asked(twice, 3, length)) == (1, 2)


@pytest.mark.parametrize("how", [{"axis": "mid"}, {"reduces": False}])
def test_others_are_not_asked(how: dict[str, Any]) -> None:
    assert asked(twice, 3, 5)
    assert not asked(twice, 3, 5, **how)


def test_lengths_that_are_known_are_not_asked() -> None:
    graph, scope = opened(twice, ("n", 5), n=3)
    (n, m) = graph.inputs[0].type.shape
    settle_rows(launch(n, m), graph.equations[:2], program_of(graph))
    assert not scope.guards


def test_terms_that_are_only_loaded_or_are_no_sums() -> None:
    """They are the same in every order of kernels; but there may be many rows."""
    for function, how in (
        (twice, {"computed": False}),
        (lambda x: tnp.exp(x).max(1).sum(0), {}),
        (lambda x: tnp.exp(x).sum(1).max(0), {}),
    ):
        assert asked(function, 3, 5, **how) == 1


@pytest.mark.parametrize(
    ("rows", "length", "wanted"),
    [(1 << 15, 1, 1), ((1 << 15) - 1, 1, 0), (1 << 15, 2, 0), (3, 1, 0)],
)
def test_very_many_rows_of_one_element(rows: int, length: int, wanted: int) -> None:
    graph, scope = opened(once, ("n", "m"), n=rows, m=length)
    n, m = graph.inputs[0].type.shape
    settle_rows(launch(n, m), graph.equations[:2], program_of(graph))
    (guard,) = scope.guards.values()
    assert guard.holds
    sizes = {"n": 1 << 15, "m": 1}
    other = dict(sizes, m=2) if wanted else sizes
    assert holds(scope, n=rows, m=length)
    assert not holds(scope, **other)


def holds(scope: Scope, **sizes: int) -> bool:
    """Whether the guards do for other sizes."""
    return not list(scope.failing([sizes[a.name] for a in scope.atoms if a.fn is None]))


def test_one_computed_term_is_enough() -> None:
    graph, scope = opened(twice, ("n", "m"), n=3, m=5)
    n, m = graph.inputs[0].type.shape
    made = launch(n, m)
    both = (*made.nest.body, Instr("reduce_max", (0,), F))
    nest = Nest(1, 0, "inner", made.nest.operands, both)
    settle_rows(made._replace(nest=nest), graph.equations[:2], program_of(graph))
    assert len(scope.guards) == 2
