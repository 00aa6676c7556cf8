"""How treescope shows modules in notebooks."""

from __future__ import annotations

from typing import Any

import numpy as np
import treescope
from treescope import rendering_parts

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng


def test_modules_fold_by_their_fields():
    model = nn.Sequential(nn.Linear(30, 40, key=rng.key(0)), nn.BatchNorm(4), nn.relu)
    text = treescope.render_to_text(model)
    for part in ("Sequential(", "Linear(", "in_features=30", "mean=State(", "relu"):
        assert part in text
    assert "float32(30, 40)" in text and "object at 0x" not in text


def test_what_a_click_copies_leads_to_the_field():
    paths: list[str | None] = []

    def shown(value: Any, path: str | None = None) -> Any:
        paths.append(path)
        return rendering_parts.text("")

    nn.Linear(2, 3, key=rng.key(0)).__treescope_repr__("model.layers[0]", shown)
    assert paths == [
        f"model.layers[0].{name}"
        for name in ("in_features", "out_features", "weight", "bias")
    ]


def test_arrays_are_shown_as_numpys_are():
    x = np.linspace(-1, 1, 5000, dtype=np.float32)
    same = treescope.render_to_text(x)
    assert treescope.render_to_text(tnp.asarray(x)) == same
    shown = treescope.render_to_text({"keys": rng.key(0), "type": td.typeof(x)})
    assert "Key([0, 0])" in shown and "f32[5000]" in shown
