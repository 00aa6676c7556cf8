"""Transformers over tokens."""

from dataclasses import dataclass

import numpy as np

from workloads import initial
from workloads.blocks import attend, block, projections, run_block
from workloads.dense import normal
from workloads.program import Program


@dataclass(frozen=True)
class Language(Program):
    """Sizes that they share, and a batch of text."""

    vocabulary: int = 1000
    width: int = 256
    layers: int = 4
    heads: int = 4
    length: int = 256
    batch_size: int = 8

    def examples(self, rng):
        shape = self.batch_size, self.length + 1
        text = rng.integers(0, self.vocabulary, shape)
        return text[:, :-1].copy(), text[:, 1:].copy()

    def ends(self, rng, bias: bool = True):
        """Weights of the first and of the last layers."""
        return (
            initial.table(rng, "tokens", self.vocabulary, self.width)
            | initial.norm("norm", self.width, bias)
            | initial.dense(rng, "out", self.vocabulary, self.width, bias=bias)
        )

    def places(self, rng):
        """Learned positions."""
        return {"place": normal(rng, self.length, self.width) * np.float32(0.02)}


@dataclass(frozen=True)
class GPT(Language):
    """Pre-LN blocks with causal attention and learned positions."""

    def drawn(self, rng):
        found = self.ends(rng) | self.places(rng)
        for i in range(self.layers):
            found |= block(rng, f"blocks.{i}", self.width, self.heads, 4 * self.width)
        return found

    def loss(self, F, p, tokens, labels):
        x = F.embed(p["tokens"], tokens) + p.array("place")
        for i in range(self.layers):
            x = run_block(F, p["blocks"][str(i)], x, self.heads, causal=True)
        logits = F.linear(p["out"], F.layer_norm(p["norm"], x))
        return F.cross_entropy(logits, labels)


@dataclass(frozen=True)
class Decoding(GPT):
    """A GPT chooses the likeliest tokens one by one, with a cache of keys and values;
    gives the logits of the last."""

    trains: bool = False
    length: int = 128
    batch_size: int = 1

    def loss(self, F, p, tokens, _):
        depth = self.width // self.heads
        shape = tokens.shape[0], self.length, self.heads, depth
        caches = [[F.zeros(*shape), F.zeros(*shape)] for _ in range(self.layers)]

        def block(p, x, cache, i):
            parts, h = p["attention"], F.layer_norm(p["norm1"], x)
            heads = (x.shape[0], self.heads, depth)
            q, k, v = (
                F.linear(parts[n], h).reshape(heads) for n in ("query", "key", "value")
            )
            cache = [F.write(cache[0], k, i), F.write(cache[1], v, i)]
            x = x + F.linear(parts["out"], F.attend(q, *cache, i).reshape(*x.shape))
            h = F.gelu(F.linear(p["expand"], F.layer_norm(p["norm2"], x)))
            return x + F.linear(p["shrink"], h), cache

        def advance(carry, i):
            token, _, caches = carry
            x = F.embed(p["tokens"], token) + F.row(p.array("place"), i)
            found = []
            for n, cache in enumerate(caches):
                x, cache = block(p["blocks"][str(n)], x, cache, i)
                found.append(cache)
            logits = F.linear(p["out"], F.layer_norm(p["norm"], x))
            return F.argmax(logits), logits, found

        carry = tokens[:, 0], F.zeros(tokens.shape[0], self.vocabulary), caches
        return F.repeat(advance, carry, self.length)[1]


@dataclass(frozen=True)
class BERT(Language):
    """An encoder with learned positions; gives the states of a text."""

    trains: bool = False
    width: int = 384
    layers: int = 6
    heads: int = 6
    length: int = 128
    batch_size: int = 1

    def drawn(self, rng):
        found = self.places(rng) | initial.norm("norm", self.width)
        found |= initial.table(rng, "tokens", self.vocabulary, self.width)
        for i in range(self.layers):
            found |= block(rng, f"blocks.{i}", self.width, self.heads, 4 * self.width)
        return found

    def loss(self, F, p, tokens, _):
        x = F.embed(p["tokens"], tokens) + p.array("place")
        for i in range(self.layers):
            x = run_block(F, p["blocks"][str(i)], x, self.heads)
        return F.layer_norm(p["norm"], x)


@dataclass(frozen=True)
class Llama(Language):
    """Blocks with RMSNorm, rotary positions, shared heads of keys and SwiGLU."""

    width: int = 512
    layers: int = 1
    heads: int = 8
    key_heads: int = 2
    hidden: int = 1376
    length: int = 512
    batch_size: int = 2

    def drawn(self, rng):
        plain, width, heads = {"bias": False}, self.width, (self.heads, self.key_heads)
        found = self.ends(rng, **plain)
        for i in range(self.layers):
            name = f"blocks.{i}"
            found |= initial.norm(f"{name}.norm1", width, **plain)
            found |= projections(rng, f"{name}.attention", width, heads, **plain)
            found |= initial.norm(f"{name}.norm2", width, **plain)
            found |= initial.dense(rng, f"{name}.gate", self.hidden, width, **plain)
            found |= initial.dense(rng, f"{name}.up", self.hidden, width, **plain)
            found |= initial.dense(rng, f"{name}.down", width, self.hidden, **plain)
        return found

    def examples(self, rng):
        half = self.width // self.heads // 2
        rates = 10_000.0 ** (-np.arange(half) / half)
        angles = (np.arange(self.length)[:, None] * rates)[:, None]
        turns = (np.cos(angles), np.sin(angles))
        return *super().examples(rng), *(x.astype(np.float32) for x in turns)

    def loss(self, F, p, tokens, labels, cos, sin):
        def turn(x):
            half = x.shape[-1] // 2
            a, b = x[..., :half], x[..., half:]
            return F.concat([a * cos - b * sin, b * cos + a * sin])

        x, heads = F.embed(p["tokens"], tokens), (self.heads, self.key_heads)
        for i in range(self.layers):
            part = p["blocks"][str(i)]
            h = F.rms_norm(part["norm1"], x)
            x = x + attend(F, part["attention"], h, heads, turn=turn, causal=True)
            h = F.rms_norm(part["norm2"], x)
            h = F.silu(F.linear(part["gate"], h)) * F.linear(part["up"], h)
            x = x + F.linear(part["down"], h)
        return F.cross_entropy(F.linear(p["out"], F.rms_norm(p["norm"], x)), labels)


@dataclass(frozen=True)
class T5(Language):
    """An encoder and a decoder with biases by distance and no others (Raffel 2020)."""

    layers: int = 2
    length: int = 64
    batch_size: int = 16
    distances: int = 32

    def drawn(self, rng):
        found = initial.table(rng, "tokens", self.vocabulary, self.width)
        found |= initial.dense(rng, "out", self.vocabulary, self.width, bias=False)
        for side, parts in (("encoder", "s"), ("decoder", "sc")):
            found |= initial.table(rng, f"{side}.table", self.distances, self.heads)
            found |= initial.norm(f"{side}.norm", self.width, bias=False)
            for i in range(self.layers):
                found |= self._block(rng, f"{side}.{i}", parts)
        return found

    def _block(self, rng, name: str, parts: str):
        heads, plain = (self.heads, self.heads), {"bias": False}
        found: initial.Weights = {}
        for part in parts:
            found |= projections(rng, f"{name}.{part}", self.width, heads, **plain)
            # Scores are not scaled: it is in the queries' first weights.
            found[f"{name}.{part}.query.weight"] /= np.sqrt(self.width // self.heads)
            found |= initial.norm(f"{name}.{part}.norm", self.width, **plain)
        for part, shape in (("up", (4, 1)), ("down", (1, 4))):
            shape = tuple(n * self.width for n in shape)
            found |= initial.dense(rng, f"{name}.{part}", *shape, **plain)
        return found | initial.norm(f"{name}.norm", self.width, **plain)

    def examples(self, rng):
        shape = self.batch_size, self.length
        texts = [rng.integers(0, self.vocabulary, shape) for _ in range(3)]
        places = np.arange(self.length)
        apart = places - places[:, None] + self.distances // 2
        return *texts, np.clip(apart, 0, self.distances - 1)

    def loss(self, F, p, source, target, labels, apart):
        heads = (self.heads, self.heads)

        def stack(p, x, other=None):
            bias = F.embed(p["table"], apart).swapaxes(0, 2).swapaxes(1, 2)
            options = {"scale": 1.0, "bias": bias, "causal": other is not None}
            for i in range(self.layers):
                part = p[str(i)]
                h = F.rms_norm(part["s"]["norm"], x)
                x = x + attend(F, part["s"], h, heads, **options)
                if other is not None:
                    h = F.rms_norm(part["c"]["norm"], x)
                    x = x + attend(F, part["c"], h, heads, other=other, scale=1.0)
                h = F.relu(F.linear(part["up"], F.rms_norm(part["norm"], x)))
                x = x + F.linear(part["down"], h)
            return F.rms_norm(p["norm"], x)

        read = stack(p["encoder"], F.embed(p["tokens"], source))
        x = stack(p["decoder"], F.embed(p["tokens"], target), read)
        return F.cross_entropy(F.linear(p["out"], x), labels)
