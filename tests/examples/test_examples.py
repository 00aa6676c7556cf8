"""The example programs run, and what they check holds."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
QUICK: dict[str, dict[str, Any]] = {
    "hmc": {"samples": 300},
    "maml": {"rounds": 500},
}
SLOW = ("ctc", "neural_ode", "quantum_circuit")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in NAMES],
)
def test_quickly(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    import_module(f"examples.{name}").main(**QUICK.get(name, {}))
    assert capsys.readouterr().out.count("\n") > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_as_a_program(name: str) -> None:
    program = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")]
    run = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr


def test_all_that_are_promised_are_there() -> None:
    assert NAMES == [
        "beam_search",
        "ctc",
        "dp_sgd",
        "fixed_point_layer",
        "gaussian_process",
        "graph_network",
        "hmc",
        "kalman_filter",
        "lbfgs",
        "maml",
        "neural_ode",
        "pagerank",
        "quantum_circuit",
        "small_gpt2",
    ]
