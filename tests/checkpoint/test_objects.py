"""Object stores: complete once the marker is there, and nothing in between."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoint.trees import assert_same, training_state
from treadle.checkpoint import (
    DamagedError,
    Items,
    Manager,
    describe,
    metadata,
    objects,
    places,
    restore,
    save,
    store,
    verify,
)
from treadle.checkpoint.makers import Maker

_numbers = itertools.count()


@pytest.fixture
def place() -> str:
    return f"memory://test-{next(_numbers)}"


def flip(path: str) -> None:
    """Changes a bit in the middle of an object."""
    content = bytearray(places.read(path))
    content[len(content) // 2] ^= 1
    places.write(path, bytes(content))


def test_a_checkpoint(place: str) -> None:
    save(f"{place}/a", training_state(3), metadata={"k": 1})
    assert_same(restore(f"{place}/a", training_state(0)), training_state(3))
    assert metadata(f"{place}/a") == {"k": 1}
    assert describe(f"{place}/a")["step"] == "Python int"
    verify(f"{place}/a")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        save(f"{place}/a", 1)
    save(f"{place}/a", {"x": 2}, overwrite=True)
    assert restore(f"{place}/a/") == {"x": 2}
    # Of the first one nothing is left.
    assert len({name.split("/")[1] for name in places.below(place)}) == 2


def test_a_run(place: str) -> None:
    with Manager(f"{place}/run", max_to_keep=2, metadata={"r": 1}) as manager:
        for step in range(5):
            items = Items(model={"w": np.full(3, step)}, ema={"w": step})
            manager.save(step, items, {"loss": (step - 1) ** 2})
    again = Manager(f"{place}/run")
    assert again.all_steps() == [1, 3, 4] and again.best_step() == 1
    assert again.restore(item="ema", step=3) == {"w": 3}
    assert again.metadata() == {"r": 1}
    assert places.names(f"{place}/run") == ["1", "3", "4", "metadata"]
    before = time.time()
    assert before - 100 < manager._saved_at(4).time <= before


def test_a_damaged_step_is_passed_over(place: str) -> None:
    with Manager(f"{place}/run") as manager:
        for step in (1, 2):
            manager.save(step, {"w": np.random.default_rng(0).random(99)})
    data = objects.data_of(f"{place}/run/2")
    for name in places.below(f"{data}/default/d"):
        flip(f"{data}/default/d/{name}")
    with pytest.raises(DamagedError):
        verify(f"{place}/run/2")
    with pytest.warns(UserWarning, match="Step 1 is restored"):
        manager.restore()


def died(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_killed_before_the_commit(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = f"{place}/run"
    with Manager(run) as manager:
        manager.save(1, {"x": 1})
    with monkeypatch.context() as patch:
        # As a process that is killed: it neither commits nor tidies up.
        patch.setattr(objects, "publish", died)
        patch.setattr(objects, "delete", lambda _: None)
        for step in (1, 2):
            with pytest.raises(KeyboardInterrupt):
                save(f"{run}/{step}", {"x": -step}, overwrite=True)
    assert Manager(run).all_steps() == [1]
    assert restore(f"{run}/1") == {"x": 1}
    with pytest.raises(FileNotFoundError, match="no commit_success"):
        restore(f"{run}/2")
    # This process lives, so it may be writing them still.
    objects.sweep(run)
    assert len({n.split("/")[1] for n in places.below(run) if "data-" in n}) == 3
    with monkeypatch.context() as patch:
        patch.setattr(Maker, "is_dead", True)
        with Manager(run) as manager:
            assert len([n for n in places.names(run)]) == 1
            manager.save(2, {"x": 2})
    assert Manager(run).all_steps() == [1, 2]
    assert restore(f"{run}/1") == {"x": 1}


@pytest.mark.parametrize(("days", "left"), [(0.5, 1), (2, 0)])
def test_a_save_of_another_machine_has_a_day(
    place: str, days: float, left: int
) -> None:
    began = int(time.time() - days * 86400)
    places.write(f"{place}/3/data-{began}-elsewhere_1-2-3-4/part", b"x")
    objects.sweep(place)
    assert len(places.below(place)) == left


class Reads:
    """A store whose n-th reading of the marker is followed by another's save."""

    def __init__(self, store: Any, after: int, then: Callable[[], None]) -> None:
        self._store, self._left, self._then = store, after, then

    def read(self, name: str) -> Any:
        found = self._store.read(name)
        if name == objects.MARKER:
            found.result()
            self._left -= 1
            if not self._left:
                self._then()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_save_between_looking_and_writing(
    place: str, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    opened, path = places.opened, f"{place}/a"
    ours, theirs = {"who": 1}, {"who": 2}
    done: list[bool] = []

    def other() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(places, "opened", opened)
            save(path, theirs)
        done.append(True)

    reads = Reads(opened(path), after, other)

    def watching(folder: str) -> Any:
        return reads if folder == path else opened(folder)

    monkeypatch.setattr(places, "opened", watching)
    if after < 3:
        with pytest.raises(FileExistsError):
            save(path, ours)
    else:
        # The marker is read when the save begins and when it ends, and then no more.
        save(path, ours)
    monkeypatch.undo()
    assert restore(path) == (theirs if after < 3 else ours)
    assert bool(done) == (after < 3)


@pytest.mark.parametrize("overwrite", [False, True])
def test_two_writers_never_mix(
    place: str, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    """The second begins while the first has written its data."""
    ours, theirs = {"who": np.zeros(1000)}, {"who": np.ones(1000)}
    publish = objects.publish

    def late(made: str, path: str, *, overwrite: bool) -> None:
        monkeypatch.setattr(objects, "publish", publish)
        save(path, theirs)
        publish(made, path, overwrite=overwrite)

    monkeypatch.setattr(objects, "publish", late)
    if overwrite:
        save(f"{place}/a", ours, overwrite=True)
        assert_same(restore(f"{place}/a", ours), ours)
    else:
        with pytest.raises(FileExistsError):
            save(f"{place}/a", ours)
        assert_same(restore(f"{place}/a", ours), theirs)
    verify(f"{place}/a")
    assert len({name.split("/")[1] for name in places.below(place)}) == 2


def test_a_failed_save_leaves_nothing(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError("no room")

    monkeypatch.setattr(store, "write", full)
    with pytest.raises(OSError, match="no room"):
        save(f"{place}/a", {"x": np.ones(3)})
    assert places.below(place) == []


def test_a_copy_in_a_folder_is_read(place: str, tmp_path: Path) -> None:
    with Manager(f"{place}/run") as manager:
        manager.save(7, training_state(7), {"loss": 1.0}, metadata={"k": 1})
    for name in places.below(f"{place}/run"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(places.read(f"{place}/run/{name}"))
    copied = Manager(tmp_path)
    assert copied.all_steps() == [7] and copied.metrics(7) == {"loss": 1.0}
    assert_same(copied.restore(training_state(0)), training_state(7))
    assert copied.metadata(7) == {"k": 1}
    with copied:
        copied.save(7, {"x": 1}, force=True)
    assert copied.restore() == {"x": 1}


def test_what_orbax_commits_so_is_read(place: str, tmp_path: Path) -> None:
    """On Google's store Orbax writes its marker beside the data."""
    import orbax.checkpoint as ocp

    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", {"w": np.arange(3.0)})
        checkpointer.wait_until_finished()
    files = [p for p in (tmp_path / "a").rglob("*") if p.is_file()]
    for file in files:
        name = file.relative_to(tmp_path / "a").as_posix()
        if name != objects.MARKER:
            places.write(f"{place}/a/{name}", file.read_bytes())
    with pytest.raises(FileNotFoundError):
        restore(f"{place}/a")
    places.write(f"{place}/a/{objects.MARKER}", b"Checkpoint commit was successful")
    np.testing.assert_array_equal(restore(f"{place}/a")["w"], np.arange(3.0))
    save(f"{place}/a", {"x": 1}, overwrite=True)
    assert restore(f"{place}/a") == {"x": 1}


def test_what_is_no_place(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no place .* unsupported URL scheme"):
        save("s4://bucket/a", 1)
    with pytest.raises(ValueError, match="pass the URL as a string"):
        save(Path("s3://bucket/a"), 1)
    with pytest.raises(ValueError, match="below"):
        save("memory://a", 1)
    save(f"file://{tmp_path}/a", {"x": 1})
    assert restore(tmp_path / "a") == {"x": 1}
    assert json.loads((tmp_path / "a" / "treadle.json").read_text())
