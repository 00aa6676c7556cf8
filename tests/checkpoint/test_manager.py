"""What a Manager keeps, what it refuses, and what it does about damage."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoint.trees import assert_same, training_state
from treadle.checkpoint import DamagedError, Manager, commit, save, store
from treadle.errors import StructureError


def fill(manager: Manager, losses: list[float | None]) -> None:
    for step, loss in enumerate(losses):
        metrics = None if loss is None else {"loss": loss}
        manager.save(step, {"x": np.full(3, step)}, metrics)
    manager.wait()


def first(tree: Any) -> int:
    return int(np.asarray(tree["x"])[0])


def spoil(manager: Manager, step: int) -> None:
    folder = Path(manager.path(step)) / "default" / "d"
    for file in folder.iterdir():
        file.write_bytes(file.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("options", "losses", "kept", "best"),
    [
        ({}, [5, 1, 4, 3, 2, 6], [1, 3, 4, 5], 1),
        ({"max_to_keep": 1}, [5, 1, 4], [1, 2], 1),
        ({"max_to_keep": 1, "keep_best": 0}, [5, 1, 4], [2], 2),
        ({"max_to_keep": 1, "keep_best": 2}, [5, 1, 4, 6], [1, 2, 3], 1),
        ({"max_to_keep": None}, [5, 1, 4, 6], [0, 1, 2, 3], 1),
        ({"max_to_keep": 2}, [1, 1, 1, 1], [2, 3], 3),
        ({"max_to_keep": 1, "mode": "max"}, [5, 1, 4], [0, 2], 0),
        ({"max_to_keep": 1}, [None, None, None], [2], None),
        ({"max_to_keep": 1}, [None, 3, float("nan"), None], [1, 3], 1),
        ({"max_to_keep": 1}, [2, float("-inf"), 3], [1, 2], 1),
    ],
)
def test_retention(
    tmp_path: Path,
    options: dict[str, Any],
    losses: list[float | None],
    kept: list[int],
    best: int | None,
) -> None:
    with Manager(tmp_path / "run", **options) as manager:
        fill(manager, losses)
        assert manager.all_steps() == kept
        assert manager.best_step() == best
        assert manager.latest_step() == len(losses) - 1
        assert first(manager.restore()) == len(losses) - 1
        assert first(manager.restore(step=kept[0])) == kept[0]
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        str(step) for step in kept
    ]


def test_interval(tmp_path: Path) -> None:
    with Manager(tmp_path, save_interval_steps=3, max_to_keep=None) as manager:
        done = [manager.save(step, {"x": step}) for step in range(8)]
        assert done == [step % 3 == 0 for step in range(8)]
        assert manager.save(7, {"x": 7}, force=True)
    assert manager.all_steps() == [0, 3, 6, 7]


def test_a_new_process_sees_the_same(tmp_path: Path) -> None:
    with Manager(tmp_path) as manager:
        manager.save(4, training_state(4), {"loss": 0.5, "accuracy": np.float32(0.75)})
    again = Manager(tmp_path)
    assert again.metrics(4) == {"loss": 0.5, "accuracy": 0.75}
    assert_same(again.restore(training_state()), training_state(4))
    assert again.best_step() == 4


def test_nothing_there(tmp_path: Path) -> None:
    manager = Manager(tmp_path / "none")
    assert manager.all_steps() == []
    assert manager.latest_step() is None
    assert manager.best_step() is None
    with pytest.raises(FileNotFoundError, match="no step is saved"):
        manager.restore()
    assert not (tmp_path / "none").exists()


def test_a_missing_step_is_named(tmp_path: Path) -> None:
    with Manager(tmp_path) as manager:
        fill(manager, [None, None])
        with pytest.raises(FileNotFoundError, match=r"step 7 .* there are \[0, 1\]"):
            manager.restore(step=7)


def test_saving_twice(tmp_path: Path) -> None:
    with Manager(tmp_path) as manager:
        manager.save(1, {"x": 1})
        with pytest.raises(FileExistsError, match="force=True"):
            manager.save(1, {"x": 2})
        assert manager.restore() == {"x": 1}
        manager.save(1, {"x": 2}, force=True)
        assert manager.restore() == {"x": 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_to_keep": 0}, "max_to_keep is a whole number and at least 1, not 0"),
        ({"mode": "least"}, "'min' or 'max', not 'least'"),
        ({"save_interval_steps": 0}, "save_interval_steps is a whole number and"),
        ({"max_to_keep": 2.5}, r"max_to_keep is a whole number .*, not 2\.5"),
        ({"keep_best": -1}, "keep_best is a whole number and at least 0, not -1"),
        ({"step_prefix": "a/b"}, "step_prefix is part of a name, not 'a/b'"),
        ({"step_prefix": ""}, "step_prefix is part of a name, not ''"),
        ({"step_format_fixed_length": 0}, "fixed_length is a whole number and at"),
    ],
)
def test_wrong_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Manager(tmp_path, **options)


def test_metrics_without_the_best_one(tmp_path: Path) -> None:
    with Manager(tmp_path) as manager:
        with pytest.raises(ValueError, match=r"lack the best_metric 'loss'"):
            manager.save(1, {"x": 1}, {"accuracy": 1.0})
        assert manager.latest_step() is None
    with Manager(tmp_path, keep_best=0) as manager:
        manager.save(1, {"x": 1}, {"accuracy": 1.0})
    assert manager.metrics(1) == {"accuracy": 1.0}


def test_falls_back_to_an_intact_step(tmp_path: Path) -> None:
    manager = Manager(tmp_path, max_to_keep=None)
    fill(manager, [None] * 4)
    shutil.rmtree(Path(manager.path(3)) / "default")
    spoil(manager, 2)
    with pytest.warns(UserWarning, match=r"(?s)step 3 cannot.*Step 1 is restored"):
        assert first(manager.restore()) == 1
    with pytest.raises(DamagedError, match=r"Step 1 is intact: restore\(step=1\)"):
        manager.restore(fall_back=False)
    with pytest.raises(DamagedError, match=r"(?s)step 2 cannot.*Step 1 is intact"):
        manager.restore(step=2)
    spoil(manager, 1)
    spoil(manager, 0)
    with pytest.raises(DamagedError, match="No earlier step is intact"):
        manager.restore()


def test_a_mismatch_does_not_fall_back(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    fill(manager, [None] * 2)
    with pytest.raises(StructureError, match=r"x: float64\[2\] expected"):
        manager.restore({"x": np.zeros(2)})


def test_a_failed_save_is_raised_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> None:
        raise OSError("No space left on device")

    manager = Manager(tmp_path)
    manager.save(1, {"x": 1})
    manager.wait()
    with monkeypatch.context() as patch:
        patch.setattr(store, "write", full)
        manager.save(2, {"x": 2})
        with pytest.raises(OSError, match="No space"):
            manager.save(3, {"x": 3})
    manager.save(4, {"x": 4})
    manager.close()
    assert manager.all_steps() == [1, 4]


def test_an_exception_in_the_block_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "write", None)
    with pytest.raises(KeyError, match="first"), Manager(tmp_path) as manager:
        manager.save(1, {"x": 1})
        raise KeyError("first")


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("keep")
    save(tmp_path / "exported", {"x": 1})
    with Manager(tmp_path, max_to_keep=1) as manager:
        fill(manager, [None] * 3)
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["2", "exported", "notes.txt"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_handler_of_a_signal_is_given_back(
    tmp_path: Path, number: signal.Signals
) -> None:
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with Manager(tmp_path), Manager(tmp_path):
            assert signal.getsignal(number) != signal.SIG_DFL
        assert signal.getsignal(number) == signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN)
        with Manager(tmp_path):
            assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("step", [-1, 1.0, "1", None, True])
def test_a_step_that_could_not_be_found_again(tmp_path: Path, step: Any) -> None:
    with Manager(tmp_path) as manager:
        with pytest.raises(ValueError, match="step is a whole number and at least 0"):
            manager.save(step, {"x": 1})
        manager.save(np.int64(4), {"x": 4})
        assert manager.restore(step=np.int32(4)) == {"x": 4}
    assert [p.name for p in tmp_path.iterdir()] == ["4"]


@pytest.mark.parametrize("text", ["{", "[1]", '{"loss": "low"}', '{"loss": null}', ""])
def test_damaged_metrics_do_not_stop_a_training(tmp_path: Path, text: str) -> None:
    manager = Manager(tmp_path)
    fill(manager, [1, 3])
    metrics = tmp_path / "0" / "metrics"
    (metrics / "metrics").write_text(text)
    assert manager.metrics(0) == {"loss": 1}
    (metrics / "checked.json").write_text(text)
    assert manager.metrics(0) == {}
    assert manager.best_step() == 1
    manager.save(2, {"x": np.full(3, 2)}, {"loss": 4})
    manager.wait()
    assert manager.best_step() == 1
    assert first(manager.restore()) == 2


def test_no_flipped_bit_changes_which_step_is_best(tmp_path: Path) -> None:
    manager = Manager(tmp_path, max_to_keep=None)
    fill(manager, [0.52, 0.51, 0.53])
    for file in tmp_path.glob("*/metrics/*"):
        content = file.read_bytes()
        for bit in range(8 * len(content)):
            changed = bytearray(content)
            changed[bit // 8] ^= 1 << bit % 8
            file.write_bytes(changed)
            assert manager.best_step() == 1
        file.unlink()
        assert manager.best_step() == 1
        file.write_bytes(content)


def test_a_metric_that_is_no_number_is_named(tmp_path: Path) -> None:
    with (
        Manager(tmp_path) as manager,
        pytest.raises(TypeError, match="metric 'loss' is 'low'"),
    ):
        manager.save(1, {"x": 1}, {"loss": "low"})


def test_two_managers_of_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One deletes what the other is about to delete, or to read."""
    slow, quick = Manager(tmp_path, max_to_keep=1), Manager(tmp_path, max_to_keep=1)
    fill(slow, [None])
    discard = commit.discard

    def late(path: str) -> None:
        discard(path)
        discard(path)

    with monkeypatch.context() as patch:
        patch.setattr(commit, "discard", late)
        slow.save(1, {"x": np.full(3, 1)})
        slow.wait()
    assert slow.all_steps() == [1]

    listed = slow.all_steps

    def before_another_saves() -> list[int]:
        found = listed()
        monkeypatch.setattr(slow, "all_steps", listed)
        quick.save(2, {"x": np.full(3, 2)})
        quick.wait()
        return found

    monkeypatch.setattr(slow, "all_steps", before_another_saves)
    assert first(slow.restore()) == 2
