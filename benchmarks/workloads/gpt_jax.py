"""The GPT workloads in Equinox."""

import equinox as eqx
import jax
import jax.numpy as jnp
from peers import jax_peer

from workloads.gpt import Workload


class Attention(eqx.Module):
    """Causal self-attention of one sequence."""

    qkv: eqx.nn.Linear
    out: eqx.nn.Linear
    heads: int

    def __init__(self, width, heads, *, key):
        k1, k2 = jax.random.split(key)
        self.qkv = eqx.nn.Linear(width, 3 * width, key=k1)
        self.out = eqx.nn.Linear(width, width, key=k2)
        self.heads = heads

    def __call__(self, x):
        length, width = x.shape
        shape = (length, self.heads, width // self.heads)
        q, k, v = jnp.split(jax.vmap(self.qkv)(x), 3, axis=-1)
        mixed = jax.nn.dot_product_attention(
            q.reshape(shape), k.reshape(shape), v.reshape(shape), is_causal=True
        )
        return jax.vmap(self.out)(mixed.reshape(length, width))


class Block(eqx.Module):
    """One pre-LN transformer block."""

    norm1: eqx.nn.LayerNorm
    attention: Attention
    norm2: eqx.nn.LayerNorm
    expand: eqx.nn.Linear
    shrink: eqx.nn.Linear

    def __init__(self, width, heads, *, key):
        k1, k2, k3 = jax.random.split(key, 3)
        self.norm1 = eqx.nn.LayerNorm(width)
        self.attention = Attention(width, heads, key=k1)
        self.norm2 = eqx.nn.LayerNorm(width)
        self.expand = eqx.nn.Linear(width, 4 * width, key=k2)
        self.shrink = eqx.nn.Linear(4 * width, width, key=k3)

    def __call__(self, x):
        x = x + self.attention(jax.vmap(self.norm1)(x))
        hidden = jax.nn.gelu(jax.vmap(self.expand)(jax.vmap(self.norm2)(x)))
        return x + jax.vmap(self.shrink)(hidden)


class GPT(eqx.Module):
    """Tokens (length,) to logits (length, vocabulary)."""

    tokens: eqx.nn.Embedding
    positions: eqx.nn.Embedding
    blocks: list[Block]
    norm: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __init__(self, sizes: Workload, *, key):
        k1, k2, k3, *keys = jax.random.split(key, 3 + sizes.layers)
        d = sizes.width
        self.tokens = eqx.nn.Embedding(sizes.vocabulary, d, key=k1)
        self.positions = eqx.nn.Embedding(sizes.length, d, key=k2)
        self.blocks = [Block(d, sizes.heads, key=k) for k in keys]
        self.norm = eqx.nn.LayerNorm(d)
        self.head = eqx.nn.Linear(d, sizes.vocabulary, key=k3)

    def __call__(self, tokens):
        x = jax.vmap(self.tokens)(tokens) + self.positions.weight[: len(tokens)]
        for block in self.blocks:
            x = block(x)
        return jax.vmap(self.head)(jax.vmap(self.norm)(x))


def build(sizes: Workload, weights, batch) -> jax_peer.TrainStep:
    """The training step from `weights`."""
    model = jax_peer.fill(GPT(sizes, key=jax.random.key(0)), weights)
    return jax_peer.TrainStep(model, batch)
