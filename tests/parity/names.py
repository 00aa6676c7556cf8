"""The names of a peer, and where the same is found here."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any, NamedTuple

from tests.parity.judged import judged, judged_by_pattern
from tests.parity.peers import WITH_MODULES, Place


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
    found = module(name)
    return [
        n
        for n in dir(found)
        if not n.startswith("_")
        and (
            name in WITH_MODULES or not isinstance(getattr(found, n, None), ModuleType)
        )
    ]


def rows(place: Place) -> list[Row]:
    """What has become of each name of a module of a peer, in their order."""
    return [_row(place, name) for name in public(place.theirs)]


def _row(place: Place, name: str) -> Row:
    dotted = f"{place.theirs}.{name}"
    found = judged(dotted)
    if found is not None:
        return Row(name, *found[:3])
    for ours in place.ours:
        if hasattr(module(ours), name):
            return Row(name, "same", f"{ours}.{name}", "")
    return Row(name, *(judged_by_pattern(dotted) or ("missing", "", ""))[:3])


def resolves(dotted: str) -> bool:
    """Whether a dotted name of ours exists."""
    outer, _, last = dotted.rpartition(".")
    return module(dotted) is not None or hasattr(module(outer), last)
