"""The kernel that calls LAPACK for each matrix of a batch, as `schedule` says.

While any task runs, OpenBLAS has one thread: how it sums depends on how many it has,
and batches have tasks of their own. How many it had before is noted, and comes back.
"""

from __future__ import annotations

from functools import cache, partial

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.parts import Args, share
from treadle.backends.cpu.lapack import exponent, pieces, rounds, together, turning
from treadle.backends.cpu.lapack.arguments import item, word
from treadle.backends.cpu.lapack.schedule import (
    BUILT_IN,
    CONSTANT,
    ROUNDS,
    TABLE,
    When,
    Word,
)
from treadle.backends.cpu.lapack.small import ALL, SmallWord, Ways, ways
from treadle.backends.cpu.run.native import Source
from treadle.backends.cpu.run.shared import SHARED
from treadle.trace.routine import MOST_ARGUMENTS, MOST_BLOCKS, Script, Small

_SYMBOL = "lapack_calls"


def source(script: Script, matrices: int) -> Source:
    """The one kernel for all routines, with what so many matrices may need of what it
    has for small ones."""
    small, found = script.small, ways(script, matrices)
    if small is None or found == Ways(True):
        return _source(None, Ways(True))
    return _source(small._replace(sizes=()), found)


def common() -> list[Source]:
    """The kernel that calls LAPACK, with nothing of its own for small matrices."""
    return [_source(None, Ways(True))]


@cache
def _source(small: Small | None, ways: Ways) -> Source:
    if small is None:
        return Source(_SYMBOL, _SYMBOL, partial(emit, _SYMBOL, None, ways))
    name = f"{_SYMBOL}_{small.what}_{small.dtype.name}"
    if ways == ALL:
        return Source(name, name, partial(emit, name, small, ways))
    has = [name for name, given in ways._asdict().items() if given]
    name = "_".join([name, *has])
    within = (_source(small, ALL),)
    return Source(name, name, partial(emit, name, small, ways), within=within)


def emit(symbol: str, small: Small | None, ways: Ways) -> str:
    """The IR text of its module."""
    b = Builder()
    b.declare("void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    if ways.calls:
        _emit_call(b)
        _emit_step(b)
        rounds.emit(b)
        _emit_pin(b)
    if small:
        together.emit(b, small, ways)
    with b.function(
        f'define void @"{symbol}"(ptr %args, i64 %task, i64 %slot) nounwind'
    ):
        if not ways.calls:
            b("call void @together(ptr %args, i64 %task, i64 %slot)")
        else:
            _emit_calls(b, small is not None)
        b("ret void")
    return b.text()


def _emit_calls(b: Builder, may_be_small: bool) -> None:
    """The steps of a script for each matrix, unless these are small."""
    args = Args(b)
    if may_be_small:
        is_small = args(Word.SMALL + SmallWord.IS_SMALL)
        with b.when(b.op(f"icmp ne i64 {is_small}, 0")):
            b("call void @together(ptr %args, i64 %task, i64 %slot)")
            b("ret void")
            b.label(b.fresh_label())
    places = b.op(f"alloca [{MOST_BLOCKS} x ptr]")
    b("call void @pin(ptr %args, i64 1)")
    blocks, steps = args(Word.BLOCKS), args(Word.STEPS)
    table = args.at(TABLE)
    first = item(b, table, b.op(f"mul i64 {blocks}, 3"))
    with b.loop(*share(b, "%task", args(Word.MATRICES), args(Word.TASKS))) as i:
        with b.loop("0", blocks) as block:
            at = item(b, table, b.op(f"mul i64 {block}, 3"))
            base = b.op(f"load ptr, ptr {at}")
            by_matrix = b.op(f"mul i64 {word(b, at, '1')}, {i}")
            by_task = b.op(f"mul i64 {word(b, at, '2')}, %task")
            moved = b.op(f"add i64 {by_matrix}, {by_task}")
            place = b.op(f"getelementptr i8, ptr {base}, i64 {moved}")
            slot = b.op(f"getelementptr ptr, ptr {places}, i64 {block}")
            b(f"store ptr {place}, ptr {slot}")
        status = b.op(f"load ptr, ptr {places}")
        b(f"store i64 0, ptr {status}")
        with b.carrying("0", steps, "1", [("ptr", first)]) as turn:
            step = turn.values[0]
            failed = b.op(f"icmp ne i64 {b.op(f'load i64, ptr {status}')}, 0")
            now = b.op(f"select i1 {failed}, i64 {When.FAILED}, i64 {When.SOUND}")
            when = b.op(f"and i64 {word(b, step, '1')}, {now}")
            done = b.op(f"icmp ne i64 {when}, 0")
            has_parts = b.op(f"icmp eq i64 {word(b, step, '0')}, {ROUNDS}")
            with b.when(b.op(f"and i1 {done}, {has_parts}")):
                b(f"call void @rounds(ptr %args, ptr {step}, ptr {places})")
            is_call = b.op(f"xor i1 {has_parts}, true")
            with b.when(b.op(f"and i1 {done}, {is_call}")):
                b(f"call void @step(ptr {step}, ptr {places})")
            length = b.op(f"mul i64 {word(b, step, '2')}, 3")
            turn.next = [item(b, step, b.op(f"add i64 {length}, 3"))]
    b("call void @pin(ptr %args, i64 -1)")


def _emit_step(b: Builder) -> None:
    """``step``: finds the addresses of the arguments, and calls the routine."""
    with b.function("define internal void @step(ptr %step, ptr %places) noinline"):
        found = b.op(f"alloca [{MOST_ARGUMENTS} x i64]")
        with b.loop("0", str(MOST_ARGUMENTS)) as i:
            # Behind its arguments, Fortran has the lengths of those that are letters.
            b(f"store i64 1, ptr {item(b, found, i)}")
        with b.loop("0", word(b, "%step", "2")) as i:
            at = item(b, "%step", b.op(f"add i64 {b.op(f'mul i64 {i}, 3')}, 3"))
            block, offset = word(b, at, "0"), word(b, at, "1")
            constant = b.op(f"icmp eq i64 {block}, {CONSTANT}")
            some = b.op(f"select i1 {constant}, i64 0, i64 {block}")
            slot = b.op(f"getelementptr ptr, ptr %places, i64 {some}")
            base = b.op(f"load ptr, ptr {slot}")
            place = b.op(f"getelementptr i8, ptr {base}, i64 {offset}")
            own = item(b, at, "1")
            address = b.op(f"select i1 {constant}, ptr {own}, ptr {place}")
            number = b.op(f"ptrtoint ptr {address} to i64")
            b(f"store i64 {number}, ptr {item(b, found, i)}")
        what = word(b, "%step", "0")
        b(f"call void @call(i64 {what}, ptr {found}, ptr %places)")
        b("ret void")


def _emit_call(b: Builder) -> None:
    """``call``: does what has this number, or calls the routine at that address, with
    the arguments at these. places: of the blocks, of which the status is the first."""
    with b.function(
        f"define internal void @call(i64 %what, ptr %found, ptr %places) {SHARED}"
    ):
        for number, emit_one in enumerate(_EMITTERS, 1):
            with b.when(b.op(f"icmp eq i64 %what, {number}")):
                emit_one(_Found(b, "%found"))
        with b.when(b.op(f"icmp uge i64 %what, {len(BUILT_IN)}")):
            routine = b.op("inttoptr i64 %what to ptr")
            given = [word(b, "%found", str(i)) for i in range(MOST_ARGUMENTS)]
            b(f"call void {routine}({', '.join([f'i64 {x}' for x in given])})")
        b("ret void")


class _Found:
    """The arguments of a step that is no call."""

    def __init__(self, b: Builder, found: str) -> None:
        self.b, self.found = b, found

    def pointer(self, i: int) -> str:
        return self.b.op(f"load ptr, ptr {item(self.b, self.found, str(i))}")

    def number(self, i: int) -> str:
        return self.b.op(f"load i64, ptr {self.pointer(i)}")


def _copy(b: Builder, to: str, source: str, nbytes: str) -> None:
    b(
        f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {nbytes},"
        " i1 false)"
    )


def _bytes(args: _Found) -> None:
    _copy(args.b, args.pointer(0), args.pointer(1), args.number(2))


def _swaps(args: _Found) -> None:
    b, (pivots, to, order) = args.b, (args.pointer(i) for i in range(3))

    def at(base: str, i: str) -> str:
        return b.op(f"getelementptr i32, ptr {base}, i64 {i}")

    with b.loop("0", args.number(3)) as i:
        b(f"store i32 {b.op(f'trunc i64 {i} to i32')}, ptr {at(order, i)}")
    with b.loop("0", args.number(4)) as i:
        j = b.op(f"sub i64 {word(b, pivots, i)}, 1")
        b(f"store i32 {b.op(f'trunc i64 {j} to i32')}, ptr {at(to, i)}")
        one, other = at(order, i), at(order, j)
        x, y = b.op(f"load i32, ptr {one}"), b.op(f"load i32, ptr {other}")
        b(f"store i32 {y}, ptr {one}")
        b(f"store i32 {x}, ptr {other}")


def _rows(args: _Found) -> None:
    b, (to, source, order) = args.b, (args.pointer(i) for i in range(3))
    nbytes, scatters = args.number(4), b.op(f"icmp ne i64 {args.number(5)}, 0")
    with b.loop("0", args.number(3)) as i:
        place = b.op(
            f"load i32, ptr {b.op(f'getelementptr i32, ptr {order}, i64 {i}')}"
        )
        wide = b.op(f"sext i32 {place} to i64")
        row = b.op(f"select i1 {scatters}, i64 {wide}, i64 {i}")
        other = b.op(f"select i1 {scatters}, i64 {i}, i64 {wide}")
        first, second = (
            b.op(f"getelementptr i8, ptr {base}, i64 {b.op(f'mul i64 {r}, {nbytes}')}")
            for base, r in ((to, row), (source, other))
        )
        _copy(b, first, second, nbytes)


def _pairs(args: _Found) -> None:
    b, size = args.b, args.number(5)
    for kind, nbytes in (("float", 4), ("double", 8)):
        with b.when(b.op(f"icmp eq i64 {size}, {nbytes}")):
            _pairs_of(args, kind)


def _pairs_of(args: _Found, kind: str) -> None:
    b, (to, values, vectors) = args.b, (args.pointer(i) for i in range(3))
    n, apart = args.number(3), args.number(4)

    def at(base: str, i: str) -> str:
        return b.op(f"getelementptr {kind}, ptr {base}, i64 {i}")

    with b.loop("0", n) as j:
        part = b.op(f"load {kind}, ptr {at(values, j)}")
        signs = []
        for compare in ("ogt", "olt"):
            is_so = b.op(f"fcmp {compare} {kind} {part}, 0.0")
            signs.append((is_so, b.op(f"zext i1 {is_so} to i64")))
        (first, ahead), (second, back) = signs
        real_row = b.op(f"mul i64 {b.op(f'sub i64 {j}, {back}')}, {apart}")
        other_row = b.op(f"mul i64 {b.op(f'add i64 {j}, {ahead}')}, {apart}")
        with b.loop("0", n) as i:
            real = b.op(
                f"load {kind}, ptr {at(vectors, b.op(f'add i64 {real_row}, {i}'))}"
            )
            other = b.op(
                f"load {kind}, ptr {at(vectors, b.op(f'add i64 {other_row}, {i}'))}"
            )
            turned = b.op(f"fneg {kind} {other}")
            either = b.op(f"select i1 {second}, {kind} {turned}, {kind} 0.0")
            imaginary = b.op(f"select i1 {first}, {kind} {other}, {kind} {either}")
            place = b.op(f"add i64 {b.op(f'mul i64 {j}, {n}')}, {i}")
            twice = b.op(f"mul i64 {place}, 2")
            b(f"store {kind} {real}, ptr {at(to, twice)}")
            b(f"store {kind} {imaginary}, ptr {at(to, b.op(f'add i64 {twice}, 1'))}")


def _turned(args: _Found) -> None:
    to, source = args.pointer(0), args.pointer(1)
    *sizes, itemsize = (args.number(i) for i in range(2, 7))
    turning.emit(args.b, turning.Turn(to, source, *sizes), itemsize)


def _exponent(args: _Found) -> None:
    to, numbers = args.pointer(0), args.pointer(1)
    exponent.emit(args.b, to, numbers, args.number(2), args.number(3))


def _finite(args: _Found) -> None:
    exponent.emit_check(args.b, args.pointer(0), args.number(1), args.number(2))


def _nonzero(args: _Found) -> None:
    pieces.emit_nonzero(args.b, args.pointer(0), args.number(1), args.number(2))


def _counted(args: _Found) -> None:
    pieces.emit_counted(args.b, args.pointer(0), args.number(1), args.number(2))


def _failures(args: _Found) -> None:
    pieces.emit_failures(args.b, args.pointer(0), args.number(1))


_EMITTERS = (
    *(_bytes, _swaps, _rows, _pairs, _turned, _exponent, _finite),
    *(_nonzero, _counted, _failures),
)


def _emit_pin(b: Builder) -> None:
    """``pin``: one task more (or less, for -1) that needs OpenBLAS on one thread."""
    with b.function(f"define internal void @pin(ptr %args, i64 %more) {SHARED}"):
        args = Args(b)
        state = args(Word.PINNED, "ptr")
        count, had = item(b, state, "1"), item(b, state, "2")
        b("br label %locking")
        b.label("locking")
        b(f"%pair = cmpxchg ptr {state}, i64 0, i64 1 acquire monotonic")
        b("%locked = extractvalue { i64, i1 } %pair, 1")
        b("br i1 %locked, label %inside, label %locking")
        b.label("inside")
        before = b.op(f"load i64, ptr {count}")
        after = b.op(f"add i64 {before}, %more")
        b(f"store i64 {after}, ptr {count}")
        with b.when(b.op(f"icmp eq i64 {before}, 0")):
            found = b.op(f"call i32 {args(Word.GET_THREADS, 'ptr')}()")
            b(f"store i64 {b.op(f'zext i32 {found} to i64')}, ptr {had}")
        several = b.op(f"icmp sgt i64 {b.op(f'load i64, ptr {had}')}, 1")
        ends = b.op(f"icmp eq i64 {b.op(f'mul i64 {before}, {after}')}, 0")
        with b.when(b.op(f"and i1 {several}, {ends}")):
            back = b.op(f"trunc i64 {b.op(f'load i64, ptr {had}')} to i32")
            last = b.op(f"icmp eq i64 {after}, 0")
            wanted = b.op(f"select i1 {last}, i32 {back}, i32 1")
            b(f"call void {args(Word.SET_THREADS, 'ptr')}(i32 {wanted})")
        b(f"store atomic i64 0, ptr {state} release, align 8")
        b("ret void")
