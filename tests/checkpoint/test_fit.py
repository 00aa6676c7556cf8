"""Checkpoints that are brought to fit: converted, renamed, restored in part."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

import treadle as td
from tests.checkpoint.trees import assert_same
from treadle import nn, rng, tree
from treadle.checkpoint import Manager, restore, save
from treadle.errors import StructureError


def mlp(seed: int) -> nn.MLP:
    return nn.MLP((4, 8, 2), key=rng.key(seed))


@pytest.mark.parametrize(
    ("saved", "wanted"),
    [
        (np.float32, ml_dtypes.bfloat16),
        (ml_dtypes.bfloat16, np.float64),
        (np.float64, np.float32),
        (np.int64, np.int8),
        (np.uint8, np.int32),
        (np.int32, np.float16),
        (bool, np.int8),
        (np.float32, np.complex64),
    ],
)
def test_arrays_are_cast_where_asked(tmp_path: Path, saved: Any, wanted: Any) -> None:
    value = (np.arange(-3, 4) * 0.6).astype(saved)
    save(tmp_path / "a", {"x": value})
    like = {"x": np.zeros(7, wanted)}
    with pytest.raises(StructureError, match="cast=True"):
        restore(tmp_path / "a", like)
    assert_same(restore(tmp_path / "a", like, cast=True), {"x": value.astype(wanted)})


@pytest.mark.parametrize(
    ("saved", "wanted"),
    [(np.float32, np.int32), (np.complex64, np.float32), (np.int8, bool)],
)
def test_no_cast_loses_more_than_digits(
    tmp_path: Path, saved: Any, wanted: Any
) -> None:
    save(tmp_path / "a", {"x": np.ones(3, saved)})
    with pytest.raises(StructureError, match="expected") as raised:
        restore(tmp_path / "a", {"x": np.ones(3, wanted)}, cast=True)
    assert "pass cast" not in str(raised.value)


def test_a_model_in_another_precision(tmp_path: Path) -> None:
    save(tmp_path / "a", mlp(1))
    like = tree.map(lambda x: x.astype("bfloat16"), mlp(0))
    found = restore(tmp_path / "a", like, cast=True)
    assert_same(found, tree.map(lambda x: x.astype("bfloat16"), mlp(1)))
    types = td.eval_shape(lambda: mlp(0))
    assert_same(restore(tmp_path / "a", types), mlp(1))


def test_parts_have_other_names_now(tmp_path: Path) -> None:
    save(tmp_path / "a", {"net": mlp(1), "old": {"w": np.ones(2), "b": np.zeros(1)}})
    like = {"model": {"body": mlp(0)}, "w": np.zeros(2), "bias": np.ones(1)}
    names = {"net": "model.body", "old": "", "old.b": "bias"}
    found = restore(tmp_path / "a", like, names=names)
    expected = {"model": {"body": mlp(1)}, "w": np.ones(2), "bias": np.zeros(1)}
    assert_same(found, expected)

    def rename(path: str) -> str | None:
        return None if path.startswith("old") else path.replace("net", "model.body")

    part = {"model": {"body": mlp(0)}}
    found = restore(tmp_path / "a", part, names=rename)
    assert_same(found, {"model": {"body": mlp(1)}})
    with pytest.raises(ValueError, match=r"'nett', which is no path.*net\.layers"):
        restore(tmp_path / "a", part, names={"nett": "model"})
    with pytest.raises(ValueError, match=r"'x' to two leaves: net.* and net"):
        restore(tmp_path / "a", part, names=lambda path: "x")


def test_only_what_is_selected(tmp_path: Path) -> None:
    save(tmp_path / "a", {"model": mlp(1), "step": 7})
    like = {"model": mlp(0), "step": 0}
    found = restore(tmp_path / "a", like, only="model.**.weight")
    for new, one, other in zip(
        found["model"].layers, mlp(1).layers, mlp(0).layers, strict=True
    ):
        assert_same((new.weight, new.bias), (one.weight, other.bias))
    assert found["step"] == 0
    found = restore(tmp_path / "a", {"model": mlp(0)}, only=nn.Linear)
    assert_same(found["model"], mlp(1))
    with Manager(tmp_path / "run") as manager:
        manager.save(1, {"model": mlp(1), "step": 7})
        assert manager.restore(like, only="step")["step"] == 7


def test_only_some_paths_without_a_template(tmp_path: Path) -> None:
    save(tmp_path / "a", {"model": mlp(1), "step": 7})
    found = restore(tmp_path / "a", only=["step", "model.layers.1"])
    second = mlp(1).layers[1]
    assert_same(
        found,
        {
            "model": {"layers": {"1": restore(tmp_path / "a")["model"]["layers"][1]}},
            "step": 7,
        },
    )
    assert (found["model"]["layers"]["1"]["weight"] == second.weight).all()
    with pytest.raises(ValueError, match="only='modell' means nothing"):
        restore(tmp_path / "a", only="modell")


def test_the_matching_part_is_merged_on_request(tmp_path: Path) -> None:
    save(tmp_path / "a", {"w": np.ones(2), "head": np.ones(3), "gone": 1})
    like = {"w": np.zeros(2), "head": np.zeros(5), "new": np.zeros(1)}
    with pytest.warns(UserWarning, match="does not fit") as told:
        found = restore(tmp_path / "a", like, strict=False)
    assert_same(found, like | {"w": np.ones(2)})
    text = str(told[0].message)
    assert "head: float64[5] expected, float64[3] saved" in text
    assert "new: float64[1] expected, not saved" in text
    assert "gone: not expected, Python int saved" in text
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(
            restore(
                tmp_path / "a",
                {"w": np.zeros(2), "gone": 0},
                strict=False,
                partial=True,
            ),
            {"w": np.ones(2), "gone": 1},
        )


def test_a_type_cannot_stay_where_an_array_is_to_be(tmp_path: Path) -> None:
    save(tmp_path / "a", {"layers": mlp(1).layers[:1]})
    with pytest.raises(StructureError, match=r"types in the template:\n  layers\.1"):
        restore(tmp_path / "a", td.eval_shape(lambda: mlp(0)), strict=False)


def test_what_orbax_saved_is_brought_to_fit(tmp_path: Path) -> None:
    value = {"params": {"kernel": np.arange(6.0).reshape(2, 3), "bias": np.ones(3)}}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", value)
    names = {"params": "", "params.kernel": "weight"}
    found = restore(
        tmp_path / "a", nn.Linear(2, 3, key=rng.key(0)), names=names, cast=True
    )
    assert found.weight.dtype == "float32"
    np.testing.assert_array_equal(found.weight, value["params"]["kernel"])


def test_options_are_named_in_errors(tmp_path: Path) -> None:
    save(tmp_path / "a", {"x": 1})
    with pytest.raises(ValueError, match="cast=True needs a template"):
        restore(tmp_path / "a", cast=True)
    with pytest.raises(TypeError, match="no option 'caste'"):
        restore(tmp_path / "a", {"x": 1}, caste=True)  # type: ignore[call-overload]


def test_arrays_go_where_those_of_the_template_are(tmp_path: Path) -> None:
    save(tmp_path / "a", {"here": td.numpy.ones(2), "there": td.numpy.ones(2)})
    there = td.device_put(td.numpy.zeros(2), "reference")
    found = restore(tmp_path / "a", {"here": td.numpy.zeros(2), "there": there})
    assert found["here"].device.name != found["there"].device.name == "reference"
    # Who is placed takes along who is not.
    assert (found["here"] + found["there"]).device.name == "reference"
