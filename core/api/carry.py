"""What loops carry: a pytree that keeps its structure and types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from treadle import dtypes, tree
from treadle.api.ambient import Surroundings
from treadle.api.args import (
    CLOSE_OVER,
    RETURN,
    array_of,
    check_leaf,
    name_of,
    number_of,
)
from treadle.arraytype import ArrayType
from treadle.control.ways import explore
from treadle.errors import StructureError, at, user_source
from treadle.ir.graph import Atom, Equation, Graph
from treadle.ops.cast import convert
from treadle.trace.effects import ONCE_A_LOOP, Watch
from treadle.trace.value import Tracer, is_array, typeof

_STRUCTURE = (
    "{what}: the carry must keep its structure, but {name} changes it\n"
    "  goes in:   {before}\n"
    "  comes out: {after}\n"
    "  {difference}{at}"
)
_TYPES = (
    "{what}: the carry must keep its types, but {name} changes them\n{rows}{at}\n"
    "{remedy}"
)
_SHAPE_REMEDY = (
    "A carry can't grow or shrink: give the initial carry the shape that comes out, or "
    "collect\nvalues as the second result of `td.scan`."
)
_DTYPE_REMEDY = (
    "Convert what comes out (`.astype(...)`), or start from a carry of that dtype."
)


_NOTHING = tree.structure(())


class LoopBody(NamedTuple):
    """A traced loop body ``(*captured, *carry, *hidden, *rest) -> (*carry, *hidden,
    *outs)``.

    types: of the carry. around: the ambients outside of the loop; the body changes
      those of their leaves that are numbered in `hidden`.
    """

    graph: Graph
    captured: list[Any]
    types: list[ArrayType]
    around: Surroundings
    hidden: list[int]

    def initial(self, leaves: Sequence[Any]) -> list[Any]:
        """What the loop starts from: the carry, and the ambient values."""
        ambient = [self.around.leaves[i] for i in self.hidden]
        return [*of_types(leaves, self.types), *of_types(ambient, map(typeof, ambient))]

    def leave(self, outs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Takes the ambient values out of what the loop gives: the last carry, and what
        else came out."""
        start = len(self.types)
        stop = start + len(self.hidden)
        self.around.update(self.hidden, outs[start:stop])
        return list(outs[:start]), list(outs[stop:])


def flatten_checked(
    values: Any, where: str, remedy: str = RETURN
) -> tuple[list[Any], tree.Structure]:
    """The leaves, all arrays or numbers, and the structure."""
    leaves, form = tree.flatten(values)
    checked = [
        check_leaf(leaf, f"{where}{tree.key_name(path) if path else ''}", remedy)
        for path, leaf in zip(tree.paths(form), leaves, strict=True)
    ]
    return checked, form


def trace_body(
    function: Callable[..., tuple[Any, Sequence[Any]]],
    form: tree.Structure,
    types: Sequence[ArrayType],
    rest: Sequence[ArrayType],
    what: str,
    name: str,
    rest_form: Callable[[], tree.Structure] = lambda: _NOTHING,
) -> LoopBody:
    """Traces a body until its carry is of one type.

    A carry that starts as a Python number takes the type that comes out.

    Args:
      function: takes the leaves of the carry and of the rest; gives the new carry, a
        pytree, and a flat list of what else comes out.
      types: of the initial carry; `rest`: of the other inputs.
      rest_form: the structure of what else came out of the last call.
    """
    types = list(types)
    outs: list[Any] = []
    around = Surroundings()
    hidden = [typeof(x) for x in around.leaves]

    def flat(*leaves: Any) -> list[Any]:
        nonlocal outs
        own, more = leaves[: len(types)], leaves[len(types) + len(hidden) :]
        with around.inside(leaves[len(types) :][: len(hidden)]):
            carry, others = function(*own, *more)
            ambient = around.kept_values(what, name)
        outs = _same_structure(carry, form, what, name)
        return [*_strengthen(outs, types), *ambient, *others]

    def whole() -> tree.Structure:
        return tree.together(form, around.form, rest_form())

    while True:
        inputs = [*types, *hidden, *rest]
        with Watch(function, name=name, when=ONCE_A_LOOP):
            graph, captured = explore(flat, inputs, whole, name=name)
        found = graph.out_types[: len(types)]
        met = [_meet(a, b) for a, b in zip(types, found, strict=True)]
        new = [t for t in met if t is not None]
        if len(new) < len(met):
            lines = [_came_in(graph, len(captured), out) for out in graph.outputs]
            raise TypeError(_mismatch(form, types, outs, lines, what, name))
        if [t.dtype for t in types] == [t.dtype for t in new]:
            return _without_constants(graph, captured, types, around)
        types = new


def _without_constants(
    graph: Graph, captured: list[Any], types: list[ArrayType], around: Surroundings
) -> LoopBody:
    """The body, carrying only those ambient values that it changes."""
    consts, rest = graph.inputs[: len(captured)], graph.inputs[len(captured) :]
    own, outs = rest[: len(types)], graph.outputs[: len(types)]
    stop = len(types) + len(around.leaves)
    ambient, after = rest[len(types) : stop], graph.outputs[len(types) : stop]
    pairs = list(zip(ambient, after, strict=True))
    hidden = [i for i, (a, b) in enumerate(pairs) if a is not b]
    outputs = [*outs, *(after[i] for i in hidden), *graph.outputs[stop:]]
    read = {id(a) for eq in graph.equations for a in eq.inputs} | set(map(id, outputs))
    kept = [i for i, (a, b) in enumerate(pairs) if a is b and id(a) in read]
    fixed = [around.leaves[i] for i in kept]
    inputs = [*consts, *(ambient[i] for i in kept), *own]
    inputs += [*(ambient[i] for i in hidden), *rest[stop:]]
    smaller = Graph(inputs, graph.equations, outputs, graph.name)
    captured = [*captured, *of_types(fixed, map(typeof, fixed))]
    return LoopBody(smaller, captured, types, around, hidden)


def _same_structure(
    carry: Any, form: tree.Structure, what: str, name: str
) -> list[Any]:
    leaves, found = flatten_checked(carry, f"the carry that {name} returns")
    if found != form:
        raise StructureError(
            _STRUCTURE.format(
                what=what,
                name=name,
                before=form,
                after=found,
                difference=tree.difference(form, found),
                at=at(user_source()),
            )
        )
    return leaves


def _strengthen(outs: Sequence[Any], types: Sequence[ArrayType]) -> list[Any]:
    """Python numbers that come out take the dtype of the carry."""
    result = []
    for x, wanted in zip(outs, types, strict=True):
        t = typeof(x)
        common = dtypes.promote((t.dtype, t.weak), (wanted.dtype, wanted.weak))[0]
        fits = t.weak and t.dtype != wanted.dtype == common
        result.append(convert(x, dtype=common) if fits else x)
    return result


def _meet(before: ArrayType, after: ArrayType) -> ArrayType | None:
    """The type of a carry that goes in and comes out; None if there is none."""
    if before.shape != after.shape:
        return None
    if before.dtype == after.dtype:
        return before
    common = dtypes.promote((before.dtype, before.weak), (after.dtype, after.weak))[0]
    return after if before.weak and common == after.dtype else None


def _mismatch(
    form: tree.Structure,
    types: Sequence[ArrayType],
    outs: Sequence[Any],
    lines: Sequence[str],
    what: str,
    name: str,
) -> str:
    rows, remedy = [], _DTYPE_REMEDY
    # A graph's further outputs are no carry.
    rows_of = zip(tree.paths(form), types, outs, lines, strict=False)
    for path, before, x, line in rows_of:
        after = typeof(x)
        if _meet(before, after) is None:
            line = line or (x.made() if isinstance(x, Tracer) else "")
            made = f" (made at {line})" if line else ""
            place = "carry" + (tree.key_name(path) if path else "")
            rows.append(f"  {place}: {before} goes in, {after} comes out{made}")
            if before.shape != after.shape:
                remedy = _SHAPE_REMEDY
    return _TYPES.format(
        what=what, name=name, rows="\n".join(rows), at=at(user_source()), remedy=remedy
    )


def _came_in(graph: Graph, captured: int, out: Atom) -> str:
    """The line where an output came to its dtype, on the way to it from what the loop
    carries; nothing if it does not depend on that."""
    makers: dict[int, Equation] = {}
    varying = set(map(id, graph.inputs[captured:]))
    for eq in graph.equations:
        if not varying.isdisjoint(map(id, eq.inputs)):
            makers |= {id(v): eq for v in eq.outputs}
            varying |= set(map(id, eq.outputs))
    line, dtype = "", out.type.dtype
    maker = makers.get(id(out))
    while maker is not None:
        line = maker.source
        before = [a for a in maker.inputs if a.type.dtype == dtype and id(a) in makers]
        maker = makers[id(before[0])] if before else None
    return line


def of_types(leaves: Sequence[Any], types: Iterable[ArrayType]) -> list[Any]:
    """The initial carry, with Python numbers made into what the body takes."""
    return [_of_type(x, t) for x, t in zip(leaves, types, strict=True)]


def _of_type(x: Any, t: ArrayType) -> Any:
    if isinstance(x, bool | int | float | complex):
        return number_of(x, t.dtype)
    return x if typeof(x).dtype == t.dtype else convert(x, dtype=t.dtype)


def restarted(leaves: Sequence[Any], types: Sequence[ArrayType]) -> list[Any]:
    """The initial carry again, now that its types are known better. What is a number
    still may yet become something else."""
    return [_retyped(x, t) for x, t in zip(leaves, types, strict=True)]


def _retyped(x: Any, t: ArrayType) -> Any:
    if typeof(x).dtype == t.dtype:
        return x
    return _of_type(x, t) if is_array(x) else array_of(x, t)


class PythonCarry:
    """Checks the carry of a loop that runs as plain Python."""

    def __init__(self, init: Any, what: str, function: Callable[..., Any]) -> None:
        where = f"the initial carry of {what}"
        leaves, self.form = flatten_checked(init, where, CLOSE_OVER)
        self.what, self.name = what, name_of(function)
        arrays = [as_array(x) for x in leaves]
        self.types = [typeof(x) for x in arrays]
        self.value = self.form.unflatten(arrays)

    def update(self, carry: Any) -> bool:
        """Takes the carry that came out of an iteration. Returns whether its dtypes are
        those of the one that went in."""
        leaves = _same_structure(carry, self.form, self.what, self.name)
        leaves = [as_array(x) for x in _strengthen(leaves, self.types)]
        new = [_meet(t, typeof(x)) for t, x in zip(self.types, leaves, strict=True)]
        if any(t is None for t in new):
            raise TypeError(
                _mismatch(
                    self.form, self.types, leaves, [""] * len(new), self.what, self.name
                )
            )
        before = [t.dtype for t in self.types]
        self.types = [t for t in new if t is not None]
        self.value = self.form.unflatten(leaves)
        return before == [t.dtype for t in self.types]


def as_array(x: Any) -> Any:
    """An array of a Python number; its dtype stays weak."""
    if isinstance(x, bool | int | float | complex):
        return array_of(x, typeof(x))
    return x
