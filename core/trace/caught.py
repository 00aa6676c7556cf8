"""Errors that a traced function raises when a value says so: whether something around
catches them.

A compiled program has no `except`. So it must be known, while a function is traced,
whether an error would leave it: what stands around the `raise` is read off the source.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import textwrap
from collections import ChainMap
from collections.abc import Mapping
from dis import get_instructions
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from treadle.errors import is_ours
from treadle.trace.source import around, depth

Names = Mapping[str, Any]
"""What names mean where code runs."""

UNKNOWN = object()

_MANAGER = contextlib.contextmanager(lambda: iter(()))
"""A function that `contextmanager` made: the code of all of them is this one's."""


def caught_at(frame: FrameType | None, within: int, kind: type[Exception]) -> str:
    """The line of an `except`, or of a `with`, that may catch an error that is raised
    in a frame, of the functions that are running, down to that depth; "" if there is
    none."""
    while frame is not None and depth(frame) > within:
        code = frame.f_code
        if not is_ours(code.co_filename) and _ends_a_lookup(code, kind):
            return f"{code.co_filename}:{frame.f_lineno}"
        if not _is_harmless(code):
            names = ChainMap(frame.f_locals, frame.f_globals, frame.f_builtins)
            for statement in around(frame):
                line = _catching_line(statement, names, kind)
                if line and is_ours(code.co_filename) and frame.f_back is not None:
                    # A decorator's: what is the user's is who calls it.
                    code, line = frame.f_back.f_code, frame.f_back.f_lineno
                if line:
                    return f"{code.co_filename}:{line}"
        frame = frame.f_back
    return ""


def _ends_a_lookup(code: CodeType, kind: type[Exception]) -> bool:
    """Whether Python itself may catch an error that leaves code: loops end so, and
    `hasattr` asks so."""
    if issubclass(kind, IndexError):
        return code.co_name == "__getitem__"
    return issubclass(kind, StopIteration | AttributeError)


def _catching_line(
    statement: ast.Try | ast.With, names: Names, kind: type[Exception]
) -> int:
    """Where an error that leaves the body of a statement may be caught; 0 if it is
    not."""
    if isinstance(statement, ast.With):
        for item in statement.items:
            if _may_swallow(item.context_expr, names, kind):
                return item.context_expr.lineno
        return 0
    for handler in statement.handlers:
        if _may_catch(handler.type, names, kind):
            return handler.lineno
    return 0


def _may_catch(caught: ast.expr | None, names: Names, kind: type[Exception]) -> bool:
    """Whether what is written behind `except` is a class of an error, or not known."""
    if isinstance(caught, ast.Tuple):
        return any(_may_catch(part, names, kind) for part in caught.elts)
    found = _meaning(caught, names)
    return not isinstance(found, type) or issubclass(kind, found)


def _meaning(expression: ast.expr | None, names: Names) -> Any:
    """What a name, or an attribute of one, stands for. Nothing is called for that."""
    if isinstance(expression, ast.Name):
        return names.get(expression.id, UNKNOWN)
    if not isinstance(expression, ast.Attribute):
        return UNKNOWN
    holder = _meaning(expression.value, names)
    if holder is UNKNOWN:
        return UNKNOWN
    if isinstance(holder, ModuleType):
        return getattr(holder, expression.attr, UNKNOWN)
    found = inspect.getattr_static(holder, expression.attr, UNKNOWN)
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    is_method = isinstance(found, FunctionType) and not isinstance(holder, type)
    return MethodType(found, holder) if is_method else found


# Context managers -----------------------------------------------------------------


def _may_swallow(expression: ast.expr, names: Names, kind: type[Exception]) -> bool:
    """Whether what stands behind `with` may end an error of a kind."""
    if not isinstance(expression, ast.Call):
        return _manager_may(_meaning(expression, names), kind)
    made = _meaning(expression.func, names)
    if made is contextlib.suppress:
        return any(_may_catch(one, names, kind) for one in expression.args)
    if made is open:
        return False
    if isinstance(made, type):
        return _class_may(made)
    if isinstance(made, MethodType):
        # A context manager that is used as a decorator makes itself anew.
        again = isinstance(made.__self__, contextlib.ContextDecorator)
        return not again or _manager_may(made.__self__, kind)
    if not isinstance(made, FunctionType):
        return True
    if made.__code__ is _MANAGER.__code__:
        return _generator_may(inspect.unwrap(made), kind)
    return not _is_harmless(made.__code__)


def _manager_may(manager: Any, kind: type[Exception]) -> bool:
    """Whether an object may end an error of a kind that is raised under its `with`."""
    if manager is UNKNOWN:
        return True
    made_by = getattr(manager, "func", None)
    if isinstance(manager, contextlib.ContextDecorator) and made_by is not None:
        return _generator_may(made_by, kind)
    return _class_may(type(manager))


def _class_may(made: type) -> bool:
    """Whether the objects of a class may end errors: whether their `__exit__` gives
    anything but None and False."""
    leave = inspect.getattr_static(made, "__exit__", None)
    if not isinstance(leave, FunctionType):
        return False  # locks and files, in C
    return not _is_harmless(leave.__code__) and _may_give(leave.__code__)


def _is_harmless(code: CodeType) -> bool:
    """Whether code is the library's own, or NumPy's, which end no error of a user's."""
    return is_ours(code.co_filename) and code.co_filename != contextlib.__file__


def _may_give(code: CodeType) -> bool:
    """Whether a function may give something that is true, as its instructions say."""
    before: Any = None
    for instruction in get_instructions(code):
        if instruction.opname == "RETURN_CONST":
            if instruction.argval:
                return True
        elif instruction.opname == "RETURN_VALUE":
            constant = before is not None and before.opname == "LOAD_CONST"
            if not constant or before.argval:
                return True
        before = instruction
    return False


def _generator_may(function: Any, kind: type[Exception]) -> bool:
    """Whether a generator that stands for a context manager catches what is raised at
    its `yield`."""
    try:
        lines = textwrap.dedent(inspect.getsource(function))
        tree = ast.parse(lines)
    except (OSError, TypeError, SyntaxError):
        return True
    if not isinstance(function, FunctionType):
        return True
    own = inspect.getclosurevars(function)
    names = ChainMap(dict(own.nonlocals), dict(own.globals), dict(own.builtins))
    return any(
        _catching_line(statement, names, kind)
        for statement in ast.walk(tree)
        if isinstance(statement, ast.Try | ast.With)
        and any(isinstance(n, ast.Yield) for s in statement.body for n in ast.walk(s))
        and not _raises_again(statement)
    )


def _raises_again(statement: ast.Try | ast.With) -> bool:
    """Whether all that a `try` catches goes on: each `except` ends with a `raise`."""
    return isinstance(statement, ast.Try) and all(
        isinstance(handler.body[-1], ast.Raise) for handler in statement.handlers
    )
