"""Statements as functions, on syntax trees: which can be, and what stands instead.

A statement becomes the body of a nested function that takes nothing; names that it
binds are the outer function's still. A call to a helper runs it.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

STEP, LOOP, COUNT = "__treadle_step__", "__treadle_while__", "__treadle_for__"
_ITEM = "__treadle_item__"
_LEFT, _VALUE = "__treadle_left_{}_{}__", "__treadle_value_{}_{}__"

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_KINDS = (
    ast.If,
    ast.Assign,
    ast.AugAssign,
    ast.AnnAssign,
    ast.Expr,
    ast.Assert,
    ast.For,
    ast.With,
    ast.While,
)
_LEAVES = (
    ast.Return,
    ast.Yield,
    ast.YieldFrom,
    ast.Await,
    ast.Global,
    ast.Nonlocal,
    ast.Delete,
)
_SPECIAL = {"super", "__class__", "locals", "vars", "eval", "exec", "dir"}


def with_steps(
    function: ast.FunctionDef, chosen: Callable[[ast.stmt], bool]
) -> ast.FunctionDef:
    """A copy of a function's definition in which the chosen statements are steps."""
    made: ast.FunctionDef = copy.deepcopy(function)
    return _Steps(made, chosen).visit(made)


def parts(node: ast.AST) -> Iterator[ast.AST]:
    """The statements directly in a statement, and handlers and cases."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        part = getattr(node, name, None)
        if isinstance(part, list):
            yield from part


def covers(node: ast.AST, line: int, column: int) -> bool:
    if isinstance(node, ast.match_case):
        return any(covers(s, line, column) for s in node.body)
    start = node.lineno, node.col_offset  # type: ignore[attr-defined]
    end = node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
    return start <= (line, column) < end


def fits(statement: ast.stmt) -> bool:
    """Whether a statement can be a function of its own."""
    may_return = isinstance(statement, ast.While) or _is_over_range(statement)
    if not isinstance(statement, _KINDS) or _leaves(statement, False, may_return):
        return False
    if isinstance(statement, ast.While) and any(
        _leaves(s, False, may_return) for s in statement.orelse
    ):
        return False
    names = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}
    return not names & _SPECIAL and not any(map(_mangled, ast.walk(statement)))


def _mangled(node: ast.AST) -> bool:
    name = getattr(node, "id", None) or getattr(node, "attr", None)
    return isinstance(name, str) and name.startswith("__") and not name.endswith("__")


def _leaves(node: ast.AST, in_loop: bool, may_return: bool) -> bool:
    """Whether a statement may be left other than at its end, or by an exception."""
    if isinstance(node, _FUNCTIONS) or (may_return and isinstance(node, ast.Return)):
        return False
    if isinstance(node, _LEAVES):
        return True
    if isinstance(node, ast.Break | ast.Continue) and not in_loop:
        return True
    in_loop = in_loop or isinstance(node, ast.For | ast.While)
    children = ast.iter_child_nodes(node)
    return any(_leaves(child, in_loop, may_return) for child in children)


def _breaks(node: ast.AST) -> bool:
    """Whether a part of a loop's body ends that loop."""
    if isinstance(node, ast.Break):
        return True
    if isinstance(node, (*_FUNCTIONS, ast.For, ast.While)):
        return False
    return any(map(_breaks, ast.iter_child_nodes(node)))


def _returns(node: ast.AST) -> bool:
    """Whether a part of a function may end that."""
    if isinstance(node, ast.Return):
        return True
    if isinstance(node, _FUNCTIONS):
        return False
    return any(map(_returns, ast.iter_child_nodes(node)))


def counts(node: ast.AST) -> bool:
    """Whether it is a loop over a `range`, which can be one over traced numbers."""
    return _is_over_range(node) and fits(cast(ast.For, node))


def _is_over_range(node: ast.AST) -> bool:
    if not isinstance(node, ast.For) or node.orelse:
        return False
    call = node.iter
    return (
        isinstance(node.target, ast.Name)
        and isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "range"
        and not call.keywords
        and not any(isinstance(x, ast.Starred) for x in call.args)
    )


class _Steps(ast.NodeTransformer):
    """Turns statements into steps: those that are chosen."""

    def __init__(
        self, function: ast.FunctionDef, chosen: Callable[[ast.stmt], bool]
    ) -> None:
        self.chosen = chosen
        # Asked of the function as it was written.
        self.live = dict(self._live(function))

    def _live(self, function: ast.FunctionDef) -> Iterator[tuple[Any, frozenset[str]]]:
        for node in own(function):
            if isinstance(node, ast.FunctionDef):
                yield from self._live(node)
            elif isinstance(node, ast.stmt) and self.chosen(node):
                yield (node.lineno, node.col_offset), _live(node, function)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        names = _scope(node)
        bound = sorted(
            {name for s in node.body for name in _stores(s)} - names.declared
        )
        node.body = [made for s in node.body for made in self._statement(s, names)]
        # The function binds its names still, also those that only steps give a value.
        targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in bound]
        if targets:
            never = ast.Assign(targets, ast.Constant(None))
            node.body.append(ast.If(ast.Constant(0), [never], []))
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        return node

    def _statement(self, node: ast.stmt, scope: _Scope) -> list[ast.stmt]:
        if isinstance(node, ast.FunctionDef):
            return [self.visit_FunctionDef(node)]
        if isinstance(node, ast.ClassDef):
            return [node]
        chosen = self.chosen(node)
        stores = sorted(_stores(node) | (scope.shared if _calls(node) else set()))
        for name in ("body", "orelse", "finalbody"):
            part = getattr(node, name, None)
            if isinstance(part, list) and part and isinstance(part[0], ast.stmt):
                made = [m for s in part for m in self._statement(s, scope)]
                setattr(node, name, made)
        for handler in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            handler.body = [m for s in handler.body for m in self._statement(s, scope)]
        if not chosen:
            return [node]
        live = self.live[node.lineno, node.col_offset]
        return _step(node, stores, live, scope)


def _step(
    node: ast.stmt, stores: list[str], live: frozenset[str], scope: _Scope
) -> list[ast.stmt]:
    name = f"_step_{node.lineno}_{node.col_offset}"
    known: list[ast.stmt] = []
    outer = [n for n in stores if n in scope.globals]
    inner = [n for n in stores if n not in scope.globals]
    left = _left(node)
    if outer:
        known.append(ast.Global(outer))
    if inner or left:
        known.append(ast.Nonlocal([*inner, *left]))
    listed = _words([*inner, *left])
    used = _words([n for n in inner if n in live])
    place = ast.Tuple(
        [ast.Constant(node.lineno), ast.Constant(node.col_offset)], ast.Load()
    )
    made: list[ast.stmt] = []
    more: list[ast.expr] = []
    if isinstance(node, ast.While):
        node = _tested(node)
        made.append(_function(name + "_test", [ast.Return(node.test)], node))
        made.append(_function(name + "_body", [*known, *_ended(node.body, left)], node))
        more.append(ast.Constant(bool(left) or any(map(_breaks, node.body))))
        more.append(_words(left))
        helper = LOOP
    elif counts(node):
        assert isinstance(node, ast.For) and isinstance(node.iter, ast.Call)
        limits = ast.Tuple([node.iter.func, *node.iter.args], ast.Load())
        item = ast.Name(_ITEM, ast.Load())
        given: ast.stmt = ast.Assign([node.target], item)
        given = ast.copy_location(given, node.target)
        body = [*known, given, *_ended(node.body, left)]
        whole = _Left(left).visit(copy.deepcopy(node))
        whole.iter = ast.copy_location(item, node.iter)
        made.append(_function(name + "_range", [ast.Return(limits)], node))
        made.append(_function(name + "_body", body, node, _ITEM))
        made.append(_function(name + "_whole", [*known, whole], node, _ITEM))
        more.append(ast.Constant(bool(left) or any(map(_breaks, node.body))))
        more.append(_words(left))
        more.append(ast.Constant(cast(ast.Name, node.target).id))
        helper = COUNT
    else:
        made.append(_function(name, [*known, node], node))
        helper = STEP
    functions = [ast.Name(cast(ast.FunctionDef, f).name, ast.Load()) for f in made]
    call = ast.Call(
        ast.Name(helper, ast.Load()), [*functions, listed, used, place, *more], []
    )
    made.append(ast.copy_location(ast.Expr(call), node))
    return [*_before(left, node), *made, *_after(left, node)]


def _words(names: Sequence[str]) -> ast.expr:
    return ast.Tuple([ast.Constant(n) for n in names], ast.Load())


def _left(node: ast.stmt) -> tuple[str, ...]:
    """Of a loop in which the function returns: the variables that say that it did, and
    what."""
    if not isinstance(node, ast.While | ast.For) or not _returns(node):
        return ()
    at = node.lineno, node.col_offset
    return _LEFT.format(*at), _VALUE.format(*at)


def _before(left: tuple[str, ...], node: ast.stmt) -> list[ast.stmt]:
    """Nothing has been returned."""
    return [
        ast.copy_location(
            ast.Assign([ast.Name(name, ast.Store())], ast.Constant(value)), node
        )
        for name, value in zip(left, (False, None), strict=False)
    ]


def _after(left: tuple[str, ...], node: ast.stmt) -> list[ast.stmt]:
    """Returns what was returned in a loop."""
    if not left:
        return []
    test, value = (ast.Name(name, ast.Load()) for name in left)
    made: ast.stmt = ast.If(test, [ast.Return(value)], [])
    if isinstance(node, ast.While) and _is_endless(node):
        made = ast.Return(value)  # Nothing can follow.
    # Behind the loop: it is no part of that which is a step.
    for part in ast.walk(made):
        if isinstance(part, ast.stmt | ast.expr):
            part.lineno = part.end_lineno = node.end_lineno or node.lineno
            part.col_offset = part.end_col_offset = node.end_col_offset or 0
    return [made]


def _tested(node: ast.While) -> ast.While:
    """A loop whose test binds no names, and that ends in one way: others ask first in
    their bodies. What is below `else` belongs to the end that the test makes."""
    binds = any(isinstance(n, ast.NamedExpr) for n in ast.walk(node.test))
    if not node.orelse and not binds:
        return node
    ends: list[ast.stmt] = [*node.orelse, ast.Break()]
    asked = ast.If(node.test, [ast.Pass()], ends)
    made = ast.While(ast.Constant(True), [asked, *node.body], [])
    for part in (asked, *asked.body, ends[-1], made.test):
        ast.copy_location(part, node.test)
    return ast.copy_location(made, node)


def _is_endless(node: ast.While) -> bool:
    always = isinstance(node.test, ast.Constant) and bool(node.test.value)
    return always and not any(map(_breaks, node.body))


def _function(
    name: str, body: list[ast.stmt], at: ast.stmt, *arguments: str
) -> ast.stmt:
    given = ast.arguments([], [*map(ast.arg, arguments)], None, [], [], None, [])
    made = ast.FunctionDef(name, given, body, [], None)
    if hasattr(made, "type_params"):
        made.type_params = []
    return ast.copy_location(made, at)


class _Left(ast.NodeTransformer):
    """Puts down what a function returns in a loop, and ends the function that the loop
    or its body has become, with True."""

    def __init__(self, left: tuple[str, ...]) -> None:
        self.left = left

    def visit_Return(self, node: ast.Return) -> Any:
        said, value = (ast.Name(name, ast.Store()) for name in self.left)
        made = [
            ast.Assign([value], node.value or ast.Constant(None)),
            ast.Assign([said], ast.Constant(True)),
            ast.Return(ast.Constant(True)),
        ]
        return [ast.copy_location(s, node) for s in made]

    def visit_FunctionDef(self, node: Any) -> Any:
        return node

    visit_Lambda = visit_ClassDef = visit_AsyncFunctionDef = visit_FunctionDef


class _Ends(ast.NodeTransformer):
    """What ends an iteration or a loop ends the function that the body has become."""

    def visit_Continue(self, node: ast.Continue) -> ast.stmt:
        return ast.copy_location(ast.Return(None), node)

    def visit_Break(self, node: ast.Break) -> ast.stmt:
        return ast.copy_location(ast.Return(ast.Constant(True)), node)

    def visit_For(self, node: ast.For) -> ast.stmt:
        return node

    visit_While = visit_FunctionDef = visit_For  # type: ignore[assignment]


def _ended(body: list[ast.stmt], left: tuple[str, ...]) -> list[ast.stmt]:
    """A copy of a loop's body as that of a function, which says whether it ended the
    loop: `continue` returns, `break` returns True, and so does `return`."""
    made = ast.Module(copy.deepcopy(body), [])
    return _Ends().visit(_Left(left).visit(made)).body


class _Scope(NamedTuple):
    """Names that a function declares to be others': of its module, or any; and those of
    its own that functions inside of it bind, whenever they are called."""

    globals: frozenset[str]
    declared: frozenset[str]
    shared: frozenset[str]


def _scope(function: ast.FunctionDef) -> _Scope:
    found = [n for n in own(function) if isinstance(n, ast.Global | ast.Nonlocal)]
    declared = frozenset(x for n in found for x in n.names)
    given = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
    bound = given.union(*map(_stores, function.body))
    inner = [n for n in own(function) if isinstance(n, _FUNCTIONS)]
    shared = {
        x
        for f in inner
        for n in ast.walk(f)
        if isinstance(n, ast.Nonlocal)
        for x in n.names
    }
    return _Scope(
        frozenset(x for n in found if isinstance(n, ast.Global) for x in n.names),
        declared,
        frozenset(shared & bound),
    )


def _calls(node: ast.AST) -> bool:
    """Whether a statement may call a function."""
    return isinstance(node, ast.Call) or any(
        _calls(part) for part in ast.iter_child_nodes(node)
    )


def own(node: ast.AST) -> Iterator[ast.AST]:
    """What is inside of a node, but not in functions and classes there."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, _FUNCTIONS):
            yield from own(child)


def _stores(node: ast.AST) -> set[str]:
    """The names that a statement binds in its function."""
    if isinstance(node, ast.Lambda):
        return set()
    if isinstance(node, _FUNCTIONS):
        return {node.name}  # type: ignore[union-attr]
    found: set[str] = set()
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        found.add(node.id)
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        found |= {node.name} if node.name else set()
    elif isinstance(node, ast.MatchMapping):
        found |= {node.rest} if node.rest else set()
    elif isinstance(node, ast.Import | ast.ImportFrom):
        found |= {(a.asname or a.name).partition(".")[0] for a in node.names}
    parts = ast.iter_child_nodes(node)
    if isinstance(node, ast.comprehension):  # whose own names are its own
        parts = iter([node.iter, *node.ifs])
    return found.union(*map(_stores, parts))


def _live(statement: ast.stmt, function: ast.FunctionDef) -> frozenset[str]:
    """The names that may be read after a statement."""
    end = statement.end_lineno, statement.end_col_offset
    loops = [
        n
        for n in ast.walk(function)
        if isinstance(n, ast.For | ast.While)
        and n is not statement
        and covers(n, statement.lineno, statement.col_offset)
    ]
    found = set()
    for n in ast.walk(function):
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load):
            after = (n.lineno, n.col_offset) >= end
            again = any(covers(loop, n.lineno, n.col_offset) for loop in loops)
            if after or again:
                found.add(n.id)
        elif isinstance(n, _FUNCTIONS) and n is not function:
            # It may be called at any time.
            found |= {x.id for x in ast.walk(n) if isinstance(x, ast.Name)}
        elif isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name):
            found.add(n.target.id)
        elif isinstance(n, ast.Global | ast.Nonlocal):
            found |= set(n.names)
    return frozenset(found)
