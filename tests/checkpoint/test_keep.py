"""Which steps are saved and kept, against Orbax's own manager; compression."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.checkpoint.trees import assert_same
from treadle.checkpoint import Manager, Saved, restore, save, verify

pytestmark = pytest.mark.filterwarnings("ignore")


def ours(path: Path, **options: Any) -> list[int]:
    with Manager(path, keep_best=0, **options) as manager:
        for step in range(12):
            manager.save(step, {"x": step}, {"loss": float((step - 6) ** 2)})
    return manager.all_steps()


@pytest.mark.parametrize(
    ("options", "theirs"),
    [
        (
            {"max_to_keep": 2, "keep_every_steps": 4},
            {"max_to_keep": 2, "keep_period": 4},
        ),
        (
            {"max_to_keep": 1, "keep_every_steps": 5},
            {"max_to_keep": 1, "keep_period": 5},
        ),
        (
            {"max_to_keep": None, "save_interval_steps": 5, "save_on_steps": [3, 4]},
            {"save_interval_steps": 5, "save_on_steps": [3, 4]},
        ),
    ],
    ids=str,
)
def test_the_steps_are_those_of_orbax_s_manager(
    tmp_path: Path, options: dict[str, Any], theirs: dict[str, Any]
) -> None:
    asked = ocp.CheckpointManagerOptions(**theirs)
    with ocp.CheckpointManager(tmp_path / "theirs", options=asked) as manager:
        for step in range(12):
            manager.save(step, args=ocp.args.StandardSave({"x": np.ones(1)}))
        manager.wait_until_finished()
        expected = list(manager.all_steps())
    assert ours(tmp_path / "ours", **options) == expected


def test_one_in_so_much_time(tmp_path: Path) -> None:
    assert ours(tmp_path / "a", max_to_keep=1, keep_every_seconds=3600) == [0, 11]
    assert ours(tmp_path / "b", max_to_keep=2, keep_every_seconds=0) == list(range(12))


def test_what_a_function_says(tmp_path: Path) -> None:
    seen: list[Saved] = []

    def good(saved: Any) -> list[int]:
        seen[:] = saved
        return [one.step for one in saved if one.metrics["loss"] <= 1]

    assert ours(tmp_path / "a", max_to_keep=1, keep=good) == [5, 6, 7, 11]
    assert all(a.time <= b.time for a, b in pairwise(seen))


def test_compressed_checkpoints_are_smaller_and_as_good(tmp_path: Path) -> None:
    value = {"x": np.arange(100_000) // 100, "y": np.ones(3)}
    save(tmp_path / "a", value)
    save(tmp_path / "b", value, compression=3)
    with Manager(tmp_path / "run", compression=1) as manager:
        manager.save(1, value)
    sizes = [
        sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        for path in (tmp_path / "a", tmp_path / "b", tmp_path / "run")
    ]
    assert sizes[1] < sizes[0] / 5 and sizes[2] < sizes[0] / 5
    assert_same(restore(tmp_path / "b", value), value)
    verify(tmp_path / "b")
    with ocp.StandardCheckpointer() as checkpointer:
        assert_same(checkpointer.restore(tmp_path / "b"), value)
    with pytest.raises(ValueError, match="from 1 to 22, or None, not 40"):
        save(tmp_path / "c", value, compression=40)
