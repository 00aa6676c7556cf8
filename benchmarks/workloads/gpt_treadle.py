"""The GPT workloads in Treadle."""

from peers import treadle_peer

import treadle.numpy as tnp
from treadle import nn, rng
from workloads.gpt import Workload


class Block(nn.Module):
    """One pre-LN transformer block."""

    norm1: nn.LayerNorm
    attention: nn.MultiHeadAttention
    norm2: nn.LayerNorm
    expand: nn.Linear
    shrink: nn.Linear

    def __init__(self, width, heads, *, key):
        k1, k2, k3 = rng.split(key, 3)
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.MultiHeadAttention(width, heads, key=k1)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width, key=k2)
        self.shrink = nn.Linear(4 * width, width, key=k3)

    def __call__(self, x):
        x = x + self.attention(self.norm1(x), causal=True)
        return x + self.shrink(nn.gelu(self.expand(self.norm2(x))))


class GPT(nn.Module):
    """Tokens (*batch, length) to logits (*batch, length, vocabulary)."""

    tokens: nn.Embedding
    positions: nn.Embedding
    blocks: list[Block]
    norm: nn.LayerNorm
    head: nn.Linear

    def __init__(self, sizes: Workload, *, key):
        k1, k2, k3, *keys = rng.split(key, 3 + sizes.layers)
        d = sizes.width
        self.tokens = nn.Embedding(sizes.vocabulary, d, key=k1)
        self.positions = nn.Embedding(sizes.length, d, key=k2)
        self.blocks = [Block(d, sizes.heads, key=k) for k in keys]
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, sizes.vocabulary, key=k3)

    def __call__(self, tokens):
        x = self.tokens(tokens) + self.positions(tnp.arange(tokens.shape[-1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def build(sizes: Workload, weights, batch) -> treadle_peer.TrainStep:
    """The training step from `weights`."""
    model = treadle_peer.fill(GPT(sizes, key=rng.key(0)), weights)
    return treadle_peer.TrainStep(model, batch)
