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
        assert ["self", *own] == list(signature(asked).parameters), method


def test_a_kernel_runs_as_one_task_without_scratch_unless_told_otherwise() -> None:
    assert Work() == (1, 0, 0)


class Bare(Target):
    """A device that says nothing of how kernels run."""


def test_what_a_device_need_not_say() -> None:
    bare: Any = Bare()
    nothing: Any = None
    assert bare.nest(nothing) == bare.order(2, 3, 4) == Work()
    assert bare.contraction(nothing) == [Work()]
    assert bare.strands(nothing) is None
    assert bare.caller(nothing, print) is None
    assert bare.caller_like(print, [], print) is None
