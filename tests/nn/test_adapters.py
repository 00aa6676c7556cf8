"""LoRA: what is trained, wrapped, saved alone and folded in."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import close, random
from treadle import checkpoint, nn, optim, rng, tree
from treadle.nn import init

KEY = rng.key(0)
X = random(8, 4)


class Model(nn.Module):
    blocks: list
    norm: nn.LayerNorm
    head: nn.Linear

    def __init__(self, key):
        k1, k2, k3 = rng.split(key, 3)
        self.blocks = [nn.Linear(4, 4, key=k) for k in (k1, k2)]
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 2, key=k3)

    def __call__(self, x):
        for block in self.blocks:
            x = x + nn.relu(block(x))
        return self.head(self.norm(x))


def drawn(model):
    """The model, with adapters that change something."""
    return nn.at(model, nn.LoRA).apply(
        lambda layer: layer.replace(lora_b=init.normal(0.5)(KEY, layer.lora_b.shape))
    )


def test_at_first_it_computes_the_same():
    model = Model(KEY)
    for adapted in (
        nn.lora(model, rank=2, key=KEY),
        nn.at(model, lambda m: m.head).apply(
            lambda head: nn.Sequential(nn.Adapter(4, 2, key=KEY), head)
        ),
    ):
        np.testing.assert_array_equal(adapted(X), model(X))
    assert tnp.abs(drawn(nn.lora(model, rank=2, key=KEY))(X) - model(X)).max() > 0.01


def test_only_adapters_are_trained():
    """Weight decay and averages included; the rest keeps its bits."""
    model = drawn(nn.lora(Model(KEY), "blocks.*", rank=2, key=KEY))
    assert list(nn.parameters(model)) == [
        f"blocks.{i}.lora_{x}" for i in (0, 1) for x in "ab"
    ]
    optimizer = optim.adamw(0.1, weight_decay=0.1)
    state = optimizer.init(model)

    @td.jit
    def step(model, state):
        grads = td.grad(lambda m: ((m(X) - 1) ** 2).mean())(model)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state

    before = tree.leaves_with_path(model)
    for _ in range(3):
        model, state = step(model, state)
    for (path, old), new in zip(before, tree.leaves(model), strict=True):
        assert ("lora" in tree.dotted(path)) == bool((old != new).any()), path


def test_adapters_are_saved_alone(tmp_path):
    """The trainable half, put into another copy of the model."""
    model = drawn(nn.lora(Model(KEY), rank=2, key=KEY))
    adapters, _ = nn.partition(model)
    assert len(tree.leaves(adapters)) == 2 * 3
    checkpoint.save(tmp_path / "adapters", adapters)
    fresh, rest = nn.partition(nn.lora(Model(KEY), rank=2, key=rng.key(1)))
    loaded = checkpoint.restore(tmp_path / "adapters", fresh)
    np.testing.assert_array_equal(nn.combine(loaded, rest)(X), model(X))


def test_folded_in():
    model = drawn(nn.lora(Model(KEY), rank=2, alpha=8, key=KEY))
    merged = nn.merge_lora(model)
    close(merged(X), model(X))
    assert nn.count(merged) == 0
    assert nn.count(nn.unfreeze(merged)) == nn.count(Model(KEY))
    layer = model.blocks[0]
    change = np.asarray(layer.lora_a) @ np.asarray(layer.lora_b) * (8 / 2)
    close(merged.blocks[0].weight, layer.layer.weight + change)
    close(layer.weight, merged.blocks[0].weight)
    assert layer.bias is layer.layer.bias


def test_dropout_is_of_the_change_alone():
    layer = nn.LoRA(nn.Linear(4, 4, key=KEY), 2, dropout=1.0, key=KEY)
    layer = drawn([layer])[0]
    output, _ = nn.stateful(layer, key=KEY)(X)
    close(output, layer.layer(X))
    close(nn.inference(layer)(X), layer.merged()(X))


def test_dtypes():
    """A bfloat16 layer stays one, with adapters in float32 or its own dtype."""
    base = nn.Linear(4, 4, param_dtype=tnp.bfloat16, key=KEY)
    for options in ({}, {"param_dtype": tnp.bfloat16}, {"dtype": tnp.bfloat16}):
        layer = drawn([nn.LoRA(base, 2, key=KEY, **options)])[0]
        assert layer(X).dtype == layer.merged().weight.dtype == tnp.bfloat16
    table = nn.LoRA(nn.Embedding(300, 8, key=KEY), 2, key=KEY)
    assert float(table.lora_a.std()) == pytest.approx(1, rel=0.1)


def test_errors():
    with pytest.raises(TypeError, match=r"shape \(..., in, out\).*got LayerNorm"):
        nn.LoRA(nn.LayerNorm(4), 2, key=KEY)
    with pytest.raises(ValueError, match="a rank is positive, got 0"):
        nn.LoRA(nn.Linear(4, 4, key=KEY), 0, key=KEY)
    model = nn.lora(Model(KEY), rank=2, key=KEY)
    with pytest.raises(ValueError, match="has adapters already"):
        nn.lora(model, rank=2, key=KEY)
    with pytest.raises(ValueError, match="there is no LoRA in this Model"):
        nn.merge_lora(Model(KEY))


def test_layers_of_a_stack_have_adapters_of_their_own():
    """Also in Stacks of Stacks, and where an adapter's weight has a window."""
    k1, k2 = rng.split(KEY)

    def inner(key):
        return nn.Stack(lambda k: nn.Linear(4, 4, key=k), 2, key=key)

    deep = nn.Sequential(nn.Stack(inner, 3, key=k1), nn.Linear(4, 2, key=k2))
    conv = nn.Stack(lambda k: nn.Conv1d(4, 4, 3, padding="SAME", key=k), 3, key=k1)
    for model, where in ((deep, nn.Linear), (conv, nn.Conv1d)):
        adapted = nn.lora(model, where, rank=2, key=KEY)
        close(adapted(X), model(X), 1e-6)
        adapted = drawn(adapted)
        grads = td.grad(lambda m, x: (m(x) ** 2).sum())(adapted, X)
        assert tree.structure(grads) == tree.structure(nn.partition(adapted)[0])
        assert tnp.abs(adapted(X) - model(X)).max() > 0.01
        close(nn.merge_lora(adapted)(X), adapted(X), 1e-5)
    rows = nn.lora(conv, nn.Conv1d, rank=2, key=KEY).unstack()
    assert [row.lora_a.shape for row in rows] == [(3, 4, 2)] * 3
    assert not tree.equal(rows[0].lora_a, rows[1].lora_a)
    block = nn.Stack(lambda k: nn.TransformerEncoderBlock(4, 2, key=k), 2, key=KEY)
    adapted = nn.lora(block, "layers.attention**", rank=2, key=KEY)  # and its norm
    assert len(nn.parameters(adapted)) == 8
    close(adapted(X[None]), block(X[None]), 1e-6)


def test_patterns_pick_the_layers_inside() -> None:
    model = nn.TransformerEncoderBlock(8, 2, key=rng.key(0))
    for where in ("attention.*", ["attention"], td.tree.select("attention.**")):
        adapted = nn.lora(model, where, rank=2, key=rng.key(1))
        names = {name.rpartition(".")[0] for name in nn.parameters(adapted)}
        assert names == {f"attention.{p}" for p in ("query", "key", "value", "out")}
    with pytest.raises(ValueError, match=r"'\*\*norm' has no layer with a weight"):
        nn.lora(model, "**norm", rank=2, key=rng.key(1))


class Gated(nn.Module):
    """A layer that is not linear in its weight, and needs its bias."""

    weight: td.Array
    bias: td.Array

    def __call__(self, x):
        return nn.gelu(x @ self.weight + self.bias)


def test_a_layer_of_ones_own_is_called_with_the_changed_weight():
    layer = Gated(tnp.asarray(random(6, 5)), tnp.ones(5))
    model = nn.lora({"own": layer}, Gated, rank=2, key=rng.key(0))["own"]
    x = random(3, 6, seed=1)
    close(model(x), layer(x))
    model = model.replace(lora_b=tnp.asarray(random(2, 5, seed=2)))
    changed = layer.weight + np.asarray(model.lora_a) @ np.asarray(model.lora_b)
    close(model(x), layer.replace(weight=changed)(x), 1e-5)
    close(nn.merge_lora(model)(x), model(x), 1e-6)
    assert set(nn.parameters(model)) == {"lora_a", "lora_b"}
    grads = td.grad(lambda m: (m(x) ** 2).sum())(model)
    assert grads.layer.weight is None
    assert np.abs(grads.lora_a).min() > 0
    with pytest.raises(ValueError, match="can't be told apart in a Gated"):
        nn.LoRA(layer, 2, dropout=0.1, key=rng.key(0))
