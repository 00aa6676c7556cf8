"""Calls of kernels as data: what LAPACK does with each matrix of a batch, how the lines
of an array are Fourier transformed, and how attention mixes values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from treadle.arraytype import ArrayType
from treadle.dims import same_shape
from treadle.late import number
from treadle.trace.foreign import Function

_LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}

FUNCTION = "function"
"""The name of the one step that is the call of a function from outside."""

MOST_ARGUMENTS = 20
MOST_BLOCKS = 16


class At(NamedTuple):
    """An address: bytes from the beginning of a block of memory on.

    block: the operands' and results' memory for one matrix, then work memory, counted
      in this order. -1 is the status that LAPACK leaves, 0 if all went well.
    """

    block: int
    offset: int = 0

    def plus(self, nbytes: int) -> At:
        return self._replace(offset=self.offset + nbytes)


STATUS = At(-1)


class Varied(NamedTuple):
    """A whole number or an address that differs among rounds and their parts.

    first: that of the first part of the first round.
    by_round, by_part: what each round and each part adds (bytes to an address).
    most: a whole number is never larger.
    """

    first: int | At
    by_round: int = 0
    by_part: int = 0
    most: int = 1 << 62


Argument = str | int | np.generic | At | Varied | Function
"""A letter, an integer, a number of the matrices' dtype, memory, one that varies (in
`Rounds`), or (of a step that is a function from outside) that function."""


class RoutineCall(NamedTuple):
    """A call of the function of BLAS or LAPACK with this name, or one of these:

    - "bytes" (to, from, how many): copies memory;
    - "swaps" (pivots, to, permutation, n, k): from the k rows with which LAPACK has
      exchanged the first k of n, counted from 1 in 64 bits, to these counted from 0
      (int32), and to the order (int32) that the exchanges amount to;
    - "rows" (to, from, order, n, nbytes, scatters): copies rows of some bytes; row i is
      at ``order[i]``, in what is read, or in what is written if it scatters;
    - "turned" (to, from, rows, columns, apart, stride, itemsize): copies the transpose
      of a matrix, whose rows begin `stride` numbers apart; the result has so many rows
      and columns, and its rows begin `apart` numbers apart;
    - "pairs" (to, values, vectors, n, stride, itemsize): n complex vectors from the
      real ones of LAPACK, `stride` numbers apart; where the imaginary part of a value
      is positive, a vector and the next one are the parts of a conjugate pair;
    - "exponent" (to, numbers, n, itemsize): the power of two that brings the largest of
      n real numbers (as many as vectors have lanes, or more) to between 1 and 2, and
      its inverse; a failure if some are not finite;
    - "finite" (numbers, n, itemsize): a failure if some of n real numbers are not;
    - "nonzero" (numbers, n, itemsize): n real numbers that are less than the unit
      roundoff of numbers around 1 become as large as that;
    - "counted" (to, n, period): n integers of 64 bits that count from 1 up to a period,
      again and again;
    - "failures" (reports, n): a failure if some of n integers of 64 bits are not 0.

    failed: whether it happens only if LAPACK has reported a failure for this matrix.
    needed: 0 if it never happens, for matrices of these sizes.
    sound: whether it happens only if nothing has failed for this matrix.
    leads: of `Rounds`, whether it happens only in the first part of each.
    """

    name: str
    args: tuple[Argument, ...]
    failed: bool = False
    needed: int = 1
    sound: bool = False
    leads: bool = False


class Rounds(NamedTuple):
    """Steps that are done in rounds, one after the other, of parts that do not depend
    on each other: threads take these, as many as there are.

    times: how many rounds.
    parts: of the first round, and what each round adds.
    steps: those of a part, in order.
    needed, sound: as of a `RoutineCall`.
    skipped: if parts do not wait for each other between rounds, either, and a part is
      to do all of its rounds at once, so that what it works on stays in a cache: how
      many rounds the first part leaves out, and how many more each one after it.
    """

    times: int
    parts: tuple[int, int]
    steps: tuple[RoutineCall, ...]
    needed: int = 1
    sound: bool = False
    skipped: tuple[int, int] | None = None

    @property
    def failed(self) -> bool:
        return False

    @property
    def name(self) -> str:
        """Those of what is called."""
        return " ".join([step.name for step in self.steps])


Step = RoutineCall | Rounds


class Small(NamedTuple):
    """What a script does as a whole, for kernels that do it with many small matrices at
    once.

    what, and sizes:
    - "cholesky": n, of n x n matrices;
    - "triangular_solve": n, right sides, and a sum of numbers: 1 if the matrix is on
      the left, 2 if lower, 4 if transposed, 8 if its diagonal counts as ones;
    - "lu": m, n, and the smaller of them, of the transposes of n x m matrices;
    - "lu_solve": n, right sides, and 4 if transposed;
    - "qr": m, n, and columns of Q;
    - "triangle": of QR, R alone: m, n, and its rows.
    """

    what: Literal["cholesky", "triangular_solve", "lu", "lu_solve", "qr", "triangle"]
    dtype: np.dtype
    sizes: tuple[int, ...]


class Script(NamedTuple):
    """What is done for each matrix of a batch (or whatever a function from outside
    takes).

    lead: how many leading axes of all operands and results are those of the batch.
    work: bytes of each block of work memory.
    steps: in order.
    small: what they amount to, if there may be another way.
    """

    lead: int
    work: tuple[int, ...]
    steps: tuple[Step, ...]
    small: Small | None = None

    @property
    def function(self) -> Function | None:
        """The function from outside that it calls, if it does."""
        first = self.steps[0]
        if isinstance(first, Rounds) or first.name != FUNCTION:
            return None
        return first.args[0]  # type: ignore[return-value]

    @property
    def called(self) -> str:
        """The names of the routines that these matrices need, each once, but for what
        only follows a failure."""
        steps = [s for s in self.steps if not s.failed and s.needed != 0]
        return " ".join(dict.fromkeys(" ".join([s.name for s in steps]).split()))

    def times(self, types: Sequence[ArrayType]) -> int:
        """How many matrices there are in operands of these types."""
        return math.prod(types[0].shape[: self.lead])


Kind = Literal["fft", "ifft", "rfft", "irfft"]


class Transform(NamedTuple):
    """Fourier transforms of all lines of an array along one axis.

    kind: "rfft" gives the first half of the spectrum of real numbers, "irfft" takes it.
    dtype: of the real and imaginary parts.
    n: of how many numbers each is.
    power: the results are multiplied by ``n ** -power``.
    outer, inner: how many lines: some in each of some blocks.
    lengths: of a line of the operand and of one of the result.
    between, within: elements of each of the two from one line to the next, and from one
      number of a line to the next.
    """

    kind: Kind
    dtype: np.dtype
    n: int
    power: float
    outer: int
    inner: int
    lengths: tuple[int, int]
    between: tuple[int, int]
    within: tuple[int, int]

    @property
    def called(self) -> str:
        return f"{self.kind} of {self.n}"

    def times(self, types: Sequence[ArrayType]) -> int:
        """How many lines there are."""
        return self.outer * self.inner


class Attention(NamedTuple):
    """Attention (see `treadle.control.attention`), or its derivative.

    query: (batch, queries, heads, depth). key: (keys, shared heads, value depth).
    reach: how many places before and after its own a query sees; None: all.
    masks: their names and shapes.
    """

    dtype: np.dtype
    backward: bool
    query: tuple[int, ...]
    key: tuple[int, ...]
    scale: float
    reach: tuple[int | None, int | None]
    masks: tuple[tuple[str, tuple[int, ...]], ...]
    rate: float

    @property
    def called(self) -> str:
        what = " ".join([name for name, _ in self.masks])
        return f"{'backward' if self.backward else 'forward'} {what}".strip()

    def times(self, types: Sequence[ArrayType]) -> int:
        """How many heads there are."""
        return self.query[0] * self.query[2]

    @property
    def pairs(self) -> int:
        """How many scores of queries and keys are made, but for what blocks waste."""
        queries, keys = self.query[1], self.key[0]
        reach = [queries + keys if n is None else n for n in self.reach]
        seen = number(_pairs, (queries, keys, *reach))
        return self.query[0] * self.query[2] * seen

    @property
    def flops(self) -> int:
        """Products, and for each score a few operations."""
        depth, value_depth = self.query[3], self.key[2]
        if self.backward:
            return self.pairs * (2 * (3 * depth + 2 * value_depth) + 5)
        return self.pairs * (2 * (depth + value_depth) + 3)


def _pairs(queries: int, keys: int, before: int, after: int) -> int:
    places = np.arange(queries) + keys - queries
    first, last = np.maximum(places - before, 0), np.minimum(places + after + 1, keys)
    return int(np.maximum(last - first, 0).sum())


def lead_of(x: ArrayType, rank: int = 2) -> int:
    """How many axes come before the last `rank`."""
    return x.ndim - rank


def nbytes_behind(x: ArrayType, lead: int) -> int:
    """The bytes of one matrix."""
    return math.prod(x.shape[lead:]) * x.dtype.itemsize


def work_bytes(script: Script) -> int:
    """Bytes of work memory for one matrix, the status included."""
    return 64 + sum([lines(n) for n in script.work])


def lines(nbytes: int) -> int:
    """The bytes, up to the end of a cache line."""
    return number(_lines, (nbytes,))


def _lines(nbytes: int) -> int:
    return -(-nbytes // 64) * 64


def least(a: int, b: int) -> int:
    """The smaller of two sizes, which may be open."""
    if same_shape((a,), (b,)):
        return a
    return number(min, (a, b))


def most(a: int, b: int) -> int:
    """The larger of two sizes, which may be open."""
    return number(max, (a, b))


def exceeds(a: int, b: int) -> int:
    """1 if a is larger than b, else 0."""
    return number(_exceeds, (a, b))


def _exceeds(a: int, b: int) -> int:
    return int(a > b)


_SET_BYTES = 512
"""Rows as many bytes apart as some of these fall into few sets of a cache."""


def stride_of(n: int, dtype: np.dtype) -> int:
    """How many numbers apart rows of n are to begin in work memory: LAPACK, which goes
    across them, takes up to twice as long where they fall into few sets of a cache."""
    return number(_stride, (n, dtype.itemsize))


def _stride(n: int, itemsize: int) -> int:
    return n if n * itemsize % _SET_BYTES else n + 64 // itemsize


def blocks_of(n: int, width: int) -> int:
    """How many blocks of this width n columns are; the last one may be narrower."""
    return number(_blocks, (n, width))


def _blocks(n: int, width: int) -> int:
    return -(-n // width)


def copied(
    dtype: np.dtype,
    to: tuple[At, int],
    source: tuple[At, int],
    rows: int,
    columns: int,
    needed: int = 1,
) -> RoutineCall:
    """Copies a matrix. to, source: where, and how many numbers apart rows begin."""
    args = ("A", columns, rows, *source, *to)
    return RoutineCall(named(dtype, "lacpy"), args, needed=needed)


def named(dtype: np.dtype, name: str) -> str:
    """LAPACK's name of a routine for a dtype."""
    return _LETTERS[dtype.name] + name


def nan_if_failed(block: int, t: ArrayType, lead: int) -> RoutineCall:
    """Makes a result not-a-number where LAPACK has failed."""
    size = math.prod(t.shape[lead:])
    return filled(At(block), t, size, 1, t.dtype.type(np.nan), failed=True)


def if_finite(a: ArrayType, lead: int, steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps, for matrices of finite numbers (the first operand) alone; others have
    failed: LAPACK may not come back from them."""
    real = np.finfo(a.dtype).dtype.itemsize
    count = math.prod(a.shape[lead:]) * (a.dtype.itemsize // real)
    guarded = [s if s.failed else s._replace(sound=True) for s in steps]
    return RoutineCall("finite", (At(0), count, real)), *guarded


def if_needed(needed: int, steps: Sequence[Step]) -> list[Step]:
    """The steps, none of which happens if that is 0."""
    return [s._replace(needed=number(_both, (s.needed, needed))) for s in steps]


def _both(a: int, b: int) -> int:
    return int(a and b)


def filled(
    at: At, t: ArrayType, rows: int, columns: int, number: Any, failed: bool = False
) -> RoutineCall:
    """Makes all elements of a block equal: of whole rows, one behind the other."""
    args = ("A", columns, rows, number, number, at, columns)
    return RoutineCall(named(t.dtype, "laset"), args, failed)
