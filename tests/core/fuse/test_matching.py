"""When two clusters run over the same points."""

from __future__ import annotations

import pytest

from tests.core.fuse.graphs import array, program_of, traced
from tests.core.ir.following import dimension
from treadle.fuse.cluster import Cluster
from treadle.fuse.grouping.matching import extend, matching
from treadle.ir.maps import ZERO, Affine, Map, shifted

a, b, c = map(dimension, range(3))
PROGRAM = program_of(traced(lambda x: x, array(2)))
BOTH = Affine(0, ((0, 6), (1, 1)))


@pytest.mark.parametrize(
    ("wanted", "found", "names"),
    [
        ((a, b), (a, b), {0: 0, 1: 1}),
        ((a, b), (b, a), {1: 0, 0: 1}),
        ((c, ZERO), (a, ZERO), {0: 2}),
        ((shifted(a, 3),), (shifted(b, 3),), {1: 0}),
        ((BOTH,), (Affine(0, ((2, 6), (0, 1))),), {2: 0, 0: 1}),
        ((a, a), (b, b), {1: 0}),
        ((), (), {}),
        # Another offset, step, or number of dimensions.
        ((shifted(a, 3),), (a,), None),
        ((a,), (dimension(0, 2),), None),
        ((BOTH,), (Affine(0, ((0, 6), (1, 2))),), None),
        ((BOTH,), (Affine(0, ((0, 6),)),), None),
        ((a,), (ZERO,), None),
        # One dimension would be two, or two one.
        ((a, b), (c, c), None),
        ((c, c), (a, b), None),
    ],
)
def test_matching(wanted: Map, found: Map, names: dict[int, int] | None) -> None:
    assert matching(wanted, found) == names


def cluster(
    sizes: dict[int, int], reduced: set[int] = frozenset(), form: str | None = None
) -> Cluster:
    result = Cluster(0, PROGRAM)
    result.space.sizes = dict(sizes)
    result.reduced, result.form = frozenset(reduced), form
    return result


PLAIN = cluster({0: 4, 1: 6})
ROWS = cluster({0: 4, 1: 6}, {1}, "inner")
OTHER_ROWS = cluster({2: 6, 3: 4}, {2}, "inner")


@pytest.mark.parametrize(
    ("names", "mine", "other", "full"),
    [
        ({0: 0, 1: 1}, PLAIN, PLAIN, {0: 0, 1: 1}),
        ({0: 1, 1: 0}, PLAIN, cluster({0: 6, 1: 4}), {0: 1, 1: 0}),
        # What is reduced is found by itself.
        ({3: 0}, ROWS, OTHER_ROWS, {3: 0, 2: 1}),
        ({3: 0, 2: 1}, ROWS, OTHER_ROWS, {3: 0, 2: 1}),
        ({3: 0, 2: 1}, ROWS, cluster({2: 6, 3: 4}), {3: 0, 2: 1}),
        ({0: 0, 1: 1}, PLAIN, ROWS, {0: 0, 1: 1}),
        # The sizes differ, or those of what is reduced.
        ({0: 0, 1: 1}, PLAIN, cluster({0: 4, 1: 5}), None),
        ({3: 0}, ROWS, cluster({2: 5, 3: 4}, {2}, "inner"), None),
        # A dimension is left, here or there.
        ({0: 0}, PLAIN, cluster({0: 4}), None),
        ({0: 0}, PLAIN, PLAIN, None),
        ({0: 0}, PLAIN, ROWS, None),
        ({0: 0}, ROWS, PLAIN, None),
        ({0: 0}, ROWS, cluster({0: 4, 1: 6, 2: 6}, {1, 2}, "mid"), None),
        # What is kept here is reduced there.
        ({3: 1}, cluster({0: 4, 1: 4}, {1}, "inner"), OTHER_ROWS, None),
        ({3: 1}, cluster({1: 6}, {1}, "inner"), cluster({2: 6, 3: 6}, {2}), None),
        (
            {0: 1, 1: 0},
            cluster({0: 4, 1: 4}, {1}, "inner"),
            cluster({0: 4, 1: 4}, {1}, "inner"),
            None,
        ),
    ],
)
def test_extend(
    names: dict[int, int], mine: Cluster, other: Cluster, full: dict[int, int] | None
) -> None:
    names = dict(names)
    assert extend(names, mine, other) == (full is not None)
    if full is not None:
        assert names == full
