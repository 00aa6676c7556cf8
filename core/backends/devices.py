"""What compiles for each device."""

from __future__ import annotations

from treadle.backends.cpu.device import CPUTarget
from treadle.backends.reference.program import ReferenceTarget
from treadle.plan.target import Target

_CPU: Target = CPUTarget()
_REFERENCE: Target = ReferenceTarget()
TARGETS = {target.name: target for target in (_CPU, _REFERENCE)}
