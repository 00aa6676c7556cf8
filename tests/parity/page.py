"""Writes docs/parity.md, a page for each peer, and what errors say of their names:
`python -m tests.parity.page`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.parity import elsewhere
from tests.parity.listed import VERSIONS
from tests.parity.names import Row, module, rows
from tests.parity.peers import PEERS, Peer, Place

DOCS = Path(__file__).parents[2] / "docs"
VERDICTS = (
    "same",
    "other name",
    "differs",
    "better",
    "later",
    "not planned",
    "missing",
)

_OVERVIEW = """\
# Names of other libraries, and ours

What has become of every public name of the libraries whose users come here: it has the
*same* name here, an *other name*, the same name that *differs* in what it takes or
does, there is something *better*, it comes *later*, or is *not planned*. The pages of
the libraries say it name by name.

"""
_HEAD = """\
# {name}'s names, and ours

Every public name of {name} {version}, and what it is in Treadle: the *same* name; an
*other name*; the same name that *differs* in what it takes or does; something *better*;
to come *later*; or *not planned*. Arguments may be named otherwise everywhere. Written
by `python -m tests.parity.page` from both libraries and
`tests/parity/judged_names/{key}.txt`.
"""


def path(peer: Peer) -> Path:
    """Where a peer's page lies."""
    return DOCS / f"parity-{peer.key}.md"


def version(peer: Peer) -> str:
    """Of what is installed, or was when its names were written down."""
    if peer.key in VERSIONS:
        return VERSIONS[peer.key]
    return module(peer.package).__version__


def page(peer: Peer) -> str:
    """The text of a peer's page."""
    found = {place: rows(place) for place in peer.places}
    counts = {f"`{p.theirs}`": Counter(r.verdict for r in f) for p, f in found.items()}
    head = _HEAD.format(name=peer.name, version=version(peer), key=peer.key)
    parts = [head, *([peer.note + "\n"] if peer.note else [])]
    parts.append(_summary("module", counts))
    parts += [_section(place, found[place]) for place in peer.places]
    return "\n".join(parts)


def overview() -> str:
    """The text of docs/parity.md."""
    counts = {
        f"[{peer.name} {version(peer)}]({path(peer).name})": Counter(
            row.verdict for place in peer.places for row in rows(place)
        )
        for peer in PEERS
    }
    return _OVERVIEW + _summary("library", counts)


def _summary(what: str, found: dict[str, Counter[str]]) -> str:
    lines = [
        f"| {what} | " + " | ".join(VERDICTS) + " |",
        "| --- " * (len(VERDICTS) + 1) + "|",
    ]
    total: Counter[str] = Counter()
    for name, counts in found.items():
        total += counts
        lines.append(_counted(name, counts))
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
    for peer in PEERS:
        path(peer).write_text(page(peer))
    (DOCS / "parity.md").write_text(overview())
    elsewhere.FILE.write_text(elsewhere.text())
