"""Objects that were installed beside the code: found by key, or not at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from treadle.backends import installed
from treadle.backends.installed import Environment, write

HERE = Environment("5" * 64, "e" * 40)
OBJECTS = {f"{n:040x}": bytes([n]) * (1000 * n) for n in (3, 1, 255)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where objects are installed, of which there are some."""
    made = tmp_path / "beside"
    monkeypatch.setattr(installed, "FOLDER", str(made))
    write(made, HERE, OBJECTS)
    return made


def file(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def found(environment: Environment = HERE) -> list[bytes | None]:
    return installed.get_all(environment, list(OBJECTS))


def none_is_wrong() -> bool:
    pairs = zip(found(), OBJECTS.values(), strict=True)
    return all(code in (None, wanted) for code, wanted in pairs)


def read_anew() -> None:
    """As another process does it."""
    installed._places.cache_clear()


def test_what_was_written_is_found(folder: Path) -> None:
    assert found() == list(OBJECTS.values())
    assert installed.count(HERE) == 3
    assert installed.has(HERE, f"{255:040x}") and not installed.has(HERE, f"{4:040x}")
    assert installed.get_all(HERE, [f"{4:040x}", f"{3:040x}"]) == [None, b"\3" * 3000]


def test_nothing_else_is_found(folder: Path) -> None:
    for other in (HERE._replace(sources="6" * 64), HERE._replace(whole="f" * 40)):
        assert found(other) == [None] * 3
        assert installed.count(other) == 0
    installed.forget()
    assert found() == [None] * 3


@pytest.mark.parametrize("size", [0, 5, 20, 60, 200, 1300])
def test_of_a_file_that_ends_early_no_broken_object_is_taken(
    folder: Path, size: int
) -> None:
    path = file(folder)
    path.write_bytes(path.read_bytes()[:size])
    read_anew()
    assert none_is_wrong() and None in found()


def test_every_damaged_byte_is_noticed(folder: Path) -> None:
    path = file(folder)
    whole = path.read_bytes()
    for place in (*range(0, 150, 3), 2000, len(whole) - 1):
        path.write_bytes(
            whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :]
        )
        read_anew()
        assert found() != list(OBJECTS.values()), place
        assert none_is_wrong()


def test_a_count_that_is_too_large_reads_no_more_than_there_is(folder: Path) -> None:
    path = file(folder)
    whole = bytearray(path.read_bytes())
    whole[18:22] = b"\xff" * 4
    path.write_bytes(whole)
    read_anew()
    assert found() == [None] * 3


def test_a_file_that_was_replaced_meanwhile(folder: Path) -> None:
    assert found() == list(OBJECTS.values())
    kept = dict(installed._places(str(file(folder))))
    write(folder, HERE, {f"{3:040x}": b"new"})
    assert found() == [b"new", None, None]
    # Another process has read what the old file has where.
    installed._places(str(file(folder))).clear()  # type: ignore[attr-defined]
    installed._places(str(file(folder))).update(kept)  # type: ignore[attr-defined]
    assert found() == [None] * 3


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    path = file(folder)
    path.unlink()
    os.mkfifo(path)
    assert found() == [None] * 3


def test_what_was_given_up_half_written_goes(folder: Path) -> None:
    old, new = (folder / f"{HERE.name}.{n}.tmp" for n in (12, 34))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    write(folder, HERE, OBJECTS)
    assert {path.name for path in folder.iterdir()} == {HERE.name, new.name}


def test_a_file_that_went_meanwhile(folder: Path) -> None:
    assert found() == list(OBJECTS.values())
    shutil.rmtree(folder)
    assert found() == [None] * 3


def test_files_of_other_sources_go_and_those_of_other_machines_stay(
    folder: Path,
) -> None:
    (folder / "mine.txt").write_text("")
    elsewhere = HERE._replace(whole="a" * 40)
    write(folder, elsewhere, OBJECTS)
    assert found() == found(elsewhere) == list(OBJECTS.values())
    edited = Environment("7" * 64, "b" * 40)
    write(folder, edited, OBJECTS)
    assert found(edited) == list(OBJECTS.values()) and found() == [None] * 3
    assert sorted(path.name for path in folder.iterdir()) == [edited.name, "mine.txt"]
