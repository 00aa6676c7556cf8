"""The names of a peer, and where the same is found here."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any, NamedTuple

from tests.parity.judged import judged, judged_by_pattern
from tests.parity.listed import NAMES
from tests.parity.peers import PEERS, WITH_MODULES, Place


class Row(NamedTuple):
    """What has become of a name. ours: where it is found, or "" if nowhere."""

    name: str
    verdict: str
    ours: str
    why: str


def module(name: str) -> Any:
    """A module, or an object in one, by its dotted name; None if there is none."""
    try:
        return importlib.import_module(name)
    except ImportError:
        outer, _, last = name.rpartition(".")
        return getattr(module(outer), last, None) if outer else None


def public(name: str) -> list[str]:
    """The public names of a module of a peer."""
    if name in NAMES:
        return NAMES[name]
    return [n for n in dir(module(name)) if has(name, n)]


def has(module_name: str, name: str) -> bool:
    """Whether a module has a public name of its own: neither a module that was imported
    in it, nor something of Python's library."""
    found = getattr(module(module_name), name, None)
    if name.startswith("_") or not hasattr(module(module_name), name):
        return False
    if isinstance(found, ModuleType):
        return module_name in WITH_MODULES
    home = str(getattr(found, "__module__", ""))
    standard = home.partition(".")[0] in sys.stdlib_module_names
    return not (standard and getattr(module(home), name, None) is found)


def rows(place: Place) -> list[Row]:
    """What has become of each name of a module of a peer, in their order."""
    return [_row(place, name) for name in public(place.theirs)]


def _row(place: Place, name: str) -> Row:
    dotted = f"{place.theirs}.{name}"
    found = judged(dotted)
    if found is not None:
        return Row(name, *found[:3])
    for ours in place.ours:
        if has(ours, name):
            return Row(name, "same", f"{ours}.{name}", "")
    return Row(name, *(judged_by_pattern(dotted) or ("missing", "", ""))[:3])


def row(dotted: str) -> Row:
    """What has become of one name of a peer.

    Raises:
      LookupError: if no peer has it.
    """
    outer, _, name = dotted.rpartition(".")
    places = [p for peer in PEERS for p in peer.places if p.theirs == outer]
    if not places or name not in public(outer):
        raise LookupError(f"{dotted} is no name of the peers")
    return _row(places[0], name)


def resolve(dotted: str) -> Any:
    """What a dotted name stands for; None for nothing."""
    outer, _, last = dotted.rpartition(".")
    return getattr(module(outer), last, None)


def resolves(dotted: str) -> bool:
    """Whether a dotted name of ours exists."""
    return module(dotted) is not None or resolve(dotted) is not None
