"""Native code is run from nowhere that another user could have written to."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from treadle.backends import trusted
from treadle.backends.objects import ObjectStore

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
STRANGER = 12345


@pytest.fixture(autouse=True)
def free_mask() -> Iterator[None]:
    """The modes are the store's own doing, not the mask's."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cache with one object, `key`."""
    made = tmp_path / "above" / "cache"
    ObjectStore(made).put("key", b"code")
    return made


def test_only_the_user_can_read_and_write(folder: Path) -> None:
    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    assert [mode(p) for p in (folder.parent, folder)] == [0o700, 0o700]
    assert mode(folder / "key.o") == 0o600
    assert ObjectStore(folder).get("key") == b"code"


def chmod(mode: int) -> Callable[[Path], None]:
    return lambda path: path.chmod(mode)


def give_away(path: Path) -> None:
    os.chown(path, STRANGER, STRANGER)


FOLDERS = [
    pytest.param(chmod(0o777), r"write to .* \(drwxrwxrwx\)", id="world"),
    pytest.param(chmod(0o1777), r"write to .* \(drwxrwxrwt\)", id="sticky"),
    pytest.param(chmod(0o770), r"write to .* \(drwxrwx---\)", id="group"),
    pytest.param(give_away, "belongs to user 12345", marks=root_only, id="stranger"),
]


@pytest.mark.parametrize(("spoil", "reason"), FOLDERS)
def test_a_folder_of_others_is_not_used_and_said_once(
    folder: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    spoil(folder)
    store = ObjectStore(folder)
    with pytest.warns(UserWarning, match=reason) as warned:
        assert store.get("key") is None
    assert "TREADLE_CACHE_DIR" in str(warned[0].message)
    assert warned[0].filename == __file__
    assert store.get("key") is None
    store.put("other", b"code")
    assert sorted(os.listdir(folder)) == ["key.o", "pruned"]


@pytest.mark.parametrize(
    "spoil", [chmod(0o777), pytest.param(give_away, marks=root_only)]
)
def test_nor_one_that_others_can_replace(
    folder: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(folder.parent)
    store = ObjectStore(folder)
    with pytest.warns(UserWarning, match="not kept on disk"):
        store.put("key", b"new")
    assert store.get("key") is None


def test_a_sticky_folder_may_be_above(folder: Path) -> None:
    folder.parent.chmod(0o1777)
    assert ObjectStore(folder).get("key") == b"code"


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def of_another_key(path: Path) -> None:
    ObjectStore(path.parent).put("another", b"wrong code")
    path.with_name("another.o").replace(path)


@pytest.mark.parametrize(
    "spoil",
    [
        chmod(0o666),
        chmod(0o620),
        link,
        pipe,
        of_another_key,
        pytest.param(give_away, marks=root_only),
    ],
)
def test_a_file_that_others_could_have_written(
    folder: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(folder / "key.o")
    store = ObjectStore(folder)
    assert store.get("key") is None
    store.put("key", b"code")
    assert store.get("key") == b"code"


def test_a_link_to_the_folder_is_followed_once(folder: Path) -> None:
    door = folder.with_name("door")
    door.symlink_to(folder)
    store = ObjectStore(door)
    door.unlink()
    (folder.parent / "evil").mkdir()
    door.symlink_to(folder.parent / "evil")
    assert store.folder == folder
    assert store.get("key") == b"code"


def test_without_owners_only_the_home_folder_is_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trusted, "_HAS_OWNERS", False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: str(folder.parent))
    assert trusted.why_not(folder) == ""
    assert "is not in" in trusted.why_not(folder.parent.with_name("outside"))


def test_a_program_runs_without_the_cache_that_it_may_not_use(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(0o777)
    code = "import treadle as td\nf = td.jit(lambda x: x * 2)\nprint(f(3.0), f(4))"
    env = os.environ | {"TREADLE_CACHE_DIR": str(shared)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True
    )
    assert done.stdout == "6.0 8\n"
    assert done.stderr.count("compiled kernels are not kept on disk") == 1
    assert os.listdir(shared) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        off = ObjectStore(None)
        off.put("key", b"code")
        assert off.get("key") is None
