"""A part of a checkpoint is restored alone, and by name."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.checkpoint.trees import assert_same, training_state
from treadle import nn, optim, rng, tree
from treadle.checkpoint import Manager, describe, restore, save
from treadle.errors import StructureError


def training(seed: int) -> dict[str, Any]:
    model = nn.MLP((4, 8, 2), key=rng.key(seed))
    optimizer = optim.adam(1e-3)
    return {"model": model, "optimizer": optimizer.init(model), "step": seed}


def test_the_model_without_the_optimizer(tmp_path: Path) -> None:
    save(tmp_path / "a", training(1))
    template = {"model": training(0)["model"]}
    found = restore(tmp_path / "a", template, partial=True)
    assert_same(found, {"model": training(1)["model"]})
    with Manager(tmp_path / "run") as manager:
        manager.save(1, training(1))
        assert_same(manager.restore(template, partial=True), found)


def test_a_part_deep_inside(tmp_path: Path) -> None:
    """Names are compared, so a dict stands for a module, and for a list its start."""
    save(tmp_path / "a", training_state(3))
    template = {"model": [{"weight": np.zeros((4, 3), np.float32)}], "rate": 0.0}
    found = restore(tmp_path / "a", template, partial=True)
    expected = training_state(3)
    assert_same(
        found, {"model": [{"weight": expected["model"][0].weight}], "rate": 1e-3}
    )


def test_what_is_left_out_is_not_read(tmp_path: Path) -> None:
    arrays = {name: np.full(1000, n, np.int64) for n, name in enumerate("abc")}
    save(tmp_path / "a", arrays)
    for file in (tmp_path / "a" / "d").iterdir():
        content = bytearray(file.read_bytes())
        if (at := content.find(arrays["b"].tobytes())) >= 0:
            content[at] ^= 1
            file.write_bytes(content)
    like = {"a": np.zeros(1000, np.int64), "c": np.zeros(1000, np.int64)}
    found = restore(tmp_path / "a", like, partial=True)
    assert_same(found, {"a": arrays["a"], "c": arrays["c"]})


def test_a_part_of_what_orbax_saved(tmp_path: Path) -> None:
    value = {"params": {"w": np.arange(3.0), "b": np.zeros(2)}, "step": 4}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", value)
    found = restore(tmp_path / "a", {"params": {"w": np.zeros(3)}}, partial=True)
    assert_same(found, {"params": {"w": np.arange(3.0)}})


def test_what_is_in_no_part(tmp_path: Path) -> None:
    save(tmp_path / "a", {"model": np.zeros(2), "step": 1})
    with pytest.raises(StructureError, match=r"modle: float64\[2\] expected, not sav"):
        restore(tmp_path / "a", {"modle": np.zeros(2)}, partial=True)
    with pytest.raises(StructureError, match=r"model: float64\[3\] expected, float64"):
        restore(tmp_path / "a", {"model": np.zeros(3)}, partial=True)
    with pytest.raises(StructureError, match=r"(?s)step: not .* pass partial=True"):
        restore(tmp_path / "a", {"model": np.zeros(2)})
    with pytest.raises(ValueError, match="partial=True needs a template"):
        restore(tmp_path / "a", partial=True)


@pytest.mark.parametrize(
    "value",
    [
        nn.Linear(3, 3, key=rng.key(0)),
        nn.LayerNorm(3),
        {"adam": optim.adam(1e-3).init(nn.Linear(3, 3, key=rng.key(0)))},
        {"layers": [nn.MLP((2, 2, 2), key=rng.key(1))]},
        {9: 9.0, 10: 10.0, 100: 100.0},
    ],
    ids=["module", "equal shapes", "optimizer", "nested", "numbers"],
)
def test_the_leaves_have_the_order_in_which_they_were_saved(
    tmp_path: Path, value: Any
) -> None:
    """So that they are not swapped in silence when they are put back in a module."""
    save(tmp_path / "a", value)
    leaves = tree.leaves(restore(tmp_path / "a"))
    assert_same(tree.structure(value).unflatten(leaves), value)
    save(tmp_path / "b", restore(tmp_path / "a"))
    assert list(describe(tmp_path / "b")) == list(describe(tmp_path / "a"))
    assert_same(restore(tmp_path / "b", value), value)


def test_names_are_not_taken_for_leaves() -> None:
    form = tree.structure(nn.Linear(3, 3, key=rng.key(0)))
    for kind in (dict, OrderedDict):
        with pytest.raises(StructureError, match=rf"not a mapping \({kind.__name__}\)"):
            tree.unflatten(form, kind(weight=1, bias=2))
