"""Programs ahead of their calls: traced, lowered, compiled, one after the other."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar

from treadle import tree
from treadle.api.args import name_of
from treadle.api.axes import place
from treadle.api.boundary import boundary
from treadle.api.entry import Entry, compiler
from treadle.api.report import Arguments
from treadle.arraytype import ArrayType
from treadle.errors import TracerError, at, user_source
from treadle.ir.filled import filled
from treadle.ir.graph import Graph
from treadle.reading import Unreadable
from treadle.run.eager import EagerInterpreter, Elsewhere
from treadle.trace.interpreter import state
from treadle.trace.value import Tracer

if TYPE_CHECKING:
    from treadle.api.jit import Jitted
    from treadle.plan.calls import Path
    from treadle.plan.steps import Plan
    from treadle.run.execute import Executable
    from treadle.run.figures import CostAnalysis
    from treadle.run.usage import MemoryAnalysis

P = ParamSpec("P")
R = TypeVar("R")

_OTHER = """\
the compiled program of {} was made for other arguments{}
{}
Call it with what it was compiled for, or call the jitted function, which compiles \
once more."""


@dataclass(frozen=True)
class Made:
    """A program of a jitted function, on its way.

    given: what it was traced for.
    """

    jitted: Jitted
    entry: Entry
    given: Arguments

    @classmethod
    def of(cls, jitted: Jitted, args: tuple, kwargs: dict) -> Made:
        """That for arguments like these, which may be `ShapeDtype`."""
        given, _ = _given(jitted, args, kwargs, ArrayType)
        programs = jitted._programs
        kept = programs.now()
        entry = programs.find(kept, given.form, given.types, given.statics)
        return cls(jitted, entry, given)

    @property
    def name(self) -> str:
        return name_of(self.given.function)

    @property
    def in_tree(self) -> tree.Structure:
        """The structure of (args, kwargs), with None where a static argument is."""
        return self.given.form

    @property
    def args_info(self) -> Any:
        """(args, kwargs) with a `ShapeDtype` for each array."""
        return self.given.form.unflatten(self.given.types)

    @property
    def out_tree(self) -> tree.Structure:
        """The structure of the result."""
        return self.entry.out_form

    @property
    def out_info(self) -> Any:
        """The result with a `ShapeDtype` for each array."""
        types = [ArrayType(t.shape, t.dtype) for t in self.graph.out_types]
        return self.entry.out_form.unflatten(types)

    @property
    def donated(self) -> tuple[str, ...]:
        """The arrays among the arguments that a call gives up."""
        skip = len(self.entry.captured)
        return tuple([self.argument(i - skip) for i in self.entry.donated])

    @cached_property
    def graph(self) -> Graph:
        """The traced program; arrays that the function closes over are its first
        inputs."""
        if self.entry.is_bound:
            return filled(self.entry.graph, self.entry.program.value_of)
        return self.entry.graph

    @property
    def plan(self) -> Plan:
        """The steps that run, and where values lie."""
        entry = self.entry
        if "program" in vars(entry):
            return entry.program.plan
        return compiler().plan_of(
            entry.graph, entry.donated, memory_limit=entry.memory_limit
        )

    def argument(self, leaf: int) -> str:
        """How a leaf is written in the function."""
        return place(self.given.function, self.given.form, leaf)

    def input_names(self) -> list[str]:
        captured = [f"captured {i}" for i in range(len(self.entry.captured))]
        return captured + [self.argument(i) for i in range(len(self.given.types))]

    def output_names(self) -> list[str]:
        names = [tree.key_name(p) if p else "" for p in tree.paths(self.out_tree)]
        return [f"result{name}" for name in names]


def _given(
    jitted: Jitted, args: tuple, kwargs: dict, stand_in: type | None = None
) -> tuple[Arguments, list[Any]]:
    """What the arguments of a call are, and their leaves."""
    form, types, statics, leaves = jitted._taken_apart(args, kwargs, stand_in)
    return Arguments(jitted.function, form, types, statics), leaves


@cache
def _late(module: str) -> Any:
    """A module that needs the compiler, which is not loaded before it is used."""
    return importlib.import_module(f"treadle.{module}")


class _Stage(Generic[P, R]):
    """What all stages of a program have."""

    _is = "a program"

    def __init__(self, made: Made) -> None:
        self._made = made
        self.name = made.name
        self.in_tree, self.args_info = made.in_tree, made.args_info
        self.out_tree, self.out_info = made.out_tree, made.out_info
        self.donated = made.donated

    def __repr__(self) -> str:
        return f"<{self._is} {self.name}({self._made.given})>"


def _same(a: ArrayType, b: ArrayType) -> bool:
    """Whether a program can't tell two types apart."""
    return a.shape == b.shape and a.dtype == b.dtype


class Traced(_Stage[P, R]):
    """A function as a graph, for arguments of certain types: `jit(f).trace(...)`.

    in_tree, args_info: the structure of (args, kwargs), and a `ShapeDtype` for each
      array in it. out_tree, out_info: the same of the result.
    donated: the arguments' arrays that a call gives up.
    """

    _is = "traced"

    @property
    def graph(self) -> Graph:
        """The program before any optimisation."""
        return self._made.graph

    def as_text(self) -> str:
        """The graph, with the user's lines at the right."""
        return repr(self.graph)

    @boundary
    def lower(self) -> Lowered[P, R]:
        """Plans the program for the default device: kernels, their order, memory."""
        if any(isinstance(c, Tracer) for c in self._made.entry.captured):
            raise TracerError(
                f"{self.name} closes over a value that a transform is tracing, so it "
                f"can't be compiled ahead{at(user_source())}\nMake it an argument."
            )
        return Lowered(self._made)


class _Planned(_Stage[P, R]):
    """Stages with a plan."""

    @property
    def plan(self) -> Plan:
        """The steps that run, and where values lie."""
        return self._made.plan

    def cost_analysis(self) -> CostAnalysis:
        """FLOPs, transcendental functions, and bytes, of the kernels that run.

        >>> import treadle as td
        >>> w = td.ShapeDtype((32, 32))
        >>> td.jit(lambda a, b: a @ b + 1).lower(w, w).cost_analysis().flops
        66560
        """
        return _late("run.figures").cost_of(self.plan)

    def memory_analysis(self) -> MemoryAnalysis:
        """The bytes of arguments, results, temporaries; what is alive at the peak.

        >>> import treadle as td
        >>> x = td.ShapeDtype((1000,))
        >>> td.jit(lambda x: x * 2).lower(x).memory_analysis().outputs
        4000
        """
        made = self._made
        names = made.input_names(), made.output_names()
        return _late("run.usage").memory_of(made.plan, *names)

    def explain(self) -> str:
        """The program as a report: kernels, what was fused into each, FLOPs, bytes,
        memory, and what runs through a host callback."""
        return _late("run.explain").explain(self.plan)


class Lowered(_Planned[P, R]):
    """A program as kernels with places in memory, for a device: `jit(f).lower(...)`.
    It has what `Traced` has, and numbers."""

    _is = "lowered"

    def as_text(self) -> str:
        """The steps with their places in memory, and the kernels as pseudo-code."""
        return _late("show").show_plan(self.plan)

    @boundary
    def compile(self) -> Compiled[P, R]:
        """Makes machine code of it."""
        return Compiled(self._made)


class Compiled(_Planned[P, R]):
    """A program that can be called: `jit(f).lower(...).compile()`.

    It is called as the function is, static arguments included, and never traces nor
    compiles anything: arguments of other types are an error. If axes are named by
    `jit(dynamic=...)`, arguments of all sizes will do for which the trace holds.

    Raises:
      TypeError: for other arguments than it was compiled for, which it names; within
        another trace.

    >>> import treadle as td, treadle.numpy as tnp
    >>> f = td.jit(lambda x: tnp.sum(x * x)).lower(td.ShapeDtype((3,))).compile()
    >>> f(tnp.arange(3.0))
    Array(5., dtype=float32)
    """

    _is = "compiled"

    def __init__(self, made: Made) -> None:
        super().__init__(made)
        self.program: Executable = made.entry.program
        self._path: Path | None = None
        self._is_read = True

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self!r} is machine code in the memory of this process, and can't be "
            f"pickled{at(user_source())}\nPickle the function, and compile it there: "
            "what one process has compiled, the next one finds in its cache."
        )

    def as_text(self) -> str:
        """The LLVM IR of the kernels."""
        return self.program.target.text(self.plan)

    @boundary
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if type(state.interpreter) not in (EagerInterpreter, Elsewhere):
            raise TypeError(
                f"the compiled program of {self.name} was called while a transform is "
                f"tracing{at(user_source())}\nCall the jitted function instead."
            )
        if self._path is not None:
            out = self._path(args, kwargs)
            if out is not NotImplemented:
                return out
        made = self._made
        given, leaves = _given(made.jitted, args, kwargs)
        entry = made.entry
        if not self._fits(given):
            entry = self._for_other_sizes(given)
        elif self._path is None and self._is_read:
            try:
                self._path = made.jitted._path(entry, args, kwargs)
            except (Unreadable, RecursionError):
                self._is_read = False
        outs = entry.program([*entry.captured, *leaves])
        return entry.out_form.unflatten(outs)

    def _fits(self, given: Arguments) -> bool:
        mine = self._made.given
        return (
            given.form == mine.form
            and all(map(_same, given.types, mine.types))
            and given.statics == mine.statics
            and tree.kind_of(given.statics) == tree.kind_of(mine.statics)
        )

    def _for_other_sizes(self, given: Arguments) -> Entry:
        made, why = self._made, ""
        mine = made.given
        if given.form == mine.form:
            # A number of Python's will do for an array of its dtype.
            pairs = zip(given.types, mine.types, strict=True)
            types = [b if _same(a, b) else a for a, b in pairs]
            given = replace(given, types=types)
            if given.statics == mine.statics:
                found = made.jitted._programs.rebound(made.entry, types)
                if isinstance(found, Entry):
                    return found
                why = found
        changes = [*given.changes(mine), *[why] * bool(why)]
        shown = "\n".join([f"  {change}" for change in changes])
        raise TypeError(_OTHER.format(self.name, at(user_source()), shown))
