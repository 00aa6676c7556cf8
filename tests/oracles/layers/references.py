"""What layers are compared with: modules of PyTorch, and functions of JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import torch

Arrays = Mapping[str, np.ndarray]


class Results(NamedTuple):
    """What a reference computes of inputs.

    inputs, weights: the gradients of ``(output * scores).sum()``, for each input (None
      for integers) and for each weight by name.
    state: all weights and buffers afterwards.
    """

    output: np.ndarray
    inputs: list[np.ndarray | None]
    weights: Arrays
    state: Arrays


class Reference(Protocol):
    """A layer that somebody else wrote."""

    def state(self) -> Arrays:
        """Its weights and buffers by name."""
        ...

    def run(
        self, inputs: Sequence[np.ndarray], scores: Callable[..., np.ndarray]
    ) -> Results: ...

    def inference(self) -> None:
        """From now on it is run as after training."""
        ...


@dataclass
class Torch:
    """A module of PyTorch; `call` says how, if not with the inputs alone."""

    module: torch.nn.Module
    call: Callable[..., Any] | None = None

    def state(self) -> Arrays:
        return {
            k: v.detach().numpy().copy() for k, v in self.module.state_dict().items()
        }

    def run(
        self, inputs: Sequence[np.ndarray], scores: Callable[..., np.ndarray]
    ) -> Results:
        given = [torch.tensor(x) for x in inputs]
        for x in given:
            if x.is_floating_point():
                x.requires_grad_()
        self.module.zero_grad()
        call = self.call or (lambda module, *xs: module(*xs))
        output = call(self.module, *given)
        (output * torch.tensor(scores(*output.shape))).sum().backward()
        return Results(
            output.detach().numpy(),
            [None if x.grad is None else x.grad.numpy() for x in given],
            {
                name: (torch.zeros_like(p) if p.grad is None else p.grad).numpy()
                for name, p in self.module.named_parameters()
            },
            self.state(),
        )

    def inference(self) -> None:
        self.module.eval()


@dataclass
class Formula:
    """A function of weights (by name) and inputs, written in JAX."""

    function: Callable[..., Any]
    weights: Arrays

    def state(self) -> Arrays:
        return self.weights

    def run(
        self, inputs: Sequence[np.ndarray], scores: Callable[..., np.ndarray]
    ) -> Results:
        moving = [i for i, x in enumerate(inputs) if x.dtype.kind == "f"]

        def loss(weights: Any, *floats: Any) -> Any:
            given: list[Any] = list(inputs)
            for i, x in zip(moving, floats, strict=True):
                given[i] = x
            output = self.function(weights, *given)
            return (output * scores(*output.shape)).sum(), output

        places = tuple(range(len(moving) + 1))
        floats = [jnp.asarray(inputs[i]) for i in moving]
        (_, output), grads = jax.jit(jax.value_and_grad(loss, places, has_aux=True))(
            dict(self.weights), *floats
        )
        of_inputs: list[np.ndarray | None] = [None] * len(inputs)
        for i, grad in zip(moving, grads[1:], strict=True):
            of_inputs[i] = np.asarray(grad)
        weights = {name: np.asarray(g) for name, g in grads[0].items()}
        return Results(np.asarray(output), of_inputs, weights, self.weights)

    def inference(self) -> None:
        pass
