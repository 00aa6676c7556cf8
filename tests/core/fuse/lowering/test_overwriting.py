"""Which values may be written over, in lists of kernels that are made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.core.plan.steps import ROW, F, launch
from treadle.arraytype import ArrayType
from treadle.fuse.lowering.launches import (
    Calls,
    Carries,
    Choose,
    Copy,
    HostCall,
    KernelEntry,
    Kernels,
    Launch,
    ProductKernel,
    Repeat,
    RepeatWhile,
    Sort,
    Within,
)
from treadle.fuse.lowering.overwriting import (
    LARGE,
    reads,
    share_scattered,
    target_of,
    whole,
    writes,
    written_over,
)
from treadle.ir.graph import Atom, Lit, Var


def var(nbytes: int = 128) -> Var:
    return Var(ArrayType((nbytes // 4,), F))


def nest(given: list[Atom], out: Var, step: int = ROW) -> Launch:
    """Reads arrays element by element and writes one, a row every `step` elements."""
    made = launch(*[(False, 0, step)] * len(given), (True, 0, ROW))
    atoms = (*given, out)
    bound = [b._replace(atom=a) for b, a in zip(made.bindings, atoms, strict=True)]
    return made._replace(bindings=tuple(bound))


def body(*entries: KernelEntry, results: Any, within: Any = None) -> Kernels:
    return Kernels((), tuple(results), entries, within or {})


def scatter(old: Atom, new: Var, *others: Atom) -> list[KernelEntry]:
    """What begins as a copy, and is then written into."""
    return [
        KernelEntry(Copy(old, new), begins=old),
        KernelEntry(nest([*others], new)),
    ]


def test_a_carry_that_begins_the_next_one_is_written_over() -> None:
    c, new, x, y = var(), var(), var(), var()
    found = body(*scatter(c, new, x), results=[new])
    assert written_over(found, [c], [new]) == [True]
    # It was read before, or is read by what begins as it.
    before = KernelEntry(nest([c], y))
    assert written_over(
        body(before, *scatter(c, new, y), results=[new]), [c], [new]
    ) == [True]
    # It is read later; or it is another one's copy; or it is a result as well.
    assert written_over(body(*scatter(c, new), before, results=[new]), [c], [new]) == [
        False
    ]
    assert written_over(body(*scatter(c, new, c), results=[new]), [c], [new]) == [False]
    assert written_over(body(*scatter(x, new), results=[new]), [c], [new]) == [False]
    assert written_over(body(*scatter(c, new), results=[new, c]), [c], [new]) == [False]
    assert written_over(body(results=[x]), [c], [x]) == [False]


def test_each_carry_by_itself() -> None:
    a, b, c, d = (var() for _ in range(4))
    entries = [*scatter(a, b), *scatter(c, d, b)]
    assert written_over(body(*entries, results=[b, d]), [a, c], [b, d]) == [True, True]
    entries = [*scatter(a, b, c), *scatter(c, d, a)]
    assert written_over(body(*entries, results=[b, d]), [a, c], [b, d]) == [False, True]
    # One that takes the other's place begins as something else.
    assert written_over(body(*entries, results=[d, b]), [a, c], [d, b]) == [
        False,
        False,
    ]


def test_memory_counts_not_names() -> None:
    c, part, new, alias = var(), var(), var(), var()
    late = KernelEntry(nest([part], var()))
    within = {part: Within(c, 64), alias: Within(new)}
    found = body(*scatter(c, new), late, results=[alias], within=within)
    assert written_over(found, [c], [alias]) == [False]
    found = body(*scatter(c, new), results=[alias], within=within)
    assert written_over(found, [c], [alias]) == [True]
    # A copy to where it is already begins nothing.
    within = {c: Within(new)}
    found = body(*scatter(c, new), results=[new], within=within)
    assert written_over(found, [c], [new]) == [False]


def test_large_states_are_made_where_they_are() -> None:
    for nbytes, wanted in ((LARGE, True), (LARGE - 4, False)):
        c, new, other = var(nbytes), var(nbytes), var(nbytes)
        update = KernelEntry(nest([c, other], new))
        assert written_over(body(update, results=[new]), [c], [new]) == [wanted]
        # Read before the next one begins, and not then.
        first, second = KernelEntry(nest([c], other)), KernelEntry(nest([other], new))
        assert written_over(body(first, second, results=[new]), [c], [new]) == [wanted]
    late = KernelEntry(nest([c], var()))
    c, new, other = var(LARGE), var(LARGE), var(LARGE)
    late = KernelEntry(nest([c], other))
    for entries in (
        [KernelEntry(nest([other], new)), late],
        [KernelEntry(nest([c], new)), late],
        [KernelEntry(nest([c], new, step=2 * ROW))],  # other elements
        [KernelEntry(Copy(c, new))],
    ):
        assert written_over(body(*entries, results=[new]), [c], [new]) == [False]
    # A part of it is read: other elements may be meant.
    part = var()
    found = body(
        KernelEntry(nest([c, part], new)), results=[new], within={part: Within(c, 64)}
    )
    assert written_over(found, [c], [new]) == [False]
    # The next one is never written here.
    assert written_over(body(late, results=[other]), [c], [var(LARGE)]) == [False]


class Flow(SimpleNamespace):
    """What is asked of a `Dataflow`."""

    def __init__(self, made: list[Var], given: list[Var], orders: Any = None) -> None:
        super().__init__(
            maker=dict.fromkeys(made),
            graph=SimpleNamespace(inputs=given),
            orders=orders or {},
        )


def shared(
    entries: list[KernelEntry], flow: Flow, results: Any = (), within: Any = None
) -> Any:
    found = dict(within or {})
    share_scattered(entries, found, flow, results)  # type: ignore[arg-type]
    return found


def test_a_value_made_here_has_the_memory_of_what_begins_as_it() -> None:
    x, old, new, other = var(), var(), var(), var()
    make = KernelEntry(nest([x], old))
    entries = [make, *scatter(old, new)]
    flow = Flow([old, new], [x])
    assert shared(entries, flow) == {old: Within(new)}
    # Read before, and not after.
    read = KernelEntry(nest([old], other))
    assert shared([make, read, *scatter(old, new)], flow) == {old: Within(new)}
    assert shared([*entries, read], flow) == {}
    assert shared([make, *scatter(old, new, old)], flow) == {}
    # What others look at, or what is not made here, keeps its memory.
    assert shared(entries, flow, results=[old]) == {}
    assert shared(entries, Flow([new], [x])) == {}
    assert shared(scatter(x, new), Flow([x, new], [x])) == {}
    assert shared(entries, Flow([old, new], [x], orders={old: (1, 0)})) == {}
    # Nor does what lies in others' memory already.
    for inner in (old, new):
        given = {inner: Within(other, 64)}
        assert shared(entries, flow, within=given) == given
    whole_ = {other: Within(old)}
    assert shared(entries, flow, results=[other], within=whole_) == whole_


def test_of_two_copies_the_last_takes_over() -> None:
    x, old, first, second = (var() for _ in range(4))
    entries = [KernelEntry(nest([x], old)), *scatter(old, first), *scatter(old, second)]
    flow = Flow([old, first, second], [x])
    assert shared(entries, flow) == {old: Within(second)}
    # A chain of them is one memory.
    entries = [
        KernelEntry(nest([x], old)),
        *scatter(old, first),
        *scatter(first, second),
    ]
    found = shared(entries, flow)
    assert found == {old: Within(first), first: Within(second)}
    assert whole(old, found) is second
    number = Lit(np.float32(0), ArrayType((), F))
    assert shared(scatter(number, first), flow) == {}
    assert whole(number, found) is number


def test_what_kernels_read_and_write() -> None:
    a, b, c, d, e, f = (var() for _ in range(6))
    none = body(results=[])
    carries = Carries((a,), (True,), (e,))
    product: Any = SimpleNamespace()
    cases: list[tuple[Any, list[Var], list[Var]]] = [
        (nest([a, b], c), [a, b], [c]),
        (ProductKernel(product, (a, 0), (b, 0), c), [a, b], [c]),
        (
            ProductKernel(product, (a, 0), (b, 0), c, nest([c, d], e)),
            [a, b, c, d],
            [c, e],
        ),
        (Sort(a, b, 3), [a], [b]),
        (Copy(a, b), [a], [b]),
        (Copy(None, b), [], [b]),
        (HostCall(product, {}, (a, b), (c, d), ([], []), ""), [a, b], [c, d]),
        (Calls(product, {}, (a,), (c,), ([], []), product), [a], [c]),
        (Repeat(none, 2, False, (b,), carries, (c,), (f,)), [b, a, c], [e, f]),
        (RepeatWhile(none, none, (b,), (c,), carries), [b, c, a], [e]),
        (Choose(a, (none,), (b, c), (d,)), [a, b, c], [d]),
    ]
    for kernel, read, written in cases:
        assert list(reads(kernel)) == read
        assert list(writes(kernel)) == written
    assert target_of(Copy(a, b)) is b
    assert target_of(nest([a], c)) is c
