"""Writes docs/parity.md: `python -m tests.parity.page`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import jax

from tests.parity.names import PLACES, Place, Row, rows

PAGE = Path(__file__).parents[2] / "docs" / "parity.md"
VERDICTS = ("same", "other name", "better", "later", "not planned", "missing")

_HEAD = """\
# JAX's names, and ours

Every public name of JAX {version}, and what it is in Treadle: the *same* name; an
*other name*; something *better*; to come *later*; or *not planned*. Written by
`python -m tests.parity.page` from both libraries and `tests/parity/judged.txt`.

"""


def page() -> str:
    """The page's text."""
    found = {place: rows(place) for place in PLACES}
    parts = [_HEAD.format(version=jax.__version__), _summary(found)]
    parts += [_section(place, found[place]) for place in PLACES]
    return "\n".join(parts)


def _summary(found: dict[Place, list[Row]]) -> str:
    lines = [
        "| module | " + " | ".join(VERDICTS) + " |",
        "| --- " * (len(VERDICTS) + 1) + "|",
    ]
    total: Counter[str] = Counter()
    for place, named in found.items():
        counts = Counter(row.verdict for row in named)
        total += counts
        lines.append(_counted(f"`{place.theirs}`", counts))
    lines.append(_counted("all", total))
    return "\n".join(lines) + "\n"


def _counted(name: str, counts: Counter[str]) -> str:
    return f"| {name} | " + " | ".join(str(counts[v]) for v in VERDICTS) + " |"


def _section(place: Place, named: Iterable[Row]) -> str:
    lines = [f"## {place.theirs}", ""]
    same = [f"`{r.name}`" for r in named if r.verdict == "same"]
    if same:
        lines += ["The same: " + ", ".join(same) + ".", ""]
    others = [r for r in named if r.verdict != "same"]
    if others:
        lines += ["| name | | ours | |", "| --- | --- | --- | --- |"]
        for r in others:
            ours = f"`{r.ours}`" if r.ours else ""
            lines.append(f"| `{r.name}` | {r.verdict} | {ours} | {r.why} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
