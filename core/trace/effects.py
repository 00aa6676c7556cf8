"""What a traced function does besides computing, which happens once for each trace and
not in each run: changes of what is outside, random numbers, clocks. The user is warned.

What may happen is read off the code, which costs little. What did happen is seen by
comparing before and after, for a warning is worth nothing if it is often wrong.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Collection, Iterable
from types import FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from treadle import tree
from treadle.errors import SideEffectWarning, at, warn
from treadle.trace.hidden import Hidden
from treadle.trace.outside import ATOMS, are_owned, contents, is_foreign, same_contents
from treadle.trace.paths import label_of
from treadle.trace.reach import Reach, Site
from treadle.trace.reads import Change
from treadle.trace.value import NUMBERS, Tracer
from treadle.trace.variables import MISSING

MOST_OBJECTS = 1000
"""Containers that are looked at, in all."""

MOST_INSIDE = 1000
"""Items of a container that are looked into."""

MOST_BYTES = 1 << 24
"""Arrays of NumPy's are compared up to this size."""

ONCE_A_TRACE = "when it is traced, not each time it runs"
ONCE_A_LOOP = "when it is traced, once for all iterations"

_CHANGED = """\
{name} changes {what}: that happens {when}{at}
{remedy}"""
_RETURN = """\
Return the new value. For what Python is to do in each run: \
`td.debug.callback(function, *arrays)`."""
_COLLECT = """\
Carry it: let the body take it and return the new value; or collect values as what \
`td.scan` stacks."""
_RANDOM = """\
{name} draws a random number by `{what}`: that happens {when}, which then all have the \
same number{at}
Draw from a key that is an argument: `rng.normal(key, shape)`; or draw outside, and \
pass what you drew."""
_CLOCK = """\
{name} asks a clock by `{what}`: that happens {when}{at}
Ask outside, around the call; or in each run: \
`td.debug.callback(lambda: print(time.time()))`."""


class _Before(NamedTuple):
    """A container as it was. label: the variable through which it is reached."""

    x: Any
    label: str
    contents: Any


class _Open(threading.local):
    def __init__(self) -> None:
        self.watches: list[Watch] = []


_open = _Open()


class Memory:
    """What is remembered from one trace of a function to the next.

    told: lines of which the user was warned.
    """

    def __init__(self) -> None:
        self.told: set[str] = set()
        self._reach: Reach | None = None
        self._of: Any = None

    def reach(self, function: Any, kinds: Collection[type], own: Any) -> Reach:
        """What the function reaches."""
        known = self._reach
        if known is None or self._of != (kinds, id(own)) or not known.holds():
            known = self._reach = Reach(function, kinds, own)
            self._of = kinds, id(own)
        return known


class Watch:
    """For the block in which a function is traced: warns of what it does besides."""

    def __init__(
        self,
        function: Any,
        name: str,
        when: str = ONCE_A_TRACE,
        memory: Memory | None = None,
        kinds: Collection[type] = (),
        own: Any = None,
    ) -> None:
        """
        Args:
          when: things happen. memory: of earlier traces.
          kinds: classes of the arguments. own: the first one, if that is known.
        """
        self._name, self._when = name, when
        self._memory = memory or Memory()
        self.reach: Reach = _NOTHING
        around = _open.watches
        # Who owns variables looks for changes himself.
        if memory is not None or (
            not are_owned() and (not around or around[-1].reach.changes)
        ):
            self.reach = self._memory.reach(function, kinds, own)
        self._before: dict[int, _Before] = {}
        self._states: list[tuple[Hidden, Any]] = []
        self._calls: dict[str, str] = {}
        self._profiled = False

    def __enter__(self) -> Watch:
        reach = self.reach
        _open.watches.append(self)
        if reach.changes:
            self._look()
        if reach.hidden:
            self._listen()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._profiled:
            sys.setprofile(None)
        _open.watches.pop()
        if kind is None:
            self._check_draws()
            self._check_variables()
            self._check_containers()

    def _listen(self) -> None:
        asked = []
        for hidden in self.reach.hidden:
            if hidden.generator is not None:
                self._states.append((hidden, _state(hidden.generator)))
            elif hidden.source not in self._memory.told:
                asked.append(hidden)
        if asked and sys.getprofile() is None:
            self._profiled = True
            sys.setprofile(_Calls(asked, self._calls))

    # Before

    def _look(self) -> None:
        for site in self.reach.sites:
            self._add(site.label, site.value, True)
            self._add(site.label.rpartition(".")[0], site.holder, False)
        if self.reach.aliases:
            for path, value in self.reach.values:
                self._add(label_of(path), value, True)

    def _add(self, label: str, x: Any, deep: bool) -> None:
        top, todo = x, deque([x])
        while todo and len(self._before) < MOST_OBJECTS:
            x = todo.popleft()
            if isinstance(x, ATOMS) and not (x is top and isinstance(x, type)):
                continue
            if id(x) in self._before:
                continue
            found = _contents(x)
            if found is None and type(x) is not tuple:
                continue
            self._before[id(x)] = _Before(x, label, found)
            if deep and not isinstance(x, ModuleType | type):
                items: Iterable[Any] = x if found is None else found
                if isinstance(items, dict):
                    items = items.values()
                if not isinstance(items, bytes):
                    todo += [i for _, i in zip(range(MOST_INSIDE), items, strict=False)]

    # After

    def _check_draws(self) -> None:
        for source, call in self._calls.items():
            hidden = next(h for h in self.reach.hidden if h.call == call)
            self._tell(_CLOCK if hidden.kind == "clock" else _RANDOM, call, source)
        for hidden, before in self._states:
            if _state(hidden.generator) != before:
                self._tell(_RANDOM, hidden.call, hidden.source)

    def _check_variables(self) -> None:
        for store, variable in self.reach.stores:
            now = variable.now()
            if now is variable.value:
                continue
            if not (store.asks and _is_made_once(variable.value, now)):
                self._tell(_CHANGED, variable.label, store.source)

    def _check_containers(self) -> None:
        for before in self._before.values():
            if before.contents is None:
                continue
            now = _contents(before.x)
            if same_contents(before.contents, now):
                continue
            change = self._line(before)
            if change is not None and not _is_cache(before, now, change):
                self._tell(_CHANGED, f"`{before.label}`", change.source)

    def _line(self, before: _Before) -> Change | None:
        """The line that may have changed a container."""
        own = [s for s in self.reach.sites if _is_at(s, before)]
        if own:
            return own[0].change
        return self.reach.aliases[0] if self.reach.aliases else None

    def _tell(self, text: str, what: str, source: str) -> None:
        told = [watch._memory.told for watch in (self, *_open.watches)]
        if any(source in lines for lines in told):
            return
        for lines in told:
            lines.add(source)
        remedy = _COLLECT if self._when == ONCE_A_LOOP else _RETURN
        said = text.format(
            name=self._name, what=what, when=self._when, at=at(source), remedy=remedy
        )
        warn(said, SideEffectWarning, source)


_NOTHING = Reach(None)


def _is_at(site: Site, before: _Before) -> bool:
    if site.value is before.x or site.holder is before.x:
        return True
    return site.label == before.label


class _Calls:
    """Notes the user's lines that call certain functions."""

    def __init__(self, asked: list[Hidden], found: dict[str, str]) -> None:
        self._by = {id(h.function): h.call for h in asked}
        self._codes = {
            h.function.__code__: h.call
            for h in asked
            if type(h.function) is FunctionType
        }
        self._names = {h.function.__name__: h for h in asked}
        self._found = found

    def __call__(self, frame: FrameType, event: str, x: Any) -> None:
        caller: FrameType | None = frame
        call = None
        if event == "c_call":
            call = self._by.get(id(x))
            if call is None and x.__name__ in self._names:
                # Each look-up of a method makes a new object.
                hidden = self._names[x.__name__]
                call = hidden.call if hidden.function == x else None
        elif event == "call" and frame.f_code in self._codes:
            call, caller = self._codes[frame.f_code], frame.f_back
        if call is None or caller is None:
            return
        if not is_foreign(caller.f_globals.get("__name__", "")):
            source = f"{caller.f_code.co_filename}:{caller.f_lineno}"
            self._found.setdefault(source, call)


def _contents(x: Any) -> Any:
    """What is in a container, also in a class or module."""
    if isinstance(x, type | ModuleType):
        library = is_foreign(getattr(x, "__module__", x.__name__))
        return None if library else dict(vars(x))
    return contents(x, MOST_BYTES)


def _is_made_once(before: Any, now: Any) -> bool:
    """Whether a value was made because there was none, as caches do it, and can be
    used again."""
    return (before is None or before is MISSING) and not _is_traced(now)


def _is_traced(x: Any) -> bool:
    return any(isinstance(leaf, Tracer) for leaf in tree.leaves(x))


def _is_cache(before: _Before, now: Any, change: Change) -> bool:
    """Whether items were added only, that can be used again, by code that looks first
    whether they are there. An attribute is none that had a number from its class: that
    is how counters begin."""
    old = before.contents
    if not isinstance(old, dict):
        return False
    new = [now[k] for k in now if k not in old or now[k] is not old[k]]
    made = all(
        k in now and (now[k] is v or _is_made_once(v, now[k])) for k, v in old.items()
    )
    asks = change.asks or not isinstance(before.x, dict)
    counts = not isinstance(before.x, dict) and any(
        isinstance(getattr(type(before.x), k, None), NUMBERS)
        for k in now
        if k not in old
    )
    return asks and made and not counts and not any(map(_is_traced, new))


def _state(generator: Any) -> Any:
    """The state of a random number generator, to be compared."""
    get = getattr(generator, "getstate", None)
    if get is not None:
        return get()
    bits = getattr(generator, "bit_generator", None)
    state = bits.state if bits is not None else generator.get_state(legacy=False)
    return _plain(state)


def _plain(x: Any) -> Any:
    if isinstance(x, dict):
        return {k: _plain(v) for k, v in x.items()}
    return x.tobytes() if isinstance(x, np.ndarray) else x
