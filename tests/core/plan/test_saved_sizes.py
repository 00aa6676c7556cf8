"""Plans whose sizes are open, on the disk: another process links what this one has
planned, for the sizes and the guards for which it was planned."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.compile as compiler
import treadle.numpy as tnp
from tests.core.api import small_models
from tests.core.plan.test_sizes import CASES, SIZES, Case
from treadle import nn
from treadle.arraytype import ArrayType
from treadle.backends import plans
from treadle.backends.devices import TARGETS
from treadle.backends.objects import ObjectStore
from treadle.compile import build_sized, stages
from treadle.dims import Scope
from treadle.plan import saved
from treadle.plan.saved import Unsaved
from treadle.run.sized import SizedProgram, guards
from treadle.trace.interpreter import sizes_of
from treadle.trace.stage import stage

CPU = TARGETS["cpu"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where plans of any length are kept."""
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(plans, "WORTH_STORING", 1)
    return tmp_path


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of graphs that were planned."""
    names: list[str] = []

    def counted(*args: Any) -> Any:
        names.append(args[0].name)
        return stages(*args)

    monkeypatch.setattr(compiler, "stages", counted)
    return names


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("plan*"))


# Another process


def mlp(n: int) -> tuple[Any, ...]:
    return (small_models.mlp_parameters(), *small_models.mlp_batch(n), 0.1)


def transformer(n: int) -> tuple[Any, ...]:
    batch = small_models.transformer_batch(n)
    return (small_models.transformer_parameters(), *batch, 0.1)


def mixed(x: Any) -> Any:
    """Guards, numbers that are computed of sizes, loops, and steps on the host."""
    n = x.shape[0]
    half = x[: n // 2] * n**-0.5 if n > 2 else x + n
    padded = tnp.pad(x, ((0, -n % 4), (0, 0))).reshape(-1, 4, 3)
    total, sums = td.scan(lambda c, row: (c + row, c.sum()), tnp.zeros(3), x)
    pooled = nn.max_pool(x[None, :, :, None], 2, 1, 1)
    numbers = tnp.arange(n) + n // 3, 1.0 / n
    return half, padded.sum(1), total / n, sums, pooled, tnp.sort(x, 0), numbers


PROGRAMS: dict[str, tuple[Callable[..., Any], Any, Callable[[int], tuple]]] = {
    "mlp": (small_models.mlp_step, {"x": ("n", None), "y": ("n",)}, mlp),
    "transformer": (
        small_models.transformer_step,
        {"x": ("n", None), "y": ("n", None)},
        transformer,
    ),
    "mixed": (
        mixed,
        {"x": ("n", None)},
        lambda n: (np.sin(np.arange(3 * n, dtype=np.float32)).reshape(n, 3),),
    ),
}
LENGTHS = (1, 2, 3, 8, 17)


def results(name: str, **options: Any) -> dict[str, list[str]]:
    """The bytes of a program's results, by size."""
    function, _, arguments = PROGRAMS[name]
    made = td.jit(function, **options)
    return {
        str(n): [np.asarray(x).tobytes().hex() for x in td.tree.leaves(out)]
        for n in LENGTHS
        for out in [made(*arguments(n))]
    }


PROCESS = """
import json, sys
from pathlib import Path
import treadle.compile as compiler
from tests.core.plan.test_saved_sizes import PROGRAMS, results
from treadle.backends import plans
from treadle.backends.objects import ObjectStore

store = ObjectStore(Path(sys.argv[1]))  # Kernels are where they always are.
plans.WORTH_STORING, plans.default_store = 1, lambda: store
planned, stages = [], compiler.stages
def counted(*args):
    planned.append(args[0].name)
    return stages(*args)
compiler.stages = counted
found = {name: results(name, dynamic=PROGRAMS[name][1]) for name in PROGRAMS}
print(json.dumps([planned, found]))
"""


def test_another_process_plans_nothing(
    tmp_path: Path, planned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    anew = {name: results(name, dynamic=False) for name in PROGRAMS}
    planned.clear()
    store = ObjectStore(tmp_path)
    monkeypatch.setattr(plans, "WORTH_STORING", 1)
    monkeypatch.setattr(plans, "default_store", lambda: store)
    for name, (_, dynamic, _) in PROGRAMS.items():
        assert results(name, dynamic=dynamic) == anew[name], name
    assert {"mlp_step", "transformer_step", "mixed"} <= set(planned)
    out = subprocess.run(
        [sys.executable, "-c", PROCESS, str(tmp_path)],
        env={**os.environ, "PYTHONHASHSEED": "random"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(out.stdout.splitlines()[-1]) == [[], anew]


# The same program


@pytest.mark.parametrize("name", CASES)
def test_what_is_loaded_is_what_was_planned(
    name: str, folder: Path, planned: list[str]
) -> None:
    case = CASES[name]
    scope, _, made = case.sized()
    assert len(planned) == len(files(folder)) == 1
    again, _, loaded = case.sized()
    assert len(planned) == 1
    assert list(map(str, again.guards.values())) == list(
        map(str, scope.guards.values())
    )
    for size in SIZES:
        assert guards(again)(*size) is guards(scope)(*size)
        arrays = case.arrays(*size)
        a, b = made.bind(*size), loaded.bind(*size)
        assert a.in_types == b.in_types
        if name != "integers":  # which holds the addresses of callbacks
            assert list(a.linked.program.words) == list(b.linked.program.words)
        assert (a.better() is None) is (b.better() is None)
        for x, y in zip(a(arrays), b(arrays), strict=True):
            assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_what_the_compiler_has_asked_is_asked_again(
    folder: Path, planned: list[str]
) -> None:
    case = Case(lambda x: nn.softmax(x), ("b", "t"))
    for _ in range(2):
        scope, _, _ = case.sized()
        holds = guards(scope)
        assert holds(3, 5) and holds(1_000_000, 2) and not holds(1_000_000, 1)
    assert len(planned) == 1


# What a stored plan is found by


def key(
    function: Callable[..., Any],
    *lengths: Any,
    hints: tuple[int, ...] = (4, 6),
    dtype: str = "float32",
    names: tuple[str, ...] = ("b", "t"),
) -> str:
    """That of a function of arrays of some lengths, of which 0 and 1 are dimensions."""
    scope = Scope()
    sizes = [scope.symbol(*pair) for pair in zip(names, hints, strict=True)]
    types = [
        ArrayType(tuple([sizes[n] if n < 2 else n for n in shape]), np.dtype(dtype))
        for shape in lengths
    ]
    with sizes_of(scope):
        graph, _ = stage(lambda *xs: [function(*xs)], types)
    with scope.compiling():
        return plans.key_of(graph, CPU, (), scope)


def total(x: Any, y: Any) -> Any:
    return x.sum() * y.sum()


FACTORS: dict[str, Callable[[Any], Any]] = {
    "one": lambda n: 1,
    "a guard": lambda n: 1 if n > 2 else 0,
    "another guard": lambda n: 1 if n > 3 else 0,
    "a guard that fails": lambda n: 0 if n > 5 else 1,
    "a fact": lambda n: 1 if n % 4 == 0 else 0,
    "another fact": lambda n: 1 if n % 2 == 0 else 0,
    "a number": lambda n: 1 / n,
    "another number": lambda n: 2 / n,
    "a power": lambda n: n**0.5,
    "another power": lambda n: n**0.25,
    "a function": lambda n: np.sqrt(n),
    "another function": lambda n: np.exp(n),
    "a size": lambda n: n,
    "a sum": lambda n: n + 1,
    "a quotient": lambda n: n // 2,
    "another quotient": lambda n: n // 3,
}


def test_equal_traces_have_one_key_whatever_sizes_are_called(folder: Path) -> None:
    keys = {key(total, (0, 3), (1, 3)) for _ in range(3)}
    keys.add(key(total, (0, 3), (1, 3), names=("rows", "x.shape[0]")))
    assert len(keys) == 1
    assert keys != {""}


def test_what_differs_has_another_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {
        "as it was": key(total, (0, 3), (1, 3)),
        "a hint": key(total, (0, 3), (1, 3), hints=(4, 7)),
        "one dimension for both": key(total, (0, 3), (0, 3)),
        "the other one": key(total, (1, 3), (1, 3)),
        "the other way round": key(total, (1, 3), (0, 3)),
        "a length": key(total, (0, 4), (1, 3)),
        "one that is fixed": key(total, (0, 3), (6, 3)),
        "a dtype": key(total, (0, 3), (1, 3), dtype="float64"),
    }
    for name, factor in FACTORS.items():

        def scaled(x: Any, y: Any, factor: Any = factor) -> Any:
            return total(x, y) * factor(x.shape[0])

        keys[name] = key(scaled, (0, 3), (1, 3))
    with monkeypatch.context() as patch:
        patch.setattr(plans, "_source_digest", lambda: "edited")
        keys["the source"] = key(total, (0, 3), (1, 3))
    assert "" not in keys.values()
    assert len(set(keys.values())) == len(keys), keys


def test_axes_that_are_one_by_chance_do_not_share_a_plan(
    folder: Path, planned: list[str]
) -> None:
    """Broadcast along an axis that is as long as another, a sum is another one."""

    def spread(x: Any, y: Any) -> Any:
        return (x.sum(0) + y).sum(1) - x[:1].sum()

    one = td.jit(spread, dynamic={"x": ("n", None), "y": ("n", None)})
    two = td.jit(spread, dynamic={"x": ("n", None), "y": ("m", None)})
    for n, m in ((3, 3), (8, 8), (8, 5), (1, 4)):
        x, y = np.sin(np.arange(5.0 * n)).reshape(n, 5), np.ones((m, 5))
        wanted = (x.sum(0) + y).sum(1) - x[:1].sum()
        for made in (one, two) if n == m else (two,):
            np.testing.assert_allclose(made(x, y), wanted, 1e-5, 1e-5)
    assert planned.count("spread") >= 2


# Files that are damaged


def test_a_damaged_file_is_planned_anew(folder: Path, planned: list[str]) -> None:
    case = CASES["loss"]
    _, _, made = case.sized()
    (path,) = files(folder)
    content = path.read_bytes()
    for damaged in (b"", content[:-7], content[:99] + b"?" + content[100:]):
        path.write_bytes(damaged)
        _, _, again = case.sized()
        words = [list(p.bind(3, 5).linked.program.words) for p in (made, again)]
        assert words[0] == words[1]
        assert path.read_bytes() == content
    assert len(planned) == 4


def test_bytes_that_end_in_an_error_leave_the_scope_as_it_was() -> None:
    case = CASES["loss"]
    scope = Scope()
    graph = case.graph(scope.symbol("b", 4), scope.symbol("t", 6))
    with scope.compiling():
        since = scope.extent
        content = saved.dumps(stages(graph, CPU).plan, scope, since)

    fresh = Scope()
    graph = case.graph(fresh.symbol("b", 4), fresh.symbol("t", 6))
    before = fresh.extent, dict(fresh.known)
    assert content.count(b"NestStep") == 1
    for wrong in (
        content[: len(content) // 2],
        content[:-5],
        content.replace(b"NestStep", b"NextStep"),
        pickle.dumps(((), (), "no plan")),
    ):
        with fresh.compiling(), pytest.raises(Unsaved):
            saved.loads(wrong, fresh)
        assert (fresh.extent, fresh.known) == before
    with fresh.compiling():
        plan = saved.loads(content, fresh)
        program = SizedProgram(fresh, plan, CPU)
        planned = build_sized(graph, fresh, CPU)
    for size in SIZES:
        arrays = case.arrays(*size)
        for x, y in zip(
            program.bind(*size)(arrays), planned.bind(*size)(arrays), strict=True
        ):
            assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_sizes_of_another_trace_are_not_saved() -> None:
    case = CASES["sorted"]
    scope = Scope()
    graph = case.graph(scope.symbol("b", 4), scope.symbol("t", 6))
    with scope.compiling():
        plan = stages(graph, CPU).plan
        for other in (None, Scope()):
            with pytest.raises(Unsaved, match="another trace"):
                saved.dumps(plan, other)
    assert plans.key_of(graph, CPU, (), Scope()) == ""
