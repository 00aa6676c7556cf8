"""Replacing, splitting and joining parts of models."""

from __future__ import annotations

from typing import NamedTuple

import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng, tree

KEY = rng.key(0)


class Ends(NamedTuple):
    first: object
    last: object


class Model(nn.Module):
    def __init__(self):
        self.body = nn.MLP((2, 3, 4), key=KEY)
        self.table = {"norm": nn.BatchNorm(4), "list": [tnp.ones(1), nn.relu]}
        self.ends = Ends(tnp.ones(2), (tnp.zeros(2),))


PLACES = {
    "array": lambda m: m.body.layers[0].weight,
    "negative index": lambda m: m.body.layers[-1].bias,
    "module": lambda m: m.body.layers[1],
    "static": lambda m: m.body.activation,
    "dict": lambda m: m.table["list"][0],
    "static in a list": lambda m: m.table["list"][1],
    "named tuple": lambda m: m.ends.first,
    "tuple": lambda m: m.ends.last[0],
    "cell": lambda m: m.table["norm"].mean.value,
}


@pytest.mark.parametrize("name", PLACES)
def test_set_and_get(name):
    where, model = PLACES[name], Model()
    before = tree.flatten(model)
    assert nn.at(model, where).get() is where(model)
    new = tnp.full(5, 7.0)
    after = nn.at(model, where).set(new)
    assert where(after) is new and where(model) is not new
    assert tree.structure(model) == before[1]
    for other in ("array", "static", "dict", "named tuple", "tuple", "cell"):
        if other != name:
            assert PLACES[other](after) is PLACES[other](model)


def test_apply_and_several_places():
    model = Model()
    after = nn.at(model, lambda m: [x.bias for x in m.body.layers]).set((None, None))
    assert [x.bias for x in after.body.layers] == [None, None]
    again = nn.at(after, lambda m: m.body.layers[0].bias).set(tnp.ones(3))
    assert again.body.layers[0].bias.shape == (3,)
    doubled = nn.at(model, lambda m: (m.ends.first, m.ends.last[0])).apply(
        lambda x: x + 2
    )
    assert (doubled.ends.first[0].item(), doubled.ends.last[0][0].item()) == (3, 2)
    sliced = nn.at(model, lambda m: m.body.layers[:1]).apply(lambda x: None)
    assert sliced.body.layers[0] is None


BY_CLASS = {
    "isinstance": lambda m: [x for x in m.body.layers if isinstance(x, nn.Linear)],
    "class": nn.Linear,
    "field": lambda m: [x for x in m.body.layers if x.in_features >= 2],
    "field ==": lambda m: tuple(x for x in m.body.layers if x.in_features != 7),
}


@pytest.mark.parametrize("name", BY_CLASS)
def test_parts_are_told_apart_by_class_and_by_field(name):
    model = Model()
    places = nn.at(model, BY_CLASS[name])
    assert list(places.get()) == list(model.body.layers)
    after = places.apply(lambda layer: nn.Sequential(layer, nn.relu))
    assert [type(x) for x in after.body.layers] == [nn.Sequential] * 2
    assert after.body.layers[0].layers[0] is model.body.layers[0]


def test_a_class_is_found_anywhere_and_the_outer_one_counts():
    model = Model()
    assert nn.at(model, nn.State).get() == tuple(
        getattr(model.table["norm"], n) for n in ("mean", "var")
    )
    arrays = nn.at(model, td.Array).get()
    assert {id(x) for x in arrays} == {id(x) for x in tree.leaves(model)}
    nested = nn.Sequential(nn.Sequential(nn.relu), nn.relu)
    assert nn.at([nested], nn.Sequential).get() == (nested,)


def test_dicts_of_parts():
    def where(m):
        return [x for k, x in m.table.items() if k == "norm" and "list" in m.table]

    assert nn.at(Model(), where).get()[0].features == 4


def test_picking_nothing():
    model = Model()
    with pytest.raises(ValueError, match=r"(?s)where. returned an empty list.*a Model"):
        nn.at(model, lambda m: [x for x in m.body.layers if isinstance(x, nn.Conv2d)])
    with pytest.raises(ValueError, match="no GRUCell in this Model"):
        nn.at(model, nn.GRUCell)


def test_any_pytree():
    assert nn.at({"a": [1, 2]}, lambda t: t["a"][1]).set(5) == {"a": [1, 5]}
    assert nn.at((1, 2), lambda t: t).set(3) == 3


def test_inside_a_transformation():
    model = Model()

    def loss(weight):
        changed = nn.at(model, lambda m: m.body.layers[0].weight).set(weight)
        return changed.body(tnp.ones(2)).sum()

    grads = td.jit(td.grad(loss))(model.body.layers[0].weight)
    assert grads.shape == (2, 3)


def test_errors():
    model = Model()
    with pytest.raises(TypeError, match=r"`where` must return a part"):
        nn.at(model, lambda m: 3)
    with pytest.raises(ValueError, match=r"\.body and \.body\.layers\[0\], which over"):
        nn.at(model, lambda m: (m.body, m.body.layers[0]))
    with pytest.raises(ValueError, match="got 3 values for 2 places"):
        nn.at(model, lambda m: (m.body, m.ends)).set((1, 2, 3))
    with pytest.raises(AttributeError, match="has no field `nothing`"):
        nn.at(model, lambda m: m.body.nothing)


def test_partition_by_path():
    model = Model()
    chosen, rest = nn.partition(
        model, lambda path, leaf: path.startswith("body.layers.0.")
    )
    assert rest.body.layers[0].weight is None
    assert list(nn.parameters(chosen)) == [
        "body.layers.0.weight",
        "body.layers.0.bias",
    ]
    joined = nn.combine(chosen, rest)
    assert tree.structure(joined) == tree.structure(model)
    assert all(
        a is b for a, b in zip(tree.leaves(joined), tree.leaves(model), strict=True)
    )


def test_training_a_part():
    model = nn.MLP((2, 3, 1), key=KEY)
    chosen, rest = nn.partition(model, lambda path, leaf: "bias" in path)

    @td.jit
    def grads(chosen, rest):
        return td.grad(lambda c: nn.combine(c, rest)(tnp.ones(2)).sum())(chosen)

    found = grads(chosen, rest)
    assert found.layers[0].weight is None and found.layers[1].bias.tolist() == [1.0]


def test_partition_by_default_leaves_state_out():
    chosen, rest = nn.partition(nn.BatchNorm(3))
    assert chosen.mean.value is None and rest.weight is None
    assert rest.mean.value.shape == (3,)


# By path ------------------------------------------------------------------------------


def test_places_by_path():
    model = Model()
    assert nn.at(model, "body.layers.0.weight").get() is model.body.layers[0].weight
    assert nn.at(model, "body.layers[1]").get() is model.body.layers[1]
    assert nn.at(model, "body.activation").set(nn.gelu).body.activation is nn.gelu
    zero = nn.at(model, "body.layers.*.weight").apply(tnp.zeros_like)
    assert [bool(m.weight.any()) for m in zero.body.layers] == [False, False]
    assert zero.body.layers[0].bias is model.body.layers[0].bias
    none = nn.at(model, "body.**.bias").set(None)
    assert [m.bias for m in none.body.layers] == [None, None]
    both = nn.at(model, "body.layers.*.bias").set([tnp.ones(3), None])
    assert both.body.layers[0].bias.sum() == 3 and both.body.layers[1].bias is None
    # The outer one of two inside each other.
    assert nn.at(model, "body.**").get() == (model.body,)


def test_places_by_selectors_and_lists():
    model = Model()
    biases = tree.select("body.**.bias")
    for where in (biases, tree.select(nn.Linear) & biases, ["body.**.bias"]):
        found = nn.at(model, where).get()
        wanted = [m.bias for m in model.body.layers]
        assert all(a is b for a, b in zip(found, wanted, strict=True))
    parts = nn.at(model, ["body.layers.0", "body.layers.1.bias"]).get()
    assert parts == (model.body.layers[0], model.body.layers[1].bias)
    with pytest.raises(ValueError, match="overlap"):
        nn.at(model, ["body", "body.layers.1.bias"])


def test_paths_that_are_nowhere():
    with pytest.raises(ValueError, match=r"`body\.layer\.0` is no place in this Model"):
        nn.at(Model(), "body.layer.0")
    with pytest.raises(ValueError, match=r"Near it are .*body\.layers\.0\.weight"):
        nn.at(Model(), "body.layers.0.wieght")


@pytest.mark.parametrize(
    "where",
    [
        "body.**.bias",
        tree.select("body.**.bias"),
        lambda path, x: path.endswith("bias") and "body" in path,
    ],
)
def test_partition_takes_what_select_takes(where):
    chosen, rest = nn.partition(Model(), where)
    assert list(nn.parameters(chosen)) == ["body.layers.0.bias", "body.layers.1.bias"]
    grads = td.grad(lambda c: nn.combine(c, rest).body(tnp.ones(2)).sum())(chosen)
    assert list(nn.parameters(grads)) == list(nn.parameters(chosen))


def test_iterate():
    model = Model()
    found = dict(nn.iterate(model))
    assert found[""] is model and found["body.layers.1"] is model.body.layers[1]
    for path, part in nn.iterate(tree.map(lambda x: x, {"a": [model]})):
        assert path.startswith("a.0") and isinstance(part, nn.Module)
    linear = [path for path, part in nn.iterate(model) if isinstance(part, nn.Linear)]
    assert linear == ["body.layers.0", "body.layers.1"]
