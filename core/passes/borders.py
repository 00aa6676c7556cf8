"""Elementwise work on rolled, shifted and padded arrays, block by block.

A rolled array is two pieces that change places: ``concatenate(x[-1:], x[:-1])``. What
is computed of such arrays element by element, as the step of a stencil is, is computed
of the pieces instead, for each part of the result that meets one piece of each: inside
of the array all of them are `x`, seen from elsewhere. So nothing is copied but what is
computed at the borders, and those are small.

Every element is computed as before: only where from it is read is said otherwise.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

from treadle.arraytype import ArrayType
from treadle.dims import is_dim
from treadle.ir.graph import Atom, Equation, Graph, Var
from treadle.ir.scalar import SCALARS
from treadle.ops.assemble import assemble
from treadle.ops.movement import broadcast_in_dim
from treadle.ops.shape import concatenate, pad, slice_
from treadle.passes.dce import drop_dead
from treadle.passes.rewrite import Rewriter, mentions, shared
from treadle.trace.lowering import Elementwise, Product, Shape

_MOVES = frozenset([slice_, concatenate, pad])

Box = tuple[tuple[int, int], ...]
"""From where to where along each axis."""

_COPIED_BYTES, _LEAST_BYTES = 1 << 13, 1 << 15
"""A kernel more must save copies of so many bytes: its launch takes as long. And of
how many copies have to be altogether."""

_SHORT_ROW = 12
"""Blocks have rows of so many elements, on average, or more."""

_VECTOR, _COPY = 64, 4
"""Bytes; and what a copy of an element takes, in simple instructions on one."""

_MOST_EQUATIONS = 400
"""That are written for one group: what they take to be compiled."""


class _Borders(Rewriter):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.makers: dict[Atom, Equation] = {
            v: eq for eq in graph.equations for v in eq.outputs
        }
        self.readers: dict[Atom, list[Equation]] = defaultdict(list)
        for eq in graph.equations:
            for a in eq.inputs:
                self.readers[a].append(eq)
        self.returned = frozenset([a for a in graph.outputs if isinstance(a, Var)])
        self.moved: set[Equation] = set()
        """What makes arrays of pieces, or shows a part; if only work reads it."""
        self.ends: dict[Equation, list[set[int]]] = {}
        """Where pieces of moved arrays end, once asked."""
        self.boxes: dict[Equation, list[Box]] = {}
        self.blocks: dict[tuple[Atom, Box], Atom] = {}
        self.waiting: dict[Atom, Equation] = {}
        """What blocks are put together for, once somebody reads it."""
        for work in self._groups():
            boxes = self._boxes(work)
            if self._pays(work, boxes):
                self.boxes.update(dict.fromkeys(work, boxes))
        self.unread: set[Equation] = set()
        """What nobody reads any more."""
        for eq in reversed(graph.equations):
            readers = (
                []
                if eq.op is not slice_ and eq not in self.moved
                else (self.readers[eq.outputs[0]])
            )
            gone = all(r in self.boxes or r in self.unread for r in readers)
            if readers and gone and eq.outputs[0] not in self.returned:
                self.unread.add(eq)

    # What is computed in blocks

    def _groups(self) -> list[list[Equation]]:
        barred: set[Equation] = set()
        while self._find_moved(barred):
            made = {eq.outputs[0] for eq in self.moved}
            work = []
            for eq in self.graph.equations:
                if _is_work(eq) and eq not in barred and not made.isdisjoint(eq.inputs):
                    made.update(eq.outputs)
                    work.append(eq)
            inside = self.moved | set(work)
            for eq in reversed(self.graph.equations):
                if eq in inside and not self._may_be(eq, inside):
                    inside.remove(eq)
                    barred.add(eq)
            if len(inside) == len(self.moved) + len(work):
                return self._connected(inside - self.moved)
        return []

    def _find_moved(self, barred: set[Equation]) -> bool:
        """Whether anything makes arrays of what is in memory, or a number."""
        self.moved = set()
        for eq in self.graph.equations:
            if eq.op not in _MOVES or eq in barred or not self._is_fixed(eq):
                continue
            maker = self.makers.get(eq.inputs[0]) if eq.inputs else None
            if (
                eq.op is slice_
                and maker in self.moved
                and set(eq.params["steps"]) == {1}
            ) or (_is_joined(eq) and all(map(self._is_seen, eq.inputs))):
                self.moved.add(eq)
        return bool(self.moved)

    def _is_fixed(self, eq: Equation) -> bool:
        arrays = (*eq.inputs, *eq.outputs)
        return not any(is_dim(n) or n == 0 for a in arrays for n in a.type.shape)

    def _is_seen(self, a: Atom) -> bool:
        """Whether a piece is in memory, or one number."""
        maker = self.makers.get(a)
        if maker is None or not a.type.ndim or maker.op is slice_ or _is_spread(maker):
            return True
        return maker in self.moved

    def _may_be(self, eq: Equation, inside: set[Equation]) -> bool:
        """Whether all that read a result can do without it as a whole, or have it in
        memory as they would anyway."""
        readers = self.readers[eq.outputs[0]]
        if eq in self.moved:
            returned = eq.outputs[0] in self.returned
            return not returned and all(r in inside for r in readers)
        return all(r in inside or self._stores(r) for r in readers)

    def _stores(self, reader: Equation) -> bool:
        if reader.op is slice_:
            return all(r in self.moved for r in self.readers[reader.outputs[0]])
        return bool(reader.graphs) or isinstance(reader.op.lowering, Product)

    def _connected(self, inside: set[Equation]) -> list[list[Equation]]:
        """Groups of those equations, with the work that only they read: all that is in
        a group has one shape."""
        for eq in reversed(self.graph.equations):
            readers = self.readers[eq.outputs[0]] if _is_work(eq) else []
            alone = readers and eq.outputs[0] not in self.returned
            if alone and all(r in inside for r in readers):
                inside.add(eq)
        group_of: dict[Equation | None, list[Equation]] = {}
        for eq in self.graph.equations:
            if eq not in inside:
                continue
            group = group_of[eq] = [eq]
            for a in eq.inputs:
                other = group_of.get(self.makers.get(a), group)
                if other is not group:
                    few, group = sorted([other, group], key=len)
                    group += few
                    group_of.update(dict.fromkeys(few, group))
        return list({id(group): group for group in group_of.values()}.values())

    def _boxes(self, work: list[Equation]) -> list[Box]:
        """The largest blocks of which each meets one piece of each array; none if they
        are too many."""
        shape = work[0].outputs[0].type.shape
        ends = [{0, n} for n in shape]
        for eq in self._moved_for(work):
            for found, more in zip(ends, self._ends(eq), strict=True):
                found |= more
        if math.prod([len(e) - 1 for e in ends]) * len(work) > _MOST_EQUATIONS:
            return []
        return list(itertools.product(*(itertools.pairwise(sorted(e)) for e in ends)))

    def _moved_for(self, work: list[Equation]) -> list[Equation]:
        makers = dict.fromkeys([self.makers.get(a) for eq in work for a in eq.inputs])
        return [eq for eq in makers if eq is not None and eq in self.moved]

    def _ends(self, eq: Equation) -> list[set[int]]:
        """Where pieces of a moved array end along each axis."""
        if eq in self.ends:
            return self.ends[eq]
        shape = eq.outputs[0].type.shape
        ends: list[set[int]] = [set() for _ in shape]
        for a, start in _pieces(eq):
            inner = self.makers.get(a)
            found: list[set[int]] = [set()] * len(shape)
            if inner is not None and inner in self.moved:
                found = self._ends(inner)
            for i, (low, n) in enumerate(zip(start, a.type.shape, strict=True)):
                ends[i] |= {low, low + n} | {low + end for end in found[i]}
        self.ends[eq] = [
            {end for end in found if 0 <= end <= n}
            for found, n in zip(ends, shape, strict=True)
        ]
        return self.ends[eq]

    def _pays(self, work: list[Equation], boxes: list[Box]) -> bool:
        """Whether blocks cost less than what they need not copy: kernels, and vectors
        that rows' ends leave in part empty."""
        joined: set[Equation] = set()
        reached = self._moved_for(work)
        while reached:
            eq = reached.pop()
            if eq not in joined:
                joined.add(eq)
                reached += self._moved_for([eq])
        joined = {eq for eq in joined if _is_joined(eq)}
        pieces = sum([len(eq.inputs) for eq in joined])
        copied = sum([eq.outputs[0].type.nbytes for eq in joined])
        shape = work[0].outputs[0].type.shape
        rows = {box[-1] for box in boxes}
        return (
            bool(boxes)
            and copied >= max(_LEAST_BYTES, _COPIED_BYTES * (len(boxes) - pieces))
            and (len(rows) == 1 or shape[-1] >= _SHORT_ROW * len(rows))
            and copied * _COPY >= work[0].outputs[0].type.nbytes * _wasted(work, rows)
        )

    # How

    def run(self) -> Graph:
        graph = self.graph
        for eq in graph.equations:
            self.equation(eq)
        self._put_together(list(self.waiting))
        return shared(graph, self.equations, [self.read(a) for a in graph.outputs])

    def equation(self, eq: Equation) -> None:
        boxes = self.boxes.get(eq)
        if boxes is None:
            if eq not in self.unread:
                self._put_together(eq.inputs)
                self.keep(eq)
            return
        out = eq.outputs[0]
        for box in boxes:
            inputs = [self._block(a, box, eq) for a in eq.inputs]
            # Not inferred: of halves, some operands are left in float32.
            made = [Var(ArrayType(_shape(box), out.type.dtype))]
            self.emit(eq.op, inputs, eq.params, eq.source, made)
            self.blocks[out, box] = made[0]
        if out in self.returned or any(r not in self.boxes for r in self.readers[out]):
            self.waiting[out] = eq

    def _put_together(self, atoms: Iterable[Atom]) -> None:
        """Writes what makes values of their blocks: as late as can be, because blocks
        are made in their places if all that reads them does so before."""
        for a in atoms:
            eq = self.waiting.pop(a, None)
            if eq is not None:
                boxes = self.boxes[eq]
                pieces = [self.blocks.pop((a, box)) for box in boxes]
                starts = tuple([tuple([low for low, _ in box]) for box in boxes])
                params = {"shape": a.type.shape, "starts": starts}
                (self.values[a],) = self.emit(assemble, pieces, params, eq.source)

    def _block(self, a: Atom, box: Box, eq: Equation) -> Atom:
        """A part of an array, for an equation."""
        if not a.type.ndim:
            return self.read(a)
        if (a, box) not in self.blocks:
            self.blocks[a, box] = self._cut(a, box, eq)
        return self.blocks[a, box]

    def _cut(self, a: Atom, box: Box, eq: Equation) -> Atom:
        maker = self.makers.get(a)
        while maker is not None and maker in self.moved:
            piece = _piece(maker, box)
            if piece is None:
                return self._spread(maker.inputs[-1], box, eq)
            a, box = piece
            maker = self.makers.get(a)
        if maker is not None and _is_spread(maker):
            return self._spread(maker.inputs[0], box, eq)
        first, last = [low for low, _ in box], [high - 1 for _, high in box]
        steps = [1] * a.type.ndim
        while maker is not None and maker.op is slice_:
            (a,), starts, each = maker.inputs, *_from(maker)
            first = _seen_through(first, starts, each)
            last = _seen_through(last, starts, each)
            steps = [n * step for n, step in zip(steps, each, strict=True)]
            maker = self.makers.get(a)
        self._put_together([a])
        limits = tuple([i + 1 for i in last])
        params = {"starts": tuple(first), "limits": limits, "steps": tuple(steps)}
        return self.emit(slice_, [self.read(a)], params, eq.source)[0]

    def _spread(self, number: Atom, box: Box, eq: Equation) -> Atom:
        params = {"shape": _shape(box), "dims": ()}
        return self.emit(broadcast_in_dim, [self.read(number)], params, eq.source)[0]


def _wasted(work: list[Equation], rows: set[tuple[int, int]]) -> float:
    """What vectors do for nothing that the ends of rows fill in part, in instructions
    on each element: rows that are not cut follow each other without an end."""
    if len(rows) == 1:
        return 0.0
    lanes = _VECTOR // work[0].outputs[0].type.dtype.itemsize
    lengths = [high - low for low, high in rows]
    filled = sum([lanes * -(-n // lanes) for n in lengths if n > 1])
    each = sum([SCALARS[eq.op.name].cost for eq in work if eq.op.name in SCALARS])
    return each * max(filled / sum(lengths) - 1, 0)


def _is_work(eq: Equation) -> bool:
    how = eq.op.lowering
    return isinstance(how, Elementwise) and bool(eq.outputs[0].type.ndim)


def _is_spread(eq: Equation) -> bool:
    return eq.op is broadcast_in_dim and not eq.inputs[0].type.ndim


def _is_joined(eq: Equation) -> bool:
    if eq.op is pad:
        return all(
            min(low, high) >= 0 == inner for low, high, inner in eq.params["padding"]
        )
    return eq.op is concatenate


def _shape(box: Box) -> tuple[int, ...]:
    return tuple([high - low for low, high in box])


def _from(eq: Equation) -> tuple[Shape, Shape]:
    """Where a slice starts, and its steps."""
    return eq.params["starts"], eq.params["steps"]


def _seen_through(place: Iterable[int], starts: Shape, steps: Shape) -> list[int]:
    """Where in an array a place of a slice of it lies."""
    return [i + n * step for n, i, step in zip(place, starts, steps, strict=True)]


def _pieces(eq: Equation) -> Iterator[tuple[Atom, tuple[int, ...]]]:
    """The arrays that a moved one is made of, and where in it they begin."""
    if eq.op is slice_:
        yield eq.inputs[0], tuple([-start for start in eq.params["starts"]])
    elif eq.op is pad:
        yield eq.inputs[0], tuple([low for low, _, _ in eq.params["padding"]])
    else:
        start, axis = [0] * eq.outputs[0].type.ndim, eq.params["axis"]
        for a in eq.inputs:
            yield a, tuple(start)
            start[axis] += a.type.shape[axis]


def _piece(eq: Equation, box: Box) -> tuple[Atom, Box] | None:
    """Of which array a block of a moved one is a part, and which; None if it is filled
    with a number."""
    for a, start in _pieces(eq):
        moved = tuple(
            [(low - i, high - i) for (low, high), i in zip(box, start, strict=True)]
        )
        within = zip(moved, a.type.shape, strict=True)
        if all(low >= 0 and high <= n for (low, high), n in within):
            return a, moved
    return None


def compute_in_blocks(graph: Graph) -> Graph:
    """Elementwise work on joined pieces of arrays is done block by block, where that
    saves copies of them."""
    if not mentions(graph, {concatenate, pad}):
        return graph
    found = _Borders.apply(graph)
    return graph if found is graph else drop_dead(found)
