"""Plans as bytes, which another process can link: nothing in them is an address, nor
an object of the trace."""

from __future__ import annotations

import io
import pickle
from types import FunctionType
from typing import Any

from treadle.plan.steps import Plan
from treadle.trace.op import Op, registry

_KNOWN = ("treadle", "numpy", "ml_dtypes", "builtins", "copyreg", "functools")


class Unsaved(Exception):
    """A plan holds something that another process does not know."""


def dumps(plan: Plan) -> bytes:
    """A plan as bytes.

    Raises:
      Unsaved: if it calls a user's function.
    """
    file = io.BytesIO()
    _Pickler(file, protocol=5).dump(plan)
    return file.getvalue()


def loads(content: bytes) -> Plan:
    """The plan that `dumps` made these bytes of. They must be trusted: a plan says what
    memory a program reads and writes.

    Raises:
      Unsaved: if they are not of a plan, or name what this process does not have.
    """
    try:
        plan = _Unpickler(io.BytesIO(content)).load()
    except Unsaved:
        raise
    except Exception as error:
        raise Unsaved(f"these bytes are no plan: {error}") from error
    if type(plan) is not Plan:
        raise Unsaved(f"these bytes are of {type(plan).__name__}, no plan")
    return plan


def _registered(name: str) -> Op:
    return registry[name]


class _Pickler(pickle.Pickler):
    def reducer_override(self, x: Any) -> Any:
        if type(x) is Op:
            return _registered, (x.name,)
        owner = x if isinstance(x, type | FunctionType) else type(x)
        if owner.__module__.partition(".")[0] not in _KNOWN:
            raise Unsaved(f"{x!r} is the user's own")
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] not in _KNOWN:
            raise Unsaved(f"{module}.{name} is not what plans are made of")
        return super().find_class(module, name)
