"""Names of the peers whose counterpart here isn't just the same name, as the files in
`judged_names/` say, one a peer."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple


class Judged(NamedTuple):
    """verdict: a heading of the file; ours: where it is; why: what is better, or why
    there is none; file: which says so."""

    verdict: str
    ours: str
    why: str
    file: str


def _read() -> dict[str, Judged]:
    found: dict[str, Judged] = {}
    for path in sorted((Path(__file__).parent / "judged_names").glob("*.txt")):
        verdict = ""
        for line in path.read_text().splitlines():
            if line.startswith("["):
                verdict = line.strip("[]")
            elif line and not line.startswith("#"):
                head, _, why = line.partition(" | ")
                names, _, ours = head.partition(" = ")
                for name in names.split():
                    found.setdefault(name, Judged(verdict, ours, why, path.stem))
    return found


JUDGED = _read()
"""By name, or by pattern."""

_PATTERNS = {name: judged for name, judged in JUDGED.items() if "*" in name}


def judged(name: str) -> Judged | None:
    """What the file says of a name itself."""
    return JUDGED.get(name)


def judged_by_pattern(name: str) -> Judged | None:
    """What the file says of names like this one."""
    for pattern, found in _PATTERNS.items():
        if fnmatchcase(name, pattern):
            return found
    return None
