"""What tracing a function gives, and how many of such a jitted function keeps."""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import cache, cached_property, lru_cache
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from treadle import tree
from treadle.api.args import check_results, name_of
from treadle.api.captured import read_by
from treadle.api.purity import call_pure
from treadle.arraytype import ArrayType
from treadle.control.ways import explore
from treadle.dims import is_dim
from treadle.ir.filled import filled, sizes_in
from treadle.ir.graph import Graph
from treadle.run.array import Array
from treadle.run.collector import no_collection
from treadle.trace.effects import Memory, Watch
from treadle.trace.variables import Variable
from treadle.trace.ways import Branches, noting

if TYPE_CHECKING:
    from treadle.plan.calls import Path


@cache
def compiler() -> Any:
    """`treadle.compile`, loaded when something is first compiled: everything behind it
    is half of what importing the library would cost."""
    with no_collection():  # which is a tenth of that
        return importlib.import_module("treadle.compile")


def begin() -> None:
    """Readies the default device: for when a program is about to be traced."""
    _begin_first()
    compiler().begin()


@cache
def _begin_first() -> None:
    with no_collection():
        importlib.import_module("treadle.backends.first").begin()


class Entry:
    """What a trace gave: valid for one structure, one set of types and statics.

    row: what the report says of it.
    """

    def __init__(
        self,
        graph: Graph,
        captured: list[Any],
        out_form: tree.Structure,
        donated: Sequence[int],
    ) -> None:
        self.graph, self.captured, self.out_form = graph, captured, out_form
        self.donated = tuple([len(captured) + i for i in donated])
        self.memory_limit: int | None = None
        self.row: Any = None
        self.branches: Sequence[Branches] = ()
        self.variables: Sequence[Variable] = ()
        """What was read besides the arguments."""
        self.is_bound = False
        """Whether the program is for given sizes, of a graph in which they are open."""
        self.sized: Any = None
        """Of what trace it is, and which axes are open in that, if it is bound."""
        self.lookups = 0
        """How many calls found it by their types."""
        self.path: Path | None = None
        """A quick way to call it, from its second look-up on."""
        self._like: list[Path] = []
        """The last path that was made for any of the sizes of one trace."""

    @cached_property
    def program(self) -> Any:
        """The compiled program of captures, then leaves."""
        began = perf_counter()
        made = compiler().executable_of(
            self.graph, self.donated, memory_limit=self.memory_limit
        )
        if self.row is not None:
            self.row.compile_seconds = perf_counter() - began
        return made

    @cached_property
    def _has_open_form(self) -> bool:
        """Whether there are sizes in the results' structure: linear maps hold types."""
        return bool(sizes_in(self.out_form))

    def bound(self, program: Any) -> Entry:
        """The entry for given sizes, of one for sizes that are open."""
        form = self.out_form
        if self._has_open_form:
            form = filled(form, program.value_of)
        made = object.__new__(Entry)
        made.__dict__.update(
            self.__dict__,
            program=program,
            out_form=form,
            lookups=0,
            path=None,
            is_bound=True,
        )
        return made

    def looked_up(self) -> None:
        """Counts a look-up. The second one tells that the program is used often."""
        self.lookups += 1
        if self.lookups == 2:
            self.program = self.program.better() or self.program

    def expect_sizes(self) -> None:
        """Readies, on other threads, what one for open sizes will need besides."""
        if "program" in self.__dict__:
            self.program.expect_sizes()

    def path_like(self) -> Path | None:
        """A path that was made for other sizes, for these, if that is quick."""
        if not self.is_bound or not self._like:
            return None
        return self.program.path_like(self._like[0], self.out_form)

    def keep_path(self, path: Path) -> None:
        """Keeps a path, for others to be made like it, too."""
        self.path = path
        self._like[:] = [path]


def trace_entry(
    function: Callable[..., Any],
    form: tree.Structure,
    types: Sequence[ArrayType],
    statics: tuple,
    donated: Sequence[int],
    memory: Memory,
) -> Entry:
    """Traces a function of pytrees, and warns of what it does besides.

    Args:
      form: of (args, kwargs), with None where a static value belongs.
      statics: pairs of a position or a name, and the value there.
      donated: the leaves that are given up.
      memory: of earlier traces.
    """
    out_form: Any = None

    def arrange(given: Any) -> tuple[Sequence[Any], dict[str, Any]]:
        moving, named = list(given[0]), dict(given[1])
        for place, value in statics:
            if isinstance(place, int):
                moving[place] = value
            else:
                named[place] = value
        return moving, named

    def flat(*leaves: Any) -> list[Any]:
        nonlocal out_form
        out = call_pure(function, form, leaves, arrange)
        outs, out_form = tree.flatten(out)
        check_results(function, outs, out_form)
        _fix_static(out_form)
        return outs

    own = dict(statics).get(0)
    name = name_of(function)
    watch = Watch(function, name, memory=memory, kinds=_kinds(form), own=own)
    with watch, noting() as branches, no_collection():
        graph, captured = explore(flat, types, lambda: out_form, name=name)
    # The program computes with what it was traced with, also if that is an array of
    # NumPy's that changes later.
    captured = [
        Array(np.array(c, order="C")) if isinstance(c, np.ndarray) else c
        for c in captured
    ]
    entry = Entry(graph, captured, out_form, donated)
    entry.branches = tuple(branches)
    entry.variables = read_by(watch.reach, graph)
    return entry


@lru_cache(1024)
def _kinds(form: tree.Structure) -> frozenset[type]:
    """The classes in a pytree, but for Python's own."""
    found: set[type] = set()
    todo = [form]
    while todo:
        part = todo.pop()
        if part.kind is not None:
            found.add(part.kind)
        todo += part.children
    return frozenset(found - _PLAIN)


_PLAIN: set[type] = {tuple, list, dict, type(None)}


def _fix_static(form: tree.Structure) -> None:
    """Fixes the sizes in static parts of a result, which are Python's values."""

    def look(static: Any) -> None:
        if is_dim(static):
            static.fixed("a static part of the result")
        elif isinstance(static, tuple):
            for value in static:
                look(value)

    look(form.aux)
    for child in form.children:
        _fix_static(child)


class Recent:
    """The values that were last used, by key; at most `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._items: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> Any:
        """What was put there; None if nothing was, or not lately."""
        with self._lock:
            found = self._items.get(key)
            if found is not None:
                self._items.move_to_end(key)
            return found

    def put(self, key: Hashable, value: Any) -> None:
        with self._lock:
            self._items[key] = value
            self._items.move_to_end(key)
            if len(self._items) > self.most:
                self._items.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._items.clear()

    def __len__(self) -> int:
        return len(self._items)
