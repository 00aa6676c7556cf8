"""Plans as bytes, which another process can link: nothing in them is an address, nor
an object of the trace.

If sizes are open, they are polynomials over the numbers of a scope. Those that the
trace has made are known by their places: a process that loads the plan has an equal
scope. Those that planning has added, and the guards that it has asked for, are among
the bytes.
"""

from __future__ import annotations

import io
import pickle
from types import BuiltinFunctionType, FunctionType
from typing import Any

from treadle.dims import Atom, Dim, Real, Scope
from treadle.fuse.lowering.launches import Binding
from treadle.ir.graph import Var
from treadle.kernels.nest import Instr, Nest, Operand
from treadle.plan.steps import Buffer, Place, Plan
from treadle.trace.op import Op, registry

_KNOWN = (
    *("treadle", "numpy", "ml_dtypes", "builtins", "copyreg", "functools"),
    *("math", "_operator"),
)


_TUPLES = frozenset({Place, Binding, Instr, Operand})


class Unsaved(Exception):
    """A plan holds something that another process does not know."""


def dumps(
    plan: Plan, scope: Scope | None = None, since: tuple[int, int] = (0, 0)
) -> bytes:
    """A plan as bytes.

    Args:
      scope: that of its sizes, if some are open.
      since: the scope's extent before the plan was made.

    Raises:
      Unsaved: if it calls a user's function.
    """
    atoms, guards = since
    added = () if scope is None else scope.atoms[atoms:]
    asked = () if scope is None else tuple(scope.guards.values())[guards:]
    file = io.BytesIO()
    # Atoms first: sizes are made of them.
    _Pickler(file, scope).dump((added, asked, plan))
    return file.getvalue()


def loads(content: bytes, scope: Scope | None = None) -> Plan:
    """The plan that `dumps` made these bytes of. They must be trusted: a plan says what
    memory a program reads and writes.

    scope: one that equals that of the plan's sizes before it was made. It gets what the
      plan has added, or is left as it was if there is an error.

    Raises:
      Unsaved: if they are not of a plan, or name what this process does not have.
    """
    scope = Scope() if scope is None else scope
    first = len(scope.atoms)
    with scope.undone():
        try:
            _, asked, plan = _Unpickler(io.BytesIO(content), scope).load()
            scope.recall(first, asked)
        except Unsaved:
            raise
        except Exception as error:
            raise Unsaved(f"these bytes are no plan: {error}") from error
        if type(plan) is not Plan:
            raise Unsaved(f"these bytes are of {type(plan).__name__}, no plan")
    return plan


def _registered(name: str) -> Op:
    return registry[name]


def _same(nest: Nest) -> Nest:
    """Stands for an equal nest, of which there is one object among the bytes: kernels
    are looked up by nests, and those are long."""
    return nest


def _size(key: tuple) -> Any:
    """Stands for `Scope.exact` among the bytes."""
    raise Unsaved(f"the size {key} is of no scope")


def _atom(*parts: Any) -> Any:
    """Stands for `Scope.atom` among the bytes."""
    raise Unsaved(f"the number {parts[0]} is of no scope")


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, scope: Scope | None) -> None:
        super().__init__(file, protocol=5)
        self._scope = scope
        self._nests: dict[Nest, Nest] = {}
        self._passed: set[type] = set()

    def reducer_override(self, x: Any) -> Any:
        kind = type(x)
        # There are many of these: a call reads them quicker than what pickle does, and
        # is found quicker.
        if kind in _TUPLES:
            return kind, tuple(x)
        if kind is Var:
            return Var, (x.type,)
        if kind in self._passed:
            return NotImplemented
        if kind is Nest:
            first = self._nests.setdefault(x, x)
            return NotImplemented if first is x else (_same, (first,))
        if kind is Op:
            return _registered, (x.name,)
        if kind is Buffer and not x.loops:  # Those refer to what they are in.
            life = x.first, x.last, (), x.type, x.origin
            return Buffer, (x.nbytes, x.home, x.index, x.offset, *life)
        if kind is Dim and x.scope is self._scope:
            return _size, (x.key,)
        if kind is Atom:
            return _atom, (x.name, x.hint, x.low, x.fn, x.args, x.high)
        if kind is Dim or kind is Real:
            raise Unsaved(f"{x!r} is of another trace")
        named = isinstance(x, type | FunctionType | BuiltinFunctionType)
        module = (x if named else kind).__module__
        if module.partition(".")[0] not in _KNOWN:
            raise Unsaved(f"{x!r} is the user's own")
        if not (named or kind is Buffer):
            self._passed.add(kind)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, scope: Scope) -> None:
        super().__init__(file)
        self._of_scope = {"_size": scope.exact, "_atom": scope.atom}

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name in self._of_scope:
            return self._of_scope[name]
        if module.partition(".")[0] not in _KNOWN:
            raise Unsaved(f"{module}.{name} is not what plans are made of")
        return super().find_class(module, name)
