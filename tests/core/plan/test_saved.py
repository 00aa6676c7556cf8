"""Plans as bytes, and on the disk: another process links what this one planned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.random_rules import generate
from treadle.backends import plans
from treadle.backends.cpu.device import CPUTarget
from treadle.compile import build, stages
from treadle.ir.graph import Graph
from treadle.plan import saved
from treadle.plan.saved import Unsaved
from treadle.plan.steps import NestStep, walk
from treadle.run.execute import Executable

TARGET = CPUTarget()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where plans of any length are kept."""
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(plans, "WORTH_STORING", 1)
    return tmp_path


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("plan*"))


@pytest.mark.parametrize("seed", range(15))
def test_the_bytes_of_a_plan_are_the_plan(seed: int) -> None:
    program = generate(seed)
    args = program.arguments()
    made = td.jit(program.function())
    graph = made.graph(*args)
    leaves = td.tree.leaves(args)
    plan = stages(graph, TARGET).plan
    again = saved.loads(saved.dumps(plan))
    wanted = Executable(plan, TARGET)(leaves)
    found = Executable(again, TARGET)(leaves)
    assert [np.asarray(x).tobytes() for x in found] == [
        np.asarray(x).tobytes() for x in wanted
    ]
    assert Executable(again, TARGET).explain() == Executable(plan, TARGET).explain()


def test_control_flow_and_host_steps_are_saved() -> None:
    def step(c: Any, x: Any) -> Any:
        c = tnp.where(c > 0, c * x, c + x)
        return c, tnp.sum(c)

    def run(x: Any) -> Any:
        last, sums = td.scan(step, tnp.zeros(3), x)
        turns, _ = td.while_loop(
            lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 2), (0, last)
        )
        picked = td.cond(sums[0] > 0, lambda a: a + 1, lambda a: a - 1, last)
        return picked, turns, tnp.fft.fft(x) if hasattr(tnp, "fft") else x * 1j

    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    plan = stages(td.jit(run).graph(x), TARGET).plan
    again = saved.loads(saved.dumps(plan))
    for a, b in zip(
        Executable(again, TARGET)([x]), Executable(plan, TARGET)([x]), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_equal_nests_are_one_object() -> None:
    """Kernels are looked up by nests."""

    def layers(x: Any) -> Any:
        for _ in range(4):
            x = tnp.tanh(x @ x).sum(0) + x
        return x

    plan = stages(td.jit(layers).graph(np.ones((4, 4), np.float32)), TARGET).plan
    again = saved.loads(saved.dumps(plan))
    nests = [s.launch.nest for _, s in walk(again.steps) if isinstance(s, NestStep)]
    assert len(nests) > len(set(nests))
    assert len(set(map(id, nests))) == len(set(nests))


def test_a_users_function_is_not_saved(folder: Path) -> None:
    def run(x: Any) -> Any:
        shape = td.ShapeDtype((3,), "float32")
        return td.pure_callback(lambda a: a * 2, shape, x) + 1

    x = np.ones(3, np.float32)
    graph = td.jit(run).graph(x)
    assert plans.key_of(graph, TARGET, ()) == ""
    with pytest.raises(Unsaved, match="user's own"):
        saved.dumps(stages(graph, TARGET).plan)
    build(graph, TARGET)
    assert not files(folder)


def test_other_bytes_are_refused() -> None:
    import pickle

    plan = stages(td.jit(lambda x: x + 1).graph(np.ones(3)), TARGET).plan
    content = saved.dumps(plan)
    for wrong in (b"", b"plan", content[: len(content) // 2], pickle.dumps({"a": 1})):
        with pytest.raises(Unsaved):
            saved.loads(wrong)
    with pytest.raises(Unsaved, match="not what plans are made of"):
        saved.loads(pickle.dumps(subprocess.run))


# What a stored plan is found by


def model(scale: float = 2.0) -> Any:
    @td.custom_vjp
    def doubled(x: Any) -> Any:
        return x * scale

    doubled.defvjp(lambda x: (x * scale, None), lambda _, ct: (ct * scale,))

    def loss(w: Any, x: Any) -> Any:
        return tnp.mean(doubled(tnp.tanh(x @ w)) ** 2)

    return loss


def graph_of(scale: float = 2.0, n: int = 4, dtype: str = "float32") -> Graph:
    w, x = np.ones((3, 5), dtype), np.ones((n, 3), dtype)
    return td.jit(td.grad(model(scale))).graph(w, x)


def test_equal_traces_have_one_key(folder: Path) -> None:
    keys = {plans.key_of(graph_of(), TARGET, ()) for _ in range(3)}
    assert len(keys) == 1
    assert keys != {""}


def test_what_differs_has_another_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = [graph_of(), graph_of(3.0), graph_of(n=5), graph_of(dtype="float64")]
    keys = [plans.key_of(g, TARGET, ()) for g in graphs]
    keys += [plans.key_of(graph_of(), TARGET, (0,))]
    td_threads = "treadle.backends.cpu.run.threads.num_threads"
    with monkeypatch.context() as patch:
        patch.setattr(td_threads, lambda: 17)
        keys.append(plans.key_of(graph_of(), TARGET, ()))
    with monkeypatch.context() as patch:
        patch.setattr(plans, "_source_digest", lambda: "edited")
        keys.append(plans.key_of(graph_of(), TARGET, ()))
    assert len(set(keys)) == len(keys) == 7


@pytest.mark.usefixtures("no_primitives_left")
def test_an_operation_of_the_users_is_known_by_what_computes_it(folder: Path) -> None:
    def key(**how: Any) -> str:
        wave = td.extend.elementwise("test.wave", np.sin, **how)
        return plans.key_of(td.jit(wave).graph(np.ones(3, np.float32)), TARGET, ())

    told = [{}, {"expression": "sin"}, {"expression": "cos"}]
    told += [{"expression": lambda w, x: w("sin", w("neg", x))}]
    assert len(set(map(lambda how: key(**how), told))) == 4
    assert key(**told[1]) == key(**told[1])


def test_a_plan_is_made_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = [np.full((3, 5), 0.1, np.float32), np.ones((4, 3), np.float32)]
    (first,) = build(graph_of(), TARGET)(args)
    assert len(files(folder)) == 1
    monkeypatch.setattr("treadle.compile.stages", None)
    (second,) = build(graph_of(), TARGET)(args)
    np.testing.assert_array_equal(np.asarray(first), np.asarray(second))


def test_a_damaged_file_is_planned_anew(folder: Path) -> None:
    args = [np.full((3, 5), 0.1, np.float32), np.ones((4, 3), np.float32)]
    (first,) = build(graph_of(), TARGET)(args)
    (path,) = files(folder)
    content = path.read_bytes()
    for damaged in (b"", content[:-7], content[:99] + b"?" + content[100:]):
        path.write_bytes(damaged)
        (found,) = build(graph_of(), TARGET)(args)
        np.testing.assert_array_equal(np.asarray(first), np.asarray(found))
        assert path.read_bytes() == content


PROCESS = """
import json, sys
import numpy as np
import treadle as td
import treadle.compile as compiler
from tests.core.plan.test_saved import model
from treadle.backends import plans

plans.WORTH_STORING = 1
planned, stages = [], compiler.stages
def counted(*args):
    planned.append(args[0].name)
    return stages(*args)
compiler.stages = counted
w = np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5)
x = np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3)
g = td.jit(td.grad(model()))(w, x)
print(json.dumps([len(planned), np.asarray(g).tobytes().hex()]))
"""


def test_another_process_links_it(folder: Path) -> None:
    def run() -> tuple[int, str]:
        out = subprocess.run(
            [sys.executable, "-c", PROCESS],
            env={**os.environ, "PYTHONHASHSEED": "random"},
            capture_output=True,
            text=True,
            check=True,
        )
        planned, result = json.loads(out.stdout.splitlines()[-1])
        return planned, result

    first, second = run(), run()
    assert first[0] == 1
    assert second == (0, first[1])
