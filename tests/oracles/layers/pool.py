"""Rows: pooling."""

from __future__ import annotations

from typing import Any

import torch

from tests.oracles.layers.references import Torch
from tests.oracles.layers.rows import Row, images, random
from treadle import nn

INPUTS = {1: random(2, 11, 3), 2: random(2, 7, 9, 3), 3: random(2, 5, 6, 7, 3)}


def pool(kind: str, rank: int, *sizes: Any, name: str = "", **options: Any) -> Row:
    """Ours and PyTorch's with the same options."""
    layer = f"{kind}{rank}d"
    given = {"padding": 0, **options} if "Adaptive" not in kind else options
    if kind == "LPPool":
        del given["padding"]
    return Row(
        f"{layer} {name}".strip(),
        lambda: getattr(nn, layer)(*sizes, **given),
        lambda: Torch(getattr(torch.nn, layer)(*sizes, **options)),
        (INPUTS[rank],),
        **images,
    )


def functional(name: str, ours: Any, theirs: Any, rank: int) -> Row:
    return Row(
        name,
        lambda: nn.Lambda(ours),
        lambda: Torch(torch.nn.Identity(), lambda _, x: theirs(x)),
        (INPUTS[rank],),
        to_theirs=images["to_theirs"],
        to_ours=lambda x: images["to_ours"](x) if x.ndim > 2 else x,
    )


CEIL = {"stride": 2, "padding": 1, "ceil_mode": True}
ROWS = [
    pool("MaxPool", 1, 3, name="strided", stride=2, padding=1),
    pool("MaxPool", 2, 2),
    pool("MaxPool", 2, (3, 2), name="padded", stride=(2, 1), padding=(1, 0)),
    pool("MaxPool", 2, 3, name="ceil", **CEIL),
    pool("MaxPool", 2, 2, name="ceil gap", stride=3, ceil_mode=True),
    pool("MaxPool", 3, (1, 2, 3), name="uneven"),
    pool("MaxPool", 3, 2, name="ceil", **CEIL),
    pool("AvgPool", 1, 3, name="with padding", padding=1, count_include_pad=True),
    pool("AvgPool", 1, 3, name="ceil", count_include_pad=False, **CEIL),
    pool("AvgPool", 2, (7, 3), name="tiles"),
    pool("AvgPool", 2, 3, padding=1, count_include_pad=False),
    pool("AvgPool", 2, 3, name="ceil with padding", count_include_pad=True, **CEIL),
    pool("AvgPool", 3, 2, name="ceil", count_include_pad=False, **CEIL),
    pool("AvgPool", 3, (2, 3, 1), stride=1),
    pool("LPPool", 1, 2, 3, stride=2),
    pool("LPPool", 2, 4, (3, 2)),
    pool("LPPool", 3, 2, 2),
    pool("AdaptiveAvgPool", 1, 4),
    pool("AdaptiveAvgPool", 2, (3, None)),
    pool("AdaptiveAvgPool", 2, (7, 12), name="larger"),
    pool("AdaptiveAvgPool", 3, (2, 3, 1)),
    pool("AdaptiveMaxPool", 1, 4),
    pool("AdaptiveMaxPool", 2, (3, None)),
    pool("AdaptiveMaxPool", 2, (7, 12), name="larger"),
    pool("AdaptiveMaxPool", 3, (2, 3, 1)),
    functional(
        "global_avg_pool",
        lambda x: nn.global_avg_pool(x, rank=3),
        lambda x: x.mean((2, 3, 4)),
        3,
    ),
    functional("global_max_pool", nn.global_max_pool, lambda x: x.amax((2, 3)), 2),
    functional(
        "min_pool",
        lambda x: nn.min_pool(x, 3, 2, 1),
        lambda x: -torch.nn.functional.max_pool2d(-x, 3, 2, 1),
        2,
    ),
    functional(
        "min_pool tiles",
        lambda x: nn.min_pool(x, (1, 3)),
        lambda x: -torch.nn.functional.max_pool2d(-x, (1, 3)),
        2,
    ),
    functional(
        "lp_pool odd",
        lambda x: nn.lp_pool(x, 3, (2,), 1),
        lambda x: torch.nn.functional.lp_pool1d(abs(x), 3, 2, 1),
        1,
    ),
]
