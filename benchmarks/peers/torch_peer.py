"""PyTorch, eager."""

import numpy as np
import torch
from torch.nn import functional as F

from peers import LEARNING_RATE, WEIGHT_DECAY

THREADS = 2


def fill(model: torch.nn.Module, weights: dict[str, np.ndarray]) -> torch.nn.Module:
    """`model` holding `weights`."""
    model.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})
    return model


class TrainStep:
    """One eager step. `fused=True` is PyTorch's fastest AdamW on a CPU."""

    def __init__(self, model: torch.nn.Module, batch):
        torch.set_num_threads(THREADS)
        self.model = model
        self.x, self.y = (torch.from_numpy(array) for array in batch)
        parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            parameters, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True
        )

    def step(self) -> torch.Tensor:
        """Train once; the loss."""
        self.optimizer.zero_grad()
        logits = self.model(self.x)
        loss = F.cross_entropy(logits.flatten(0, -2), self.y.flatten())
        loss.backward()
        self.optimizer.step()
        return loss.detach()
