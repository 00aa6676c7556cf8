"""The pages of names say what is so."""

from __future__ import annotations

import pytest

from tests.parity import checks
from tests.parity.judged import JUDGED
from tests.parity.names import resolves
from tests.parity.peers import PEERS, Peer

WITHOUT_OURS = ("later", "not planned")
HERE = [
    peer
    for peer in PEERS
    if peer.key in ("jax", "optax", "orbax", "keras", "lightning")
]
each = pytest.mark.parametrize("peer", HERE, ids=lambda peer: peer.key)


def test_what_is_named_exists() -> None:
    wrong = [n for n, j in JUDGED.items() if j.ours and not resolves(j.ours)]
    assert wrong == []
    assert [
        n for n, j in JUDGED.items() if bool(j.ours) == (j.verdict in WITHOUT_OURS)
    ] == []
    assert [
        n for n, j in JUDGED.items() if not j.why and j.verdict != "other name"
    ] == []


@each
def test_judgements_are_needed(peer: Peer) -> None:
    checks.judgements_are_needed(peer)


@each
def test_nothing_is_missing(peer: Peer) -> None:
    checks.nothing_is_missing(peer)


@each
def test_the_page_is_current(peer: Peer) -> None:
    checks.the_page_is_current(peer)
