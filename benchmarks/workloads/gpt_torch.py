"""The GPT workloads in PyTorch."""

from peers import torch_peer
from torch import nn
from torch.nn import functional as F

from workloads.gpt import Workload


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, width, heads):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.heads = heads

    def forward(self, x):
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (
            part.view(shape).transpose(1, 2) for part in self.qkv(x).split(width, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """One pre-LN transformer block."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.shrink = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        hidden = F.gelu(self.expand(self.norm2(x)), approximate="tanh")
        return x + self.shrink(hidden)


class GPT(nn.Module):
    """Tokens (batch, length) to logits (batch, length, vocabulary)."""

    def __init__(self, sizes: Workload):
        super().__init__()
        d = sizes.width
        self.tokens = nn.Embedding(sizes.vocabulary, d)
        self.positions = nn.Embedding(sizes.length, d)
        self.blocks = nn.ModuleList(Block(d, sizes.heads) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, sizes.vocabulary)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def build(sizes: Workload, weights, batch) -> torch_peer.TrainStep:
    """The training step from `weights`."""
    return torch_peer.TrainStep(torch_peer.fill(GPT(sizes), weights), batch)
