"""Several items in one step: each restored alone, by us and by Orbax."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.checkpoint.trees import assert_same, training_state
from treadle import data
from treadle.checkpoint import (
    DamagedError,
    Items,
    Json,
    Manager,
    describe,
    metadata,
    provenance,
    restore,
    save,
    types,
    verify,
    written_by,
)
from treadle.errors import StructureError

CONFIG = {"layers": [2, 3], "name": "net", "rate": 0.1, "none": None, "on": True}


class TorchLike:
    """An object with the pair of names that PyTorch's have."""

    def __init__(self, at: Any = 0) -> None:
        self.at = at

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


def loader() -> data.Loader:
    return data.Loader(np.arange(12), batch_size=2)


def everything(seed: int = 1) -> Items:
    batches = loader()
    for _ in zip(range(seed), batches, strict=False):
        pass
    return Items(
        model={"w": np.full(4, seed, np.float32)},
        optimizer=training_state(seed)["optimizer"],
        data=batches,
        sampler=TorchLike(np.arange(seed)),
        config=Json(CONFIG),
    )


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save(tmp_path / "a", everything(), metadata={"note": "é", "tags": ["x"]})
    return tmp_path / "a"


def test_all_at_once(saved: Path) -> None:
    batches, sampler = loader(), TorchLike()
    template = everything(0) | {"data": batches, "sampler": sampler, "config": None}
    found = restore(saved, Items(template))
    assert isinstance(found, Items) and list(found) == list(everything())
    for name in ("model", "optimizer"):
        assert_same(found[name], everything()[name])
    assert found["data"] is batches and batches.place == (0, 1)
    assert found["sampler"] is sampler and np.array_equal(sampler.at, [0])
    assert found["config"] == CONFIG


def test_each_alone(saved: Path) -> None:
    # What is not asked for is not read.
    for name in ("optimizer", "sampler"):
        (saved / name / "manifest.ocdbt").write_bytes(b"")
    assert_same(restore(saved, {"w": np.zeros(4, np.float32)}, item="model")["w"], ONES)
    assert restore(saved, loader(), item="data").place == (0, 1)
    assert restore(saved, item="config") == CONFIG
    assert list(restore(saved, Items(model=None))) == ["model"]
    with pytest.raises(DamagedError, match="optimizer"):
        verify(saved)


ONES = np.ones(4, np.float32)


def test_what_is_there_is_told_without_reading(saved: Path) -> None:
    for file in saved.glob("*/d/*"):
        file.unlink()
    told = describe(saved)
    assert told["model.w"] == "float32[4]" and told["config"] == "JSON"
    like = types(saved, item="model")["w"]
    assert (like.shape, like.dtype) == ((4,), np.float32)
    assert metadata(saved) == {"note": "é", "tags": ["x"]}
    assert "treadle" in written_by(saved)


def test_types_are_a_template(tmp_path: Path) -> None:
    value = {"x": np.ones((2, 3), np.int8), "n": 3, "rate": 0.5, "name": "a"}
    save(tmp_path / "a", value, metadata={"k": 1})
    found = restore(tmp_path / "a", types(tmp_path / "a"))
    assert {k: np.asarray(v).tolist() for k, v in found.items()} == {
        k: np.asarray(v).tolist() for k, v in value.items()
    }
    assert metadata(tmp_path / "a") == {"k": 1}


def test_nothing_moves_unless_all_is_there(saved: Path) -> None:
    batches = loader()
    with pytest.raises(StructureError):
        restore(saved, Items(data=batches, model={"w": np.zeros(5)}))
    assert batches.place == (0, 0)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: Items(metrics=1), ValueError, "'metrics' is taken"),
        (lambda: Items({"a/b": 1}), ValueError, "no item can be called 'a/b'"),
        (lambda: Items({"data-1": 1}), ValueError, "no item can be called"),
        (lambda: Items(config=Json({1: 2})), TypeError, "keys of a dict are strings"),
        (lambda: Items(config=Json(np.ones(2))), TypeError, "'config' can't be JSON"),
        (lambda: Items(config=Json(float("nan"))), TypeError, "can't be JSON"),
        (lambda: Items(model=object()), TypeError, "it is a object"),
    ],
)
def test_what_cannot_be_an_item(
    tmp_path: Path, make: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        save(tmp_path / "a", make())
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_restored_is_named(saved: Path) -> None:
    with pytest.raises(ValueError, match=r"no item 'modell'; there are \['config', 'd"):
        restore(saved, Items(modell=None))
    with pytest.raises(ValueError, match="JSON, which needs no template"):
        restore(saved, {"layers": 0}, item="config")
    with pytest.raises(ValueError, match="about one item"):
        restore(saved, Items(model=None), only="w")


def test_orbax_reads_our_items_and_we_read_its(tmp_path: Path) -> None:
    """A step of each in one folder, with metadata of the steps and of the run."""
    tree = {"w": np.arange(3.0)}
    with Manager(tmp_path, metadata={"run": 7}) as ours:
        items = Items(model=tree, data=loader(), config=Json(CONFIG))
        ours.save(1, items, {"loss": 1.0}, metadata={"by": "us"})
    args = ocp.args
    with ocp.CheckpointManager(tmp_path) as theirs:
        wanted = args.Composite(
            model=args.StandardRestore(tree),
            data=args.JsonRestore(),
            config=args.JsonRestore(),
        )
        found = theirs.restore(1, args=wanted)
        assert_same(found["model"], tree)
        assert found["config"] == CONFIG and found["data"] == loader().state()
        assert theirs.metadata(1).custom_metadata == {"by": "us"}
        assert theirs.metadata().custom_metadata == {"run": 7}
        assert {"model", "data", "config"} <= set(theirs.item_metadata(1).keys())
        theirs.save(
            2,
            args=args.Composite(
                model=args.StandardSave(tree),
                data=args.JsonSave(loader().state() | {"batch": 3}),
                config=args.JsonSave(CONFIG),
            ),
            custom_metadata={"by": "them"},
        )
    batches = loader()
    back = ours.restore(Items(model=tree, data=batches, config=None), step=2)
    assert_same(back["model"], tree)
    assert back["config"] == CONFIG and batches.place == (0, 3)
    assert ours.metadata(2) == {"by": "them"} and ours.metadata(1) == {"by": "us"}
    assert Manager(tmp_path).metadata() == {"run": 7}
    assert describe(ours.path(2))["model.w"] == "float64[3]"


def test_a_plain_checkpoint_tells_orbax_its_metadata(tmp_path: Path) -> None:
    save(tmp_path / "a", {"w": np.ones(2)}, metadata={"k": [1]})
    with ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.metadata(tmp_path / "a").item_metadata
    assert found.custom_metadata["k"] == [1]


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_program_and_its_commit_are_told(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=n", "-c", "user.email=e"]
        done = subprocess.run(
            ["git", *identity, *arguments],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    text = 'from treadle.checkpoint import save\nsave("c", {"x": 1}, overwrite=True)\n'
    (tmp_path / "train.py").write_text(text)
    git("init", "-q")
    git("add", "train.py")
    git("commit", "-qm", "one")
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True)
    found = written_by(tmp_path / "c")
    assert found["program"] == "train.py"
    assert found["commit"] == git("rev-parse", "HEAD")
    git("worktree", "add", "-q", "other")
    git("pack-refs", "--all")
    (tmp_path / "inside").mkdir()
    for folder in ("inside", "other"):
        assert provenance._commit(tmp_path / folder) == found["commit"]
    git("checkout", "-q", "--detach")
    assert provenance._commit(tmp_path) == found["commit"]


def test_damaged_json_is_noticed(saved: Path) -> None:
    for name, read in (
        ("config/checked.json", lambda: restore(saved, item="config")),
        ("treadle_step.json", lambda: metadata(saved)),
    ):
        file = saved / name
        before = file.read_text()
        file.write_text(before.replace("net", "nett").replace("note", "mote"))
        with pytest.raises(DamagedError, match="checksum does not match"):
            read()
        with pytest.raises(DamagedError):
            verify(saved)
        file.write_text(before)
    assert json.loads((saved / "config" / "metadata").read_text()) == CONFIG
    (saved / "config" / "metadata").write_text('{"other": 1}')
    assert restore(saved, item="config") == CONFIG
    with pytest.raises(DamagedError, match="is not what was saved"):
        verify(saved)
