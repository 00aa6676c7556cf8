"""Along which loop the vectors of a nest run."""

from __future__ import annotations

from treadle.dims import hint
from treadle.fuse.maps import extent

FILLS = 8
"""Points along a loop, of which a vector has about as many lanes or more."""
NEAR = 16
"""Elements from one to the next, along a short row, from which on they are too far
apart for a vector of several rows. Those among which a device doesn't choose always
are."""

FEW = (3, 4)
"""Steps along a row of elements that are better loaded with those between them."""


def innermost(groups: list[list[int]], sizes: dict[int, int]) -> list[int]:
    """The last group of several points, so that vectors have lanes to fill; if there is
    none, the last."""
    longer = [g for g in groups if extent(g, sizes) != 1]
    return next(reversed(longer or groups), [])


def fills(group: list[int], sizes: dict[int, int]) -> bool:
    """Whether a vector along these dimensions has all its lanes."""
    return hint(extent(group, sizes)) >= FILLS


def filling(groups: list[list[int]], sizes: dict[int, int]) -> list[int]:
    """The innermost group, or the longest one if that does not fill a vector."""
    chosen = innermost(groups, sizes)
    if not groups or fills(chosen, sizes):
        return chosen
    longest = max(groups, key=lambda g: hint(extent(g, sizes)))
    return longest if hint(extent(longest, sizes)) >= 2 * FILLS else chosen
