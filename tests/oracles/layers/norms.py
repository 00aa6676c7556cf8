"""Rows: normalisation, regularisation, and activations that are layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.nn.utils import parametrizations

from tests.oracles.layers.references import Arrays, Formula, Torch
from tests.oracles.layers.rows import Row, Taken, images, kernel, named, random
from treadle import nn, rng

KEY = rng.key(0)
AFFINE: dict[str, Taken] = {"weight": named("weight"), "bias": named("bias")}
RUNNING = {
    "mean.value": named("running_mean"),
    "var.value": named("running_var"),
}


def varied(module: torch.nn.Module) -> Torch:
    """A module of PyTorch whose parameters and buffers are not those at the start."""
    for i, (name, x) in enumerate(module.state_dict().items()):
        if x.is_floating_point() and "parametrizations" not in name:
            x.add_(0.3 * torch.tensor(random(*x.shape, seed=i)).abs())
    return Torch(module)


@dataclass
class Trained(Formula):
    """A formula that is another one in inference."""

    evaluated: Callable[..., Any] = lambda w, x: x

    def inference(self) -> None:
        self.function = self.evaluated


def drawn(function: Callable[..., Any], **options: Any) -> Callable[[], Trained]:
    """A function of a JAX key and an input: the key is the first that a scope gives."""
    key = jax.random.fold_in(jax.random.key(7), 1)
    return lambda: Trained(lambda weights, x: function(key, x), {}, **options)


def dropout(share: float, *shape: int) -> Callable[[], Trained]:
    def formula(key: Any, x: Any) -> Any:
        return jnp.where(
            jax.random.bernoulli(key, 1 - share, shape), x / (1 - share), 0
        )

    return drawn(formula)


def alpha_dropout(share: float, *shape: int) -> Callable[[], Trained]:
    def formula(key: Any, x: Any) -> Any:
        # Klambauer 2017, with the mean and variance of what is dropped and kept.
        least = -1.6732632423543772 * 1.0507009873554805
        mixed = jnp.where(jax.random.bernoulli(key, 1 - share, shape), x, least)
        mean, square = share * least, (1 - share) + share * least**2
        return (mixed - mean) / jnp.sqrt(square - mean**2)

    return drawn(formula)


def gaussian_dropout(share: float) -> Callable[[], Trained]:
    spread = np.sqrt(share / (1 - share))
    return drawn(lambda key, x: x * (1 + spread * jax.random.normal(key, x.shape)))


def rrelu(lower: float, upper: float) -> Callable[[], Trained]:
    def formula(key: Any, x: Any) -> Any:
        slope = jax.random.uniform(key, x.shape, minval=lower, maxval=upper)
        return jnp.where(x > 0, x, slope * x)

    mean = (lower + upper) / 2
    return drawn(formula, evaluated=lambda w, x: jnp.where(x > 0, x, mean * x))


ROWS = [
    Row(
        "LayerNorm of several axes",
        lambda: nn.LayerNorm((3, 4), eps=1e-3),
        lambda: varied(torch.nn.LayerNorm((3, 4), eps=1e-3)),
        (random(5, 3, 4),),
        AFFINE,
    ),
    Row(
        "LayerNorm without a bias",
        lambda: nn.LayerNorm(6, bias=False),
        lambda: varied(torch.nn.LayerNorm(6, bias=False)),
        (random(5, 6),),
        {"weight": named("weight")},
    ),
    Row(
        "LayerNorm alone",
        lambda: nn.LayerNorm(6, scale=False, bias=False),
        lambda: Torch(torch.nn.LayerNorm(6, elementwise_affine=False)),
        (random(5, 2, 6),),
    ),
    Row(
        "RMSNorm",
        lambda: nn.RMSNorm(6),
        lambda: varied(torch.nn.RMSNorm(6, eps=1e-6)),
        (random(5, 6),),
        {"weight": named("weight")},
    ),
    Row(
        "RMSNorm of several axes",
        lambda: nn.RMSNorm((2, 6), eps=0.1, scale=False),
        lambda: Torch(torch.nn.RMSNorm((2, 6), 0.1, elementwise_affine=False)),
        (random(5, 2, 6),),
    ),
    Row(
        "GroupNorm",
        lambda: nn.GroupNorm(3, 6),
        lambda: varied(torch.nn.GroupNorm(3, 6)),
        (random(4, 6),),
        AFFINE,
        batched=False,
    ),
    Row(
        "GroupNorm of images",
        lambda: nn.GroupNorm(2, 6, spatial_axes=2),
        lambda: varied(torch.nn.GroupNorm(2, 6)),
        (random(2, 5, 4, 6),),
        AFFINE,
        **images,
    ),
    Row(
        "GroupNorm alone",
        lambda: nn.GroupNorm(1, 4, scale=False, bias=False),
        lambda: Torch(torch.nn.GroupNorm(1, 4, affine=False)),
        (random(2, 5, 4),),
        batched=False,
        **images,
    ),
    Row(
        "InstanceNorm",
        lambda: nn.InstanceNorm(3, spatial_axes=2),
        lambda: varied(torch.nn.InstanceNorm2d(3, affine=True)),
        (random(2, 5, 4, 3),),
        AFFINE,
        **images,
    ),
    Row(
        "InstanceNorm with running statistics",
        lambda: nn.InstanceNorm(3, momentum=0.3, running=True),
        lambda: varied(
            torch.nn.InstanceNorm1d(
                3, momentum=0.3, affine=True, track_running_stats=True
            )
        ),
        (random(4, 7, 3),),
        {**AFFINE, **RUNNING},
        **images,
    ),
    Row(
        "BatchNorm of images",
        lambda: nn.BatchNorm(3, momentum=0.3, eps=1e-3),
        lambda: varied(torch.nn.BatchNorm2d(3, momentum=0.3, eps=1e-3)),
        (random(4, 3, 2, 3),),
        {**AFFINE, **RUNNING},
        **images,
    ),
    Row(
        "BatchNorm cumulative",
        lambda: nn.BatchNorm(3, momentum=None, scale=False, bias=False),
        lambda: varied(torch.nn.BatchNorm1d(3, momentum=None, affine=False)),
        (random(8, 3),),
        {
            **RUNNING,
            "batches.value": lambda v: v["num_batches_tracked"].astype(np.int32),
        },
    ),
    Row(
        "BatchNorm without running statistics",
        lambda: nn.BatchNorm(3, running=False),
        lambda: varied(torch.nn.BatchNorm1d(3, track_running_stats=False)),
        (random(8, 3),),
        AFFINE,
        batched=False,
    ),
]


def normed(name: str) -> str:
    return f"parametrizations.weight.{name}"


def _vector_of_images(values: Arrays) -> np.ndarray:
    """Theirs goes over (in, *window), ours over (*window, in)."""
    vector = values[normed("0._v")].reshape(4, 3, 3)
    return np.moveaxis(vector, 0, -1).ravel()


ROWS += [
    Row(
        "WeightNorm",
        lambda: nn.WeightNorm(nn.Linear(3, 4, key=KEY)),
        lambda: varied(parametrizations.weight_norm(torch.nn.Linear(3, 4))),
        (random(5, 3),),
        {
            "layer.weight": lambda v: v[normed("original1")].T,
            "layer.bias": named("bias"),
            "scale": lambda v: v[normed("original0")][:, 0],
        },
    ),
    Row(
        "WeightNorm of a convolution, one length",
        lambda: nn.WeightNorm(nn.Conv2d(4, 6, 3, padding=1, key=KEY), axis=None),
        lambda: varied(
            parametrizations.weight_norm(torch.nn.Conv2d(4, 6, 3, padding=1), dim=None)
        ),
        (random(2, 5, 6, 4),),
        {
            "layer.weight": kernel(normed("original1")),
            "layer.bias": named("bias"),
            "scale": lambda v: v[normed("original0")].reshape(1),
        },
        **images,
    ),
    Row(
        "SpectralNorm",
        lambda: nn.SpectralNorm(nn.Linear(5, 4, key=KEY), iterations=2, key=KEY),
        lambda: Torch(
            parametrizations.spectral_norm(torch.nn.Linear(5, 4), n_power_iterations=2)
        ),
        (random(6, 5),),
        {
            "layer.weight": lambda v: v[normed("original")].T,
            "layer.bias": named("bias"),
            "u.value": named(normed("0._u")),
            "v.value": named(normed("0._v")),
        },
    ),
    Row(
        "SpectralNorm of a convolution",
        lambda: nn.SpectralNorm(nn.Conv2d(4, 6, 3, padding=1, key=KEY), key=KEY),
        lambda: Torch(
            parametrizations.spectral_norm(torch.nn.Conv2d(4, 6, 3, padding=1))
        ),
        (random(2, 5, 6, 4),),
        {
            "layer.weight": kernel(normed("original")),
            "layer.bias": named("bias"),
            "u.value": named(normed("0._u")),
            "v.value": _vector_of_images,
        },
        **images,
    ),
    Row(
        "PReLU",
        lambda: nn.PReLU(),
        lambda: varied(torch.nn.PReLU()),
        (random(5, 6),),
        {"weight": named("weight")},
    ),
    Row(
        "PReLU of channels",
        lambda: nn.PReLU(6),
        lambda: varied(torch.nn.PReLU(6)),
        (random(5, 3, 6),),
        {"weight": named("weight")},
        **images,
    ),
    Row("RReLU", lambda: nn.RReLU(0.1, 0.4), rrelu(0.1, 0.4), (random(5, 6),)),
    Row("Dropout", lambda: nn.Dropout(0.3), dropout(0.3, 5, 6), (random(5, 6),)),
    Row(
        "Dropout of channels",
        lambda: nn.Dropout(0.4, broadcast_axes=(-3, -2)),
        dropout(0.4, 6, 1, 1, 5),
        (random(6, 3, 4, 5),),
    ),
    Row(
        "AlphaDropout",
        lambda: nn.AlphaDropout(0.3),
        alpha_dropout(0.3, 5, 6),
        (random(5, 6),),
    ),
    Row(
        "AlphaDropout of channels",
        lambda: nn.AlphaDropout(0.3, broadcast_axes=1),
        alpha_dropout(0.3, 5, 1, 6),
        (random(5, 4, 6),),
    ),
    Row("DropPath", lambda: nn.DropPath(0.5), dropout(0.5, 8, 1), (random(8, 3),)),
    Row(
        "DropPath of two leading axes",
        lambda: nn.DropPath(0.2, batch_axes=2),
        dropout(0.2, 6, 5, 1),
        (random(6, 5, 3),),
    ),
    Row(
        "GaussianDropout",
        lambda: nn.GaussianDropout(0.2),
        gaussian_dropout(0.2),
        (random(5, 6),),
    ),
    Row(
        "GaussianNoise",
        lambda: nn.GaussianNoise(0.2),
        drawn(lambda key, x: x + 0.2 * jax.random.normal(key, x.shape)),
        (random(5, 6),),
    ),
]
