"""Lists, differences and conversions of checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.checkpoint.trees import assert_same, training_state
from treadle import nn, rng, weights
from treadle.checkpoint import Manager, compare, convert, restore, save, verify
from treadle.checkpoint.tools import find


def test_the_checkpoints_of_a_run(tmp_path: Path) -> None:
    with Manager(tmp_path / "checkpoints", step_prefix="ckpt") as manager:
        for step in (5, 40, 100):
            manager.save(step, training_state(step), {"loss": 1 / step})
    (tmp_path / "checkpoints" / "7").mkdir()
    found = find(tmp_path)
    assert [entry.step for entry in found] == [5, 40, 100]
    assert found == find(tmp_path / "checkpoints")
    assert found[1].metrics == {"loss": 1 / 40}
    assert found[1].items == ("default",)
    files = [f for f in found[1].path.rglob("*") if f.is_file()]
    assert found[1].size == sum(len(f.read_bytes()) for f in files)
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        find(tmp_path / "checkpoints" / "7")


def test_a_checkpoint_is_the_same_as_its_copy_by_orbax(tmp_path: Path) -> None:
    value = {"w": np.array([1.0, np.nan]), "half": np.ones(2, ml_dtypes.bfloat16)}
    save(tmp_path / "a", value | {"n": 3})
    save(tmp_path / "b", value | {"n": 3})
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "c", value | {"n": 3})
    assert compare(tmp_path / "a", tmp_path / "b") == {}
    assert compare(tmp_path / "a", tmp_path / "c") == {}
    assert compare(tmp_path / "c", tmp_path / "a") == {}


def test_every_kind_of_difference(tmp_path: Path) -> None:
    first: dict[str, Any] = {
        "same": np.ones(3),
        "values": np.array([1.0, np.nan, 3.0]),
        "zero": np.array([0.0]),
        "a.b": np.int8([1, 2]),
        "shape": np.ones(2),
        "gone": "text",
        "text": "a",
        "large": 2**70,
        "bool": np.array([True, False]),
    }
    second = first | {
        "values": np.array([1.5, np.nan, np.nan]),
        "zero": np.array([-0.0]),
        "a.b": np.int8([1, -128]),
        "shape": np.ones(3),
        "text": "b",
        "large": 2**71,
        "bool": np.array([True, True]),
        "new": 1.5,
    }
    del second["gone"]
    save(tmp_path / "a", first)
    save(tmp_path / "b", second)
    assert compare(tmp_path / "a", tmp_path / "b") == {
        "'a.b'": "1 of 2 elements differ, by up to 130",
        "bool": "1 of 2 elements differ, by up to 1",
        "gone": "only in the first: Python str",
        "large": f"{2**70} against {2**71}",
        "new": "only in the second: Python float",
        "shape": "float64[2] in the first, float64[3] in the second",
        "text": "'a' against 'b'",
        "values": "2 of 3 elements differ, by up to 0.5",
        "zero": "other bits of the same numbers",
    }


@pytest.mark.parametrize("ending", [".safetensors", ".npz"])
def test_to_a_file_of_weights_and_back(tmp_path: Path, ending: str) -> None:
    model = nn.MLP((4, 8, 2), key=rng.key(1))
    with Manager(tmp_path / "run") as manager:
        manager.save(1, {"model": nn.MLP((4, 8, 2), key=rng.key(0))})
        manager.save(2, {"model": model, "step": 2, "note": "x"})
    file = tmp_path / f"model{ending}"
    assert sorted(convert(tmp_path / "run", file)) == ["note", "step"]
    expected = {f"model.{name}": array for name, array in weights.of(model).items()}
    assert_same(weights.load(file), dict(sorted(expected.items())))
    with pytest.raises(FileExistsError, match=ending):
        convert(tmp_path / "run", file)
    assert convert(tmp_path / "run", file, only="model.**.bias", overwrite=True) == []
    assert set(weights.load(file)) == {n for n in expected if n.endswith("bias")}

    convert(tmp_path / "run", file, overwrite=True)
    assert convert(file, tmp_path / "back") == []
    verify(tmp_path / "back")
    like = {"model": nn.MLP((4, 8, 2), key=rng.key(3))}
    assert_same(restore(tmp_path / "back", like), {"model": model})
    convert(file, tmp_path / "part", only=["model.layers.1"])
    assert list(restore(tmp_path / "part")["model"]["layers"]) == ["1"]


def test_from_orbax_to_one_with_checksums(tmp_path: Path) -> None:
    array = np.random.default_rng(0).standard_normal(1000)
    value = {"params": {"w": array, "b": np.ones(2)}, "step": 3}
    with ocp.CheckpointManager(tmp_path / "theirs") as theirs:
        theirs.save(4, args=ocp.args.Composite(state=ocp.args.StandardSave(value)))
    convert(tmp_path / "theirs", tmp_path / "ours")
    for file in (tmp_path / "ours" / "d").iterdir():
        content = bytearray(file.read_bytes())
        if (at := content.find(array.tobytes())) >= 0:
            content[at] ^= 1
            file.write_bytes(content)
    with pytest.raises(RuntimeError, match=r"params\.w.*damaged"):
        verify(tmp_path / "ours")
    convert(tmp_path / "theirs", tmp_path / "ours", overwrite=True)
    with ocp.StandardCheckpointer() as checkpointer:
        assert_same(checkpointer.restore(tmp_path / "ours"), value)


def test_names_that_no_tree_has(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    weights.save(file, {"a": np.ones(1), "a.b": np.ones(1)})
    with pytest.raises(ValueError, match=r"'a\.b' is inside of what is an array"):
        convert(file, tmp_path / "b")
