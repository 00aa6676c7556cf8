"""What JAX has, name by name, and where the same is found here."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any, NamedTuple

from tests.parity.judged import judged, judged_by_pattern


class Place(NamedTuple):
    """A module of JAX, and the modules of ours that are searched for its names."""

    theirs: str
    ours: tuple[str, ...]


PLACES = [
    Place("jax", ("treadle", "treadle.debug", "treadle.numpy")),
    Place("jax.lax", ("treadle.lax",)),
    Place("jax.numpy", ("treadle.numpy",)),
    Place("jax.numpy.linalg", ("treadle.numpy.linalg",)),
    Place("jax.numpy.fft", ("treadle.numpy.fft",)),
    Place("jax.random", ("treadle.rng",)),
    Place("jax.nn", ("treadle.nn", "treadle.numpy", "treadle.scipy.special")),
    Place("jax.nn.initializers", ("treadle.nn.init",)),
    Place("jax.scipy.special", ("treadle.scipy.special",)),
    Place("jax.scipy.stats", ("treadle.scipy.stats",)),
    Place("jax.scipy.linalg", ("treadle.scipy.linalg", "treadle.numpy.linalg")),
    Place("jax.scipy.signal", ("treadle.scipy.signal",)),
    Place("jax.scipy.fft", ("treadle.scipy.fft",)),
    Place("jax.scipy.optimize", ("treadle.scipy.optimize",)),
    Place("jax.scipy.sparse.linalg", ("treadle.scipy.sparse.linalg",)),
    Place("jax.scipy.integrate", ("treadle.scipy.integrate", "treadle.numpy")),
    Place("jax.scipy.interpolate", ("treadle.scipy.interpolate",)),
    Place("jax.scipy.ndimage", ("treadle.scipy.ndimage",)),
    Place("jax.scipy.cluster.vq", ("treadle.scipy.cluster.vq",)),
    Place("jax.scipy.spatial.transform", ("treadle.scipy.spatial.transform",)),
    Place("jax.tree", ("treadle.tree",)),
    Place("jax.tree_util", ("treadle.tree",)),
    Place("jax.flatten_util", ("treadle.tree",)),
    Place("jax.image", ("treadle.image",)),
    Place("jax.ops", ("treadle",)),
    Place("jax.debug", ("treadle.debug",)),
    Place("jax.profiler", ()),
    Place("jax.custom_derivatives", ("treadle",)),
    Place("jax.custom_batching", ("treadle",)),
    Place("jax.checkpoint_policies", ("treadle",)),
    Place("jax.ad_checkpoint", ("treadle",)),
    Place("jax.dtypes", ("treadle.dtypes", "treadle.numpy")),
]

MODULES = ("jax.scipy.stats",)
"""Modules of JAX whose modules are names of it, too: distributions."""


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
    """The public names of a module of JAX."""
    found = module(name)
    return [
        n
        for n in dir(found)
        if not n.startswith("_")
        and (name in MODULES or not isinstance(getattr(found, n, None), ModuleType))
    ]


def rows(place: Place) -> list[Row]:
    """What has become of each name of a module of JAX, in their order."""
    return [_row(place, name) for name in public(place.theirs)]


def _row(place: Place, name: str) -> Row:
    dotted = f"{place.theirs}.{name}"
    found = judged(dotted)
    if found is not None:
        return Row(name, *found)
    for ours in place.ours:
        if hasattr(module(ours), name):
            return Row(name, "same", f"{ours}.{name}", "")
    return Row(name, *(judged_by_pattern(dotted) or ("missing", "", "")))


def resolves(dotted: str) -> bool:
    """Whether a dotted name of ours exists."""
    outer, _, last = dotted.rpartition(".")
    return module(dotted) is not None or hasattr(module(outer), last)
