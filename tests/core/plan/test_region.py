"""Which nests share a parallel region."""

from __future__ import annotations

from treadle.plan.region import Region
from treadle.plan.steps import Buffer, CopyStep, NestStep, Place, Step

A, B, C, D = (Place(Buffer(64)) for _ in range(4))


def nest(reads: list[Place], writes: list[Place]) -> NestStep:
    return NestStep((), reads, writes)


def region(*steps: Step) -> Region:
    found = Region([])
    for step in steps:
        found.take(step)
    return found


def test_independent_nests_run_together() -> None:
    assert region().admits(nest([A], [B]))
    assert region(nest([A], [B])).admits(nest([A], [C]))
    assert region(nest([A], [B]), nest([A], [C])).admits(nest([], [D]))


def test_what_one_writes_none_other_touches() -> None:
    found = region(nest([A], [B]))
    assert not found.admits(nest([B], [C]))  # reads what is written
    assert not found.admits(nest([C], [A]))  # writes what is read
    assert not found.admits(nest([C], [B]))  # writes what is written
    # Other bytes of one buffer are the same buffer.
    assert not found.admits(nest([B.shifted(32)], [C]))


def test_all_that_were_taken_count() -> None:
    found = region(nest([A], [B]), nest([C], [D]))
    for place in (B, D):
        assert not found.admits(nest([place], [Place(Buffer(64))]))
    for place in (A, C):
        assert not found.admits(nest([], [place]))


def test_only_nests_run_together() -> None:
    assert not region(nest([A], [B])).admits(CopyStep((), [C], [D]))
    copied = region(CopyStep((), [A], [B]))
    assert not copied.admits(nest([C], [D]))
    assert not region(CopyStep((), [A], [B]), nest([], [])).admits(nest([C], [D]))
