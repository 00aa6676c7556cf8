"""Functions that modules have in common, each compiled once for all of them.

Code that turns rows and columns, or a scalar's logarithm, is the same in every kernel
that needs it. LLVM sees it once; the object of each kernel carries it along.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from treadle.backends.cpu.run.divided import declaration, functions, head, mentions

SHARED = 'noinline nounwind "shared"'
"""For functions that call none of their module, and use none of its constants."""

LEAST = 30
"""Lines of a function, below which a module of its own takes longer."""

MANY = 16
"""Lanes of vectors from which on a function of a hundred instructions is better called:
narrower ones are called so often that it takes some per cent longer."""


class Shared(NamedTuple):
    """One such function.

    symbol: its name, which tells its code as well. declared: what it calls. code: of
    itself.
    """

    symbol: str
    declared: tuple[str, ...]
    code: str


def module_of(shared: Sequence[Shared]) -> str:
    """The text of a module that defines some of them. Others may do so, too."""
    declared = dict.fromkeys(line for one in shared for line in one.declared)
    return "\n".join([*declared, *(one.code for one in shared)])


def apart(text: str, how: str) -> tuple[str, list[Shared]]:
    """A module without its `SHARED` functions, and those.

    how: the way in which they are compiled.
    """
    if SHARED not in text:
        return text, []
    parts, others = functions(text)
    declared = {
        line[line.index("@") : line.index("(", line.index("@"))]: line
        for line in others.splitlines()
        if line.startswith("declare")
    }
    found, names = [], {}
    ours = {
        name: body
        for name, body in parts.items()
        if SHARED in head(body)
        and body.count("\n") >= LEAST
        and _used(body) <= {f"@{name}", *declared}
    }
    if not ours:
        return text, []
    for name, body in ours.items():
        digest = hashlib.blake2b(f"{how}\0{body}".encode(), digest_size=8).hexdigest()
        names[name] = f"{name}.{digest}"
        used = tuple(declared[x] for x in sorted(_used(body) - {f"@{name}"}))
        own = body.replace("define internal", "define weak_odr", 1)
        own = own.replace(f"@{name}(", f"@{names[name]}(", 1)
        found.append(Shared(names[name], used, own))
    rest = [declaration(body) for body in ours.values()]
    rest += [body for name, body in parts.items() if name not in ours]
    renamed = mentions(names).sub(
        lambda match: f"@{names[match[1]]}", "\n".join([others, *rest])
    )
    return renamed, found


def _used(body: str) -> set[str]:
    return set(re.findall(r'@[\w.$-]+|@"[^"]+"', body))
