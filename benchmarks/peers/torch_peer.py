"""PyTorch, eager or compiled."""

import os

import numpy as np
import torch
from torch.nn import functional as F
from workloads import initial

from peers import LEARNING_RATE, WEIGHT_DECAY, after_two_steps, torch_functions

THREADS = len(os.sched_getaffinity(0))


def fill(model: torch.nn.Module, weights: dict[str, np.ndarray]) -> torch.nn.Module:
    """`model` holding `weights`."""
    model.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})
    return model


def placed(value: np.ndarray) -> torch.Tensor:
    """A tensor of its own; filters channels last."""
    tensor = torch.tensor(value)
    if tensor.ndim != 4:
        return tensor
    return tensor.to(memory_format=torch.channels_last)


def build(program, weights: initial.Weights, batch):
    """The step of a program of `workloads`."""
    params = {name: placed(value) for name, value in weights.items()}
    loss = program.bound(torch_functions)
    batch = tuple(
        torch_functions.cast(torch.from_numpy(x), program.dtype) for x in batch
    )
    if not program.trains:
        return CallStep(loss, (params, *batch), program.repeat)
    for value in params.values():
        value.requires_grad_()
    return LossStep(list(params.values()), loss, (params, *batch))


class LossStep:
    """One step that lessens `loss(*arguments)`. `fused=True` is PyTorch's fastest AdamW
    on a CPU."""

    def __init__(self, parameters, loss, arguments):
        torch.set_num_threads(THREADS)
        self.loss, self.arguments = loss, arguments
        self.optimizer = torch.optim.AdamW(
            parameters, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True
        )

    def compile(self) -> None:
        """Let `torch.compile` make the loss and its gradient."""
        self.loss = torch.compile(self.loss)

    def compile_ms(self) -> float:
        """Milliseconds until steps take their time."""
        return after_two_steps(self)

    def step(self) -> torch.Tensor:
        """Train once; the loss."""
        self.optimizer.zero_grad()
        loss = self.loss(*self.arguments)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class TrainStep(LossStep):
    """The same for a model that maps a batch to logits."""

    def __init__(self, model: torch.nn.Module, batch):
        def loss(x, y):
            return F.cross_entropy(model(x).flatten(0, -2), y.flatten())

        parameters = [p for p in model.parameters() if p.requires_grad]
        super().__init__(parameters, loss, [torch.from_numpy(x) for x in batch])


class CallStep:
    """Calls of a function without gradients, one after the other."""

    def __init__(self, function, arguments, repeat: int):
        torch.set_num_threads(THREADS)
        self.function, self.arguments, self.repeat = function, arguments, repeat

    def compile(self) -> None:
        """Let `torch.compile` make the function."""
        self.function = torch.compile(self.function)

    def compile_ms(self) -> float:
        """Milliseconds until calls take their time."""
        return after_two_steps(self)

    @torch.inference_mode()
    def results(self) -> list[np.ndarray]:
        """All that the function gives."""
        found = self.function(*self.arguments)
        found = found if isinstance(found, list) else [found]
        return [x.float().numpy() for x in found]

    @torch.inference_mode()
    def step(self) -> float:
        """Call as often as asked for; the first element of what the last one gave."""
        for _ in range(self.repeat):
            found = self.function(*self.arguments)
        found = found[0] if isinstance(found, list) else found
        return found.flatten()[0].item()
