"""Blocks of an array with rows and columns exchanged: for vectors that go across rows.

A turned block has a vector of `lanes` elements for each column, one element a row. Pure
moves: elements are integers of their width here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import Value, type_name
from treadle.backends.cpu.run.shared import SHARED

_PIECE = 4
"""Columns that are turned together."""
_DENSE = (2, 3)
"""Numbers of columns that are less than a piece, and have code for whole vectors of
rows that follow each other."""


def turned_in(
    b: Builder,
    width: int,
    lanes: int,
    source: str,
    steps: tuple[str, str],
    columns: str,
    target: str,
) -> None:
    """Fills the turned block `target` with `lanes` rows.

    width: bits of an element. steps: elements between rows, and between columns: if
      these are known to be two, there is code for that. columns: if that is known to be
      one, there is no code for more.
    """
    way, emit = "in", _emit_in
    if columns == "1":
        way, emit = "one_in", _emit_one_in
    elif steps[1] == "2":
        way, emit = "pairs_in", _emit_pairs_in
    _call(b, way, emit, width, lanes, (source, *steps, columns, target))


def turned_out(
    b: Builder,
    width: int,
    lanes: int,
    target: str,
    steps: tuple[str, str],
    columns: str,
    source: str,
) -> None:
    """Writes the turned block `source` to where its elements belong."""
    way, emit = ("one_out", _emit_one_out) if columns == "1" else ("out", _emit_out)
    _call(b, way, emit, width, lanes, (target, *steps, columns, source))


def turned_square(
    b: Builder,
    width: int,
    lanes: int,
    source: str,
    along: int,
    shape: tuple[str, str, str],
    target: str,
) -> None:
    """Fills the turned block `target` with rows of a square.

    along: elements between columns, one or two. shape: elements between rows, how many
      rows, of which the last one fills lanes that are left, and columns.
    """
    step, rows, columns = shape
    name = {1: "square", 2: "paired_square"}[along]
    args = source, step, rows, columns, target
    _call(b, name, lambda t: _emit_square(t, along), width, lanes, args)


def _call(
    b: Builder,
    way: str,
    emit: Callable[[_Turn], None],
    width: int,
    lanes: int,
    args: tuple[str, ...],
) -> None:
    symbol = f"@treadle.turned_{way}.v{lanes}i{width}"
    if symbol not in b.library:
        inner = Builder()
        parameters = "ptr %far, i64 %down, i64 %along, i64 %columns, ptr %at"
        with inner.function(f"define internal void {symbol}({parameters}) {SHARED}"):
            emit(_Turn(inner, f"i{width}", lanes))
            inner("ret void")
        b.library[symbol] = "\n".join(inner.lines)
    kinds = ("ptr", "i64", "i64", "i64", "ptr")
    texts = ", ".join(f"{k} {a}" for k, a in zip(kinds, args, strict=True))
    b(f"call void {symbol}({texts})")


class _Turn:
    """What both ways have in common. %far: the array's first element, with steps %down
    and %along; %at: the turned block."""

    def __init__(self, b: Builder, kind: str, lanes: int) -> None:
        self.b, self.kind, self.lanes = b, kind, lanes
        self.bytes = max(1, int(kind[1:]) // 8)

    def is_(self, how: str, x: str, y: int | str) -> str:
        return self.b.op(f"icmp {how} i64 {x}, {y}")

    def has_pieces(self) -> str:
        return self.is_("sge", "%columns", _PIECE)

    def both(self, x: str, y: str) -> str:
        return self.b.op(f"and i1 {x}, {y}")

    @contextmanager
    def last_resort(self, condition: str) -> Iterator[None]:
        """Runs the body if the i1 is true, and returns."""
        b = self.b
        then, after = b.fresh_label("then"), b.fresh_label("after")
        b(f"br i1 {condition}, label %{then}, label %{after}")
        b.label(then)
        yield
        b("ret void")
        b.label(after)

    def moved(self, pointer: str, count: str | int) -> str:
        return self.b.op(f"getelementptr {self.kind}, ptr {pointer}, i64 {count}")

    def far(self, row: str, column: str) -> str:
        b = self.b
        down, along = b.op(f"mul i64 {row}, %down"), b.op(f"mul i64 {column}, %along")
        return self.moved("%far", b.op(f"add i64 {down}, {along}"))

    def near(self, column: str, row: str = "0") -> str:
        at = self.b.op(f"mul i64 {column}, {self.lanes}")
        return self.moved(
            "%at", at if row == "0" else self.b.op(f"add i64 {at}, {row}")
        )

    def load(self, pointer: str, lanes: int) -> Value:
        of = type_name(self.kind, lanes)
        text = self.b.op(f"load {of}, ptr {pointer}, align {self.bytes}")
        return Value(self.b, text, self.kind, lanes)

    def store(self, value: Value, pointer: str) -> None:
        self.b(f"store {value.type} {value.text}, ptr {pointer}, align {self.bytes}")

    def element_by_element(self, move: Callable[[str, str], None]) -> None:
        """Whatever the steps: gives each element's place in the array, and in the
        block."""
        with self.b.loop("0", str(self.lanes)) as r, self.b.loop("0", "%columns") as c:
            move(self.far(r, c), self.near(c, r))

    @contextmanager
    def pieces(self) -> Iterator[str]:
        """Runs the body for the first columns of pieces. The last one overlaps the one
        before, or goes beyond the columns if there are fewer."""
        b = self.b
        end = b.op(f"sub i64 %columns, {_PIECE}")
        with b.loop("0", "%columns", str(_PIECE)) as c:
            before = b.least(c, end)
            inside = b.op(f"icmp sgt i64 {before}, 0")
            yield b.op(f"select i1 {inside}, i64 {before}, i64 0")

    def row_pointers(self, column: str) -> list[str]:
        """Where the piece begins in each row."""
        pointers = [self.moved("%far", column)]
        while len(pointers) < self.lanes:
            pointers.append(self.moved(pointers[-1], "%down"))
        return pointers

    def last_places(self, pointer: str, column: str, step: int = 1) -> list[str]:
        """The places of the last row's elements, behind which nothing may be touched:
        from there on the last one's."""
        b = self.b
        last = b.op(f"sub i64 %columns, {b.op(f'add i64 {column}, 1')}")
        places = [b.least(str(k), last) for k in range(_PIECE)]
        return [self.moved(pointer, b.op(f"mul i64 {k}, {step}")) for k in places]

    def last_piece(self, pointer: str, column: str, step: int = 1) -> Value:
        """The piece of the last row."""
        of, text = type_name(self.kind, _PIECE), "poison"
        for k, place in enumerate(self.last_places(pointer, column, step)):
            x = self.load(place, 1).text
            text = self.b.op(f"insertelement {of} {text}, {self.kind} {x}, i64 {k}")
        return Value(self.b, text, self.kind, _PIECE)

    def put(self, rows: list[Value], column: str) -> None:
        """Turns pieces of rows, and stores their columns."""
        for k, vector in enumerate(self.turned(self.gathered(rows))):
            self.store(vector, self.moved(self.near(column), k * self.lanes))

    def gathered(self, rows: list[Value]) -> list[Value]:
        """Pieces of rows as vectors: rows q, q + 4, q + 8, ... in the q-th one."""
        vectors = []
        for q in range(_PIECE):
            parts = rows[q::_PIECE]
            while len(parts) > 1:
                pairs = zip(parts[::2], parts[1::2], strict=True)
                parts = [x.shuffle([*range(2 * x.lanes)], y) for x, y in pairs]
            vectors.append(parts[0])
        return vectors

    def scattered(self, vectors: list[Value]) -> list[Value]:
        """The opposite: the piece of each row."""
        found = []
        for r in range(self.lanes):
            first = r - r % _PIECE
            piece = [*range(first, first + _PIECE)]
            found.append(vectors[r % _PIECE].shuffle(piece))
        return found

    def turned(self, vectors: list[Value]) -> list[Value]:
        """Four vectors, with each 4 x 4 block of them turned."""
        n = self.lanes

        def mixed(x: Value, y: Value, order: list[int]) -> Value:
            picks = [c + (k % 4) + n * (k // 4) for c in range(0, n, 4) for k in order]
            return x.shuffle(picks, y)

        low, high = [0, 4, 1, 5], [2, 6, 3, 7]
        halves = [
            mixed(vectors[k], vectors[k + 1], how)
            for k in (0, 2)
            for how in (low, high)
        ]
        first, second, third, fourth = halves
        return [
            mixed(x, y, how)
            for x, y in ((first, third), (second, fourth))
            for how in ([0, 1, 4, 5], [2, 3, 6, 7])
        ]


def _is_dense(t: _Turn, columns: int) -> str:
    """Whether there are so many columns, and rows follow each other."""
    wide, far = t.is_("eq", "%columns", columns), t.is_("eq", "%down", columns)
    return t.both(t.is_("eq", "%along", 1), t.both(wide, far))


def interleaved(vectors: Sequence[Value], picks: Sequence[int]) -> Value:
    """Lanes of several vectors, numbered one vector after the other."""
    n, found = vectors[0].lanes, vectors[0]
    for k, other in enumerate(vectors[1:], 1):
        have = range(k * n)
        order = [
            (lane if k > 1 else p) if p in have else n + p % n if p < (k + 1) * n else 0
            for lane, p in enumerate(picks)
        ]
        found = found.shuffle(order, other)
    return found


def turned_columns(vectors: Sequence[Value]) -> list[Value]:
    """The columns of rows that follow each other, of as many elements as there are
    vectors of them."""
    count, n = len(vectors), vectors[0].lanes
    if count == 1:
        return [*vectors]
    step = _least_factor(count)
    groups = [vectors[k : k + step] for k in range(0, count, step)]
    parts = [
        turned_columns([interleaved(g, range(r, step * n, step)) for g in groups])
        for r in range(step)
    ]
    return [column for columns in zip(*parts, strict=True) for column in columns]


def turned_rows(columns: Sequence[Value]) -> list[Value]:
    """The opposite: rows that follow each other, as vectors."""
    count, n = len(columns), columns[0].lanes
    if count == 1:
        return [*columns]
    step = _least_factor(count)
    parts = [turned_rows(columns[r::step]) for r in range(step)]
    order = [p % step * n + p // step for p in range(step * n)]
    return [
        interleaved(group, order[k : k + n])
        for group in zip(*parts, strict=True)
        for k in range(0, step * n, n)
    ]


def shuffles(count: int) -> int:
    """How many shuffles a vector rows of so many elements take: one less than each
    prime factor."""
    if count == 1:
        return 0
    step = _least_factor(count)
    return step - 1 + shuffles(count // step)


def _least_factor(count: int) -> int:
    return next(k for k in range(2, count + 1) if count % k == 0)


def _emit_in(t: _Turn) -> None:
    b, lanes = t.b, t.lanes
    for n in _DENSE:
        with t.last_resort(_is_dense(t, n)):
            rows = [t.load(t.moved("%far", k * lanes), lanes) for k in range(n)]
            for column in range(n):
                picks = [r * n + column for r in range(lanes)]
                t.store(interleaved(rows, picks), t.near(str(column)))
    _emit_repeated_in(t)
    along = t.is_("eq", "%along", 1)

    # A piece that goes beyond its row ends before the last row does.
    reach = t.is_("sge", b.op("add i64 %down, %columns"), _PIECE)
    fits = b.op(f"or i1 {t.has_pieces()}, {reach}")
    with t.last_resort(t.both(along, fits)), t.pieces() as c:
        *most, last = t.row_pointers(c)
        t.put([*[t.load(p, _PIECE) for p in most], t.last_piece(last, c)], c)
    t.element_by_element(lambda far, near: t.store(t.load(far, 1), near))


def _emit_one_in(t: _Turn) -> None:
    _emit_repeated_in(t)
    t.element_by_element(lambda far, near: t.store(t.load(far, 1), near))


def _emit_repeated_in(t: _Turn) -> None:
    """One row again and again, and rows that lie side by side."""
    b, lanes = t.b, t.lanes
    with t.last_resort(t.is_("eq", "%down", 0)), b.loop("0", "%columns") as c:
        t.store(t.load(t.far("0", c), 1).splat(lanes), t.near(c))
    with t.last_resort(t.is_("eq", "%down", 1)), b.loop("0", "%columns") as c:
        t.store(t.load(t.far("0", c), lanes), t.near(c))


def _emit_pairs_in(t: _Turn) -> None:
    """Every second element of rows: parts of complex numbers."""
    b = t.b
    # A piece that goes beyond its row ends before the last row does.
    reach = t.is_("sge", b.op(f"add i64 %down, {b.op('mul i64 %columns, 2')}"), 8)
    forward = t.both(t.is_("sgt", "%down", 0), reach)
    fits = b.op(f"or i1 {t.has_pieces()}, {forward}")

    def piece(row: str) -> Value:
        low, high = (t.load(t.moved(row, k), _PIECE) for k in (0, _PIECE - 1))
        return low.shuffle([0, 2, 5, 7], high)

    with t.last_resort(fits), t.pieces() as c:
        *most, last = t.row_pointers(b.op(f"mul i64 {c}, 2"))
        t.put([*[piece(row) for row in most], t.last_piece(last, c, 2)], c)
    t.element_by_element(lambda far, near: t.store(t.load(far, 1), near))


def _emit_out(t: _Turn) -> None:
    b, lanes = t.b, t.lanes
    for n in _DENSE:
        with t.last_resort(_is_dense(t, n)):
            columns = [t.load(t.near(str(c)), lanes) for c in range(n)]
            for k in range(n):
                written = range(k * lanes, (k + 1) * lanes)
                picks = [p % n * lanes + p // n for p in written]
                t.store(interleaved(columns, picks), t.moved("%far", k * lanes))
    _emit_side_by_side_out(t)
    along = t.is_("eq", "%along", 1)

    # What goes beyond a row is written again by the next one.
    fits = b.op(f"or i1 {t.has_pieces()}, {t.is_('eq', '%down', '%columns')}")
    with t.last_resort(t.both(along, fits)), t.pieces() as c:
        start = t.near(c)
        columns = [t.load(t.moved(start, k * lanes), lanes) for k in range(_PIECE)]
        *rows, last = t.scattered(t.turned(columns))
        *most, end = t.row_pointers(c)
        for row, place in zip(rows, most, strict=True):
            t.store(row, place)
        # Where there are fewer columns, the last of these comes last.
        places = t.last_places(end, c)
        for k in reversed(range(_PIECE)):
            t.store(last.lane(k), places[k])
    t.element_by_element(lambda far, near: t.store(t.load(near, 1), far))


def _emit_one_out(t: _Turn) -> None:
    _emit_side_by_side_out(t)
    t.element_by_element(lambda far, near: t.store(t.load(near, 1), far))


def _emit_side_by_side_out(t: _Turn) -> None:
    b, lanes = t.b, t.lanes
    with t.last_resort(t.is_("eq", "%down", 1)), b.loop("0", "%columns") as c:
        t.store(t.load(t.near(c), lanes), t.far("0", c))


def _emit_square(t: _Turn, along: int) -> None:
    """%along is the number of rows here."""
    b, lanes = t.b, t.lanes
    last = b.op("sub i64 %along, 1")
    rows = []
    for k in range(lanes):
        row = b.least(str(k), last)
        rows.append(t.moved("%far", b.op(f"mul i64 {row}, %down")))

    def piece(row: str) -> Value:
        if along == 1:
            return t.load(row, _PIECE)
        low, high = (t.load(t.moved(row, k), _PIECE) for k in (0, _PIECE - 1))
        return low.shuffle([0, 2, 5, 7], high)

    with t.last_resort(t.has_pieces()), t.pieces() as c:
        offset = c if along == 1 else b.op(f"mul i64 {c}, {along}")
        t.put([piece(t.moved(row, offset)) for row in rows], c)
    with b.loop("0", "%columns") as c:
        offset = c if along == 1 else b.op(f"mul i64 {c}, {along}")
        for k, row in enumerate(rows):
            t.store(t.load(t.moved(row, offset), 1), t.near(c, str(k)))
