"""Policies: parameters, computations, results and state in dtypes of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import models, nn, optim, rng, tree

KEYS = rng.split(rng.key(0), 4)
X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
MIXED = nn.Precision(compute="bfloat16")


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(4, 8, key=KEYS[0]),
        nn.BatchNorm(8),
        nn.relu,
        nn.Linear(8, 2, key=KEYS[1]),
    )


def dtypes(model: Any) -> dict[str, str]:
    leaves, form = tree.flatten(model)
    paths = map(tree.dotted, tree.paths(form))
    return {p: str(x.dtype) for p, x in zip(paths, leaves, strict=True)}


def equations(graph: Any) -> Iterator[Any]:
    for equation in graph.equations:
        yield equation
        for inner in equation.graphs:
            yield from equations(inner)


def products(graph: Any) -> Counter[str]:
    """How many products and convolutions have operands of which dtype."""
    found: Counter[str] = Counter()
    for equation in equations(graph):
        if equation.op.name in ("dot_general", "conv"):
            found += Counter({str(x.type.dtype) for x in equation.inputs})
    return found


def test_a_model_computes_in_half_with_parameters_gradients_and_state_in_float32() -> (
    None
):
    model = MIXED.apply(network())
    out, after = nn.stateful(model)(X)
    assert out.dtype == td.bfloat16
    assert set(dtypes(model).values()) == {"float32"}
    assert dtypes(after) == dtypes(model)

    def loss(model: Any) -> Any:
        out, after = nn.stateful(model)(X)
        return out.astype(tnp.float32).sum(), after

    grads, _ = td.grad(loss, has_aux=True)(model)
    assert set(dtypes(nn.parameters(grads)).values()) == {"float32"}
    state = optim.adamw(0.1).init(model)
    floats = [x for x in tree.leaves(state) if td.dtypes.is_float(x.dtype)]
    assert {str(x.dtype) for x in floats} == {"float32"}


def test_it_computes_what_a_model_of_halves_computes() -> None:
    model = nn.inference(network())
    told, cast = MIXED.apply(model), nn.cast(model, td.bfloat16)
    np.testing.assert_array_equal(
        told(X).astype(tnp.float32), cast(X).astype(tnp.float32)
    )


def test_products_are_of_halves_forwards_and_backwards() -> None:
    resnet = models.ResNet((8, 16), (1, 1), 10, stem=4, key=KEYS[0])
    images = tnp.ones((2, 16, 16, 3))

    def loss(model: Any) -> Any:
        return nn.stateful(model)(images)[0].astype(tnp.float32).sum()

    def found(model: Any) -> Counter[str]:
        return products(td.trace(td.grad(loss))(model))

    before, after = found(resnet), found(MIXED.apply(resnet))
    assert set(before) == {"float32"}
    assert after == Counter({"bfloat16": before["float32"]})


def test_exceptions_are_policies_of_their_own() -> None:
    model = nn.Precision(compute="float32").apply(
        MIXED.apply(network()), where=[nn.BatchNorm, "layers.3"]
    )
    found = [getattr(layer, "dtype", None) for layer in model.layers]
    assert found == [td.bfloat16, td.float32, None, td.float32]
    left_out = MIXED.apply(network(), where=~tree.select(nn.BatchNorm, "layers.3"))
    found = [getattr(layer, "dtype", None) for layer in left_out.layers]
    assert found == [td.bfloat16, None, None, None]
    # The bias alone does not make a layer.
    assert MIXED.apply(network(), "**.bias").layers[0].dtype is None


def test_output_is_that_of_calls_of_the_model() -> None:
    policy = nn.Precision(compute="bfloat16", output="float32")
    model = nn.inference(policy.apply(network()))
    assert model(X).dtype == td.float32
    assert model.layers[0](X).dtype == td.bfloat16
    assert td.jit(lambda m: m(X))(model).dtype == td.float32
    assert td.vmap(model)(X).dtype == td.float32
    # What transformations return, and copies, follow it too.
    again = td.jit(lambda m: tree.map(lambda x: x * 1, m))(model)
    assert again(X).dtype == td.float32
    assert nn.training(model).replace(layers=[lambda x: x])(X.astype("f2")).dtype == (
        td.float32
    )

    class Pair(nn.Module):
        scale: Any
        dtype: Any = None

        def __call__(self, x: Any) -> Any:
            (x, scale) = nn.operands("Pair", self.dtype, x, self.scale)
            return {"scaled": x * scale, "count": x.shape[0], "rows": tnp.arange(3)}

    made = policy.apply(Pair(tnp.ones(4)))(X)
    assert made["scaled"].dtype == td.float32
    assert made["count"] == 5
    assert made["rows"].dtype == tnp.int32


def test_a_list_of_models_has_no_output() -> None:
    pair = [network(), network()]
    assert MIXED.apply(pair)[1].layers[0].dtype == td.bfloat16
    with pytest.raises(TypeError, match="output=float32 is that of a Module's call"):
        nn.Precision(output="float32").apply(pair)


def test_parameters_and_state_are_cast_apart() -> None:
    kinds = dtypes(nn.Precision(params="float16").apply(network()))
    assert {p for p, k in kinds.items() if k == "float32"} == {
        "layers.1.mean.value",
        "layers.1.var.value",
    }
    kinds = dtypes(nn.Precision(state="float64").apply(network()))
    assert {p for p, k in kinds.items() if k == "float64"} == {
        "layers.1.mean.value",
        "layers.1.var.value",
    }
    everywhere = nn.cast(network(), "float16", state=True)
    assert set(dtypes(everywhere).values()) == {"float16"}


def test_integers_keys_and_complex_numbers_stay() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            self.count = nn.Buffer(tnp.arange(3))
            self.key = rng.key(0)
            self.wave = tnp.ones(2, tnp.complex64)
            self.weight = tnp.ones(2)

    before = Mixed()
    cast = nn.Precision(params="float16").apply(before)
    assert cast.weight.dtype == tnp.float16
    changed = {p for p, kind in dtypes(cast).items() if kind != dtypes(before)[p]}
    assert changed == {"weight"}


def test_complex_weights_are_not_cut_to_real_ones() -> None:
    layer = nn.Linear(4, 2, key=KEYS[0])
    layer = layer.replace(weight=layer.weight * 1j, bias=layer.bias * 1j)
    told = MIXED.apply(layer)
    np.testing.assert_allclose(told(X), layer(X), rtol=1e-6)


def test_a_layer_in_two_places_stays_one() -> None:
    layer = nn.Linear(4, 4, key=KEYS[0])
    model = MIXED.apply(nn.Sequential(layer, layer))
    assert model.layers[0] is model.layers[1]
    assert model.layers[1].dtype == td.bfloat16
    assert list(nn.parameters(model)) == ["layers.0.weight", "layers.0.bias"]


class Scale(nn.Module):
    scale: Any

    def __call__(self, x: Any) -> Any:
        return x * self.scale


def test_a_module_that_cannot_follow_is_named() -> None:
    model = nn.Sequential(nn.Linear(4, 4, key=KEYS[0]), Scale(tnp.ones(4)))
    with pytest.warns(nn.PrecisionWarning, match=r"Scale at `layers\.1` can't be told"):
        told = MIXED.apply(model)
    assert told(X).dtype == td.float32  # as it is written
    silent = MIXED.apply(model, where=~tree.select(Scale))
    assert silent.layers[0].dtype == td.bfloat16


@pytest.mark.parametrize("value", ["int32", "complex64", "half-ish", 3])
def test_what_is_no_dtype_of_floats(value: Any) -> None:
    with pytest.raises(ValueError, match=r"nn\.Precision: compute is a dtype of float"):
        nn.Precision(compute=value)


def test_policies_compare_and_cast_batches() -> None:
    assert nn.Precision(compute="float16") == nn.Precision(compute=np.float16)
    assert hash(MIXED) == hash(nn.Precision(compute=td.bfloat16))
    policy = nn.Precision("float32", "float16", "float64")
    batch = {"x": X, "label": np.arange(5)}
    for cast, kind in [
        (policy.cast_to_params, "float32"),
        (policy.cast_to_compute, "float16"),
        (policy.cast_to_output, "float64"),
    ]:
        assert dtypes(cast(batch)) == {"label": "int64", "x": kind}
    assert MIXED.cast_to_output(X) is X


ZOO: dict[str, Any] = {
    "GPT2": (lambda: models.GPT2(20, 8, 2, 2, key=KEYS[0]), tnp.array([[5, 6, 7]])),
    "Llama": (lambda: models.Llama(20, 8, 2, 2, 8, key=KEYS[0]), tnp.array([[5, 6]])),
    "Bert": (
        lambda: models.BertMaskedLM(models.Bert(20, 8, 2, 2, key=KEYS[0]), key=KEYS[1]),
        tnp.array([[5, 6, 7]]),
    ),
    "ViT": (lambda: models.ViT(8, 4, 8, 2, 2, 3, key=KEYS[0]), tnp.ones((2, 8, 8, 3))),
}


@pytest.mark.parametrize("name", ZOO)
def test_models_compute_in_half(name: str) -> None:
    """Forwards and backwards: all but the scores of attention, and statistics."""
    make, inputs = ZOO[name]
    model = make()
    told = nn.inference(MIXED.apply(model))

    def loss(model: Any) -> Any:
        return model(inputs).astype(tnp.float32).sum()

    grads = td.eval_shape(td.grad(loss), told)
    assert dtypes(nn.parameters(grads)) == dtypes(nn.parameters(model))
    graph = td.trace(td.grad(loss))(told)
    found = products(graph)
    assert "float32" not in found  # scores are made by an operation of their own
    assert found["bfloat16"] > 30
    # What layers hand on is of halves as well.
    _, made = nn.capture(told)(inputs)
    floats = [x.dtype for x in made.values() if td.dtypes.is_float(x.dtype)]
    assert len(floats) > 20
    assert set(floats) == {td.bfloat16}
