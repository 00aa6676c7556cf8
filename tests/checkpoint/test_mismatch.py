"""A template that does not fit is refused before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoint.trees import Layer, training_state
from treadle.checkpoint import restore, save, store
from treadle.errors import StructureError


def message(path: Path, template: Any) -> str:
    with pytest.raises(StructureError) as raised:
        restore(path, template)
    return str(raised.value)


def test_every_difference_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    save(path, training_state())
    template = training_state(width=5)
    template["model"][1] = Layer(template["model"][1].weight.astype(np.float64), None)
    template["extra"] = np.zeros(2)
    template["step"] = 0.0
    monkeypatch.setattr(store, "read", None)
    assert message(path, template) == (
        f"the checkpoint at {path} does not fit the template:\n"
        "  extra: float64[2] expected, not saved\n"
        "  model.0.weight: float32[4,5] expected, float32[4,3] saved\n"
        "  model.0.bias: bfloat16[5] expected, bfloat16[3] saved\n"
        "  model.1.weight: float64[4,5] expected, float32[4,3] saved\n"
        "  optimizer.mu: float32[4,5] expected, float32[4,3] saved\n"
        "  step: Python float expected, Python int saved\n"
        "  model.1.bias: not expected, bfloat16[3] saved\n"
        "Build the template with the settings that the saved one was built with. "
        "Without a template, restore gives all that was saved as dicts and lists."
    )


def test_long_lists_end(tmp_path: Path) -> None:
    save(tmp_path / "a", [np.zeros(1)] * 1000)
    text = message(tmp_path / "a", [np.zeros(2)] * 1000)
    assert text.count("\n") < 50
    assert "and 960 more" in text


@pytest.mark.parametrize(
    ("saved", "template"),
    [
        (np.zeros(3, np.float32), np.zeros(3, np.float16)),
        (np.zeros((1, 3)), np.zeros(3)),
        (np.zeros(()), np.zeros(1)),
        (1, 1.0),
        (True, 1),
        (1, np.zeros((), np.float32)),
        (np.zeros((), np.int32), 0.0),
        ("1", 1),
        (1, "1"),
        (None, 1),
        (1, None),
        ([1, 2], [1]),
        ([1], [1, 2]),
        ([1], {"a": 1}),
        (np.zeros((0, 3)), np.zeros((3, 0))),
    ],
    ids=repr,
)
def test_small_differences_count(tmp_path: Path, saved: Any, template: Any) -> None:
    save(tmp_path / "a", {"x": saved})
    message(tmp_path / "a", {"x": template})


def test_containers_come_from_the_template(tmp_path: Path) -> None:
    save(tmp_path / "a", {"weight": np.ones(2), "bias": np.zeros(2)})
    layer = restore(tmp_path / "a", Layer(np.zeros(2), np.zeros(2)))
    assert isinstance(layer, Layer)
    np.testing.assert_array_equal(layer.weight, np.ones(2))
