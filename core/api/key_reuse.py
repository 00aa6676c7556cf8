"""Finds random keys that are used twice, in programs that run in a debug mode.

A key is used where its words go into the generator. Two values are the same key if they
are computed alike from the same array: so each operation's result gets a number that
says how it was computed, in compiled functions as outside of them. Loops are followed
through two iterations: a key that both use is used twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from treadle.errors import KeyReuseError, at, user_source
from treadle.ir.graph import Equation, Graph, Lit, params_key
from treadle.run.eager import EagerInterpreter
from treadle.trace.interpreter import set_base, state, using
from treadle.trace.op import Op

_REUSED = """\
a random key is used twice: what is drawn is the same, or not independent
  first at {first}
  then at  {then}
Give each use a key of its own: `k1, k2 = rng.split(key)`. Where the same numbers are \
wanted: `rng.clone(key)`."""

_VIEWS = ("reshape", "broadcast_in_dim")


class _Use(NamedTuple):
    """One use of a key.

    counter, word: of what it is used for. folds: whether a number is mixed into it.
    call: which call from outside it is in. again: whether it may be computed anew.
    """

    counter: int
    word: str
    folds: bool
    source: str
    outside: str
    call: int
    again: bool

    def conflicts(self, other: _Use) -> bool:
        same = (self.counter, self.word) == (other.counter, other.word)
        if same and (self.again or other.again) and self.source == other.source:
            return False
        if self.folds and other.folds:
            return same
        # The words of one sampler have one counter.
        return same or self.counter != other.counter or self.folds != other.folds


class _Checker:
    """Numbers for values, and the uses of keys by their numbers."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._fresh = count()
        self._base: dict[int, int] = {}
        self._counters: set[int] = set()
        self.uses: dict[int, list[_Use]] = {}
        self._call = 0
        self._outside = ""
        self._line = ""
        self._again = 0

    def new(self) -> int:
        """The number of a value like no other."""
        return next(self._fresh)

    def begin(self) -> None:
        """Begins an operation that is called outside of any graph."""
        self._call += 1
        self._outside = user_source()

    def apply(
        self, name: str, params: dict[str, Any], args: Sequence[int], outs: int, at: str
    ) -> list[int]:
        """The numbers of an operation's results."""
        graphs = _graphs(name, params)
        if graphs is not None:
            around = self._line
            if name == "call":
                # The lines in it may be those of an earlier caller.
                self._line = around or at
            try:
                return graphs(self, args, outs, params)
            finally:
                self._line = around
        if name == "threefry2x32":
            self._use(args, params["word"], self._line or at)
        try:
            key: Any = name, params_key(params), tuple(args)
            first = self._numbers.get((key, 0))
        except TypeError:
            return [self.new() for _ in range(outs)]
        if first is None:
            for i in range(outs):
                self._numbers[key, i] = n = self.new()
                if name in _VIEWS:
                    self._base[n] = self._base.get(args[0], args[0])
                if name == "iota" or (args and args[0] in self._counters):
                    self._counters.add(n)
        return [self._numbers[key, i] for i in range(outs)]

    def follow(self, graph: Graph, args: Sequence[int]) -> list[int]:
        """The numbers of a graph's results."""
        numbers: dict[Any, int] = dict(zip(graph.inputs, args, strict=True))

        def read(atom: Any) -> int:
            if type(atom) is not Lit:
                return numbers[atom]
            if atom.type.shape:
                # A key that is made in a function is made in each call.
                return self.literal((id(atom), self._call))
            return self.literal(str(atom.value))

        for eq in graph.equations:
            outs = self._equation(eq, [read(a) for a in eq.inputs])
            numbers.update(zip(eq.outputs, outs, strict=True))
        return [read(a) for a in graph.outputs]

    def _equation(self, eq: Equation, args: list[int]) -> list[int]:
        return self.apply(eq.op.name, eq.params, args, len(eq.outputs), eq.source)

    def literal(self, key: Any) -> int:
        """The number of a constant."""
        if key not in self._numbers:
            self._numbers[key] = self.new()
        return self._numbers[key]

    def _use(self, args: Sequence[int], word: str, source: str) -> None:
        key, counter = [self._base.get(n, n) for n in (args[0], args[3])]
        use = _Use(
            counter,
            word,
            args[3] not in self._counters,
            source,
            self._outside,
            self._call,
            self._again > 0,
        )
        known = self.uses.setdefault(key, [])
        for before in known:
            if before.conflicts(use):
                inside = before.call == use.call
                first, then = [
                    u.source if inside and u.source else u.outside
                    for u in (before, use)
                ]
                raise KeyReuseError(_REUSED.format(first=first, then=then))
        known.append(use)

    # Operations that hold graphs

    def inline(
        self, args: Sequence[int], outs: int, params: dict[str, Any]
    ) -> list[int]:
        """A graph that is run once."""
        return self.follow(params["graph"], args)

    def remat(
        self, args: Sequence[int], outs: int, params: dict[str, Any]
    ) -> list[int]:
        """A graph that a backward pass runs once more."""
        self._again += 1
        try:
            return self.follow(params["graph"], args)
        finally:
            self._again -= 1

    def scan(self, args: Sequence[int], outs: int, params: dict[str, Any]) -> list[int]:
        """A loop over rows."""
        graph, length = params["graph"], params["length"]
        split = params["n_consts"], params["n_consts"] + params["n_carry"]
        consts, carry = args[: split[0]], list(args[split[0] : split[1]])
        for i in range(2 if not isinstance(length, int) else min(length, 2)):
            rows = [self.literal(("row", x, i)) for x in args[split[1] :]]
            carry = self.follow(graph, [*consts, *carry, *rows])[: len(carry)]
        return [*carry, *[self.new() for _ in range(outs - len(carry))]]

    def loop(self, args: Sequence[int], outs: int, params: dict[str, Any]) -> list[int]:
        """A loop that ends by a test."""
        n, m = params["n_test_consts"], params["n_body_consts"]
        tests, consts, carry = args[:n], args[n : n + m], list(args[n + m :])
        for _ in range(2):
            self.follow(params["test"], [*tests, *carry])
            carry = self.follow(params["body"], [*consts, *carry])
        return carry

    def branches(
        self, args: Sequence[int], outs: int, params: dict[str, Any]
    ) -> list[int]:
        """Graphs of which one is run."""
        before = {k: list(v) for k, v in self.uses.items()}
        merged = {k: list(v) for k, v in before.items()}
        for graph in params["branches"]:
            self.uses = {k: list(v) for k, v in before.items()}
            self.follow(graph, args[1:])
            for key, uses in self.uses.items():
                found = merged.setdefault(key, [])
                found += [u for u in uses if u not in found]
        self.uses = merged
        return [self.new() for _ in range(outs)]


_RULES = {
    "scan": _Checker.scan,
    "while_loop": _Checker.loop,
    "cond": _Checker.branches,
    "remat": _Checker.remat,
}


def _graphs(name: str, params: dict[str, Any]) -> Any:
    """What follows the graphs of an operation; None if it holds none."""
    if name in _RULES:
        return _RULES[name]
    return _Checker.inline if isinstance(params.get("graph"), Graph) else None


class _CheckingInterpreter(EagerInterpreter):
    """Carries operations out, and looks at the keys that they use."""

    def __init__(self) -> None:
        self._checker = _Checker()
        self._known: dict[int, tuple[int, Any]] = {}

    def process(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
        outs = super().process(op, args, params)
        results = outs if op.multiple else [outs]
        holds_graphs = _graphs(op.name, params) is not None
        if holds_graphs or any(map(_may_be_key, (*args, *results))):
            self._note(op.name, params, args, results)
        return outs

    def run_program(self, entry: Any, leaves: Sequence[Any]) -> Sequence[Any]:
        outs = super().run_program(entry, leaves)
        args = [*entry.captured, *leaves]
        self._note("call", {"graph": entry.graph}, args, outs)
        return outs

    def _note(
        self,
        name: str,
        params: dict[str, Any],
        args: Sequence[Any],
        outs: Sequence[Any],
    ) -> None:
        self._checker.begin()
        numbers = [self._number(x) for x in args]
        numbers = self._checker.apply(name, params, numbers, len(outs), "")
        for n, x in zip(numbers, outs, strict=True):
            if _may_be_key(x):
                self._known[id(x)] = n, x

    def _number(self, x: Any) -> int:
        if not hasattr(x, "shape") or x.shape == ():
            return self._checker.literal(str(np.asarray(x)))
        known = self._known.get(id(x))
        if known is None or known[1] is not x:
            known = self._known[id(x)] = self._checker.new(), x
        return known[0]


def _may_be_key(x: Any) -> bool:
    return getattr(x, "dtype", None) == np.uint32 and x.shape != ()


@contextmanager
def key_reuse() -> Iterator[None]:
    """Makes it an error in the block to use a random key twice: to split it, to draw
    from it, or to fold one number into it more than once, also inside of compiled
    functions and from one iteration of a loop to the next. For debugging: calls take
    long. For a whole process: ``TREADLE_DEBUG_KEYS=1``.

    Raises:
      KeyReuseError: with both of the user's lines.
      RuntimeError: if the block is inside of a transform.

    >>> import treadle as td
    >>> from treadle import rng
    >>> key = rng.key(0)
    >>> with td.debug.key_reuse():
    ...     noise = rng.normal(key), rng.uniform(key)
    Traceback (most recent call last):
    treadle.errors.KeyReuseError: a random key is used twice...
    """
    if not isinstance(state.interpreter, EagerInterpreter):
        raise RuntimeError(
            f"td.debug.key_reuse is entered inside of a transform{at(user_source())}\n"
            "It is for the program around transforms: enter it where the transformed "
            "function is called."
        )
    with using(_CheckingInterpreter()):
        yield


if os.environ.get("TREADLE_DEBUG_KEYS", "0") not in ("", "0"):
    set_base(_CheckingInterpreter())
