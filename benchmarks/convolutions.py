"""Times convolutions, pooling and resizing beside PyTorch: `python convolutions.py`.

`python benchmarks/convolutions.py [ROUNDS] [PART OF A NAME] [DTYPE]`. Figures are
milliseconds of CPU time of one thread, medians of calls that take turns; channels are
last in both libraries. A ratio is PyTorch's time over Treadle's. The limit is the time
of as many multiply-adds of float32 in registers. The dtype is that of convolutions:
float32, or bfloat16.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("TREADLE_NUM_THREADS", "1")

import machine
import numpy as np
import torch

import treadle as td
import treadle.numpy as tnp
from treadle import nn

Function = Callable[[], object]
Contenders = dict[str, tuple[Function, Function]]
SLICE = 0.05
rng = np.random.default_rng(0)


class Conv(NamedTuple):
    """A convolution: sizes of the input (channels last), then as in PyTorch."""

    title: str
    x: tuple[int, ...]
    features: int
    kernel: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    transposed: bool = False


CONVOLUTIONS = [
    Conv("ResNet stem", (4, 224, 224, 3), 64, 7, 2, 3),
    Conv("ResNet 56", (8, 56, 56, 64), 64, 3, 1, 1),
    Conv("ResNet 28", (8, 28, 28, 128), 128, 3, 1, 1),
    Conv("ResNet 14", (8, 14, 14, 256), 256, 3, 1, 1),
    Conv("ResNet 7", (8, 7, 7, 512), 512, 3, 1, 1),
    Conv("ResNet down", (8, 56, 56, 64), 128, 3, 2, 1),
    Conv("ResNet down, late", (8, 14, 14, 256), 512, 3, 2, 1),
    Conv("shortcut", (8, 56, 56, 64), 128, 1, 2),
    Conv("small strided", (32, 32, 32, 16), 32, 3, 2, 1),
    Conv("CIFAR 32", (8, 32, 32, 64), 64, 3, 1, 1),
    Conv("CIFAR 8", (8, 8, 8, 256), 256, 3, 1, 1),
    Conv("CIFAR 8, batch 32", (32, 8, 8, 256), 256, 3, 1, 1),
    Conv("CIFAR 4", (16, 4, 4, 512), 512, 3, 1, 1),
    Conv("ViT patches", (8, 224, 224, 3), 192, 16, 16),
    Conv("ResNeXt", (8, 28, 28, 256), 256, 3, 1, 1, groups=32),
    Conv("depthwise", (8, 56, 56, 144), 144, 3, 1, 1, groups=144),
    Conv("depthwise, stride 2", (8, 56, 56, 144), 144, 3, 2, 1, groups=144),
    Conv("depthwise, times 2", (8, 28, 28, 64), 128, 3, 1, 1, groups=64),
    Conv("ConvNeXt", (8, 28, 28, 192), 192, 7, 1, 3, groups=192),
    Conv("dilated", (2, 64, 64, 64), 64, 3, 1, 2, 2),
    Conv("wav2vec first", (4, 16000, 1), 512, 10, 5),
    Conv("wav2vec second", (4, 3199, 512), 512, 3, 2),
    Conv("WaveNet", (4, 4096, 64), 128, 2, 1, 0, 64),
    Conv("U-Net up", (4, 32, 32, 128), 64, 2, 2, transposed=True),
    Conv("DCGAN up", (16, 8, 8, 256), 128, 4, 2, 1, transposed=True),
    Conv("vocoder up", (4, 256, 128), 64, 16, 8, 4, transposed=True),
    Conv("VGG 14", (8, 14, 14, 512), 512, 3, 1, 1),
    Conv("DeepLab", (2, 33, 33, 256), 256, 3, 1, 12, 12),
    Conv("MobileNet first", (8, 112, 112, 3), 32, 3, 2, 1),
    Conv("EfficientNet down", (8, 28, 28, 240), 240, 5, 2, 2, groups=240),
    Conv("ConvNeXt late", (8, 7, 7, 768), 768, 7, 1, 3, groups=768),
    Conv("ConvNeXt down", (8, 56, 56, 96), 192, 2, 2),
    Conv("spectrogram", (8, 257, 101, 1), 64, 5, 2, 2),
    Conv("MobileNetV3 down", (8, 56, 56, 64), 64, 5, 2, 2, groups=64),
    Conv("MobileNetV3 down, late", (8, 14, 14, 672), 672, 5, 2, 2, groups=672),
    Conv("MobileNet down", (8, 112, 112, 64), 64, 3, 2, 1, groups=64),
    Conv("MobileNet, 16 channels", (8, 112, 112, 16), 16, 3, 1, 1, groups=16),
    Conv("ConvNeXt, one image", (1, 56, 56, 96), 96, 7, 1, 3, groups=96),
    Conv("ConvNeXt 14", (8, 14, 14, 384), 384, 7, 1, 3, groups=384),
    Conv("ConvNeXt down, late", (8, 28, 28, 192), 384, 2, 2),
    Conv("DenseNet", (8, 32, 32, 96), 12, 3, 1, 1),
    Conv("ResNeXt, 4 channels", (8, 56, 56, 128), 128, 3, 1, 1, groups=32),
    Conv("Atari", (32, 84, 84, 4), 32, 8, 4),
    Conv("one feature", (4, 64, 64, 64), 1, 1),
    Conv("UNet3D", (1, 32, 32, 32, 32), 64, 3, 1, 1),
    Conv("UNet3D down", (1, 32, 32, 32, 32), 64, 3, 2, 1),
]


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape, "float32")


def channels_first(x: np.ndarray) -> torch.Tensor:
    """The same memory, in PyTorch's order of axes."""
    return torch.from_numpy(np.moveaxis(x, -1, 1))


def convolution(case: Conv, dtype: str) -> tuple[int, Contenders]:
    """How many operations it is, and what runs it and its gradients."""
    rank, channels = len(case.x) - 2, case.x[-1]
    layer: Any = getattr(nn, f"Conv{'Transpose' if case.transposed else ''}{rank}d")
    options: dict[str, Any] = {"stride": case.stride, "padding": case.padding}
    options |= {"dilation": case.dilation, "groups": case.groups}
    sizes = channels, case.features, case.kernel
    module = layer(*sizes, **options, bias=False, key=td.rng.key(0))
    module = nn.cast(module, dtype)
    x, w = tnp.asarray(normal(*case.x)).astype(dtype), module.weight

    @td.jit
    def forward(x: Any, w: Any) -> Any:
        return module.replace(weight=w)(x)

    @td.jit
    def by_input(x: Any, w: Any, ct: Any) -> Any:
        return td.vjp(lambda x: forward(x, w), x)[1](ct)[0]

    @td.jit
    def by_filter(x: Any, w: Any, ct: Any) -> Any:
        return td.vjp(lambda w: forward(x, w), w)[1](ct)[0]

    ct = tnp.asarray(normal(*forward(x, w).shape)).astype(dtype)
    wide = [np.array(a.astype("float32")) for a in (x, w, ct)]
    theirs = _torch_convolution(case, options, getattr(torch, dtype), *wide)
    ours = {
        "forward": lambda: forward(x, w),
        "by input": lambda: by_input(x, w, ct),
        "by filter": lambda: by_filter(x, w, ct),
    }
    # Each element of the denser grid meets every tap once.
    pixels = math.prod((x if case.transposed else ct).shape[:-1])
    flops = 2 * pixels * math.prod(w.shape[:-1]) * case.features
    return flops, {name: (ours[name], theirs[name]) for name in ours}


def _torch_convolution(
    case: Conv,
    options: dict[str, Any],
    dtype: torch.dtype,
    x: np.ndarray,
    w: np.ndarray,
    ct: np.ndarray,
) -> dict[str, Function]:
    rank = len(case.x) - 2
    name = f"conv{'_transpose' if case.transposed else ''}{rank}d"
    function = getattr(torch.nn.functional, name)
    last = {2: torch.channels_last, 3: torch.channels_last_3d}
    layout = last.get(rank, torch.contiguous_format)
    # PyTorch's own order of features and channels.
    order = (-2, -1) if case.transposed else (-1, -2)
    weight = torch.from_numpy(np.moveaxis(w, order, (0, 1)).copy())
    weight = weight.to(dtype).contiguous(memory_format=layout)
    image, gradient = (channels_first(a).to(dtype) for a in (x, ct))
    each = [[options[k]] * rank for k in ("stride", "padding", "dilation")]

    def backward(by_input: bool) -> object:
        which = [by_input, not by_input, False]
        how = (*each, case.transposed, [0] * rank, case.groups, which)
        return torch.ops.aten.convolution_backward(gradient, image, weight, None, *how)

    return {
        "forward": lambda: function(image, weight, **options),
        "by input": lambda: backward(True)[0],
        "by filter": lambda: backward(False)[1],
    }


class Map(NamedTuple):
    """A function of images without parameters, in both libraries."""

    title: str
    x: tuple[int, ...]
    ours: Callable[[Any], Any]
    theirs: Callable[[Any], Any]


F = torch.nn.functional
MAPS = [
    Map(
        "max pooling, 3 by 2",
        (8, 112, 112, 64),
        lambda x: nn.max_pool(x, 3, 2, 1),
        lambda x: F.max_pool2d(x, 3, 2, 1),
    ),
    Map(
        "max pooling, 2 by 2",
        (8, 64, 64, 64),
        lambda x: nn.max_pool(x, 2),
        lambda x: F.max_pool2d(x, 2),
    ),
    Map(
        "mean pooling, 2 by 2",
        (8, 64, 64, 64),
        lambda x: nn.avg_pool(x, 2),
        lambda x: F.avg_pool2d(x, 2),
    ),
    Map(
        "mean of pixels",
        (8, 14, 14, 512),
        nn.global_avg_pool,
        lambda x: F.adaptive_avg_pool2d(x, 1),
    ),
    Map(
        "means of 7 by 7 parts of 50 by 50",
        (2, 50, 50, 64),
        nn.AdaptiveAvgPool2d(7),
        lambda x: F.adaptive_avg_pool2d(x, 7),
    ),
    Map(
        "nearest, twice as large",
        (8, 32, 32, 64),
        nn.Upsample(2),
        lambda x: F.interpolate(x, scale_factor=2),
    ),
    Map(
        "bilinear, twice as large",
        (8, 32, 32, 64),
        nn.Upsample(2, mode="bilinear"),
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    ),
    Map(
        "pixel shuffle by 2",
        (8, 32, 32, 256),
        nn.PixelShuffle(2),
        lambda x: F.pixel_shuffle(x, 2),
    ),
]


def image_map(case: Map) -> tuple[int, Contenders]:
    """What runs a function, and it with its gradient."""
    x = tnp.asarray(normal(*case.x))
    forward = td.jit(case.ours)
    ct = tnp.asarray(normal(*forward(x).shape))

    @td.jit
    def backward(x: Any, ct: Any) -> Any:
        return td.vjp(case.ours, x)[1](ct)[0]

    image = channels_first(np.array(x))
    image = image.contiguous(memory_format=torch.channels_last)
    tracked = image.clone().requires_grad_()
    gradient = channels_first(np.array(ct))

    def theirs() -> object:
        with torch.enable_grad():
            result = case.theirs(tracked)
            return torch.autograd.grad(result, tracked, gradient.reshape(result.shape))[
                0
            ]

    return 0, {
        "forward": (lambda: forward(x), lambda: case.theirs(image)),
        "by input": (lambda: backward(x, ct), theirs),
    }


def milliseconds(pair: tuple[Function, Function], rounds: int) -> list[float]:
    """The median of both contenders' calls, which take turns."""
    found: list[list[float]] = [[], []]
    clock = time.process_time
    for _ in range(rounds):
        for run, times in zip(pair, found, strict=True):
            run()  # what the other has left in the caches
            stop = clock() + SLICE
            while True:
                start = clock()
                run()
                times.append(clock() - start)
                if clock() >= stop:
                    break
    return [1e3 * statistics.median(times) for times in found]


def agree(name: str, pair: tuple[Function, Function], transposed: bool) -> None:
    """Raise if the two results differ by more than roundings do."""
    found = np.asarray(pair[0]())
    epsilon = 2e-5 if found.dtype == np.float32 else 2e-2
    ours, theirs = found.astype(np.float32), pair[1]().float().numpy()
    if name == "by filter":
        order = (-2, -1) if transposed else (-1, -2)
        theirs = np.moveaxis(theirs, (0, 1), order)
    else:
        theirs = np.moveaxis(theirs, 1, -1)
    scale = np.abs(ours).max()
    np.testing.assert_allclose(ours, theirs.reshape(ours.shape), atol=epsilon * scale)


def main(rounds: int, part: str, dtype: str) -> None:
    """Print a table of all whose name has the part."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    rate = machine.flops_per_second(1, time.process_time)
    print(f"{rate / 1e9:.0f} GFLOP/s on one core\n")
    print("| what | of | which | treadle ms | torch ms | ratio | over the limit |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for case in (*CONVOLUTIONS, *MAPS):
        is_map = isinstance(case, Map)
        flops, pairs = image_map(case) if is_map else convolution(case, dtype)
        for name, pair in pairs.items():
            if part not in f"{case.title} {name}":
                continue
            agree(name, pair, getattr(case, "transposed", False))
            ours, theirs = milliseconds(pair, rounds)
            over = f"{ours * rate / flops / 1e3:.2f}" if flops else ""
            sizes = "x".join(map(str, case.x))
            print(
                f"| {case.title} | {sizes} | {name} | {ours:.3g} | {theirs:.3g} "
                f"| {theirs / ours:.2f} | {over} |",
                flush=True,
            )


if __name__ == "__main__":
    rounds, part, dtype = [*sys.argv[1:], *("6", "", "float32")[len(sys.argv) - 1 :]]
    main(int(rounds), part, dtype)
