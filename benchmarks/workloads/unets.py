"""Networks from images to images."""

from dataclasses import dataclass

import numpy as np

from workloads import initial
from workloads.blocks import attend, projections
from workloads.dense import normal
from workloads.program import Program


@dataclass(frozen=True)
class UNet(Program):
    """Half the size and twice the channels at each level, and back (Ronneberger 2015);
    labels each pixel."""

    size: int = 64
    width: int = 32
    levels: int = 3
    groups: int = 8
    classes: int = 4
    batch_size: int = 4

    channels = 3

    def drawn(self, rng):
        found: initial.Weights = {}
        before, width = self.channels, self.width
        for i in range(self.levels):
            found |= self.pair(rng, f"down.{i}", width, before)
            before, width = width, 2 * width
        found |= self.pair(rng, "middle", width, before)
        for i in reversed(range(self.levels)):
            found |= self.pair(rng, f"up.{i}", width // 2, width + width // 2)
            width //= 2
        return found | initial.dense(rng, "out", self.classes, self.width, 1, 1)

    def pair(self, rng, name: str, n_out: int, n_in: int):
        """Weights of two convolutions, each with a norm after it."""
        found: initial.Weights = {}
        for i, n in enumerate((n_in, n_out)):
            found |= initial.dense(rng, f"{name}.{i}", n_out, n, 3, 3)
            found |= initial.norm(f"{name}.{i}.norm", n_out)
        return found

    def run_pair(self, F, p, x, when):
        """The two convolutions; `when` is an embedding of time, or None."""
        for i in range(2):
            part = p[str(i)]
            x = F.group_norm(part["norm"], F.conv(part, x), self.groups)
            if i == 0 and when is not None:
                x = x + F.linear(p["time"], when)[:, None, None]
            x = F.silu(x)
        return x

    def run(self, F, p, x, when=None):
        """Images to images."""
        skipped = []
        for i in range(self.levels):
            x = self.run_pair(F, p["down"][str(i)], x, when)
            skipped.append(x)
            x = F.max_pool(x)
        x = self.middle(F, p["middle"], x, when)
        for i in reversed(range(self.levels)):
            x = F.concat([F.upsample(x), skipped.pop()])
            x = self.run_pair(F, p["up"][str(i)], x, when)
        return F.conv(p["out"], x)

    def middle(self, F, p, x, when):
        """At the smallest size."""
        return self.run_pair(F, p, x, when)

    def examples(self, rng):
        shape = self.batch_size, self.size, self.size
        return normal(rng, *shape, 3), rng.integers(0, self.classes, shape)

    def loss(self, F, p, x, labels):
        return F.cross_entropy(self.run(F, p, x), labels)


@dataclass(frozen=True)
class Diffusion(UNet):
    """Learns the noise in images (Ho 2020): with an embedding of time, and attention at
    the smallest size. Noise and times are given."""

    size: int = 32
    classes: int = 3
    heads: int = 4
    time: int = 128

    @property
    def deepest(self) -> int:
        """Channels at the smallest size."""
        return self.width * 2**self.levels

    def drawn(self, rng):
        heads = self.heads, self.heads
        return (
            super().drawn(rng)
            | initial.dense(rng, "time.0", self.time, self.time)
            | initial.dense(rng, "time.1", self.time, self.time)
            | initial.norm("middle.norm", self.deepest)
            | projections(rng, "middle.attention", self.deepest, heads)
        )

    def pair(self, rng, name: str, n_out: int, n_in: int):
        found = super().pair(rng, name, n_out, n_in)
        return found | initial.dense(rng, f"{name}.time", n_out, self.time)

    def examples(self, rng):
        shape = self.batch_size, self.size, self.size, 3
        kept = rng.random(self.batch_size, np.float32).reshape(-1, 1, 1, 1)
        rates = np.exp(-np.arange(self.time // 2) / 16)
        angles = 100 * kept.reshape(-1, 1) * rates
        when = np.concatenate([np.sin(angles), np.cos(angles)], -1)
        return normal(rng, *shape), normal(rng, *shape), kept, when.astype(np.float32)

    def middle(self, F, p, x, when):
        x = self.run_pair(F, p, x, when)
        flat = F.group_norm(p["norm"], x, self.groups).reshape(
            x.shape[0], -1, self.deepest
        )
        heads = self.heads, self.heads
        return x + attend(F, p["attention"], flat, heads).reshape(*x.shape)

    def loss(self, F, p, x, noise, kept, when):
        mixed = kept**0.5 * x + (1 - kept) ** 0.5 * noise
        when = F.linear(p["time"]["1"], F.silu(F.linear(p["time"]["0"], when)))
        return F.squared_error(self.run(F, p, mixed, when), noise)
