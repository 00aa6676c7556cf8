"""Programs whose sizes are open: what is found anew for each size.

`bind` gives a program for given sizes. Nothing is traced, planned or compiled for it:
one generated function computes all numbers of the plan, which then stand among the
words of a program like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np

from treadle.arraytype import ArrayType
from treadle.dims import Dim, Part, Scope
from treadle.plan.steps import Plan
from treadle.plan.target import Target
from treadle.run.execute import Bound, Executable, result, results_of


class Code:
    """Python source that computes numbers from the sizes of a scope's dimensions.

    A dimension is called ``d0``, a number that a function finds ``v7``, the function
    ``f7``: after the atom. If it finds several, ``v7`` is the sequence of them. Sums
    are computed once each, and called ``n3``.
    """

    def __init__(self, scope: Scope) -> None:
        self._atoms = scope.atoms
        self._lines: list[str] = []
        self._functions: dict[str, Any] = {}
        self._sums: dict[Any, str] = {}
        self._names = {a.number: f"d{a.number}" for a in scope.atoms if a.fn is None}
        self._parameters = list(self._names.values())

    def of(self, x: Any) -> str:
        """An expression for a number, or another constant."""
        if type(x) is int:
            return repr(x)
        if type(x) is not Dim:
            name = f"c{len(self._functions)}"
            self._functions[name] = x
            return name
        if x.key not in self._sums:
            text = "+".join([self._product(*term) for term in x.terms.items()])
            if not text.isidentifier():
                text, line = f"n{len(self._sums)}", text
                self._lines.append(f"{text} = {line}")
            self._sums[x.key] = text
        return self._sums[x.key]

    def _product(self, atoms: Sequence[Any], factor: int) -> str:
        factors = [] if factor == 1 and atoms else [str(factor)]
        return "*".join([*factors, *[self._name(a) for a in atoms]])

    def sequence(self, xs: Sequence[Any]) -> str:
        """An expression for a tuple of numbers."""
        return "(" + "".join([self.of(x) + "," for x in xs]) + ")"

    def sequences(self, many: Sequence[Sequence[Any]]) -> str:
        """An expression for a tuple of tuples of numbers."""
        return "(" + "".join([self.sequence(xs) + "," for xs in many]) + ")"

    def _name(self, atom: Any) -> str:
        if atom.number not in self._names:
            first = atom.number
            while self._atoms[first].fn is Part:
                first -= 1
            self._call(self._atoms[first])
        return self._names[atom.number]

    def _call(self, atom: Any) -> None:
        n = atom.number
        arguments = ", ".join([self.of(x) for x in atom.args])
        self._functions[f"f{n}"] = atom.fn
        self._lines.append(f"v{n} = f{n}({arguments})")
        stop = n + 1
        while stop < len(self._atoms) and self._atoms[stop].fn is Part:
            stop += 1
        several = stop > n + 1
        for i in range(n, stop):
            self._names[i] = f"v{n}[{i - n}]" if several else f"v{n}"

    def end_unless(self, test: str) -> None:
        """Gives False where a test fails, before anything more is computed."""
        self._lines.append(f"if not ({test}): return False")

    def function(self, result: str) -> Callable[..., Any]:
        """A function of the dimensions' sizes that gives what `result` says."""
        body = "".join([f"    {line}\n" for line in self._lines])
        source = f"def at({', '.join(self._parameters)}):\n{body}    return {result}\n"
        exec(compile(source, "<sizes>", "exec"), self._functions)
        return self._functions["at"]


def guards(scope: Scope) -> Callable[..., bool]:
    """Whether sizes of the dimensions answer what the trace asked as those did for
    which it was made. What the trace computed after an answer may have no meaning for
    sizes that give another one: it ends there."""
    code = Code(scope)
    for d, op, answer, *_ in scope.guards.values():
        code.end_unless(f"(({code.of(d)}) {op} 0) is {answer}")
    return code.function("True")


_ALIGN = 64

Numbers = tuple[Sequence[int], int, Sequence[Any], Sequence[Any], Sequence[Any]]


class SizedProgram:
    """A program whose sizes are open. `bind` gives that for given sizes.

    elsewhere: the program for another device, from numbers for sizes and its name.
    """

    def __init__(
        self,
        scope: Scope,
        plan: Plan,
        target: Target,
        donated: Sequence[int] = (),
    ) -> None:
        self.elsewhere: Callable[..., Executable] | None = None
        self._compiled = plan, target, donated
        self._linked = target.link(plan)
        self._scope = scope
        self._in_types, self._out_types = plan.outline.in_types, plan.outline.out_types
        self._results = results_of(self._out_types, plan, target)
        self._sized = [
            [i for i, t in enumerate(types) if t.is_sized]
            for types in (self._in_types, self._out_types)
        ]
        self._numbers = [
            (i, x, [size.key for size in x.sizes])
            for i, x in enumerate(plan.numbers)
            if x is not None
        ]
        self._dimensions = [a.number for a in scope.atoms if a.fn is None]
        self._evaluate = self._evaluator()
        self._evaluate_better = _with_better(self._evaluate)

    def _evaluator(self) -> Callable[..., Numbers]:
        """From sizes to the linked program's numbers, the bytes of temporaries, the
        shapes of arguments and of results that are not fixed, and the sizes that each
        number needs."""
        code = Code(self._scope)
        plan, _, _ = self._compiled
        ins, outs = self._sized
        parts = (
            code.sequence(self._linked.sizes),
            code.of(plan.arena),
            code.sequences([self._in_types[i].shape for i in ins]),
            code.sequences([self._out_types[i].shape for i in outs]),
            code.sequences([x.sizes for _, x, _ in self._numbers]),
        )
        return code.function("(" + ", ".join(parts) + ")")

    def bind(self, *sizes: int) -> Executable:
        """The program for given sizes of the dimensions, in their order."""
        numbers = self._evaluate(*sizes)
        made = self._bound(sizes, numbers, _Values(self._scope, self._given(sizes)))
        made.better = partial(self._better, sizes, numbers[1])
        return made

    def _better(self, sizes: Sequence[int], arena: int) -> Executable | None:
        """The program with what takes longer to find, if it takes less memory."""
        numbers = self._evaluate_better(*sizes)
        if numbers[1] >= arena:
            return None
        value_of = _BetterValues(self._scope, self._given(sizes))
        return self._bound(sizes, numbers, value_of)

    def _given(self, sizes: Sequence[int]) -> dict[int, Any]:
        return dict(zip(self._dimensions, sizes, strict=True))

    def _bound(
        self, sizes: Sequence[int], found: Numbers, value_of: _Values
    ) -> Executable:
        plan, target, donated = self._compiled
        values, arena, ins, outs, numbers = found
        linked = self._linked.bind(values, self._constants(numbers))
        in_types, results = list(self._in_types), list(self._results)
        for i, shape in zip(self._sized[0], ins, strict=True):
            in_types[i] = _with_shape(in_types[i], shape)
        for i, shape in zip(self._sized[1], outs, strict=True):
            t = _with_shape(self._out_types[i], shape)
            results[i] = result(t, target, plan.shares.get(i, -1))
        room = target.room(arena + 8 * linked.program.slot_count + _ALIGN)
        bound = Bound(linked, in_types, results, arena, room, value_of)
        made = Executable(plan, target, donated, bound)
        if self.elsewhere is not None:
            made.program_for = partial(self.elsewhere, value_of)
        return made

    def _constants(self, numbers: Sequence[Sequence[int]]) -> dict[int, np.ndarray]:
        """The constants that depend on sizes."""
        found = {}
        for (i, x, keys), given in zip(self._numbers, numbers, strict=True):
            found[i] = np.ascontiguousarray(x.at(_lookup(keys, given)))
        return found


def _lookup(keys: Sequence[Any], values: Sequence[int]) -> Callable[[Any], int]:
    known = dict(zip(keys, values, strict=True))
    return lambda size: known[size.key]


def _with_better(fn: Callable[..., Numbers]) -> Callable[..., Numbers]:
    """A generated function that calls what is `better` than functions that it calls."""
    names = {name: _better(f) for name, f in fn.__globals__.items()}
    return FunctionType(fn.__code__, names)


def _better(fn: Any) -> Any:
    return getattr(fn, "better", fn)


def _with_shape(t: ArrayType, shape: tuple[int, ...]) -> ArrayType:
    return ArrayType(shape, t.dtype, t.weak)


class _Values:
    """From a size to its number, given those of the dimensions, which are found among
    the scope's atoms by these numbers: for questions that are asked seldom."""

    def __init__(self, scope: Scope, given: dict[int, Any]) -> None:
        self._atoms = scope.atoms
        self._found = given

    def __call__(self, size: Any) -> int:
        if type(size) is not Dim:
            return size
        return sum(
            factor * math.prod([self._atom(a.number) for a in atoms])
            for atoms, factor in size.terms.items()
        )

    def _atom(self, n: int) -> int:
        if n not in self._found:
            first = n
            while self._atoms[first].fn is Part:
                first -= 1
            atom: Any = self._atoms[first]
            values: Any = self._called(atom.fn)(*map(self, atom.args))
            several: Any = values if isinstance(values, Sequence) else [values]
            self._found.update(enumerate(several, first))
        return self._found[n]

    def _called(self, fn: Any) -> Any:
        return fn


class _BetterValues(_Values):
    """The same, with what is `better` than functions."""

    def _called(self, fn: Any) -> Any:
        return _better(fn)
