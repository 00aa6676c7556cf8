"""Profiles: times by kernel and line, the same results, files that viewers load."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.random_rules import generate
from tests.refused import refused
from treadle.backends.cpu.run import executor, threads
from treadle.run.profile import Profile


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def program(x: Any, w: Any) -> Any:
    def body(carry: Any, row: Any) -> Any:
        carry = tnp.tanh(carry @ w + row)
        return carry, tnp.sum(carry)

    last, sums = td.scan(body, x[0], x)
    grown = td.while_loop(lambda v: tnp.sum(v) < 1e4, lambda v: v * 2, abs(last))
    return td.cond(sums[0] > 1e9, tnp.sin, tnp.exp, grown), tnp.sort(sums)


ARGS = random(20, 8, 16), random(16, 16)
LINE = program.__code__.co_firstlineno


def profiled(**options: Any) -> Profile:
    return td.profile(program, **options)(*ARGS)


def test_results_are_those_of_a_run_that_is_not_profiled() -> None:
    found, wanted = profiled(runs=2).result, td.jit(program)(*ARGS)
    for a, b in zip(td.tree.leaves(found), td.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_give_the_same_bits(seed: int) -> None:
    made = generate(seed)
    args = made.arguments()
    jitted = td.jit(made.function())
    found, wanted = td.profile(jitted, runs=1)(*args).result, jitted(*args)
    for a, b in zip(td.tree.leaves(found), td.tree.leaves(wanted), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_each_kernel_runs_as_often_as_the_program_says() -> None:
    found = profiled(runs=2)
    calls = {row.does.rpartition(") ")[2]: row.calls for row in found.kernels}
    assert calls["dot_general"] == 20
    assert next(n for does, n in calls.items() if "tanh" in does) == 20
    assert calls["exp"] == 1 and "sin" not in calls
    doubled, grown = 0, abs(np.asarray(scan_alone(*ARGS)))
    while grown.sum() < 1e4:
        doubled, grown = doubled + 1, grown * 2
    assert doubled and calls["mul"] == doubled
    (products,) = [r for r in found.kernels if "dot_general" in r.does]
    assert products.cost.flops == 20 * 2 * 8 * 16 * 16
    assert sum(row.share for row in found.kernels) == pytest.approx(1)


def scan_alone(x: Any, w: Any) -> Any:
    return td.scan(lambda c, row: (tnp.tanh(c @ w + row), None), x[0], x)[0]


def test_lines_share_the_time() -> None:
    found = profiled(runs=2)
    lines = {int(r.origin.source.rpartition(":")[2]) - LINE: r for r in found.lines}
    assert "tanh" in lines[2].does and "reduce_sum" in lines[3].does
    assert sum(r.share for r in found.lines) == pytest.approx(1)
    times = sum(r.seconds for r in found.kernels)
    assert sum(r.seconds for r in found.lines) == pytest.approx(times)


def test_the_slow_line_is_found() -> None:
    def slow(x: Any, w: Any) -> Any:
        for _ in range(8):
            w = w @ w
        return x + 1, w

    found = td.profile(slow, runs=3)(random(4), random(256, 256) / 16)
    first = slow.__code__.co_firstlineno
    assert found.lines[0].origin.source.endswith(f":{first + 2}")
    assert found.lines[0].share > 0.9


def test_nests_that_run_together_have_times_of_their_own() -> None:
    """One parallel region: a heavy nest, and a light one beside it."""

    def f(x: Any, y: Any) -> Any:
        for _ in range(6):
            x = tnp.sin(tnp.exp(tnp.tanh(x)))
        return x, y + 1

    x = random(500_000)
    found = td.profile(f, runs=3)(x, x)
    (heavy,) = [r for r in found.kernels if "tanh" in r.does]
    (light,) = [r for r in found.kernels if "tanh" not in r.does]
    assert heavy.seconds > light.seconds > 0
    if threads.num_threads() > 1:
        assert any(len(e.steps) == 2 for e in found.events)
        tasks = Counter(e.steps for e in found.events if e.task >= 0)
        assert all(len(steps) == 1 for steps in tasks)


def test_a_program_with_effects_runs_once() -> None:
    seen: list[float] = []

    def f(x: Any) -> Any:
        td.io_callback(lambda v: seen.append(float(v)), None, x)
        return x + 1

    found = td.profile(f)(2.0)
    assert seen == [2.0] and found.seconds is None and found.overhead is None
    assert "ran once" in str(found)
    assert any(row.name == "host" for row in found.kernels)


def test_donated_arguments_are_kept() -> None:
    x = tnp.array(random(100)) * 1
    found = td.profile(td.jit(lambda x: x + 1, donate="x"), runs=2)(x)
    np.testing.assert_array_equal(found.result, np.asarray(x) + 1)


def test_sizes_that_are_open() -> None:
    f = td.jit(lambda x, w: tnp.tanh(x @ w), dynamic={"x": ("n", None)})
    for n in (5, 9):
        found = td.profile(f, runs=1)(random(n, 16), ARGS[1])
        np.testing.assert_allclose(
            found.result, np.tanh(random(n, 16) @ ARGS[1]), rtol=1e-4
        )
        assert found.kernels[0].cost.flops == 2 * n * 16 * 16
    assert f.report().traces == 1


def test_the_table_says_what_and_where() -> None:
    text = str(profiled(runs=2))
    for part in (
        *("GFLOP/s", "GB/s", "without the profiler", "this machine", "dot_general"),
        "test_profile.py:",
        "loops and branches",
    ):
        assert part in text


def test_the_trace_file_is_as_the_format_says(tmp_path: Path) -> None:
    profiled(runs=1).save(tmp_path / "trace.json")
    content = json.loads((tmp_path / "trace.json").read_text())
    events = content["traceEvents"]
    assert content["displayTimeUnit"] in ("ms", "ns")
    named = {e["tid"] for e in events if e["name"] == "thread_name"}
    spans = [e for e in events if e["ph"] == "X"]
    assert {e["ph"] for e in events} == {"X", "M"}
    for e in spans:
        assert isinstance(e["name"], str) and isinstance(e["args"], dict)
        assert e["ts"] >= 0 and e["dur"] >= 0 and e["tid"] in named
        assert isinstance(e["pid"], int)
    # What is on one thread is one after the other, or inside of each other.
    for thread in named:
        open_until: list[float] = []
        for e in [e for e in spans if e["tid"] == thread]:
            while open_until and open_until[-1] <= e["ts"] + 1e-6:
                open_until.pop()
            end = e["ts"] + e["dur"]
            assert not open_until or end <= open_until[-1] + 1e-3
            open_until.append(end)
    products = [e for e in spans if "dot_general" in e["name"] and e["cat"] == "kernel"]
    assert len(products) == 20
    assert products[0]["args"]["flops"] == 2 * 8 * 16 * 16


def test_the_picture_is_written(tmp_path: Path) -> None:
    figure = profiled(runs=1).plot(tmp_path / "profile.png")
    assert (tmp_path / "profile.png").read_bytes().startswith(b"\x89PNG")
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[:2] == ["kernels by time", "lines by time"]
    bars = figure.axes[0].patches
    found = profiled(runs=1)
    assert len(bars) == min(len(found.kernels), 10)


def test_long_programs_keep_their_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "LOGGED_EVENTS", 30)
    monkeypatch.setattr(executor, "_logs", [])
    found = profiled(runs=1)
    assert len(found.events) == 30 and found.lost > 0
    (products,) = [r for r in found.kernels if "dot_general" in r.does]
    assert products.calls == 20
    assert f"{found.lost} events" in str(found)


def test_what_can_not_be_profiled() -> None:
    refused(lambda: td.profile(3), TypeError, "profile takes a function")  # type: ignore[arg-type]
    refused(lambda: td.profile(program, runs=0), ValueError, "at least 1")
    with pytest.raises(TypeError, match=r"td.profile\(td.grad"):
        td.grad(lambda x: td.profile(lambda x: x * x)(x).result)(2.0)
