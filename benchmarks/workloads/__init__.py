"""The training steps that are compared. One module a workload.

Each module has `weights(seed)` and `batch(seed)` (NumPy), `flops()` (contractions of
one training step) and the builders `jax_step`, `torch_step` and `treadle_step`, which
take the weights and the batch and return a step with `.step()`, which trains once and
gives the loss, and `.compile_ms()` where the library compiles.

Weights are named by their path in the model and stored in the layout that PyTorch and
Equinox share: linear (out, in), convolution (out, in, height, width).
"""

import importlib
from types import ModuleType

NAMES = ("mlp", "cnn", "gpt-small", "gpt-medium", "lstm")
PEERS = ("treadle", "jax", "torch")


def load(name: str) -> ModuleType:
    """The module of the workload `name`."""
    if name not in NAMES:
        raise ValueError(f"no workload {name!r}; choose from {', '.join(NAMES)}")
    return importlib.import_module(f"workloads.{name.replace('-', '_')}")


def build(name: str, peer: str, seed: int = 0):
    """A fresh training step of the workload `name` in the library `peer`."""
    workload = load(name)
    builder = getattr(workload, f"{peer}_step")
    return builder(workload.weights(seed), workload.batch(seed))
