"""cond and switch against JAX; what concrete predicates do; errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.control.both import JAX, PROPERTIES, TREADLE, array, check, close
from treadle.errors import StructureError
from treadle.ir.check import check as check_graph


def closures(lib: Any) -> Any:
    def run(x: Any, y: Any) -> Any:
        return lib.cond(
            x > 0,
            lambda a: {"u": lib.np.sin(a) * y, "v": a},
            lambda a: {"u": lib.np.exp(y) * a, "v": lib.np.sum(y * a)},
            x,
        )

    return run


def zero_branch(lib: Any) -> Any:
    """A branch that depends on nothing, and Python numbers as results."""
    return lambda x: lib.cond(x > 0, lambda x: x * x, lambda x: lib.np.zeros(()), x)


def switching(lib: Any) -> Any:
    def run(x: Any, m: Any) -> Any:
        index = lib.np.floor(x * 3).astype(np.int32)
        branches = [
            lambda m: lib.np.sin(m) @ m,
            lambda m: m * x,
            lambda m: lib.np.tanh(m) * lib.np.exp(x) + m,
        ]
        return lib.switch(index, branches, m)

    return run


def nested(lib: Any) -> Any:
    def run(x: Any, y: Any) -> Any:
        def outer(a: Any) -> Any:
            return lib.cond(y > 0, lambda b: lib.np.sin(b) * y, lambda b: b * y, a * x)

        return lib.cond(x > 0, outer, lambda a: lib.np.exp(a), y)

    return run


CASES: dict[str, tuple[Any, list[np.ndarray]]] = {
    "closures": (closures, [array(), array(3)]),
    "zero branch": (zero_branch, [array(seed=1)]),
    "switching": (switching, [array(), array(3, 3)]),
    "nested": (nested, [array(), array(seed=2)]),
}


@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.parametrize("case", CASES)
def test_agrees(case: str, name: str) -> None:
    build, args = CASES[case]
    check(build, args, name)
    check(build, [-args[0], *args[1:]], name)


def test_index_is_clamped() -> None:
    def build(lib: Any) -> Any:
        fs = [lambda x: x, lambda x: x * 2, lambda x: x * 3]
        return lambda i, x: lib.switch(i, fs, x)

    for i in (-5, 0, 2, 9):
        args = np.int32(i), np.float32(1.5)
        close(TREADLE.jit(build(TREADLE))(*args), JAX.jit(build(JAX))(*args))
    every = np.arange(-2, 5, dtype=np.int32)
    close(
        td.vmap(build(TREADLE), (0, None))(every, np.float32(2)),
        JAX.vmap(build(JAX), (0, None))(every, np.float32(2)),
    )


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_known_predicate_runs_one_branch() -> None:
    ran = []

    def branch(name: str) -> Any:
        return lambda x: ran.append(name) or x

    td.cond(tnp.array(True), branch("yes"), branch("no"), 1.0)
    td.grad(lambda x: td.cond(x > 0, branch("yes"), branch("no"), x))(-1.0)
    td.jit(lambda x: td.cond(True, branch("yes"), branch("no"), x))(1.0)
    assert ran == ["yes", "no", "yes"]


def test_numbers_take_the_dtype_of_the_other_branch() -> None:
    f = td.jit(lambda p, x: td.cond(p, lambda: 0, lambda: x))
    assert f(True, np.float32(2)).dtype == np.float32


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8"])
def test_numbers_of_all_branches_take_the_dtype_beside_them(dtype: str) -> None:
    """As they do where one branch is called, and in JAX."""

    def build(lib: Any) -> Any:
        first = (lambda: 2) if dtype == "int8" else (lambda: 1.5)
        numbers = [first, lambda: 3]
        if lib is JAX:
            numbers = numbers[:1] * 2  # of one type there
        return lambda x: lib.switch(lib.np.int32(x[0]), numbers) * x

    x = tnp.ones(3, dtype) * 0
    wanted = np.asarray(JAX.jit(build(JAX))(np.asarray(x)))
    run = build(TREADLE)
    for f in (run, td.jit(run)):
        found = np.asarray(f(x))
        assert found.dtype == wanted.dtype == x.dtype
        np.testing.assert_array_equal(found, wanted)


def test_predicate_may_be_a_number() -> None:
    f = td.jit(lambda n: td.cond(n, lambda: 1.0, lambda: 2.0))
    assert (float(f(3)), float(f(0))) == (1.0, 2.0)


def test_branches_share_slots_of_residuals() -> None:
    def f(i: Any, x: Any) -> Any:
        branches = [lambda x: tnp.exp(x), lambda x: tnp.tanh(x), lambda x: x]
        return tnp.sum(td.switch(i, branches, x))

    graph = td.trace(td.grad(f, 1))(np.int32(0), array(4))
    check_graph(graph)
    forward, _ = [eq for eq in graph.equations if eq.op.name == "cond"]
    # One residual for exp or for tanh.
    assert len(forward.outputs) == 2


# Errors -------------------------------------------------------------------------------


def test_types_differ() -> None:
    def f(x: Any) -> Any:
        return td.cond(x > 0, lambda: {"a": x}, lambda: {"a": tnp.ones(3)})

    with pytest.raises(TypeError, match=r"\['a'\] must have one type") as error:
        td.jit(f)(1.0)
    assert "f32[3]" in str(error.value)
    assert "test_cond.py" in str(error.value)


def test_structures_differ() -> None:
    with pytest.raises(StructureError, match="one structure"):
        td.jit(lambda x: td.cond(x > 0, lambda: (x, x), lambda: x))(1.0)


def test_predicate_is_an_array() -> None:
    with pytest.raises(TypeError, match="predicate must be a scalar"):
        td.cond(tnp.array([True, False]), lambda: 1, lambda: 2)


def test_index_is_a_float() -> None:
    with pytest.raises(TypeError, match="must be an integer"):
        td.switch(1.5, [lambda: 1, lambda: 2])
    with pytest.raises(ValueError, match="at least one"):
        td.switch(1, [])
