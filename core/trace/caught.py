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
import threading
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dis import get_instructions
from types import (
    CodeType,
    FrameType,
    FunctionType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

from treadle.errors import is_ours
from treadle.trace.rewrite import own, parts
from treadle.trace.source import around, depth

Names = Mapping[str, Any]
"""What names mean where code runs."""

UNKNOWN = object()

_FOLLOWED = 3
"""Through how many functions that return a context manager it is looked for."""

_SUPER_EXIT = "super().__exit__"

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
        if _is_a_mapping(code) and frame.f_back is not None:
            if issubclass(kind, KeyError):
                return f"{frame.f_back.f_code.co_filename}:{frame.f_back.f_lineno}"
        elif not _is_harmless(code):
            names = _names_in(frame)
            for statement, guarded in around(frame):
                line = _catching_line(statement, guarded, names, kind)
                if line and is_ours(code.co_filename) and frame.f_back is not None:
                    # A decorator's: what is the user's is who calls it.
                    code, line = frame.f_back.f_code, frame.f_back.f_lineno
                if line:
                    return f"{code.co_filename}:{line}"
        frame = frame.f_back
    return ""


def _names_in(frame: FrameType) -> Names:
    return ChainMap(frame.f_locals, frame.f_globals, frame.f_builtins)


def _ends_a_lookup(code: CodeType, kind: type[Exception]) -> bool:
    """Whether Python itself may catch an error that leaves code: loops end so, and
    `hasattr` asks so."""
    if issubclass(kind, IndexError):
        return code.co_name == "__getitem__"
    return issubclass(kind, StopIteration | AttributeError)


def _is_a_mapping(code: CodeType) -> bool:
    """Whether code is that of `Mapping.get` and the like, which has no source to read:
    it catches what a look-up raises."""
    return code.co_filename == "<frozen _collections_abc>"


def _catching_line(
    statement: ast.stmt, guarded: bool, names: Names, kind: type[Exception]
) -> int:
    """Where an error that is raised in a statement may be caught; 0 if it is not.

    guarded: whether in its body.
    """
    if isinstance(statement, ast.With):
        for item in statement.items if guarded else ():
            if _may_end(item, names, kind):
                return item.context_expr.lineno
    elif isinstance(statement, ast.Try | ast.TryStar):
        for handler in statement.handlers if guarded else ():
            if not _raises_again(handler) and _may_catch(handler.type, names, kind):
                return handler.lineno
        return _leaving_line(statement.finalbody)
    return 0


def _raises_again(handler: ast.ExceptHandler) -> bool:
    """Whether what an `except` catches goes on as it is."""
    last, inside = handler.body[-1], [n for s in handler.body for n in (s, *own(s))]
    raised = [n for n in inside if isinstance(n, ast.Raise)]
    return (
        isinstance(last, ast.Raise)
        and all(r.exc is None for r in raised)
        and not _leaving_line(handler.body)
    )


def _leaving_line(body: Sequence[ast.AST], loop: bool = False) -> int:
    """Where statements leave what they stand in by other means than an error: so a
    `finally` ends errors. 0 if they don't.

    loop: whether they are in a loop that stands there, too.
    """
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(node, ast.Return):
            return node.lineno
        if isinstance(node, ast.Break | ast.Continue) and not loop:
            return node.lineno
        inner = loop or isinstance(node, ast.For | ast.While)
        if line := _leaving_line(list(parts(node)), inner):
            return line
    return 0


def _may_catch(caught: ast.expr | None, names: Names, kind: type[Exception]) -> bool:
    """Whether what is written behind `except` is a class of an error, or not known."""
    if isinstance(caught, ast.Tuple):
        return any(_may_catch(part, names, kind) for part in caught.elts)
    found = _meaning(caught, names)
    return not isinstance(found, type) or issubclass(kind, found)


def _meaning(expression: ast.expr | None, names: Names) -> Any:
    """What a name, or an attribute or a constant item of one, stands for. Nothing is
    called for that."""
    if isinstance(expression, ast.Name):
        return names.get(expression.id, UNKNOWN)
    if isinstance(expression, ast.Subscript):
        holder, place = _meaning(expression.value, names), expression.slice
        index = place.value if isinstance(place, ast.Constant) else None
        if type(holder) in (list, tuple, dict) and isinstance(index, int | str):
            with contextlib.suppress(LookupError, TypeError):
                return holder[index]
        return UNKNOWN
    if not isinstance(expression, ast.Attribute):
        return UNKNOWN
    holder = _meaning(expression.value, names)
    if holder is UNKNOWN:
        return UNKNOWN
    if isinstance(holder, ModuleType):
        return getattr(holder, expression.attr, UNKNOWN)
    return _attribute(holder, expression.attr)


def _attribute(holder: Any, name: str) -> Any:
    """What an object has under a name. Properties are not known: they would be run."""
    found = inspect.getattr_static(holder, name, UNKNOWN)
    if isinstance(found, staticmethod):
        return found.__func__
    if isinstance(found, classmethod):
        made = holder if isinstance(holder, type) else type(holder)
        return MethodType(found.__func__, made)
    if isinstance(found, FunctionType):
        own = name in getattr(holder, "__dict__", ())
        return found if own or isinstance(holder, type) else MethodType(found, holder)
    if isinstance(found, MemberDescriptorType):
        return getattr(holder, name, UNKNOWN)
    return UNKNOWN if hasattr(type(found), "__get__") else found


# Context managers -----------------------------------------------------------------


def _may_end(item: ast.withitem, names: Names, kind: type[Exception]) -> bool:
    """Whether one of the managers of a `with` may end an error of a kind."""
    target = item.optional_vars
    if isinstance(target, ast.Name):
        stack = names.get(target.id)
        if type(stack) is contextlib.ExitStack:
            return _manager_may(stack, kind)
    return _may_swallow(item.context_expr, names, kind)


def _may_swallow(
    expression: ast.expr, names: Names, kind: type[Exception], follow: int = _FOLLOWED
) -> bool:
    """Whether the manager that an expression gives may end an error of a kind.

    follow: through how many functions what they return is looked for.
    """
    if isinstance(expression, ast.IfExp):
        both = expression.body, expression.orelse
        return any(_may_swallow(one, names, kind, follow) for one in both)
    if not isinstance(expression, ast.Call):
        return _manager_may(_meaning(expression, names), kind)
    made = _meaning(expression.func, names)
    if made is contextlib.suppress:
        return any(_may_catch(one, names, kind) for one in expression.args)
    if made in (open, threading.Lock) or getattr(made, "__module__", "") == "tempfile":
        # Their code does not tell: they give what a file's does.
        return False
    if made is contextlib.ExitStack:
        return True
    if isinstance(made, type):
        return _class_may(made)
    if not isinstance(made, FunctionType | MethodType) and made is not UNKNOWN:
        # An object that can be called.
        made = _attribute(made, "__call__")
    first: tuple[Any, ...] = ()
    if isinstance(made, MethodType):
        if isinstance(made.__self__, contextlib.ContextDecorator):
            # A manager that is used as a decorator makes itself anew.
            return _manager_may(made.__self__, kind)
        first, made = (made.__self__,), made.__func__
    if not isinstance(made, FunctionType):
        return True
    if made.__code__ is _MANAGER.__code__:
        return _generator_may(inspect.unwrap(made), kind, first)
    return not _is_harmless(made.__code__) and _given_may(made, kind, first, follow)


def _given_may(
    function: FunctionType, kind: type[Exception], first: tuple[Any, ...], follow: int
) -> bool:
    """Whether one of the managers that a function returns may end an error.

    first: the object whose method it is.
    """
    known = _definition(function, first)
    if not follow or known is None:
        return True
    node, names = known
    returned = [n.value for n in own(node) if isinstance(n, ast.Return)]
    return not returned or any(
        value is None or _may_swallow(value, names, kind, follow - 1)
        for value in returned
    )


def _definition(
    function: FunctionType, first: tuple[Any, ...]
) -> tuple[ast.AST, Names] | None:
    """The source of a function, and what names mean in it that are not bound there."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        outer = inspect.getclosurevars(function)
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    code = function.__code__
    local = dict.fromkeys((*code.co_varnames, *code.co_cellvars), UNKNOWN)
    local |= dict(zip(code.co_varnames, first, strict=False))
    outside = outer.nonlocals, outer.globals, outer.builtins
    return tree.body[0], ChainMap(local, *map(dict, outside))


def _manager_may(manager: Any, kind: type[Exception]) -> bool:
    """Whether an object may end an error of a kind that is raised under its `with`."""
    if manager is UNKNOWN:
        return True
    if type(manager) is contextlib.ExitStack:
        return any(
            _exit_may(leave, kind) for _, leave in vars(manager)["_exit_callbacks"]
        )
    made_by = getattr(manager, "func", None)
    if isinstance(manager, contextlib.ContextDecorator) and made_by is not None:
        return _generator_may(made_by, kind, ())
    entered = getattr(getattr(manager, "gen", None), "gi_frame", None)
    if isinstance(manager, contextlib.ContextDecorator) and entered is not None:
        names = _names_in(entered)
        return any(_catching_line(s, g, names, kind) for s, g in around(entered))
    if isinstance(manager, contextlib.suppress):
        return any(issubclass(kind, one) for one in vars(manager)["_exceptions"])
    return _class_may(type(manager))


def _exit_may(leave: Any, kind: type[Exception]) -> bool:
    """Whether what a stack calls at its end may end an error."""
    if isinstance(leave, MethodType) and leave.__name__ == "__exit__":
        return _manager_may(leave.__self__, kind)
    return not isinstance(leave, FunctionType) or _may_give(leave.__code__)


def _class_may(made: type, above: type | None = None) -> bool:
    """Whether the objects of a class may end errors: whether their `__exit__` gives
    anything but None and False.

    above: the class whose `__exit__` calls the one that comes next (`super`).
    """
    line = made.__mro__
    for owner in line[line.index(above) + 1 if above else 0 :]:
        leave = vars(owner).get("__exit__")
        if isinstance(leave, FunctionType):
            if _is_harmless(leave.__code__) or not _may_give(leave.__code__):
                return False
            return not _gives_what_is_above(leave) or _class_may(made, owner)
        if leave is not None:
            # That of locks and files is in C.
            return not isinstance(leave, MethodDescriptorType)
    return True


def _gives_what_is_above(leave: FunctionType) -> bool:
    """Whether an `__exit__` gives nothing but what ``super().__exit__(...)`` does."""
    known = _definition(leave, ())
    if known is None or not isinstance(known[0], ast.FunctionDef):
        return False
    returned = [n.value for n in own(known[0]) if isinstance(n, ast.Return)]
    return all(
        value is None
        or (isinstance(value, ast.Constant) and not value.value)
        or (isinstance(value, ast.Call) and ast.unparse(value.func) == _SUPER_EXIT)
        for value in returned
    )


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


def _generator_may(
    function: Any, kind: type[Exception], first: tuple[Any, ...]
) -> bool:
    """Whether a generator that stands for a context manager catches what is raised at
    its `yield`."""
    known = None
    if isinstance(function, FunctionType):
        known = _definition(function, first)
    if known is None:
        return True
    node, names = known
    return any(
        _catching_line(statement, _yields(statement.body), names, kind)
        for statement in own(node)
        if isinstance(statement, ast.Try | ast.TryStar | ast.With)
        and _yields([statement])
    )


def _yields(body: Sequence[ast.stmt]) -> bool:
    return any(isinstance(n, ast.Yield) for s in body for n in (s, *own(s)))
