"""Gives contractions the dtypes that the matrix kernel has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.dims import hint, is_dim, one, same_shape
from treadle.ir.graph import Atom, Equation, Graph, Lit
from treadle.ops.arithmetic import add, mul, multiply_add
from treadle.ops.cast import convert
from treadle.ops.complex import parts
from treadle.ops.conv import conv_general
from treadle.ops.dot import Axes, dot_general, fills_as_rows, free_axes, turns_as_rows
from treadle.ops.dynamic import dynamic_slice
from treadle.ops.movement import broadcast_in_dim, reshape, transpose
from treadle.ops.reduce import reduce_sum
from treadle.ops.shape import slice_
from treadle.passes.convolutions import adds_results, convolution
from treadle.passes.halves import narrowed, product, widened
from treadle.passes.integers import SUMS, holds, is_short
from treadle.passes.rewrite import Rewriter, mentions
from treadle.trace.lowering import Multiplied, Product
from treadle.trace.op import registry

_PRODUCTS = frozenset(
    op for op in registry.values() if isinstance(op.lowering, Product)
)
_NONE = Multiplied()
_HALVES = (dtypes.float16, dtypes.bfloat16)


class _Lower(Rewriter):
    concerns = Product
    widened: tuple[np.dtype, ...] = _HALVES
    multiplied = Multiplied()

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.makers: dict[Atom, Equation] = {
            v: eq for eq in graph.equations for v in eq.outputs
        }
        self.merged: set[Atom] = set()
        for eq in graph.equations:
            if eq.op is reshape and (
                eq.inputs[0] in self.merged or _may_merge(eq, self.makers)
            ):
                self.merged.update(eq.outputs)

    def equation(self, eq: Equation) -> None:
        if eq.graphs:
            self.keep(eq)
            return
        out = eq.outputs[0]
        x, y = (self.read(a) for a in eq.inputs)
        if dtypes.is_complex(out.type.dtype):
            self.keep(eq)
        elif not all(a.type.size for a in (x, y, out)):
            self.values[out] = self._nothing(eq)
        elif out.type.dtype in self.widened:
            self.values[out] = self._widened(eq, x, y)
        elif (found := self._otherwise(eq, x, y)) is not None:
            self.values[out] = found
        elif is_short(out.type.dtype):
            wide = [widened(self, a, eq.source, SUMS[0]) for a in (x, y)]
            result = self._contraction(eq, *wide)
            self.values[out] = narrowed(self, result, out.type.dtype, eq.source)
        elif eq.op is dot_general and _leaves_few_columns(eq, self.makers):
            self.values[out] = self._as_rows(eq, x, y)
        elif eq.op is dot_general:
            self.keep(eq)
        else:
            self.values[out] = self._contraction(eq, x, y)

    def _is_thin(self, eq: Equation) -> bool:
        """Whether a contraction reads each element of a matrix once, so that a kernel
        that keeps blocks in registers gains nothing: with a vector, or without a sum.

        In which order an axis that is made of several is summed, or several beside
        others, depends on which have one element: it is not for all sizes the same.
        """
        sums, free = len(eq.params["contract"][0]), _free(eq)
        if not sums:
            return True
        if not self.merged.isdisjoint(eq.inputs) or (sums > 1 and any(free)):
            return False
        return not all(free)

    def _otherwise(self, eq: Equation, x: Atom, y: Atom) -> Atom | None:
        found = self._without_kernel(eq, x, y)
        return self._in_floats(eq) if found is None else found

    def _in_floats(self, eq: Equation) -> Atom | None:
        """A convolution of small integers whose groups have few channels as one of
        floats, whose kernel is faster, where these have all numbers that its sums may
        be; else None."""
        if eq.op is not conv_general:
            return None
        x, y = (self._small(a) for a in eq.inputs)
        if x is None or y is None or any(map(is_dim, y.type.shape)):
            return None
        if not _has_small_groups(y.type.shape, eq.params["feature_groups"]):
            return None
        infos = [np.iinfo(a.type.dtype) for a in (x, y)]
        largest = math.prod([max(-int(info.min), int(info.max)) for info in infos])
        if math.prod(y.type.shape[:-1]) * largest > _EXACT:
            return None
        floats = [widened(self, a, eq.source) for a in (x, y)]
        # Fewer products than there are would have digits of their own.
        params = eq.params | {"exact": True}
        same = Equation(eq.op, eq.inputs, params, eq.outputs, eq.source)
        result = narrowed(self, self._contraction(same, *floats), SUMS[0], eq.source)
        dtype = eq.outputs[0].type.dtype
        return result if dtype == SUMS[0] else narrowed(self, result, dtype, eq.source)

    def _small(self, a: Atom) -> Atom | None:
        """The smallest integers that an operand is, or is made of."""
        dtype, maker = a.type.dtype, self.makers.get(a)
        if maker is not None and maker.op is convert:
            given = maker.inputs[0]
            small = is_short(given.type.dtype)
            if small and (dtype in SUMS or holds(dtype, given.type.dtype)):
                return self._small(given)
        return self.read(a) if is_short(dtype) else None

    def _without_kernel(self, eq: Equation, x: Atom, y: Atom) -> Atom | None:
        """The product with other operands, where no matrix kernel has it or gains by
        it; else None."""
        if eq.op is not dot_general:
            return None
        if _is_long(eq.outputs[0].type.dtype) or self._is_thin(eq):
            return self._sum_of_products(eq, x, y)
        return self._of_several_axes(eq)

    def _of_several_axes(self, eq: Equation) -> Atom | None:
        """The sum of the products of two vectors of which a reshape has made one or
        both, along the axes that the first such was made of; else None.

        Whether the other was made of the same axes, some sizes answer alike that
        differ for others: it does not matter.
        """
        several = len(eq.params["contract"][0]) > 1
        if several or any(_free(eq)) or any(eq.params["batch"]):
            return None
        before = [self._before(a) for a in eq.inputs]
        made = [a.type.shape for a in before if a.type.ndim > 1]
        shape = made[0] if made else eq.inputs[0].type.shape
        sides = []
        for a, whole in zip(eq.inputs, before, strict=True):
            found = self.read(whole)
            if not same_shape(whole.type.shape, shape):
                (found,) = self.emit(
                    reshape, [self.read(a)], {"shape": shape}, eq.source
                )
            sides.append(found)
        axes = tuple(range(len(shape)))
        params = {"contract": (axes, axes), "batch": ((), ())}
        flat = Equation(dot_general, sides, params, eq.outputs, eq.source)
        return self._sum_of_products(flat, *sides)

    def _before(self, a: Atom) -> Atom:
        """What reshapes have made a vector of."""
        while (maker := self.makers.get(a)) is not None and maker.op is reshape:
            (a,) = maker.inputs
        return a

    def _as_rows(self, eq: Equation, x: Atom, y: Atom, halves: bool = False) -> Atom:
        """The product with its operands exchanged."""
        how = {name: eq.params[name][::-1] for name in ("contract", "batch")}
        operands, params = [y, x], eq.params | how
        if halves:
            result = product(self, dot_general, operands, params, eq.source)
        else:
            (result,) = self.emit(dot_general, operands, params, eq.source)
        rows, columns = map(len, _free(eq))
        order = (*range(columns, columns + rows), *range(columns))
        return self.emit(transpose, [result], {"permutation": order}, eq.source)[0]

    def _contraction(self, eq: Equation, x: Atom, y: Atom) -> Atom:
        """The equation with other operands. A line is an image of one row."""
        found = self._without_kernel(eq, x, y)
        if found is not None:
            return found
        if eq.op is dot_general:
            return self.emit(eq.op, [x, y], eq.params, eq.source)[0]
        return convolution(self, eq, x, y)

    def _nothing(self, eq: Equation) -> Atom:
        """A sum over no elements."""
        t = eq.outputs[0].type
        zero = Lit(np.zeros((), t.dtype), ArrayType((), t.dtype))
        params = {"shape": t.shape, "dims": ()}
        return self.emit(broadcast_in_dim, [zero], params, eq.source)[0]

    def _widened(self, eq: Equation, x: Atom, y: Atom) -> Atom:
        """Half floats are summed in single precision, and rounded once."""
        dtype, is_product = eq.outputs[0].type.dtype, eq.op is dot_general
        alone = is_product and adds_nothing(eq)
        images = self.multiplied.images
        if not is_product and dtype in images and not adds_results(eq, x, y):
            return convolution(self, eq, x, y, images)
        multiplies = is_product and dtype in self.multiplied.matrices
        if multiplies and not (alone or self._is_thin(eq)):
            if _leaves_few_columns(eq, self.makers):
                return self._as_rows(eq, x, y, halves=True)
            return product(self, eq.op, (x, y), eq.params, eq.source)
        wide = [self._wide(a, eq.source) for a in eq.inputs]
        lowered = self._sum_of_products if alone else self._contraction
        result = lowered(eq, *wide)
        return narrowed(self, result, dtype, eq.source)

    def _wide(self, a: Atom, source: str) -> Atom:
        """An operand in single precision, which is made of it as it lies."""
        maker = self.makers.get(a)
        if maker is None or maker.op is not transpose:
            return widened(self, self.read(a), source)
        found = widened(self, self.read(maker.inputs[0]), source)
        return self.emit(transpose, [found], maker.params, source)[0]

    def _sum_of_products(self, eq: Equation, x: Atom, y: Atom) -> Atom:
        """Multiplies and sums in one nest, over whichever axes are contiguous."""
        (cx, cy), (bx, by) = eq.params["contract"], eq.params["batch"]
        fx = free_axes(x.type.ndim, cx, bx)
        fy = free_axes(y.type.ndim, cy, by)
        if _ends(y, fy) or not _ends(x, fx):
            columns = _ends(y, fy)
            return self._product(eq, (x, bx, fx, cx), (y, by, fy, cy), columns)
        result = self._product(eq, (y, by, fy, cy), (x, bx, fx, cx), True)
        n, m, k = len(bx), len(fy), len(fx)
        order = (*range(n), *range(n + m, n + m + k), *range(n, n + m))
        params = {"permutation": order}
        return self.emit(transpose, [result], params, eq.source)[0]

    def _product(
        self,
        eq: Equation,
        x: tuple[Atom, Axes, Axes, Axes],
        y: tuple[Atom, Axes, Axes, Axes],
        columns: bool,
    ) -> Atom:
        """The contraction of operands, given with batch, free and contracted axes. The
        loops are batch, x's free axes, and y's, with the sum inside of y's or outside
        (`columns`); outside of all where both lie side by side along the batch."""
        (x_atom, bx, fx, cx), (y_atom, by, fy, cy) = x, y
        if not columns and (fx or fy) and _has_few_terms(x_atom, cx):
            return self._terms(eq, x, y)
        names = [("b", i) for i in range(len(bx))] + [("x", a) for a in fx]
        inner, sums = [("y", a) for a in fy], [("c", i) for i in range(len(cx))]
        if _ends(x_atom, bx) and _ends(y_atom, by):
            names = [*sums, *names, *inner]
        else:
            names += sums + inner if columns else inner + sums
        place = {name: i for i, name in enumerate(names)}
        sizes = {("x", a): x_atom.type.shape[a] for a in fx}
        sizes |= {("y", a): y_atom.type.shape[a] for a in fy}
        operands = []
        for atom, letter, batch, contract in (
            (x_atom, "x", bx, cx),
            (y_atom, "y", by, cy),
        ):
            dims = []
            for a, n in enumerate(atom.type.shape):
                name = (letter, a)
                if a in batch:
                    name = ("b", batch.index(a))
                elif a in contract:
                    name = ("c", contract.index(a))
                sizes[name] = n
                dims.append(place[name])
            operands.append((atom, tuple(dims)))
        shape = tuple(sizes[name] for name in names)
        spread = [self._spread(atom, shape, dims, eq) for atom, dims in operands]
        result = self._term(spread, eq)
        axes = tuple(place[name] for name in sums)
        if axes:
            (result,) = self.emit(reduce_sum, [result], {"axes": axes}, eq.source)
        return result

    def _terms(
        self,
        eq: Equation,
        x: tuple[Atom, Axes, Axes, Axes],
        y: tuple[Atom, Axes, Axes, Axes],
    ) -> Atom:
        """The same of few terms, one by one, which are added as those of a row are: so
        that vectors run along what there is more of."""
        (axis,), terms = x[3], []
        for k in range(x[0].type.shape[axis]):
            a, b = (self._at(eq, side, k) for side in (x, y))
            terms.append(self._product(eq, a, b, False))
        zero = Lit(
            np.zeros((), terms[0].type.dtype), ArrayType((), terms[0].type.dtype)
        )
        while len(terms) > 1:
            middle = 1 << (len(terms) - 1).bit_length() - 1
            ends = [*terms[middle:], *[zero] * (2 * middle - len(terms))]
            terms = [
                self.emit(add, [a, b], {}, eq.source)[0]
                for a, b in zip(terms[:middle], ends, strict=True)
            ]
        return terms[0]

    def _at(
        self, eq: Equation, side: tuple[Atom, Axes, Axes, Axes], k: int
    ) -> tuple[Atom, Axes, Axes, Axes]:
        """An operand's k-th elements along its contracted axis."""
        a, batch, free, (axis,) = side
        shape = a.type.shape
        starts, limits, steps = [0] * len(shape), list(shape), [1] * len(shape)
        starts[axis], limits[axis] = k, k + 1
        cut = {"starts": (*starts,), "limits": (*limits,), "steps": (*steps,)}
        (a,) = self.emit(slice_, [a], cut, eq.source)
        left = {"shape": (*shape[:axis], *shape[axis + 1 :])}
        (a,) = self.emit(reshape, [a], left, eq.source)
        batch, free = (tuple([i - (i > axis) for i in axes]) for axes in (batch, free))
        return a, batch, free, ()

    def _term(self, spread: Sequence[Atom], eq: Equation) -> Atom:
        """What a sum of products adds: of floats, without rounding the product. A
        product that nothing is added to keeps the sign of its zeros."""
        dtype = spread[0].type.dtype
        if not dtypes.is_float(dtype) or not eq.params["contract"][0]:
            return self.emit(mul, spread, {}, eq.source)[0]
        zero = Lit(np.zeros((), dtype), ArrayType((), dtype))
        operands = [*spread, zero]
        return self.emit(multiply_add, operands, {"minus": None}, eq.source)[0]

    def _spread(self, a: Atom, shape: Axes, dims: Axes, eq: Equation) -> Atom:
        """An operand over the whole space: a view."""
        order = tuple(int(i) for i in np.argsort(dims))
        if order != tuple(range(len(order))):
            (a,) = self.emit(transpose, [a], {"permutation": order}, eq.source)
        params = {"shape": shape, "dims": tuple(sorted(dims))}
        return self.emit(broadcast_in_dim, [a], params, eq.source)[0]


def _has_few_terms(a: Atom, contract: Axes) -> bool:
    """Whether sums are of a few terms each, of open sizes as well."""
    sizes = [a.type.shape[axis] for axis in contract]
    return len(sizes) == 1 and not is_dim(sizes[0]) and 1 < sizes[0] <= _TERMS


def _is_long(dtype: np.dtype) -> bool:
    """Whether a dtype is of integers that no matrix kernel has."""
    return dtypes.is_integer(dtype) and dtype.itemsize > SUMS[0].itemsize


def adds_nothing(eq: Equation) -> bool:
    """Whether each sum of a product of matrices has one term: it is multiplied where it
    is read, if no kernel adds; half floats, of which kernels add pairs, always."""
    shape, axes = eq.inputs[0].type.shape, eq.params["contract"][0]
    return all([one(shape[axis]) for axis in axes])


def _free(eq: Equation) -> list[Axes]:
    """The free axes of both operands."""
    sides = zip(eq.inputs, eq.params["contract"], eq.params["batch"], strict=True)
    return [free_axes(a.type.ndim, c, b) for a, c, b in sides]


_EXACT = 1 << 24
"""Up to which float32 has all integers."""

_GROUP = 8
"""Channels of a group, and features, that are worth a kernel of floats: those of wider
ones fill vectors of bytes."""


def _has_small_groups(taps: tuple[int, ...], groups: int) -> bool:
    """Whether groups have a channel each, or few and as many features, and windows."""
    *window, channels, features = taps
    if channels == 1:
        return True
    whole = features == groups * channels and channels & (channels - 1) == 0
    several = whole and groups > 1 and channels <= _GROUP
    return several and len(window) < 3 and window[-1] > 1


_TERMS = 4
"""Up to so many are said one by one; of five, rows take as long."""


def _leaves_few_columns(eq: Equation, makers: Mapping[Atom, Equation]) -> bool:
    """Whether the second operand has a few columns, or leaves much of the last vectors
    empty, and the first, which is summed over its slower axes, less of its own: as in
    the gradient of a matrix of weights that makes a few numbers; or very few, whatever
    the first is summed over. Elements have the same bits either way, so that open sizes
    count as in the trace."""
    x, y = (a.type.shape for a in eq.inputs)
    free_x, free_y = _free(eq)
    if any(eq.params["batch"]):
        return False
    rows, columns = (
        math.prod([hint(shape[i]) for i in free])
        for shape, free in ((x, free_x), (y, free_y))
    )
    fastest = [_fastest(a, makers) for a in eq.inputs]
    terms = math.prod([x[i] for i in eq.params["contract"][0]])
    if fastest[0] not in free_x:
        return turns_as_rows(rows, columns, terms)
    if fastest[1] not in free_y:
        return False
    return columns > 1 and fills_as_rows(rows, columns, terms)


def _fastest(a: Atom, makers: Mapping[Atom, Equation]) -> int:
    """The axis along which an operand lies side by side, if it is stored."""
    last, maker = a.type.ndim - 1, makers.get(a)
    if maker is None or maker.op is not transpose:
        return last
    return maker.params["permutation"].index(last)


def _may_merge(eq: Equation, makers: Mapping[Atom, Equation]) -> bool:
    """Whether a reshape makes an axis of several, for some sizes. It does not if there
    is one to cut, or if it leaves out the last axis of the parts of complex numbers or
    those along which an index that is data has chosen one."""
    x, shape = eq.inputs[0], eq.outputs[0].type.shape
    sliced = makers.get(x)
    whole = makers.get(sliced.inputs[0]) if sliced and sliced.op is slice_ else None
    before = x.type.shape
    if whole and whole.op is parts and before[-1] == 1:
        before = before[:-1]
    if sliced and sliced.op is dynamic_slice:
        starts = zip(before, sliced.inputs[1:], strict=True)
        before = (*(n for n, start in starts if type(start) is Lit or not one(n)),)
    return len(before) > 1 and not same_shape(before, shape)


def _ends(a: Atom, free: Axes) -> bool:
    """Whether the fastest axis of an operand is free."""
    long = [i for i, n in enumerate(a.type.shape) if n != 1]
    return bool(long) and long[-1] in free


class _LowerWithHalves(_Lower):
    """For matrix kernels that multiply half floats."""

    widened = ()


def lower_contractions(
    graph: Graph, widen: bool, multiplied: Multiplied = _NONE
) -> Graph:
    """Ensures that contractions are of single or double precision or of integers of 32
    bits, and not empty, and that convolutions are not of lines.

    Half floats are converted (if `widen`), so that sums are single, but for products of
    matrices, and convolutions that sum over channels, of those that are `multiplied`
    there, whose sums are single all the same. Smaller integers are summed in 32 bits.
    Products with vectors, and those of larger integers, which have no matrix kernel,
    become sums of products that fuse to one nest with what makes their operands.
    """
    lower: type[_Lower] = _Lower if widen else _LowerWithHalves
    if any(multiplied):
        lower = type("_LowerSome", (lower,), {"multiplied": multiplied})
    return lower.apply(graph) if mentions(graph, _PRODUCTS) else graph
