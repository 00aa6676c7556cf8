"""All graph passes, named and in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

import numpy as np

from treadle.ir.graph import Equation, Graph
from treadle.passes.algebra import simplify
from treadle.passes.blocks import lower_blocks
from treadle.passes.borders import compute_in_blocks
from treadle.passes.checks import lower_checks
from treadle.passes.contractions import lower_contractions
from treadle.passes.conversions import fuse_conversions
from treadle.passes.counted import loop_over_rows
from treadle.passes.cse import merge_equal
from treadle.passes.dce import drop_dead
from treadle.passes.grouped import read_bytes
from treadle.passes.inline import inline_calls
from treadle.passes.integers import fuse_integers
from treadle.passes.invariant import hoist_invariant
from treadle.passes.limits import end_at_limits
from treadle.passes.reductions import split_reductions
from treadle.passes.rounding import place_roundings
from treadle.passes.scans import hoist_from_scans
from treadle.passes.sorting import lower_sorts
from treadle.passes.split_complex import split_complex
from treadle.passes.stacks import choose_in_stacks, shape_pieces
from treadle.passes.turned import turn_rows
from treadle.passes.unread import drop_unread
from treadle.trace.lowering import Lowering, Multiplied

Pass = Callable[[Graph], Graph]


class Arithmetic(Protocol):
    """What passes ask of a target.

    widens_halves: whether it computes with half floats in float32.
    multiplied: the half floats, and bytes beside floats, of which it has products.
    integers: small ones that it sums in 32 bits, and from how many terms on.
    lowering: what becomes of an equation: what its op says, or `Host`.
    """

    @property
    def widens_halves(self) -> bool: ...

    @property
    def multiplied(self) -> Multiplied: ...

    @property
    def integers(self) -> Mapping[np.dtype, int]: ...

    def lowering(self, eq: Equation) -> Lowering: ...


def passes_for(target: Arithmetic) -> tuple[Pass, ...]:
    """The passes, as a target needs them."""
    wide, multiplied = target.widens_halves, target.multiplied
    return (
        inline_calls,  # ensures: no `call` equations, in nested graphs too
        lower_checks,  # needs inlined calls; ensures: no `error_if` equations
        loop_over_rows,  # needs inlined calls; ensures: no counted scans
        partial(lower_blocks, target=target),  # ensures: blocked work has kernels
        split_complex,  # needs inlined calls; ensures: no complex number in a kernel
        simplify,  # needs inlined calls; leaves dead and equal equations behind
        merge_equal,  # ensures: no two pure equations are equal
        drop_unread,  # leaves consts of loops that nothing reads any more
        hoist_invariant,  # needs simplified bodies; emits new equations outside
        hoist_from_scans,  # needs simplified bodies; emits new equations outside
        partial(lower_contractions, widen=wide, multiplied=multiplied),  # known dtypes
        lower_sorts,  # ensures: only unsigned integers are ordered
        turn_rows,  # needs inlined calls; leaves dead transpositions, and pairs of them
        simplify,
        split_reductions,  # ensures: a reduction is over one last axis, or not over it
        merge_equal,
        drop_dead,  # ensures: every pure equation is used
        end_at_limits,  # needs to know which checks are used
        partial(place_roundings, widen=wide),  # needs all readers, and no others
        partial(fuse_conversions, multiplied=multiplied.matrices),  # needs roundings
        partial(fuse_integers, integers=target.integers),  # needs simplified casts
        partial(read_bytes, multiplied=multiplied),  # leaves bytes beside floats
        choose_in_stacks,  # needs placed roundings: is a stack known to be small?
        compute_in_blocks,  # needs placed roundings; leaves pieces in `assemble`
        shape_pieces,  # needs placed roundings: it makes equations of others' shapes
    )


def optimise(graph: Graph, target: Arithmetic) -> Graph:
    """An equivalent graph that is cheaper to run."""
    for apply in passes_for(target):
        graph = apply(graph)
    return graph
