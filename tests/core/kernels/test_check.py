"""The checker of nests accepts what is sound, and names each rule that is broken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from treadle.errors import InternalError
from treadle.kernels.check import check
from treadle.kernels.nest import BROADCAST, CONTIGUOUS, Instr, Nest, Operand

F, D, N, B = (np.dtype(d) for d in ("float32", "float64", "int32", "bool"))
ARRAY, ROW, INDEX = (
    Operand(F, CONTIGUOUS),
    Operand(F, BROADCAST),
    Operand(N, CONTIGUOUS, "index"),
)
MID = Operand(F, CONTIGUOUS, mid=True)
TABLE = Operand(F, CONTIGUOUS, gathers=1)
CELL = Operand(F, BROADCAST, gathers=1)


def load(k: int, *args: int, dtype: Any = F) -> Instr:
    return Instr("load", args, dtype, k)


def store(k: int, *args: int, name: str = "store", dtype: Any = F) -> Instr:
    return Instr(name, args, dtype, k)


def row(operands: list[Operand], *body: Instr, mid: int = 0) -> Nest:
    return Nest(1, mid, "inner", tuple(operands), body)


def column(operands: list[Operand], *body: Instr) -> Nest:
    return Nest(1, 1, "mid", tuple(operands), body)


X = load(0)
SOUND: dict[str, Nest] = {
    "elementwise": row([ARRAY, ARRAY], X, Instr("exp", (0,), F), store(1, 1)),
    "a row's sum": row([ARRAY, ROW], X, Instr("reduce_sum", (0,), F), store(1, 1)),
    "a column's sum": column(
        [MID, ARRAY], X, Instr("reduce_sum", (0,), F), store(1, 1)
    ),
    "a place": row(
        [ARRAY, Operand(N, BROADCAST)],
        X,
        Instr("reduce_argmax", (0,), N),
        store(1, 1, dtype=N),
    ),
    "a choice": row(
        [ARRAY, ARRAY],
        X,
        Instr("gt", (0, 0), B),
        Instr("select", (1, 0, 0), F),
        store(1, 2),
    ),
    "whether any is": row(
        [ARRAY, Operand(B, BROADCAST)],
        X,
        Instr("gt", (0, 0), B),
        Instr("reduce_or", (1,), B),
        store(1, 2, dtype=B),
    ),
    "a conversion": row(
        [ARRAY, Operand(D, CONTIGUOUS)],
        X,
        Instr("convert", (0,), D),
        store(1, 1, dtype=D),
    ),
    "the same bits": row(
        [ARRAY, Operand(N, CONTIGUOUS)],
        X,
        Instr("bitcast", (0,), N),
        store(1, 1, dtype=N),
    ),
    "a number": row([ARRAY], Instr("const", (), F, 1.0), store(0, 0)),
    "a number in each row": row([ROW], Instr("const", (), F, 1.0), store(0, 0)),
    "a gathered row": row(
        [INDEX, TABLE, ARRAY], load(0, dtype=N), load(1, 0), store(2, 1)
    ),
    "scattered elements": row(
        [INDEX, ARRAY, CELL],
        load(0, dtype=N),
        load(1),
        store(2, 1, 0, name="store_add"),
    ),
    "a running sum": row([ARRAY, ARRAY], X, Instr("running_sum", (0,), F), store(1, 1)),
    "all of a column": column([MID, MID], X, store(1, 0)),
}


@pytest.mark.parametrize("name", SOUND)
def test_what_is_sound_passes(name: str) -> None:
    check(SOUND[name])


def with_sum(*more: Instr) -> Nest:
    return row([ARRAY, ROW], X, Instr("reduce_sum", (0,), F), *more)


WRONG: dict[str, Nest] = {
    "nest axis is 'outer'": Nest(1, 0, "outer", (), ()),
    "row nest has 1 mid dim": row([ARRAY], X, mid=1),
    "operand 1: inner class 4": row([ARRAY, Operand(F, 4)]),
    "operand 0 varies along mid": row([MID]),
    "operand 1: kind 'place'": row([ARRAY, Operand(F, 0, "place")]),
    "instruction 0 .*does not come before": row([ARRAY], Instr("exp", (0,), F)),
    "instruction 1 .*does not come before": row([ARRAY], X, Instr("exp", (-1,), F)),
    "argument is a store": row([ARRAY, ARRAY], X, store(1, 0), Instr("exp", (1,), F)),
    "is not a numpy.dtype": row([ARRAY], Instr("load", (), "float32", 0)),  # type: ignore[arg-type]
    "not the number of an operand": row([ARRAY], load(1)),
    "load, .*not the number of an operand|not the number": row([ARRAY], load(-1)),
    "store without a value": row([ARRAY], store(0)),
    "0 indices for an operand with 1": row([TABLE], load(0)),
    "1 indices for an operand with 0": row(
        [INDEX, ARRAY], load(0, dtype=N), load(1, 0)
    ),
    "an index is not an integer": row([ARRAY, TABLE], X, load(1, 0)),
    "the operand is float32": row([ARRAY], load(0, dtype=D)),
    "the value is float32": row(
        [ARRAY, Operand(D, CONTIGUOUS)], X, store(1, 0, dtype=D)
    ),
    "a store to an index": row([INDEX], load(0, dtype=N), store(0, 0, dtype=N)),
    "all of inner share one place": row([ARRAY, ROW], X, store(1, 0)),
    "2 .*all of inner share": row([ARRAY, ROW], X, Instr("exp", (0,), F), store(1, 1)),
    "3 .*all of inner share": row(
        [ARRAY, Operand(N, BROADCAST, "index"), CELL],
        X,
        load(1, dtype=N),
        load(0),
        store(2, 0, 1),
    ),
    "all of mid share one place": column([MID, ARRAY], X, store(1, 0)),
    "no such reduction": with_sum(Instr("reduce_mean", (0,), F)),
    "a reduction has one argument": with_sum(Instr("reduce_sum", (0, 0), F)),
    "the index is not an integer": with_sum(Instr("reduce_argmin", (0,), F)),
    "the argument is float32": with_sum(Instr("reduce_max", (0,), D)),
    "not defined for float32": with_sum(Instr("reduce_or", (0,), F)),
    "2 .*no arguments": with_sum(Instr("exp", (), F)),
    "no such running reduction": row([ARRAY], X, Instr("running_mean", (0,), F)),
    "running reduction beside a reduction": with_sum(Instr("running_sum", (0,), F)),
    "no such instruction": with_sum(Instr("median", (0,), F)),
    "a predicate's dtype is bool": with_sum(Instr("gt", (0, 0), F)),
    "select takes a bool": with_sum(Instr("select", (0, 0, 0), F)),
    "select takes a bool and two": with_sum(
        Instr("gt", (0, 0), B), Instr("select", (2, 0), F)
    ),
    "different dtypes: float32, bool": with_sum(
        Instr("gt", (0, 0), B), Instr("add", (0, 2), F)
    ),
    "different dtypes: float32, float64": with_sum(
        Instr("gt", (0, 0), B), Instr("convert", (0,), D), Instr("select", (2, 0, 3), F)
    ),
    "float32 has another size": with_sum(Instr("bitcast", (0,), D)),
    "the arguments are float32": with_sum(Instr("exp", (0,), D)),
    "a constant has arguments": with_sum(Instr("const", (0,), F, 1.0)),
}


@pytest.mark.parametrize("words", WRONG)
def test_what_is_broken_is_named(words: str) -> None:
    with pytest.raises(InternalError, match=words):
        check(WRONG[words])


def test_what_is_row_level_may_be_stored_in_rows() -> None:
    """A reduction ends what varies along its loop."""
    check(with_sum(Instr("exp", (1,), F), store(1, 2)))
    mixed = with_sum(Instr("add", (0, 1), F), store(1, 2))
    with pytest.raises(InternalError, match="all of inner"):
        check(mixed)
    body = X, Instr("reduce_sum", (0,), F), Instr("add", (0, 1), F), store(1, 2)
    with pytest.raises(InternalError, match="all of mid"):
        check(column([MID, ARRAY], *body))
    # In a column nest what is summed still varies along inner.
    body = X, Instr("reduce_sum", (0,), F), store(1, 1)
    with pytest.raises(InternalError, match="all of inner"):
        check(column([MID, ROW], *body))
