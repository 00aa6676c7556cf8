"""Calls matrix and convolution kernels on NumPy arrays, for tests and benchmarks."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from treadle.backends.cpu.conv import depthwise, depthwise_schedule, filter_schedule
from treadle.backends.cpu.conv import schedule as conv_schedule
from treadle.backends.cpu.gemm import kernel as gemm
from treadle.backends.cpu.gemm.arguments import Scheduled, Tile, Word
from treadle.backends.cpu.gemm.schedule import schedule
from treadle.backends.cpu.run import native, threads
from treadle.kernels.contract import Contraction, Strides
from treadle.kernels.convolve import Axis, ConvSpec

KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_INDICES = [ctypes.c_int64] * 6
EPILOGUE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *_INDICES)
PRODUCER = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, *_INDICES, ctypes.c_void_p, ctypes.c_int64
)


def strides(array: np.ndarray) -> Strides:
    """Of four dimensions, in elements."""
    return Strides(*(step // array.itemsize for step in array.strides))


def kernel(dtype: np.dtype, images: bool) -> int:
    return _address(gemm.source(dtype, gemm.Images.ALL if images else gemm.Part.ANY))


def _address(source: native.Source) -> int:
    return native.load([source])[source.key]


class Call:
    """Launches with their arguments filled in. `hooks` are words to set, by word."""

    def __init__(
        self,
        launches: tuple[Scheduled, ...],
        pointers: dict[Word, np.ndarray],
        hooks: dict[Word, int] | None = None,
        address: int | None = None,
        offsets: dict[Word, int] | None = None,
    ) -> None:
        dtype = next(iter(pointers.values())).dtype
        self.launches = launches
        self.address = address or kernel(dtype, images=True)
        self._keep = pointers
        shared = max(launch.scratch_bytes for launch in launches) + 64
        stride = max(launch.own_bytes for launch in launches)
        slots = threads.pool().num_threads
        # Bytes of ones are NaNs: what a kernel reads before writing it shows.
        self._scratch = np.full(shared + slots * stride + 128, 255, np.uint8)
        start = -(-self._scratch.ctypes.data // 64) * 64
        self.words = []
        for launch in launches:
            words = np.array(launch.words, np.int64)
            for slot, array in pointers.items():
                offset = (offsets or {}).get(slot, 0)
                words[slot] = array.ctypes.data + offset * array.itemsize
            words[Word.SCRATCH] = start
            words[Word.OWN] = start + -(-shared // 64) * 64
            words[Word.OWN_STRIDE] = stride
            for slot, value in (hooks or {}).items():
                words[slot] = value
            self.words.append(words)

    def serial(self) -> None:
        run = KERNEL(self.address)
        for launch, words in zip(self.launches, self.words, strict=True):
            for task in reversed(range(launch.tasks)):
                run(words.ctypes.data, task, 0)

    def parallel(self) -> Callable[[], None]:
        """A function that runs the call on the thread pool."""
        pool = threads.pool()
        kinds = (*[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int64)
        most = pool.num_threads
        fork_join = ctypes.CFUNCTYPE(None, *kinds)(pool.fork_join)
        jobs = [
            (words.ctypes.data, launch.tasks)
            for launch, words in zip(self.launches, self.words, strict=True)
        ]

        def run(_keep: Any = self) -> None:
            for words, tasks in jobs:
                fork_join(pool.address, self.address, words, tasks, most)

        return run


def product(
    c: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    *,
    num_threads: int = 1,
    hooks: dict[Word, int] | None = None,
    address: int | None = None,
    tile: Tile | None = None,
    **options: Any,
) -> Call:
    """c[b0, b1] = a[b0, b1] @ b[b0, b1], broadcasting a and b; arrays are 4-D views."""
    b0, b1, m, n = c.shape
    k = a.shape[3]
    a = np.broadcast_to(a, (b0, b1, m, k))
    b = np.broadcast_to(b, (b0, b1, k, n))
    contraction = Contraction(
        c.dtype, m, n, k, strides(a), strides(b), strides(c), b0, b1, **options
    )
    launch = schedule(contraction, tile or gemm.tile(c.dtype), num_threads)
    pointers = {Word.A: a, Word.B: b, Word.C: c}
    address = address or kernel(c.dtype, images=False)
    return Call((launch,), pointers, hooks, address)


def conv_spec(
    output: np.ndarray,
    image: np.ndarray,
    weights: np.ndarray,
    y: dict[str, int],
    x: dict[str, int],
    **options: Any,
) -> ConvSpec:
    """Of NHWC and HWIO arrays; y and x are options of the axes."""
    _, out_y, out_x, _ = output.shape
    images, size_y, size_x, channels = image.shape
    taps_y, taps_x, _, features = weights.shape
    return ConvSpec(
        output.dtype,
        images,
        channels,
        features,
        Axis(size_y, out_y, taps_y, **y),
        Axis(size_x, out_x, taps_x, **x),
        strides(image),
        strides(weights),
        strides(output),
        **options,
    )


def convolution(
    spec: ConvSpec,
    output: np.ndarray,
    image: np.ndarray,
    weights: np.ndarray,
    *,
    num_threads: int = 1,
    hooks: dict[Word, int] | None = None,
    filter_offset: int = 0,
    schedule: Any = conv_schedule.schedule,
) -> Call:
    """schedule: makes the launch; of tiles, say."""
    launch = schedule(spec, gemm.tile(spec.dtype), num_threads)
    pointers = {Word.A: image, Word.B: weights, Word.C: output}
    return Call((launch,), pointers, hooks, offsets={Word.B: filter_offset})


def filter_gradient(
    spec: ConvSpec,
    result: np.ndarray,
    image: np.ndarray,
    gradient: np.ndarray,
    *,
    num_threads: int = 1,
    hooks: dict[Word, int] | None = None,
    schedule: Any = filter_schedule.schedule,
) -> Call:
    launches = schedule(spec, gemm.tile(spec.dtype), num_threads)
    pointers = {Word.A: image, Word.B: gradient, Word.C: result}
    return Call(launches, pointers, hooks)


def channelwise(
    spec: ConvSpec,
    result: np.ndarray,
    image: np.ndarray,
    other: np.ndarray,
    *,
    gradient: bool = False,
    num_threads: int = 1,
    hooks: dict[Word, int] | None = None,
    filter_offset: int = 0,
) -> Call:
    """A depthwise convolution, or its gradient by the filter: `other` is the filter, or
    the derivative by the output."""
    tile = gemm.tile(spec.sums)
    launches = depthwise_schedule.schedule(spec, tile, num_threads, gradient)
    pointers = {Word.A: image, Word.B: other, Word.C: result}
    address = _address(depthwise.source(spec))
    return Call(launches, pointers, hooks, address, {Word.B: filter_offset})


def transposed(axis: Axis) -> Axis:
    """The axis of the gradient by the input."""
    reach = (axis.taps - 1) * axis.dilation
    return Axis(
        size=axis.out,
        out=axis.size,
        taps=axis.taps,
        stride=axis.in_dilation,
        padding=reach - axis.padding,
        in_dilation=axis.stride,
        dilation=axis.dilation,
    )


def input_gradient(
    spec: ConvSpec, gradient: Strides, target: Strides
) -> tuple[ConvSpec, int]:
    """The convolution (of one group) that gives the derivative by the input, and the
    offset of the filter's last tap, from which it reads backwards.

    gradient: strides b, y, x, f of the derivative by the output.
    target: strides b, (unused), pixel, 1 of the result.
    """
    w = spec.filter
    backward = replace(
        spec,
        channels=spec.features,
        features=spec.channels,
        y=transposed(spec.y),
        x=transposed(spec.x),
        input=gradient,
        filter=Strides(-w.b0, -w.b1, w.column, w.row),
        output=target,
        fused_input=False,
    )
    return backward, (spec.y.taps - 1) * w.b0 + (spec.x.taps - 1) * w.b1
