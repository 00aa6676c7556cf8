"""What NumPy's functions do when they are called with our arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.errors import TracerError, at, user_source
from treadle.trace.value import Tracer, Value

_TRACED = (
    "{0} was called with an array that is being traced{1}\n"
    "Compose it from functions of `treadle.numpy`, or let NumPy do it when the program "
    "runs:\n`td.pure_callback({0}, td.ShapeDtype(shape, dtype), x)`."
)
_NO_OPTION = (
    "{0} was called with `{2}=` and an array that is being traced{1}\n"
    "NumPy's memory can't hold traced values: instead of `x += y`, `x -= y`… and of "
    "`out=`, write `x = x + y`,\ninstead of `x[i] += y` for an x of Treadle's "
    "`x = x.at[i].add(y)`;\nfor other options use `treadle.numpy`."
)

ours: dict[Any, Any] = {}
"""NumPy's functions, and those of the same names here."""


def numpy_call(function: Any, args: Any, options: dict[str, Any]) -> Any:
    """NumPy called with our arrays: NumPy's own result if their values are known,
    else that of our function of the same name."""
    if not _traced((args, options)):
        return function(*_to_numpy(args), **_to_numpy(options))
    if function not in ours:
        raise TracerError(_TRACED.format(_numpy_name(function), at(user_source())))
    if isinstance(function, np.ufunc) and options:
        raise TracerError(
            _NO_OPTION.format(
                _numpy_name(function), at(user_source()), min(options, key=str)
            )
        )
    return ours[function](*args, **options)


def _numpy_name(function: Any) -> str:
    """How users write a function of NumPy's: `np.linalg.norm`."""
    module = getattr(function, "__module__", None) or "numpy"
    return (
        f"{module.replace('numpy', 'np', 1)}.{getattr(function, '__name__', function)}"
    )


def _traced(x: Any) -> bool:
    if isinstance(x, list | tuple):
        return any(map(_traced, x))
    if isinstance(x, dict):
        return any(map(_traced, x.values()))
    return isinstance(x, Tracer)


def _to_numpy(x: Any) -> Any:
    if isinstance(x, list | tuple):
        return type(x)([_to_numpy(item) for item in x])
    if isinstance(x, dict):
        return {k: _to_numpy(v) for k, v in x.items()}
    return np.asarray(x) if isinstance(x, Value) else x
