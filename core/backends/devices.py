"""The devices that there are, the default first, and what compiles for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from treadle.backends.cpu import families
from treadle.backends.cpu.device import CPUTarget
from treadle.backends.cpu.foreign.scalar import call as call_scalar
from treadle.backends.cpu.foreign.scalar import of_function as code_of_function
from treadle.backends.cpu.foreign.scalar import parsed as code_of_text
from treadle.backends.reference.program import ReferenceTarget
from treadle.plan.target import Target
from treadle.run.device import register
from treadle.trace.foreign import Function
from treadle.trace.op import Op

_CPU: Target = CPUTarget()
_REFERENCE: Target = ReferenceTarget()
TARGETS = {target.name: target for target in (_CPU, _REFERENCE)}
for _name in TARGETS:
    register(_name)


def call_foreign(
    function: Function, arrays: Sequence[np.ndarray], outs: Sequence[Any], lead: int
) -> None:
    """Calls a C function on NumPy's arrays; writes the results."""
    families.foreign.call(function, arrays, outs, lead)


def install(folder: Path, programs: Iterable[Callable[[], object]]) -> Path:
    """Compiles for the default device what many programs have, and what some run, into
    a file in a folder; see `cpu.install`."""
    return families.load("install").install(folder, programs)


def call_lapack(
    op: Op, arrays: Sequence[Any], params: dict[str, Any]
) -> Sequence[np.ndarray] | None:
    """The results of a factorization of NumPy's arrays, if LAPACK gives any."""
    return families.lapack_eager.call(op, arrays, params)


__all__ = [
    "TARGETS",
    "call_foreign",
    "call_lapack",
    "call_scalar",
    "code_of_function",
    "code_of_text",
    "install",
]
