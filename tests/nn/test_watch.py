"""capture and record: what layers gave, by path, and other values in their place."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import close, random
from treadle import nn, rng, tree

KEY = rng.key(0)
X = random(3, 4)


class Block(nn.Module):
    linear: nn.Linear
    drop: nn.Dropout

    def __call__(self, x):
        return x + self.drop(nn.record("active", nn.relu(self.linear(x))))

    def encode(self, x):
        return self.linear(x) / 2


class Model(nn.Module):
    blocks: list
    head: nn.Linear

    def __init__(self):
        k1, k2, k3 = rng.split(KEY, 3)
        self.blocks = [
            Block(nn.Linear(4, 4, key=k), nn.Dropout(0.5, inference=True))
            for k in (k1, k2)
        ]
        self.head = nn.Linear(4, 2, key=k3)

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x), self.head(2 * x)


MODEL = Model()


def by_hand(model, x):
    found = {}
    for i, block in enumerate(model.blocks):
        found[f"blocks.{i}.linear"] = y = block.linear(x)
        found[f"blocks.{i}.active"] = found[f"blocks.{i}.drop"] = nn.relu(y)
        found[f"blocks.{i}"] = x = x + nn.relu(y)
    return found | {"head": model.head(x), "head#2": model.head(2 * x)}


def test_all_layers():
    output, found = nn.capture(MODEL)(X)
    expected = by_hand(MODEL, X)
    assert list(found) == list(expected)
    tree.map(close, found, expected)
    tree.map(close, output, MODEL(X))
    assert nn.record("alone", 3) == 3


@pytest.mark.parametrize(
    ("where", "names"),
    [
        (nn.Linear, ["blocks.0.linear", "blocks.1.linear", "head", "head#2"]),
        ([nn.Dropout, "head"], ["blocks.0.drop", "blocks.1.drop", "head", "head#2"]),
        ("blocks.*.*ive", ["blocks.0.active", "blocks.1.active"]),
        (
            lambda path, layer: path.endswith("active"),
            [f"blocks.{i}.active" for i in (0, 1)],
        ),
    ],
)
def test_some_layers(where, names):
    assert list(nn.capture(MODEL, where)(X)[1]) == names


def test_under_transforms():
    expected = by_hand(MODEL, X)
    jitted = td.jit(lambda model, x: nn.capture(model)(x)[1])(MODEL, X)
    mapped = td.vmap(lambda x: nn.capture(MODEL)(x)[1])(X)
    scanned = td.scan(lambda c, x: (c, nn.capture(MODEL)(x)[1]), 0, X)[1]
    with td.named_scope("around"):
        named = nn.capture(MODEL)(X)[1]
    for found in (jitted, mapped, scanned, named):
        assert set(found) == set(expected)
        tree.map(close, dict(found), dict(expected))

    def loss(model):
        return (nn.capture(model)(X)[1]["blocks.0.active"] ** 2).sum()

    grad = td.grad(loss)(MODEL)
    plain = td.grad(lambda m: (nn.relu(m.blocks[0].linear(X)) ** 2).sum())(MODEL)
    tree.map(close, grad, plain)


def test_inside_transforms_of_the_model():
    """Values of a scan, vmap and remat are seen, those of a jit are not."""

    class Loops(nn.Module):
        block: Block
        program: object

        def __call__(self, x):
            return self.program(self.block, x)

    block = MODEL.blocks[0]
    mapped = nn.capture(Loops(block, lambda block, x: td.vmap(block)(x)))(X)[1]
    close(mapped["block.active"], nn.relu(block.linear(X)))
    remat = nn.capture(Loops(block, lambda block, x: td.remat(block)(x)))(X)[1]
    assert list(remat) == list(mapped)

    def scan(block, x):
        return td.scan(lambda x, _: (block(x),) * 2, x, None, length=3)

    (_, ys), found = nn.capture(Loops(block, scan))(X)
    assert found["block.linear"].shape == (3, 3, 4)
    close(found["block"], ys)
    jitted = Loops(block, td.jit(lambda block, x: block(x)))
    with pytest.raises(ValueError, match=r"(?s)`where` means: Linear.*Not seen were"):
        nn.capture(jitted, nn.Linear)(X)
    assert nn.capture(jitted)(X)[1] == {}


def test_stateful_and_methods():
    model = nn.training(MODEL)
    (output, _), found = nn.capture(nn.stateful(model, key=KEY))(X)
    assert list(found) == list(by_hand(MODEL, X))
    close(found["head"], output[0])
    output, found = nn.capture(MODEL.blocks[0].encode)(X)
    close(found["linear"], 2 * output)


def test_a_capture_in_a_capture():
    class Around(nn.Module):
        model: Model

        def __call__(self, x):
            return nn.record("inner", nn.capture(self.model, nn.Linear)(x)[1]["head"])

    output, found = nn.capture(Around(MODEL))(X)
    close(output, MODEL(X)[0])
    assert "inner" in found and "blocks.0.linear" in found


def test_edit():
    """Other values in the place of a layer's: an ablation, and gradients there."""
    edit = {"blocks.0.active": tnp.zeros_like, "blocks.1": lambda x: 2 * x}
    (output, _), found = nn.capture(MODEL, edit=edit)(X)
    block = MODEL.blocks[1]
    close(found["blocks.1"], 2 * (X + nn.relu(block.linear(X))))
    close(output, MODEL.head(found["blocks.1"]))

    def loss(change):
        edit = {"blocks.1": lambda x: x + change}
        return nn.capture(MODEL, edit=edit)(X)[0][0].sum()

    grad = td.jit(td.grad(loss))(tnp.zeros((3, 4)))
    close(grad, np.broadcast_to(np.asarray(MODEL.head.weight).sum(1), (3, 4)))


def test_errors():
    with pytest.raises(ValueError, match=r"`where` means: BatchNorm(?s:.*)Called were"):
        nn.capture(MODEL, nn.BatchNorm)(X)
    with pytest.raises(
        ValueError, match=r"nothing was seen at 'blocks.9'(?s:.*)blocks\.0"
    ):
        nn.capture(MODEL, edit={"blocks.9": tnp.zeros_like})(X)
    with pytest.raises(TypeError, match="`where` is a class"):
        nn.capture(MODEL, 3)
    with pytest.raises(TypeError, match="takes a Module or a function, got int"):
        nn.capture(3)
