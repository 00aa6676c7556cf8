"""Native routines that steps call, of LAPACK, of Fourier transforms, of attention and
of users: which kernel, how much work, and which words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from treadle.backends.cpu import families
from treadle.backends.cpu.fourier import library as fourier_library
from treadle.backends.cpu.lapack.library import library
from treadle.backends.cpu.run import native
from treadle.dims import is_dim
from treadle.fuse.lowering.launches import Calls
from treadle.plan.steps import CallsStep, Place
from treadle.plan.target import Work
from treadle.trace.routine import Attention, Script, Transform


def source(script: Script | Transform | Attention, times: int) -> native.Source:
    """The kernel that makes the calls of a script so many times."""
    if isinstance(script, Transform):
        itemsize = script.dtype.itemsize
        if is_dim(script.n):
            return families.fourier_opened.source(itemsize)
        own = families.fourier_own.form(script)
        return (
            families.fourier.source()
            if own is None
            else families.fourier_stockham.source(itemsize)
        )
    if isinstance(script, Attention):
        return families.attention.source(script)
    return (
        families.foreign.source()
        if script.function
        else families.lapack.source(script, times)
    )


def work(calls: Calls, count: int) -> Work:
    """What calls take with so many threads."""
    first, script = calls.types[0][0], calls.script
    if isinstance(script, Transform):
        if is_dim(script.n):
            tasks = families.fourier_opened.tasks(script, count)
            return Work(tasks, tasks * families.fourier_opened.scratch(script))
        if (own := families.fourier_own.form(script)) is not None:
            tasks = families.fourier_own.tasks(script, own, count)
            return Work(tasks, tasks * families.fourier_own.scratch(script, own))
        return Work(families.fourier_schedule.tasks(script, count))
    if isinstance(script, Attention):
        tasks, own_bytes = families.attention_schedule.work(script, count)
        return Work(tasks, own_bytes=own_bytes)
    if script.function is not None:
        return Work(families.foreign.tasks(calls.times, count))
    elements = math.prod(first.shape[script.lead :])
    tasks = families.lapack_schedule.tasks(script, calls.times, elements, count)
    return Work(tasks, tasks * families.lapack_schedule.task_bytes(script))


def words(step: CallsStep, at: Callable[[Place], Any], own: Sequence[Any]) -> list[Any]:
    """The words of a step's kernel after the number of tasks.

    at: where a place is. own: where threads' own memory is, and how far from one
      thread's to the next.
    """
    script, scratch = step.call.script, step.scratch
    places = [at(p) for p in (*step.reads, *step.writes)]
    types = [*step.call.types[0], *step.call.types[1]]
    if isinstance(script, Transform):
        sizes = [t.dtype.itemsize for t in types]
        if is_dim(script.n):
            assert scratch is not None
            return families.fourier_opened.words(
                script, step.tasks, at(scratch), places, sizes
            )
        if (form := families.fourier_own.form(script)) is not None:
            assert scratch is not None
            return families.fourier_own.words(script, form, at(scratch), places, sizes)
        loop = fourier_library.loop(script.kind, script.dtype)
        return families.fourier_schedule.words(script, step.tasks, places, loop, sizes)
    if isinstance(script, Attention):
        return families.attention_schedule.words(script, step.tasks, own, places)
    if script.function is not None:
        return families.foreign.words(script.function, types, places, script.lead)
    found = library()
    assert scratch is not None and found is not None
    return families.lapack_schedule.words(
        script, types, places, lambda i: at(scratch.shifted(i)), found
    )
