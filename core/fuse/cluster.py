"""Clusters: equations that will be one kernel, over one iteration space.

A cluster begins with one equation and grows by equations that read its values through
index maps that line up. Its space has kept dimensions and, once it has a reduction,
reduced ones; the form says how the loops will run (see `treadle.kernels.nest`):

- "inner": one reduced dimension, the last of its operand; later sweeps over the same
  row may use what was reduced (softmax, layer norm);
- "mid": the reduced dimensions are outside the last; what comes after works on results.
"""

from __future__ import annotations

from typing import Any

from treadle.fuse.layout import axis_strides
from treadle.fuse.maps import NoMap, Space
from treadle.fuse.order import Node
from treadle.fuse.program import Program
from treadle.ir.graph import Atom, Equation, Var
from treadle.ir.maps import Map
from treadle.passes.units import last_axis
from treadle.trace.lowering import Addressing, Gather, Reduction, Scatter

MAX_MEMBERS = 120


class Cluster(Node):
    """A kernel to be. `space.maps` has the index map of each member's result.

    product: the contraction whose epilogue the cluster is, once it has become one.
    """

    def __init__(self, number: int, program: Program) -> None:
        super().__init__(number)
        self.space = Space(program.units)
        self.form: str | None = None
        self.reduced: frozenset[int] = frozenset()
        self.after: set[Var] = set()
        self.product: Any = None

    def is_member(self, a: Atom) -> bool:
        return a in self.space.maps


def start(cluster: Cluster, eq: Equation) -> None:
    """Puts the first equation in.

    Raises:
      NoMap: if an operand's views have no index map over the equation's space.
    """
    space = cluster.space
    reduces = isinstance(eq.op.lowering, Reduction)
    entries = space.index(eq.inputs[0] if reduces else eq.outputs[0])
    if reduces:
        space.maps[operand_key(eq)] = entries
        _reduce(cluster, space, eq, entries)
    else:
        space.maps[eq.outputs[0]] = entries
    cluster.equations.append(eq)


def join(cluster: Cluster, eq: Equation, program: Program) -> bool:
    """Adds an equation that reads members, if the index maps line up."""
    if len(cluster.equations) >= MAX_MEMBERS:
        return False
    try:
        space = cluster.space.copy()
        trial = _Trial(cluster, space)
        if isinstance(eq.op.lowering, Reduction):
            ok = trial.reduction(eq, program)
        else:
            ok = trial.elementwise(eq, program)
    except NoMap:
        return False
    if ok:
        cluster.space, cluster.form = space, trial.form
        cluster.reduced, cluster.after = trial.reduced, trial.after
        cluster.equations.append(eq)
    return ok


class _Trial:
    """One attempt at `join`, on a copy of the space."""

    def __init__(self, cluster: Cluster, space: Space) -> None:
        self.cluster, self.space = cluster, space
        self.form, self.reduced = cluster.form, cluster.reduced
        self.after = set(cluster.after)

    def elementwise(self, eq: Equation, program: Program) -> bool:
        out = eq.outputs[0]
        if isinstance(eq.op.lowering, Gather):
            return False
        for a in eq.inputs:
            source, chain = program.resolve(a)
            if self.cluster.is_member(source) and a.type.shape == out.type.shape:
                break
        else:
            return False
        self._derive(out, source, chain)
        if not self._names_units(out):
            return False
        if not self._covers(out) or not operands_fit(self.space, eq, program):
            return False
        if self.form == "mid":
            late = any(program.resolve(a)[0] in self.after for a in eq.inputs)
            full = self._dims(self.space.maps[out]) & self.reduced
            if late and full:
                return False
            if late or not full:
                self.after.add(out)
        return True

    def reduction(self, eq: Equation, program: Program) -> bool:
        source, chain = program.resolve(eq.inputs[0])
        if not self.cluster.is_member(source):
            return False
        key = operand_key(eq)
        self.space.maps[key] = self.space.maps[source]
        self._views_back(key, chain)
        entries = self.space.maps[key]
        if self._dims(entries) != set(self.space.sizes):
            return False
        if self.form == "mid" and source in self.after:
            return False
        form, reduced = _form(self.space, eq, entries)
        if self.form is None:
            # Values of every point can't be stored from inside the loop over `mid`.
            if form == "mid" and not _feeds_only(self.cluster, eq, program):
                return False
        elif (form, reduced) != (self.form, self.reduced):
            return False
        self.form, self.reduced = form, reduced
        _keep(self.space, eq, entries, reduced)
        if form == "mid":
            self.after.add(eq.outputs[0])
        return True

    def _derive(self, key: Var, source: Atom, chain: list[Equation]) -> None:
        self.space.maps[key] = self.space.maps[source]
        self._views_back(key, chain)

    def _views_back(self, key: object, chain: list[Equation]) -> None:
        for view in reversed(chain):
            unknown = self.space.backward(key, view)
            if unknown:
                self._assign(key, view, unknown)

    def _assign(self, key: object, view: Equation, unknown: list[int]) -> None:
        """New axes of a broadcast run along the reduced dimensions."""
        shape = view.outputs[0].type.shape
        dims = sorted(self.reduced)
        if [shape[i] for i in unknown] != [self.space.sizes[d] for d in dims]:
            raise NoMap
        entries = list(self.space.maps[key])
        if self._dims(tuple(entries)) & self.reduced:
            raise NoMap
        for i, d in zip(unknown, dims, strict=True):
            entries[i] = type(entries[i])(0, ((d, 1),))
        self.space.maps[key] = tuple(entries)

    def _dims(self, entries: Map) -> set[int]:
        return {d for a in entries for d, _ in a.terms}

    def _names_units(self, v: Var) -> bool:
        """Whether each present axis of length 1 has a dimension, as longer ones have:
        an operand that was broadcast along it knows of none."""
        entries, shape = self.space.maps[v], v.type.shape
        return all(
            entries[i].terms for i in self.space.units.present(v) if shape[i] == 1
        )

    def _covers(self, v: Var) -> bool:
        """Whether a value is indexed by all dimensions, or by all that are kept."""
        dims, every = self._dims(self.space.maps[v]), set(self.space.sizes)
        return dims == every or (bool(self.reduced) and dims == every - self.reduced)


def _reduce(cluster: Cluster, space: Space, eq: Equation, entries: Map) -> None:
    """Makes a cluster that begins with a reduction."""
    cluster.form, cluster.reduced = _form(space, eq, entries)
    _keep(space, eq, entries, cluster.reduced)
    if cluster.form == "mid":
        cluster.after.add(eq.outputs[0])


def operand_key(eq: Equation) -> tuple:
    """Names the index map of a reduction's operand in its space."""
    return ("operand of", eq.outputs[0])


def _reduced_axes(eq: Equation) -> tuple[int, ...]:
    return eq.params["axes"] if "axes" in eq.params else (eq.params["axis"],)


def _form(space: Space, eq: Equation, entries: Map) -> tuple[str, frozenset[int]]:
    axes = _reduced_axes(eq)
    reduced = {d for i in axes for d, _ in entries[i].terms}
    kept = {d for i, a in enumerate(entries) if i not in axes for d, _ in a.terms}
    if reduced & kept:
        raise NoMap
    inner = not reduced or last_axis(eq.inputs[0], space.units) in axes
    if len(reduced) > 1 and (inner or "axis" in eq.params):
        # A place along one axis is counted by one loop.
        raise NoMap
    return "inner" if inner else "mid", frozenset(reduced)


def _keep(space: Space, eq: Equation, entries: Map, reduced: frozenset[int]) -> None:
    axes = _reduced_axes(eq)
    space.maps[eq.outputs[0]] = tuple(a for i, a in enumerate(entries) if i not in axes)
    space.frozen |= reduced


def _feeds_only(cluster: Cluster, eq: Equation, program: Program) -> bool:
    members = {id(e) for e in cluster.equations} | {id(eq)}
    return all(
        not program.is_returned(v)
        and all(id(reader) in members for reader in program.final_readers(v))
        for e in cluster.equations
        for v in e.outputs
    )


def operands_fit(space: Space, eq: Equation, program: Program) -> bool:
    """Whether every operand has an index map, and members the one that they have.

    Raises:
      NoMap: if a view's index map does not exist.
    """
    how = eq.op.lowering
    key: Any = operand_key(eq) if isinstance(how, Reduction) else eq.outputs[0]
    if isinstance(how, Gather):
        return _gather_fits(space, eq, program)
    return all([operand_fits(space, key, a, program) for a in eq.inputs])


def _gather_fits(space: Space, eq: Equation, program: Program) -> bool:
    source, _ = program.resolve(eq.inputs[0])
    if source in space.maps or program.memory(source) in space.maps:
        # Not before all of its points are done.
        return False
    if source in program.inline and source not in program.kept:
        return False
    axis_strides(eq.inputs[0], program)
    entries = space.maps[eq.outputs[0]][: addressing(eq).rank]
    return all([_fits_at(space, entries, a, program) for a in eq.inputs[1:]])


def addressing(eq: Equation) -> Addressing:
    """Where a gather reads, or a scatter writes."""
    how = eq.op.lowering
    assert isinstance(how, Gather | Scatter)
    return how.addressing([a.type for a in eq.inputs], eq.params)


def operand_fits(space: Space, key: Any, a: Atom, program: Program) -> bool:
    """Whether an operand of the value at ``maps[key]`` can be read there. Splits
    dimensions of the space where the operand's views need it."""
    if not isinstance(a, Var):
        return True
    # Scalars stand beside arrays of any shape.
    entries = space.maps[key] if a.type.shape else ()
    source, chain = program.resolve(a)
    found = space.seen(entries, source, chain)
    if source in space.maps:
        return found == space.maps[source]
    if source in program.inline:
        space.maps[("inline", source)] = found
        try:
            maker = program.maker[source]  # type: ignore[index]
            return all(_fits_at(space, found, x, program) for x in maker.inputs)
        finally:
            del space.maps[("inline", source)]
    # A member's own memory is not written before all of its points are done.
    return program.memory(source) not in space.maps


def _fits_at(space: Space, entries: Map, a: Atom, program: Program) -> bool:
    marker = Var(a.type)
    space.maps[marker] = entries
    try:
        return operand_fits(space, marker, a, program)
    finally:
        del space.maps[marker]
