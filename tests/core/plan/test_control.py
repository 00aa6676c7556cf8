"""Plans of loops and branches: buffers, pointers and their lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array
from tests.core.plan.build import plan_of
from treadle.errors import InternalError
from treadle.fuse.lowering import loops
from treadle.plan.liveness import check_plan
from treadle.plan.steps import Branch, CopyStep, Loop, NestStep, Place, Plan, While

X = array(5, 4)


def one(plan: Plan, kind: type) -> Any:
    (found,) = [s for s in plan.steps if type(s) is kind]
    check_plan(plan)
    return found


def scan(x: Any, length: int = 5, reverse: bool = False) -> Any:
    return td.scan(
        lambda c, r: (c + r, c * 2.0), x[0] * 1.5, x[:length], reverse=reverse
    )


def test_a_carry_has_two_buffers_that_change() -> None:
    loop = one(plan_of(scan, X), Loop)
    (old, first), (new, second) = loop.slots
    assert loop.swaps == [(old, new)]
    assert first.buffer is not second.buffer
    assert (old.home, new.home) == ("slot", "slot")
    assert (old.index, new.index) == (0, 1)
    assert loop.count == 5
    used = {p.buffer for s in loop.body for p in (*s.reads, *s.writes)}
    assert {old, new} <= used
    assert not used & {first.buffer, second.buffer}


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_the_last_value_is_where_the_parity_says(length: int) -> None:
    plan = plan_of(lambda x: scan(x, length)[0] * 3.0, X)
    loop = one(plan, Loop)
    (_, first), (_, second) = loop.slots
    assert plan.steps[-1].reads[0] == (second if length % 2 else first)


def test_rows_move_with_the_loop() -> None:
    for reverse, start, step in ((False, 0, 16), (True, 64, -16)):
        plan = plan_of(lambda x, r=reverse: scan(x, 5, r), X)
        loop = one(plan, Loop)
        rows = [p for s in loop.body for p in (*s.reads, *s.writes) if p.dynamic]
        assert {p.buffer for p in rows} == {plan.inputs[0], plan.outputs[1]}
        assert {(p.offset, p.dynamic) for p in rows} == {(start, ((loop, step),))}


def test_inner_rows_move_with_both_loops() -> None:
    def function(x: Any) -> Any:
        inner = lambda c, r: (tnp.sin(c + r), None)  # noqa: E731
        outer = lambda c, r: (td.scan(inner, c, r)[0], None)  # noqa: E731
        return td.scan(outer, x[0, 0], x)[0]

    plan = plan_of(function, array(2, 3, 4))
    outer = one(plan, Loop)
    (inner,) = [s for s in outer.body if isinstance(s, Loop)]
    moving = [p for s in inner.body for p in s.reads if p.dynamic]
    assert [p.dynamic for p in moving] == [((outer, 48), (inner, 16))]


def test_zeros_are_written_not_copied() -> None:
    plan = plan_of(lambda x: td.scan(lambda c, r: (c + r, None), tnp.zeros(4), x)[0], X)
    copies = [s for s in plan.steps if isinstance(s, CopyStep)]
    assert copies[0].reads == []
    assert plan.constants == []


def test_carried_buffers_live_until_the_loop_ends() -> None:
    plan = plan_of(lambda x: scan(x)[0] * 3.0, X)
    loop = one(plan, Loop)
    last = max(s.position for s in loop.body)
    for _, where in loop.slots:
        assert where.buffer.last > last
        assert where.buffer.first <= loop.position


def test_what_a_body_reads_of_before_lives_until_the_loop_ends() -> None:
    def function(x: Any) -> Any:
        w = tnp.exp(x)
        step = lambda c, r: (tnp.sin(c + w[1] + r), None)  # noqa: E731
        return tnp.cumsum(td.scan(step, x[0], x)[0], 0)

    plan = plan_of(function, X)
    loop = one(plan, Loop)
    last = max(s.position for s in loop.body)
    read = {p.buffer for p in loop.reads if p.buffer.home == "arena"}
    assert read
    assert all(b.last > last for b in read)


def test_a_while_runs_its_test_and_leaves_a_flag() -> None:
    def function(x: Any) -> Any:
        step = lambda c: (c[0][::-1] + x, c[1][::-1] + 1)  # noqa: E731
        return td.while_loop(lambda c: c[1].sum() < 9, step, (x, x))

    plan = plan_of(function, X)
    loop = one(plan, While)
    assert loop.flag.buffer.nbytes == 1
    assert any(loop.flag in s.writes for s in loop.test)
    assert loop.test[-1].position < loop.body[0].position
    last = max(s.position for s in loop.body)
    assert loop.flag.buffer.last > last
    # Results are copied from where the pointers point in the end.
    copies = plan.steps[plan.steps.index(loop) + 1 :]
    assert all(isinstance(s, CopyStep) for s in copies)
    assert {s.reads[0].buffer.home for s in copies} == {"slot"}
    slots = loop.slots
    for (old, first), (_, second) in zip(slots[::2], slots[1::2], strict=True):
        (copied,) = [s.position for s in copies if s.reads[0].buffer is old]
        assert min(first.buffer.last, second.buffer.last) >= copied


def test_branches_do_not_run_together() -> None:
    def function(x: Any, i: Any) -> Any:
        return td.switch(i, [tnp.sin, tnp.cos, lambda x: x * 2.0], x)

    plan = plan_of(function, X, np.int32(1))
    step = one(plan, Branch)
    assert step.dtype == np.int32
    assert step.index == Place(plan.inputs[1])
    assert len(step.branches) == 3
    positions = [s.position for b in step.branches for s in b]
    assert len(set(positions)) == len(positions) == 3
    assert min(positions) > step.position
    for branch in step.branches:
        assert [type(s) for s in branch] == [NestStep]
        assert branch[0].writes == [Place(plan.outputs[0])]


def test_what_branches_work_on_lives_until_it_is_read_last() -> None:
    def function(x: Any, i: Any) -> Any:
        y = tnp.cumsum(x, 1)
        return tnp.cumsum(td.switch(i, [tnp.sin, tnp.cos], y), 0)

    plan = plan_of(function, X, np.int32(1))
    step = one(plan, Branch)
    (operand,), (result,) = step.reads[1:], step.writes
    last = max(s.position for b in step.branches for s in b)
    assert operand.buffer.last == last
    assert result.buffer.first == step.position
    assert result.buffer.last > last


def test_a_carry_in_place_has_one_buffer_and_no_pointer() -> None:
    def function(x: Any) -> Any:
        def step(c: Any, r: Any) -> Any:
            a, i, turned = c
            return (a.at[i].set(r), i + 1, turned[::-1]), None

        return td.scan(step, (x, tnp.asarray(0, "int32"), x[0]), x)[0]

    loop = one(plan_of(function, X), Loop)
    assert {where.buffer.nbytes for _, where in loop.slots} == {4, 16}
    assert {p.buffer.nbytes for p in loop.writes} == {4, 16, 80}


WRONG: dict[str, Callable[[Any], Any]] = {
    "other elements": lambda c: c[::-1] + 1.0,
    "some elements": lambda c: c + c[:1],
    "before and after": lambda c: c / (c.sum(1, keepdims=True) + c[::-1]),
    "a product of it": lambda c: c @ c[:4],
    "a product with it": lambda c: c @ c[:4] + c[::-1],
    "its order": lambda c: tnp.sort(c),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_carry_in_place_is_only_read_where_it_is_written(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def function(x: Any) -> Any:
        return td.scan(lambda c, _: (WRONG[name](c), None), x, None, length=3)[0]

    check_plan(plan_of(function, X))
    monkeypatch.setattr(loops, "written_over", lambda *_: [True])
    with pytest.raises(InternalError, match=r"overwrites|overwritten"):
        check_plan(plan_of(function, X))


def test_results_of_a_loop_in_a_loop_end_in_their_places() -> None:
    """An inner loop gives its carry to the buffer that the outer one exchanges."""

    def function(x: Any) -> Any:
        inner = lambda c, r: (tnp.sin(c + r), None)  # noqa: E731
        outer = lambda c, r: (td.scan(inner, c, x)[0], c)  # noqa: E731
        return td.scan(outer, x[0], x)

    plan = plan_of(function, X)
    outer = one(plan, Loop)
    (inner,) = [s for s in outer.body if isinstance(s, Loop)]
    after = outer.body[outer.body.index(inner) + 1 :]
    assert any(
        isinstance(s, CopyStep) and s.writes[0].buffer is outer.slots[1][0]
        for s in after
    )


def kept(plan: Plan, loop: Any) -> None:
    """Asserts that what was made before a loop, and is read in it, lives to its end."""
    written = [p.buffer for s in plan.steps if "exp" in s.names for p in s.writes]
    made = [b for b in written if b in {p.buffer for s in loop.body for p in s.reads}]
    assert made
    assert all(b.last > max(s.position for s in loop.body) for b in made)


def test_the_second_of_two_loops_keeps_what_it_reads() -> None:
    def function(x: Any) -> Any:
        w = tnp.exp(x)
        step = lambda c, r: (tnp.sin(tnp.cumsum(c * w[1] + r, 0)), None)  # noqa: E731
        c, _ = td.scan(step, x[0], x)
        return td.scan(step, c, x * w)[0]

    plan = plan_of(function, X)
    check_plan(plan)
    kept(plan, [s for s in plan.steps if isinstance(s, Loop)][-1])


def test_an_outer_loop_keeps_what_an_inner_one_reads() -> None:
    def function(x: Any) -> Any:
        w = tnp.exp(x)
        inner = lambda c, r: (tnp.sin(c * w[1] + r), None)  # noqa: E731
        outer = lambda c, r: (tnp.cumsum(td.scan(inner, c, x)[0], 0), None)  # noqa: E731
        return td.scan(outer, x[0], x)[0]

    plan = plan_of(function, X)
    outer = one(plan, Loop)
    (inner,) = [s for s in outer.body if isinstance(s, Loop)]
    last = max(s.position for s in outer.body)
    (made,) = [s.writes[0].buffer for s in plan.steps if "exp" in s.names]
    assert made in {p.buffer for s in inner.body for p in s.reads}
    assert made.last > last


def carrying(m: Any, scan: Any, reverse: bool, used: str) -> Callable[..., Any]:
    """A scan that gives what it carries, before and after each iteration."""

    def function(x: Any, first: Any) -> Any:
        def step(c: Any, r: Any) -> Any:
            new = (m.sin(c[0] + r), c[1] * 0.5 + c[0])
            return new, (c[0], new[0], c[1], new[1])

        last, rows = scan(step, (first, x[0]), x, reverse=reverse)
        found = {"last": last, "before": rows[::2], "after": rows[1::2], "all": rows}
        return [m.cos(y) * 0.5 for y in (*last, *found[used])]

    return function


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("used", ["last", "before", "after", "all"])
def test_what_is_carried_is_kept_where_it_is_made(
    used: str, length: int, reverse: bool
) -> None:
    x = np.random.default_rng(0).normal(size=(length, 8)).astype(np.float32)
    ours = carrying(tnp, td.scan, reverse, used)
    loop = one(plan_of(ours, x, x[0]), Loop)
    assert not any(isinstance(step, CopyStep) for step in loop.body)
    assert bool(loop.swaps) == (used == "last")
    found = td.jit(lambda *args: ours(*args))(x, x[0])
    wanted = carrying(jnp, jax.lax.scan, reverse, used)(x, x[0])
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_a_stack_that_is_a_result_is_copied_to() -> None:
    def function(x: Any) -> Any:
        return td.scan(lambda c, r: (tnp.sin(c + r), c), x[0], x)[1]

    loop = one(plan_of(function, X), Loop)
    assert [type(step) for step in loop.body].count(CopyStep) == 1
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    wanted = jax.lax.scan(lambda c, r: (jnp.sin(c + r), c), x[0], x)[1]
    np.testing.assert_allclose(td.jit(function)(x), wanted, rtol=1e-6)


def test_stacks_in_loops_and_of_open_lengths() -> None:
    inner = carrying(tnp, td.scan, True, "all")
    theirs = carrying(jnp, jax.lax.scan, True, "all")

    def twice(scan: Any, inner: Any) -> Callable[..., Any]:
        def function(x: Any) -> Any:
            def step(c: Any, r: Any) -> Any:
                found = inner(x * r[0], c)
                return found[0] + found[2][-1], (c, found[3].sum(0))

            last, (before, sums) = scan(step, x[0], x)
            return last, before * 2, sums

        return function

    jitted = td.jit(twice(td.scan, inner), dynamic={"x": ("length", None)})
    for length in (5, 2, 7):
        x = np.random.default_rng(length).normal(size=(length, 8)).astype(np.float32)
        wanted = twice(jax.lax.scan, theirs)(x)
        for a, b in zip(jitted(x), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert jitted.report().traces == 1
