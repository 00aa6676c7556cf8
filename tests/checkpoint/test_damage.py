"""Whatever happens to the files is noticed, and the message says where."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.trees import assert_same, training_state
from treadle.checkpoint import DamagedError, Manager, restore, save, verify
from treadle.errors import StructureError


def files(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file())


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(5000) for name in ("left", "right")}
    save(tmp_path / "a", {"big": arrays, "state": training_state()})
    return tmp_path / "a"


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [truncate, empty, Path.unlink])
def test_each_file_matters(saved: Path, harm: Callable[[Path], None]) -> None:
    for file in files(saved):
        if file.name == "_METADATA":  # Orbax needs it, we do not.
            continue
        copy = saved.parent / "copy"
        shutil.copytree(saved, copy)
        harm(copy / file.relative_to(saved))
        try:
            verify(copy)
        except DamagedError as error:
            assert str(copy) in str(error)
            with pytest.raises(DamagedError):
                restore(copy)
        else:
            # The database was written in steps, and this is of an earlier one.
            assert file.parent.name == "d"
            assert_same(restore(copy), restore(saved))
        shutil.rmtree(copy)


def test_a_flipped_bit_names_its_array(saved: Path) -> None:
    number = np.random.default_rng(0).standard_normal(10000)[5000:].tobytes()
    # The database may have put the two arrays into one file or into two.
    file = next(f for f in files(saved) if number[:64] in f.read_bytes())
    changed = bytearray(file.read_bytes())
    changed[changed.index(number[:64]) + 20] ^= 4
    file.write_bytes(changed)
    with pytest.raises(DamagedError, match=r"'big\.right'"):
        restore(saved)


def deny(path: Path) -> None:
    """As if the disk could not read it: root may read whatever its mode."""
    path.unlink()
    path.symlink_to(path)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def nest(path: Path) -> None:
    path.write_text("[" * 100_000 + "]" * 100_000)


@pytest.mark.parametrize("harm", [deny, replace_by_folder, nest])
@pytest.mark.parametrize("name", ["treadle.json", "manifest.ocdbt"])
def test_a_file_that_is_none_is_damage(
    tmp_path: Path, harm: Callable[[Path], None], name: str
) -> None:
    manager = Manager(tmp_path)
    for step in (1, 2):
        manager.save(step, {"x": step}, {"loss": 1})
    manager.wait()
    harm(tmp_path / "2" / "default" / name)
    with pytest.raises(DamagedError, match=str(tmp_path / "2")):
        restore(tmp_path / "2" / "default")
    with pytest.warns(UserWarning, match="Step 1 is restored"):
        assert manager.restore() == {"x": 1}
    harm(tmp_path / "2" / "metrics" / "metrics")
    harm(tmp_path / "2" / "metrics" / "checked.json")
    assert manager.best_step() == 1


@pytest.mark.parametrize("harm", [deny, replace_by_folder, nest])
def test_orbax_files_that_are_none_are_damage(
    saved: Path, harm: Callable[[Path], None]
) -> None:
    (saved / "treadle.json").unlink()
    harm(saved / "_METADATA")
    with pytest.raises(DamagedError, match="_METADATA"):
        restore(saved)


def test_random_flips_never_pass(saved: Path) -> None:
    before = restore(saved)
    choose = random.Random(0)
    sizes = [(file, file.stat().st_size) for file in files(saved)]
    for _ in range(60):
        file, size = choose.choices(sizes, [s for _, s in sizes])[0]
        content = bytearray(file.read_bytes())
        at, bit = choose.randrange(size), 1 << choose.randrange(8)
        content[at] ^= bit
        file.write_bytes(content)
        try:
            found = restore(saved)
        except DamagedError:
            pass
        else:
            # Unused bytes of the database, or Orbax's description.
            assert_same(found, before)
        content[at] ^= bit
        file.write_bytes(content)
    assert_same(restore(saved), before)


def test_swapped_arrays_are_noticed(saved: Path) -> None:
    """Each file is whole, but they are not of one checkpoint."""
    other = saved.parent / "b"
    tree = restore(saved)
    save(other, tree | {"big": {"left": np.ones(5000), "right": np.ones(5000)}})
    for name in ("manifest.ocdbt", "d"):
        target = saved / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        (other / name).rename(target)
    with pytest.raises(DamagedError, match=r"big\.left"):
        restore(saved)


def test_lost_zeros_are_noticed(tmp_path: Path) -> None:
    save(tmp_path / "a", {"zeros": np.zeros(3)})
    save(tmp_path / "b", {"ones": np.ones(3)})
    (tmp_path / "a" / "treadle.json").unlink()
    shutil.copy(tmp_path / "b" / "treadle.json", tmp_path / "a")
    with pytest.raises(DamagedError, match="ones"):
        restore(tmp_path / "a")


def test_there_is_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        restore(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        restore(tmp_path / "empty")


def test_a_later_format_is_refused(saved: Path) -> None:
    import zlib

    body = json.loads((saved / "treadle.json").read_text())["manifest"] | {"format": 99}
    text = json.dumps(body, separators=(",", ":"), sort_keys=True)
    content = {"crc32": zlib.crc32(text.encode()), "manifest": body}
    (saved / "treadle.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="upgrade"):
        restore(saved)


def test_damage_comes_before_mismatch(saved: Path) -> None:
    truncate(saved / "treadle.json")
    with pytest.raises(DamagedError, match=r"treadle\.json is damaged"):
        restore(saved, {"other": 1})


def test_a_mismatch_is_not_damage(saved: Path) -> None:
    with pytest.raises(StructureError):
        restore(saved, {"other": 1})
