"""jit: a pure function becomes a compiled program."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache, cached_property, update_wrapper
from typing import TYPE_CHECKING, Any

import numpy as np

from treadle import dtypes, tree
from treadle.api.args import (
    Which,
    argument,
    check_function,
    check_leaf,
    check_results,
    name_of,
    positions,
    signature_of,
)
from treadle.api.boundary import boundary, tidy
from treadle.api.purity import call_pure
from treadle.arraytype import ArrayType
from treadle.control.call import call, runners
from treadle.dims import Scope, is_dim
from treadle.errors import at, user_source
from treadle.ir.graph import Graph
from treadle.reading import Entries, Items, Reading, Static, Unreadable, reading
from treadle.run.array import Array
from treadle.run.device import current
from treadle.run.eager import EagerInterpreter
from treadle.trace.interpreter import state
from treadle.trace.stage import stage
from treadle.trace.value import NUMBERS, Tracer, is_array, typeof

if TYPE_CHECKING:
    from treadle.plan.calls import Path
    from treadle.run.execute import Executable


@cache
def _compiler() -> Any:
    """`treadle.compile`, loaded when something is first compiled: everything behind it
    is half of what importing the library would cost."""
    return importlib.import_module("treadle.compile")


def _run(graph: Graph, arrays: Sequence[Any]) -> Any:
    return _compiler().executable_of(graph, (), current().name)(arrays)


runners.append(_run)


MOST_PATHS = 4
"""How many paths a function tries before it looks a call up."""

MOST_PATHS_MADE = 8
"""How many calls of one entry make a path: there are arguments that never read alike,
such as static objects that are equal but made anew each time."""


class _Entry:
    """What a trace gave: valid for one structure, one set of types and statics."""

    def __init__(
        self,
        graph: Graph,
        captured: list[Any],
        out_form: tree.Structure,
        donated: Sequence[int],
    ) -> None:
        self.graph, self.captured, self.out_form = graph, captured, out_form
        self.donated = tuple([len(captured) + i for i in donated])
        self.slow_calls = 0
        """How many calls took no path."""

    @cached_property
    def program(self) -> Executable:
        """The compiled program of captures, then leaves."""
        return _compiler().executable_of(self.graph, self.donated)


class _Dynamic:
    """What a trace with sizes that are not fixed gave, and where its guards hold."""

    def __init__(self, scope: Scope, entry: _Entry) -> None:
        self.scope, self.entry = scope, entry
        self._guards: Any = None
        self._program: Any = None

    def program(self) -> Any:
        if self._program is None:
            graph, donated = self.entry.graph, self.entry.donated
            self._program = _compiler().sized_program_of(graph, self.scope, donated)
            sized = importlib.import_module("treadle.run.sized")
            self._guards = sized.guards(self.scope)
        return self._program

    def admits(self, sizes: tuple) -> bool:
        self.program()
        return self._guards(*sizes)

    def bind(self, sizes: tuple) -> Any:
        entry = object.__new__(_Entry)
        entry.__dict__.update(self.entry.__dict__)
        entry.program = self.program().bind(*sizes)
        return entry


def _to_fix(scope: Scope, fixed: dict[str, Any]) -> dict[str, Any]:
    """Dimensions that a trace needed to be of one size, or equal to another."""
    for d, op, result, _, _ in list(scope.guards.values()):
        if op == "==" and result:
            solved = d.solved()
            if solved and solved[0].name not in fixed:
                atom, value = solved
                if not is_dim(value):
                    return {atom.name: int(value)}
                if (
                    len(value.terms) == 1
                    and len(value.key[0][0]) == 1
                    and value.key[0][1] == 1
                ):
                    ((other,),) = value.terms
                    return {atom.name: other.name}
                return {atom.name: atom.hint}
    return {}


class Jitted:
    """A function that `jit` compiles at its first call for each set of types."""

    def __init__(
        self,
        function: Callable[..., Any],
        static: Which,
        donate: Which,
        dynamic: Any = None,
    ) -> None:
        self._dynamic = dynamic or {}
        self._traces: dict[Any, list[_Dynamic]] = {}
        self._seen: dict[Any, list] = {}
        self.function = function
        self._static = positions(function, static, "static")
        self._donate = positions(function, donate, "donate")
        for chosen, given_up in zip(
            self._static[::-1], self._donate[::-1], strict=True
        ):
            for both in chosen & given_up:
                raise ValueError(f"argument {both!r} can't be static and donated")
        self._entries: dict[Any, _Entry] = {}
        self._paths: tuple[Path, ...] = ()
        update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # A `boundary` of its own: that would cost a tenth of a short call.
        try:
            if type(state.interpreter) is EagerInterpreter:
                for path in () if state.staging_disabled else self._paths:
                    out = path(args, kwargs)
                    if out is not NotImplemented:
                        return out
            return self._call(args, kwargs)
        except Exception as error:
            tidy(error)
            raise

    @boundary
    def _call(self, args: tuple, kwargs: dict) -> Any:
        if state.staging_disabled:
            return self.function(*args, **kwargs)
        entry, leaves = self._lookup(args, kwargs)
        if type(state.interpreter) is EagerInterpreter:
            outs = entry.program([*entry.captured, *leaves])
            self._remember(entry, args, kwargs)
        else:
            outs = call(*entry.captured, *leaves, graph=entry.graph)
        return entry.out_form.unflatten(outs)

    def _remember(self, entry: _Entry, args: tuple, kwargs: dict) -> None:
        """Makes a path for calls like this one, from an entry's second call on."""
        entry.slow_calls += 1
        if not 1 < entry.slow_calls <= MOST_PATHS_MADE:
            return
        try:
            path = self._path(entry, args, kwargs)
        except (Unreadable, RecursionError):
            return
        self._paths = (path, *self._paths[: MOST_PATHS - 1])

    def _path(self, entry: _Entry, args: tuple, kwargs: dict) -> Path:
        numbers, names = self._static_places(args)
        positional = [(i, _argument(a, i in numbers)) for i, a in enumerate(args)]
        named = [(k, _argument(kwargs[k], k in names)) for k in sorted(kwargs)]
        return entry.program.path(
            entry.captured,
            Items(tuple, len(args), tuple(positional)),
            Entries(len(kwargs), tuple(named)),
            entry.out_form,
        )

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """The compiled program for these arguments (or `ShapeDtype`), as a report.

        Lists the kernels and what was fused into each, FLOPs and bytes, the buffer
        plan, and what runs through a host callback.
        """
        return self.lower(*args, **kwargs).explain()

    @boundary
    def lower(self, *args: Any, **kwargs: Any) -> Executable:
        """The compiled program for these arguments (or `ShapeDtype`), without running
        it."""
        return self._lookup(args, kwargs, ArrayType)[0].program

    @boundary
    def graph(self, *args: Any, **kwargs: Any) -> Graph:
        """The traced program for these arguments (or `ShapeDtype`), before any
        optimisation."""
        return self._lookup(args, kwargs, ArrayType)[0].graph

    def clear_cache(self) -> None:
        """Forgets all traces."""
        self._entries.clear()
        self._paths = ()

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return _Method(self, instance)

    def __repr__(self) -> str:
        return f"<jit of {name_of(self.function)}>"

    def _lookup(
        self, args: tuple, kwargs: dict, stand_in: type | None = None
    ) -> tuple[_Entry, list[Any]]:
        """What belongs to these arguments, and their leaves.

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
                types.append(leaf)
            else:
                if kind in dtypes.PYTHON_OF:
                    leaf = leaves[i] = leaf.item()
                if not is_array(leaf) and not isinstance(leaf, NUMBERS):
                    place = tree.paths(form)[i][1:]
                    check_leaf(leaf, argument(self.function, place))
                types.append(typeof(leaf))
        key = (form, tuple(types), statics, tree.kind_of(statics))
        try:
            entry = self._entries.get(key)
        except TypeError:
            raise TypeError(self._unhashable(statics)) from None
        if entry is None:
            entry = self._for_sizes(form, types, statics) or self._trace(
                form, types, statics
            )
            # A captured tracer belongs to this call alone.
            if not any(isinstance(c, Tracer) for c in entry.captured):
                self._entries[key] = entry
        return entry, leaves

    def _moving(self, form: Any, types: Any, statics: tuple) -> dict[int, tuple]:
        """The axes that had several sizes so far; those that had the same sizes in
        every call have one name."""
        ranks = tuple([(t.dtype, t.weak, t.ndim) for t in types])
        key = (form, ranks, statics, tree.kind_of(statics))
        seen = self._seen.setdefault(key, [])
        if len(seen) < 4:
            seen.append([t.shape for t in types])
        axes, numbers = {}, {}  # type: ignore[var-annotated]
        for i, t in enumerate(types):
            history = [tuple(s[i][k] for s in seen) for k in range(t.ndim)]
            names = tuple(
                [
                    f"s{numbers.setdefault(h, len(numbers))}"
                    if len(set(h)) > 1
                    else None
                    for h in history
                ]
            )
            if any(names):
                axes[i] = names
        return axes

    def _for_sizes(self, form: Any, types: Any, statics: tuple) -> Any:
        """The entry for types some of whose axes are named."""
        if not self._dynamic:
            return None
        sizes: dict[str, int] = {}
        axes: dict[int, tuple] = {}
        if self._dynamic == "auto":
            axes = self._moving(form, types, statics)
            for i, wanted in axes.items():
                for n, axis in zip(types[i].shape, wanted, strict=True):
                    if axis is not None and sizes.setdefault(axis, n) != n:
                        return None
            if not sizes:
                return None
        names = [] if axes else list(signature_of(self.function).parameters)
        for i, path in enumerate(tree.paths(form)):
            if not names:
                break
            name = names[path[1]] if path[0] == 0 else path[1]
            wanted = self._dynamic.get(name)
            if wanted is not None and len(wanted) == types[i].ndim:
                axes[i] = wanted
                for n, axis in zip(types[i].shape, wanted, strict=True):
                    if axis is not None and sizes.setdefault(axis, n) != n:
                        raise ValueError(
                            f"axis {axis!r} has lengths {sizes[axis]} and {n}"
                        )
        if 0 in sizes.values() or any(is_dim(n) for n in sizes.values()):
            return None
        shapes = tuple(
            (
                t.dtype,
                t.weak,
                tuple(a or n for a, n in zip(axes[i], t.shape, strict=True)),
            )
            if i in axes
            else t
            for i, t in enumerate(types)
        )
        key = (form, shapes, statics, tree.kind_of(statics))
        given = tuple(sizes.values())
        traces = self._traces.setdefault(key, [])
        for trace in traces:
            if trace.admits(given):
                return trace.bind(given)
        if 1 in given:
            # Not a general size: what is equal for it need not be for others.
            return None
        fixed: dict[str, Any] = {}
        while True:
            scope = Scope()
            symbols = {name: scope.symbol(name, n) for name, n in sizes.items()}
            for name, value in fixed.items():
                # What an earlier trace needed to be equal is one size in this one.
                other = value if isinstance(value, int) else symbols[value]
                scope.guard(symbols[name] - other, "==", True)
                symbols[name] = other
            sized = [
                ArrayType(
                    tuple(
                        symbols.get(a, n) for a, n in zip(axes[i], t.shape, strict=True)
                    ),
                    t.dtype,
                    t.weak,
                )
                if i in axes
                else t
                for i, t in enumerate(types)
            ]
            trace = _Dynamic(scope, self._trace(form, sized, statics))
            found = _to_fix(scope, fixed)
            if not found:
                break
            fixed |= found
        assert not any(isinstance(c, Tracer) for c in trace.entry.captured)
        traces.append(trace)
        assert trace.admits(given)
        return trace.bind(given)

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

    def _unhashable(self, statics: tuple) -> str:
        for place, value in statics:
            try:
                hash(value)
            except TypeError:
                where = argument(self.function, (place,))
                return (
                    f"static {where} is not hashable: {value!r:.60}"
                    f"{at(user_source())}\n"
                    "Use a tuple instead of a list, and a frozen dataclass "
                    "instead of a dict; arrays can't be static."
                )
        return "a static value is not hashable"

    def _trace(
        self, form: tree.Structure, types: Sequence[Any], statics: tuple
    ) -> _Entry:
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
            out = call_pure(self.function, form, leaves, arrange)
            outs, out_form = tree.flatten(out)
            check_results(self.function, outs, out_form)
            return outs

        graph, captured = stage(flat, types, name=name_of(self.function))
        # The program computes with what it was traced with, also if that is an array
        # of NumPy's that changes later.
        captured = [
            Array(np.array(c, order="C")) if isinstance(c, np.ndarray) else c
            for c in captured
        ]
        return _Entry(graph, captured, out_form, self._donated_leaves(form))

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


class _Method:
    """A jitted function bound to an instance, which is its first argument."""

    def __init__(self, jitted: Jitted, instance: Any) -> None:
        self._jitted, self._instance = jitted, instance

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._jitted(self._instance, *args, **kwargs)

    def explain(self, *args: Any, **kwargs: Any) -> str:
        return self._jitted.explain(self._instance, *args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Executable:
        return self._jitted.lower(self._instance, *args, **kwargs)

    def graph(self, *args: Any, **kwargs: Any) -> Graph:
        return self._jitted.graph(self._instance, *args, **kwargs)


@boundary
def jit(
    function: Callable[..., Any] | None = None,
    *,
    static: Which = (),
    donate: Which = (),
    dynamic: Any = None,
) -> Any:
    """Compiles a pure function of pytrees of arrays.

    The function is traced once for each structure and set of shapes and dtypes of its
    arguments; kernels are shared between shapes, so a new shape rarely compiles
    anything native: where it calls for another kernel (an axis that became short or
    long, or is 1), that one. Python numbers are run-time inputs: a new value compiles
    nothing at all.

    Args:
      function: the function, or None to make a decorator.
      static: arguments, by name or position, that are Python values to compile for
        (hashable): flags, sizes, functions.
      donate: arguments, by name or position, that the caller gives up: their memory
        is reused for the results, and using them afterwards is an error.

    Raises:
      TypeError: for arguments or results that are not arrays, unhashable statics.
      TracerError: if the function needs a traced value (``if x > 0``).
      MutationError: if the function changes a list, dict… among its arguments.

    >>> import treadle as td, treadle.numpy as tnp
    >>> @td.jit
    ... def f(x):
    ...     return tnp.sum(x * x)
    >>> f(tnp.arange(4.0))
    Array(14., dtype=float32)
    """
    if function is None:
        return lambda f: Jitted(f, static, donate, dynamic)
    check_function("jit", function)
    return Jitted(function, static, donate, dynamic)
