"""Variables that a jitted function reads besides its arguments: when one is bound to
another object at a later call, the function is traced again.

What was traced is kept with the values of these variables. A call compares them by
identity, which a generated chain of `is` does in a fraction of a microsecond.
"""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from keyword import iskeyword
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from treadle.alike import NUMBERS, alike
from treadle.errors import SideEffectWarning, at, warn
from treadle.ir.graph import Graph
from treadle.trace.lowering import Host
from treadle.trace.outside import is_foreign
from treadle.trace.paths import BYTES, CONTEXT, GLOBAL, LENGTH
from treadle.trace.reach import Reach
from treadle.trace.value import Tracer
from treadle.trace.variables import (
    COMPARED,
    MISSING,
    Variable,
    container,
    sample,
)

_CODE = (FunctionType, type, CodeType)

_STALE = """\
{what} {before} when {name} was traced, and {now}: it is traced again, as for each \
value that it gets{at}
Make it an argument: numbers and arrays that are arguments may change freely."""


def read_by(reach: Reach, graph: Graph) -> Sequence[Variable]:
    """The variables on which a trace depends that gave a graph.

    What callbacks read, they read when they run.
    """
    # What the function has changed itself, of which was warned, is left out.
    found = [
        v for v in reach.variables.values() if _may_matter(v) and v.now() is v.value
    ]
    if not found:
        return ()
    later: set[int] = set()
    for function in _callbacks(graph):
        for inner, _ in Reach(function).functions:
            later.update(_codes(inner.__code__))
    return [v for v in found if not v.readers <= later] if later else found


def _callbacks(graph: Graph) -> Iterator[Any]:
    """The functions that are called by Python while the program runs."""
    for eq in graph.equations:
        function = eq.params.get("function")
        if function is not None and isinstance(eq.op.lowering, Host):
            yield function
        for inner in eq.graphs:
            yield from _callbacks(inner)


def _codes(code: CodeType) -> Iterator[int]:
    yield id(code)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _may_matter(v: Variable) -> bool:
    """Whether another object in the place of this one could change what is traced."""
    x = v.value
    if isinstance(x, Tracer):
        return False
    return not isinstance(x, ModuleType) or not is_foreign(x.__name__)


class Kept:
    """What was made for certain values of variables.

    same: whether they have these values still; None if there are no variables.
    made: by the programs of a function. why: what had changed.
    """

    def __init__(self, made: Any, why: str = "") -> None:
        self.made, self.why = made, why
        self.paths: tuple[Any, ...] = ()
        self.same: Callable[[], bool] | None = None
        self._variables: dict[tuple[int, str], Variable] = {}

    def add(self, variables: Sequence[Variable]) -> None:
        """Adds what a trace has read."""
        new = {v.key: v for v in variables if v.key not in self._variables}
        if new:
            self._variables.update(new)
            self.same = self._compare

    def quicken(self) -> None:
        """Generates `same`, for what is called often."""
        if self.same == self._compare:
            self.same = _chain([*self._variables.values()])

    def _compare(self) -> bool:
        return all(v.now() is v.value for v in self._variables.values())

    def changes(self) -> list[tuple[Variable, Any]]:
        """The variables that mean something else now, each with its value."""
        pairs = [(v, v.now()) for v in self._variables.values()]
        differ = [(v, now) for v, now in pairs if now is not v.value]
        found = [(v, now) for v, now in differ if not alike(v.value, now)]
        if differ and not found:
            self._variables.update({v.key: v._replace(value=x) for v, x in differ})
            self.same = self._compare
        return found


def _chain(variables: Sequence[Variable]) -> Callable[[], bool]:
    # Python finds global variables of the function that runs faster than items of any
    # other dict: the function is as one of the module in which most variables are.
    modules = Counter([id(v.holder) for v in variables if type(v.holder) is dict])
    most = max(modules, key=modules.__getitem__, default=0)
    around: dict[str, Any] = {}
    errors = LookupError, NameError, ValueError, AttributeError
    given: dict[str, Any] = {
        **{"given": errors, "given_length": len, "given_in": dict.get},
        **{"given_bytes": bytes, "given_of": getattr},
    }
    tests = []
    for i, v in enumerate(variables):
        given[f"given{i}"] = v.value
        if id(v.holder) == most and _is_plain(v.name) and v.value is not MISSING:
            around, read = v.holder, v.name
        else:
            given[f"given_by{i}"] = v.holder
            read = _read(v, f"given_by{i}", f"given_as{i}", given)
        same = "==" if type(v.name) is not str and v.name in COMPARED else "is"
        tests.append(f"{read} {same} given{i}")
    text = (
        f"def same({', '.join(given)}):\n try: return {' and '.join(tests)}\n"
        " except given: return False"
    )
    made: dict[str, Any] = {}
    exec(text, made)
    return FunctionType(made["same"].__code__, around, "same", tuple(given.values()))


def _read(v: Variable, holder: str, key: str, given: dict[str, Any]) -> str:
    """How a variable is read, in the text of a function with parameters `given`."""
    kind = container(type(v.holder))
    if v.name is LENGTH:
        return f"given_length({holder})"
    if v.name is BYTES:
        given[holder] = sample(v.holder)
        raw = isinstance(v.holder, bytearray)
        return f"given_bytes({holder})" if raw else f"{holder}.tobytes()"
    if kind == "set":
        return holder
    if type(v.holder) is CellType:
        return f"{holder}.cell_contents"
    given["given_none"] = MISSING
    if v.name is CONTEXT:
        return f"{holder}.get({'given_none' if v.value is MISSING else ''})"
    if not kind:
        if v.value is MISSING or not v.name.isidentifier():
            return f"given_of({holder}, {v.name!r}, given_none)"
        return f"{holder}.{v.name}"
    if type(v.name) not in (str, int):
        given[key] = v.name
    else:
        key = repr(v.name)
    if v.path == (GLOBAL, v.name) and v.name not in v.holder:
        given["given_builtins"] = vars(builtins)
        return f"({holder}[{key}] if {key} in {holder} else given_builtins[{key}])"
    # One that makes what it has not is asked so that it does not.
    if kind == "proxy":
        return f"({holder}[{key}] if {key} in {holder} else given_none)"
    if kind == "dict" and (type(v.holder) is not dict or v.value is MISSING):
        return f"given_in({holder}, {key}, given_none)"
    return f"{holder}[{key}]"


def _is_plain(name: Any) -> bool:
    """Whether a name stands for a global variable in the text of a function that has
    parameters of its own."""
    if type(name) is not str:
        return False
    own = name.startswith("given") or name.startswith("__")
    return name.isidentifier() and not iskeyword(name) and not own


def described(changes: Sequence[tuple[Variable, Any]]) -> str:
    """What has changed, as a reason for a trace."""
    shown = [
        f"{v.label} is bound to another object"
        if isinstance(v.value, _CODE)
        else f"{v.label} have changed"
        if v.name is BYTES
        else f"{v.label} is {_shown(now)}, was {_shown(v.value)}"
        for v, now in islice(changes, 3)
    ]
    return "; ".join(shown)


def warn_of(changes: Sequence[tuple[Variable, Any]], name: str, told: set[str]) -> None:
    """Warns once of each variable that holds data. (Who defines a function anew wants
    it to be used.)"""
    for v, now in changes:
        if isinstance(now, _CODE) or isinstance(v.value, _CODE) or v.label in told:
            continue
        told.add(v.label)
        before = "was missing" if v.value is MISSING else f"was {_shown(v.value)}"
        after = f"is {_shown(now)}"
        if v.name is BYTES:
            before, after = "were others", "have changed"
        text = _STALE.format(
            what=v.label, before=before, name=name, now=after, at=at(v.source)
        )
        warn(text, SideEffectWarning, v.source)


def _shown(x: Any) -> str:
    if isinstance(x, NUMBERS):
        return f"{x!r:.60}"
    if isinstance(x, ModuleType):
        return f"the module {x.__name__}"
    return "deleted" if x is MISSING else f"another {type(x).__name__}"


def is_light(values: Sequence[Any]) -> bool:
    """Whether values take no memory to speak of, so that what was traced for them may
    be kept for when they come back."""
    return all(isinstance(x, (*NUMBERS, *_CODE)) for x in values)
