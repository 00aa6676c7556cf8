"""Every call of a compiled program, repeated by the reference target: one Plan, run by
both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from tests.core.fuse.compare import same, tolerance_of
from treadle import compile as pipeline
from treadle.backends.cpu.run import callpath
from treadle.backends.reference import program
from treadle.check import check
from treadle.plan.steps import Plan
from treadle.run.execute import Executable


def run(plan: Plan, args: Sequence[Any]) -> list[np.ndarray]:
    """What the reference target gives for a plan."""
    given = [
        np.array(np.asarray(a), t.dtype, order="C")
        for a, t in zip(args, plan.outline.in_types, strict=True)
    ]
    outputs = [
        given[plan.shares[i]] if i in plan.shares else np.empty(t.shape, t.dtype)
        for i, t in enumerate(plan.outline.out_types)
    ]
    found = [a.reshape(-1).view(np.uint8) for a in outputs]
    for i in set(range(len(found))) - plan.shares.keys():
        found[i][:] = 0xFF
    program.run(plan, given, found)
    return [
        a.view(t.dtype).reshape(t.shape)
        for a, t in zip(found, plan.outline.out_types, strict=True)
    ]


@contextmanager
def checked() -> Iterator[list[Plan]]:
    """Within it, all stages of a compilation are checked, and compiled programs must
    agree with the reference target. Gives the plans that were run."""
    run_natively, seen = Executable.__call__, []
    compiled = pipeline.stages

    def stages(*args: Any) -> pipeline.Stages:
        made = compiled(*args)
        check(made)
        return made

    def call(self: Executable, args: Sequence[Any]) -> list[Any]:
        given = [np.array(np.asarray(a)) for a in args]
        wanted = run(self.plan, args)
        found = run_natively(self, args)
        agree(wanted, [np.array(np.asarray(x)) for x in found], given)
        seen.append(self.plan)
        return found

    with (
        mock.patch.object(Executable, "__call__", call),
        mock.patch.object(callpath, "available", lambda: False),
        mock.patch.object(pipeline, "stages", stages),
    ):
        yield seen


def agree(
    found: Sequence[np.ndarray],
    wanted: Sequence[np.ndarray],
    given: Sequence[np.ndarray],
) -> None:
    """Asserts equality but for roundings: those of the narrowest floats that a program
    gets or gives."""
    parts = [list(map(_real, arrays)) for arrays in (found, wanted, given)]
    same(parts[0], parts[1], tolerance_of([*parts[1], *parts[2]]))


def _real(x: np.ndarray) -> np.ndarray:
    return np.stack([x.real, x.imag]) if x.dtype.kind == "c" else x
