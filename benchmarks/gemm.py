"""Times the matrix and convolution kernels against PyTorch's, on two threads or more.

Run from the repository: `python -m benchmarks.gemm [ROUNDS]`. Contenders take turns in
one process; every figure is the median (and, in parentheses, the best tenth) of single
calls, in GFLOP/s. Results go to memory that exists already.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from tests.core.backends.cpu import contract_call as calls
from treadle.backends.cpu.run import threads
from treadle.kernels.contract import Strides

PRODUCTS = [  # batch, m, k, n, which operands are transposed, what it is
    (1, 128, 784, 512, "", "MLP layer"),
    (1, 784, 128, 512, "A", "its weights' gradient"),
    (1, 128, 512, 784, "B", "its input's gradient"),
    (1, 128, 512, 10, "", "logits"),
    (1, 512, 128, 10, "A", "their weights' gradient"),
    (1, 128, 10, 512, "B", "their input's gradient"),
    (1, 10, 128, 512, "A", "few rows"),
    (1, 1, 784, 512, "", "one row"),
    (1, 32, 160, 512, "", "LSTM step"),
    (1, 64, 64, 64, "", "small"),
    (1, 2048, 128, 384, "", "GPT: q, k, v"),
    (1, 2048, 256, 1024, "", "GPT: MLP"),
    (64, 128, 32, 128, "B", "attention scores"),
    (64, 128, 128, 32, "", "attention values"),
    (1, 512, 512, 512, "", "square"),
    (1, 1024, 1024, 1024, "", "square"),
    (1, 127, 131, 129, "", "odd"),
    (1, 256, 2048, 1024, "A", "long k"),
]
CONVOLUTIONS = [  # images, size, channels, features; 3x3, same
    (64, 28, 1, 32),
    (64, 14, 32, 64),
    (64, 28, 32, 64),
    (64, 7, 64, 128),
    (64, 8, 1, 32),
    (64, 8, 32, 64),
]
Contenders = dict[str, Callable[[], object]]


def times(contenders: Contenders, rounds: int) -> dict[str, tuple[float, float]]:
    """Median and best tenth of each contender's calls, in seconds."""
    clock = time.perf_counter
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            time.sleep(0.04)  # threads of the one before stop spinning
            end = clock() + 0.01
            while clock() < end:
                run()
            end = clock() + 0.03
            while clock() < end:
                start = clock()
                run()
                found[name].append(clock() - start)
    return {
        name: (statistics.median(each), sorted(each)[len(each) // 10])
        for name, each in found.items()
    }


def report(title: str, flops: float, contenders: Contenders, rounds: int) -> None:
    line = f"{title:42}"
    for name, (median, best) in times(contenders, rounds).items():
        speed, fastest = flops / median / 1e9, flops / best / 1e9
        line += f" {name} {speed:6.1f} ({fastest:5.1f})"
    print(line, flush=True)


def operand(shape: tuple[int, int, int], transposed: bool) -> np.ndarray:
    batch, rows, columns = shape
    if transposed:
        return operand((batch, columns, rows), False).swapaxes(1, 2)
    return np.random.default_rng(0).standard_normal(shape, "float32")


def products(rounds: int) -> None:
    for batch, m, k, n, transposed, what in PRODUCTS:
        a = operand((batch, m, k), "A" in transposed)
        b = operand((batch, k, n), "B" in transposed)
        c = np.empty((batch, m, n), "float32")
        count = threads.num_threads()
        ours = calls.product(c[None], a[None], b[None], num_threads=count).parallel()
        if batch == 1:
            a, b, c = a[0], b[0], c[0]
        ta, tb, tc = (torch.from_numpy(array) for array in (a, b, np.empty_like(c)))
        multiply = torch.mm if batch == 1 else torch.bmm

        def theirs(f=multiply, a=ta, b=tb, c=tc) -> object:
            return f(a, b, out=c)

        size = f"{batch}x({m},{k},{n}){transposed}"
        flops = 2 * batch * m * k * n
        report(f"{size:22} {what}", flops, {"ours": ours, "torch": theirs}, rounds)


def convolutions(rounds: int) -> None:
    for images, size, channels, features in CONVOLUTIONS:
        rng = np.random.default_rng(0)
        image = rng.standard_normal((images, size, size, channels), "float32")
        weights = rng.standard_normal((3, 3, channels, features), "float32")
        output = np.empty((images, size, size, features), "float32")
        image_gradient, filter_gradient = np.empty_like(image), np.empty_like(weights)
        axis = {"padding": 1}
        spec = calls.conv_spec(output, image, weights, axis, axis)
        target = calls.strides(image)
        backward, offset = calls.input_gradient(
            spec, calls.strides(output), Strides(target.b0, 0, target.row, 1)
        )
        count = {"num_threads": threads.num_threads()}
        ours = {
            "forward": calls.convolution(spec, output, image, weights, **count),
            "input gradient": calls.convolution(
                backward, image_gradient, output, weights, filter_offset=offset, **count
            ),
            "filter gradient": calls.filter_gradient(
                spec, filter_gradient, image, output, **count
            ),
        }
        theirs = _torch_convolution(image, weights, output)
        flops = 2 * images * size * size * 9 * channels * features
        title = f"{images}x{size}x{size}x{channels} -> {features}"
        for what, call in ours.items():
            pair = {"ours": call.parallel(), "torch": theirs[what]}
            report(f"{title:22} {what}", flops, pair, rounds)


def _torch_convolution(
    image: np.ndarray, weights: np.ndarray, gradient: np.ndarray
) -> Contenders:
    """The same three, channels last, which is PyTorch's fastest."""
    last = torch.channels_last
    x = torch.from_numpy(image).permute(0, 3, 1, 2).contiguous(memory_format=last)
    w = torch.from_numpy(weights).permute(3, 2, 0, 1).contiguous(memory_format=last)
    ct = torch.from_numpy(gradient).permute(0, 3, 1, 2)
    one = [1, 1]

    def backward(by_input: bool) -> object:
        which = [by_input, not by_input, False]
        return torch.ops.aten.convolution_backward(
            ct, x, w, None, one, one, one, False, [0, 0], 1, which
        )

    return {
        "forward": lambda: torch.nn.functional.conv2d(x, w, padding=1),
        "input gradient": lambda: backward(True),
        "filter gradient": lambda: backward(False),
    }


def main(rounds: int = 6) -> None:
    torch.set_num_threads(threads.num_threads())
    torch.set_grad_enabled(False)
    products(rounds)
    convolutions(rounds)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
