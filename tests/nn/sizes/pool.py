"""Pooling over any number of axes."""

from __future__ import annotations

from typing import Any

from tests.core.dynamic import floats
from treadle import nn

ARGS = {
    "line": floats("n t 4"),
    "pic": floats("n h w 4"),
    "block": floats("n h w 4 2"),
}
LAYERS: dict[str, Any] = {
    f"{kind.lower()}{rank}": getattr(nn, f"{kind}{rank}d")(2, 1, "SAME")
    for kind in ("MaxPool", "AvgPool")
    for rank in (1, 2, 3)
}
LAYERS |= {
    f"lp{rank}": getattr(nn, f"LPPool{rank}d")(2, 2, 1, "SAME") for rank in (1, 2, 3)
}
LAYERS |= {
    f"{kind.lower()}{rank}": getattr(nn, f"{kind}{rank}d")(2)
    for kind in ("AdaptiveAvgPool", "AdaptiveMaxPool")
    for rank in (1, 2, 3)
}
EXPRESSIONS = [
    "maxpool1(line), avgpool1(line), lp1(line), nn.min_pool(line, (2,), 1, 'SAME')",
    "maxpool2(pic), avgpool2(pic), lp2(pic), nn.lp_pool(pic, 3, 1)",
    "maxpool3(block), lp3(block)",
    "nn.max_pool(line, (2,), 2, 'SAME'), nn.avg_pool(line, (3,), 3, 'SAME')",
    "nn.max_pool(line, (3,), 2, 1, ceil_mode=True), "
    "nn.avg_pool(line, (2,), 3, 'SAME', ceil_mode=True, count_include_pad=True)",
    "nn.global_max_pool(pic), nn.global_avg_pool(block, rank=3)",
    "adaptiveavgpool2(pic), adaptivemaxpool3(block)",
    "nn.adaptive_avg_pool(line, (3,)), nn.adaptive_max_pool(line, (None,))",
]
_CEIL, _, *_ADAPTIVE = EXPRESSIONS[4:]
GUARDED = dict.fromkeys((_CEIL, *_ADAPTIVE), "windows that fill the image, or do not")
