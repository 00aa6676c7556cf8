"""Branches: cond and switch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

import numpy as np

from treadle import dtypes, tree
from treadle.api.ambient import Surroundings
from treadle.api.args import (
    CLOSE_OVER,
    array_of,
    as_results,
    check_function,
    name_of,
)
from treadle.api.boundary import boundary
from treadle.api.carry import as_array, flatten_checked, of_types
from treadle.arraytype import ArrayType
from treadle.control import cond as cond_op
from treadle.control.ways import explore
from treadle.errors import StructureError, at, user_source
from treadle.ir.graph import Graph
from treadle.ir.walk import call_graph
from treadle.ops.binary import maximum, minimum
from treadle.ops.cast import convert
from treadle.ops.compare import ne
from treadle.run.array import ArrayLike
from treadle.trace.effects import Watch
from treadle.trace.stage import known_value, stage
from treadle.trace.value import is_array, typeof

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


@boundary
def cond(
    pred: ArrayLike,
    true_fun: Callable[[*Ts], R],
    false_fun: Callable[[*Ts], R],
    *operands: *Ts,
) -> R:
    """``true_fun(*operands) if pred else false_fun(*operands)``, for a traced `pred`.

    Where `pred` is known (outside `jit` and `vmap`, or a Python bool) only the function
    it chooses is called. Under `vmap` with a batched `pred` both are computed, and each
    example takes its own; effects (`td.debug.print`, `td.io_callback`) happen only for
    the examples that take a branch.

    Args:
      pred: a bool scalar; numbers count as true unless they are 0.
      true_fun, false_fun: must give results of the same structure and types. They may
        close over arrays.
      operands: pytrees of arrays.

    Raises:
      TypeError, StructureError: if the two results differ; the message names the leaf.

    >>> import treadle as td
    >>> td.jit(lambda x: td.cond(x > 0, lambda x: x, lambda x: -x, x))(-3.0)
    Array(3., dtype=float32)
    """
    check_function("cond", true_fun)
    check_function("cond", false_fun)
    _check_scalar("cond: the predicate", pred)
    known = known_value(pred)
    if known is not None:
        return _take(true_fun if bool(known) else false_fun, operands)
    t = typeof(pred)
    if t.dtype != dtypes.bool_:
        pred = ne(pred, t.dtype.type(0))
    index = convert(pred, dtype=dtypes.int32)
    return _staged("cond", index, (false_fun, true_fun), operands)


@boundary
def switch(
    index: ArrayLike, branches: Sequence[Callable[[*Ts], R]], *operands: *Ts
) -> R:
    """``branches[index](*operands)`` for a traced index, clamped into range.

    >>> import treadle as td
    >>> td.jit(lambda i, x: td.switch(i, [lambda x: x, lambda x: x * x], x))(1, 3.0)
    Array(9., dtype=float32)
    """
    branches = tuple(branches)
    if not branches:
        raise ValueError(f"switch needs at least one branch{at(user_source())}")
    _check_scalar("switch: the index", index)
    t = typeof(index)
    if not dtypes.is_integer(t.dtype):
        raise TypeError(
            f"switch: the index must be an integer, got {t}{at(user_source())}"
        )
    known = known_value(index)
    if known is not None or len(branches) == 1:
        n = 0 if known is None else min(max(int(known), 0), len(branches) - 1)
        return _take(branches[n], operands)
    if t.dtype != dtypes.int32:
        if t.dtype.itemsize >= 4:  # which int32 may not hold
            last = t.dtype.type(len(branches) - 1)
            index = maximum(minimum(index, last), t.dtype.type(0))
        index = convert(index, dtype=dtypes.int32)
    return _staged("switch", index, branches, operands)


def _check_scalar(what: str, x: Any) -> None:
    t = typeof(x)
    if t.shape:
        raise TypeError(
            f"{what} must be a scalar, got {t}{at(user_source())}\n"
            "Reduce it (`.all()`, `.any()`), choose elementwise with `tnp.where`, or "
            "branch per example under `td.vmap`."
        )


def _take(function: Callable[..., Any], operands: Sequence[Any]) -> Any:
    out = function(*tree.map(as_array, tuple(operands)))
    outs, form = flatten_checked(out, f"the result of {name_of(function)}")
    return form.unflatten(as_results(outs))


class _Branch(NamedTuple):
    """A traced branch ``(*captured, *operands) -> (*results, *changed)``.

    ambient: the values that it leaves in the ambients; `changed` says which are others
      than before.
    """

    graph: Graph
    captured: list[Any]
    out_form: tree.Structure
    name: str
    ambient: list[Any]
    changed: list[int]

    @property
    def types(self) -> Sequence[ArrayType]:
        """Of the results."""
        return self.graph.out_types[: self.out_form.count]


def _staged(
    what: str,
    index: Any,
    functions: Sequence[Callable[..., Any]],
    operands: Sequence[Any],
) -> Any:
    leaves, form = flatten_checked(tuple(operands), f"{what}: operand ", CLOSE_OVER)
    leaves = [as_array(x) for x in leaves]
    types = [typeof(x) for x in leaves]
    around = Surroundings()
    branches = [_trace(f, form, types, around, what) for f in functions]
    _check_structures(what, branches)
    wanted = _common_types(what, branches)
    places = _differing(branches)
    before = [around.leaves[i] for i in places]
    wanted += [typeof(x).strong() for x in before]
    # The branches take the same inputs: whatever any of them closes over.
    kept = [x for x in before if is_array(x)]
    captured = [*(c for b in branches for c in b.captured), *kept]
    captured = list({id(c): c for c in captured}.values())
    inputs = [*map(typeof, captured), *types]
    graphs = tuple(
        _widen(b, captured, inputs, wanted, dict(zip(places, before, strict=True)))
        for b in branches
    )
    outs = cond_op.cond(index, *captured, *leaves, branches=graphs)
    n = branches[0].out_form.count
    after = dict(zip(places, outs[n:], strict=True))
    around.put([after.get(i, x) for i, x in enumerate(branches[0].ambient)])
    return branches[0].out_form.unflatten(outs[:n])


def _differing(branches: Sequence[_Branch]) -> list[int]:
    """The ambient values that a branch computes, or that are other numbers in one."""
    columns = zip(*(b.ambient for b in branches), strict=True)
    return [
        i
        for i, column in enumerate(columns)
        if any(i in b.changed for b in branches)
        and (any(map(is_array, column)) or len(set(map(repr, column))) > 1)
    ]


def _trace(
    function: Callable[..., Any],
    form: tree.Structure,
    types: Sequence[ArrayType],
    around: Surroundings,
    what: str,
) -> _Branch:
    out_form: Any = None
    ambient: list[Any] = []
    changed: list[int] = []
    name = name_of(function)

    def flat(*leaves: Any) -> list[Any]:
        nonlocal out_form, ambient, changed
        with around.inside(around.leaves):
            out = function(*form.unflatten(leaves))
            ambient = around.kept_values(what, name)
        outs, out_form = flatten_checked(out, f"the result of {name}")
        changed = around.changed(ambient)
        return [*outs, *(ambient[i] for i in changed)]

    def whole() -> tree.Structure:
        return tree.together(out_form, tree.structure([None] * len(changed)))

    with Watch(function, name=name):
        graph, captured = explore(flat, types, whole, name=name)
    return _Branch(graph, captured, out_form, name, ambient, changed)


def _check_structures(what: str, branches: Sequence[_Branch]) -> None:
    first = branches[0]
    for other in branches[1:]:
        if other.out_form != first.out_form:
            raise StructureError(
                f"{what}: the branches must give results of one structure\n"
                f"  {first.name}: {first.out_form}\n"
                f"  {other.name}: {other.out_form}\n"
                f"  {tree.difference(first.out_form, other.out_form)}"
                f"{at(user_source())}"
            )


def _common_types(what: str, branches: Sequence[_Branch]) -> list[ArrayType]:
    """The types of the results; Python numbers take the dtype of the others, and stay
    Python numbers where all are."""
    wanted = []
    columns = zip(*(b.types for b in branches), strict=True)
    for n, types in enumerate(columns):
        dtype, weak = dtypes.promote(*((t.dtype, t.weak) for t in types))
        shape = types[0].shape
        if any(t.shape != shape or (t.dtype != dtype and not t.weak) for t in types):
            path = tree.paths(branches[0].out_form)[n]
            place = "the result" + (tree.key_name(path) if path else "")
            rows = "\n".join(
                f"  {b.name}: {t}" for b, t in zip(branches, types, strict=True)
            )
            same = all(t.shape == shape for t in types)
            remedy = (
                "Convert one of them (`.astype(...)`)."
                if same
                else "Branches can't differ in shape: pad or broadcast the smaller one."
            )
            raise TypeError(
                f"{what}: {place} must have one type in all branches\n{rows}"
                f"{at(user_source())}\n{remedy}"
            )
        wanted.append(ArrayType(shape, dtype, weak))
    return wanted


def _numbered(x: Any, t: ArrayType) -> Any:
    """A number of a graph as one of Python's again, where it was."""
    return array_of(x, t) if t.weak and isinstance(x, np.generic | np.ndarray) else x


def _widen(
    branch: _Branch,
    captured: Sequence[Any],
    inputs: Sequence[ArrayType],
    wanted: Sequence[ArrayType],
    ambient: dict[int, Any],
) -> Graph:
    """A branch that takes what any branch takes, and gives what any gives.

    Args:
      ambient: what goes in, where something else may come out.
    """
    places = {id(c): i for i, c in enumerate(captured)}
    own = [places[id(c)] for c in branch.captured]
    n = branch.out_form.count

    def function(*values: Any) -> list[Any]:
        outs = call_graph(
            branch.graph, [*(values[i] for i in own), *values[len(captured) :]]
        )
        after = dict(zip(branch.changed, outs[n:], strict=True))
        for i, x in ambient.items():
            same = values[places[id(x)]] if id(x) in places else x
            outs.append(after.get(i, same))
        outs = [*outs[:n], *outs[n + len(branch.changed) :]]
        outs = [_numbered(x, t) for x, t in zip(outs, wanted, strict=True)]
        return of_types(outs, wanted)

    return stage(function, inputs, closed=True, name=branch.name)[0]
