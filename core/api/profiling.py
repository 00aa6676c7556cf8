"""profile: how long the kernels of a compiled function take."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache, wraps
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from treadle.api.args import check_function
from treadle.api.boundary import boundary
from treadle.api.jit import Jitted
from treadle.errors import at, user_source
from treadle.ir.walk import has_effects
from treadle.run.array import Placed
from treadle.run.device import common, current
from treadle.run.eager import EagerInterpreter, Elsewhere
from treadle.trace.interpreter import state

if TYPE_CHECKING:
    from treadle.run.profile import Profile, Speed

_SIZE = 1024
_LENGTH = 1 << 24


@boundary
def profile(function: Callable[..., Any], runs: int = 10) -> Callable[..., Profile]:
    """A function that calls `function`, compiled, and gives a `Profile` of it: the time
    of each kernel and each of your lines, with what was achieved beside what the
    machine can do. It can be printed, drawn (``.plot("profile.png")``), and saved for
    Perfetto (``.save("trace.json")``); ``.result`` is what the function returned.

    The times are written by what runs compiled programs, on each thread. Donated
    arguments are kept.

    Args:
      function: a jitted function, or one that is to be.
      runs: how many are measured, of which the quickest counts. A program with
        effects, such as an `io_callback`, runs once.

    Raises:
      ValueError: if there is no run.
      TypeError: within another transform.
      NotImplementedError: if the device can't measure its programs.

    >>> import treadle as td, treadle.numpy as tnp
    >>> found = td.profile(lambda x: tnp.exp(x).sum(), runs=2)(tnp.zeros((100, 10)))
    >>> found.result
    Array(1000., dtype=float32)
    >>> found.kernels[0].cost.transcendentals
    1000
    """
    check_function("profile", function)
    if not isinstance(runs, int) or runs < 1:
        raise ValueError(f"profile(runs={runs!r}): at least 1{at(user_source())}")
    jitted = function if isinstance(function, Jitted) else Jitted(function)

    @boundary
    @wraps(function)
    def profiled(*args: Any, **kwargs: Any) -> Profile:
        if type(state.interpreter) not in (EagerInterpreter, Elsewhere):
            raise TypeError(
                f"a profiled function was called while a transform is tracing"
                f"{at(user_source())}\nProfile the outermost function instead: "
                "`td.profile(td.grad(f))(x)`."
            )
        entry, leaves = jitted._lookup(jitted._programs.now(), args, kwargs)
        runs_now = 0 if has_effects(entry.graph) else runs
        arrays = [*entry.captured, *leaves]
        placed = [a.device for a in arrays if type(a) is Placed]
        device = common("profile", placed) if placed else current()
        found = _profile(entry, arrays, runs_now, device.name)
        if found is None:
            raise NotImplementedError(
                f"programs of the device {device.name} can't be profiled: it does not "
                f"measure how long their steps take{at(user_source())}\n"
                "Profile the function on a device that does: "
                '`with td.default_device("cpu"): ...`.'
            )
        return found

    return profiled


def _profile(entry: Any, arrays: list[Any], runs: int, device: str) -> Profile | None:
    plain = [a.unplaced() if type(a) is Placed else a for a in arrays]
    run = importlib.import_module("treadle.run.profile")
    program = entry.program
    if program.target.name != device:
        program = program.program_for(device)
    return run.profile(program, plain, entry.out_form.unflatten, machine_speed, runs)


@cache
def machine_speed() -> Speed:
    """The best of a few products of float32 matrices, and copies of a long array."""
    speed = importlib.import_module("treadle.run.profile").Speed
    matrix = np.ones((_SIZE, _SIZE), np.float32)
    long = np.ones(_LENGTH, np.float32)
    product = Jitted(lambda a, b: a @ b)
    copy = Jitted(lambda x: x * 2)
    flops = 2 * _SIZE**3 / _best(product, matrix, matrix)
    return speed(flops, 2 * long.nbytes / _best(copy, long))


def _best(jitted: Jitted, *args: np.ndarray) -> float:
    """The seconds of the quickest of some calls."""
    times = []
    for _ in range(10):
        began = perf_counter()
        jitted(*args)
        times.append(perf_counter() - began)
    return min(times)
