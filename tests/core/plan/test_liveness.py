"""The checker of plans refuses each way in which memory may be used wrongly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.core.plan.steps import (
    ROW,
    F,
    at,
    copy,
    given,
    launch,
    nest,
    plan,
    product,
    work,
)
from treadle.errors import InternalError
from treadle.fuse.lowering.launches import Launch
from treadle.kernels.nest import CONTIGUOUS, Instr, Nest, Operand
from treadle.plan.liveness import check_plan
from treadle.plan.steps import (
    Branch,
    Buffer,
    CopyStep,
    HostStep,
    Loop,
    NestStep,
    Own,
    Place,
    Step,
    While,
)

X, Y = given(0), given(1)
OUT = given(0, "output")


def fails(words: str, *steps: Step, **options: Any) -> bool:
    with pytest.raises(InternalError, match=words):
        check_plan(plan(*steps, **options))
    return True


def passes(*steps: Step, **options: Any) -> bool:
    check_plan(plan(*steps, **options))
    return True


def test_what_is_read_was_written_and_is_there_still() -> None:
    a, same, b = at(0), at(0), at(128)
    assert passes(copy(X, a), copy(a, b), copy(b, same), copy(same, OUT), inputs=[X])
    assert fails(
        r"CopyStep\(copy\) at 0 .* 128 bytes \(arena 0\) .* never written", copy(a, b)
    )
    assert fails("input 0.*never written", copy(X, a), copy(Y, a), inputs=[X])
    assert fails(
        "at 2 .*overwritten", copy(X, a), copy(X, same), copy(a, b), inputs=[X]
    )


def test_memory_is_in_pieces() -> None:
    long, first, second, behind = at(0, 128), at(0, 64), at(64, 1), at(128, 1)
    for other in (first, second):
        assert fails(
            "overwritten", copy(X, long), copy(X, other), copy(long, OUT), inputs=[X]
        )
    assert passes(copy(X, long), copy(X, behind), copy(long, OUT), inputs=[X])
    # What lies in one granule is one piece.
    assert fails(
        "overwritten", copy(X, at(64, 1)), copy(X, long), copy(second, OUT), inputs=[X]
    )
    # Arrays that are not in the arena are whole.
    assert passes(
        copy(X, OUT), copy(X, given(1, "output")), copy(OUT, at(0)), inputs=[X]
    )


def test_what_needs_no_memory_or_has_its_own() -> None:
    nothing, constant = at(0, 0), given(0, "constant")
    assert passes(copy(nothing, at(0)), copy(constant, OUT), outputs=[OUT])
    assert passes(copy(constant, at(0)), outputs=[given(0, "output", 0)])


def test_results_are_there_at_the_end() -> None:
    assert passes(copy(X, OUT), inputs=[X], outputs=[OUT])
    assert fails("result is not there", copy(X, at(0)), inputs=[X], outputs=[OUT])
    assert fails(
        "result is not there",
        copy(X, OUT),
        inputs=[X],
        outputs=[OUT, given(1, "output")],
    )


def test_a_result_may_have_the_memory_of_an_argument() -> None:
    steps = copy(X, at(0)), copy(Y, OUT), copy(X, at(128))
    assert passes(*steps, inputs=[X, Y], outputs=[OUT])
    assert passes(*steps, inputs=[X, Y], outputs=[OUT], shares={0: 1})
    assert fails("input 0.*overwritten", *steps, inputs=[X, Y], shares={0: 0})
    assert passes(*steps[:2], inputs=[X, Y], outputs=[OUT], shares={0: 0})


def test_buffers_are_aligned_and_inside() -> None:
    for offset, nbytes, words in (
        (32, 8, "not aligned"),
        (4096, 1, "leaves the arena"),
    ):
        buffer = at(offset, nbytes).buffer
        assert fails(words, buffers=[buffer])
        buffer.first = -1  # nobody uses it
        assert passes(buffers=[buffer])
    assert passes(buffers=[at(4032, 64).buffer])
    assert passes(buffers=[Buffer(9, "input", offset=3, first=0)])


def test_scratch_is_beside_what_a_step_uses() -> None:
    a, b = at(0), at(128)
    for place in (a, b, at(64, 8)):
        step = nest([a], [b], scratch=place)
        assert fails("scratch is in use", copy(X, a), step, inputs=[X])
    free = at(256)
    kept = at(256)
    assert passes(copy(X, a), nest([a], [b], scratch=free), copy(b, OUT), inputs=[X])
    steps = copy(X, a), copy(X, kept), nest([a], [b], scratch=free), copy(kept, OUT)
    assert fails("overwritten", *steps, inputs=[X])
    steps[2].own, steps[2].scratch = Own(steps[2].scratch, 1), None  # type: ignore[attr-defined]
    assert fails("overwritten", *steps, inputs=[X])


def test_threads_have_what_tasks_need() -> None:
    def step(own: Own | None, needs: int = 64, tasks: int = 2) -> Step:
        return product(X, Y, OUT, own=own, own_bytes=needs, tasks=tasks)

    def own(nbytes: int, slots: int) -> Own:
        return Own(at(0, nbytes), slots)

    inputs = {"inputs": [X, Y], "threads": 2}
    assert passes(step(own(128, 2)), **inputs)
    assert passes(step(own(256, 3)), **inputs)
    assert passes(step(None, 0), **inputs)
    assert passes(step(own(64, 1), tasks=1), **inputs)
    for found in (None, own(64, 1), own(64, 2), own(126, 2)):
        assert fails(
            "threads have less than Product.* at 0 needs", step(found), **inputs
        )
    body = Loop((), [], [], count=1, body=[step(None)])
    assert fails("threads have less", body, **inputs)


def test_a_copy_does_not_overlap_its_source() -> None:
    a = at(0, 128)
    assert fails(
        "overlaps", copy(X, a), copy(a, at(64, 128)._replace(offset=8)), inputs=[X]
    )
    assert passes(copy(X, a), copy(a, at(0, 128)), inputs=[X])
    assert fails(
        "overwritten|overlaps",
        copy(X, a),
        copy(a, at(64)._replace(offset=4)),
        copy(a, OUT),
        inputs=[X],
    )


def test_a_nest_overwrites_what_it_reads_at_the_same_points() -> None:
    a, taken, b = at(0), at(0), at(128)
    first = copy(X, a), copy(X, b)
    plain = nest([a, b], [taken])
    assert passes(*first, plain, copy(taken, OUT), inputs=[X])
    turned = launch((False, 24, -ROW), (True, 0, ROW))
    assert fails(
        "overwrites what it still reads", *first, work(turned, a, taken), inputs=[X]
    )
    moved = launch((False, 0, ROW), (True, 0, ROW))
    assert fails("still reads", *first, work(moved, a, taken.shifted(32)), inputs=[X])
    # What lies elsewhere may be read in any order.
    both = launch((False, 0, ROW), (False, 24, -ROW), (True, 0, ROW))
    assert passes(*first, work(both, a, b, taken), inputs=[X])
    assert fails("still reads", *first, work(both, b, a, taken), inputs=[X])


def parts(*operands: tuple[bool, int, int]) -> NestStep:
    """A nest that reads and writes one array."""
    place = at(0, 512)
    return work(launch(*operands), *[place] * len(operands))


def test_a_nest_reads_and_writes_parts_of_one_array() -> None:
    def check(step: NestStep) -> Any:
        return copy(X, step.writes[0]), step

    def fine(*operands: tuple[bool, int, int]) -> bool:
        return passes(*check(parts(*operands)), inputs=[X])

    def wrong(*operands: tuple[bool, int, int]) -> bool:
        return fails("still reads", *check(parts(*operands)), inputs=[X])

    assert fine((False, 32, ROW), (True, 0, ROW))
    assert fine((False, 0, ROW), (True, 0, ROW))
    assert fine((False, 0, 0), (True, 8, ROW))
    assert wrong((False, 31, ROW), (True, 0, ROW))
    assert wrong((False, 8, ROW), (True, 0, ROW))
    assert wrong((False, 0, ROW), (False, 24, -ROW), (True, 0, ROW))
    assert wrong((False, 0, ROW), (True, 0, ROW), (True, 8, ROW))


def test_parts_that_move_with_a_loop() -> None:
    whole = at(0, 512)
    here, there = whole, whole.shifted(128)
    loop = Loop((), [], [], count=2)
    moving = [p._replace(dynamic=((loop, 128),)) for p in (here, there)]

    def run(read: Place, write: Place) -> Any:
        made = launch((False, 0, ROW), (True, 0, ROW))
        return copy(X, whole), work(made, read, write)

    assert passes(*run(here, there), inputs=[X])
    assert passes(*run(*moving), inputs=[X])
    # In some iteration they are the same.
    assert fails("still reads", *run(here, moving[1]), inputs=[X])


def scattering(read: tuple[int, ...], strides: tuple[int, ...] = (0, 1)) -> NestStep:
    """Writes where an index says, and reads there, or elsewhere."""
    i, operand = np.dtype(np.int32), Operand(F, CONTIGUOUS, gathers=1)
    body = (
        Instr("load", (), i, 0),
        Instr("add", (0, 0), i),
        Instr("load", read, F, 1),
        Instr("store", (2, 0), F, 2),
    )
    index = Operand(i, CONTIGUOUS)
    made = Nest(1, 0, "inner", (index, operand, operand), body, serial=True)
    bound = launch((False, 0, ROW), (False, 0, 0), (True, 0, 0)).bindings
    b, r, _ = bound
    r, w = r._replace(strides=strides), r._replace(strides=(0, 1), store=True)
    table = at(0, 512)
    return work(Launch(made, (4,), (), ROW, (b, r, w)), X, table, table)


def test_what_is_written_where_data_say_is_read_there_alone() -> None:
    step = scattering((0,))
    assert passes(copy(X, step.writes[0]), step, inputs=[X])
    for wrong in (scattering((1,)), scattering((0,), (0, 2))):
        begin = copy(X, wrong.writes[0])
        assert fails("still reads", begin, wrong, inputs=[X])


def test_a_product_keeps_its_operands() -> None:
    a, b, c = at(0), at(256, 256), at(512)
    begin = copy(X, a), copy(X, b, 256)
    assert passes(*begin, product(a, b, c), copy(c, OUT), inputs=[X])
    assert fails("overwrites an operand", *begin, product(a, b, at(0)), inputs=[X])
    assert fails("overwrites an operand", *begin, product(a, b, a), inputs=[X])


def test_an_epilogue_overwrites_only_what_it_reads_itself() -> None:
    a, b, c, z = at(0), at(256, 256), at(512), at(768)
    begin = copy(X, a), copy(X, b, 256), copy(X, z)

    def behind(*places: Place) -> Step:
        made = launch((False, 0, ROW), (False, 0, ROW), (True, 0, ROW))
        return product(a, b, places[0], made, *places)

    # The product's own memory, or that of what is added.
    assert passes(*begin, behind(c, z, c), copy(c, OUT), inputs=[X])
    for taken in (at(768), z):
        assert passes(*begin, behind(c, z, taken), copy(taken, OUT), inputs=[X])
    # The product lies in the result's memory before the other one is read.
    for c in (z, at(768)):
        assert fails("overwrites an operand", *begin, behind(c, z, c), inputs=[X])
        assert fails("overwrites an operand", *begin, behind(c, z, at(512)), inputs=[X])
    # Other blocks still read the operands.
    c = at(512)
    for shared in (a, at(0)):
        step = behind(c, a, shared)
        assert fails("overwrites an operand", *begin, step, inputs=[X])
        assert fails("overwrites an operand", *begin, behind(c, z, shared), inputs=[X])
    turned = launch((False, 0, ROW), (False, 24, -ROW), (True, 0, ROW))
    for taken in (z, at(768)):
        step = product(a, b, c, turned, c, z, taken)
        assert fails("still reads", *begin, step, inputs=[X])


def test_a_product_of_a_part_of_an_array_may_be_another_part() -> None:
    a, b = at(0, 256), at(256, 256)
    begin = copy(X, a), copy(X, b, 256)
    assert passes(*begin, product(a, b, a.shifted(128)), inputs=[X])
    assert fails(
        "overwrites an operand", *begin, product(a, b, a.shifted(64)), inputs=[X]
    )


def test_a_host_call_overwrites_nothing() -> None:
    a = at(0)
    step = HostStep(("host",), [a], [at(0)])
    assert fails(
        r"HostStep\(host\) overwrites an operand", copy(X, a), step, inputs=[X]
    )


def test_steps_at_one_time_are_nests_on_separate_memory() -> None:
    a, b, c, d = (at(128 * i) for i in range(4))

    def together(*steps: Step) -> Any:
        first = [copy(X, a), copy(X, b)]
        found = plan(*first, *steps, inputs=[X])
        for step in steps:
            step.position = 9
        return found

    check_plan(together(nest([a], [c]), nest([a, b], [d])))
    wrong = {
        "runs together with others": (nest([a], [c]), copy(b, d)),
        "run together on the same memory": (nest([a], [c]), nest([b], [at(256)])),
        "at 9 reads .* never written|the same memory": (nest([a], [c]), nest([c], [d])),
    }
    for words, steps in wrong.items():
        for order in (steps, steps[::-1]):
            with pytest.raises(InternalError, match=words):
                check_plan(together(*order))
    for scratch in (at(0), at(256)):
        with pytest.raises(InternalError, match="same memory"):
            check_plan(together(nest([a], [c]), nest([b], [d], scratch=scratch)))
        with pytest.raises(InternalError, match="same memory"):
            check_plan(together(nest([b], [d], scratch=scratch), nest([a], [c])))
    # Two parts of one array.
    whole = at(512, 256)
    check_plan(together(nest([a], [whole]), nest([b], [whole.shifted(128)])))
    with pytest.raises(InternalError, match="same memory"):
        check_plan(together(nest([a], [whole]), nest([b], [whole])))


def carried(count: int, kind: type[Loop] = Loop, **options: Any) -> tuple[Any, ...]:
    """A loop whose body makes one carry of another; and the places of both."""
    old, new = (Place(Buffer(128, "slot", i)) for i in range(2))
    first, second = at(0), at(128)
    loop = kind(
        ("loop",), [], [], count=count, body=[nest([old], [new])],
        slots=[(old.buffer, first), (new.buffer, second)],
        swaps=[(old.buffer, new.buffer)], **options,
    )  # fmt: skip
    return loop, first, second


def test_a_loop_exchanges_its_pointers() -> None:
    for count in (1, 2, 3, 4):
        loop, first, second = carried(count)
        last, other = (second, first) if count % 2 else (first, second)
        assert passes(copy(X, first), loop, copy(last, OUT), inputs=[X])
        if count == 1:
            assert passes(copy(X, first), loop, copy(other, OUT), inputs=[X])
    loop, first, second = carried(1)
    assert fails("never written", loop, inputs=[X])
    loop.body[0] = nest([Place(loop.slots[1][0])], [Place(loop.slots[0][0])])
    assert fails("never written", copy(X, first), loop, inputs=[X])


def test_what_each_round_reads_no_round_overwrites() -> None:
    kept, taken = at(0), at(0)
    body: list[Step] = [copy(kept, at(128)), copy(X, taken)]
    for loop in (
        Loop((), [], [], count=2, body=body),
        Loop((), [], [], count=3, body=body),
    ):
        assert fails("overwritten", copy(X, kept), loop, inputs=[X])
    # What a round reads of the one before.
    late = [copy(at(256), OUT)]
    late.append(copy(X, late[0].reads[0]))
    assert fails("never written", Loop((), [], [], count=2, body=[*late]), inputs=[X])


def test_a_while_has_a_flag_whenever_it_asks() -> None:
    flag = at(512, 1)

    def run(body: list[Step], test: list[Step]) -> Step:
        loop, first, _ = carried(0, While, test=test, flag=flag)
        loop.body += body
        return loop, copy(X, first)

    ask = copy(X, flag, 1)
    loop, begin = run([], [ask])
    assert passes(begin, loop, inputs=[X])
    loop, begin = run([], [])
    assert fails(r"While\(loop\).*never written", begin, loop, inputs=[X])
    # A test that reads what the body overwrites.
    kept = at(1024)
    loop, begin = run([copy(X, at(1024))], [copy(kept, flag)])
    assert fails("overwritten", begin, copy(X, kept), loop, inputs=[X])
    loop, begin = run([], [copy(kept, flag)])
    assert passes(begin, copy(X, kept), loop, inputs=[X])


def choose(*branches: list[Step], index: Place = X) -> Branch:
    step = Branch(("cond",), [index], [], branches=[*branches], index=index)
    return step


def test_branches_begin_alike_and_leave_what_all_of_them_wrote() -> None:
    a, b = at(0), at(0)
    begin = copy(X, a)
    assert fails(r"Branch\(cond\) .*never written", choose([], index=a), inputs=[X])
    # One may overwrite what the other reads.
    step = choose([copy(X, b)], [copy(a, at(128))])
    assert passes(begin, step, inputs=[X])
    assert fails("never written|overwritten", begin, step, copy(a, at(128)), inputs=[X])
    assert fails("never written|overwritten", begin, step, copy(b, at(128)), inputs=[X])
    assert passes(
        begin,
        choose([copy(a, OUT)], [copy(X, OUT)]),
        copy(a, at(128)),
        inputs=[X],
        outputs=[OUT],
    )
    assert fails("result is not", choose([copy(X, OUT)], []), inputs=[X], outputs=[OUT])
    assert fails("result is not", choose([], [copy(X, OUT)]), inputs=[X], outputs=[OUT])
    loop = Loop((), [], [], count=1, body=[choose([copy(at(256), OUT)])])
    assert fails("never written", loop, inputs=[X])


def test_zeros_are_written_and_slots_lead_to_their_places() -> None:
    a = at(0)
    assert passes(copy(None, a), copy(a, OUT), outputs=[OUT])
    assert isinstance(copy(None, a), CopyStep)
