"""The training steps that are compared: modules, and the GPTs of several sizes.

Each workload has `weights(seed)` and `batch(seed)` (NumPy), `flops()` (contractions of
one training step) and the builders `jax_step`, `torch_step` and `treadle_step`, which
take the weights and the batch and return a step with `.step()`, which trains once and
gives the loss, and `.compile_ms()` where the library compiles.

Weights are named by their path in the model and stored in the layout that PyTorch and
Equinox share: linear (out, in), convolution (out, in, height, width).
"""

from types import ModuleType

from workloads import attention, cnn, lstm, mlp
from workloads.gpt import Workload

WORKLOADS: dict[str, ModuleType | Workload] = {
    "mlp": mlp,
    "cnn": cnn,
    "gpt-small": Workload(layers=4, width=128, heads=4, length=128, batch_size=16),
    "gpt-medium": Workload(layers=6, width=256, heads=8, length=256, batch_size=8),
    "lstm": lstm,
}
NAMES = tuple(WORKLOADS)
OTHERS: dict[str, ModuleType | Workload] = {"attention": attention}
"""Those that only some peers have, for benchmarks of their own."""
PEERS = ("treadle", "jax", "torch")


def load(name: str) -> ModuleType | Workload:
    """The workload `name`."""
    known = WORKLOADS | OTHERS
    if name not in known:
        raise ValueError(f"no workload {name!r}; choose from {', '.join(known)}")
    return known[name]


def build(name: str, peer: str, seed: int = 0):
    """A fresh training step of the workload `name` in the library `peer`."""
    workload = load(name)
    builder = getattr(workload, f"{peer}_step")
    return builder(workload.weights(seed), workload.batch(seed))
