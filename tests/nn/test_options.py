"""The options that layers with parameters share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng, tree

ROWS, IMAGE = np.ones((2, 4), np.float32), np.ones((1, 4, 4, 2), np.float32)
TOKENS = np.array([[0, 2]])
LAYERS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "Linear": ((4, 3), (ROWS,)),
    "Bilinear": ((4, 4, 3), (ROWS, ROWS)),
    "LinearGeneral": ((4, (3, 2)), (ROWS,)),
    "Einsum": (("...i,io->...o", (4, 3)), (ROWS,)),
    "MLP": (((4, 3, 2),), (ROWS,)),
    "Conv1d": ((4, 3, 2), (ROWS,)),
    "Conv2d": ((2, 3, 2), (IMAGE,)),
    "Conv3d": ((2, 3, 2), (IMAGE,)),
    "ConvTranspose1d": ((4, 3, 2), (ROWS,)),
    "ConvTranspose2d": ((2, 3, 2), (IMAGE,)),
    "ConvTranspose3d": ((2, 3, 2), (IMAGE,)),
    "PatchEmbedding": ((2, 3, 2), (IMAGE,)),
    "SqueezeExcite": ((2, 3), (IMAGE,)),
}
TABLES: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "Embedding": ((3, 4), (TOKENS,)),
    "EmbeddingBag": ((3, 4), (TOKENS,)),
}
ALL = LAYERS | TABLES


def made(name: str, **options: Any) -> tuple[Any, Any]:
    """The layer and its output."""
    sizes, inputs = ALL[name]
    layer = getattr(nn, name)(*sizes, **options, key=rng.key(0))
    return layer, layer(*inputs)


def parameters(layer: Any, kind: str) -> list[Any]:
    found = [x for path, x in tree.leaves_with_path(layer) if kind in str(path[-1])]
    return [np.asarray(x) for x in found]


@pytest.mark.parametrize("name", ALL)
def test_dtypes(name: str) -> None:
    layer, out = made(name)
    assert {x.dtype for x in tree.leaves(layer)} == {out.dtype} == {np.dtype("f4")}
    layer, out = made(name, dtype=tnp.bfloat16)
    assert {x.dtype for x in tree.leaves(layer)} == {np.dtype("f4")}
    assert out.dtype == tnp.bfloat16
    layer, out = made(name, param_dtype="float64")
    assert {x.dtype for x in tree.leaves(layer)} == {out.dtype} == {np.dtype("f8")}


@pytest.mark.parametrize("name", LAYERS)
def test_initialisers(name: str) -> None:
    init = nn.init
    layer, _ = made(name, weight_init=init.constant(0.5), bias_init=init.constant(3))
    weights, biases = parameters(layer, "weight"), parameters(layer, "bias")
    assert all((w == 0.5).all() for w in weights) and weights
    assert all((b == 3).all() for b in biases) and biases


@pytest.mark.parametrize("name", TABLES)
def test_tables(name: str) -> None:
    layer, _ = made(name, weight_init=nn.init.ones, padding_index=2)
    assert layer.weight.tolist() == [[1.0] * 4, [1.0] * 4, [0.0] * 4]
    with pytest.raises(ValueError, match=f"{name}: padding_index 3 is none of 3"):
        made(name, padding_index=3)


@pytest.mark.parametrize("name", sorted(LAYERS.keys() - {"SqueezeExcite"}))
def test_no_bias(name: str) -> None:
    layer, _ = made(name, bias=False)
    assert not parameters(layer, "bias")
    other, _ = made(name)
    for found, expected in zip(
        parameters(layer, "weight"), parameters(other, "weight"), strict=True
    ):
        assert np.array_equal(found, expected)


SCALES = {
    "Linear": 4,
    "Bilinear": 4,
    "LinearGeneral": 4,
    "Einsum": 4,
    "Conv2d": 8,
    "ConvTranspose2d": 8,
}


@pytest.mark.parametrize("name", SCALES)
def test_parameters_are_as_large_as_the_number_of_inputs_says(name: str) -> None:
    bound = SCALES[name] ** -0.5
    drawn = np.concatenate(
        [
            np.asarray(x).ravel()
            for seed in range(20)
            for x in tree.leaves(getattr(nn, name)(*ALL[name][0], key=rng.key(seed)))
        ]
    )
    assert 0.95 * bound < np.abs(drawn).max() <= bound


def test_dropout_between_layers() -> None:
    model = nn.MLP((4, 64, 64, 2), dropout=0.5, key=rng.key(0))
    x = np.ones((8, 4), np.float32)
    one, _ = nn.stateful(model, key=rng.key(1))(x)
    two, _ = nn.stateful(model, key=rng.key(2))(x)
    assert not np.array_equal(one, two)
    # No rows are alike, and nothing is dropped behind the last layer.
    assert len(np.unique(np.asarray(one)[:, 0])) == 8 and np.asarray(one).all()
    plain = nn.MLP((4, 64, 64, 2), key=rng.key(0))
    assert np.array_equal(nn.inference(model)(x), plain(x))
    assert plain.dropout is None
    with pytest.raises(ValueError, match="rate is from 0 to 1"):
        nn.MLP((4, 2), dropout=1.5, key=rng.key(0))


def test_names_of_layers() -> None:
    k1, k2 = rng.split(rng.key(0))
    model = nn.Sequential(
        {"z": nn.Linear(4, 3, key=k1), "a": nn.relu, "out": nn.Linear(3, 2, key=k2)}
    )
    plain = nn.Sequential(*model)
    assert np.array_equal(td.jit(lambda m, x: m(x))(model, ROWS), plain(ROWS))
    again = tree.map(lambda x: x, model)
    assert again["out"].out_features == model["out"].out_features == 2
    assert again.names == ("z", "a", "out") and model[:2].names == ("z", "a")
    with pytest.raises(KeyError, match=r"has .'z', 'a', 'out'., no layer 'head'"):
        model["head"]
    with pytest.raises(KeyError, match="has no names, no layer 'z'"):
        plain["z"]
