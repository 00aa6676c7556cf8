"""Networks of patches of images."""

from dataclasses import dataclass

import numpy as np

from workloads import initial
from workloads.blocks import block, run_block
from workloads.dense import normal
from workloads.program import Program


@dataclass(frozen=True)
class Patches(Program):
    """A classifier of images that are cut into patches."""

    size: int = 32
    patch: int = 4
    width: int = 192
    layers: int = 6
    classes: int = 10
    batch_size: int = 16

    @property
    def length(self) -> int:
        """How many patches there are."""
        return (self.size // self.patch) ** 2

    def examples(self, rng):
        x = normal(rng, self.batch_size, self.size, self.size, 3)
        return x, rng.integers(0, self.classes, self.batch_size)

    def ends(self, rng):
        """Weights of the first and of the last layers."""
        return (
            initial.dense(rng, "patches", self.width, 3, self.patch, self.patch)
            | initial.norm("norm", self.width)
            | initial.dense(rng, "out", self.classes, self.width)
        )

    def cut(self, F, p, x):
        """Images to sequences."""
        return F.patches(p["patches"], x).reshape(x.shape[0], self.length, self.width)

    def classified(self, F, p, x, labels):
        """The loss of what the layers gave."""
        mean = F.layer_norm(p["norm"], x).mean(1)
        return F.cross_entropy(F.linear(p["out"], mean), labels)


@dataclass(frozen=True)
class VisionTransformer(Patches):
    """Pre-LN blocks over patches (Dosovitskiy 2021)."""

    heads: int = 3

    def drawn(self, rng):
        found = self.ends(rng) | {
            "place": normal(rng, self.length, self.width) * np.float32(0.02)
        }
        for i in range(self.layers):
            found |= block(rng, f"blocks.{i}", self.width, self.heads, 4 * self.width)
        return found

    def loss(self, F, p, x, labels):
        x = self.cut(F, p, x) + p.array("place")
        for i in range(self.layers):
            x = run_block(F, p["blocks"][str(i)], x, self.heads)
        return self.classified(F, p, x, labels)


@dataclass(frozen=True)
class Mixer(Patches):
    """Linear layers over patches and over channels in turns (Tolstikhin 2021)."""

    width: int = 256
    layers: int = 8

    def drawn(self, rng):
        found = self.ends(rng)
        for i in range(self.layers):
            for name, n in (("patches", self.length), ("channels", self.width)):
                part = f"blocks.{i}.{name}"
                hidden = self.width // 2 if name == "patches" else 4 * n
                found |= initial.norm(f"{part}.norm", self.width)
                found |= initial.dense(rng, f"{part}.expand", hidden, n)
                found |= initial.dense(rng, f"{part}.shrink", n, hidden)
        return found

    def loss(self, F, p, x, labels):
        def mixed(p, x):
            return F.linear(p["shrink"], F.gelu(F.linear(p["expand"], x)))

        x = self.cut(F, p, x)
        for i in range(self.layers):
            patches, channels = (
                p["blocks"][str(i)][n] for n in ("patches", "channels")
            )
            turned = F.layer_norm(patches["norm"], x).swapaxes(1, 2)
            x = x + mixed(patches, turned).swapaxes(1, 2)
            x = x + mixed(channels, F.layer_norm(channels["norm"], x))
        return self.classified(F, p, x, labels)
