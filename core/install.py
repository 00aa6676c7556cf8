"""What is compiled when the library is installed: `python -m treadle.install`.

Kernels that most programs have, such as products and random numbers, lie beside the
library's code then, and no first call waits for them. Where that fails, or on another
machine, they are compiled when they are needed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import treadle as td
from treadle import nn, optim, rng
from treadle.backends import devices, installed

_ABOUT = """Compile, for this CPU, the kernels that most programs have, and keep them \
beside the library's code. `pip install` does so; do it again on another CPU, and after \
an edit or another version of llvmlite, where they are not found any more."""


def _draw(dtype: type = np.float32) -> None:
    """Random numbers as models are made of them, in whole vectors and in others."""
    for shape in (64, 64), (5, 7):
        first, second = rng.split(rng.key(0))
        rng.normal(first, shape, dtype)
        rng.truncated_normal(first, -2, 2, shape, dtype)
        rng.uniform(second, shape, dtype)
        rng.bernoulli(rng.fold_in(second, 1), 0.5, shape)


def _classify() -> None:
    """A step of training, of few examples as of many: a loss and its derivative, sums
    of rows, an optimizer's update."""
    optimizer = optim.adamw(1e-3)

    @td.jit
    def step(model: nn.MLP, state: Any, x: Any, labels: Any) -> Any:
        def loss(model: nn.MLP) -> Any:
            return nn.cross_entropy(model(x), labels).mean()

        value, grads = td.value_and_grad(loss)(model)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state, value

    for examples, width, classes in (32, 20, 10), (64, 256, 10):
        model = nn.MLP((width, width, classes), key=rng.key(0))
        x = np.ones((examples, width), np.float32)
        step(model, optimizer.init(model), x, np.zeros(examples, np.int32))


PROGRAMS = (_draw, _classify)


def build(folder: Path) -> str:
    """Compiles, and tells what was made."""
    start = time.perf_counter()
    path = devices.install(folder, PROGRAMS)
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
    except (OSError, RuntimeError) as error:
        print(f"treadle: no kernels are installed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
