"""Writes core/elsewhere.txt: what errors say of the names of other libraries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.parity.names import Row, has, module, rows
from tests.parity.peers import PEERS
from treadle import names

FILE = Path(__file__).parents[2] / "core" / "elsewhere.txt"
_HEAD = """\
# What is to be said of other libraries' names, by the module that lacks them: names =
# what to use | why. Written by `python -m tests.parity.page`. What `names.py` finds by
# itself is left out.
"""
_ABSENT = ("later", "not planned")


def text() -> str:
    """The text of the file."""
    sections: dict[str, dict[str, str]] = defaultdict(dict)
    # A name of several libraries is said to be what one of them has here.
    for asked, row in sorted(_missing(), key=lambda found: found[1].verdict in _ABSENT):
        why = f"{row.verdict}: {row.why}" if row.verdict in _ABSENT else row.why
        said = " =" + (row.ours and f" {row.ours}") + (why and f" | {why}")
        sections[asked].setdefault(row.name, said)
    parts = [_HEAD.rstrip()]
    for asked, said in sorted(sections.items()):
        together: dict[str, list[str]] = defaultdict(list)
        for name, what in said.items():
            together[what].append(name)
        parts.append(f"[{asked}]")
        parts += [" ".join(found) + what for what, found in together.items()]
    return "\n".join(parts) + "\n"


def _missing() -> Iterator[tuple[str, Row]]:
    """Names that our modules lack and `names.py` does not find, with who is asked."""
    for peer in PEERS:
        for place in peer.places:
            asked = next(filter(module, place.ours), "")
            for row in rows(place) if asked else ():
                there = any(has(ours, row.name) for ours in place.ours)
                found = names.instead(asked, row.name)
                if not there and found not in (row.ours or None, f"{asked}.{row.name}"):
                    yield asked, row
