"""Random functions of two scalars that branch on them, in Python's own words."""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable
from typing import Any

import treadle.numpy as tnp

_NAMES = ("x", "y", "a", "b")
_HELPERS = """\
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
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
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

    def program(self) -> str:
        self.line(0, "def program(x, y):")
        self.line(1, "a, b, c, items = x * 0.5, y + 1.0, 1, []")
        self.block(1, 2, False)
        self.block(1, 2, False)
        self.line(1, f"return a * 1.0 + b + x * y + sum(items) + {self.value(1)}")
        return _HELPERS + "\n\n" + "\n".join(self.lines) + "\n"


def program(seed: int) -> tuple[Callable[[Any, Any], Any], str]:
    """A function of two scalars, and its source."""
    text = _Writer(seed).program()
    name = f"<branches {seed}>"
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    space: dict[str, Any] = {"tnp": tnp, "__name__": "branches"}
    exec(compile(text, name, "exec"), space)
    return space["program"], text


INPUTS = ((0.2, -0.7), (1.7, 0.4), (-1.2, 1.3), (0.9, 2.1))
