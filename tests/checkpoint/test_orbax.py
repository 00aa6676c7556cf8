"""Plain Orbax and TensorStore read what we write; we read what Orbax wrote."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts
from orbax.checkpoint.experimental import v1

from tests.checkpoint.trees import assert_same, training_state
from treadle.checkpoint import (
    DamagedError,
    Manager,
    describe,
    restore,
    save,
    verify,
)
from treadle.errors import StructureError

pytestmark = pytest.mark.filterwarnings("ignore")


def plain(seed: float = 0.0) -> dict[str, Any]:
    """A tree that Orbax restores as it was saved."""
    return {
        "params": {
            "w": np.arange(12, dtype=np.float32).reshape(3, 4) + np.float32(seed),
            "half": np.ones(5, ml_dtypes.bfloat16),
            "layers": [np.zeros((2, 2)), {"b": np.array(7, np.int8)}],
        },
        "step": 3,
        "rate": 0.5,
        "none": None,
        "no_keys": {},
        "no_items": [],
    }


@pytest.fixture
def checkpointer() -> Iterator[ocp.StandardCheckpointer]:
    with ocp.StandardCheckpointer() as made:
        yield made


def test_orbax_reads_ours(
    tmp_path: Path, checkpointer: ocp.StandardCheckpointer
) -> None:
    save(tmp_path / "a", plain())
    assert_same(checkpointer.restore(tmp_path / "a"), plain())
    assert_same(checkpointer.restore(tmp_path / "a", plain(1.0)), plain())
    w = checkpointer.metadata(tmp_path / "a").item_metadata["params"]["w"]
    assert (w.shape, w.dtype) == ((3, 4), np.float32)


def test_orbax_reads_ours_as_jax_arrays(
    tmp_path: Path, checkpointer: ocp.StandardCheckpointer
) -> None:
    save(tmp_path / "a", {"w": plain()["params"]["w"]})
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    like = {"w": jax.ShapeDtypeStruct((3, 4), np.float32, sharding=sharding)}
    found = checkpointer.restore(tmp_path / "a", like)["w"]
    assert isinstance(found, jax.Array)
    np.testing.assert_array_equal(found, plain()["params"]["w"])


def test_what_orbax_cannot_hold_is_none_to_it(
    tmp_path: Path, checkpointer: ocp.StandardCheckpointer
) -> None:
    value = {"list": [np.zeros((0, 2)), np.ones(2), "text"], "huge": 2**80, "a.b": 1j}
    save(tmp_path / "a", value)
    found = checkpointer.restore(tmp_path / "a")
    assert found["list"][0] is None and found["list"][2] is None
    assert found["huge"] is None
    np.testing.assert_array_equal(found["list"][1], np.ones(2))
    assert found["a%2Eb"] == 1j


def test_orbax_notices_damage_of_ours(
    tmp_path: Path, checkpointer: ocp.StandardCheckpointer
) -> None:
    array = np.random.default_rng(0).standard_normal(1000)
    save(tmp_path / "a", {"x": array})
    for file in (tmp_path / "a" / "d").iterdir():
        content = bytearray(file.read_bytes())
        if (at := content.find(array[500:].tobytes())) >= 0:
            content[at] ^= 1
            file.write_bytes(content)
    with pytest.raises(ValueError, match="DATA_LOSS"):
        checkpointer.restore(tmp_path / "a")


def test_tensorstore_reads_ours(tmp_path: Path) -> None:
    save(tmp_path / "a", training_state(5))
    base = {"driver": "file", "path": f"{tmp_path}/a/"}
    kvstore = {"driver": "ocdbt", "base": base, "path": "model.1.weight/"}
    array = ts.open({"driver": "zarr3", "kvstore": kvstore}).result()
    expected = training_state(5)["model"][1].weight
    np.testing.assert_array_equal(array[1:3].read().result(), expected[1:3])


@pytest.mark.parametrize(
    ("use_ocdbt", "use_zarr3"), [(a, b) for a in (True, False) for b in (True, False)]
)
def test_we_read_every_layout_of_orbax(
    tmp_path: Path, use_ocdbt: bool, use_zarr3: bool
) -> None:
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=use_ocdbt, use_zarr3=use_zarr3)
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(tmp_path / "a", plain())
    assert_same(restore(tmp_path / "a", plain(1.0)), plain())
    found = restore(tmp_path / "a")
    assert_same(found["params"]["layers"], plain()["params"]["layers"])
    with pytest.raises(StructureError, match=r"params\.w: .*\[3\] expected"):
        restore(tmp_path / "a", {"params": {"w": np.zeros(3)}})


def test_we_read_jax_arrays(
    tmp_path: Path, checkpointer: ocp.StandardCheckpointer
) -> None:
    checkpointer.save(tmp_path / "a", {"w": jax.numpy.arange(6.0), "long": [0] * 12})
    checkpointer.wait_until_finished()
    found = restore(tmp_path / "a")
    np.testing.assert_array_equal(found["w"], np.arange(6, dtype=np.float32))
    assert found["long"] == [0] * 12


def test_we_read_single_leaves(
    tmp_path: Path, checkpointer: ocp.StandardCheckpointer
) -> None:
    checkpointer.save(tmp_path / "a", np.arange(3.0))
    checkpointer.wait_until_finished()
    assert_same(restore(tmp_path / "a"), np.arange(3.0))
    save(tmp_path / "b", np.arange(3.0))
    assert_same(checkpointer.restore(tmp_path / "b"), np.arange(3.0))


def test_orbax_without_its_files(
    tmp_path: Path, checkpointer: ocp.StandardCheckpointer
) -> None:
    checkpointer.save(tmp_path / "a", plain())
    checkpointer.wait_until_finished()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    shutil.rmtree(tmp_path / "a" / "d")
    with pytest.raises(DamagedError, match=str(tmp_path / "a")):
        restore(tmp_path / "a")
    (tmp_path / "b" / "_METADATA").write_text("{")
    with pytest.raises(DamagedError, match="_METADATA is damaged"):
        restore(tmp_path / "b")


def test_a_manager_for_both(tmp_path: Path) -> None:
    """One run directory: Orbax reads our steps, adds its own, and we read those."""
    args = ocp.args
    with Manager(tmp_path, max_to_keep=None) as ours:
        for step in range(3):
            ours.save(step, plain(step), {"loss": (step - 1.0) ** 2})
    options = ocp.CheckpointManagerOptions(
        best_fn=lambda metrics: metrics["loss"], best_mode="min"
    )
    with ocp.CheckpointManager(tmp_path, options=options) as theirs:
        assert list(theirs.all_steps()) == [0, 1, 2]
        assert theirs.best_step() == 1
        assert theirs.metrics(2) == {"loss": 1.0}
        restored = theirs.restore(2, args=args.StandardRestore(plain()))
        assert_same(restored, plain(2))
        theirs.save(3, args=args.StandardSave(plain(3)), metrics={"loss": -1.0})
    assert ours.all_steps() == [0, 1, 2, 3]
    assert ours.best_step() == 3
    assert_same(ours.restore(plain()), plain(3))
    assert_same(ours.restore(plain(), step=1), plain(1))


@pytest.mark.parametrize(
    "naming",
    [
        {"step_format_fixed_length": 8},
        {"step_prefix": "step"},
        {"step_prefix": "my.run_1", "step_format_fixed_length": 4},
    ],
)
def test_steps_that_are_named_otherwise(tmp_path: Path, naming: dict[str, Any]) -> None:
    def theirs() -> ocp.CheckpointManager:
        options = ocp.CheckpointManagerOptions(**naming)
        return ocp.CheckpointManager(tmp_path, options=options)

    with theirs() as manager:
        for step in (5, 12):
            manager.save(step, args=ocp.args.StandardSave(plain(step)))
    if "step_prefix" in naming:
        with pytest.raises(FileNotFoundError, match=r"step_prefix='.*'"):
            Manager(tmp_path).restore()
    else:
        assert Manager(tmp_path).all_steps() == [5, 12]
        assert_same(Manager(tmp_path).restore(plain(), step=5), plain(5))
    with Manager(tmp_path, max_to_keep=2, **naming) as ours:
        assert ours.all_steps() == [5, 12]
        assert_same(ours.restore(plain()), plain(12))
        ours.save(13, plain(13))
        ours.save(12, plain(-12), force=True)
    with theirs() as manager:
        assert list(manager.all_steps()) == [12, 13]
        for step, seed in ((12, -12), (13, 13)):
            found = manager.restore(step, args=ocp.args.StandardRestore(plain()))
            assert_same(found, plain(seed))


def test_items_with_other_names(tmp_path: Path) -> None:
    args = ocp.args
    with ocp.CheckpointManager(tmp_path) as theirs:
        one = args.Composite(params=args.StandardSave(plain(1)))
        theirs.save(1, args=one, metrics={"loss": 2.0})
        two = {
            "params": args.StandardSave(plain(2)),
            "ema": args.StandardSave({"m": 3}),
        }
        theirs.save(2, args=args.Composite(**two, data=args.JsonSave({"epoch": 4})))
    ours = Manager(tmp_path)
    assert ours.all_steps() == [1, 2]
    assert_same(ours.restore(plain(), step=1), plain(1))
    assert_same(ours.restore(plain(), item="params"), plain(2))
    assert ours.restore(item="ema") == {"m": 3}
    assert_same(restore(tmp_path / "2", plain(), item="params"), plain(2))
    assert describe(tmp_path / "2", item="ema") == {"m": "Python int"}
    verify(tmp_path / "2", item="ema")
    with pytest.raises(ValueError, match=r"items: \['ema', 'params'\].*item='ema'"):
        ours.restore()
    with pytest.raises(
        ValueError, match=r"no item 'emma'; there are \['data', 'ema', 'par"
    ):
        ours.restore(item="emma")


def test_the_layouts_of_version_1(tmp_path: Path) -> None:
    v1.save(tmp_path / "a", plain())
    assert_same(restore(tmp_path / "a", plain(1.0)), plain())
    with v1.training.Checkpointer(tmp_path / "b") as theirs:
        theirs.save(3, plain())
    assert_same(restore(tmp_path / "b" / "3", plain(1.0)), plain())
    assert_same(Manager(tmp_path / "b").restore(plain(1.0)), plain())


def test_a_save_of_orbax_that_is_under_way_is_not_swept(tmp_path: Path) -> None:
    with ocp.CheckpointManager(tmp_path) as theirs:
        assert theirs.save(1, args=ocp.args.StandardSave({"x": np.ones(2_000_000)}))
        with Manager(tmp_path) as ours:
            ours.save(2, {"x": 2})
        theirs.wait_until_finished()
        found = {step.name: sorted(os.listdir(step)) for step in tmp_path.iterdir()}
        assert set(found) == {"1", "2"}, found
        assert ours.all_steps() == [1, 2]
        assert np.asarray(ours.restore(step=1)["x"]).all()
