"""jit: a pure function becomes a compiled program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    overload,
)

from treadle import dtypes, tree
from treadle.api import loop_steps as _steps  # noqa: F401 - statements can be joined
from treadle.api.aot import Lowered, Made, Traced
from treadle.api.args import (
    Which,
    argument,
    check_function,
    check_keywords,
    check_leaf,
    name_of,
    positions,
)
from treadle.api.boundary import boundary, tidy
from treadle.api.caches import made
from treadle.api.captured import Kept
from treadle.api.copies import CopiedAsFunction
from treadle.api.entry import Entry, compiler
from treadle.api.method import Method
from treadle.api.programs import Programs
from treadle.api.report import Report
from treadle.api.staging import check_lengths
from treadle.arraytype import ArrayType
from treadle.control.call import call, runners
from treadle.ir.graph import Graph
from treadle.reading import Entries, Items, Reading, Static, Unreadable, reading
from treadle.run.array import Array
from treadle.run.device import current
from treadle.run.eager import EagerInterpreter
from treadle.trace.interpreter import state
from treadle.trace.value import NUMBERS, is_array, typeof

if TYPE_CHECKING:
    from treadle.plan.calls import Path


def _run(graph: Graph, arrays: Sequence[Any]) -> Any:
    return compiler().executable_of(graph, (), current().name)(arrays)


runners.append(_run)


MOST_PATHS = 4
"""How many paths a function tries before it looks a call up."""

MOST_PATHS_MADE = 8
"""How many calls of one entry make a path: there are arguments that never read alike,
such as static objects that are equal but made anew each time."""


P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
Owner = TypeVar("Owner")


class Jitted(CopiedAsFunction, Generic[P, R]):
    """A function that `jit` compiles at its first call for each set of types."""

    def __init__(
        self,
        function: Callable[P, R],
        static: Which = (),
        donate: Which = (),
        dynamic: Mapping[str, Any] | bool = True,
        max_compiles: int | None = None,
        memory_limit: int | None = None,
    ) -> None:
        self.function = function
        self._options = static, donate, dynamic, max_compiles, memory_limit
        self._static = positions(function, static, "static")
        self._donate = positions(function, donate, "donate")
        for chosen, given_up in zip(
            self._static[::-1], self._donate[::-1], strict=True
        ):
            for both in chosen & given_up:
                raise ValueError(f"argument {both!r} can't be static and donated")
        self._programs = Programs(
            function, self._donated_leaves, dynamic, max_compiles, memory_limit
        )
        update_wrapper(self, function, updated=())
        made.add(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        # A `boundary` of its own: that would cost a tenth of a short call.
        try:
            kept = self._programs.kept
            if type(state.interpreter) is EagerInterpreter and (
                kept.same is None or kept.same()
            ):
                for path, row in () if state.staging_disabled else kept.paths:
                    out = path(args, kwargs)
                    if out is not NotImplemented:
                        row.calls += 1
                        return out
            return self._call(args, kwargs)
        except Exception as error:
            tidy(error)
            raise

    @boundary
    def _call(self, args: tuple, kwargs: dict) -> Any:
        if state.staging_disabled:
            return self.function(*args, **kwargs)
        kept = self._programs.now()
        entry, leaves = self._lookup(kept, args, kwargs)
        entry.row.calls += 1
        interpreter = state.interpreter
        if type(interpreter) is EagerInterpreter:
            out = self._quickly(kept, entry, args, kwargs)
            if out is not NotImplemented:
                return out
        if isinstance(interpreter, EagerInterpreter):
            outs = interpreter.run_program(entry, leaves)
        else:
            outs = call(*entry.captured, *leaves, graph=entry.graph)
        return entry.out_form.unflatten(outs)

    def _quickly(self, kept: Kept, entry: Entry, args: tuple, kwargs: dict) -> Any:
        """The result by a path; NotImplemented if there is none. One is made for calls
        like this one at the second look-up of an entry, and for one of other sizes if
        there was one for some."""
        entry.looked_up()
        path = entry.path or entry.path_like()
        out = path(args, kwargs) if path else NotImplemented
        if out is NotImplemented and 1 < entry.lookups <= MOST_PATHS_MADE:
            try:
                path = self._path(entry, args, kwargs)
            except (Unreadable, RecursionError):
                return out
            out = path(args, kwargs)
        if path and out is not NotImplemented and entry.lookups > 1:
            entry.keep_path(path)
            kept.quicken()
            kept.paths = ((path, entry.row), *kept.paths[: MOST_PATHS - 1])
        return out

    def _path(self, entry: Entry, args: tuple, kwargs: dict) -> Path:
        numbers, names = self._static_places(args)
        positional = [(i, _argument(a, i in numbers)) for i, a in enumerate(args)]
        named = [(k, _argument(kwargs[k], k in names)) for k in sorted(kwargs)]
        return entry.program.path(
            entry.captured,
            Items(tuple, len(args), tuple(positional)),
            Entries(len(kwargs), tuple(named)),
            entry.out_form,
        )

    def explain(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """The compiled program for these arguments (or `ShapeDtype`), as a report.

        Lists the kernels and what was fused into each, FLOPs and bytes, the buffer
        plan, and what runs through a host callback.
        """
        return self.lower(*args, **kwargs).explain()

    @boundary
    def trace(self, *args: Any, **kwargs: Any) -> Traced[P, R]:
        """The function as a graph for arguments like these (or `ShapeDtype`); the next
        stages are ``.lower().compile()``.

        >>> import treadle as td
        >>> traced = td.jit(lambda x: (x * 2).sum()).trace(td.ShapeDtype((3,)))
        >>> traced.out_info
        f32[]
        """
        return Traced(Made.of(self, args, kwargs))

    @boundary
    def lower(self, *args: Any, **kwargs: Any) -> Lowered[P, R]:
        """The planned program, in the same way: numbers for cost and memory."""
        return self.trace(*args, **kwargs).lower()

    @boundary
    def graph(self, *args: Any, **kwargs: Any) -> Graph:
        """The traced program for these arguments (or `ShapeDtype`), as written."""
        return Made.of(self, args, kwargs).graph

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The shapes and dtypes of the result for arguments like these."""
        return self.trace(*args, **kwargs).out_info

    def report(self) -> Report:
        """What was compiled so far: programs, why each was traced, for which sizes each
        holds, milliseconds, calls. To be printed.

        >>> import treadle as td, treadle.numpy as tnp
        >>> f = td.jit(lambda x: x + 1)
        >>> for n in (3, 4, 5):
        ...     _ = f(tnp.ones(n))
        >>> [p.signature for p in f.report().programs]
        ['x: f32[3]', 'x: f32[x.shape[0]]']
        """
        return self._programs.report(name_of(self.function))

    def clear_cache(self) -> None:
        """Forgets all traces."""
        self._programs.clear()

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: Jitted[Concatenate[Owner, Q], R],
        instance: Owner,
        owner: type | None = None,
    ) -> Method[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return Method(self, instance)

    def __repr__(self) -> str:
        return f"<jit of {name_of(self.function)}>"

    def _lookup(self, kept: Kept, args: tuple, kwargs: dict) -> tuple[Entry, list[Any]]:
        """What belongs to these arguments, and their leaves."""
        form, types, statics, leaves = self._taken_apart(args, kwargs)
        return self._programs.find(kept, form, types, statics), leaves

    def _taken_apart(
        self, args: tuple, kwargs: dict, stand_in: type | None = None
    ) -> tuple[tree.Structure, list[ArrayType], tuple, list[Any]]:
        """The structure of what is traced, the leaves' types, the statics, the leaves.

        stand_in: a kind of leaf that is taken for the array it describes.
        """
        statics, moving, named = self._split(args, kwargs)
        leaves, form = tree.flatten((moving, named))
        types = []
        for i, leaf in enumerate(leaves):
            kind = type(leaf)
            if kind is Array:
                types.append(leaf.type)
            elif kind is stand_in:
                path = tree.paths(form)[i][1:]
                types.append(check_lengths(leaf, argument(self.function, path)))
            else:
                if kind in dtypes.PYTHON_OF:
                    leaf = leaves[i] = leaf.item()
                if not is_array(leaf) and not isinstance(leaf, NUMBERS):
                    place = tree.paths(form)[i][1:]
                    check_leaf(leaf, argument(self.function, place))
                types.append(typeof(leaf))
        return form, types, statics, leaves

    def _split(self, args: tuple, kwargs: dict) -> tuple[tuple, tuple, dict]:
        """The static values, and what is traced (statics replaced by None)."""
        numbers, names = self._static_places(args)
        if not numbers and not names:
            return (), args, kwargs
        statics = tuple((n, args[n]) for n in sorted(numbers) if n < len(args))
        statics += tuple((k, kwargs[k]) for k in sorted(names) if k in kwargs)
        moving = tuple(None if i in numbers else a for i, a in enumerate(args))
        return statics, moving, {k: v for k, v in kwargs.items() if k not in names}

    def _static_places(self, args: tuple) -> tuple[set, set]:
        numbers, names = self._static
        return {n % len(args) if args and n < 0 else n for n in numbers}, names

    def _donated_leaves(self, form: tree.Structure) -> tuple[int, ...]:
        numbers, names = self._donate
        if not numbers and not names:
            return ()
        count = len(form.children[0].children)
        numbers = {n % count if count and n < 0 else n for n in numbers}
        donated = []
        for i, path in enumerate(tree.paths(form)):
            part, place = path[0], path[1]
            if (part == 0 and place in numbers) or (part == 1 and place in names):
                donated.append(i)
        return tuple(donated)


def _argument(value: Any, static: bool) -> Reading:
    return Static(value, hash(value)) if static else reading(value)


@overload
def jit(
    function: Callable[P, R],
    *,
    static: Which = (),
    donate: Which = (),
    dynamic: Mapping[str, Any] | bool = True,
    max_compiles: int | None = None,
    memory_limit: int | None = None,
) -> Jitted[P, R]: ...
@overload
def jit(
    function: None = None,
    *,
    static: Which = (),
    donate: Which = (),
    dynamic: Mapping[str, Any] | bool = True,
    max_compiles: int | None = None,
    memory_limit: int | None = None,
) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...
@boundary
def jit(
    function: Callable[..., Any] | None = None,
    *,
    static: Which = (),
    donate: Which = (),
    dynamic: Mapping[str, Any] | bool = True,
    max_compiles: int | None = None,
    memory_limit: int | None = None,
    **unknown: Any,
) -> Any:
    """Compiles a pure function of pytrees of arrays.

    The function is traced once for each structure, and set of ranks and dtypes, of its
    arguments. Python numbers are run-time inputs: a new value compiles nothing at all.
    Neither does a new size, from the second of an axis on: the function is then traced
    with a symbol for it, and what is compiled serves all sizes for which the function
    does the same. Where it asks (``if x.shape[0] > 3``), or needs the size as Python's
    int, there is a program for each answer. `report` lists them.

    Args:
      function: the function, or None to make a decorator.
      static: arguments, by name or position, that are Python values to compile for
        (hashable): flags, sizes, functions.
      donate: arguments, by name or position, that the caller gives up: their memory
        is reused for the results, and using them afterwards is an error. What shall
        outlive the call is copied before: ``copy.deepcopy(model)``.
      dynamic: names for the axes whose sizes vary, by argument: ``{"x": ("batch",
        None)}``; in a tree of them for an argument that is one, or one for all its
        arrays; a `ShapeDtype` with names will do too. Axes of one name have one size.
        They are symbols from the first call on, and it is an error if the function
        needs one as an int. True: axes that are seen to vary; False: none, there is a
        program for each shape.
      max_compiles: a trace beyond so many is an error, which says what changed.
      memory_limit: the most bytes that temporaries may take (`memory_analysis`). What
        is cheap for its size is then computed again rather than kept, as far as it
        takes. Called within another jitted function, that one's limit counts.

    Raises:
      TypeError: for arguments or results that are not arrays, unhashable statics.
      TracerError: if the function needs a traced value (``float(x)``), or has too many
        ways through it.
      ValueError: if axes of one name differ in size.
      RuntimeError: for more programs than `max_compiles`.
      MemoryError: if temporaries can't fit into `memory_limit`; it says by how much,
        and names the largest.
      MutationError: if the function changes a list, dict… among its arguments.

    >>> import treadle as td, treadle.numpy as tnp
    >>> @td.jit
    ... def f(x):
    ...     return tnp.sum(x * x)
    >>> f(tnp.arange(4.0))
    Array(14., dtype=float32)
    """
    check_keywords("jit", unknown)
    if function is None:
        return lambda f: jit(
            f,
            static=static,
            donate=donate,
            dynamic=dynamic,
            max_compiles=max_compiles,
            memory_limit=memory_limit,
        )
    check_function("jit", function)
    return Jitted(function, static, donate, dynamic, max_compiles, memory_limit)
