"""Writes down the names of peers that the tests don't install, in `peer_names/`:
`python -m tests.parity.gather keras lightning`, where these are installed."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from typing import Any

from tests.parity.listed import FOLDER
from tests.parity.names import module, public
from tests.parity.peers import PEERS, Peer


def names(place: str) -> list[str]:
    """The names in a module; the attributes of a class that its library gives it; or,
    of `function()`, its arguments."""
    if place.endswith("()"):
        outer, _, last = place[:-2].rpartition(".")
        found = inspect.signature(getattr(module(outer), last)).parameters
        return [n for n in found if n not in ("self", "args", "kwargs")]
    found: Any = module(place)
    if not inspect.isclass(found):
        return sorted(getattr(found, "__all__", public(place)))
    home = place.partition(".")[0]
    own = [c for c in found.__mro__ if c.__module__.partition(".")[0] == home]
    return sorted({n for c in own for n in vars(c) if not n.startswith("_")})


def listing(peer: Peer) -> str:
    """The text of a peer's file."""
    version = importlib.import_module(peer.package).__version__
    lines = [f"{p.theirs}: {' '.join(names(p.theirs))}" for p in peer.places]
    return "\n".join([version, *lines]) + "\n"


if __name__ == "__main__":
    os.environ.setdefault("KERAS_BACKEND", "jax")
    for peer in PEERS:
        if peer.key in sys.argv[1:]:
            (FOLDER / f"{peer.key}.txt").write_text(listing(peer))
