"""Rows: linear layers, tables, and layers around others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from flax import linen

from tests.oracles.layers.references import Arrays, Formula, Torch
from tests.oracles.layers.rows import Row, named, random, transposed
from treadle import nn, rng

KEY = rng.key(0)
SAME = {"weight": named("weight"), "bias": named("bias")}


def flax(module: Any, weight: np.ndarray, bias: np.ndarray) -> Callable[[], Formula]:
    """A module of Flax's, whose weight is called a kernel."""

    def apply(weights: Arrays, x: Any) -> Any:
        named = {"kernel": weights["weight"], "bias": weights["bias"]}
        return module.apply({"params": named}, x)

    return lambda: Formula(apply, {"weight": weight, "bias": bias})


def mlp(weights: Arrays, x: Any) -> Any:
    hidden = jnp.tanh(x @ weights["w0"] + weights["b0"])
    return jnp.maximum(hidden @ weights["w1"] + weights["b1"], 0)


TOKENS = np.random.default_rng(0).integers(0, 7, (4, 5)).astype(np.int32)
OFFSETS = np.array([0, 3, 3, 9, 20], np.int32)
TABLE = {"weight": named("weight")}


def bag(name: str, mode: Any, *inputs: np.ndarray, **options: Any) -> Row:
    """Bags of one length, or with offsets; the third input are weights of tokens."""

    def ours(layer: Any, tokens: Any, offsets: Any = None, weights: Any = None) -> Any:
        return layer(tokens, offsets=offsets, weights=weights)

    given = {"padding_idx": options["padding_index"]} if options else {}
    return Row(
        name,
        lambda: nn.EmbeddingBag(7, 3, mode=mode, key=KEY, **options),
        lambda: Torch(torch.nn.EmbeddingBag(7, 3, mode=mode, **given)),
        inputs,
        TABLE,
        call=ours,
        batched=len(inputs) == 1,
    )


def masked(weights: Arrays, tokens: Any, keep: Any) -> Any:
    found = jnp.where(keep[..., None] > 0, weights["weight"][tokens], 0)
    return found.sum(-2) / jnp.maximum((keep > 0).sum(-1), 1)[..., None]


KEEP = np.array([[1, 1, 0, 0, 0], [0] * 5, [1] * 5, [0, 0, 1, 1, 1]], np.int32)

ROWS = [
    Row(
        "Linear without bias",
        lambda: nn.Linear(3, 4, bias=False, key=KEY),
        lambda: Torch(torch.nn.Linear(3, 4, bias=False)),
        (random(5, 2, 3),),
        {"weight": transposed("weight")},
    ),
    Row(
        "Bilinear",
        lambda: nn.Bilinear(3, 4, 5, key=KEY),
        lambda: Torch(torch.nn.Bilinear(3, 4, 5)),
        (random(6, 2, 3), random(6, 2, 4)),
        {
            "weight": lambda values: np.moveaxis(values["weight"], 0, -1),
            "bias": named("bias"),
        },
    ),
    Row(
        "LinearGeneral",
        lambda: nn.LinearGeneral(6, (2, 4), key=KEY),
        flax(linen.DenseGeneral((2, 4)), random(6, 2, 4), random(2, 4)),
        (random(5, 3, 6),),
        SAME,
    ),
    Row(
        "LinearGeneral axes",
        lambda: nn.LinearGeneral((6, 2), 3, axis=(-1, -3), key=KEY),
        flax(linen.DenseGeneral(3, axis=(-1, -3)), random(2, 6, 3), random(3)),
        (random(5, 2, 4, 6),),
        # Theirs are in the order of the input.
        {
            "weight": lambda values: values["weight"].swapaxes(0, 1),
            "bias": named("bias"),
        },
    ),
    Row(
        "Einsum",
        lambda: nn.Einsum("nta,hab->nthb", (8, 3, 4), key=KEY),
        flax(linen.Einsum((8, 3, 4), "nta,hab->nthb"), random(8, 3, 4), random(8, 4)),
        (random(2, 5, 3),),
        SAME,
        batched=False,
    ),
    Row(
        "Einsum dots",
        lambda: nn.Einsum("...hd,hdo -> ...ho", (2, 3, 4), key=KEY),
        flax(
            linen.Einsum((2, 3, 4), "...hd,hdo->...ho"), random(2, 3, 4), random(2, 4)
        ),
        (random(5, 6, 2, 3),),
        SAME,
    ),
    Row(
        "MLP",
        lambda: nn.MLP(
            (3, 5, 2), activation=nn.tanh, final_activation=nn.relu, key=KEY
        ),
        lambda: Formula(
            mlp,
            {"w0": random(3, 5), "b0": random(5), "w1": random(5, 2), "b1": random(2)},
        ),
        (random(4, 3),),
        {
            "layers.0.weight": named("w0"),
            "layers.0.bias": named("b0"),
            "layers.1.weight": named("w1"),
            "layers.1.bias": named("b1"),
        },
    ),
    Row(
        "Embedding",
        lambda: nn.Embedding(7, 3, key=KEY),
        lambda: Torch(torch.nn.Embedding(7, 3)),
        (TOKENS,),
        TABLE,
    ),
    Row(
        "Embedding padded",
        lambda: nn.Embedding(7, 3, padding_index=2, key=KEY),
        lambda: Torch(torch.nn.Embedding(7, 3, padding_idx=2)),
        (TOKENS,),
        TABLE,
    ),
    Row(
        "Embedding attend",
        lambda: nn.Embedding(7, 3, key=KEY),
        lambda: Torch(
            torch.nn.Embedding(7, 3),
            lambda m, x: torch.nn.functional.linear(x, m.weight),
        ),
        (random(4, 5, 3),),
        TABLE,
        call=lambda layer, x: layer.attend(x),
    ),
    *(bag(f"EmbeddingBag {mode}", mode, TOKENS) for mode in ("sum", "mean", "max")),
    *(
        bag(f"EmbeddingBag ragged {mode}", mode, TOKENS.ravel(), OFFSETS)
        for mode in ("sum", "mean", "max")
    ),
    *(
        bag(f"EmbeddingBag padded {mode}", mode, TOKENS, padding_index=2)
        for mode in ("sum", "mean", "max")
    ),
    bag("EmbeddingBag weighted", "sum", TOKENS.ravel(), OFFSETS, random(20)),
    bag(
        "EmbeddingBag ragged padded",
        "mean",
        TOKENS.ravel(),
        OFFSETS,
        padding_index=2,
    ),
    Row(
        "EmbeddingBag masked",
        lambda: nn.EmbeddingBag(7, 3, key=KEY),
        lambda: Formula(masked, {"weight": random(7, 3)}),
        (TOKENS, KEEP),
        TABLE,
        call=lambda layer, tokens, keep: layer(tokens, mask=keep > 0),
    ),
    Row(
        "Identity",
        nn.Identity,
        lambda: Torch(torch.nn.Identity()),
        (random(2, 3),),
    ),
    Row(
        "Lambda",
        lambda: nn.Lambda(lambda x: x * x),
        lambda: Formula(lambda weights, x: x**2, {}),
        (random(2, 3),),
    ),
    Row(
        "Residual",
        lambda: nn.Residual(nn.Linear(3, 3, key=KEY)),
        lambda: Formula(
            lambda weights, x: x + x @ weights["weight"] + weights["bias"],
            {"weight": random(3, 3), "bias": random(3)},
        ),
        (random(2, 3),),
        {"layer.weight": named("weight"), "layer.bias": named("bias")},
    ),
    Row(
        "Residual with shortcut",
        lambda: nn.Residual(nn.tanh, nn.Linear(3, 3, bias=False, key=KEY)),
        lambda: Formula(
            lambda weights, x: x @ weights["weight"] + jnp.tanh(x),
            {"weight": random(3, 3)},
        ),
        (random(2, 3),),
        {"shortcut.weight": named("weight")},
    ),
]
