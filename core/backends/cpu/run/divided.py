"""Functions that run seldom, in a module of their own.

LLVM compiles a module at its level 0 in a quarter of the time. A function that is
merely told not to be optimised takes two thirds: all passes look at it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

COLD = "noinline optnone"
"""For functions that run once per task or per image."""

_OWN_CONSTANT = r"(internal|private) (\w+ )*constant "


def divided(text: str, symbol: str) -> tuple[str, str]:
    """A module that defines `symbol` as two: the functions that run often, and those
    that are `COLD`. The second one is empty if there are none, or nothing else.

    Both are to be linked together: what one calls of the other has names of `symbol`.
    """
    if COLD not in text:
        return text, ""
    parts, others = functions(text)
    cold = {name for name, found in parts.items() if COLD in head(found)}
    hot = parts.keys() - cold
    # What others see, and what changes, can't be in both.
    once = re.search(rf"^(@.*= (?!{_OWN_CONSTANT})|module asm)", others, re.M)
    if not cold or not hot or once:
        return text, ""
    # Tables of functions are in both.
    listed = set(mentions(parts).findall(others))
    both = [
        (own, (_called(parts, own, other) | listed) - own)
        for own, other in ((hot, cold), (cold, hot))
    ]
    shared = both[0][1] | both[1][1]
    texts = []
    for own, called in both:
        found = [declaration(text) for name, text in parts.items() if name in called]
        found += [text for name, text in parts.items() if name in own]
        texts.append(exported(others + "".join(found), shared))
    if named := shared - {symbol}:
        texts = [mentions(named).sub(rf'@"{symbol}.\1"', text) for text in texts]
    return texts[0], texts[1]


def exported(text: str, names: Iterable[str]) -> str:
    """A module in which some functions are not `internal`."""
    pattern = rf"^define internal (.*@(?:{'|'.join(map(re.escape, names))})\()"
    return re.sub(pattern, r"define \1", text, flags=re.MULTILINE)


def functions(text: str) -> tuple[dict[str, str], str]:
    """The functions of a module by name, and the rest of it."""
    named, others = {}, []
    *pieces, rest = text.split("\n}\n")
    for piece in pieces:
        start = ("\n" + piece).index("\ndefine ")
        others.append(piece[:start])
        found = piece[start:] + "\n}\n"
        name = found[found.index("@") + 1 :].split("(", 1)[0].strip('"')
        named[name] = found
    return named, "".join([*others, rest])


def mentions(names: Iterable[str]) -> re.Pattern[str]:
    """What finds the names where they are used."""
    return re.compile(rf"@({'|'.join(map(re.escape, names))})(?![\w.$-])")


def _called(
    functions: dict[str, str], callers: Iterable[str], names: Iterable[str]
) -> set[str]:
    """Those functions that some others call."""
    pattern = mentions(names)
    return {x for name in callers for x in pattern.findall(functions[name])}


def head(function: str) -> str:
    """What stands before a function's body."""
    return function[: function.index("{\n")]


def declaration(function: str) -> str:
    """Of a function that another module defines."""
    text = re.sub(r" %[\w.]+", "", " ".join(head(function).split()))
    for word in ("internal", COLD, "noinline", "alwaysinline"):
        text = text.replace(f" {word}", "", 1)
    return "declare" + text.removeprefix("define") + "\n"
