"""Random functions of two scalars that branch on them, in Python's own words."""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable, Sequence
from typing import Any

import treadle.numpy as tnp

_NAMES = ("x", "y", "a", "b")
_HELPERS = """\
import contextlib
import functools


class Account:
    def __init__(self, total):
        self.total, self.times = total, 0

    def add(self, v):
        if v > 0.2:
            self.total = self.total + v
            return self
        self.times += 1
        self.total = self.total * 0.5
        return self

    @property
    def worth(self):
        return self.total - self.times if self.total > 0.7 else self.total


@contextlib.contextmanager
def noting(seen):
    seen.append(1)
    try:
        yield 0.5
    finally:
        seen.append(2)


@contextlib.contextmanager
def quiet():
    try:
        yield
    except ValueError:
        pass


class Swallow:
    def __init__(self, kind):
        self.kind = kind

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        return kind is not None and issubclass(kind, self.kind)


class Few:
    def __init__(self, v):
        self.v, self.n = v, 0

    def __getitem__(self, i):
        if i > 1 or self.v + i > 1.2:
            raise IndexError
        return self.v * i

    def __next__(self):
        if self.v > 0.4:
            raise StopIteration
        return self.v + 0.25

    @property
    def twice(self):
        if self.v > 0.6:
            raise AttributeError
        return self.v * 2


def ordered(f):
    @functools.wraps(f)
    def inner(v, w):
        if v > w:
            v, w = w, v
        return f(v, w)

    return inner


@ordered
def apart(v, w):
    return w - v if v > -1 else w * 0.3


def deep(v, n):
    if n == 0:
        return v
    if v > 1.0:
        return v * 0.5
    return deep(v + 0.4, n - 1)


def clip(v):
    if v > 1.5:
        return v * 0 + 1.5
    if v < -1.5:
        return -1.5
    return v


def count(v):
    return tnp.asarray(v > 0.3).astype(int) + (v > 0.9)


def pick(v, w):
    return v - w if v > w and not w > 1.0 else w * 0.5
"""


class _Writer:
    def __init__(self, seed: int, more: Sequence[str] = ()) -> None:
        self.random, self.more = random.Random(seed), more
        self.lines: list[str] = []
        self.loops = 0

    def value(self, depth: int = 2) -> str:
        r = self.random
        if depth == 0 or r.random() < 0.3:
            return r.choice([*_NAMES, f"{r.uniform(-2, 2):.2f}"])
        a, b = self.value(depth - 1), self.value(depth - 1)
        return r.choice(
            [
                f"({a} + {b})",
                f"({a} - {b})",
                f"tnp.tanh({a} * {b})",
                f"tnp.sin({a})",
                f"clip({a})",
                f"pick({a}, {b})",
                f"({a} if {self.test(0)} else {b})",
                f"max({a}, {b})",
                f"(c + {a})",
            ]
        )

    def test(self, depth: int = 1) -> str:
        r = self.random
        if depth == 0 or r.random() < 0.6:
            left, right = r.choice(_NAMES), r.choice([*_NAMES, "0.3", "-0.4", "1.1"])
            return f"{left} {r.choice(['<', '>', '<=', '>='])} {right}"
        a, b = self.test(depth - 1), self.test(depth - 1)
        return r.choice([f"{a} and {b}", f"{a} or {b}", f"not ({a})"])

    def line(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def block(self, indent: int, depth: int, loop: bool) -> None:
        for _ in range(self.random.choice([1, 1, 2, 3])):
            self.statement(indent, depth, loop)

    def statement(self, indent: int, depth: int, loop: bool) -> None:
        r = self.random
        kinds = ["assign"] * 3 + ["augment", "append", "c"]
        if depth:
            kinds += ["if"] * 3 + ["for", "return", "while"]
        if loop:
            kinds += ["break", "continue"]
        if self.more and depth and r.random() < 0.5:
            getattr(self, "_" + r.choice(self.more))(indent, depth, loop)
            return
        kind = r.choice(kinds)
        if kind == "assign":
            self.line(indent, f"{r.choice(_NAMES)} = {self.value()}")
        elif kind == "augment":
            self.line(indent, f"{r.choice(_NAMES)} += {self.value(1)}")
        elif kind == "append":
            self.line(indent, f"items.append({self.value(1)})")
        elif kind == "c":
            self.line(indent, f"c = {r.choice([1, 2, 0.5, -1])}")
        elif kind == "if":
            self.line(indent, f"if {self.test()}:")
            self.block(indent + 1, depth - 1, loop)
            if r.random() < 0.3:
                self.line(indent, f"elif {self.test()}:")
                self.block(indent + 1, depth - 1, loop)
            if r.random() < 0.5:
                self.line(indent, "else:")
                self.block(indent + 1, depth - 1, loop)
        elif kind == "while":
            self.loops += 1
            n = f"n{self.loops}"
            self.line(indent, f"{n} = 0")
            test = f"{self.test(0)} and {n} < 3" if r.random() < 0.8 else f"{n} < 2"
            ends = r.random() < 0.3
            self.line(indent, f"while {'True' if ends else test}:")
            self.line(indent + 1, f"{n} += 1")
            if ends:
                self.line(indent + 1, f"if {self.test(0)} or {n} > 2:")
                self.line(indent + 2, "break")
            self.block(indent + 1, depth - 1, r.random() < 0.5)
        elif kind == "for":
            n = f"count({self.value(1)})" if r.random() < 0.3 else r.choice([1, 2, 3])
            self.line(indent, f"for i in range({n}):")
            self.block(indent + 1, depth - 1, True)
        else:
            word = kind if kind != "return" else f"return a + {self.value(1)}"
            self.line(indent, f"if {self.test(0)}:")
            self.line(indent + 1, word)

    # More of Python's words.

    def _match(self, indent: int, depth: int, loop: bool) -> None:
        self.line(indent, f"match ({self.test(0)}, {self.test(0)}):")
        for case in ("(True, True)", "(_, True)", "_"):
            self.line(indent + 1, f"case {case}:")
            self.block(indent + 2, depth - 1, loop)

    def _with(self, indent: int, depth: int, loop: bool) -> None:
        self.line(indent, "with noting([]) as s:")
        self.line(indent + 1, f"{self.random.choice(_NAMES)} = s * {self.value(1)}")
        self.block(indent + 1, depth - 1, loop)

    def _try(self, indent: int, depth: int, loop: bool) -> None:
        self.line(indent, "try:")
        self.line(indent + 1, f"if {self.test(0)}:")
        self.line(indent + 2, f"raise {self.random.choice(['KeyError', 'ValueError'])}")
        self.block(indent + 1, depth - 1, loop)
        self.line(indent, "except LookupError:")
        self.block(indent + 1, depth - 1, loop)
        self.line(indent, "except ValueError:")
        self.line(indent + 1, f"a = {self.value(1)}")
        if self.random.random() < 0.5:
            self.line(indent, "finally:")
            self.line(indent + 1, "c = 0.5")

    def _else(self, indent: int, depth: int, loop: bool) -> None:
        self.loops += 1
        n, test = f"n{self.loops}", self.test(0)
        self.line(indent, f"{n} = 0")
        heads = [
            f"for {n} in range(3):",
            f"while {n} < 3 and {test}:",
            f"while (d := {self.value(1)}) < 1.2 and {n} < 3:",
        ]
        self.line(indent, self.random.choice(heads))
        self.line(indent + 1, f"{n} += 1")
        self.line(indent + 1, f"if {self.test(0)}:")
        self.line(indent + 2, "break")
        self.block(indent + 1, depth - 1, True)
        self.line(indent, "else:")
        self.line(indent + 1, f"b = {self.value(1)}")

    def _closure(self, indent: int, depth: int, loop: bool) -> None:
        r = self.random
        self.line(indent, f"def inner(v, w={self.value(1)}):")
        self.line(indent + 1, "nonlocal a, b, c, x, y")
        self.line(indent + 1, f"if v > {r.choice(_NAMES)}:")
        self.line(indent + 2, f"{r.choice(_NAMES)} = v * 0.5")
        self.line(indent + 2, "return v + w")
        self.line(indent + 1, f"return {self.value(1)}")
        self.line(indent, f"{r.choice(_NAMES)} = inner({self.value(1)})")

    def _expression(self, indent: int, depth: int, loop: bool) -> None:
        r, v, w = self.random, self.value(1), self.value(1)
        texts = [
            f"sum([t * 2 for t in ({v}, {w}, 0.5) if t > 0.3])",
            f"sum(t if t > 0 else -t for t in ({v}, {w}))",
            f"Account({v}).add({w}).add(x).worth",
            f"sorted([{v}, {w}, 0.4])[{r.randrange(3)}]",
            f"min({v}, {w}, 0.9) - max([{v}, 0.1])",
            f"({v} if any(t > 1 for t in (a, b)) else {w})",
            f"({v} if all([a < 1.5, b < 1.5]) else {w})",
            f"((d := {v}) * 0.5 if x > y else {w})",
            f"(lambda t, s={w}: t * s if t > s else t)({v})",
            f"functools.reduce(lambda s, t: s * t if s > t else s + t, ({v}, {w}, x))",
            *(f"apart({v}, {w})", f"deep({v}, 3)", f"dict(u={v}, v={w})['u']"),
        ]
        self.line(indent, f"{r.choice(_NAMES)} = {r.choice(texts)}")

    # Objects that change, and errors that Python or a `with` ends.

    def _account(self, indent: int, depth: int, loop: bool) -> None:
        r = self.random
        self.line(indent, f"o = Account({self.value(1)})")
        self.line(indent, f"if o.{r.choice(['total', 'worth'])} > {r.choice(_NAMES)}:")
        self.line(indent + 1, f"o.total = o.total * 0.5 + {self.value(1)}")
        if r.random() < 0.5:
            self.line(indent, "else:")
            self.line(indent + 1, f"o.add({self.value(1)})")
        self.line(indent, f"{r.choice(_NAMES)} = o.add({self.value(1)}).worth")

    def _swallow(self, indent: int, depth: int, loop: bool) -> None:
        r = self.random
        heads = [
            "with quiet():",
            "with noting([]), Swallow(ValueError):",
            "with Swallow(LookupError), quiet():",
            "with contextlib.suppress(KeyError, ValueError):",
        ]
        self.line(indent, r.choice(heads))
        self.line(indent + 1, f"{r.choice(_NAMES)} = {self.value(1)}")
        self.line(indent + 1, f"if {self.test(0)}:")
        self.line(indent + 2, "raise ValueError")
        self.block(indent + 1, depth - 1, loop)

    def _lookup(self, indent: int, depth: int, loop: bool) -> None:
        r, v, w = self.random, self.value(1), self.value(1)
        texts = [
            f"sum(Few({v})) + x",
            f"next(Few({v}), {w})",
            f"getattr(Few({v}), 'twice', {w})",
            f"({v} if hasattr(Few({w}), 'twice') else {w})",
            f"tnp.trace(tnp.full((2, 2), {v})) - tnp.trace(tnp.full((2, 2), {w}))",
        ]
        self.line(indent, f"{r.choice(_NAMES)} = {r.choice(texts)}")

    def program(self) -> str:
        self.line(0, "def program(x, y):")
        self.line(1, "a, b, c, items = x * 0.5, y + 1.0, 1, []")
        depth = 1 if "swallow" in self.more else 2  # errors make many ways
        self.block(1, depth, False)
        self.block(1, depth, False)
        self.line(1, f"return a * 1.0 + b + x * y + sum(items) + {self.value(1)}")
        return _HELPERS + "\n\n" + "\n".join(self.lines) + "\n"


MORE = ("match", "with", "try", "else", "closure", *["expression"] * 4)
"""More of Python's words."""

OBJECTS = ("account", "swallow", "lookup", "with", "expression")
"""Objects that change, and errors that Python or a `with` ends."""


def program(
    seed: int, more: Sequence[str] = ()
) -> tuple[Callable[[Any, Any], Any], str]:
    """A function of two scalars, and its source; `more`: of more of Python's words."""
    text = _Writer(seed, more).program()
    name = f"<branches {seed} of {' '.join(more) or 'few words'}>"
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    space: dict[str, Any] = {"tnp": tnp, "__name__": "branches"}
    exec(compile(text, name, "exec"), space)
    return space["program"], text


INPUTS = ((0.2, -0.7), (1.7, 0.4), (-1.2, 1.3), (0.9, 2.1))
