"""Classifiers of images by convolutions."""

import itertools
from dataclasses import dataclass

import numpy as np

from workloads import initial
from workloads.dense import normal
from workloads.program import Program


@dataclass(frozen=True)
class Classifier(Program):
    """Sizes that they share, and a batch of images."""

    size: int = 32
    classes: int = 10
    batch_size: int = 16

    def examples(self, rng):
        x = normal(rng, self.batch_size, self.size, self.size, 3)
        return x, rng.integers(0, self.classes, self.batch_size)


def conv_norm(rng, name: str, n_out: int, n_in: int, window: int):
    """Weights of a convolution without bias, and of the norm after it."""
    weight = initial.dense(rng, f"{name}.conv", n_out, n_in, window, window, bias=False)
    return weight | initial.norm(f"{name}.norm", n_out)


def run_conv_norm(F, p, x, stride: int = 1, groups: int = 1):
    """The convolution, normalised by the batch, or by statistics where p has such."""
    y = F.conv(p["conv"], x, stride, groups)
    if p["norm"].find("mean") is None:
        return F.batch_norm(p["norm"], y)
    return F.trained_batch_norm(p["norm"], y)


@dataclass(frozen=True)
class ResNet(Classifier):
    """ResNet-18 in the form for CIFAR's images (He 2015)."""

    widths: tuple[int, ...] = (64, 128, 256, 512)
    blocks: int = 2

    def _blocks(self):
        """For each block its name, channels before and after, and its stride."""
        before = self.widths[0]
        for stage, (width, i) in enumerate(
            itertools.product(self.widths, range(self.blocks))
        ):
            first = i == 0 and stage > 0
            yield f"blocks.{stage}", before, width, 2 if first else 1
            before = width

    def drawn(self, rng):
        found = conv_norm(rng, "stem", self.widths[0], 3, 3)
        for name, before, width, stride in self._blocks():
            found |= conv_norm(rng, f"{name}.first", width, before, 3)
            found |= conv_norm(rng, f"{name}.second", width, width, 3)
            if stride > 1:
                found |= conv_norm(rng, f"{name}.short", width, before, 1)
        found |= initial.dense(rng, "out", self.classes, self.widths[-1])
        return found if self.trains else found | _statistics(rng, found)

    def logits(self, F, p, x):
        """Scores of the classes."""
        x = F.relu(run_conv_norm(F, p["stem"], x))
        for name, _, _, stride in self._blocks():
            part = p[name]
            h = F.relu(run_conv_norm(F, part["first"], x, stride))
            h = run_conv_norm(F, part["second"], h)
            x = x if stride == 1 else run_conv_norm(F, part["short"], x, stride)
            x = F.relu(x + h)
        return F.linear(p["out"], x.mean((1, 2)))

    def loss(self, F, p, x, labels):
        logits = self.logits(F, p, x)
        return F.cross_entropy(logits, labels) if self.trains else logits


def _statistics(rng, weights: initial.Weights) -> initial.Weights:
    """Means and variances for each norm."""
    names = [x.removesuffix(".weight") for x in weights if x.endswith("norm.weight")]
    found: initial.Weights = {}
    for name in names:
        count = weights[f"{name}.weight"].size
        found[f"{name}.mean"] = normal(rng, count) * np.float32(0.1)
        found[f"{name}.variance"] = rng.uniform(0.5, 1.5, count).astype(np.float32)
    return found


@dataclass(frozen=True)
class InvertedResiduals(Classifier):
    """Blocks that widen, convolve each channel by itself, and narrow (Sandler 2018)."""

    stages: tuple[tuple[int, int, int], ...] = (
        (24, 2, 1),
        (32, 3, 2),
        (64, 3, 2),
        (96, 2, 1),
    )
    """Of each stage its width, its blocks, its first stride."""
    stem: int = 32
    expansion: int = 6

    def _blocks(self):
        before = self.stem
        for stage, (width, count, stride) in enumerate(self.stages):
            for i in range(count):
                name = f"blocks.{stage}.{i}"
                yield name, before, width, stride if i == 0 else 1
                before = width

    def drawn(self, rng):
        found = conv_norm(rng, "stem", self.stem, 3, 3)
        for name, before, width, _ in self._blocks():
            wide = self.expansion * before
            found |= conv_norm(rng, f"{name}.expand", wide, before, 1)
            found |= conv_norm(rng, f"{name}.depthwise", wide, 1, 3)
            found |= conv_norm(rng, f"{name}.shrink", width, wide, 1)
        return found | initial.dense(rng, "out", self.classes, self.stages[-1][0])

    def loss(self, F, p, x, labels):
        x = F.relu6(run_conv_norm(F, p["stem"], x))
        for name, before, width, stride in self._blocks():
            part, wide = p[name], self.expansion * before
            h = F.relu6(run_conv_norm(F, part["expand"], x))
            h = F.relu6(run_conv_norm(F, part["depthwise"], h, stride, wide))
            h = run_conv_norm(F, part["shrink"], h)
            x = x + h if stride == 1 and before == width else h
        return F.cross_entropy(F.linear(p["out"], x.mean((1, 2))), labels)


@dataclass(frozen=True)
class ConvNeXt(Classifier):
    """A stack of blocks with windows of 7 by 7 for each channel (Liu 2022)."""

    width: int = 96
    patch: int = 2
    layers: int = 4

    def drawn(self, rng):
        width = self.width
        found = initial.dense(rng, "patches", width, 3, self.patch, self.patch)
        for i in range(self.layers):
            name = f"blocks.{i}"
            found |= initial.dense(rng, f"{name}.depthwise", width, 1, 7, 7)
            found |= initial.norm(f"{name}.norm", width)
            found |= initial.dense(rng, f"{name}.expand", 4 * width, width)
            found |= initial.dense(rng, f"{name}.shrink", width, 4 * width)
            found[f"{name}.scale"] = np.full(width, 0.1, np.float32)
        return found | initial.dense(rng, "out", self.classes, width)

    def loss(self, F, p, x, labels):
        x = F.patches(p["patches"], x)
        for i in range(self.layers):
            part = p["blocks"][str(i)]
            h = F.layer_norm(part["norm"], F.conv(part["depthwise"], x, 1, self.width))
            h = F.linear(part["shrink"], F.gelu(F.linear(part["expand"], h)))
            x = x + part.array("scale") * h
        return F.cross_entropy(F.linear(p["out"], x.mean((1, 2))), labels)
