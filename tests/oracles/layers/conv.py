"""Rows: convolutions, and their transposes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch

from tests.oracles.layers.references import Arrays, Formula, Torch
from tests.oracles.layers.rows import Row, images, kernel, named, random
from treadle import nn, rng

KEY = rng.key(0)
WEIGHTS = {"weight": kernel("weight"), "bias": named("bias")}
INPUTS = {1: random(2, 9, 4), 2: random(2, 8, 7, 4), 3: random(2, 5, 6, 4, 4)}


def conv(
    name: str, rank: int, *, padding: Any = 0, kernel_size: Any = 3, **options: Any
) -> Row:
    """Ours and PyTorch's with the same options."""
    ours, theirs = getattr(nn, f"Conv{rank}d"), getattr(torch.nn, f"Conv{rank}d")
    return Row(
        name,
        lambda: ours(4, 6, kernel_size, padding=padding, key=KEY, **options),
        lambda: Torch(
            theirs(
                4,
                6,
                kernel_size,
                padding=padding.lower() if isinstance(padding, str) else padding,
                **options,
            )
        ),
        (INPUTS[rank],),
        WEIGHTS if options.get("bias", True) else {"weight": kernel("weight")},
        **images,
    )


def by_jax(name: str, rank: int, pads: Any, strides: Any, **options: Any) -> Row:
    """For paddings that PyTorch has not."""
    ours = getattr(nn, f"Conv{rank}d")
    layout = (
        "N" + "DHW"[-rank:] + "C",
        "DHW"[-rank:] + "IO",
        "N" + "DHW"[-rank:] + "C",
    )

    def formula(weights: Any, x: Any) -> Any:
        y = jax.lax.conv_general_dilated(
            x, weights["weight"], strides, pads, dimension_numbers=layout
        )
        return y + weights["bias"]

    return Row(
        name,
        lambda: ours(4, 6, 3, key=KEY, **options),
        lambda: Formula(
            formula, {"weight": random(*(3,) * rank, 4, 6), "bias": random(6)}
        ),
        (INPUTS[rank],),
        {"weight": named("weight"), "bias": named("bias")},
    )


def transposed_kernel(groups: int) -> Callable[[Arrays], np.ndarray]:
    """Theirs is (in, out / groups, *window), ours (*window, in / groups, out)."""

    def take(values: Arrays) -> np.ndarray:
        w = values["weight"]
        split = w.reshape(groups, -1, *w.shape[1:])
        last = np.moveaxis(split, (1, 0, 2), (-3, -2, -1))
        return last.reshape(*w.shape[2:], w.shape[0] // groups, groups * w.shape[1])

    return take


def transpose(name: str, rank: int, kernel_size: Any = 3, **options: Any) -> Row:
    """Ours and PyTorch's with the same options."""
    ours = getattr(nn, f"ConvTranspose{rank}d")
    theirs = getattr(torch.nn, f"ConvTranspose{rank}d")
    weights = {"weight": transposed_kernel(options.get("groups", 1))}
    return Row(
        name,
        lambda: ours(4, 6, kernel_size, key=KEY, **{"padding": 0, **options}),
        lambda: Torch(theirs(4, 6, kernel_size, **options)),
        (INPUTS[rank],),
        weights | ({"bias": named("bias")} if options.get("bias", True) else {}),
        **images,
    )


def same_transpose(name: str, kernel_size: int, stride: int, padding: str) -> Row:
    """Against JAX's, which reads the filter the other way round."""

    def formula(weights: Any, x: Any) -> Any:
        flipped = weights["weight"][::-1, ::-1]
        y = jax.lax.conv_transpose(x, flipped, (stride, stride), padding)
        return y + weights["bias"]

    shape = (kernel_size, kernel_size, 4, 6)
    return Row(
        name,
        lambda: nn.ConvTranspose2d(
            4, 6, kernel_size, stride=stride, padding=padding, key=KEY
        ),
        lambda: Formula(formula, {"weight": random(*shape), "bias": random(6)}),
        (INPUTS[2],),
        {"weight": named("weight"), "bias": named("bias")},
    )


MODES = ("reflect", "replicate", "circular")
ROWS = [
    conv("Conv1d", 1),
    conv("Conv1d strided", 1, stride=2, padding=1, bias=False),
    conv("Conv1d dilated groups", 1, dilation=2, groups=2, padding=2),
    conv("Conv1d circular", 1, padding=2, padding_mode="circular", stride=2),
    conv("Conv2d valid", 2, padding="VALID"),
    conv("Conv2d same dilated", 2, padding="SAME", dilation=2),
    conv("Conv2d even", 2, kernel_size=(2, 4), stride=(1, 2), padding=(1, 0)),
    conv("Conv2d depthwise", 2, groups=2, padding=1, stride=(2, 1)),
    *(
        conv(f"Conv2d {mode}", 2, padding=(1, 2), padding_mode=mode, dilation=(1, 2))
        for mode in MODES
    ),
    conv("Conv2d same reflect", 2, padding="SAME", padding_mode="reflect"),
    conv("Conv2d tiles", 2, kernel_size=(4, 7), stride=(4, 7)),
    conv("Conv2d pointwise", 2, kernel_size=1, padding="SAME"),
    conv("Conv2d rest", 2, kernel_size=3, stride=3),
    conv("Conv3d tiles", 3, kernel_size=(5, 3, 2), stride=(5, 3, 2), bias=False),
    conv("Conv3d", 3, padding=1),
    conv("Conv3d options", 3, padding=(1, 0, 2), stride=(1, 2, 1), groups=2),
    conv("Conv3d replicate", 3, padding=1, padding_mode="replicate"),
    by_jax("Conv1d causal", 1, [(2, 0)], (1,), padding="CAUSAL"),
    by_jax("Conv1d causal strided", 1, [(2, 0)], (2,), padding="CAUSAL", stride=2),
    by_jax("Conv2d pairs", 2, [(0, 2), (1, 0)], (1, 1), padding=((0, 2), (1, 0))),
    by_jax("Conv2d same strided", 2, "SAME", (2, 2), padding="SAME", stride=2),
    by_jax("Conv3d same strided", 3, "SAME", (2, 1, 2), stride=(2, 1, 2)),
    transpose("ConvTranspose1d", 1),
    transpose("ConvTranspose1d strided", 1, stride=3, padding=1, output_padding=2),
    transpose("ConvTranspose2d", 2, stride=2, padding=1, output_padding=1),
    transpose("ConvTranspose2d groups", 2, (2, 3), stride=(2, 1), groups=2, bias=False),
    transpose("ConvTranspose2d dilated", 2, dilation=2, padding=(1, 3), stride=2),
    transpose("ConvTranspose3d", 3, stride=2, padding=1, output_padding=1),
    transpose("ConvTranspose3d options", 3, stride=(1, 2, 1), groups=2, dilation=2),
    same_transpose("ConvTranspose2d same", 3, 2, "SAME"),
    same_transpose("ConvTranspose2d same even", 4, 2, "SAME"),
    same_transpose("ConvTranspose2d same short", 2, 3, "SAME"),
    same_transpose("ConvTranspose2d valid", 3, 2, "VALID"),
]
