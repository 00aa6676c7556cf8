"""The devices that there are, the default first, and what compiles for each."""

from __future__ import annotations

from treadle.backends.cpu.device import CPUTarget
from treadle.backends.cpu.foreign.arrays import call as call_foreign
from treadle.backends.cpu.foreign.scalar import call as call_scalar
from treadle.backends.cpu.foreign.scalar import of_function as code_of_function
from treadle.backends.cpu.foreign.scalar import parsed as code_of_text
from treadle.backends.cpu.lapack.eager import call as call_lapack
from treadle.backends.reference.program import ReferenceTarget
from treadle.plan.target import Target
from treadle.run.device import register

_CPU: Target = CPUTarget()
_REFERENCE: Target = ReferenceTarget()
TARGETS = {target.name: target for target in (_CPU, _REFERENCE)}
for _name in TARGETS:
    register(_name)

__all__ = [
    "TARGETS",
    "call_foreign",
    "call_lapack",
    "call_scalar",
    "code_of_function",
    "code_of_text",
]
