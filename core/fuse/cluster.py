"""Clusters: equations that will be one kernel, over one iteration space.

A cluster begins with one equation and grows by equations that read its values through
index maps that line up. Its space has kept dimensions and, once it has a reduction,
reduced ones; the form says how the loops will run (see `treadle.kernels.nest`):

- "inner": one reduced dimension, the last of its operand; later sweeps over the same
  row may use what was reduced (softmax, layer norm);
- "mid": the reduced dimensions are outside the last; what comes after works on results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from treadle.dims import hint
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.layout import axis_strides
from treadle.fuse.maps import Space
from treadle.fuse.order import Node
from treadle.ir.graph import Atom, Equation, Var
from treadle.ir.maps import ZERO, Affine, Map, Split
from treadle.kernels.lower import cost_of
from treadle.passes.units import last_axis
from treadle.trace.lowering import (
    Addressing,
    Elementwise,
    Gather,
    Reduction,
    Scatter,
    View,
    written,
)

MAX_MEMBERS = 120

_SHORT_ROW = 8
"""Elements of a row, for which a vector would do: what is computed once a row, one
number at a time, then takes as long as for a vector of other rows."""
_DEAR = 12
"""The cost from which that is a kernel of its own."""


class Cluster(Node):
    """A kernel to be. `space.maps` has the index map of each member's result.

    product: the contraction whose epilogue the cluster is, once it has become one.
    """

    def __init__(self, number: int, flow: Dataflow) -> None:
        super().__init__(number)
        self.space = Space(flow.units)
        self.form: str | None = None
        self.reduced: frozenset[int] = frozenset()
        self.after: set[Var] = set()
        self.product: Any = None

    def is_member(self, a: Atom) -> bool:
        return a in self.space.maps

    def runs(self, reduced: Sequence[int]) -> list[list[int]]:
        """Reduced dimensions in runs of neighbouring axes. Others are never one loop,
        which would add in another order: not even where the axis between has one
        element."""
        near: dict[int, list[int]] = {d: [] for d in reduced}
        for eq in self.equations:
            if isinstance(eq.op.lowering, Reduction):
                entries = self.space.maps[operand_key(eq)]
                for n, axis in enumerate(sorted(_reduced_axes(eq))):
                    for d, _ in entries[axis].terms:
                        near[d].append(axis - n)
        return [list(run) for _, run in groupby(reduced, key=near.__getitem__)]


def start(cluster: Cluster, eq: Equation, flow: Dataflow) -> bool:
    """Puts the first equation in, if its operands have index maps over its space."""
    space, out = cluster.space, eq.outputs[0]
    if not isinstance(eq.op.lowering, Reduction):
        space.maps[out] = space.index(out)
    else:
        entries = space.index(eq.inputs[0])
        loops = _loops(space, eq, entries)
        if loops is None:
            return False
        cluster.form, cluster.reduced = loops
        _keep(space, eq, entries, loops)
        if loops.form == "mid":
            cluster.after.add(out)
    cluster.equations.append(eq)
    return operands_fit(space, eq, flow)


def join(cluster: Cluster, eq: Equation, flow: Dataflow) -> bool:
    """Adds an equation that reads members, if the index maps line up."""
    if len(cluster.equations) >= MAX_MEMBERS:
        return False
    trial = _Trial(cluster)
    reduces = isinstance(eq.op.lowering, Reduction)
    fits = (trial.reduction if reduces else trial.elementwise)(eq, flow)
    if fits:
        cluster.space, cluster.form = trial.space, trial.form
        cluster.reduced = trial.reduced
        cluster.equations.append(eq)
    return fits


class _Trial:
    """One attempt at `join`. Nothing of the cluster changes before it has succeeded:
    what may split dimensions works on a copy of the space."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.space = cluster, cluster.space
        self.form, self.reduced = cluster.form, cluster.reduced

    def elementwise(self, eq: Equation, flow: Dataflow) -> bool:
        out, shape = eq.outputs[0], eq.outputs[0].type.shape
        if isinstance(eq.op.lowering, Gather):
            return False
        members = self.cluster.space.maps
        for a in eq.inputs:
            source, chain = flow.resolve(a)
            if source in members and a.type.shape == shape:
                break
        else:
            return False
        plainly = not chain and _read_plainly(eq, members, members[source], flow)
        if not plainly:
            self.space = self.space.copy()
        entries = self._derived(source, chain)
        if entries is None or not self._names_units(out, entries):
            return False
        dims = dimensions(entries)
        if not self._covers(dims) or (self._once_a_short_row(dims) and is_dear(eq)):
            return False
        if not plainly:
            self.space.maps[out] = entries
            if not operands_fit(self.space, eq, flow):
                return False
            entries = self.space.maps[out]
        if self.form == "mid":
            after = self.cluster.after
            late = any([flow.source(a) in after for a in eq.inputs])
            full = dimensions(entries) & self.reduced
            if late and full:
                return False
            if late or not full:
                after.add(out)
        self.space.maps[out] = entries
        return True

    def reduction(self, eq: Equation, flow: Dataflow) -> bool:
        source, chain = flow.resolve(eq.inputs[0])
        if not self.cluster.is_member(source):
            return False
        self.space = self.space.copy()
        entries = self._derived(source, chain)
        if entries is None or dimensions(entries) != set(self.space.sizes):
            return False
        if self.form == "mid" and source in self.cluster.after:
            return False
        loops = _loops(self.space, eq, entries)
        if loops is None:
            return False
        if self.form is None:
            # Values of every point can't be stored from inside the loop over `mid`.
            if loops.form == "mid" and not _feeds_only(self.cluster, eq, flow):
                return False
        elif loops != (self.form, self.reduced):
            return False
        self.form, self.reduced = loops
        _keep(self.space, eq, entries, loops)
        if loops.form == "mid":
            self.cluster.after.add(eq.outputs[0])
        return True

    def _derived(self, source: Atom, chain: Sequence[Equation]) -> Map | None:
        """The map of what is seen of a member through views."""
        if not chain:
            return self.space.maps[source]
        return self.space.settled(lambda: self._outside(self.space.maps[source], chain))

    def _outside(self, entries: Map, chain: Sequence[Equation]) -> Map | Split | None:
        for view in reversed(chain):
            found = self.space.result(entries, view)
            if found is None or isinstance(found, Split):
                return found
            full = self._completed(found, view)
            if full is None:
                return None
            entries = full
        return entries

    def _completed(self, found: Sequence[Affine | None], view: Equation) -> Map | None:
        """The map of a view's result. New axes of a broadcast run along the reduced
        dimensions."""
        entries = tuple(ZERO if e is None else e for e in found)
        unknown = [i for i, e in enumerate(found) if e is None]
        if not unknown:
            return entries
        shape, dims = view.outputs[0].type.shape, sorted(self.reduced)
        if [shape[i] for i in unknown] != [self.space.sizes[d] for d in dims]:
            return None
        if dimensions(entries) & self.reduced:
            return None
        along = dict(zip(unknown, dims, strict=True))
        return tuple(
            Affine(0, ((along[i], 1),)) if i in along else e
            for i, e in enumerate(entries)
        )

    def _once_a_short_row(self, dims: set[int]) -> bool:
        """Whether what varies along these is computed once for each of some short rows,
        be it one: a batch of one has the kernels of any other."""
        if self.form != "inner" or not dims or dims & self.reduced:
            return False
        sizes = self.space.sizes
        return math.prod([hint(sizes[d]) for d in self.reduced]) <= _SHORT_ROW

    def _names_units(self, v: Var, entries: Map) -> bool:
        """Whether each present axis of length 1 has a dimension, as longer ones have:
        an operand that was broadcast along it knows of none."""
        shape = v.type.shape
        if 1 not in shape:
            return True
        return all(
            entries[i].terms for i in self.space.units.present(v) if shape[i] == 1
        )

    def _covers(self, dims: set[int]) -> bool:
        """Whether these are all dimensions, or all that are kept."""
        every = self.space.sizes.keys()
        return dims == every or (bool(self.reduced) and dims == every - self.reduced)


def is_dear(eq: Equation) -> bool:
    """Whether an elementwise equation takes many instructions."""
    return isinstance(eq.op.lowering, Elementwise) and element_cost(eq) >= _DEAR


def element_cost(eq: Equation) -> int:
    """What it takes to compute one element of an elementwise equation."""
    how = eq.op.lowering
    if isinstance(how, Elementwise) and isinstance(how.expression, str):
        return cost_of(how.expression, eq.outputs[0].type.dtype)
    return sum([cost_of(i.name, i.dtype) for i in written(eq)])


def dimensions(entries: Map) -> set[int]:
    """Those along which what has this map varies."""
    return {d for _, terms in entries for d, _ in terms}


def operand_key(eq: Equation) -> tuple:
    """Names the index map of a reduction's operand in its space."""
    return ("operand of", eq.outputs[0])


def _reduced_axes(eq: Equation) -> tuple[int, ...]:
    return eq.params["axes"] if "axes" in eq.params else (eq.params["axis"],)


class _Loops(NamedTuple):
    """How the loops of a reduction run: see `Cluster`."""

    form: str
    reduced: frozenset[int]


def _loops(space: Space, eq: Equation, entries: Map) -> _Loops | None:
    """The loops of a reduction of what has the map `entries`; None if a nest has no
    such loops."""
    axes = _reduced_axes(eq)
    reduced = {d for i in axes for d, _ in entries[i].terms}
    kept = {d for i, a in enumerate(entries) if i not in axes for d, _ in a.terms}
    how = eq.op.lowering
    assert isinstance(how, Reduction)
    alike = axes if how.sums else range(len(entries))
    inner = not reduced or last_axis(eq.inputs[0], space.units, alike) in axes
    # A place along one axis is counted by one loop.
    one_loop = inner or "axis" in eq.params
    if reduced & kept or (one_loop and len(reduced) > 1):
        return None
    return _Loops("inner" if inner else "mid", frozenset(reduced))


def _keep(space: Space, eq: Equation, entries: Map, loops: _Loops) -> None:
    """Puts the maps of a reduction's operand and result into its space."""
    axes = _reduced_axes(eq)
    space.maps[operand_key(eq)] = entries
    space.maps[eq.outputs[0]] = tuple(a for i, a in enumerate(entries) if i not in axes)
    space.frozen |= loops.reduced


def _feeds_only(cluster: Cluster, eq: Equation, flow: Dataflow) -> bool:
    members = {id(e) for e in cluster.equations} | {id(eq)}
    return all(
        not flow.is_returned(v)
        and all(id(reader) in members for reader in flow.final_readers(v))
        for e in cluster.equations
        for v in e.outputs
    )


# What can be read where ---------------------------------------------------------------


def members_fit(space: Space, cluster: Cluster, flow: Dataflow) -> bool:
    """Whether all members can read what they read at their maps in a space."""
    return all(
        operands_fit(space, eq, flow)
        for eq in cluster.equations
        if cluster.is_member(eq.outputs[0])
    )


def operands_fit(space: Space, eq: Equation, flow: Dataflow) -> bool:
    """Whether every operand has an index map, and members the one that they have.
    Splits dimensions of the space where the operands' views need it."""
    how = eq.op.lowering
    if isinstance(how, Gather):
        return _gather_fits(space, eq, flow)
    key: Any = operand_key(eq) if isinstance(how, Reduction) else eq.outputs[0]
    if isinstance(how, View):
        (x,) = eq.inputs
        return not isinstance(x, Var) or operand_fits(space, key, x, flow, [eq])
    for a in eq.inputs:
        if type(a) is not Var or _fits_plainly(space.maps, space.maps[key], a, flow):
            continue
        if not operand_fits(space, key, a, flow):
            return False
    return True


def _fits_plainly(maps: dict[Any, Map], entries: Map, a: Var, flow: Dataflow) -> bool:
    """Whether an operand of what is at some points is read where it lies, or is a
    member at the same points: most are. `operand_fits` says that of others."""
    if a in maps:
        return maps[a] is entries and 1 not in a.type.shape
    return a in flow.given or flow.lies_apart(a)


def _read_plainly(
    eq: Equation, maps: dict[Any, Map], entries: Map, flow: Dataflow
) -> bool:
    """Whether that is so of all operands of an equation."""
    for a in eq.inputs:
        if type(a) is Var and not _fits_plainly(maps, entries, a, flow):
            return False
    return True


def _gather_fits(space: Space, eq: Equation, flow: Dataflow) -> bool:
    x, *indices = eq.inputs
    source, _ = flow.resolve(x)
    if source in space.maps or flow.memory(source) in space.maps:
        # Not before all of its points are done.
        return False
    if source in flow.inline and source not in flow.kept:
        return False
    if axis_strides(x, flow) is None:
        return False
    return all(operand_fits(space, eq.outputs[0], a, flow) for a in indices)


def addressing(eq: Equation) -> Addressing:
    """Where a gather reads, or a scatter writes."""
    how = eq.op.lowering
    assert isinstance(how, Gather | Scatter)
    return how.addressing([a.type for a in eq.inputs], eq.params)


def operand_fits(
    space: Space,
    key: Any,
    a: Atom,
    flow: Dataflow,
    copied: Sequence[Equation] = (),
) -> bool:
    """Whether an operand of the value at ``maps[key]`` can be read there, seen through
    the views in `copied` as well. Splits dimensions as `operands_fit` does."""
    while True:
        answer = _readable(space, space.maps[key], a, flow, copied)
        if not isinstance(answer, Split):
            return answer
        space.split(answer)


def _readable(
    space: Space,
    entries: Map,
    a: Atom,
    flow: Dataflow,
    copied: Sequence[Equation] = (),
) -> bool | Split:
    if type(a) is not Var:
        return True
    rank = len(a.type.shape)
    if not copied and rank != len(entries):
        # Indices have the first axes only; scalars stand beside arrays of any shape.
        entries = entries[:rank]
    source, chain = flow.resolve(a)
    if copied or chain or rank:
        found = space.seen(entries, source, [*copied, *chain] if copied else chain)
        if not isinstance(found, tuple):
            return found or False
        entries = found
    maps = space.maps
    if source in maps:
        return entries == maps[source]
    if source in flow.inline or source in flow.recomputed:
        for x in flow.maker[source].inputs:  # type: ignore[index]
            fits = _readable(space, entries, x, flow)
            if fits is not True:
                return fits
        return True
    # A member's own memory is not written before all of its points are done.
    memory = flow.memory(source)
    return memory is source or memory not in maps
