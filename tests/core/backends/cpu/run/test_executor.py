"""Programs run their commands as the builder was told."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from treadle.backends.cpu.run import executor, native
from treadle.backends.cpu.run import threads as pool_module
from treadle.backends.cpu.run.executor import (
    Indirect,
    Operand,
    Program,
    ProgramBuilder,
    Scaled,
    Slot,
)

# mark: out[task] = value + task, and tasks into out[tasks]
# add:  *out += value (one task)
# below: *flag = *a < *b, as a bool
KERNELS = """
@kernels = constant [3 x ptr] [ptr @mark, ptr @add, ptr @below]

define internal void @mark(ptr %a, i64 %task, i64 %slot) {
  %tasks = load i64, ptr %a
  %a1 = getelementptr i64, ptr %a, i64 1
  %out = load ptr, ptr %a1
  %a2 = getelementptr i64, ptr %a, i64 2
  %value = load i64, ptr %a2
  %sum = add i64 %value, %task
  %at = getelementptr i64, ptr %out, i64 %task
  store i64 %sum, ptr %at
  %last = getelementptr i64, ptr %out, i64 %tasks
  store i64 %tasks, ptr %last
  ret void
}

define internal void @add(ptr %a, i64 %task, i64 %slot) {
  %a1 = getelementptr i64, ptr %a, i64 1
  %out = load ptr, ptr %a1
  %a2 = getelementptr i64, ptr %a, i64 2
  %value = load i64, ptr %a2
  %old = load i64, ptr %out
  %new = add i64 %old, %value
  store i64 %new, ptr %out
  ret void
}

define internal void @below(ptr %a, i64 %task, i64 %slot) {
  %a1 = getelementptr i64, ptr %a, i64 1
  %flag = load ptr, ptr %a1
  %a2 = getelementptr i64, ptr %a, i64 2
  %x_at = load ptr, ptr %a2
  %a3 = getelementptr i64, ptr %a, i64 3
  %y_at = load ptr, ptr %a3
  %x = load i64, ptr %x_at
  %y = load i64, ptr %y_at
  %c = icmp slt i64 %x, %y
  %b = zext i1 %c to i8
  store i8 %b, ptr %flag
  ret void
}
"""
_TABLE = native.load_table(
    native.Source("test/executor", "kernels", lambda: KERNELS),
    ("mark", "add", "below"),
)
MARK, ADD, BELOW = _TABLE["mark"], _TABLE["add"], _TABLE["below"]


def run(program: Program, *values: int | np.ndarray) -> np.ndarray:
    """Runs on these slots and gives them back."""
    slots = np.zeros(program.slot_count, np.int64)
    for i, value in enumerate(values):
        slots[i] = value.ctypes.data if isinstance(value, np.ndarray) else value
    assert program.run(slots.ctypes.data) == 0
    return slots


def words(count: int) -> np.ndarray:
    return np.zeros(count, np.int64)


@pytest.mark.parametrize("tasks", [0, 1, 2, 7, 100])
def test_call(tasks: int) -> None:
    p = ProgramBuilder(slots=1)
    p.call(MARK, [Slot(0, 8), 1000], tasks)
    out = words(tasks + 2)
    run(p.build(), out)
    expected = [0, *range(1000, 1000 + tasks), tasks]
    assert out.tolist() == (expected if tasks else [0, 0])


def test_operands() -> None:
    data = np.array([5, -6, 7], np.int64)
    small = np.array([8, -9], np.int32)
    flag = np.array([True, False])
    p = ProgramBuilder(slots=5)
    operands: list[Operand] = [
        -3,
        2**40,
        Slot(4),
        Slot(4, -100),
        Slot(4, 1, (Scaled(4, 10), Scaled(4, -2))),
        Indirect(Slot(1, 8)),
        Indirect(Slot(2, 4), "i32"),
        Indirect(Slot(2), "i32"),
        Indirect(Slot(3), "bool"),
        Indirect(Slot(3, 1), "bool"),
        Indirect(Slot(1, -64, (Scaled(4, 2),))),
    ]
    for i, operand in enumerate(operands):
        p.call(MARK, [Slot(0, 16 * i), operand])
    out = words(2 * len(operands))
    run(p.build(), out, data, small, flag, 40)
    expected = [-3, 2**40, 40, -60, 361, -6, -9, 8, 1, 0, 7]
    assert out[::2].tolist() == expected


def test_number_of_tasks_from_memory() -> None:
    p = ProgramBuilder(slots=2)
    p.call(MARK, [Slot(0), 0], tasks=Indirect(Slot(1), "i32"))
    program = p.build()
    for tasks in (1, 5):
        out = words(7)
        run(program, out, np.array([tasks], np.int32))
        assert out.tolist() == [*range(tasks), tasks] + [0] * (6 - tasks)


def test_addresses_beyond_the_sign_bit() -> None:
    p = ProgramBuilder(slots=1)
    p.set(0, 2**64 - 5)
    assert run(p.build(), 1)[0] == -5


@pytest.mark.parametrize("count", [0, 1, 2, 50, 1000])
def test_group(count: int) -> None:
    """Also long ones, which are split, and calls without tasks."""
    tasks = [i % 4 for i in range(count)]
    p = ProgramBuilder(slots=1)
    starts = np.cumsum([0] + [t + 1 for t in tasks])
    p.group(
        [
            (MARK, [Slot(0, 8 * int(start)), 100 * i, *range(6)], t)
            for i, (start, t) in enumerate(zip(starts, tasks, strict=False))
        ]
    )
    out = words(int(starts[-1]) + 1)
    run(p.build(), out)
    for i, (start, t) in enumerate(zip(starts, tasks, strict=False)):
        if t:
            expected = [*range(100 * i, 100 * i + t), t]
            assert out[start : start + t + 1].tolist() == expected


def test_group_with_dynamic_tasks() -> None:
    p = ProgramBuilder(slots=2)
    p.group([(MARK, [Slot(0), 10], Slot(1)), (MARK, [Slot(0, 64), 20], 2)])
    out = words(16)
    run(p.build(), out, 3)
    assert out[:4].tolist() == [10, 11, 12, 3]
    assert out[8:11].tolist() == [20, 21, 2]


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("count", [-1, 0, 1, 5])
def test_loop(count: int, held: bool) -> None:
    p = ProgramBuilder(slots=2)
    with p.loop(Slot(1) if held else count) as i:
        p.call(MARK, [Slot(0, 0, (Scaled(i, 8),)), Slot(i, 1)])
    out = words(8)
    run(p.build(), out, count)
    done = max(count, 0)
    # every iteration writes its number and, behind it, its one task
    assert out.tolist() == [*range(1, done + 1), *[1] * (done > 0)] + [0] * (
        8 - done - (done > 0)
    )


def test_nested_loops_with_accumulator() -> None:
    p = ProgramBuilder(slots=1)
    with p.loop(7) as i, p.loop(Slot(i)) as j:
        p.call(ADD, [Slot(0), Slot(j)])
    out = words(1)
    program = p.build()
    for repeat in (1, 2):
        run(program, out)
        assert out[0] == repeat * sum(j for i in range(7) for j in range(i))


def test_while_and_break() -> None:
    """Doubles *x while it is below the limit."""
    p = ProgramBuilder(slots=3)
    top, done = p.label(), p.label()
    p.place(top)
    p.call(BELOW, [Slot(2), Slot(0), Slot(1)])
    p.jump_unless(Indirect(Slot(2), "bool"), done)
    p.call(ADD, [Slot(0), Indirect(Slot(0))])
    p.jump(top)
    p.place(done)
    program = p.build()
    for start, limit, expected in ((3, 100, 192), (5, 5, 5), (5, 1, 5)):
        x, flag = np.array([start], np.int64), np.zeros(1, bool)
        run(program, x, np.array([limit], np.int64), flag)
        assert x[0] == expected


@pytest.mark.parametrize("which", [-4, 0, 1, 2, 9])
def test_switch(which: int) -> None:
    p = ProgramBuilder(slots=2)
    end = p.label()
    branches = [p.label() for _ in range(3)]
    for i, branch in enumerate(branches[:-1]):
        p.jump_if_less(Slot(1), i + 1, branch)
    p.jump(branches[-1])
    for i, branch in enumerate(branches):
        p.place(branch)
        p.call(ADD, [Slot(0), 10 + i])
        p.jump(end)
    p.place(end)
    out = words(1)
    run(p.build(), out, which)
    assert out[0] == 10 + min(max(which, 0), 2)


def test_slot_arithmetic() -> None:
    p = ProgramBuilder(slots=4)
    p.set(0, 10)
    p.advance(0, -3)
    p.swap(1, 2)
    slots = run(p.build(), 0, 1, 2, 3)
    assert slots.tolist() == [7, 2, 1, 3]


def test_dynamic_slice() -> None:
    """x[start:][:2] as an address computed from an int32 in memory."""
    x, out = np.arange(8.0), np.zeros(2)
    for start in (0, 3, 6):
        p = ProgramBuilder(slots=3)
        index = p.slot()
        p.set(index, Indirect(Slot(1), "i32"))
        p.copy(Slot(2), Slot(0, 0, (Scaled(index, 8),)), 16)
        run(p.build(), x, np.array([start], np.int32), out)
        assert out.tolist() == [start, start + 1]


@pytest.mark.parametrize("nbytes", [0, 1, 4095, 4097, (1 << 20) - 1, (5 << 20) + 13])
def test_copy_and_fill(nbytes: int) -> None:
    source = np.random.default_rng(0).integers(0, 255, nbytes + 64).astype(np.uint8)
    to = np.full(nbytes + 64, 255, np.uint8)
    p = ProgramBuilder(slots=2)
    p.copy(Slot(1, 32), Slot(0, 32), nbytes)
    run(p.build(), source, to)
    middle = slice(32, 32 + nbytes)
    assert (to[middle] == source[middle]).all()
    p = ProgramBuilder(slots=2)
    p.fill_zero(Slot(1, 32), Slot(0) if nbytes < 5000 else nbytes)
    run(p.build(), nbytes, to)
    assert not to[middle].any()
    assert (to[:32] == 255).all() and (to[32 + nbytes :] == 255).all()


def test_host_callback_and_abort() -> None:
    seen: list[list[int]] = []
    callback_type = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_int64))

    @callback_type
    def callback(arguments: Sequence[int]) -> int:
        seen.append([arguments[0], arguments[1]])
        return -17 if arguments[1] == 2 else 0

    p = ProgramBuilder(slots=1)
    with p.loop(5) as i:
        address = ctypes.cast(callback, ctypes.c_void_p).value
        assert address is not None
        p.host(address, [99, Slot(i)])
        p.call(ADD, [Slot(0), 1])
    p.keep(callback)
    program = p.build()
    out = words(1)
    slots = np.zeros(program.slot_count, np.int64)
    slots[0] = out.ctypes.data
    assert program.run(slots.ctypes.data) == -17
    assert seen == [[99, 0], [99, 1], [99, 2]] and out[0] == 2


def test_labels_are_checked() -> None:
    p = ProgramBuilder()
    label = p.label()
    p.jump(label)
    with pytest.raises(ValueError, match="never placed"):
        p.build()
    p.place(label)
    with pytest.raises(ValueError, match="placed already"):
        p.place(label)


def test_profile_counts_executions() -> None:
    p = ProgramBuilder(slots=1)
    p.call(MARK, [Slot(0), 0], tasks=3, note="first")
    with p.loop(4):
        p.call(ADD, [Slot(0), 1], note="second")
    program = p.build()
    slots = np.zeros(program.slot_count, np.int64)
    out = words(4)
    slots[0] = out.ctypes.data
    measured = program.profile(slots.ctypes.data)
    assert measured.status == 0 and out[0] == 4
    rows = measured.rows
    counts = {c.note: (n, ticks > 0) for c, ticks, n in rows if c.note}
    assert counts == {"first": (1, True), "second": (4, True)}
    # Of each execution there is an event, and one of each of several tasks.
    starts = {c.note: 8 * c.start for c, _, _ in rows if c.note}
    events = [tuple(map(int, e)) for e in measured.events]
    assert [e[1] for e in events if e[0] == starts["second"]] == [-1] * 4
    first = [e for e in events if e[0] == starts["first"]]
    assert sorted(e[1] for e in first) == [-1, 0, 1, 2]
    (whole,) = [e for e in first if e[1] == -1]
    assert all(whole[2] <= e[2] <= e[3] <= whole[3] for e in first)
    assert len(events) == 8 and not measured.lost


def test_a_profile_goes_on_when_its_log_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executor, "LOGGED_EVENTS", 7)
    monkeypatch.setattr(executor, "_logs", [])
    p = ProgramBuilder(slots=1)
    with p.loop(30):
        p.call(ADD, [Slot(0), 1], note="all")
    program = p.build()
    slots, out = np.zeros(program.slot_count, np.int64), words(1)
    slots[0] = out.ctypes.data
    measured = program.profile(slots.ctypes.data)
    assert (len(measured.events), measured.lost, out[0]) == (7, 23, 30)
    assert [n for c, _, n in measured.rows if c.note] == [30]


def test_threads_share_a_program() -> None:
    p = ProgramBuilder(slots=2)
    with p.loop(200) as i:
        p.call(MARK, [Slot(0), Slot(i)], tasks=4)
        p.group([(ADD, [Slot(0, 64), Slot(1)], 1), (ADD, [Slot(0, 128), 1], 1)])
    program = p.build()
    outs = [words(20) for _ in range(6)]

    def work(k: int) -> None:
        for _ in range(20):
            run(program, outs[k], k)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for k, out in enumerate(outs):
        assert out[:5].tolist() == [199, 200, 201, 202, 4]
        assert (out[8], out[16]) == (4000 * k, 4000)


@pytest.mark.parametrize("threads", [1, 3, 4])
def test_thread_count_does_not_matter(threads: int) -> None:
    before = pool_module.num_threads()
    try:
        pool_module.set_num_threads(threads)
        test_group(50)
        test_call(100)
    finally:
        pool_module.set_num_threads(before)


def test_executor_is_compiled_once() -> None:
    ProgramBuilder().build()
    before = native.stats.compiled, native.stats.from_disk
    ProgramBuilder().build()
    assert (native.stats.compiled, native.stats.from_disk) == before
    assert executor._entry_point() is executor._entry_point()
