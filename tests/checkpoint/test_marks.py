"""Only checkpoints are ever deleted, and what a killed process has left of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treadle.checkpoint import Manager, commit, makers, restore, save, store

IMAGE = b"a picture"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def pictures(folder: Path, count: int = 10) -> Path:
    """A data set: folders named after classes that are numbers."""
    for label in range(count):
        (folder / str(label)).mkdir(parents=True)
        (folder / str(label) / "0.png").write_bytes(IMAGE)
    return folder


def test_folders_with_numbers_are_not_steps(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "images")
    before = names(folder)
    with Manager(folder, max_to_keep=1) as manager:
        assert manager.all_steps() == []
        for step in (1000, 1001):
            manager.save(step, {"x": step}, {"loss": -step})
    assert manager.all_steps() == [1001]
    assert names(folder) == sorted([*before, "1001"])
    assert all((folder / name / "0.png").read_bytes() == IMAGE for name in before)


@pytest.mark.parametrize("force", [False, True])
def test_what_is_not_a_step_is_not_replaced(tmp_path: Path, force: bool) -> None:
    pictures(tmp_path)
    (tmp_path / "10").write_bytes(IMAGE)
    with Manager(tmp_path) as manager:
        for step in (7, 10):
            with pytest.raises(FileExistsError, match="is not a checkpoint"):
                manager.save(step, {"x": 1}, force=force)
    assert (tmp_path / "7" / "0.png").read_bytes() == IMAGE
    assert (tmp_path / "10").read_bytes() == IMAGE


def test_what_comes_during_a_save_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = store.write

    def then_come(*args: object) -> None:
        write(*args)
        shutil.rmtree(tmp_path / "1")
        pictures(tmp_path, 2)

    manager = Manager(tmp_path)
    manager.save(1, {"x": 1})
    manager.wait()
    monkeypatch.setattr(store, "write", then_come)
    manager.save(1, {"x": 2}, force=True)
    with pytest.raises(FileExistsError, match="is not a checkpoint"):
        manager.wait()
    assert names(tmp_path) == ["0", "1"]
    assert (tmp_path / "1" / "0.png").read_bytes() == IMAGE


def test_a_checkpoint_among_data_does_not_make_it_a_step(tmp_path: Path) -> None:
    pictures(tmp_path)
    save(tmp_path / "3" / "model", {"x": 3})
    with Manager(tmp_path, max_to_keep=1) as manager:
        manager.save(20, {"x": 20})
        manager.save(21, {"x": 21})
    assert names(tmp_path / "3") == ["0.png", "model"]
    assert manager.all_steps() == [21]


@pytest.mark.parametrize("lost", ["default", "_CHECKPOINT_METADATA"])
def test_a_damaged_step_is_one(tmp_path: Path, lost: str) -> None:
    with Manager(tmp_path, max_to_keep=1) as manager:
        manager.save(1, {"x": 1}, {"loss": 1})
        manager.wait()
        path = tmp_path / "1" / lost
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        assert manager.all_steps() == [1]
        manager.save(1, {"x": 2}, force=True)
        assert manager.restore() == {"x": 2}


def test_a_link_to_a_step_is_deleted_not_the_step(tmp_path: Path) -> None:
    save(tmp_path / "elsewhere", {"x": 0})
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "0").symlink_to(tmp_path / "elsewhere")
    with Manager(tmp_path / "run", max_to_keep=1) as manager:
        assert manager.restore() == {"x": 0}
        manager.save(1, {"x": 1})
    assert names(tmp_path / "run") == ["1"]
    assert restore(tmp_path / "elsewhere") == {"x": 0}


def leftover(path: Path, made_by: int, begun: str = "1") -> Path:
    """What a process leaves if it is killed while it saves `path`."""
    mark = f"{path.name}.orbax-checkpoint-tmp"
    made = path.with_name(f"{mark}-{makers._place()}-{made_by}-{begun}-0")
    (made / "default").mkdir(parents=True)
    return made


@pytest.fixture
def alive() -> int:
    return os.getppid()


DEAD = 2**22 + 1


def test_the_leftovers_of_the_dead_are_swept(tmp_path: Path, alive: int) -> None:
    leftover(tmp_path / "3", DEAD)
    # The number of a dead process, which another one has now.
    leftover(tmp_path / "4", alive, begun="1")
    kept = leftover(tmp_path / "5", alive, makers._started(alive))
    with Manager(tmp_path) as manager:
        assert manager.all_steps() == []
    assert names(tmp_path) == [kept.name]


@pytest.mark.parametrize(
    "name",
    [
        "2.orbax-checkpoint-tmp",
        "2.orbax-checkpoint-tmp-1699999999999",
        "2.orbax-checkpoint-tmp-another_machine-77-1234-0",
    ],
)
def test_who_cannot_be_asked_is_given_an_hour(tmp_path: Path, name: str) -> None:
    """Orbax does not say who saves, and on another machine nobody can look."""
    folder = tmp_path / name / "default"
    folder.mkdir(parents=True)
    (folder / "part").write_bytes(b"")
    with Manager(tmp_path):
        assert names(tmp_path) == [name]
    ago = time.time() - 2 * commit._FORGOTTEN_SECONDS
    for path in (folder.parent, folder):
        os.utime(path, (ago, ago))
    with Manager(tmp_path):
        assert names(tmp_path) == [name]
    os.utime(folder / "part", (ago, ago))
    with Manager(tmp_path):
        assert names(tmp_path) == []


def test_a_clock_set_forward_ages_nothing_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "2.orbax-checkpoint-tmp").mkdir()
    hours = time.time() + 5 * commit._FORGOTTEN_SECONDS
    monkeypatch.setattr(time, "time", lambda: hours)
    commit.sweep(str(tmp_path))
    assert names(tmp_path) == ["2.orbax-checkpoint-tmp"]


def test_what_has_just_got_its_name_is_not_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Orbax renames what it has completed between our question and our answer."""
    made = tmp_path / "2.orbax-checkpoint-tmp"
    made.mkdir()
    ask = os.path.isdir

    def isdir(path: str) -> bool:
        found = ask(path)
        made.rename(tmp_path / "2")
        return found

    deleted: list[str] = []
    monkeypatch.setattr(os.path, "isdir", isdir)
    monkeypatch.setattr(shutil, "rmtree", lambda path, **_: deleted.append(path))
    commit.sweep(str(tmp_path))
    assert not deleted
    assert names(tmp_path) == ["2"]


def test_other_names_are_not_swept(tmp_path: Path) -> None:
    ours = ["notes.orbax-checkpoint-tmp.bak", "x.orbax-checkpoint-tmp", "tmp-1"]
    for name in ours:
        (tmp_path / name).mkdir()
    os.utime(tmp_path / ours[0], (0, 0))
    (tmp_path / ours[1]).rmdir()
    (tmp_path / ours[1]).write_bytes(IMAGE)
    os.utime(tmp_path / ours[1], (0, 0))
    with Manager(tmp_path) as manager:
        manager.save(1, {"x": 1})
    assert names(tmp_path) == sorted(["1", *ours])


class SmallDisk:
    """Writes as onto a disk that holds so many bytes."""

    def __init__(self, folder: Path, size: int, write: Callable[..., None]) -> None:
        self.folder, self.size, self.write = folder, size, write

    def __call__(self, directory: str, arrays: object, storage: Any) -> None:
        pairs = list(arrays)  # type: ignore[call-overload]
        used = sum(p.stat().st_size for p in self.folder.rglob("*") if p.is_file())
        if used + sum(array.nbytes for _, array in pairs) > self.size:
            raise OSError("could not write the checkpoint: No space left on device")
        self.write(directory, pairs, storage)


@pytest.mark.parametrize("how", ["manager", "save"])
def test_leftovers_go_before_the_room_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(store, "write", SmallDisk(tmp_path, 8000, store.write))
    manager = Manager(tmp_path)
    if how == "manager":
        manager.save(1, {"x": np.ones(375)})
        manager.wait()
        (leftover(tmp_path / "2", DEAD) / "part").write_bytes(bytes(3000))
        manager.save(3, {"x": np.ones(375)})
        manager.wait()
        assert names(tmp_path) == ["1", "3"]
    else:
        save(tmp_path / "a", {"x": np.ones(375)})
        (leftover(tmp_path / "a", DEAD) / "part").write_bytes(bytes(3000))
        other = leftover(tmp_path / "b", DEAD)
        save(tmp_path / "a", {"x": np.ones(375)}, overwrite=True)
        assert names(tmp_path) == ["a", other.name]


def test_a_failed_save_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "write", SmallDisk(tmp_path, 8000, store.write))
    save(tmp_path / "a", {"x": np.ones(10)})
    with pytest.raises(OSError, match="No space"):
        save(tmp_path / "a", {"x": np.ones(10_000)}, overwrite=True)
    assert names(tmp_path) == ["a"]
    assert np.asarray(restore(tmp_path / "a")["x"]).sum() == 10


SLOW = """
import sys, time
from treadle.checkpoint import Manager, store

def hang(*args):
    print("saving", flush=True)
    time.sleep(600)

store.write = hang
Manager(sys.argv[1]).save(1, {"x": 1})
"""


def test_a_save_of_another_process_is_not_swept(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(tmp_path)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    with Manager(tmp_path) as manager:
        manager.save(2, {"x": 2})
        manager.wait()
        assert len(names(tmp_path)) == 2
        process.send_signal(signal.SIGKILL)
        process.communicate()
        manager.save(3, {"x": 3})
    assert names(tmp_path) == ["2", "3"]


@pytest.mark.parametrize("renames", [1, 2, 3])
def test_killed_where_names_cannot_be_exchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    """At no moment would the next save delete both the old and the new checkpoint."""
    save(tmp_path / "a", {"x": "old"})
    rename, done = os.rename, 0

    class Killed(BaseException):
        pass

    def count(*args: str) -> None:
        nonlocal done
        if done == renames:
            raise Killed
        done += 1
        rename(*args)

    with monkeypatch.context() as patch:
        patch.setattr(commit, "_renameat2", None)
        patch.setattr(os, "rename", count)
        patch.setattr(shutil, "rmtree", lambda *args, **options: None)
        with contextlib.suppress(Killed):
            save(tmp_path / "a", {"x": "new"}, overwrite=True)
    monkeypatch.setattr(commit, "_is_abandoned", lambda *args: True)
    commit.sweep(str(tmp_path))
    assert names(tmp_path) == ["a"]
    assert restore(tmp_path / "a")["x"] == ("old" if renames == 1 else "new")
