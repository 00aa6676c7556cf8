"""What holds of the page of every peer."""

from __future__ import annotations

import pytest

from tests.parity.judged import JUDGED
from tests.parity.names import has, public, rows
from tests.parity.page import page, path, version
from tests.parity.peers import Peer


def judgements_are_needed(peer: Peer) -> None:
    """None is of a name that is the same here, or that the peer doesn't have; what
    differs has the same name."""
    for place in peer.places:
        theirs = public(place.theirs)
        for name, judged in JUDGED.items():
            outer, _, last = name.rpartition(".")
            if outer != place.theirs or "*" in last:
                continue
            found = [m for m in place.ours if has(m, last)]
            assert bool(found) == (judged.verdict == "differs"), name
            assert last in theirs or judged.file != peer.key, name


def nothing_is_missing(peer: Peer) -> None:
    missing = [
        f"{place.theirs}.{row.name}"
        for place in peer.places
        for row in rows(place)
        if row.verdict == "missing"
    ]
    assert missing == []


def the_page_is_current(peer: Peer) -> None:
    found = path(peer).read_text()
    if f"{peer.name} {version(peer)}," not in found:
        pytest.skip(f"the page is of another version of {peer.name}")
    assert found == page(peer), "run `python -m tests.parity.page`"
