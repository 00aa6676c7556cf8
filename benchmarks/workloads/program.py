"""A workload that is written once, in a vocabulary that each peer has.

A program's `loss` takes the peer's functions (`peers/array_functions.py` and
`peers/torch_functions.py`), its parameters and a batch. Arrays are channels last.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from workloads import initial

Batch = tuple[np.ndarray, ...]


class Params:
    """The parameters under a path."""

    def __init__(self, arrays: dict[str, Any], prefix: str = "") -> None:
        self.arrays, self.prefix = arrays, prefix

    def __getitem__(self, name: str) -> "Params":
        """Those of a part."""
        return Params(self.arrays, f"{self.prefix}{name}.")

    def array(self, name: str) -> Any:
        """One of them."""
        return self.arrays[self.prefix + name]

    def find(self, name: str) -> Any | None:
        """One of them, if there is such."""
        return self.arrays.get(self.prefix + name)


@dataclass(frozen=True)
class Program:
    """A workload: fields are its sizes."""

    dtype: str = "float32"
    """In which it computes; parameters and optimizer stay float32."""
    trains: bool = True
    """Whether a step is loss, gradient and update; else `loss` is any function."""
    repeat: int = 1
    """How often a step that doesn't train calls the function."""

    def drawn(self, rng: np.random.Generator) -> initial.Weights:
        """The weights, in the layout of `initial`."""
        raise NotImplementedError

    def examples(self, rng: np.random.Generator) -> Batch:
        """A batch."""
        raise NotImplementedError

    def loss(self, F: Any, p: Params, *batch: Any) -> Any:
        """What a step minimises, or computes."""
        raise NotImplementedError

    def weights(self, seed: int) -> initial.Weights:
        """Initial weights by path."""
        return self.drawn(np.random.default_rng(seed))

    def batch(self, seed: int) -> Batch:
        """What a step takes."""
        return self.examples(np.random.default_rng(seed + 1))

    def bound(self, F: Any) -> Any:
        """The loss as a function of a dictionary of parameters and the batch."""

        def loss(arrays: dict[str, Any], *batch: Any) -> Any:
            if self.dtype != "float32":
                arrays = {name: F.cast(x, self.dtype) for name, x in arrays.items()}
            return self.loss(F, Params(arrays), *batch)

        return loss

    def flops(self) -> int:
        """Arithmetic of the contractions of one step."""
        from peers import jax_flops

        return jax_flops.count(self)

    def jax_step(self, weights: initial.Weights, batch: Batch) -> Any:
        """jax.numpy and Optax."""
        from peers import jax_peer

        return jax_peer.build(self, weights, batch)

    def torch_step(self, weights: initial.Weights, batch: Batch) -> Any:
        """PyTorch."""
        from peers import torch_peer

        return torch_peer.build(self, weights, batch)

    def treadle_step(self, weights: initial.Weights, batch: Batch) -> Any:
        """Treadle."""
        from peers import treadle_peer

        return treadle_peer.build(self, weights, batch)
