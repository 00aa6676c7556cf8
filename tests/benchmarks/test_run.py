"""The benchmarks run end to end, on their smallest workload."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KEYS = {
    "workload",
    "treadle_ms",
    "jax_ms",
    "torch_ms",
    "ratio",
    "limit_ms",
    "limit_ratio",
    "treadle_memory_mb",
    "jax_memory_mb",
    "torch_memory_mb",
    "treadle_process_mb",
    "jax_process_mb",
    "torch_process_mb",
    "treadle_compile_ms",
    "jax_compile_ms",
    "loss_difference",
}


def run(script: str, *arguments: str) -> str:
    command = [sys.executable, str(ROOT / "benchmarks" / script), *arguments]
    # The peers are timed as their users have them.
    quick = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS")
    env = {k: v for k, v in os.environ.items() if k not in quick}
    child = subprocess.run(command, capture_output=True, text=True, env=env)
    assert child.returncode == 0, child.stderr
    return child.stdout


@pytest.mark.parametrize("case", ["mlp", "lstm, length too", "attention, length too"])
def test_new_sizes_trace_nothing_and_train_alike(case):
    out = run("new_shape.py", "--cases", case, "--count", "9", "--peers", "treadle")
    assert f"| {case} | treadle | 9 |" in out


@pytest.mark.slow
def test_run_writes_a_row_for_a_workload(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("equinox")
    file = tmp_path / "rows.json"
    arguments = ("--rounds", "1", "--steps", "2", "--peers", "treadle,jax,torch")
    out = run("run.py", "--workload", "mlp", *arguments, "--json", str(file))
    (row,) = json.loads(file.read_text())
    assert row.keys() >= KEYS
    assert row["failures"] == {}
    assert all(row[key] > 0 for key in KEYS - {"workload", "loss_difference"})
    assert row["ratio"] == min(row["jax_ratio"], row["torch_ratio"])
    picture = tmp_path / "rows.png"
    again = run("run.py", "--table", str(file), "--picture", str(picture))
    assert again.strip() in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "| mlp |" in out


@pytest.mark.slow
def test_calls_are_cheap():
    out = run("calls.py", "--blocks", "8")
    rows = [line.split("|") for line in out.splitlines()[2:]]
    assert len(rows) == 7
    # The machine may be busy: a row takes about a tenth or a quarter of JAX's time.
    assert all(float(row[4]) < 1 for row in rows), out
