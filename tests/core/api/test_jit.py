"""jit: what is traced again, what is compiled again, and what explain says."""

from __future__ import annotations

import copy
import functools
import gc
import json
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.api import small_models
from tests.refused import refused
from treadle import nn, tree
from treadle.backends.cpu.run import native
from treadle.errors import DonatedError

TRAIN = """
import json
import numpy as np
import treadle as td
from tests.core.api.small_models import mlp_step, mlp_parameters
from treadle.backends import installed
from treadle.backends.cpu.run.native import stats

installed.forget()
x, y = np.ones((8, 6), np.float32), np.zeros(8, np.int32)
parameters, loss = td.jit(mlp_step)(mlp_parameters(), x, y, 0.1)
print(json.dumps([stats.compiled, stats.from_disk, float(loss)]))
"""


def in_a_new_process(cache: Path) -> list[Any]:
    root = Path(__file__).parents[3]
    env = os.environ | {"TREADLE_CACHE_DIR": str(cache), "PYTHONPATH": str(root)}
    out = subprocess.run(
        [sys.executable, "-c", TRAIN], env=env, capture_output=True, text=True
    )
    assert out.returncode == 0, out.stderr
    return json.loads(out.stdout)


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    compiled, from_disk, loss = in_a_new_process(tmp_path)
    assert compiled > 0 and from_disk == 0
    assert in_a_new_process(tmp_path) == [0, compiled, loss]


@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_a_new_batch_size_compiles_nothing(name: str, monkeypatch) -> None:
    step = td.jit(getattr(small_models, name + "_step"))
    parameters = getattr(small_models, name + "_parameters")()
    batch = getattr(small_models, name + "_batch")
    for _ in range(2):  # the second call readies what open sizes need, on a thread
        step(parameters, *batch(16), 0.1)
    before = set(native._functions)
    if native.cpu_count() > 1:
        monkeypatch.setattr(native, "compile_all", refuse)
    step(parameters, *batch(24), 0.1)
    more = {f"contract_{name}/float" for name in ("turned", "streamed", "all")}
    # Rows that were known to be whole vectors, or a slight part of the program.
    general = {
        key.split()[-1] for key in before if key.startswith(("nest w", "slight"))
    }
    more |= {f"nest task {digest}" for digest in general}
    assert set(native._functions) - before <= more
    before = set(native._functions)
    for size in (56, 3):
        step(parameters, *batch(size), 0.1)
    assert set(native._functions) == before


def refuse(sources: list[native.Source]) -> list[bytes]:
    assert not sources, "these were not begun ahead"
    return []


class Counted:
    """A function that counts how often it is traced."""

    def __init__(self) -> None:
        self.traces = 0

    def __call__(self, x: Any, rate: Any = 1.0, flag: Any = None) -> Any:
        self.traces += 1
        return x * rate if flag != "neg" else -x * rate


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_python_numbers_do_not_trace_again() -> None:
    function = Counted()
    step = td.jit(function)
    for rate in (0.1, 0.2, 3.0):
        assert step(tnp.ones(2), rate).dtype == np.float32
        np.testing.assert_allclose(step(tnp.ones(2), rate), [rate] * 2, 1e-6)
    assert function.traces == 1
    step(tnp.ones(2), tnp.asarray(0.5))
    step(tnp.ones(3), 0.5)
    assert function.traces == 3


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_static_arguments_are_python_values() -> None:
    function = Counted()
    step = td.jit(function, static="flag")
    np.testing.assert_array_equal(step(tnp.ones(2), 2.0, flag="neg"), [-2, -2])
    np.testing.assert_array_equal(step(tnp.ones(2), 2.0, flag="pos"), [2, 2])
    step(tnp.ones(2), 3.0, flag="neg")
    assert function.traces == 2
    with pytest.raises(TypeError, match="not hashable"):
        step(tnp.ones(2), 2.0, flag=[])


def test_a_stand_in_is_enough_to_look_at_a_program() -> None:
    f = td.jit(lambda tree, n: tree["x"] * n + 1)
    x = tnp.ones((2, 3), "bfloat16")
    stand_in = {"x": td.ShapeDtype((2, 3), "bfloat16")}
    assert f.lower(stand_in, 2).plan is f.lower({"x": x}, 2).plan
    assert f.graph(stand_in, 2) is f.graph({"x": x}, 2)
    assert "mul" in f.explain(stand_in, 2)
    for call in (f, td.grad(f), td.vmap(f, in_axes=(0, None))):
        refused(
            lambda call=call: call(stand_in, 2),
            TypeError,
            "['x']` of",
            "is a ShapeDtype (bf16[2,3])",
            "no values: pass an array",
        )


def test_explain_lists_kernels_work_and_callbacks() -> None:
    def function(x: Any, w: Any) -> Any:
        y = tnp.maximum(x @ w, 0)
        return td.pure_callback(np.sqrt, td.ShapeDtype(y.shape), y)

    report = td.jit(function).explain(tnp.ones((64, 128)), tnp.ones((128, 32)))
    for text in (
        "MFLOP",
        "MB",
        "maximum",
        "arena",
        "host callbacks",
        "1 x pure_callback: it calls a Python function",
    ):
        assert text in report
    assert "0.53 MFLOP" in report  # the product, and a maximum for each element
    assert "host callbacks" not in td.jit(lambda x: x + 1).explain(1.0)


def test_jit_inside_of_transforms_and_of_jit() -> None:
    inner = td.jit(lambda x: tnp.sin(x) * x)
    x = tnp.asarray(np.linspace(-1, 1, 5, dtype=np.float32))
    wanted = np.cos(x) * x + np.sin(x)
    total = lambda x: tnp.sum(inner(x))  # noqa: E731
    np.testing.assert_allclose(td.grad(total)(x), wanted, 1e-5)
    np.testing.assert_allclose(td.jit(td.grad(td.jit(total)))(x), wanted, 1e-5)
    np.testing.assert_allclose(td.vmap(td.grad(inner))(x), wanted, 1e-5)


@pytest.mark.parametrize("values", [(1, 1.0, True), ((2,), (2.0,))])
def test_equal_static_values_of_different_types_are_different(values: tuple) -> None:
    """JAX compares the types of static arguments too."""
    ours = td.jit(lambda x, n: x * np.array(n).item(), static="n")
    theirs = jax.jit(lambda x, n: x * np.array(n).item(), static_argnums=1)
    x = np.arange(3, dtype=np.int32)
    for value in values:
        wanted = theirs(x, np.array(value).item())
        assert ours(x, value).dtype == wanted.dtype
        np.testing.assert_array_equal(ours(x, value), wanted)


def test_positions_count_from_the_end_too() -> None:
    step = td.jit(lambda x, flag: x if flag == "same" else -x, static=-1)
    np.testing.assert_array_equal(step(tnp.ones(2), flag="minus"), [-1, -1])
    np.testing.assert_array_equal(step(tnp.ones(2), "same"), [1, 1])
    with pytest.raises(ValueError, match="'flag' can't be static and donated"):
        td.jit(lambda x, flag: x, static=-1, donate="flag")
    for donate in (-1, 1, "b"):
        a, b = tnp.ones(3), tnp.ones(3)
        td.jit(lambda a, b: a + b, donate=donate)(a, b)
        np.testing.assert_array_equal(a, np.ones(3))
        with pytest.raises(DonatedError):
            b + 1
    last = tnp.ones(3)
    td.jit(lambda *parts: sum(parts), donate=-1)(tnp.ones(3), 2.0, last)
    with pytest.raises(DonatedError):
        last + 1


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_an_argument_that_is_only_named_has_no_position() -> None:
    function = Counted()
    step = td.jit(lambda x, *rest, flag: function(x + sum(rest)), static="flag")
    for third in (3.0, 4.0, 5.0):
        assert step(tnp.ones(1), 2.0, third, flag=True) == 3.0 + third
    assert function.traces == 1


@pytest.mark.parametrize("which", [None, 1.5, True, (0, None), [2.5]])
@pytest.mark.parametrize("what", ["static", "donate"])
def test_what_selects_no_argument_is_an_error(what: str, which: Any) -> None:
    with pytest.raises(TypeError, match=f"{what} takes names and positions"):
        td.jit(lambda x: x, **{what: which})


@pytest.mark.parametrize("which", ["rest", "y", 1, -2])
def test_arguments_that_are_not_there_are_errors(which: Any) -> None:
    function = (lambda x, *rest: x) if which == "rest" else (lambda x, *, z=1: x)
    listed = r"x \(0\)" if which == "rest" else r"x \(0\), z"
    with pytest.raises(ValueError, match=f"no such argument; its arguments.*{listed}"):
        td.jit(function, static=which)


@dataclass
class Scaled:
    factor: float


tree.register_dataclass(Scaled, static=["factor"])


class Layer(nn.Module):
    factor: float


@pytest.mark.parametrize("held", [Scaled, Layer, lambda factor: factor])
@pytest.mark.parametrize("values", [(0.0, -0.0), (1, 1.0, True)])
@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_static_values_are_told_apart_wherever_they_are(
    held: Any, values: tuple
) -> None:
    function = Counted()
    static = "part" if held(0.0) == 0.0 else ()
    step = td.jit(lambda part, x: function(x), static=static)
    for value in (*values, *values):
        step(held(value), 1.0)
    assert function.traces == len(values)


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
@pytest.mark.parametrize("size", [3, 1000])
def test_arrays_of_numpy_that_a_function_closes_over_are_as_they_are(
    size: int,
) -> None:
    mine = np.ones(size, np.float32)
    ours = td.jit(lambda x: x + mine)
    x = np.zeros(size, np.float32)
    for number in (1, 7, 7, 3):
        mine[:] = number
        np.testing.assert_array_equal(ours(x), jax.jit(lambda x: x + mine)(x))


def test_methods_can_be_looked_into() -> None:
    class Model:
        @td.jit(static="self")
        def double(self, x: Any) -> Any:
            return x * 2

    model, x = Model(), tnp.ones(3)
    np.testing.assert_array_equal(model.double(x), [2, 2, 2])
    assert "mul" in model.double.explain(x)
    assert model.double.graph(x).out_types[0].shape == (3,)
    bound, free = model.double.lower(x), Model.double.lower(model, x)
    assert bound.compile().program is free.compile().program


def test_the_collector_rests_while_a_function_is_traced() -> None:
    seen = []

    def function(x: Any) -> Any:
        seen.append(gc.isenabled())
        return x + 1 if x.shape[0] > 2 else x.missing

    assert gc.isenabled()
    td.jit(function)(np.ones(3))
    assert gc.isenabled()
    with pytest.raises(AttributeError):
        td.jit(function)(np.ones(2))
    assert gc.isenabled()
    assert seen == [False, False]


def test_the_report_names_leaves_by_their_paths() -> None:
    tree_of = {"a": [1.0, None, (2.0, {})], "b": {"c": 3.0}}
    step = td.jit(lambda first, second: first)
    step(0.0, tree_of)
    (program,) = step.report().programs
    named = [part.partition(":")[0] for part in program.signature.split(", ")]
    inside = ["['a'][0]", "['a'][2][0]", "['b']['c']"]
    assert named == ["first", *[f"second{place}" for place in inside]]


# Copies -------------------------------------------------------------------------------


@td.jit
def doubled(x: Any) -> Any:
    return 2 * x


def power(x: Any, n: int) -> Any:
    return x**n


class Scaled:
    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.run = td.jit(self.scaled)

    def scaled(self, x: Any) -> Any:
        return self.scale * x


def test_jitted_functions_are_copied_and_pickled_as_functions_are() -> None:
    assert copy.deepcopy(doubled) is copy.copy(doubled) is doubled
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    powers = td.jit(power, static="n")
    assert pickle.loads(pickle.dumps(powers))(3.0, n=2) == 9
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(td.jit(lambda x: x))
    one = Scaled(2.0)
    assert one.run(1.0) == 2
    other = copy.deepcopy(one)
    other.scale = 5.0
    assert (one.run(1.0), other.run(1.0)) == (2, 5)
    partial = copy.deepcopy(td.jit(functools.partial(power, n=3)))
    assert partial(2.0) == 8


def test_compiled_programs_are_copied_but_not_pickled() -> None:
    program = doubled.lower(td.ShapeDtype(())).compile()
    assert copy.deepcopy(program) is copy.copy(program) is program
    with pytest.raises(TypeError, match="Pickle the function") as error:
        pickle.dumps(program)
    assert "test_jit.py" in str(error.value)
