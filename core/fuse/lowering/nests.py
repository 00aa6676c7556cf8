"""Cluster to Nest: instructions, accesses, and the order of the loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from treadle import dtypes
from treadle.dims import hint, is_dim, same_shape
from treadle.fuse.cluster import Cluster, addressing, operand_key
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.layout import axis_strides, stored_strides
from treadle.fuse.lowering.forms import Form, renamed
from treadle.fuse.lowering.launches import Binding, Launch
from treadle.fuse.lowering.needed import needed
from treadle.fuse.lowering.vectors import (
    FEW,
    contiguous,
    filling,
    fills,
    innermost,
    turned_last,
)
from treadle.fuse.maps import Space, extent
from treadle.ir import scalar
from treadle.ir.graph import Atom, Equation, Lit, Var
from treadle.ir.maps import ZERO, Affine, Map, address
from treadle.kernels.lower import cost
from treadle.kernels.nest import (
    BROADCAST,
    PAIRED,
    STRIDED,
    Instr,
    Nest,
    Operand,
    inner_class,
    is_half,
    shared,
)
from treadle.late import word
from treadle.trace.lowering import (
    Addressing,
    Element,
    Elementwise,
    Gather,
    Index,
    Reduction,
    View,
    attribute,
)

_STRUCTURAL = frozenset(
    {"False", "True", "0", "1", "-1", "0.0", "1.0", "-1.0", "inf", "-inf", "nan"}
)
"""Constants that are part of a kernel, as they print. Others are arguments: a mean over
32 examples and one over 64 differ in a number only, and share their kernel. So is -0.0,
which equals 0.0: nests that differ in nothing else would be taken for each other."""


_APART = 8
"""What a vector of elements that lie apart costs more than one of neighbours."""


class Access(NamedTuple):
    """One operand over a space: where element 0 is, and the step per dimension.

    atom: the stored value, or None for a computed index (offset is its start).
    gathers: the steps of data-dependent indices.
    """

    atom: Atom | None
    dtype: np.dtype
    offset: int
    strides: tuple[tuple[int, int], ...]
    store: bool = False
    gathers: tuple[int, ...] = ()


class NestWriter:
    """Writes the instructions of a cluster, whose operands fit its space."""

    def __init__(self, space: Space, flow: Dataflow) -> None:
        self.space, self.flow = space, flow
        space.freeze()
        self.instrs: list[Instr] = []
        self.accesses: list[Access] = []
        self.known: dict[Any, int] = {}

    def instr(
        self, name: str, args: tuple[int, ...], dtype: np.dtype, attr: Any = None
    ) -> int:
        key = (name, args, dtype, repr(attr) if name == "const" else attr)
        if key not in self.known or name.startswith("store"):
            self.instrs.append(Instr(name, args, dtype, attr))
            self.known[key] = len(self.instrs) - 1
        return self.known[key]

    def reduce(self, combine: str, value: int, dtype: np.dtype) -> int:
        """What a value amounts to over the loop that reductions run over."""
        args, work = self._widened((value,), dtype)
        return self._narrowed(self.instr(f"reduce_{combine}", args, work), dtype)

    def access(self, access: Access) -> int:
        self.accesses.append(access)
        return len(self.accesses) - 1

    def equation(self, eq: Equation) -> None:
        """Emits a member."""
        out = eq.outputs[0]
        how = eq.op.lowering
        if isinstance(how, Reduction):
            x = self.value(eq.inputs[0], self.space.maps[operand_key(eq)])
            self.known[out] = self.reduce(how.combine, x, out.type.dtype)
            return
        self.known[out] = self._compute(eq, self.space.maps[out])

    def _compute(self, eq: Equation, entries: Map) -> int:
        dtype, how = eq.outputs[0].type.dtype, eq.op.lowering
        if isinstance(how, Gather):
            return self._gather(eq, entries)
        if isinstance(how, Index):
            return self.iota(entries[eq.params["axis"]], dtype)
        if isinstance(how, View):
            return self._copied_view(eq, entries)
        assert isinstance(how, Elementwise)
        args = tuple([self.value(a, entries) for a in eq.inputs])
        if how.expression in (scalar.CONVERT, scalar.BITCAST):
            return self.instr(how.expression, args, dtype, *eq.params.values())
        args, work = self._widened(args, dtype)
        if isinstance(how.expression, str):
            value = self.instr(how.expression, args, work, attribute(eq.params))
            return self._narrowed(value, dtype)
        elements = [Element(a, self.instrs[a].dtype) for a in args]
        return self._narrowed(how.value(self._emit, elements, work, eq.params), dtype)

    def _emit(
        self, name: str, args: tuple[Element, ...], dtype: np.dtype, attr: Any
    ) -> int:
        return self.instr(name, tuple([a.value for a in args]), dtype, attr)

    def _widened(
        self, args: tuple[int, ...], dtype: np.dtype
    ) -> tuple[tuple[int, ...], np.dtype]:
        """Operands and dtype of arithmetic, in float32 if some of its operands and its
        result are half floats and others float32 (`treadle.passes.rounding`)."""
        types = [self.instrs[a].dtype for a in args]
        if types.count(dtype) == len(types):
            return args, dtype
        wide, every = dtypes.float32, (dtype, *types)
        if wide not in every or not any(map(is_half, every)):
            return args, dtype
        inputs = [
            self.instr(scalar.CONVERT, (a,), wide, wide) if is_half(t) else a
            for a, t in zip(args, types, strict=True)
        ]
        return tuple(inputs), wide if is_half(dtype) else dtype

    def _narrowed(self, value: int, dtype: np.dtype) -> int:
        if self.instrs[value].dtype == dtype:
            return value
        return self.instr(scalar.CONVERT, (value,), dtype, dtype)

    def _copied_view(self, eq: Equation, entries: Map) -> int:
        x = eq.inputs[0]
        return self.value(x, self._seen(entries, x, [eq]))

    def _seen(self, entries: Map, source: Atom, chain: Sequence[Equation]) -> Map:
        found = self.space.seen(entries, source, chain)
        assert isinstance(found, tuple), "was not asked whether the operand fits"
        return found

    def value(self, a: Atom, entries: Map) -> int:
        """The instruction that gives an operand at an index map."""
        source, chain = self.flow.resolve(a)
        if not a.type.shape:
            entries = ()
        found = self._seen(entries, source, chain)
        dtype = source.type.dtype
        if isinstance(source, Lit) and not (source.type.ndim or dtype.kind == "c"):
            value = source.value.item()
            if not source.varies and repr(value) in _STRUCTURAL:
                return self.instr("const", (), dtype, value)
            if dtypes.is_integer(dtype):
                return self.number(word(source.size) if source.size else value, dtype)
            found = ()
        if source in self.known:
            return self.known[source]
        if source in self.flow.inline or source in self.flow.recomputed:
            key = (source, found)
            if key not in self.known:
                maker = self.flow.maker[source]  # type: ignore[index]
                self.known[key] = self._compute(maker, found)
            return self.known[key]
        offset, strides = address(found, stored_strides(source, self.flow))
        return self.load(source, offset, strides)

    def load(
        self,
        source: Atom,
        offset: int,
        strides: dict[int, int],
        indices: tuple[int, ...] = (),
        gathers: tuple[int, ...] = (),
    ) -> int:
        key = (source, offset, tuple(sorted(strides.items())), indices)
        if key not in self.known:
            dtype = source.type.dtype
            access = Access(source, dtype, offset, key[2], False, gathers)
            k = self.access(access)
            self.known[key] = self.instr("load", indices, dtype, k)
        return self.known[key]

    def iota(self, entry: Affine, dtype: np.dtype) -> int:
        key = ("index", entry, dtype)
        if key not in self.known:
            k = self.access(Access(None, dtype, entry.offset, tuple(entry.terms)))
            self.known[key] = self.instr("load", (), dtype, k)
        return self.known[key]

    def number(self, value: int, dtype: np.dtype) -> int:
        """A run-time integer: sizes are arguments of a kernel, never constants."""
        return self.iota(Affine(value), dtype)

    def _gather(self, eq: Equation, entries: Map) -> int:
        x = eq.inputs[0]
        found = axis_strides(x, self.flow)
        assert found is not None
        source, offset, steps = found
        where = addressing(eq)
        at = entries[: where.rank]
        indices, valid = [], None
        for a, limit in zip(eq.inputs[1:], where.limits, strict=True):
            i, ok = self.place(self.value(a, at), a.type.dtype, limit, where.drop)
            indices.append(i)
            if ok is not None:
                valid = ok if valid is None else self.both(valid, ok)
        extra, strides = address(window_map(where, entries), steps)
        loaded = self.load(
            source,
            offset + extra,
            strides,
            tuple(indices),
            tuple(steps[a] for a in where.axes),
        )
        if valid is None:
            return loaded
        dtype = eq.outputs[0].type.dtype
        zero = self.instr("const", (), dtype, dtype.type(0).item())
        return self.instr(scalar.SELECT, (valid, loaded, zero), dtype)

    def both(self, a: int, b: int) -> int:
        """The conjunction of two conditions."""
        return self.instr(scalar.AND, (a, b), dtypes.bool_)

    def place(
        self, index: int, dtype: np.dtype, limit: int, drop: bool
    ) -> tuple[int, int | None]:
        """An index moved inside, and (if `drop`) whether it was inside before."""
        if dtype.itemsize < 4 or limit > np.iinfo(dtype).max:
            dtype = dtypes.int64
            index = self.instr(scalar.CONVERT, (index,), dtype)
        zero = self.instr("const", (), dtype, 0)
        top = self.number(limit, dtype)
        low = self.instr(scalar.MAXIMUM, (index, zero), dtype)
        inside = self.instr(scalar.MINIMUM, (low, top), dtype)
        if not drop:
            return inside, None
        return inside, self.instr(scalar.EQ, (inside, index), dtypes.bool_)

    def is_beside(self, k: int) -> bool:
        """Whether a store writes what lies behind each element of the store before."""
        if k == 0:
            return False
        a, b = self.accesses[k - 1], self.accesses[k]
        if not (a.store and b.store and a._replace(atom=b.atom, offset=b.offset) == b):
            return False
        step = int(a.atom is b.atom)
        follows = step or self.flow.is_next(a.atom, b.atom)
        return bool(follows) and same_shape((b.offset,), (a.offset + step,))

    def store(self, v: Var, entries: Map, value: int, name: str = "store") -> None:
        """Writes a value to its place in memory."""
        offset, strides = address(entries, stored_strides(v, self.flow))
        pairs = tuple(sorted(strides.items()))
        k = self.access(Access(v, v.type.dtype, offset, pairs, True))
        self.instr(name, (value,), v.type.dtype, k)


def window_map(where: Addressing, entries: Map) -> Map:
    """The map of an array's axes without the indices, from that of the values that are
    read from it or written to it."""
    return tuple(ZERO if axis is None else entries[axis] for axis in where.window)


# The order of the loops ---------------------------------------------------------------


def form_of(cluster: Cluster, flow: Dataflow, stored: set[Var]) -> Form:
    """The form of the nest of a cluster that stores the members in `stored`."""
    form = Form(flow)
    form.cluster(cluster, cluster.equations, stored)
    return form


def build(
    cluster: Cluster, flow: Dataflow, stored: set[Var], form: Form | None = None
) -> Launch:
    """The nest of a cluster that stores the members in `stored`.

    form: its form, if that has been found already.
    """
    form, known = form or form_of(cluster, flow, stored), flow.memo.kernels
    key, values = tuple(form.words), form.values
    if key in known:
        launch, others = known[key]
        return renamed(launch, others, values)
    launch = _written(cluster, flow, stored)
    known[key] = launch, values
    return launch


def summation(cluster: Cluster, flow: Dataflow, form: Form) -> tuple[Any, int]:
    """What sums depend on: loops over reduced dimensions, and what is read in them."""
    known, key = flow.memo.sums, tuple(form.words)
    if key not in known:
        body, sizes = _members(cluster, flow, form.stored), cluster.space.sizes
        reduced = _reduced(cluster, body)
        moving = [any([d in reduced for d, _ in a.strides]) for a in body.accesses]
        known[key] = coalesce(reduced, body.accesses, sizes), sum(moving)
    return known[key]


def _members(cluster: Cluster, flow: Dataflow, stored: set[Var]) -> NestWriter:
    body = NestWriter(cluster.space, flow)
    for eq in cluster.equations:
        body.equation(eq)
    for v in [v for eq in cluster.equations for v in eq.outputs if v in stored]:
        body.store(v, cluster.space.maps[v], body.known[v])
    body.instrs, body.accesses = needed(body.instrs, body.accesses)
    return body


def _reduced(cluster: Cluster, body: NestWriter) -> list[int]:
    dims = [d for d in cluster.space.sizes if d in cluster.reduced]
    if len(dims) < 2:
        return dims
    return sorted(dims, key=ranking(body.accesses, cluster.space.sizes))


def _written(cluster: Cluster, flow: Dataflow, stored: set[Var]) -> Launch:
    body, sizes = _members(cluster, flow, stored), cluster.space.sizes
    kept = [d for d in sizes if d not in cluster.reduced]
    kept.sort(key=ranking(body.accesses, sizes))
    reduced = _reduced(cluster, body)
    if cluster.form == "inner":
        return finish(body, sizes, kept, [], reduced, "inner")
    if cluster.form == "mid":
        inner = innermost(coalesce(kept, body.accesses, sizes), sizes)
        outer = [d for d in kept if d not in inner]
        return finish(body, sizes, outer, cluster.runs(reduced), inner, "mid")
    # Products with gates of quantum circuits have axes of all lengths, one long. And
    # what takes long takes as long for a vector that is nearly empty.
    of_parts = any([hasattr(v, "twin") for v in stored])
    dear = sum(map(cost, body.instrs)) >= _APART * len(body.accesses)
    choose = filling if of_parts or dear else None
    return finish(body, sizes, kept, [], None, "inner", choose=choose)


def ranking(accesses: list[Access], sizes: dict[int, int]) -> Any:
    """A sort key for dimensions: slowest first, as the largest accesses step."""

    def reach(a: Access) -> tuple[int, bool]:
        # Dimensions are counted, not elements: kernels don't depend on sizes.
        return len(a.strides) if a.atom is not None else 0, a.store

    ranked = sorted(accesses, key=reach, reverse=True)
    places: dict[int, int] = {}
    for a in ranked:
        for d, step in a.strides:
            places.setdefault(d, abs(hint(step)))
    return lambda d: -places.get(d, 0)


def coalesce(dims: list[int], accesses: list[Access], sizes: dict[int, int]) -> list:
    """Runs of dimensions that every access steps through as one."""
    groups: list[list[int]] = []
    tables = [dict(a.strides) for a in accesses]
    for d in dims:
        if groups and all(
            t.get(groups[-1][-1], 0) == t.get(d, 0) * sizes[d] for t in tables
        ):
            groups[-1].append(d)
        else:
            groups.append([d])
    return groups


def finish(
    body: NestWriter,
    sizes: dict[int, int],
    outer: list[int],
    mid: list[list[int]],
    inner: list[int] | None,
    axis: str,
    serial: bool = False,
    choose: Callable[[list[list[int]], dict[int, int]], list[int]] | None = None,
) -> Launch:
    """Fixes the loops. `mid` is in runs, each of which may be one. `inner` is one; None
    means one of the coalesced outer ones: `contiguous`, unless another function is to
    choose."""
    if any(a.dtype.kind == "c" for a in body.accesses):
        outer = [*outer, _complex_as_pairs(body, sizes)]
    accesses = body.accesses
    outers = coalesce(outer, accesses, sizes)
    mids = [group for run in mid for group in coalesce(run, accesses, sizes)]
    if inner is None:
        given = choose and choose(outers, sizes)
        chosen = given or contiguous(
            outers, sizes, accesses, body.flow.chosen, 0 if serial else len(body.instrs)
        )
        inners = [chosen] if chosen else []
        outers = [g for g in outers if g is not chosen]
        if chosen and fills(chosen, sizes):
            outers = turned_last(outers, chosen, sizes, accesses)
    else:
        inners = coalesce(inner, accesses, sizes)
        assert len(inners) <= 1, "several loops are innermost"
    return assemble(body, sizes, outers, mids, inners, axis, serial)


def _complex_as_pairs(body: NestWriter, sizes: dict[int, int]) -> int:
    """Makes a nest that only moves complex numbers one that moves their two parts;
    gives the new dimension, along the parts."""
    assert {i.name for i in body.instrs} <= {"load", "store"}
    pair = max(sizes, default=-1) + 1
    sizes[pair] = 2
    for k, a in enumerate(body.accesses):
        part = dtypes.to_real(a.dtype)
        strides = (*((d, 2 * n) for d, n in a.strides), (pair, 1))
        body.accesses[k] = a._replace(
            dtype=part, offset=2 * a.offset, strides=tuple(sorted(strides))
        )
    body.instrs = [i._replace(dtype=dtypes.to_real(i.dtype)) for i in body.instrs]
    return pair


def _in_twos(kind: int, out_steps: Sequence[Any]) -> bool:
    """Whether elements that follow each other, or results of rows, are two apart."""
    if kind != BROADCAST:
        return kind == PAIRED
    return bool(out_steps) and not is_dim(out_steps[-1]) and out_steps[-1] == 2


def assemble(
    body: NestWriter,
    sizes: dict[int, int],
    outers: list[list[int]],
    mids: list[list[int]],
    inners: list[list[int]],
    axis: str,
    serial: bool = False,
) -> Launch:
    """The nest over groups of dimensions, each a loop."""
    operands, bindings = [], []
    for number, a in enumerate(body.accesses):
        table = dict(a.strides)
        out_steps, mid_steps, inner_steps = (
            [table.get(g[-1], 0) if g else 0 for g in groups]
            for groups in (outers, mids, inners[:1])
        )
        inner_step = inner_steps[0] if inners else 0
        kind = inner_class(inner_step, a.atom is not None)
        few = 0 if is_dim(inner_step) else inner_step
        operands.append(
            Operand(
                a.dtype,
                kind,
                "index" if a.atom is None else "array",
                any(mid_steps),
                len(a.gathers),
                _in_twos(kind, out_steps) and body.is_beside(number),
                a.atom is not None and not is_dim(inner_step) and inner_step == -1,
                (a.atom is None or bool(a.gathers)) and not any(out_steps),
                bool(a.gathers) and a._replace(store=True) in body.accesses[number:],
                few if a.atom is not None and few in FEW else 0,
            )
        )
        words = (*out_steps, *mid_steps, *((inner_step,) if kind == STRIDED else ()))
        bindings.append(Binding(a.atom, a.offset, (*words, *a.gathers), a.store))
    counts = len(outers), len(mids)
    nest = Nest(*counts, axis, tuple(operands), tuple(body.instrs), serial)
    return Launch(
        shared(nest),
        tuple(extent(g, sizes) for g in outers),
        tuple(extent(g, sizes) for g in mids),
        extent(inners[0], sizes) if inners else 1,
        tuple(bindings),
    )
