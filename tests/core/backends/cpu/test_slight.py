"""Nests that hardly count are compiled in a hurry: the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.backends.cpu.row_programs import PROGRAMS, kernels, kernels_of, values
from treadle.backends.cpu.run import native
from treadle.backends.cpu.sources import nest_source, sources_of
from treadle.plan.steps import NestStep, ProductStep

LARGE = np.ones((800, 800), np.float32)


@pytest.mark.parametrize("columns", [7, 64])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_good_code(name: str, columns: int) -> None:
    f, expected = PROGRAMS[name]
    x = values(columns)
    given = tnp.asarray(x)

    def beside(x: Any, a: Any) -> Any:
        return f(x), a @ a

    compiled = td.jit(beside)
    plan = compiled.lower(given, tnp.asarray(LARGE)).plan
    assert all(words[0] == "slight" for words in kernels(plan.steps))
    alone = td.jit(f)
    assert not any("slight" in w for w in kernels(alone.lower(given).plan.steps))
    found = np.asarray(compiled(given, LARGE)[0])
    assert found.tobytes() == np.asarray(alone(given)).tobytes()
    rtol = 2e-2 if name == "halves" else 2e-5
    wanted = expected(x.astype(np.float64))
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol)


def test_work_on_the_results_of_a_small_product_may_be_slight() -> None:
    def f(x: Any, y: Any, a: Any) -> Any:
        return tnp.tanh(x @ y) + 1, a @ a

    x = np.random.default_rng(0).standard_normal((20, 20)).astype(np.float32)
    plan = td.jit(f).lower(x, x, LARGE).plan
    hooks = [s.product.epilogue for s in plan.steps if isinstance(s, ProductStep)]
    assert [h.slight for h in hooks if h is not None] == [True]
    keys = [s.key for s in sources_of(plan.steps)]
    assert any(key.startswith("slight nest tile") for key in keys)
    found, _ = td.jit(f)(x, x, LARGE)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(np.asarray(found), np.tanh(wide @ wide) + 1, atol=1e-6)


def test_good_code_that_is_there_is_taken() -> None:
    def f(x: Any) -> Any:
        return tnp.sinh(x) * 0.53125

    x = np.linspace(-1, 1, 100).astype(np.float32)
    good = np.asarray(td.jit(f)(x))
    compiled = td.jit(lambda x, a: (f(x), a @ a))
    steps = compiled.lower(x, LARGE).plan.steps
    (launch,) = [s.launch for s in steps if isinstance(s, NestStep)]
    source = nest_source(launch.nest, "task", slight=True)
    assert source.level == 0 and launch.slight
    assert np.asarray(compiled(x, LARGE)[0]).tobytes() == good.tobytes()
    better = nest_source(launch.nest, "task")
    addresses = native.load([source]), native.load([better])
    assert addresses[0][source.key] == addresses[1][better.key]


def test_what_has_an_open_size_has_good_code() -> None:
    def f(x: Any, a: Any) -> Any:
        return tnp.exp(x), a @ a

    assert "slight" in kernels_of(f, (3, 128), LARGE.shape)
    assert "slight" not in kernels_of(f, (3, "n"), LARGE.shape)
