"""Statements of the user's functions that become functions of their own.

Where a statement branches on a traced value, what it leaves behind is joined at its
end, rather than at the end of the function: twelve `if`s in a row are twelve branches
then, not 4,096 ways. To that end the function gets other code, which is compiled from
its source: the statement is the body of a nested function, a step, that a helper calls.
Names that it binds are cells, which the helper reads and writes. Lines and columns stay
what they were.
"""

from __future__ import annotations

import ast
import copy
import gc
import inspect
import linecache
import threading
import warnings
from collections.abc import Callable, Collection
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple, TypeGuard

from treadle.errors import is_ours
from treadle.trace.rewrite import counts, covers, fits, own, parts, with_steps

Place = tuple[str, int, int]
"""Of a statement: file, line, column."""

helpers: dict[str, Callable[..., Any]] = {}
"""What steps are called by, under the names that they have in the user's modules."""

unfit: set[Place] = set()
"""Statements that turned out to leave something behind that can't be joined."""

_wrapped: set[Place] = set()
_sources: dict[int, tuple[CodeType, _Source | None]] = {}
_modules: dict[str, tuple[tuple[str, ...], ast.Module]] = {}
_lock = threading.RLock()

_NO_STEPS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class _Source(NamedTuple):
    """A function's definition, and the lines of its file when it was read."""

    file: str
    node: ast.FunctionDef

    def path(self, line: int, column: int) -> list[ast.stmt]:
        """The statements around a position, the innermost first."""
        found: list[ast.stmt] = []
        node: ast.AST | None = self.node
        while node is not None:
            node = next((s for s in parts(node) if covers(s, line, column)), None)
            if isinstance(node, ast.stmt):
                found.append(node)
        return found[::-1]

    def place(self, statement: ast.stmt) -> Place:
        return self.file, statement.lineno, statement.col_offset


def _source_of(code: CodeType) -> _Source | None:
    """Where code comes from; None if it can't be compiled anew."""
    known = _sources.get(id(code))
    if known is not None:
        return known[1]
    found = None
    if not code.co_flags & _NO_STEPS and code.co_flags & inspect.CO_NEWLOCALS:
        for node in ast.walk(_module(code.co_filename)):
            if _defines(node, code) and _is_source_of(node, code):
                found = _Source(code.co_filename, node)
    _sources[id(code)] = code, found
    return found


def _is_source_of(node: ast.FunctionDef, code: CodeType) -> bool:
    """Whether a definition is that of code: the file may have been edited since, or the
    code been changed, as tests' asserts are."""
    made = _code_of(copy.deepcopy(node), code)
    return made is not None and _alike(made, code)


def _alike(a: CodeType, b: CodeType) -> bool:
    words = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars")
    if any(getattr(a, word) != getattr(b, word) for word in words):
        return False
    return len(a.co_consts) == len(b.co_consts) and all(
        _alike(x, y) if isinstance(x, CodeType) else repr(x) == repr(y)
        for x, y in zip(a.co_consts, b.co_consts, strict=True)
        if isinstance(x, CodeType) == isinstance(y, CodeType)
    )


def _module(file: str) -> ast.Module:
    lines = tuple(linecache.getlines(file))
    known = _modules.get(file)
    if known is None or known[0] != lines:
        try:
            tree = ast.parse("".join(lines))
        except (SyntaxError, ValueError):
            tree = ast.Module([], [])
        known = _modules[file] = lines, tree
    return known[1]


def _fits_code(node: ast.FunctionDef, code: CodeType) -> bool:
    """Whether code can be of this definition: the file may have changed since."""
    a = node.args
    names = [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    names += [x.arg for x in (a.vararg, a.kwarg) if x is not None]
    return list(code.co_varnames[: len(names)]) == names


# Which statement ------------------------------------------------------------------


class Found(NamedTuple):
    """A statement that ought to be a step, and the frame of the function that gets
    other code for it."""

    place: Place
    frame: FrameType


def statement_at(
    frame: FrameType | None, stop: CodeType, but: Collection[Place]
) -> Found | None:
    """The innermost statement that can be a step and is none yet, among those that are
    running, up to a frame of `stop`; None if the innermost step is open already.

    but: statements that can't be.
    """
    while frame is not None and frame.f_code is not stop:
        code = frame.f_code
        source = None if is_ours(code.co_filename) else _source_of(code)
        if source is not None:
            for statement in source.path(*_position(frame)):
                place = source.place(statement)
                if place in unfit:
                    continue
                if place in _steps.get(id(code), ()):
                    return None
                if place in but:
                    continue
                if fits(statement):
                    return Found(place, frame)
        frame = frame.f_back
    return None


def is_counted(frame: FrameType | None) -> bool:
    """Whether a frame is at the `range` of a loop that can be one over traced
    numbers."""
    if frame is None or is_ours(frame.f_code.co_filename):
        return False
    source = _source_of(frame.f_code)
    if source is None:
        return False
    line, column = _position(frame)
    loop = next(iter(source.path(line, column)), None)
    return (
        isinstance(loop, ast.For) and counts(loop) and covers(loop.iter, line, column)
    )


def around(frame: FrameType) -> list[ast.Try | ast.With]:
    """The statements with a body in which a frame is, that may catch what is raised
    there, the innermost first."""
    line, column = _position(frame)
    code = _roots.get(id(frame.f_code), frame.f_code)
    source = _source_of(frame.f_code)
    if source is None:
        # Of what can't get other code, generators or tests, the definition will do.
        nodes = (n for n in ast.walk(_module(code.co_filename)) if _defines(n, code))
        source = next((_Source(code.co_filename, node) for node in nodes), None)
    return [
        s
        for s in (source.path(line, column) if source else ())
        if isinstance(s, ast.Try | ast.With)
        and any(covers(b, line, column) for b in s.body)
    ]


def _position(frame: FrameType) -> tuple[int, int]:
    positions = list(frame.f_code.co_positions())
    line, _, column, _ = positions[frame.f_lasti // 2]
    return line or frame.f_lineno, column or 0


_steps: dict[int, frozenset[Place]] = {}
"""For code that was made here: the steps that it is a part of."""

_roots: dict[int, CodeType] = {}
"""For code that was made here: that of the function that it is a part of."""


# Other code -----------------------------------------------------------------------


def depth(frame: FrameType | None) -> int:
    """How many frames a frame is called by."""
    count = 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


def function_frame(frame: FrameType) -> FrameType:
    """The frame of the function that a running step is a part of."""
    root = _roots.get(id(frame.f_code), frame.f_code)
    found: FrameType | None = frame
    while found is not None and found.f_code is not root:
        found = found.f_back
    return found or frame


def give_steps(found: Found, within: int) -> None:
    """Gives the function of a statement code in which it is a step.

    within: the depth of the frame from which the function will be called again.
    """
    with _lock:
        source = _source_of(found.frame.f_code)
        assert source is not None
        _wrapped.add(found.place)
        owner, function = found.frame, source.node
        frame = found.frame.f_back
        for _ in range(depth(frame) - within):
            assert frame is not None
            # One that defines the function while it is traced makes it anew each time.
            around = None
            if not is_ours(frame.f_code.co_filename):
                around = _source_of(frame.f_code)
            if around and any(n is function for n in ast.walk(around.node)):
                owner = frame
            frame = frame.f_back
        _patch(_roots.get(id(owner.f_code), owner.f_code))


def _patch(code: CodeType) -> None:
    source = _source_of(code)
    assert source is not None
    for function in gc.get_referrers(code):
        if isinstance(function, FunctionType) and function.__code__ is code:
            made = _compiled(source, code)
            if made is not None:
                function.__globals__.update(helpers)
                function.__code__ = made


def _compiled(source: _Source, old: CodeType) -> CodeType | None:
    """The code of a function in which statements are steps."""
    node = with_steps(source.node, lambda s: source.place(s) in _wrapped - unfit)
    code = _code_of(node, old)
    if code is None or code.co_freevars != old.co_freevars:
        return None
    code = code.replace(co_qualname=old.co_qualname, co_firstlineno=old.co_firstlineno)
    _register(code, source, frozenset(), code)
    return code


def _code_of(node: ast.FunctionDef, like: CodeType) -> CodeType | None:
    """The code of a definition, which may be changed, with variables around it that are
    those of other code."""
    # Lines of code count from that of the first decorator.
    first = node.decorator_list[:1]
    node.decorator_list = [ast.copy_location(ast.Constant(None), d) for d in first]
    node.returns = None
    node.args.defaults = [ast.Constant(None) for _ in node.args.defaults]
    node.args.kw_defaults = [d and ast.Constant(None) for d in node.args.kw_defaults]
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    free = [ast.arg(name) for name in like.co_freevars]
    arguments = ast.arguments([], free, None, [], [], None, [])
    outer = ast.FunctionDef("outer", arguments, [node], [], None)
    if hasattr(outer, "type_params"):
        outer.type_params = []
    # Python compiles calls of what a module imports in another way.
    imports = [n for n in own(_module(like.co_filename)) if _imports(n)]
    module = ast.Module([*imports, outer], [])
    ast.copy_location(outer, node)
    ast.fix_missing_locations(module)
    flags = like.co_flags & _FUTURE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = compile(module, like.co_filename, "exec", flags, dont_inherit=True)
        except SyntaxError:
            return None
    return _named(_named(made, "outer"), node.name)


def _imports(node: ast.AST) -> TypeGuard[ast.stmt]:
    if isinstance(node, ast.ImportFrom):
        return node.module != "__future__"
    return isinstance(node, ast.Import)


_FUTURE = 0x1FF0000
"""The bits of code that are switches of `from __future__`."""


def _named(code: CodeType, name: str) -> CodeType:
    return next(
        c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name
    )


def _register(
    code: CodeType, source: _Source, inside: frozenset[Place], root: CodeType
) -> None:
    """Remembers where code was made from, and the code in it."""
    _sources[id(code)] = code, source
    _steps[id(code)], _roots[id(code)] = inside, root
    for part in code.co_consts:
        if not isinstance(part, CodeType):
            continue
        if part.co_name.startswith("_step_"):
            line, column = map(int, part.co_name.split("_")[2:4])
            _register(part, source, inside | {(source.file, line, column)}, root)
        else:
            for node in ast.walk(source.node):
                if _defines(node, part):
                    _register(part, _Source(source.file, node), frozenset(), part)


def _defines(node: ast.AST, code: CodeType) -> TypeGuard[ast.FunctionDef]:
    if not isinstance(node, ast.FunctionDef) or node.name != code.co_name:
        return False
    first = min([node.lineno, *[d.lineno for d in node.decorator_list]])
    return first == code.co_firstlineno and _fits_code(node, code)
