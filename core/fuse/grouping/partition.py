"""Graph to nodes: which equations run together, and what must run before what."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from treadle.fuse.cluster import Cluster
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.grouping.growth import Growth
from treadle.fuse.layout import axis_strides, joined, row_major
from treadle.fuse.lowering.copies import (
    Piece,
    begun,
    copy_launch,
    filled,
    scatter_launch,
    spread_out,
)
from treadle.fuse.lowering.launches import Copy, Launch
from treadle.fuse.lowering.loops import zero_inits
from treadle.fuse.lowering.products import product, product_with_epilogue
from treadle.fuse.lowering.running import running_launch
from treadle.fuse.lowering.windows import window_launches
from treadle.fuse.order import Node
from treadle.fuse.roles import stored_members
from treadle.ir.graph import Equation, Graph, Lit, Var
from treadle.ops.dot import free_axes
from treadle.trace.lowering import (
    Contraction,
    Join,
    Lowering,
    Reduction,
    Running,
    Scatter,
    View,
    Window,
)


class Partition(NamedTuple):
    """The nodes of a graph, in an order in which they can run.

    built: what has become of clusters and equations already.
    """

    flow: Dataflow
    nodes: list[Node]
    owner: dict[Var, Node]
    built: dict[Node | Equation, Any]


class Joined(NamedTuple):
    """How an array is put together: what fills it first, then the pieces that are not
    made in their places."""

    fill: Launch | Copy | None
    moves: list[Launch]


class Scattered(NamedTuple):
    """How a scatter runs: its result begins as its operand."""

    begin: Launch | Copy
    launch: Launch


class _Partitioner(Growth):
    def run(self) -> Partition:
        for eq in self.flow.graph.equations:
            if isinstance(eq.op.lowering, View):
                continue
            if eq.outputs and eq.outputs[0] in self.flow.inline:
                if self.wanted_in_memory(eq):
                    self.keep(eq)
            elif self.computes(eq):
                if not self.join_one(eq):
                    self.begin(eq)
            elif self.is_product(eq):
                self._product(eq)
            else:
                # What others than kernels write is in row-major order.
                self.flow.row_major.update(eq.outputs)
                how = type(self.flow.lowering(eq))
                _OTHERS.get(how, _Partitioner._whole)(self, eq)
        self.merge_twins()
        self.merge_columns()
        self._copy_returned_views()
        self._attach_epilogues()
        self._scatter_late()
        nodes = self.order.topological()
        return Partition(self.flow, nodes, self.owner, self.built)

    # Contractions

    def _product(self, eq: Equation) -> None:
        """A contraction; operands that its loops can't step over are copied."""
        if not self._loops_fit(eq):
            eq = self._with_steps(eq)
            if not self._loops_fit(eq):
                self.flow.row_major.add(eq.outputs[0])
                if not self._loops_fit(eq):
                    eq = self._with_copied_operands(eq)
        self.alone(eq)

    def _loops_fit(self, eq: Equation) -> bool:
        found = product(eq, self.flow)
        self.built.pop(eq, None)
        if found is not None:
            self.built[eq] = found
        return found is not None

    def _with_steps(self, eq: Equation) -> Equation:
        """The equation with those operands copied whose axes have no steps: however its
        result lies, no loops fit them."""
        for a in dict.fromkeys(eq.inputs):
            if isinstance(a, Var) and axis_strides(a, self.flow) is None:
                eq = self.substitute(eq, a, self.copied(a))
        return eq

    def _with_copied_operands(self, eq: Equation) -> Equation:
        """The equation with views among its operands copied, as few as will do."""
        for a in eq.inputs:
            if isinstance(a, Var) and self.flow.is_view(a):
                eq = self.substitute(eq, a, self.copied(a))
                if self._loops_fit(eq):
                    return eq
        if _pairs_axes(eq):
            eq = self._with_ordered_operands(eq)
            fits = self._loops_fit(eq)
            assert fits, f"{eq.op.name} has no loops"
        return eq

    def _with_ordered_operands(self, eq: Equation) -> Equation:
        """The contraction with its operands copied: batch, free, contracted axes."""
        flow, inputs, contracts, batches = self.flow, [], [], []
        for a, contract, batch in zip(
            eq.inputs, eq.params["contract"], eq.params["batch"], strict=True
        ):
            free = free_axes(a.type.ndim, contract, batch)
            ordered = flow.ordered(a, (*batch, *free, *contract))
            inputs.append(self.copied(ordered))
            n = a.type.ndim
            contracts.append(tuple(range(n - len(contract), n)))
            batches.append(tuple(range(len(batch))))
        params = {"contract": tuple(contracts), "batch": tuple(batches)}
        new = Equation(eq.op, inputs, params, eq.outputs, eq.source)
        return self.replace(eq, new)

    def _attach_epilogues(self) -> None:
        """Lets elementwise clusters work on a contraction's result while it is hot."""
        for node in self.order.nodes:
            if type(node) is Node and self.is_product(node.equations[0]):
                self._attach(node)

    def _attach(self, node: Node) -> None:
        eq = node.equations[0]
        c = eq.outputs[0]
        readers = {
            id(n): n
            for r in self.flow.final_readers(c)
            if r.outputs and isinstance(n := self.owner[r.outputs[0]], Cluster)
        }
        for cluster in readers.values():
            if cluster.product or not self.order.can_contract(cluster, node):
                continue
            fused = product_with_epilogue(
                eq, self.flow, cluster, stored_members(cluster, self)
            )
            if fused is not None and self.contract(cluster, node):
                cluster.product = fused
                cluster.equations.insert(0, eq)
                return

    # What is no part of any kernel, or a kernel of its own

    def _whole(self, eq: Equation) -> None:
        """What reads its operands in row-major order, but for zeros."""
        zeros = zero_inits(eq, self.flow)
        for i, a in enumerate(eq.inputs):
            if i not in zeros and isinstance(a, Var) and not self.is_contiguous(a):
                eq = self.substitute(eq, a, self.copied(a))
        self.alone(eq)

    def _nest(self, eq: Equation) -> None:
        """What has nests that fuse with nothing; operands whose views have no such
        loops are copied first."""
        (out,) = eq.outputs
        if out.type.size and not all(a.type.size for a in eq.inputs):
            self.built[eq] = [filled(_of_nothing(eq), out, self.flow)]
        elif out.type.size:
            launches = _NESTS[type(self.flow.lowering(eq))]
            found = launches(eq, self.flow)
            if found is None:
                eq = self.with_plain_operands(eq)
                found = launches(eq, self.flow)
                assert found is not None, f"{eq.op.name} has no loops"
            self.built[eq] = found
        self.alone(eq)

    def _scatter(self, eq: Equation) -> None:
        """Writes at data-dependent places of a copy of the first operand."""
        launch = scatter_launch(eq, self.flow)
        if launch is None:
            eq = self.with_plain_operands(eq, 1)
            launch = scatter_launch(eq, self.flow)
            assert launch is not None, f"{eq.op.name} has no loops"
        x, out = eq.inputs[0], eq.outputs[0]
        begin = begun(x, out, self.flow)
        if begin is None:
            new = self.contiguous(x)
            assert isinstance(x, Var) and isinstance(new, Var)
            eq = self.substitute(eq, x, new)
            # What is contiguous may be a view of what is stored.
            begin = Copy(self.flow.memory(new), out)
        self.built[eq] = Scattered(begin, launch)
        self.alone(eq)

    def _scatter_late(self) -> None:
        """Lets scatters wait for what reads their operands: they may then be written
        over."""
        node_of = {id(eq): n for n in self.order.nodes for eq in n.equations}
        for node in self.order.nodes:
            x = self._written_over(node)
            for r in () if x is None else self.flow.final_readers(x):
                if reader := node_of.get(id(r)):
                    self.order.depend(node, [reader])

    def _written_over(self, node: Node) -> Var | None:
        """What a scatter's result begins as, if that is in memory."""
        if not node.equations or not isinstance(node.equations[0].op.lowering, Scatter):
            return None
        found = self.flow.memory(node.equations[0].inputs[0])
        return found if isinstance(found, Var) else None

    # Values that are parts of others

    def _join(self, eq: Equation) -> None:
        """A concatenation or padded array; its pieces are made where they belong, or
        moved there."""
        how = eq.op.lowering
        assert isinstance(how, Join)
        whole, parts = eq.outputs[0], self.flow.parts
        steps = row_major(whole.type.shape)
        eq = self._with_numbers(eq, how)
        self._place_parts(eq, how)
        alike: list[list[Piece]] = []
        for i, (_, (offset, strides)) in enumerate(joined(eq, how, steps)):
            # A piece may have been copied for an earlier one.
            a = eq.inputs[i]
            if isinstance(a, Var) and a in parts and parts[a][0] is whole:
                continue
            piece = Piece(a, offset, strides)
            if copy_launch([piece], whole, self.flow) is None:
                new = self.plain(a)
                assert isinstance(a, Var) and isinstance(new, Var)
                eq = self.substitute(eq, a, new)
                piece = piece._replace(value=new)
            if alike and piece.pairs_with(alike[-1][-1]):
                alike[-1].append(piece)
            else:
                alike.append([piece])
        moves = [m for pieces in alike for m in self._moves(pieces, whole)]
        fill = filled(eq.inputs[-1], whole, self.flow) if how.filled else None
        self.built[eq] = Joined(fill, moves)
        self.alone(eq)

    def _with_numbers(self, eq: Equation, how: Join) -> Equation:
        """The equation with a number that fills one of two pieces which take turns made
        as the other is made: both are then written together."""
        steps = row_major(eq.outputs[0].type.shape)
        pieces = [Piece(a, *place) for a, place in joined(eq, how, steps)]
        for one, other in pairwise(pieces):
            if not other.pairs_with(one):
                continue
            for number, made in ((one.value, other.value), (other.value, one.value)):
                source = self.flow.source(number)
                is_number = isinstance(source, Lit) and not source.type.ndim
                if (
                    is_number
                    and isinstance(number, Var)
                    and isinstance(made, Var)
                    and isinstance(self.owner.get(made), Cluster)
                    and self._can_be_part(made, eq)
                ):
                    # Of its own: another join may have it as well.
                    spread = spread_out(source, number.type, self.flow)
                    new = self.copied(spread)
                    maker, near = self.flow.maker[new], self.flow.maker[made]
                    self.position[id(maker)] = self.position[id(near)]
                    eq = self.substitute(eq, number, new)
        return eq

    def _moves(self, pieces: list[Piece], whole: Var) -> list[Launch]:
        """What moves pieces that take turns: one nest, if one can."""
        found = copy_launch(pieces, whole, self.flow)
        if found is not None:
            return [found]
        assert len(pieces) > 1, "a piece has no loops"
        return [m for piece in pieces for m in self._moves([piece], whole)]

    def _place_parts(self, eq: Equation, how: Join) -> None:
        """Lets the pieces of a concatenation be made where they belong."""
        whole = eq.outputs[0]
        first = self.makers(eq.inputs[-1], True) if how.filled else []
        steps = row_major(whole.type.shape)
        for a, (offset, strides) in joined(eq, how, steps):
            if not isinstance(a, Var) or not self._can_be_part(a, eq):
                continue
            # What fills the array is written before the piece is made.
            node = self.owner[a]
            if node in first or not self.order.can_depend(node, first):
                continue
            self.flow.parts[a] = (whole, offset, strides)
            maker = self.flow.maker[a]
            if self.is_product(maker) and not self._loops_fit(maker):
                del self.flow.parts[a]
                self._loops_fit(maker)
            else:
                self.depend(self.owner[a], first)

    def _can_be_part(self, a: Var, eq: Equation) -> bool:
        flow = self.flow
        node = self.owner.get(a)
        made = isinstance(node, Cluster) or (
            node is not None and self.is_product(node.equations[0])
        )
        return (
            made
            and a not in flow.inline
            and not flow.is_returned(a)
            and all(self._reads_part(r, node, eq) for r in flow.readers[a])
            and not _finds_place(flow.maker[a])
            and eq.inputs.count(a) == 1
        )

    def _reads_part(self, reader: Equation, maker: Node | None, eq: Equation) -> bool:
        """Whether a reader can do with a piece that lies in the whole that `eq` makes:
        one in the kernel that makes the piece, and another join that comes later."""
        if reader is eq or not reader.outputs:
            return reader is eq
        if isinstance(reader.op.lowering, Join):
            return self.position[id(reader)] > self.position[id(eq)]
        return isinstance(maker, Cluster) and self.owner.get(reader.outputs[0]) is maker

    def _copy_returned_views(self) -> None:
        """A result that is a view is made in memory, if its storage differs."""
        flow = self.flow
        for i, a in list(flow.results.items()):
            if isinstance(a, Var) and flow.is_view(a):
                source = flow.memory(a)
                if source not in self.owner or source in flow.inline:
                    new = flow.results[i] = self.copied(a)
                    flow.returned.add(new)


def _pairs_axes(eq: Equation) -> bool:
    """Whether a product is over axes, in whatever order they come."""
    return isinstance(eq.op.lowering, Contraction)


def _of_nothing(eq: Equation) -> Lit:
    """What every element of a result is that has no data to depend on."""
    nothing = [np.zeros(a.type.shape, a.type.dtype) for a in eq.inputs]
    value = eq.op.run(*nothing, **eq.params).reshape(-1)[0]
    return Lit(value, type(eq.outputs[0].type)((), value.dtype))


def _finds_place(eq: Equation) -> bool:
    how = eq.op.lowering
    return isinstance(how, Reduction) and how.finds_place


def _running(eq: Equation, flow: Dataflow) -> list[Launch] | None:
    found = running_launch(eq, flow)
    return None if found is None else [found]


_NESTS: dict[type[Lowering], Callable[[Equation, Dataflow], list[Launch] | None]] = {
    Window: window_launches,
    Running: _running,
}
"""What writes the nests of work that fuses with nothing."""

_OTHERS: dict[type[Lowering], Callable[[_Partitioner, Equation], None]] = {
    Join: _Partitioner._join,
    Scatter: _Partitioner._scatter,
    **dict.fromkeys(_NESTS, _Partitioner._nest),
}


def partition(
    graph: Graph, lowering: Callable[[Equation], Lowering], chosen: int = 4
) -> Partition:
    """Groups a graph's equations into nodes.

    Args:
      lowering: what the target makes of an equation.
      chosen: the least bytes of elements that it chooses of a register in any order.
    """
    return _Partitioner(graph, lowering, chosen).run()
