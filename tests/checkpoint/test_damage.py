"""Whatever happens to the files is noticed, and the message says where."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.checkpoint.trees import assert_same, training_state
from treadle.checkpoint import (
    DamagedError,
    Items,
    Json,
    Manager,
    convert,
    metadata,
    restore,
    save,
    verify,
)
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


def plain(path: Path, **how: Any) -> None:
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(5000) for name in ("left", "right")}
    save(path, {"big": arrays, "state": training_state()}, **how)


def stepped(path: Path) -> None:
    rng = np.random.default_rng(0)
    items = Items(
        model={"w": rng.standard_normal(500)},
        zeros={"w": np.zeros(50)},
        config=Json({"layers": [1, 2], "name": "x" * 50}),
    )
    save(path, items, metadata={"note": "second half of the data"})


def of_orbax(path: Path) -> None:
    """What Orbax wrote has no checksums, until it is converted."""
    with ocp.StandardCheckpointer() as checkpointer:
        value = {"w": np.random.default_rng(0).standard_normal(500), "step": 3}
        checkpointer.save(path.with_name("theirs"), value)
        checkpointer.wait_until_finished()
    convert(path.with_name("theirs"), path)


LAYOUTS: dict[str, Callable[[Path], None]] = {
    "plain": plain,
    "compressed": partial(plain, compression=3),
    "small chunks and files": partial(plain, chunk_bytes=4000, file_bytes=9000),
    "items": stepped,
    "converted": of_orbax,
}


def everything(path: Path) -> list[Any]:
    """All that can be read of a checkpoint."""
    if not (path / "treadle_step.json").exists():
        return [restore(path)]
    config = restore(path, item="config")
    trees = [restore(path, item=name) for name in ("model", "zeros")]
    return [*trees, config, metadata(path)]


def spoil(content: bytes, choose: random.Random) -> bytes:
    """One bit is another, or the end is missing."""
    changed = bytearray(content)
    at = choose.randrange(len(content))
    if choose.random() < 0.2:
        return bytes(changed[:at])
    changed[at] ^= 1 << choose.randrange(8)
    return bytes(changed)


def spoiled_never_pass(path: Path, layout: str, times: int) -> None:
    LAYOUTS[layout](path)
    before = everything(path)
    choose = random.Random(0)
    sizes = [(file, file.stat().st_size) for file in files(path)]
    found_out = 0
    for number in range(times):
        # Every file in turn, and then each byte as likely as any other.
        file = (
            sizes[number][0]
            if number < len(sizes)
            else choose.choices(sizes, [s for _, s in sizes])[0][0]
        )
        content = file.read_bytes()
        file.write_bytes(spoil(content, choose))
        try:
            found = everything(path)
        except DamagedError:
            found_out += 1
        else:
            # Unused bytes of the database, or what only Orbax reads.
            assert_same(found, before)
        file.write_bytes(content)
    assert_same(everything(path), before)
    assert found_out > times / 3


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_spoiled_never_passes(tmp_path: Path, layout: str) -> None:
    spoiled_never_pass(tmp_path / "a", layout, 30)


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_that_is_spoiled_ever_passes(tmp_path: Path, layout: str) -> None:
    spoiled_never_pass(tmp_path / "a", layout, 2000)


def test_a_lost_item_is_damage(tmp_path: Path) -> None:
    """Not a wrong name of the caller's: a `Manager` goes back to the step before."""
    tree, config = {"w": np.arange(3.0)}, Json([1])
    with Manager(tmp_path) as manager:
        for step in (1, 2):
            manager.save(step, Items(model=tree, other=tree, config=config))
    for name in ("model", "config"):
        path = tmp_path / "2" / name
        path.rename(tmp_path / "aside")
        with pytest.raises(DamagedError, match=f"{path} is missing"):
            restore(tmp_path / "2", item=name)
        with pytest.warns(UserWarning, match="Step 1 is restored instead"):
            found = manager.restore(Items(model=tree, config=None))
        assert_same(found["model"], tree)
        (tmp_path / "aside").rename(path)
    shutil.rmtree(tmp_path / "2" / "model")
    # The only one that is left must not stand for it.
    with pytest.raises(DamagedError, match="model is missing"):
        restore(tmp_path / "2")
    with pytest.raises(ValueError, match="no item 'else'"):
        restore(tmp_path / "2", item="else")


def test_a_description_of_something_else_is_damage(tmp_path: Path) -> None:
    stepped(tmp_path / "a")
    about = tmp_path / "a" / "treadle_step.json"
    shutil.copy(about, tmp_path / "a" / "model" / "treadle.json")
    with pytest.raises(DamagedError, match="describes no tree"):
        restore(tmp_path / "a", item="model")


LIMITED = """
import resource, sys
import numpy as np
from treadle.checkpoint import Manager

manager = Manager(sys.argv[1])
manager.save(1, {"x": np.ones(100)})
manager.wait()
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
manager.save(2, {"x": np.random.default_rng(0).random(100_000)})
try:
    manager.wait()
except OSError as error:
    print(error)
assert manager.restore(step=1)["x"].sum() == 100
"""


def test_files_that_may_not_grow(tmp_path: Path) -> None:
    """As a full disk, or a quota: an error, nothing half there, older steps whole."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, tmp_path], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "could not write the checkpoint" in done.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["1"]


def test_a_folder_that_may_not_be_written_to(tmp_path: Path) -> None:
    """A file stands in the way: root may write whatever the folder's mode."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        save(tmp_path / "file" / "a", {"x": 1})
    with pytest.raises(OSError, match="file"), Manager(tmp_path / "file") as manager:
        manager.save(1, {"x": 1})


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
