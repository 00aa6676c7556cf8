"""MLP-Mixer: patches of images, mixed by linear layers alone (Tolstikhin 2021)."""

from __future__ import annotations

from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng


class MLPMixer(nn.Module):
    """Tells of which class an image is.

    Shapes: images ``(..., image, image, channels) -> (..., classes)``, logits.

    Args:
      image, patch: the sizes of images and patches, in pixels; of patches there is a
        whole number.
      depth: the number of layers.
      classes: None: for `encode` alone.
      place_hidden, hidden: the widths inside of what mixes places, and features; by
        default ``width // 2`` and ``4 * width``.
      dropout, drop_path: as in `nn.MLPMixerBlock`.
      dtype: in which the layers compute; by default that of their parameters.
      param_dtype: in which the parameters are made.

    >>> from treadle import models, rng
    >>> import treadle.numpy as tnp
    >>> mixer = models.MLPMixer(8, 4, 16, 2, 10, key=rng.key(0))
    >>> mixer(tnp.ones((2, 8, 8, 3))).shape
    (2, 10)
    """

    patches: nn.PatchEmbedding
    layers: list[nn.MLPMixerBlock]
    norm: nn.LayerNorm
    head: nn.Linear | None

    def __init__(
        self,
        image: int,
        patch: int,
        width: int,
        depth: int,
        classes: int | None,
        *,
        channels: int = 3,
        place_hidden: int | None = None,
        hidden: int | None = None,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        if image % patch:
            raise ValueError(f"MLPMixer: {image} pixels are no whole number of {patch}")
        dtypes: Any = {"dtype": dtype, "param_dtype": param_dtype}
        patch_key, layers_key, head_key = rng.split(key, 3)
        self.patches = nn.PatchEmbedding(
            channels, width, patch, key=patch_key, **dtypes
        )
        self.layers = [
            nn.MLPMixerBlock(
                (image // patch) ** 2,
                width,
                place_hidden,
                hidden,
                dropout=dropout,
                drop_path=drop_path,
                key=layer_key,
                **dtypes,
            )
            for layer_key in rng.split(layers_key, depth)
        ]
        self.norm = nn.LayerNorm(width, **dtypes)
        self.head = (
            None
            if classes is None
            else nn.Linear(width, classes, key=head_key, **dtypes)
        )

    def __call__(self, images: tnp.ArrayLike) -> td.Array:
        if self.head is None:
            raise ValueError("this MLPMixer was made without classes: call `encode`")
        return self.head(self.encode(images).mean(-2))

    def encode(self, images: tnp.ArrayLike) -> td.Array:
        """A vector for each patch: ``(..., patches, width)``."""
        x = self.patches(images)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)
