"""Rows: equal layers as one."""

from __future__ import annotations

import numpy as np
import torch

from tests.oracles.layers.references import Torch
from tests.oracles.layers.rows import Row, random
from treadle import nn, rng

ROWS = [
    Row(
        f"Stack{', remat' * remat}",
        lambda remat=remat: nn.Stack(
            lambda key: nn.Linear(4, 4, key=key), 3, remat=remat, key=rng.key(0)
        ),
        lambda: Torch(torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(3)])),
        (random(5, 4),),
        {
            "layers.weight": lambda v: np.stack([v[f"{i}.weight"].T for i in range(3)]),
            "layers.bias": lambda v: np.stack([v[f"{i}.bias"] for i in range(3)]),
        },
    )
    for remat in (False, True)
]
