"""Along which loop the vectors of a nest run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.dims import hint
from treadle.fuse.maps import extent

if TYPE_CHECKING:
    from treadle.fuse.lowering.nests import Access

FILLS = 8
"""Points along a loop, of which a vector has about as many lanes or more."""
NEAR = 16
"""Elements from one to the next, along a short row, from which on they are too far
apart for a vector of several rows. Those among which a device doesn't choose always
are."""

MOST_COLUMNS = 8
"""Elements of rows that vectors of whole columns are put together to."""
MOST_INSTRUCTIONS = 64
"""Of such a nest, times its columns: they are written for each of them."""

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


def contiguous(
    groups: list[list[int]],
    sizes: dict[int, int],
    accesses: list[Access],
    least: int,
    instructions: int,
) -> list[int]:
    """The innermost group; if that does not fill a vector, a longer one along which
    elements of another array follow each other, unless those of a short row are near
    each other anyway (`NEAR`), or rows are made of columns. least: bytes of elements
    that are chosen. instructions: of the nest; 0 if its rows come in order."""
    chosen = innermost(groups, sizes)
    if not groups or fills(chosen, sizes):
        return chosen
    few = 0 < instructions * hint(extent(chosen, sizes)) <= MOST_INSTRUCTIONS
    if few and makes_rows(groups, sizes, accesses):
        return chosen
    arrays = [dict(a.strides) for a in accesses if a.atom is not None]
    near = NEAR if near_least(accesses, least) else 0
    for group in reversed(groups):
        follows = any(
            [
                hint(steps.get(group[-1], 0)) == 1
                and abs(hint(steps.get(chosen[-1], 0))) >= near
                for steps in arrays
            ]
        )
        if follows and hint(extent(group, sizes)) >= 2 * FILLS:
            return group
    return chosen


def near_least(accesses: list[Access], least: int) -> bool:
    return all([a.dtype.itemsize >= least for a in accesses])


def makes_rows(
    groups: list[list[int]], sizes: dict[int, int], accesses: list[Access]
) -> bool:
    """Whether rows of a few elements are stored one behind the other, and made of
    columns that lie along the loop around them, each behind the other."""
    *_, around, row = [[], *groups]
    columns = hint(extent(row, sizes))
    if not around or not 1 < columns <= MOST_COLUMNS:
        return False
    if hint(extent(around, sizes)) < 2 * FILLS:
        return False
    apart = False
    for a in accesses:
        if a.atom is None:
            continue
        steps = {d: hint(step) for d, step in a.strides}
        along, down = steps.get(row[-1], 0), steps.get(around[-1], 0)
        behind = (along, down) == (1, columns)
        if a.gathers or (a.store and not behind):
            return False
        is_apart = down == 1 and abs(along) > 2
        is_simple = (along, down) in ((0, 0), (1, 0), (0, 1))
        if not (behind or is_apart or is_simple):
            return False
        apart = apart or is_apart
    return apart


def turned_last(
    outers: list[list[int]],
    inner: list[int],
    sizes: dict[int, int],
    accesses: list[Access],
) -> list[list[int]]:
    """The outer groups, with that at their end along which elements follow each other
    that lie apart along rows: neighbouring rows share their lines of memory."""
    for a in accesses:
        steps = dict(a.strides)
        if a.atom is None or abs(hint(steps.get(inner[-1], 0))) <= 1:
            continue
        for group in outers[:-1]:
            near = 1 <= abs(hint(steps.get(group[-1], 0))) <= 2  # or parts of numbers
            if near and fills(group, sizes):
                return [*(g for g in outers if g is not group), group]
    return outers
