"""The names of peers that the tests don't install, as `gather.py` wrote them down."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "peer_names"


def _read() -> tuple[dict[str, str], dict[str, list[str]]]:
    versions: dict[str, str] = {}
    names: dict[str, list[str]] = {}
    for path in sorted(FOLDER.glob("*.txt")):
        version, *lines = path.read_text().splitlines()
        versions[path.stem] = version
        for line in lines:
            place, _, found = line.partition(":")
            names[place] = found.split()
    return versions, names


VERSIONS, NAMES = _read()
"""By the key of a peer; by the name of a module, a class, or a function with `()`."""
