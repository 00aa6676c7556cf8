"""The passes of a target: which, in which order, and what all together ensure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array, traced
from tests.core.passes.shown import equations
from treadle import dtypes
from treadle.backends.devices import TARGETS
from treadle.ir.check import check
from treadle.ir.graph import Graph
from treadle.passes.pipeline import optimise, passes_for
from treadle.passes.rewrite import dtypes_of
from treadle.trace.lowering import Blocked, Host, Multiplied

TARGET = TARGETS["reference"]


class Target:
    """One that says what a test wants."""

    def __init__(
        self, wide: bool = True, matrices: Any = (), integers: Any = ()
    ) -> None:
        self.widens_halves, self.integers = wide, integers
        self.multiplied = Multiplied(tuple(matrices), ())

    def lowering(self, eq: Any) -> Any:
        how = eq.op.lowering
        return Host("none") if isinstance(how, Blocked) else how


def name(apply: Callable[[Graph], Graph]) -> str:
    function = apply.func if isinstance(apply, partial) else apply
    return function.__name__


def test_what_needs_what_comes_after_it() -> None:
    names = [name(apply) for apply in passes_for(TARGET)]

    def before(*order: str) -> None:
        places = [names.index(n) for n in order]
        assert places == sorted(places)

    before("inline_calls", "lower_checks")
    before("inline_calls", "loop_over_rows")
    before("inline_calls", "lower_blocks", "split_complex")
    before(
        "simplify", "merge_equal", "drop_unread", "hoist_invariant", "hoist_from_scans"
    )
    before("lower_contractions", "lower_sorts", "turn_rows", "split_reductions")
    before("split_reductions", "drop_dead", "place_roundings", "fuse_conversions")
    before("place_roundings", "choose_in_stacks", "shape_pieces")
    # What passes leave behind is merged and dropped before all readers count.
    last = len(names) - 1 - names[::-1].index("merge_equal")
    assert last > names.index("split_reductions")
    # A loop that nothing goes back through any more has no limit.
    after = names.index("drop_dead") + 1
    assert names[after : after + 2] == ["end_at_limits", "place_roundings"]


def program(x: Any, w: Any) -> Any:
    @td.jit
    def layer(c: Any) -> Any:
        return tnp.tanh(c @ w)

    c = td.scan(lambda c, _: (layer(c), None), x, None, length=3)[0]
    z = tnp.fft.fft(c + 1j)
    return tnp.sort(c, 0), abs(z).sum(), td.debug.error_if(c, c > 9, "large")


def test_all_together_keep_form_and_meaning() -> None:
    graph = traced(program, array(3, 4), array(4, 4))
    for target in TARGETS.values():
        found = optimise(graph, target)
        check(found)
        names = {eq.op.name for eq in equations(found)}
        assert not names & {"call", "sort", "top_k", "error_if", "softmax"}
        assert found.in_types == graph.in_types
        assert [t.shape for t in found.out_types] == [t.shape for t in graph.out_types]


def test_every_pure_equation_is_used() -> None:
    found = optimise(traced(program, array(3, 4), array(4, 4)), TARGET)
    read = {a for eq in found.equations for a in eq.inputs} | set(found.outputs)
    for eq in found.equations:
        assert any(v in read for v in eq.outputs) or eq.graphs or eq.op.effect


def test_targets_say_what_becomes_of_halves_and_integers() -> None:
    half = dtypes.float16
    x, w = array(33, 40, dtype=half), array(40, 50, dtype=half)
    multiply = lambda x, w: x @ w  # noqa: E731

    def found(target: Target, *args: Any, function: Any = multiply) -> list[str]:
        graph = optimise(traced(function, *args), target)
        check(graph)
        return [f"{eq.op.name} {eq.outputs[0].type.dtype}" for eq in graph.equations]

    assert found(Target(), x, w) == [
        "convert float32",
        "convert float32",
        "dot_general float32",
        "convert float16",
    ]
    assert found(Target(matrices=[half]), x, w) == ["dot_general float16"]
    assert found(Target(wide=False), x, w) == ["dot_general float16"]
    narrow = optimise(traced(lambda x: tnp.exp(x * 2) + 1, x), Target(wide=False))
    assert dtypes_of(narrow) == {half}
    wide = optimise(traced(lambda x: tnp.exp(x * 2) + 1, x), Target())
    assert np.dtype("float32") in dtypes_of(wide)
    i8 = np.dtype("int8")
    a, b = array(33, 40, dtype=i8), array(40, 50, dtype=i8)
    spelled = lambda a, b: a.astype("int32") @ b.astype("int32")  # noqa: E731
    assert found(Target(integers={i8: 16}), a, b, function=spelled) == [
        "dot_general int32"
    ]
    assert "convert int32" in found(Target(), a, b, function=spelled)
