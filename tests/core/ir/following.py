"""Index maps followed with NumPy: what each point of a space reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from treadle.ir.maps import Affine, Map, Split, cut, reshape

Sizes = dict[int, int]


def numbered(shape: Sequence[int]) -> np.ndarray:
    """An array whose elements all differ."""
    return np.arange(int(np.prod(shape))).reshape(shape)


def dimension(name: int, step: int = 1, offset: int = 0) -> Affine:
    """The index along one dimension."""
    return Affine(offset, ((name, step),))


def whole(shape: Sequence[int]) -> tuple[Map, Sizes]:
    """A map with a dimension along each axis, and their sizes."""
    sizes = dict(enumerate(shape))
    return tuple(map(dimension, sizes)), sizes


def read(array: np.ndarray, entries: Map, sizes: Mapping[int, int]) -> np.ndarray:
    """What the points of a space read: an axis for each dimension."""
    extents = list(sizes.values())
    grid = dict(zip(sizes, np.indices(extents), strict=True))
    places = []
    for a, n in zip(entries, array.shape, strict=True):
        place = np.full(extents, a.offset)
        for d, c in a.terms:
            place += c * grid[d]
        assert ((place >= 0) & (place < n)).all(), "outside of the array"
        places.append(place)
    return np.broadcast_to(array[tuple(places)], extents)


def reshaped(
    entries: Map,
    shape: Sequence[int],
    new_shape: Sequence[int],
    sizes: Sizes,
    units: Mapping[int, int] | None = None,
) -> tuple[Map, Map, Sizes] | None:
    """The map before and after a reshape, and the sizes, all splits made."""
    sizes = dict(sizes)
    while isinstance(
        found := reshape(entries, shape, new_shape, sizes, units or {}), Split
    ):
        inner = max(sizes) + 1
        outer, rest = divmod(sizes[found.dimension], found.inner)
        assert outer > 1 < found.inner, "nothing is split"
        assert not rest, "the parts are unequal"
        entries = cut(entries, found, inner)
        sizes |= {found.dimension: outer, inner: found.inner}
    return None if found is None else (entries, found, sizes)
