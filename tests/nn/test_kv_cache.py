"""Token by token with caches, against recomputing everything."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import close, random
from treadle import nn, rng, tree

KEY = rng.key(0)
MultiHead = partial(nn.MultiHeadAttention, 8, 4, key=KEY)
LAYERS = {
    "plain": MultiHead(),
    "shared heads, rotary": MultiHead(kv_heads=2, rotary=nn.RotaryEmbedding(2)),
    "normed, interleaved": MultiHead(
        kv_heads=1,
        head_size=6,
        qk_norm=nn.RMSNorm,
        rotary=nn.RotaryEmbedding(4, interleaved=True),
    ),
    "window, cap": MultiHead(window=(2, 0), soft_cap=1.0, scale=0.3),
    "alibi": MultiHead(position_bias=nn.ALiBi(4)),
    "relative": MultiHead(
        position_bias=nn.RelativePositionBias(4, buckets=6, max_distance=5, key=KEY)
    ),
}


class GPT(nn.Module):
    """Tokens (*batch, length) to logits of what follows."""

    tokens: nn.Embedding
    places: nn.PositionalEmbedding
    layers: list[nn.MultiHeadAttention]
    head: nn.Linear

    def __init__(self) -> None:
        draw = nn.init.normal(0.5)
        self.tokens = nn.Embedding(11, 8, key=rng.key(1))
        self.places = nn.PositionalEmbedding(
            16, 8, weight_init=nn.init.normal(), key=rng.key(2)
        )
        self.layers = [
            nn.MultiHeadAttention(8, 2, kv_heads=1, weight_init=draw, key=k)
            for k in rng.split(rng.key(3), 2)
        ]
        self.head = nn.Linear(8, 11, weight_init=draw, key=rng.key(4))

    def __call__(self, tokens: Any, lengths: Any = None) -> Any:
        x = self.places(self.tokens(tokens), lengths=lengths)
        for layer in self.layers:
            x = x + layer(x, causal=True, lengths=lengths)
        return self.head(x)

    def generate(self, tokens: Any, lengths: Any, count: int) -> Any:
        """The likeliest tokens after each prompt, in one loop."""
        logits = self(tokens, lengths)
        last = tnp.take_along_axis(logits, (lengths - 1)[:, None, None], 1)
        first = last.argmax(-1)

        def step(token: Any, _: Any) -> Any:
            return self(token).argmax(-1), token[:, 0]

        _, found = td.scan(step, first, length=count)
        return found.T

    def complete(self, tokens: Any, end: int) -> Any:
        """What follows one prompt, up to an end token, in one loop."""
        first = self(tokens)[:, -1:].argmax(-1)
        room = tnp.full((10,), end)

        def going(carry: Any) -> Any:
            count, token, _ = carry
            return (count < 10) & (token[0, 0] != end)

        def step(carry: Any) -> Any:
            count, token, found = carry
            found = found.at[count].set(token[0, 0])
            return count + 1, self(token).argmax(-1), found

        return td.while_loop(going, step, (0, first, room))[::2]


MODEL = GPT()


def generated(model: GPT, tokens: Any, lengths: Any, count: int) -> Any:
    cached = nn.with_cache(model, tokens.shape[0], 16)
    return nn.stateful(cached.generate)(tokens, lengths, count)[0]


def recomputed(prompt: list[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(MODEL(tnp.array([tokens]))[0, -1].argmax()))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_in_pieces_it_is_the_whole(layer):
    x = tnp.asarray(random(2, 9, 8))
    whole = layer(x, causal=True)
    cached, cache = nn.with_cache(layer, 2, 12), layer.new_cache((2,), 12)
    step = td.jit(lambda layer, x: nn.stateful(layer)(x))
    for first, last in [(0, 4), (4, 7), (7, 8), (8, 9)]:
        piece = x[:, first:last]
        out, cached = step(cached, piece)
        close(out, whole[:, first:last], 1e-5)
        out, cache = layer.extend(piece, cache)
        close(out, whole[:, first:last], 1e-5)
    assert cached.cache.value.length.tolist() == [9, 9]


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_prompts_of_different_lengths(layer):
    """Padded at the end: each example is what it is alone."""
    lengths, x, more = [5, 1, 3], random(3, 5, 8), random(3, 2, 8, seed=1)
    cache = layer.new_cache((3,), 12)
    prompt, cache = layer.extend(x, cache, lengths=lengths)
    after, cache = layer.extend(more, cache)
    assert cache.length.tolist() == [7, 3, 5]
    for i, n in enumerate(lengths):
        whole = layer(np.concatenate([x[i, :n], more[i]]), causal=True)
        close(prompt[i, :n], whole[:n], 1e-5)
        close(after[i], whole[n:], 1e-5)


def test_prompts_padded_at_the_front():
    """Where distances matter alone, a mask over the cache is enough."""
    layer = LAYERS["shared heads, rotary"]
    lengths, x = [5, 1, 3], random(3, 7, 8)
    cache = layer.new_cache((3,), 12)
    real = np.arange(12) >= 5 - np.array(lengths)[:, None]
    mask = real[:, None, None]
    prompt, cache = layer.extend(x[:, :5], cache, mask=mask)
    after, cache = layer.extend(x[:, 5:], cache, mask=mask)
    for i, n in enumerate(lengths):
        whole = layer(x[i, 5 - n :], causal=True)
        close(prompt[i, 5 - n :], whole[:n], 1e-5)
        close(after[i], whole[n:], 1e-5)


def test_a_model_generates_in_one_loop():
    prompts = [[3, 1, 4, 1, 5], [9], [2, 6, 5]]
    tokens = tnp.array([p + [0] * (5 - len(p)) for p in prompts])
    lengths = tnp.array([len(p) for p in prompts])
    expected = [recomputed(p, 6) for p in prompts]
    assert len({token for row in expected for token in row}) > 2
    run = td.jit(generated, static=3)
    assert generated(MODEL, tokens, lengths, 6).tolist() == expected
    assert run(MODEL, tokens, lengths, 6).tolist() == expected


def test_one_trace_for_all_lengths():
    traces = []

    @partial(td.jit, dynamic={"tokens": (None, "length")})
    def run(model: GPT, tokens: Any, lengths: Any) -> Any:
        traces.append(1)
        return generated(model, tokens, lengths, 4)

    for n in (3, 5, 1, 9):
        prompt = [int(t) for t in np.random.default_rng(n).integers(0, 11, n)]
        found = run(MODEL, tnp.array([prompt]), tnp.array([n]))
        assert found.tolist() == [recomputed(prompt, 4)]
    assert len(traces) == 1


def test_a_loop_that_ends_by_itself():
    prompt = [3, 1, 4]
    expected = recomputed(prompt, 8)
    end = expected[5]
    wanted = expected[: expected.index(end)]
    cached = nn.with_cache(MODEL, 1, 16)
    run = td.jit(lambda m, tokens: nn.stateful(m.complete)(tokens, end)[0])
    count, found = run(cached, tnp.array([prompt]))
    assert found[: int(count)].tolist() == wanted and wanted


def test_examples_are_picked():
    """As beam search does: all of a cache begins with the axes of the batch."""
    layer = LAYERS["shared heads, rotary"]
    x = random(3, 4, 8)
    _, cache = layer.extend(x[:, :3], layer.new_cache((3,), 5))
    parents = tnp.array([2, 2, 0])
    picked = tree.map(lambda x: x[parents], cache)
    out, _ = layer.extend(x[:, 3:], picked)
    for i, parent in enumerate([2, 2, 0]):
        whole = layer(np.concatenate([x[parent, :3], x[i, 3:]]), causal=True)
        close(out[i, 0], whole[-1], 1e-5)


def test_leading_axes_and_vmap():
    layer, x = LAYERS["alibi"], tnp.asarray(random(2, 3, 4, 8))
    whole = layer(x, causal=True)
    out, _ = layer.extend(x, layer.new_cache((2, 3), 6), lengths=tnp.full((2, 3), 4))
    close(out, whole, 1e-5)
    cached = nn.with_cache(layer, 3, 6)
    close(td.vmap(lambda x: nn.stateful(cached)(x)[0])(x), whole, 1e-5)
    out, _ = layer.extend(x[0, 0], layer.new_cache((), 6))
    close(out, whole[0, 0], 1e-5)


def test_gradients_pass_a_cache():
    layer, x = LAYERS["shared heads, rotary"], tnp.asarray(random(2, 5, 8))

    def in_pieces(x: Any) -> Any:
        first, cache = layer.extend(x[:, :3], layer.new_cache((2,), 8))
        second, _ = layer.extend(x[:, 3:], cache)
        return (tnp.concatenate([first, second], 1) ** 2).sum()

    whole = td.grad(lambda x: (layer(x, causal=True) ** 2).sum())(x)
    close(td.jit(td.grad(in_pieces))(x), whole, 1e-4)


def test_what_a_cache_holds():
    layer = nn.MultiHeadAttention(8, 4, kv_heads=2, dtype=tnp.bfloat16, key=KEY)
    assert layer.new_cache((3,), 7).key.dtype == tnp.bfloat16
    cached = nn.with_cache(layer, 3, 7, dtype=tnp.float32)
    cache = cached.cache.value
    assert (cache.key.shape, cache.key.dtype) == ((3, 7, 2, 2), tnp.float32)
    out, _ = nn.stateful(cached)(random(3, 2, 8))
    assert out.dtype == tnp.bfloat16
    across = nn.MultiHeadAttention(8, 2, context_width=8, key=KEY)
    assert nn.with_cache(across, 3, 7).cache.value is None
    with pytest.raises(TypeError, match=r"its own width \(context_width=8\), and was"):
        across(random(3, 2, 8))


def test_errors():
    cached = nn.with_cache(LAYERS["plain"], 2, 4)
    with pytest.raises(RuntimeError, match="outside of a scope"):
        cached(random(2, 1, 8))
    with pytest.raises(ValueError, match=r"batch of \(2,\) holds f32\[2,4,4,2\]"):
        nn.stateful(cached)(random(3, 1, 8))
    _, cached = nn.stateful(cached)(random(2, 3, 8))
    _, full = nn.stateful(cached)(random(2, 1, 8))
    for step in (nn.stateful(full), td.jit(lambda x: nn.stateful(full)(x)[0])):
        with pytest.raises(RuntimeError, match="cache of keys and values is full"):
            step(random(2, 1, 8))


@pytest.mark.parametrize("remat", [False, True])
def test_layers_of_a_stack_have_caches_of_their_own(remat):
    block = partial(nn.TransformerEncoderBlock, 8, 4)
    stack = nn.Stack(lambda key: block(key=key), 3, remat=remat, key=KEY)
    model = nn.Sequential(nn.Linear(8, 8, key=KEY), stack)
    x = random(2, 6, 8)
    whole = stack(model.layers[0](x), causal=True)
    cached = nn.with_cache(model, 2, 9)
    start, cached = nn.stateful(cached)(x[:, :4])
    end, cached = nn.stateful(cached)(x[:, 4:])
    close(tnp.concatenate([start, end], 1), whole, 1e-5)
    assert [x.shape for x in tree.leaves(cached.layers[1].layers.attention.cache)] == [
        (3, 2, 9, 4, 2),
        (3, 2, 9, 4, 2),
        (3, 2),
    ]
