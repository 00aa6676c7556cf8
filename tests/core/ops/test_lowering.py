"""Every op runs natively, or its record says why it doesn't."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
from tests.core.ops.cases import Case
from tests.core.ops.test_ops import CASES
from treadle import dtypes
from treadle.backends.cpu.device import CPUTarget
from treadle.backends.cpu.emit.nest import supported
from treadle.backends.cpu.emit.ops import RULES
from treadle.compile import stages
from treadle.ir.scalar import SCALARS
from treadle.plan.steps import HostStep, walk
from treadle.trace.lowering import Element, Elementwise, Expanded, Host
from treadle.trace.op import registry


def host_steps(case: Case, *args: np.ndarray) -> list[HostStep]:
    """The callbacks in the plan of a case."""
    graph = td.trace(case.function)(*args)
    plan = stages(graph, CPUTarget()).plan
    return [s for _, s in walk(plan.steps) if isinstance(s, HostStep)]


@pytest.mark.parametrize("name", sorted(registry))
def test_an_op_is_native_or_says_why_not(name: str) -> None:
    op = registry[name]
    if isinstance(op.lowering, Host):
        assert len(op.lowering.reason) > 10
        return
    if not op.type_rule.__module__.startswith("treadle.ops."):
        return  # It holds a graph, or code from outside: its own tests run it.
    cases = [c for c in CASES if c.op is op]
    if not cases:
        # Ops that hold graphs or effects have no rows: their own tests run them.
        sized = isinstance(op.lowering, Expanded)
        assert op.multiple or sized, f"{name} has no row in the table"
    for case in cases:
        hosts = host_steps(case, *case.draw())
        reasons = {step.call.reason for step in hosts}
        assert not hosts, f"{case.name} runs on the host: {reasons}"


@pytest.mark.parametrize("name", sorted(registry))
def test_elementwise_ops_are_written_in_scalar_instructions(name: str) -> None:
    how = registry[name].lowering
    if isinstance(how, Elementwise) and isinstance(how.expression, str):
        assert how.expression in SCALARS


def test_the_backend_has_every_scalar_instruction() -> None:
    assert set(RULES) == set(SCALARS)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64"])
def test_what_floats_have_others_have(kind: str) -> None:
    given = [name for name in SCALARS if supported(name, dtypes.float32)]
    assert [name for name in given if not supported(name, getattr(dtypes, kind))] == []


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "uint32"])
def test_what_integers_have_others_have(kind: str) -> None:
    given = [name for name in SCALARS if supported(name, dtypes.int32)]
    assert [name for name in given if not supported(name, np.dtype(kind))] == []


def test_an_expression_is_written_instruction_by_instruction() -> None:
    written = []

    def emit(name: str, args: tuple, dtype: np.dtype, attr: object) -> int:
        written.append((name, [a.value for a in args], dtype.name, attr))
        return len(written)

    how = Elementwise(lambda w, x, y: w("lt", w("mul", x, 0.5), w("sqrt", y)))
    f32 = np.dtype("float32")
    args = [Element("x", f32), Element("y", f32)]
    assert how.value(emit, args, np.dtype(bool), {}) == 4
    assert written == [
        ("const", [], "float32", 0.5),
        ("mul", ["x", 1], "float32", None),
        ("sqrt", ["y"], "float32", None),
        ("lt", [2, 3], "bool", None),
    ]
