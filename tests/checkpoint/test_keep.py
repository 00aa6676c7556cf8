"""Which steps are saved and kept, against Orbax's own manager; compression."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts

from tests.checkpoint.trees import assert_same
from treadle.checkpoint import Manager, Saved, commit, restore, save, store, verify

policies = ocp.checkpoint_managers

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
        (
            {"max_to_keep": None, "save_on_steps": [3, 4]},
            {"save_decision_policy": policies.SpecificStepsPolicy({3, 4})},
        ),
        (
            {"max_to_keep": None, "save_interval_steps": 6, "save_on_steps": [2]},
            {
                "save_decision_policy": policies.AnySavePolicy(
                    [
                        policies.FixedIntervalPolicy(6),
                        policies.SpecificStepsPolicy({2}),
                    ]
                )
            },
        ),
        (
            {"max_to_keep": None, "save_when": lambda step, latest: latest is None},
            {"save_decision_policy": policies.InitialSavePolicy()},
        ),
        (
            {"max_to_keep": None, "save_interval_seconds": 3600},
            {
                "save_decision_policy": policies.ContinuousCheckpointingPolicy(
                    minimum_interval_secs=3600
                )
            },
        ),
        (
            {"max_to_keep": 2, "keep_every_steps": 5, "keep": lambda _: [1, 3]},
            {
                "preservation_policy": policies.AnyPreservationPolicy(
                    [
                        policies.LatestN(2),
                        policies.EveryNSteps(5),
                        policies.CustomSteps([1, 3]),
                    ]
                )
            },
        ),
    ],
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


def test_some_time_after_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now)
    with Manager(tmp_path, save_interval_seconds=60) as manager:
        assert manager.save(1, {"x": 1})
        manager.wait()
        now += 59
        assert not manager.save(2, {"x": 2})
        now += 2
        assert manager.save(3, {"x": 3})
    # A new process goes on from what is in the folder.
    again = Manager(tmp_path, save_interval_seconds=60)
    now = commit.written(again.path(3)) + 30
    assert not again.save(4, {"x": 4})
    now += 31
    assert again.save(5, {"x": 5})
    again.wait()


PREEMPTED = """
import os, signal, sys
from treadle.checkpoint import Manager

with Manager(sys.argv[1], save_interval_steps=100, save_on_preemption=True) as manager:
    for step in range(1, 50):
        if step == 7:
            os.kill(os.getpid(), signal.SIGTERM)
            print("still here", manager.preempted, flush=True)
        manager.save(step, {"x": step})
print("not reached")
"""


def test_the_step_under_way_is_saved_when_asked_to_end(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PREEMPTED, tmp_path], capture_output=True, text=True
    )
    assert done.returncode == 128 + signal.SIGTERM
    assert done.stdout == "still here True\n"
    assert Manager(tmp_path).restore() == {"x": 7}


def test_a_step_is_deleted(tmp_path: Path) -> None:
    with Manager(tmp_path) as manager:
        for step in (1, 2):
            manager.save(step, {"x": step})
        manager.delete(2)
        assert manager.all_steps() == [1] and list(tmp_path.iterdir()) == [
            tmp_path / "1"
        ]
        with pytest.raises(FileNotFoundError, match="step 2 is not in"):
            manager.delete(2)


def test_files_and_chunks_have_the_sizes_that_are_asked_for(tmp_path: Path) -> None:
    value = {"x": np.random.default_rng(0).integers(0, 256, (64, 4096), np.uint8)}
    save(tmp_path / "a", value, chunk_bytes=1 << 14, file_bytes=1 << 16)
    sizes = [f.stat().st_size for f in (tmp_path / "a").glob("**/d/*")]
    assert len(sizes) >= 4 and max(sizes) < 3 << 16
    assert_same(restore(tmp_path / "a", value, max_bytes_in_flight=1 << 14), value)
    spec = store._spec(str(tmp_path / "a"), "x")
    opened = ts.open(spec, open=True).result()
    assert opened.chunk_layout.read_chunk.shape == (4, 4096)
    with ocp.StandardCheckpointer() as checkpointer:
        assert_same(checkpointer.restore(tmp_path / "a"), value)
    with pytest.raises(ValueError, match="chunk_bytes is a whole number of bytes"):
        save(tmp_path / "b", value, chunk_bytes=0)
    with pytest.raises(TypeError, match="no option 'chunks'"):
        Manager(tmp_path, chunks=1)  # type: ignore[call-arg]


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
