"""What is compiled when the library is installed: `python -m treadle.install`.

Kernels that many programs have, such as products, random numbers, and what layers and
losses are made of, lie beside the code then, and no first call waits for them.
Where that fails, or on another machine, they are compiled when they are needed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import treadle as td
from treadle import models, nn, optim, rng
from treadle.backends import devices, installed

_ABOUT = """Compile, for this CPU, kernels that many programs have, and keep them \
beside the library's code. `pip install` does so; do it again on another CPU, after an \
edit of the library, or for another llvmlite: they are not found there any more."""

WIDTH = 200
"""Of rows, none of which is whole vectors: such kernels do for those that are, too."""


def draw() -> None:
    """Random numbers as models are made of them."""
    shape = 5, WIDTH
    first, second = rng.split(rng.key(0))
    rng.normal(first, shape)
    rng.truncated_normal(first, -2, 2, shape)
    rng.uniform(second, shape)
    rng.bernoulli(rng.fold_in(second, 1), 0.5, shape)


def classify() -> None:
    """A perceptron, with few classes."""
    for examples, width in (32, 20), (64, WIDTH):
        model = nn.MLP((width, width, width, 10), key=rng.key(0))
        x = np.ones((examples, width), np.float32)
        _train(model, optim.adamw(1e-3), x, (examples,))


def read() -> None:
    """A language model with attention."""
    model = models.GPT2(WIDTH + 20, WIDTH, 2, 4, key=rng.key(0))
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(1e-3))
    _train(model, optimizer, np.ones((4, 40), np.int32), (4, 40))


def remember() -> None:
    """A recurrent one."""
    model = models.LSTMLM(WIDTH + 20, WIDTH, 1, key=rng.key(0))
    _train(model, optim.adam(1e-3), np.ones((4, 40), np.int32), (4, 40))


def see() -> None:
    """One of images."""
    model = models.ResNet((32, 64), (1, 1), 10, block="basic", key=rng.key(0))
    optimizer = optim.sgd(1e-1, momentum=0.9)
    _train(model, optimizer, np.ones((4, 48, 48, 3), np.float32), (4,))


PROGRAMS = (draw, classify, read, remember, see)


def _train(
    model: nn.Module, optimizer: optim.Transform, x: Any, labels: tuple[int, ...]
) -> None:
    """A step of training: the loss, its derivative, and an update."""

    def loss(model: Any, x: Any, labels: Any) -> Any:
        logits, after = nn.stateful(model, key=rng.key(0))(x)
        return nn.cross_entropy(logits, labels).mean(), after

    @td.jit
    def step(model: Any, state: Any, x: Any, labels: Any) -> Any:
        ask = td.value_and_grad(loss, has_aux=True)
        (value, model), grads = ask(model, x, labels)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state, value

    step(model, optimizer.init(model), x, np.zeros(labels, np.int32))


def build(folder: Path, programs: Sequence[Callable[[], None]] = PROGRAMS) -> str:
    """Compiles, and tells what was made."""
    start = time.perf_counter()
    path = devices.install(folder, programs)
    seconds, size = time.perf_counter() - start, path.stat().st_size
    return f"compiled kernels ({size / 1e6:.1f} MB, {seconds:.1f} s): {path}"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="treadle kernels", description=_ABOUT)
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path(installed.FOLDER),
        help="where to, if not beside the library's code",
    )
    try:
        print(build(parser.parse_args(argv).folder))
    except (OSError, RuntimeError, ValueError) as error:
        print(f"treadle: no kernels are installed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
