"""Steps that are done in rounds, whose parts the pool's threads share.

The parts of a round are what `schedule` says, however many threads there are: each does
the same with the same numbers. Where the pool is busy, with the other matrices of a
batch, parts are done one after the other.
"""

from __future__ import annotations

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.parts import Args
from treadle.backends.cpu.lapack.arguments import item, word
from treadle.backends.cpu.lapack.schedule import VARIED, When, Word
from treadle.backends.cpu.run.divided import COLD
from treadle.trace.routine import MOST_ARGUMENTS

_WORDS = 5
"""Of an argument."""

_ANY = 1 << 40
"""Parts have no memory by threads: there may be any number of these."""


def emit(b: Builder) -> None:
    """``rounds``: those of a step, on a matrix whose blocks are in these places."""
    b.declare("i64 @llvm.smin.i64(i64, i64)")
    _emit_part(b)
    _emit_whole(b)
    with b.function(
        "define internal void @rounds(ptr %args, ptr %step, ptr %places) " + COLD
    ):
        args, job = Args(b), b.op("alloca [3 x i64]")
        for i, pointer in ((0, "%step"), (1, "%places")):
            b(f"store ptr {pointer}, ptr {item(b, job, str(i))}")
        at_once = b.op(f"icmp ne i64 {word(b, '%step', '7')}, 0")
        times = b.op(f"select i1 {at_once}, i64 1, i64 {word(b, '%step', '3')}")
        first, more = word(b, "%step", "6"), word(b, "%step", "9")
        with b.loop("0", times) as number:
            b(f"store i64 {number}, ptr {item(b, job, '2')}")
            parts = b.op(f"add i64 {first}, {b.op(f'mul i64 {more}, {number}')}")
            for is_so, what in ((at_once, "@whole"), ("", "@part")):
                chosen = is_so or b.op(f"xor i1 {at_once}, true")
                with b.when(chosen):
                    _emit_fork(b, args, what, job, parts)
        b("ret void")


def _emit_fork(b: Builder, args: Args, what: str, job: str, parts: str) -> None:
    pool, fork_join = args(Word.POOL, "ptr"), args(Word.FORK_JOIN, "ptr")
    with b.when(b.op(f"icmp sgt i64 {parts}, 1")):
        b(
            f"call void {fork_join}(ptr {pool}, ptr {what}, ptr {job}, "
            f"i64 {parts}, i64 {_ANY})"
        )
    with b.when(b.op(f"icmp eq i64 {parts}, 1")):
        b(f"call void {what}(ptr {job}, i64 0, i64 0)")


def _emit_whole(b: Builder) -> None:
    """``whole``: all rounds of a part, but for those that it leaves out."""
    b.declare("i64 @llvm.smax.i64(i64, i64)")
    with b.function(
        "define internal void @whole(ptr %job, i64 %part, i64 %slot) " + COLD
    ):
        own = b.op("alloca [3 x i64]")
        for i in range(2):
            given = word(b, "%job", str(i))
            b(f"store i64 {given}, ptr {item(b, own, str(i))}")
        step = b.op("load ptr, ptr %job")
        more = b.op(f"mul i64 {word(b, step, '5')}, %part")
        first = b.op(f"add i64 {word(b, step, '4')}, {more}")
        first = b.op(f"call i64 @llvm.smax.i64(i64 {first}, i64 0)")
        with b.loop(first, word(b, step, "3")) as number:
            b(f"store i64 {number}, ptr {item(b, own, '2')}")
            b(f"call void @part(ptr {own}, i64 %part, i64 %slot)")
        b("ret void")


def _emit_part(b: Builder) -> None:
    """``part``: the steps of one."""
    with b.function(
        "define internal void @part(ptr %job, i64 %part, i64 %slot) " + COLD
    ):
        found = b.op(f"alloca [{MOST_ARGUMENTS} x i64]")
        values = b.op(f"alloca [{MOST_ARGUMENTS} x i64]")
        step, places = (
            b.op(f"load ptr, ptr {item(b, '%job', str(i))}") for i in range(2)
        )
        number, status = word(b, "%job", "2"), b.op(f"load ptr, ptr {places}")
        follows = b.op("icmp ne i64 %part, 0")
        length = word(b, step, "11")
        with b.carrying("0", length, "1", [("ptr", item(b, step, "12"))]) as turn:
            inner = turn.values[0]
            failed = b.op(f"icmp ne i64 {b.op(f'load i64, ptr {status}')}, 0")
            now = b.op(f"select i1 {failed}, i64 {When.FAILED}, i64 {When.SOUND}")
            when = word(b, inner, "1")
            is_now = b.op(f"icmp ne i64 {b.op(f'and i64 {when}, {now}')}, 0")
            leads = b.op(f"icmp ne i64 {b.op(f'and i64 {when}, {When.LEADS}')}, 0")
            others = b.op(f"and i1 {leads}, {follows}")
            count = word(b, inner, "2")
            with b.when(b.op(f"and i1 {is_now}, {b.op(f'xor i1 {others}, true')}")):
                with b.loop("0", str(MOST_ARGUMENTS)) as i:
                    b(f"store i64 1, ptr {item(b, found, i)}")
                with b.loop("0", count) as i:
                    _emit_argument(b, (inner, places, number), i, (found, values))
                what = word(b, inner, "0")
                b(f"call void @call(i64 {what}, ptr {found}, ptr {places})")
            words = b.op(f"add i64 {b.op(f'mul i64 {count}, {_WORDS}')}, 3")
            turn.step, turn.next = words, [item(b, inner, words)]
        b("ret void")


def _emit_argument(
    b: Builder, given: tuple[str, str, str], i: str, to: tuple[str, str]
) -> None:
    """Finds the address of an argument, of a step and for a round of this number.

    to: where addresses go, and numbers that vary.
    """
    (step, places, number), (found, values) = given, to
    at = item(b, step, b.op(f"add i64 {b.op(f'mul i64 {i}, {_WORDS}')}, 3"))
    block, first, by_round, by_part, most = (word(b, at, str(k)) for k in range(_WORDS))
    rounds = b.op(f"mul i64 {by_round}, {number}")
    parts = b.op(f"mul i64 {by_part}, %part")
    moved = b.op(f"add i64 {first}, {b.op(f'add i64 {rounds}, {parts}')}")
    least = b.op(f"call i64 @llvm.smin.i64(i64 {moved}, i64 {most})")
    value = item(b, values, i)
    b(f"store i64 {least}, ptr {value}")
    is_place = b.op(f"icmp sge i64 {block}, 0")
    some = b.op(f"select i1 {is_place}, i64 {block}, i64 0")
    base = b.op(f"load ptr, ptr {b.op(f'getelementptr ptr, ptr {places}, i64 {some}')}")
    place = b.op(f"getelementptr i8, ptr {base}, i64 {moved}")
    varies = b.op(f"icmp eq i64 {block}, {VARIED}")
    constant = b.op(f"select i1 {varies}, ptr {value}, ptr {item(b, at, '1')}")
    address = b.op(f"select i1 {is_place}, ptr {place}, ptr {constant}")
    b(f"store i64 {b.op(f'ptrtoint ptr {address} to i64')}, ptr {item(b, found, i)}")
