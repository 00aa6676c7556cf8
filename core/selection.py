"""Which arrays of a pytree are meant: by path, by class, by a test, or by a mask."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Any

import numpy as np

from treadle.errors import StructureError, at, user_source
from treadle.matching import flatten_up_to
from treadle.structure import LEAF, Attribute, Path, Structure, take_apart

_NOWHERE = """\
{what} selects nothing: no such {kind} in this {tree}{at}
{near}If it may be missing: `tree.select({what}, required=False)`."""
_NO_MASK = """\
a mask does not fit the tree: {why}{at}
A mask has the structure of the tree, or of its upper part, and a bool at each leaf."""
_NO_LEAVES = """\
{why}
Bools in the fields of a Module are part of its structure; make the mask of the model:
`td.tree.map(lambda x: ..., model)`, or name the places: `"encoder.**.bias"`"""
_NO_KIND = """\
tree.select takes patterns, classes, functions, masks and other selectors, got \
{what!r:.60}{at}
For example `tree.select("encoder.**.bias", nn.LayerNorm)`."""


def dotted(path: Path) -> str:
    """A path as checkpoints and patterns write it; what has dots itself is quoted.

    >>> dotted((Attribute("layers"), 0, "a.b"))
    "layers.0.'a.b'"
    """
    return ".".join(repr(t) if "." in t else t for t in map(_text, path))


def matches(pattern: str, path: Path) -> bool:
    """Whether a place is one that a pattern means (`select`).

    >>> matches("layers.*.w?", (Attribute("layers"), 0, Attribute("w1")))
    True
    >>> matches("**.bias", (Attribute("bias"),))
    True
    """
    return bool(_compiled(pattern).fullmatch(".".join(map(_text, path))))


def _text(key: Any) -> str:
    return key.name if isinstance(key, Attribute) else str(key)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    plain = re.sub(r"\[([^\]]*)\]", r".\1", pattern).replace("'", "").replace('"', "")
    parts = plain.lstrip(".").split(".")
    found = ""
    for part in parts[:-1]:
        found += r"(?:[^.]+\.)*" if part == "**" else _glob(part) + r"\."
    if parts[-1] != "**":
        return re.compile(found + _glob(parts[-1]))
    # What is inside of a place is meant with it.
    return re.compile(found.removesuffix(r"\.") or ".*")


def _glob(part: str) -> str:
    return re.escape(part).replace(r"\*", "[^.]*").replace(r"\?", "[^.]")


@dataclass(frozen=True)
class Selector:
    """Says which arrays of a pytree are meant. Made by `select`.

    Called on a tree it gives a mask: the tree with a bool at each leaf. ``a | b``,
    ``a & b`` and ``~a`` are selectors; one side of these may be what `select` takes.
    """

    kind: str
    parts: tuple[Any, ...]
    required: bool = True

    def __call__(self, tree: Any) -> Any:
        leaves: list[Any] = []
        form = take_apart(tree, leaves, None)
        return form.unflatten(self.flags(leaves, form))

    def flags(self, leaves: Sequence[Any], form: Structure) -> list[bool]:
        """For each leaf of a tree of this structure, whether it is meant."""
        columns = [self._of(part, leaves, form) for part in self.parts]
        if self.kind == "not":
            return [not x for x in columns[0]]
        join = any if self.kind == "any" else all
        return [join(row) for row in zip(*columns, strict=True)]

    def _of(self, what: Any, leaves: Sequence[Any], form: Structure) -> Sequence[bool]:
        if isinstance(what, Selector):
            return what.flags(leaves, form)
        if isinstance(what, str | type):
            found, places = _inside(what, form)
            if self.required and not places:
                raise ValueError(_nowhere(what, form))
            return found
        if not callable(what) or _is_mask(what):
            return _mask(what, form)
        if _of_paths(what):
            # Of what stands in two places, the first one comes last.
            paths = {n: path for path, part, n in nodes(form) if part is LEAF}
            return [bool(what(dotted(paths[n]), x)) for n, x in enumerate(leaves)]
        found = what(form.unflatten(leaves))
        if _is_part(found, leaves):
            meant = set(_leaves(what(form.unflatten(range(form.count)))))
            return [n in meant for n in range(form.count)]
        return _mask(found, form)

    def __or__(self, other: Any) -> Selector:
        return Selector("any", (self, other))

    def __and__(self, other: Any) -> Selector:
        return Selector("all", (self, other))

    def __invert__(self) -> Selector:
        return Selector("not", (self,))

    __ror__, __rand__ = __or__, __and__

    def __repr__(self) -> str:
        shown = [_shown(part) for part in self.parts]
        if self.kind == "not":
            return f"~{shown[0]}"
        if self.kind == "all":
            return f"({' & '.join(shown)})"
        more = [] if self.required else ["required=False"]
        return f"select({', '.join(shown + more)})"


def select(*what: Any, required: bool = True) -> Selector:
    """Says which arrays of a pytree are meant; several mean any of them.

    Whatever takes a part of a model or of its parameters takes this, or what this
    takes: masks of optimizers, `nn.freeze`, `nn.partition`, `nn.cast`.

    Args:
      what: each one of

        - a pattern over paths, whose parts are joined by dots (the numbers of list
          entries are parts, too): ``"encoder.**.bias"``. ``*`` is any part or piece of
          one, ``?`` a character, ``**`` any number of parts. What is inside of a place
          that matches is meant, too: ``"encoder"`` is all of it.
        - a class: all that is inside of its instances.
        - a function ``(path, array) -> bool``.
        - a function ``tree -> mask``, such as another selector, or ``tree -> part``,
          as `nn.at` takes it: ``lambda model: model.head``.
        - a mask: a pytree of bools, like the tree or its upper part.
        - a list or tuple of patterns, classes and functions: any of them.
      required: whether a pattern or class that is nowhere in the tree is an error.

    Raises:
      ValueError: from calling it, if there is no such place; it names near ones.
      StructureError: from calling it, if a mask does not fit.

    >>> params = {"body": {"weight": 1.0, "bias": 2.0}, "head": {"weight": 3.0}}
    >>> select("**.bias")(params)
    {'body': {'bias': True, 'weight': False}, 'head': {'weight': False}}
    >>> body = select("body")
    >>> (~body | "**.bias")(params)
    {'body': {'bias': True, 'weight': False}, 'head': {'weight': True}}
    """
    parts: list[Any] = []
    for item in what:
        several = isinstance(item, list | tuple) and item and all(map(_is_rule, item))
        parts += item if several else [item]
    if len(parts) == 1 and isinstance(parts[0], Selector):
        return parts[0]
    return Selector("any", tuple(parts), required)


def _is_rule(what: Any) -> bool:
    return isinstance(what, str | type) or (callable(what) and not _is_mask(what))


def _leaves(tree: Any) -> list[Any]:
    found: list[Any] = []
    take_apart(tree, found, None)
    return found


def _is_mask(what: Any) -> bool:
    """Whether it is a pytree of bools. One for a Module is a Module, too, which can be
    called."""
    found = _leaves(what)
    return bool(found) and all(map(_is_truth, found))


def _is_truth(x: Any) -> bool:
    """Whether it is one bool: Python's, NumPy's, or an array of no axes."""
    if isinstance(x, bool):
        return True
    return getattr(x, "shape", None) == () and getattr(x, "dtype", None) == np.bool_


def _is_part(tree: Any, leaves: Sequence[Any]) -> bool:
    """Whether all that a tree holds are arrays among these leaves."""
    known, found = {id(x) for x in leaves}, _leaves(tree)
    arrays = all(hasattr(x, "dtype") and not isinstance(x, np.bool_) for x in found)
    return bool(found) and arrays and all(id(x) in known for x in found)


Node = tuple[Path, Structure, int]


def nodes(form: Structure) -> Iterator[Node]:
    """All nodes and leaves of a structure, each with its path and the number of the
    first leaf in it. What stands in two places comes twice.

    >>> from treadle.tree import structure
    >>> [(dotted(path), first) for path, _, first in nodes(structure({"a": [1, 2]}))]
    [('', 0), ('a', 0), ('a.0', 0), ('a.1', 1)]
    """
    waiting: list[Node] = [((), form, 0)]
    while waiting:
        path, part, first = waiting.pop()
        yield path, part, first
        if part.children:
            inner = []
            for key, child in zip(part.keys(), part.children, strict=True):
                inner.append(((*path, key), child, first))
                first += child.count
            waiting += reversed(inner)
            waiting += _others((path, part, inner[0][2]))


def _others(node: Node) -> list[Node]:
    """What a node holds in two places, at the other one."""
    path, part, _ = node
    shared = part.shared if part.children else ()
    found = [(other, _below(node, first)) for first, other in shared]
    return [((*path, *other), *at_first[1:]) for other, at_first in found if at_first]


def _below(node: Node, path: Path) -> Node | None:
    """The node at a place below one."""
    if not path:
        return node
    place, part, first = node
    keys = part.keys() if part.children else ()
    for key, child in zip(keys, part.children, strict=True):
        if key == path[0]:
            return _below(((*place, key), child, first), path[1:])
        first += child.count
    return None


@lru_cache(maxsize=1024)
def _inside(what: str | type, form: Structure) -> tuple[tuple[bool, ...], int]:
    """For each leaf, whether it is inside of a place that is meant; the number of
    these, those without leaves included (a bias that is None)."""
    flags, places = [False] * form.count, 0
    every = list(nodes(form))
    others = [other for node in every for other in _others(node)]
    for path, part, first in every:
        if isinstance(what, str):
            hit = matches(what, path)
        else:
            hit = part.kind is not None and issubclass(part.kind, what)
        if hit:
            places += 1
            within = [other for other in others if other[0][: len(path)] == path]
            for _, meant, start in [(path, part, first), *within]:
                flags[start : start + meant.count] = [True] * meant.count
    return tuple(flags), places


def _mask(mask: Any, form: Structure) -> list[bool]:
    values: list[Any] = []
    upper = take_apart(mask, values, None)
    wrong = [x for x in values if not _is_truth(x)]
    if wrong:
        if upper is LEAF:
            raise TypeError(_NO_KIND.format(what=wrong[0], at=at(user_source())))
        why = f"it holds {wrong[0]!r:.60}, which is no bool"
        raise StructureError(_NO_MASK.format(why=why, at=at(user_source())))
    try:
        parts = _counts(upper, form)
    except StructureError as error:
        why = str(error)
        if not values and form.count:
            why = _NO_LEAVES.format(why=why)
        raise StructureError(_NO_MASK.format(why=why, at=at(user_source()))) from None
    return [
        # Of a traced one, this is an error, where bool() would be a decision.
        bool(np.asarray(value))
        for value, count in zip(values, parts, strict=True)
        for _ in range(count)
    ]


def _counts(upper: Structure, form: Structure) -> list[int]:
    """How many leaves stand below each leaf of the upper part of a structure."""
    if upper == form:
        return [1] * form.count
    numbered = form.unflatten(range(form.count))
    counts = []
    for part in flatten_up_to(upper, numbered):
        counts.append(take_apart(part, [], None).count)
    return counts


def _of_paths(function: Callable[..., Any]) -> bool:
    """Whether a function takes a path and an array, not a whole tree."""
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    return True


def _nowhere(what: str | type, form: Structure) -> str:
    named = isinstance(what, str)
    paths = [dotted(path) for path, _, _ in nodes(form) if path]
    near = get_close_matches(str(what), paths, cutoff=0.4) or paths[:3]
    kinds = {part.name for _, part, _ in nodes(form) if part.kind and part.children}
    close = near if named else sorted(kinds)
    lead = "Near it are" if named else "Its nodes are of"
    return _NOWHERE.format(
        what=_shown(what),
        kind="place" if named else "class",
        tree=form.name if form.kind else "leaf",
        at=at(user_source()),
        near=f"{lead} {', '.join(close)}.\n" if close else "",
    )


def _shown(part: Any) -> str:
    return getattr(part, "__name__", None) or repr(part)
