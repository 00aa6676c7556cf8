"""Every device is a `Target`, with the defaults that the compiler counts on."""

from __future__ import annotations

from inspect import getmembers, isfunction, signature
from typing import Any

import pytest

from treadle.backends.devices import TARGETS
from treadle.plan.target import Target, Work


@pytest.mark.parametrize("name", TARGETS)
def test_each_device_has_what_the_compiler_asks(name: str) -> None:
    target: Any = TARGETS[name]
    assert target.name == name
    assert isinstance(target.widens_halves, bool)
    for method, asked in getmembers(Target, isfunction):
        if method.startswith("_"):
            continue
        own = list(signature(getattr(target, method)).parameters)
        assert own == list(signature(asked).parameters)[1:], method


def test_a_kernel_runs_as_one_task_without_scratch_unless_told_otherwise() -> None:
    assert Work() == (1, 0)
