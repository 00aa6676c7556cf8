"""Products read weights of a byte as they are where groups of terms have scales of
their own, and where numbers are taken away from them or added.

Programs write them out as floats: ``q * s``, ``(q - z) * s`` or ``q * s + b``, where s,
z and b are the same for all of a group of terms. The product becomes one for each
group, and what the bytes were scaled with comes behind it, in float32::

    x @ ((q - z) * s)  =  sum over groups of (x @ q - sum(x) * z) * s

up to rounding. These products take room for each group, at most half of what the
weights take in the dtype of x: for more rows these are written out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.dims import one, settled
from treadle.ir.graph import Atom, Equation, Graph, Var
from treadle.ops.arithmetic import add, mul, multiply_add, sub
from treadle.ops.cast import convert
from treadle.ops.dot import dot_general, free_axes
from treadle.ops.movement import broadcast_in_dim, reshape, transpose
from treadle.ops.reduce import reduce_sum
from treadle.passes.integers import SUMS, applied
from treadle.passes.rewrite import mentions
from treadle.passes.stored import Bytes, fuse_bytes, places_of
from treadle.trace.lowering import Multiplied

Axes = tuple[int, ...]


class _Factor(NamedTuple):
    """What is scaled with, or added: the value, and along which axes it lies.

    axes: of `shape`, in the value's order, without those of one element.
    shape: to which it is broadcast; None: it is a single number.
    """

    value: Atom
    axes: Axes = ()
    shape: tuple | None = None


class _Written(NamedTuple):
    """Bytes written out as floats.

    value: the bytes, converted. Of them `zero` is taken away, they are scaled, and
    `shift` is added (or taken away: `less`).
    """

    value: Atom
    zero: _Factor | None = None
    scale: _Factor | None = None
    shift: _Factor | None = None
    less: bool = False

    @property
    def factors(self) -> list[_Factor]:
        return [f for f in (self.zero, self.scale, self.shift) if f is not None]


class _Side(NamedTuple):
    """An operand of a product, in groups.

    written: with factors whose axes are those of `shape`. places: which of these each
    axis of the operand is made of. group: the axis of the operand that is two of them.
    """

    written: _Written
    shape: tuple
    places: tuple[Axes, ...]
    group: int | None


class _Group(Bytes):
    def equation(self, eq: Equation) -> None:
        if self.is_product(eq):
            for side in (0, 1):
                found = self._side(eq, side)
                if found is not None and _is_worth(eq, side, found):
                    self._product(eq, side, found)
                    return
        self.keep(eq)

    def _side(self, eq: Equation, side: int) -> _Side | None:
        """What an operand is made of, if its bytes may be read in groups."""
        a = eq.inputs[side]
        places: tuple[Axes, ...] | None = tuple((i,) for i in range(a.type.ndim))
        while places is not None and (of := self.made.get(a)) is not None:
            if of.op is transpose:
                order = of.params["permutation"]
                places = tuple(tuple(order[i] for i in p) for p in places)
            elif of.op is reshape:
                places = _through(
                    places, _pieces(of.inputs[0].type.shape, a.type.shape)
                )
            elif not (of.op is convert and self._is_float(of.inputs[0])):
                break
            a = of.inputs[0]
        written = None if places is None else self._written(a)
        if places is None or written is None or not written.factors:
            return None
        if not self.lies(written.value):
            return None
        return _in_groups(eq, side, (a.type.shape, places), written)

    def _is_float(self, a: Atom) -> bool:
        return a.type.dtype in self.floats

    def _bare(self, a: Atom) -> Atom:
        """A value before what it is rounded to, or converted to from 32 bits."""
        while (eq := self.made.get(a)) is not None and eq.op is convert:
            given = eq.inputs[0]
            if not self._is_float(a):
                break
            if given.type.dtype not in SUMS and not self._is_float(given):
                break
            a = given
        return a

    def _repeated(self, a: Atom) -> Atom:
        """A value before it is converted, bytes too."""
        eq = self.made.get(a := self._bare(a))
        short = eq is not None and eq.op is convert and self.dtype(a) is not None
        return eq.inputs[0] if eq is not None and short else a

    def _written(self, a: Atom) -> _Written | None:
        """What a value is made of by arithmetic, if that is bytes."""
        a = self._bare(a)
        eq = self.made.get(a)
        if eq is None or not self._is_float(a):
            return self._scaled(a)
        if eq.op is multiply_add and eq.params["minus"] != "product":
            x, y, term = eq.inputs
            less = eq.params["minus"] == "term"
            return self._shifted(self._times(x, y, a.type.shape), term, less)
        pairs: Sequence[Sequence[Atom]] = ()
        if eq.op is add or eq.op is sub:
            pairs = (eq.inputs, eq.inputs[::-1])[: 1 + (eq.op is add)]
        for x, y in pairs:
            found = self._scaled(x) if x.type.shape == a.type.shape else None
            found = self._shifted(found, y, eq.op is sub)
            if found is not None:
                return found
        return self._scaled(a)

    def _shifted(self, found: _Written | None, by: Atom, less: bool) -> _Written | None:
        if found is None or found.scale is None:
            return None
        factor = self._factor(by)
        return None if factor is None else found._replace(shift=factor, less=less)

    def _scaled(self, a: Atom) -> _Written | None:
        a = self._bare(a)
        eq = self.made.get(a)
        if eq is None or eq.op is not mul or not self._is_float(a):
            return self._less(a)
        x, y = eq.inputs
        return self._times(x, y, a.type.shape)

    def _times(self, x: Atom, y: Atom, shape: tuple) -> _Written | None:
        for given, by in ((x, y), (y, x)):
            found = self._less(given) if given.type.shape == shape else None
            factor = None if found is None else self._factor(by)
            if found is not None and factor is not None:
                return found._replace(scale=factor)
        return None

    def _less(self, a: Atom) -> _Written | None:
        """Bytes, or the difference of these and what may be taken away."""
        a = self._bare(a)
        if self.dtype(a) is not None:
            return _Written(a)
        eq = self.made.get(a)
        if eq is None or eq.op is not sub:
            return None
        given, by = eq.inputs
        # What integers of 32 bits are made of is bytes yet.
        given = given if self.dtype(given) is not None else self._bare(given)
        if self.dtype(given) is None or given.type.shape != a.type.shape:
            return None
        factor = self._factor(by) if self._is_exact(a, by) else None
        return None if factor is None else _Written(given, zero=factor)

    def _is_exact(self, a: Atom, by: Atom) -> bool:
        """Whether a difference is that of floats, or doesn't wrap around."""
        if self._is_float(a):
            return True
        eq = self.made.get(by)
        if eq is not None and eq.op is broadcast_in_dim:
            (by,) = eq.inputs
        return a.type.dtype == SUMS[0] and self.dtype(by) is not None

    def _factor(self, a: Atom) -> _Factor | None:
        """What is broadcast, and along which axes."""
        a = self._repeated(a)
        if not a.type.shape:
            return _Factor(a)
        eq, shape = self.made.get(a), a.type.shape
        if eq is not None and eq.op is reshape:  # each is repeated
            eq = self.made.get(self._repeated(eq.inputs[0]))
        if eq is None or eq.op is not broadcast_in_dim:
            return None
        sizes = zip(eq.inputs[0].type.shape, eq.params["dims"], strict=True)
        axes = tuple([axis for size, axis in sizes if not one(size)])
        whole = eq.outputs[0].type.shape
        if whole != shape and _pieces(whole, shape) is None:
            return None
        return _Factor(eq.inputs[0], axes, whole)

    def _product(self, eq: Equation, side: int, found: _Side) -> None:
        """The product in groups, what the bytes were scaled with, and the sum."""
        written, at = found.written, eq.source
        inputs = [self.read(a) for a in eq.inputs]
        inputs[side] = self._bytes(found, inputs[1 - side].type.dtype, at)
        params = {k: eq.params[k] for k in ("contract", "batch")}
        if found.group is not None:
            other = _other(eq, side, found.group)
            pair = tuple(found.shape[i] for i in found.places[found.group])
            inputs[1 - side] = self._split(inputs[1 - side], other, pair, at)
            split = [found.group, other] if side == 0 else [other, found.group]
            params = _in_batch(params, split)
        inputs = [inputs[0], inputs[1]]
        (type_,) = dot_general.infer([a.type for a in inputs], params)
        wide = ArrayType(type_.shape, dtypes.float32)
        out = Var(wide)
        self.emit(dot_general, inputs, params, at, [out])
        made = Equation(dot_general, inputs, params, [out], at)
        result: Atom = out
        total = self._totals(made, 1 - side) if written.zero or written.shift else None
        where = places_of(made, side)
        order = [i for p in found.places for i in p]

        def apply(op: Any, x: Atom, y: Atom) -> Atom:
            return self.emit(op, [x, y], {}, at)[0]

        def spread(factor: _Factor) -> Atom:
            axes = [where[order.index(i)] for i in factor.axes]
            return self.along(wide.shape, self.read(factor.value), axes, at)

        if written.zero is not None and total is not None:
            result = apply(sub, result, apply(mul, total, spread(written.zero)))
        if written.scale is not None:
            result = apply(mul, result, spread(written.scale))
        if written.shift is not None and total is not None:
            shifted = apply(mul, total, spread(written.shift))
            result = apply(sub if written.less else add, result, shifted)
        if found.group is not None:
            (result,) = self.emit(reduce_sum, [result], {"axes": (0,)}, at)
        if eq.outputs[0].type.dtype != dtypes.float32:
            to = {"dtype": eq.outputs[0].type.dtype}
            (result,) = self.emit(convert, [result], to, at)
        self.values[eq.outputs[0]] = result

    def _bytes(self, found: _Side, dtype: np.dtype, at: str) -> Atom:
        """The bytes, in groups and converted: the product then reads them as they
        are."""
        value = self.unconverted(found.written.value)
        if value.type.shape != found.shape:
            (value,) = self.emit(reshape, [value], {"shape": found.shape}, at)
        order = tuple(i for p in found.places for i in p)
        if order != tuple(range(len(order))):
            (value,) = self.emit(transpose, [value], {"permutation": order}, at)
        return self.emit(convert, [value], {"dtype": dtype}, at)[0]

    def _split(self, a: Atom, axis: int, pair: tuple, at: str) -> Atom:
        shape = (*a.type.shape[:axis], *pair, *a.type.shape[axis + 1 :])
        return self.emit(reshape, [a], {"shape": shape}, at)[0]

    def _totals(self, eq: Equation, side: int) -> Atom:
        """The sums of an operand over what a product adds up, along its result."""
        a, shape = eq.inputs[side], eq.outputs[0].type.shape
        if a.type.dtype != dtypes.float32:
            (a,) = self.emit(convert, [a], {"dtype": dtypes.float32}, eq.source)
        summed = eq.params["contract"][side]
        for axis in sorted(summed, reverse=True):
            (a,) = self.emit(reduce_sum, [a], {"axes": (axis,)}, eq.source)
        where = places_of(eq, side)
        return self.along(shape, a, [where[i] for i in sorted(where)], eq.source)


def _pieces(whole: tuple, shape: tuple) -> tuple[Axes, ...] | None:
    """Which axes each axis of a reshaped value is made of, if one is made of several,
    and the others are as they were."""
    more = len(whole) - len(shape)
    if more < 0 or not shape:
        return None
    first = 0  # of those that are made of several, or the last
    while first < len(shape) - 1 and whole[first] == shape[first]:
        first += 1
    if whole[first + more + 1 :] != shape[first + 1 :]:
        return None
    ends = [(i + more,) for i in range(first + 1, len(shape))]
    middle = tuple(range(first, first + more + 1))
    return (*[(i,) for i in range(first)], middle, *ends)


def _through(
    places: tuple[Axes, ...], inner: tuple[Axes, ...] | None
) -> tuple[Axes, ...] | None:
    """Axes that are made of others, of which each is made of some."""
    if inner is None:
        return None
    return tuple(tuple(j for i in p for j in inner[i]) for p in places)


def _in_groups(
    eq: Equation, side: int, lies: tuple[tuple, tuple[Axes, ...]], written: _Written
) -> _Side | None:
    """An operand that is written out, if all factors lie along the same groups."""
    shape, places = lies
    finest = max([f.shape or () for f in written.factors] + [shape], key=len)
    pieces = _pieces(finest, shape)
    found = _through(places, pieces)
    if found is None or pieces is None:
        return None
    factors = []
    for f in written.factors:
        if f.shape == shape != finest:
            ones = [pieces[i] for i in f.axes]
            if any(len(p) > 1 for p in ones):
                return None
            f = f._replace(axes=tuple(i for p in ones for i in p), shape=finest)
        elif f.shape not in (None, finest):
            return None
        factors.append(f)
    scaled = iter(factors)
    zero, scale, shift = (
        None if f is None else next(scaled)
        for f in (written.zero, written.scale, written.shift)
    )
    written = written._replace(zero=zero, scale=scale, shift=shift)
    return _grouped(eq, side, _Side(written, finest, found, None))


def _grouped(eq: Equation, side: int, found: _Side) -> _Side | None:
    """With the axis that is in groups, if what is summed lies in one kind of them."""
    varies = {i for f in found.written.factors for i in f.axes}
    summed = eq.params["contract"][side]
    group = None
    for axis, place in enumerate(found.places):
        if len(place) == 1 and not (axis in summed and place[0] in varies):
            continue
        if len(place) != 2 or group is not None or axis not in summed:
            return None
        whole, part = place
        if part in varies or not (whole in varies or one(found.shape[whole])):
            return None
        group = axis
    return found._replace(group=group)


def _is_worth(eq: Equation, side: int, found: _Side) -> bool:
    """Whether something is left to do, and takes less room than weights as floats."""
    if found.group is None:
        return found.written.zero is not None or found.written.shift is not None
    x, p = eq.inputs[1 - side], eq.params
    free = free_axes(x.type.ndim, p["contract"][1 - side], p["batch"][1 - side])
    length = found.shape[found.places[found.group][1]]
    sizes = length, x.type.dtype.itemsize, *[x.type.shape[i] for i in free]
    return bool(settled(_are_few, sizes))


def _are_few(length: int, nbytes: int, *rows: int) -> int:
    return int(2 * np.dtype(np.float32).itemsize * math.prod(rows) <= nbytes * length)


def _other(eq: Equation, side: int, axis: int) -> int:
    """The axis of the other operand that meets one of this."""
    contract = eq.params["contract"]
    return contract[1 - side][contract[side].index(axis)]


def _in_batch(params: dict[str, Any], split: Sequence[int]) -> dict[str, Any]:
    """Those of a product of which an axis of each operand, that is summed, has been
    split: there is one product for each group."""
    contract, batch = [], []
    for summed, kept, axis in zip(
        params["contract"], params["batch"], split, strict=True
    ):
        contract.append(tuple(i + (i >= axis) for i in summed))
        batch.append((axis, *[i + (i > axis) for i in kept]))
    return {"contract": tuple(contract), "batch": tuple(batch)}


def group_bytes(graph: Graph, multiplied: Multiplied) -> Graph:
    """Makes products of bytes in groups of those that read them scaled in these, if the
    target has kernels for floats beside bytes."""
    if not multiplied.beside_bytes or not mentions(graph, (dot_general,)):
        return graph
    how = {"integers": multiplied.bytes_, "floats": multiplied.beside_bytes}
    return applied(_Group, graph, **how)


def read_bytes(graph: Graph, multiplied: Multiplied) -> Graph:
    """Makes bytes that are written out as floats part of the products that read them,
    if the target has kernels for these."""
    return fuse_bytes(group_bytes(graph, multiplied), multiplied)
