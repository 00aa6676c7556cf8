"""Diffusion: images out of noise, by a model that tells the noise (Ho 2020)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.errors import at, user_source

Model = Callable[[Any, Any], td.Array]
Prediction = Literal["noise", "velocity"]


def linear_schedule(
    steps: int = 1000, first: float = 1e-4, last: float = 0.02
) -> np.ndarray:
    """How much of an image's variance is left after each step, if the noise that steps
    add grows evenly: (steps,).

    >>> linear_schedule(3, 0.1, 0.5)
    array([0.9  , 0.63 , 0.315])
    """
    return np.cumprod(1 - np.linspace(first, last, steps))


def cosine_schedule(steps: int = 1000, shift: float = 0.008) -> np.ndarray:
    """How much of an image's variance is left after each step, as a squared cosine that
    keeps small images longer (Nichol 2021): (steps,).

    >>> cosine_schedule(4).round(3)
    array([0.847, 0.494, 0.144, 0.   ])
    """
    times = np.arange(steps + 1) / steps
    left = np.cos((times + shift) / (1 + shift) * np.pi / 2) ** 2
    # No step takes all.
    return np.cumprod(np.maximum(left[1:] / left[:-1], 1e-3))


class Diffusion(nn.Module):
    """Adds noise to images in steps, and takes it from them with a model.

    A model is called with noisy images and times, whole numbers from 0 to
    ``steps - 1``; it gives the noise in the images, which has the variance 1, or their
    velocity: `DiffusionUNet`.

    Args:
      signal: how much of an image's variance is left after each step: (steps,), as
        `linear_schedule` and `cosine_schedule` give it.
      prediction: what the model gives: the "noise", or the "velocity"
        ``sqrt(signal) * noise - sqrt(1 - signal) * image``, of which it can tell as
        much at all times (Salimans 2022).

    >>> from treadle import models, nn, rng
    >>> import treadle.numpy as tnp
    >>> diffusion = models.Diffusion(models.cosine_schedule(100))
    >>> unet = models.DiffusionUNet((8, 16), 1, groups=4, key=rng.key(0))
    >>> diffusion.loss(unet, tnp.zeros((2, 8, 8, 3)), key=rng.key(1)).shape
    (2,)
    >>> diffusion.sample(unet, (2, 8, 8, 3), steps=5, eta=0.0, key=rng.key(2)).shape
    (2, 8, 8, 3)
    """

    signal: td.Array
    prediction: Prediction

    def __init__(
        self, signal: tnp.ArrayLike, *, prediction: Prediction = "noise"
    ) -> None:
        if prediction not in ("noise", "velocity"):
            raise ValueError(
                f'Diffusion: prediction is "noise" or "velocity", got {prediction!r}'
                f"{at(user_source())}"
            )
        values = np.asarray(signal)
        if values.ndim != 1 or not np.all(np.diff([1, *values, 0]) < 0):
            raise ValueError(
                "Diffusion: signal falls from step to step between 1 and 0, got "
                f"{td.typeof(tnp.asarray(signal))}"
            )
        self.signal = nn.Buffer(tnp.asarray(values, tnp.float32))
        self.prediction = prediction

    def noised(
        self, x: tnp.ArrayLike, times: tnp.ArrayLike, noise: tnp.ArrayLike
    ) -> td.Array:
        """Images after so many steps. Shapes: ``x`` and ``noise`` are of one shape,
        ``(*lead, ...)``; times ``(*lead)``."""
        x, noise = tnp.asarray(x), tnp.asarray(noise)
        kept, added = self._shares(x, times)
        return kept * x + added * noise

    def _shares(self, x: td.Array, times: tnp.ArrayLike) -> tuple[td.Array, td.Array]:
        """What images and noise are multiplied with at times."""
        times = tnp.asarray(times)
        signal = self.signal[times].reshape(*times.shape, *[1] * (x.ndim - times.ndim))
        return tnp.sqrt(signal), tnp.sqrt(1 - signal)

    def loss(self, model: Model, x: tnp.ArrayLike, *, key: rng.Key) -> td.Array:
        """For each example how far off the model is about the noise (or velocity), the
        mean of its squares, at a random time. Shapes: ``(batch, ...) -> (batch)``."""
        x = tnp.asarray(x)
        time_key, noise_key = rng.split(key)
        steps = self.signal.shape[0]
        times = rng.randint(time_key, x.shape[:1], 0, steps)
        noise = rng.normal(noise_key, x.shape)
        kept, added = self._shares(x, times)
        found = model(kept * x + added * noise, times)
        wanted = noise if self.prediction == "noise" else kept * noise - added * x
        error = nn.squared_error(found.astype(wanted.dtype), wanted)
        return error.mean(tuple(range(1, error.ndim)))

    def sample(
        self,
        model: Model,
        shape: Sequence[int],
        *,
        steps: int | None = None,
        eta: float = 1.0,
        clip: float | None = None,
        key: rng.Key,
    ) -> td.Array:
        """New images, all steps of them in one loop.

        Args:
          model: for evaluation (`nn.inference`).
          shape: (batch, ...).
          steps: how many of the steps are taken, evenly spread; all by default.
          eta: how much of the noise that is taken away is drawn anew: 1 is DDPM (with
            the variance of the posterior), 0 DDIM, which draws none (Song 2020).
          clip: the largest absolute value that pixels have; what is guessed of the
            image on the way is clipped to that.

        Raises:
          ValueError: for other numbers of steps than there are.
        """
        total = self.signal.shape[0]
        steps = total if steps is None else steps
        if not 0 < steps <= total:
            raise ValueError(f"Diffusion: steps is one of 1 to {total}, got {steps}")
        times = np.linspace(total - 1, 0, steps).round().astype(np.int32)
        signal = self.signal[times]
        after = tnp.concatenate([signal[1:], tnp.ones(1)])
        first_key, loop_key = rng.split(key)

        def step(x: td.Array, row: Any) -> tuple[td.Array, None]:
            time, now, then, step_key = row
            found = model(x, tnp.broadcast_to(time, x.shape[:1])).astype(x.dtype)
            noise = found
            if self.prediction == "velocity":
                noise = tnp.sqrt(now) * found + tnp.sqrt(1 - now) * x
            image = (x - tnp.sqrt(1 - now) * noise) / tnp.sqrt(now)
            if clip is not None:
                image = tnp.clip(image, -clip, clip)
                noise = (x - tnp.sqrt(now) * image) / tnp.sqrt(1 - now)
            anew = eta**2 * (1 - then) / (1 - now) * (1 - now / then)
            # Rounded, what is left can be less than nothing.
            left = tnp.maximum(1 - then - anew, 0)
            x = tnp.sqrt(then) * image + tnp.sqrt(left) * noise
            if eta:
                x = x + tnp.sqrt(anew) * rng.normal(step_key, x.shape)
            return x, None

        rows = (tnp.asarray(times), signal, after, rng.split(loop_key, steps))
        x, _ = td.scan(step, rng.normal(first_key, tuple(shape)), rows)
        return x
