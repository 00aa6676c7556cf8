"""Along which loop vectors run, by how long loops are."""

from __future__ import annotations

from treadle.fuse.lowering.vectors import FILLS, filling, fills, innermost

SIZES = {0: 1, 1: 2, 2: 8, 3: 15, 4: 16, 5: 1, 6: 100, 7: 4}


def test_the_innermost_of_several_points() -> None:
    assert innermost([[2], [1]], SIZES) == [1]
    assert innermost([[2], [1], [0]], SIZES) == [1]
    assert innermost([[2], [0, 1], [0, 5]], SIZES) == [0, 1]
    assert innermost([[0], [5]], SIZES) == [5]
    assert innermost([], SIZES) == []


def test_vectors_are_filled_by_as_many_points_as_lanes() -> None:
    assert SIZES[2] == FILLS
    assert fills([2], SIZES)
    assert fills([1, 7], SIZES)
    assert not fills([7], SIZES)
    assert not fills([0], SIZES)


def test_a_long_loop_is_better_than_a_short_one() -> None:
    assert filling([[6], [2]], SIZES) == [2]
    assert filling([[6], [4], [7]], SIZES) == [6]
    assert filling([[4], [7]], SIZES) == [4]
    # Not if it is not much longer.
    assert filling([[3], [7]], SIZES) == [7]
    assert filling([[2], [7], [0]], SIZES) == [7]
    assert filling([[2, 1], [7], [0]], SIZES) == [2, 1]
    assert filling([], SIZES) == []
