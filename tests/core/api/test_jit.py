"""jit: what is traced again, what is compiled again, and what explain says."""

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
from tests.core.api import small_models
from treadle.backends.cpu.native import stats

TRAIN = """
import json
import numpy as np
import treadle as td
from tests.core.api.small_models import mlp_step, mlp_parameters
from treadle.backends.cpu.native import stats

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
def test_a_new_batch_size_compiles_nothing(name: str) -> None:
    step = td.jit(getattr(small_models, name + "_step"))
    parameters = getattr(small_models, name + "_parameters")()
    batch = getattr(small_models, name + "_batch")
    step(parameters, *batch(16), 0.1)
    before = stats.compiled + stats.from_disk
    for size in (24, 56):
        step(parameters, *batch(size), 0.1)
    assert stats.compiled + stats.from_disk == before


class Counted:
    """A function that counts how often it is traced."""

    def __init__(self) -> None:
        self.traces = 0

    def __call__(self, x: Any, rate: Any = 1.0, flag: Any = None) -> Any:
        self.traces += 1
        return x * rate if flag != "neg" else -x * rate


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


def test_static_arguments_are_python_values() -> None:
    function = Counted()
    step = td.jit(function, static="flag")
    np.testing.assert_array_equal(step(tnp.ones(2), 2.0, flag="neg"), [-2, -2])
    np.testing.assert_array_equal(step(tnp.ones(2), 2.0, flag="pos"), [2, 2])
    step(tnp.ones(2), 3.0, flag="neg")
    assert function.traces == 2
    with pytest.raises(TypeError, match="not hashable"):
        step(tnp.ones(2), 2.0, flag=[])


def test_explain_lists_kernels_work_and_callbacks() -> None:
    def function(x: Any, w: Any) -> Any:
        return tnp.cumsum(tnp.maximum(x @ w, 0), axis=0)

    report = td.jit(function).explain(tnp.ones((64, 128)), tnp.ones((128, 32)))
    for text in ("MFLOP", "MB", "maximum", "arena", "host callbacks", "cumsum"):
        assert text in report
    assert "0.52 MFLOP" in report
    assert "host callbacks" not in td.jit(lambda x: x + 1).explain(1.0)


def test_jit_inside_of_transforms_and_of_jit() -> None:
    inner = td.jit(lambda x: tnp.sin(x) * x)
    x = tnp.asarray(np.linspace(-1, 1, 5, dtype=np.float32))
    wanted = np.cos(x) * x + np.sin(x)
    total = lambda x: tnp.sum(inner(x))  # noqa: E731
    np.testing.assert_allclose(td.grad(total)(x), wanted, 1e-5)
    np.testing.assert_allclose(td.jit(td.grad(td.jit(total)))(x), wanted, 1e-5)
    np.testing.assert_allclose(td.vmap(td.grad(inner))(x), wanted, 1e-5)
