"""VAE: images from few numbers that are normally distributed (Kingma 2013)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.models.parts import Activation

Likelihood = Literal["bernoulli", "normal"]


class Normal(NamedTuple):
    """Normal distributions of independent numbers.

    >>> import treadle.numpy as tnp
    >>> Normal(tnp.zeros(3), tnp.zeros(3)).kl()
    Array(0., dtype=float32)
    """

    mean: td.Array
    log_variance: td.Array

    def sample(self, key: rng.Key) -> td.Array:
        """A draw of each: ``(..., latent)``."""
        noise = rng.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + tnp.exp(0.5 * self.log_variance) * noise

    def kl(self) -> td.Array:
        """The divergence from mean 0 and variance 1, summed over the last axis."""
        variance = tnp.exp(self.log_variance)
        return 0.5 * (tnp.square(self.mean) + variance - 1 - self.log_variance).sum(-1)


class VAE(nn.Module):
    """An encoder to means and variances, and a decoder of what they are drawn for.

    Shapes: data ``(..., *example) -> (..., *example)``, what the decoder makes of the
    means: logits of "bernoulli", means of "normal".

    `VAE.mlp` and `VAE.conv` make the usual ones.

    Args:
      encoder: ``(..., *example) -> (..., 2 * latent)``.
      decoder: ``(..., latent) -> (..., *example)``.
      likelihood: how data are distributed around what is decoded: "bernoulli" (data
        are between 0 and 1) or "normal" (of variance 1).

    >>> from treadle import models, rng
    >>> import treadle.numpy as tnp
    >>> vae = models.VAE.conv(8, (4, 8), 2, channels=1, key=rng.key(0))
    >>> images = tnp.zeros((5, 8, 8, 1))
    >>> vae.loss(images, key=rng.key(1)).shape
    (5,)
    >>> vae.sample((3,), key=rng.key(2)).shape
    (3, 8, 8, 1)
    """

    encoder: Callable[[Any], td.Array]
    decoder: Callable[[Any], td.Array]
    latent: int
    likelihood: Likelihood

    def __init__(
        self,
        encoder: Callable[[Any], td.Array],
        decoder: Callable[[Any], td.Array],
        latent: int,
        *,
        likelihood: Likelihood = "bernoulli",
    ) -> None:
        if likelihood not in ("bernoulli", "normal"):
            raise ValueError(
                f'VAE: likelihood is "bernoulli" or "normal", got {likelihood!r}'
            )
        self.encoder, self.decoder, self.latent = encoder, decoder, latent
        self.likelihood = likelihood

    @classmethod
    def mlp(
        cls,
        shape: Sequence[int],
        widths: Sequence[int],
        latent: int,
        *,
        likelihood: Likelihood = "bernoulli",
        activation: Activation = nn.relu,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> VAE:
        """Of linear layers, for data of any shape.

        Args:
          shape: of an example.
          widths: of the hidden layers of the encoder; the decoder has them in reverse.

        >>> vae = VAE.mlp((28, 28), (64, 32), 8, key=rng.key(0))
        >>> vae(tnp.zeros((5, 28, 28))).shape
        (5, 28, 28)
        """
        options: Any = {"dtype": dtype, "param_dtype": param_dtype}
        size = math.prod(shape)
        down_key, up_key = rng.split(key)
        down = _linears((size, *widths, 2 * latent), activation, down_key, options)
        up = _linears((latent, *widths[::-1], size), activation, up_key, options)
        return cls(
            nn.Sequential(nn.Flatten(-len(shape)), *down),
            nn.Sequential(*up, nn.Unflatten(-1, tuple(shape))),
            latent,
            likelihood=likelihood,
        )

    @classmethod
    def conv(
        cls,
        image: int,
        widths: Sequence[int],
        latent: int,
        *,
        channels: int = 3,
        likelihood: Likelihood = "bernoulli",
        activation: Activation = nn.relu,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> VAE:
        """Of convolutions, for images ``(..., image, image, channels)``.

        Args:
          image: the height and width, a multiple of ``2 ** len(widths)``.
          widths: the channels after each convolution; each halves the image.
        """
        small, rest = divmod(image, 2 ** len(widths))
        if rest:
            raise ValueError(
                f"VAE.conv: {image} pixels can't be halved {len(widths)} times"
            )
        options: Any = {"dtype": dtype, "param_dtype": param_dtype}
        first_key, last_key, down_key, up_key = rng.split(key, 4)
        sizes = (channels, *widths)
        pairs = list(zip(sizes, widths, strict=False))
        down: list[Any] = []
        for (before, width), k in zip(
            pairs, rng.split(down_key, len(pairs)), strict=True
        ):
            conv = nn.Conv2d(before, width, 4, stride=2, padding=1, key=k, **options)
            down += [conv, activation]
        up: list[Any] = []
        for (before, width), k in zip(
            pairs[::-1], rng.split(up_key, len(pairs)), strict=True
        ):
            back = nn.ConvTranspose2d(
                width, before, 4, stride=2, padding=1, key=k, **options
            )
            up += [activation, back]
        inner = (small, small, widths[-1])
        size = math.prod(inner)
        return cls(
            nn.Sequential(
                *down,
                nn.Flatten(-3),
                nn.Linear(size, 2 * latent, key=first_key, **options),
            ),
            nn.Sequential(
                nn.Linear(latent, size, key=last_key, **options),
                nn.Unflatten(-1, inner),
                *up,
            ),
            latent,
            likelihood=likelihood,
        )

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        return self.decoder(self.encode(x).mean)

    def encode(self, x: tnp.ArrayLike) -> Normal:
        """How the latent numbers of data are distributed, each (..., latent)."""
        # As losses, in float32 at least.
        out = self.encoder(x)
        out = out.astype(tnp.result_type(out, tnp.float32))
        return Normal(out[..., : self.latent], out[..., self.latent :])

    def loss(self, x: tnp.ArrayLike, *, beta: float = 1.0, key: rng.Key) -> td.Array:
        """For each example how badly it is decoded from a draw, and `beta` times the
        divergence of what is drawn from; with 1, a bound on its negative log-likelihood
        (of "normal" up to a constant). Shapes: ``(..., *example) -> (...)``."""
        x = tnp.asarray(x)
        posterior = self.encode(x)
        lead = posterior.mean.shape[:-1]
        out = self.decoder(posterior.sample(key))
        out = out.astype(posterior.mean.dtype)
        each = (
            nn.binary_cross_entropy(out, x)
            if self.likelihood == "bernoulli"
            else 0.5 * nn.squared_error(out, x)
        )
        axes = tuple(range(len(lead), each.ndim))
        return each.sum(axes) + beta * posterior.kl()

    def sample(self, shape: Sequence[int] = (), *, key: rng.Key) -> td.Array:
        """New examples, ``(*shape, *example)``: means, for "bernoulli" of 0 to 1."""
        out = self.decoder(rng.normal(key, (*shape, self.latent)))
        return nn.sigmoid(out) if self.likelihood == "bernoulli" else out


def _linears(
    sizes: Sequence[int], activation: Activation, key: rng.Key, options: Any
) -> list[Any]:
    """Linear layers with an activation between them."""
    layers: list[Any] = []
    pairs = list(itertools.pairwise(sizes))
    for (before, width), k in zip(pairs, rng.split(key, len(pairs)), strict=True):
        layers += [nn.Linear(before, width, key=k, **options), activation]
    return layers[:-1]
