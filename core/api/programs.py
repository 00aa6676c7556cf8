"""The programs of a jitted function: looked up, bound to sizes, or traced anew."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any
from weakref import ref

from treadle import tree
from treadle.api.args import argument, name_of
from treadle.api.axes import Axes, Named, Pattern, Seen, place
from treadle.api.captured import Kept, described, is_light, warn_of
from treadle.api.entry import Entry, Recent, begin, trace_entry
from treadle.api.report import MOST_ROWS, Arguments, ProgramReport, Report
from treadle.api.sizes import SizedTrace, can_vary, trace_sized
from treadle.arraytype import ArrayType
from treadle.errors import at, user_source, warn
from treadle.events import traced, tracing
from treadle.run.eager import EagerInterpreter
from treadle.trace.axes import axes_in_scope
from treadle.trace.effects import Memory
from treadle.trace.interpreter import state
from treadle.trace.value import Tracer
from treadle.trace.variables import Variable

MOST_ENTRIES = 256
"""How many sets of types, with sizes, a function keeps programs for."""

MOST_FAMILIES = 64
"""How many sets of types without sizes it keeps in mind."""

MOST_SIZED = 8
"""A function whose sizes were left open that often, and which needs more programs
still, is one that is made for each size."""

MOST_PATTERNS = 4
"""For how many of these, at arguments of one structure, sizes are found quickly."""

MOST_KEPT = 8
"""For how many earlier values of variables from outside programs are kept."""

MOST_NOTES = 8

_TOO_MANY = """\
{} would be traced once more, but max_compiles={}{}
{}
Programs so far:
{}
Pass what changes as an array or a number; keep its shape, dtype and structure; or \
allow more programs."""


_TOO_LARGE = """\
{}: temporaries take {} bytes, more than memory_limit={}, for the sizes {}: what is \
computed again was chosen for the sizes that were traced. `dynamic=False` makes a \
program for each size."""


class _Family:
    """What is known of calls that differ in sizes only.

    traces: programs whose sizes are open, by which axes are.
    static: why sizes are not left open, if they are not.
    fixed: gives a program for one set of sizes, if there is one still.
    exceptions: how many sizes have programs of their own, though others are open.
    """

    def __init__(self, axes: Named | Seen | None) -> None:
        self.axes = axes
        self.traces: dict[tuple, list[SizedTrace]] = {}
        self.static = ""
        self.fixed: Callable[[], Entry | None] = lambda: None
        self.exceptions = 0

    @property
    def count(self) -> int:
        return sum(map(len, self.traces.values()))


class _Made:
    """The programs that were made while variables from outside had certain values."""

    def __init__(self) -> None:
        self.entries = Recent(MOST_ENTRIES)
        self.families = Recent(MOST_FAMILIES)
        self.patterns = Recent(MOST_FAMILIES)

    def clear(self) -> None:
        self.entries.clear()
        self.families.clear()
        self.patterns.clear()


class Programs:
    """The programs of a function.

    donated: from the structure of (args, kwargs) to the leaves that are given up.
    dynamic: names of axes by argument; True to leave those sizes open that are seen to
      vary; False for a program of each.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        donated: Callable[[tree.Structure], Sequence[int]],
        dynamic: Mapping[str, Any] | bool,
        max_compiles: int | None,
        memory_limit: int | None = None,
    ) -> None:
        self._function, self._donated = function, donated
        self._named = None if isinstance(dynamic, bool) else Named(function, dynamic)
        self._automatic = dynamic is True
        if max_compiles is not None and not (
            isinstance(max_compiles, int) and max_compiles > 0
        ):
            raise ValueError(
                f"max_compiles={max_compiles!r}: a number of programs, at least 1, or "
                f"None for any number{at(user_source())}"
            )
        if memory_limit is not None and not (
            isinstance(memory_limit, int) and memory_limit > 0
        ):
            raise ValueError(
                f"memory_limit={memory_limit!r}: a whole number of bytes, at least 1, "
                f"or None for any number{at(user_source())}"
            )
        self._most, self._limit = max_compiles, memory_limit
        self.kept = Kept(_Made())
        """What holds for the values that variables from outside have now."""
        self._earlier: list[Kept] = []
        self._memory = Memory()
        self._rows: deque[ProgramReport] = deque(maxlen=MOST_ROWS)
        self._notes: deque[str] = deque(maxlen=MOST_NOTES)
        self._traces = 0
        self._lock = threading.RLock()

    def now(self) -> Kept:
        """What holds for the values that variables from outside have now."""
        kept = self.kept
        if kept.same is None or kept.same():
            return kept
        with self._lock:
            changes = self.kept.changes()
            if changes:
                self._change(changes)
            return self.kept

    def _change(self, changes: Sequence[tuple[Variable, Any]]) -> None:
        """Variables have other values: looks for what was made for these, if any."""
        before = self.kept
        if is_light([x for v, now in changes for x in (v.value, now)]):
            self._earlier = [before, *self._earlier][:MOST_KEPT]
        else:
            # Big values would be kept alive with what was made for them.
            self._earlier = []
        known = [k for k in self._earlier if k is not before and not k.changes()]
        self.kept = known[0] if known else Kept(_Made(), described(changes))
        self._earlier = [k for k in self._earlier if k is not self.kept]
        warn_of(changes, name_of(self._function), self._memory.told)

    def find(
        self,
        kept: Kept,
        form: tree.Structure,
        types: Sequence[ArrayType],
        statics: tuple,
    ) -> Entry:
        """The entry for arguments of these types.

        Raises:
          TypeError: if a static value is not hashable.
          RuntimeError: if it would be one more than are allowed.
        """
        inside = not isinstance(state.interpreter, EagerInterpreter)
        # What the function does may depend on the names and sizes of mapped axes.
        axes = tuple(axes_in_scope().values()) if inside else ()
        key = (form, tuple(types), statics, tree.kind_of(statics), axes)
        made: _Made = kept.made
        try:
            entry = made.entries.get(key)
        except TypeError:
            raise TypeError(self._unhashable(statics)) from None
        if entry is not None and not (inside and entry.is_bound):
            return entry
        if inside:
            return self._inside(kept, key, form, types, statics)
        # Of two threads that need the same, one makes it. (A trace calls none of those
        # that wait here: what it calls is traced into it, by `_inside`.)
        with self._lock:
            entry = made.entries.get(key)
            if entry is None:
                entry = self._again(made, key) or self._made(made, form, types, statics)
                kept.add(entry.variables)
                # A captured tracer belongs to this call alone.
                if not _captures_tracers(entry):
                    made.entries.put(key, entry)
        return entry

    def clear(self) -> None:
        """Forgets everything but the report."""
        self.kept.made.clear()
        self.kept = Kept(_Made())
        self._earlier = []

    def report(self, name: str) -> Report:
        """What was compiled so far."""
        return Report(name, tuple(self._rows), self._traces, tuple(self._notes))

    def _inside(
        self,
        found: Kept,
        key: tuple,
        form: tree.Structure,
        types: Sequence[ArrayType],
        statics: Any,
    ) -> Entry:
        """The entry for a call inside of another transform: it is part of what is
        traced there, with the sizes that are open there."""
        scope = state.scope
        made: _Made = found.made
        kept = scope.staged.get((made, key)) if scope is not None else None
        # (A program for given sizes is of a graph in which they are open.)
        kept = kept or made.entries.get((key, "inside"))
        if kept is not None:
            return kept
        name, reason = name_of(self._function), "it was called inside of a transform"
        tracing(name, reason)
        began = perf_counter()
        given = Arguments(self._function, form, types, statics)
        entry = self._trace(given, types)
        found.add(entry.variables)
        traced(name, str(given), reason, perf_counter() - began)
        entry.row = ProgramReport("", reason)
        if not _captures_tracers(entry):
            # Sizes that are open belong to one trace, and so does what they are in.
            if scope is not None:
                scope.staged[made, key] = entry
            else:
                made.entries.put((key, "inside"), entry)
        return entry

    def _again(self, made: _Made, key: tuple) -> Entry | None:
        """The entry for arguments that differ in open sizes alone from earlier ones."""
        form, types, statics, kind, _ = key
        for pattern, known in made.patterns.get((form, statics, kind)) or ():
            sizes = pattern.sizes(types)
            if sizes and can_vary(sizes):
                for trace in known:
                    if trace.admits(tuple(sizes.values())):
                        return self._bound(trace, sizes, pattern)
        return None

    def rebound(self, entry: Entry, types: Sequence[ArrayType]) -> Entry | str:
        """The entry for other sizes of the axes that the user has named, of the same
        trace; why it does not hold for them, or nothing if sizes are not open."""
        if self._named is None or entry.sized is None:
            return ""
        trace, pattern = entry.sized
        sizes = pattern.sizes(types)
        if not sizes:
            return ""
        given = tuple(sizes.values())
        if can_vary(sizes) and trace.admits(given):
            return self._bound(trace, sizes, pattern)
        guard = trace.failing(given)
        return f"the program was traced for sizes with {guard}" if guard else ""

    def _made(
        self,
        made: _Made,
        form: tree.Structure,
        types: Sequence[ArrayType],
        statics: tuple,
    ) -> Entry:
        family = self._family(made, form, types, statics)
        given = Arguments(self._function, form, types, statics)
        if isinstance(family.axes, Seen):
            family.axes.see(types)
        if family.axes is None:
            return self._static(given, self._reason(given))
        axes = self._axes(family, form, types)
        sizes = family.axes.sizes(axes, types, form)
        if not can_vary(sizes):
            entry = self._static(given, self._reason(given))
            family.fixed = ref(entry)
            return entry
        pattern = tuple(
            [
                (tuple([a or n for a, n in zip(names, t.shape, strict=True)]))
                for names, t in zip(axes, types, strict=True)
            ]
        )
        known = family.traces.setdefault(pattern, [])
        like = form, statics, tree.kind_of(statics)
        patterns = made.patterns.get(like) or ()
        newest = Pattern(axes, types)
        if all(traces is not known for _, traces in patterns):
            made.patterns.put(like, ((newest, known), *patterns[: MOST_PATTERNS - 1]))
        for trace in known:
            if trace.admits(tuple(sizes.values())):
                return self._bound(trace, sizes, newest)
        return self._sized(family, known, given, axes, sizes)

    def _family(
        self,
        made: _Made,
        form: tree.Structure,
        types: Sequence[ArrayType],
        statics: tuple,
    ) -> _Family:
        ranks = tuple([(t.dtype, t.weak, t.ndim) for t in types])
        key = (form, ranks, statics, tree.kind_of(statics))
        family = made.families.get(key)
        if family is None:
            seen = Seen(types) if self._automatic else None
            family = _Family(self._named or seen)
            made.families.put(key, family)
        return family

    def _axes(
        self, family: _Family, form: tree.Structure, types: Sequence[ArrayType]
    ) -> list[Axes]:
        if isinstance(family.axes, Named):
            return family.axes.of(form, types)
        assert family.axes is not None
        return family.axes.of(
            types, lambda leaf, i: f"{place(self._function, form, leaf)}.shape[{i}]"
        )

    # Traces

    def _static(self, given: Arguments, reason: str) -> Entry:
        """A program for one set of sizes."""
        self._check_count(reason)
        begin()
        began = perf_counter()
        entry = self._trace(given, given.types)
        row = ProgramReport(str(given), reason, given=given)
        row.trace_seconds = perf_counter() - began
        return self._listed(entry, row)

    def _sized(
        self,
        family: _Family,
        known: list[SizedTrace],
        given: Arguments,
        axes: Sequence[Axes],
        sizes: dict[str, int],
    ) -> Entry:
        """A program whose sizes are open; for these sizes alone if that can't be."""
        reason = self._reason(given)
        if known:
            guard = known[-1].failing(tuple(sizes.values()))
            where = f" at {guard.source}" if guard and guard.source else ""
            reason += f": it does not hold that {guard}{where}" if guard else ""
        if self._automatic and not family.static and family.count >= MOST_SIZED:
            self._give_up(
                family,
                f"{MOST_SIZED} programs were traced for sizes that vary, and more are "
                f"needed ({reason}): from now on there is a program for each size",
            )
        if family.static:
            return self._static(given, reason)
        self._check_count(reason)
        begin()
        if fixed := family.fixed():
            fixed.expect_sizes()
        began = perf_counter()
        try:
            trace = trace_sized(
                lambda types: self._trace(given, types),
                given.types,
                axes,
                sizes,
                self._named is not None,
                known,
            )
        except Exception as error:
            if self._named is not None:
                given_sizes = [f"{name} = {n}" for name, n in sizes.items()]
                error.add_note(f"In this call, {', '.join(given_sizes)}.")
                raise
            said = (str(error).splitlines() or [""])[0]
            refused = f"that failed with {type(error).__name__}: {said}"
        else:
            seconds = perf_counter() - began - trace.compile_seconds
            self._list_sized(trace, given, reason, seconds)
            known.append(trace)
            return self._bound(trace, sizes, Pattern(axes, given.types))
        # If the function is at fault, this raises its error, with numbers for sizes.
        if known and family.exceptions < MOST_SIZED:
            # What serves other sizes goes on to do so.
            family.exceptions += 1
            return self._static(
                given, f"{reason}; for this size alone, since {refused}"
            )
        entry = self._static(given, reason)
        self._give_up(family, f"sizes are not left open, since {refused}")
        return entry

    def _give_up(self, family: _Family, why: str) -> None:
        family.static = why
        self._notes.append(why)

    def _list_sized(
        self, trace: SizedTrace, given: Arguments, reason: str, seconds: float
    ) -> None:
        captured = len(trace.entry.captured)
        types = trace.entry.graph.in_types[captured:]
        row = ProgramReport(
            str(Arguments(given.function, given.form, types, given.statics)),
            reason,
            symbolic=True,
            guards=tuple(trace.scope.all_guards()),
            trace_seconds=seconds,
            compile_seconds=trace.compile_seconds,
            given=given,
        )
        self._listed(trace.entry, row)

    def _bound(
        self, trace: SizedTrace, sizes: dict[str, int], pattern: Pattern
    ) -> Entry:
        row = trace.entry.row
        began = perf_counter()
        entry = trace.bind(tuple(sizes.values()))
        entry.sized = trace, pattern
        row.bind_seconds += perf_counter() - began
        needed = entry.program.temporaries
        if self._limit is not None and needed > self._limit:
            warn(_TOO_LARGE.format(name_of(self._function), needed, self._limit, sizes))
        row.sizes += 1
        return entry

    def _trace(self, given: Arguments, types: Sequence[ArrayType]) -> Entry:
        donated = self._donated(given.form)
        entry = trace_entry(
            self._function, given.form, types, given.statics, donated, self._memory
        )
        entry.memory_limit = self._limit
        return entry

    def _listed(self, entry: Entry, row: ProgramReport) -> Entry:
        entry.row = row
        row.branches = entry.branches
        self._rows.append(row)
        self._traces += 1
        name = name_of(self._function)
        traced(name, row.signature, row.reason, row.trace_seconds)
        return entry

    # Words

    def _reason(self, given: Arguments) -> str:
        """Why something is traced that was not before."""
        if not self._rows:
            return "it is the first call"
        earlier = [row.given for row in self._rows if row.given is not None]
        change = given.change(earlier)
        return change or self.kept.why or "its program was forgotten"

    def _check_count(self, reason: str) -> None:
        tracing(name_of(self._function), reason)
        if self._most is None or self._traces < self._most:
            return
        raise RuntimeError(
            _TOO_MANY.format(
                name_of(self._function),
                self._most,
                at(user_source()),
                f"What changed: {reason}",
                "\n".join([f"  {r.signature}" for r in self._rows]),
            )
        )

    def _unhashable(self, statics: tuple) -> str:
        for name, value in statics:
            try:
                hash(value)
            except TypeError:
                where = argument(self._function, (name,))
                return (
                    f"static {where} is not hashable: {value!r:.60}"
                    f"{at(user_source())}\n"
                    "Use a tuple instead of a list, and a frozen dataclass "
                    "instead of a dict; arrays can't be static."
                )
        return "a static value is not hashable"


def _captures_tracers(entry: Entry) -> bool:
    return any(isinstance(c, Tracer) for c in entry.captured)
