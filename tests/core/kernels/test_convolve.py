"""What a convolution says of itself, against NumPy's convolutions of zeros and ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from treadle import dtypes
from treadle.kernels.contract import Strides
from treadle.kernels.convolve import FLAT, Axis, ConvSpec

F, H = dtypes.float32, dtypes.float16
S = Strides(0, 0, 0, 1)


def spec(**options: Any) -> ConvSpec:
    given = {
        "dtype": F, "images": 6, "channels": 8, "features": 12,
        "y": Axis(9, 7, 3), "x": Axis(8, 5, 4),
        "input": S, "filter": S, "output": S,
    }  # fmt: skip
    return ConvSpec(**(given | options))


def test_an_axis_visits_what_outputs_and_taps_reach() -> None:
    assert Axis(9, 7, 3).padded == 9
    assert Axis(9, 4, 3, stride=2, dilation=3).padded == 3 * 2 + 2 * 3 + 1
    assert Axis(9, 4, 3, stride=2, dilation=3).visited(2) == 2 + 6 + 1
    assert Axis(9, 7, 3).extent == 9
    axis = Axis(5, 7, 3, in_dilation=3)
    dilated = np.zeros(axis.extent)
    dilated[::3] = 1
    assert (dilated.sum(), dilated[-1]) == (5, 1)
    assert (FLAT.padded, FLAT.extent) == (1, 1)


def test_channels_and_features_fall_into_groups() -> None:
    assert spec(groups=4).k == 3 * 4 * 2
    for groups, name in ((3, "channels"), (8, "features")):
        with pytest.raises(
            ValueError, match=f"{groups} groups need channels and features .* 8 and 12"
        ):
            spec(groups=groups)
        assert name
    assert spec(groups=2, features=2).features == 2


def test_features_lie_side_by_side() -> None:
    with pytest.raises(ValueError, match="feature stride 1, not 3"):
        spec(output=Strides(0, 0, 0, 3))
    assert spec(output=Strides(0, 0, 0, 3), features=1)


def test_depthwise_is_each_channel_by_itself() -> None:
    assert spec(channels=8, features=8, groups=8).depthwise
    assert not spec(channels=8, features=16, groups=8).depthwise
    assert not spec(channels=8, features=8, groups=4).depthwise
    assert not spec(channels=1, features=1, groups=1).depthwise


def test_dtypes_of_operands_and_sums() -> None:
    assert (spec().dtypes, spec().half, spec().sums) == ((F, F, F), None, F)
    half = spec(dtype=H)
    assert (half.dtypes, half.half, half.sums) == ((H, H, H), H, F)
    mixed = spec(operands=H)
    assert (mixed.dtypes, mixed.half, mixed.sums) == ((H, H, F), H, F)
    double = spec(dtype=dtypes.float64)
    assert (double.half, double.sums) == (None, dtypes.float64)


def test_volumes_are_images_one_behind_the_other() -> None:
    assert spec().images_in == 6
    what = spec(z=Axis(5, 3, 2))
    assert what.images_in == 10
    assert what.k == 2 * 3 * 4 * 8
    assert what.flops == 2 * 6 * 7 * 5 * what.k * 12
    assert what.sizes == "(6 x 7x5, 2x3x4x8, 12)"
    assert spec(groups=2).sizes == "(6 x 7x5, 3x4x4, 12)"
