"""The pages of the peers' names are what their script writes, and say what is so."""

from __future__ import annotations

import pytest

from tests.parity import checks, elsewhere
from tests.parity.page import DOCS, overview
from tests.parity.peers import PEERS, Peer

each = pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.key)


@each
def test_judgements_are_needed(peer: Peer) -> None:
    checks.judgements_are_needed(peer)


@each
def test_nothing_is_missing(peer: Peer) -> None:
    checks.nothing_is_missing(peer)


@each
def test_the_page_is_current(peer: Peer) -> None:
    checks.the_page_is_current(peer)


def test_what_errors_say_is_current() -> None:
    assert elsewhere.FILE.read_text() == elsewhere.text()


def test_the_overview_is_current() -> None:
    assert (DOCS / "parity.md").read_text() == overview()
