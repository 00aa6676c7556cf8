"""What stands in two places of a model is one, with JAX for the gradients."""

from __future__ import annotations

import copy
import pickle
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treadle as td
import treadle.numpy as tnp
from treadle import checkpoint, nn, optim, rng, tree
from treadle.nn.module import fields_of

KEY = rng.key(0)
Point = namedtuple("Point", ["x", "y"])


class Holds(nn.Module):
    def __init__(self, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(self, name, value)


@tree.register_dataclass
@dataclass(frozen=True)
class Record:
    a: Any
    b: Any


def linear() -> nn.Linear:
    return nn.Linear(2, 2, key=KEY)


def cell() -> nn.State:
    return nn.State(tnp.ones(2))


PLACES = {
    "fields": (lambda x: {"one": x, "two": x}, "one", "two"),
    "list": (lambda x: {"items": [x, nn.relu, x]}, "items.0", "items.2"),
    "plain list": (lambda x: {"items": [x, x]}, "items.0", "items.1"),
    "tuple": (lambda x: {"one": (1, x), "two": (x, 2)}, "one.1", "two.0"),
    "namedtuple": (lambda x: {"pair": Point(x, x)}, "pair.x", "pair.y"),
    "dict": (lambda x: {"d": {"b": x, "a": x}}, "d.a", "d.b"),
    "dataclass": (lambda x: {"d": Record(x, x)}, "d.a", "d.b"),
    "deep": (
        lambda x: {"one": Holds(layers=[x]), "two": {"a": (x,), "n": 1}},
        "one.layers.0",
        "two.a.0",
    ),
    "deeper": (
        lambda x: {"a": Holds(b=Holds(c=x)), "d": Holds(e=Holds(f=[x, 3]))},
        "a.b.c",
        "d.e.f.0",
    ),
    "inside first": (lambda x: {"outer": Holds(x=x), "alone": x}, "outer.x", "alone"),
    "inside other": (lambda x: {"alone": x, "outer": Holds(x=x)}, "alone", "outer.x"),
}
EACH = pytest.mark.parametrize("where", PLACES)
KINDS = {"layer": linear, "cell": cell, "norm": lambda: nn.BatchNorm(2)}


def get(node: Any, path: str) -> Any:
    """What stands at a place, by Python's own means."""
    for name in path.split("."):
        if isinstance(node, list) or (isinstance(node, tuple) and name.isdigit()):
            node = node[int(name)]
        elif isinstance(node, dict):
            node = node[name]
        else:
            node = getattr(node, name)
    return node


@EACH
@pytest.mark.parametrize("kind", KINDS)
def test_one_in_two_places(where: str, kind: str) -> None:
    make, first, second = PLACES[where]
    shared = KINDS[kind]()
    model = Holds(**make(shared))
    names = [tree.dotted(p) for p in tree.paths(tree.structure(model))]
    own = [tree.dotted(p) for p in tree.paths(tree.structure(shared))]
    assert names == [f"{first}.{name}" for name in own]
    assert nn.count(model) == nn.count(shared)
    after: Any = model
    for change in (
        lambda m: m,
        lambda m: tree.map(lambda x: x * 2, m),
        td.jit(lambda m: tree.map(lambda x: x * 2, m)),
        td.jit(lambda m: tree.map(lambda x: x * 2, m)),
        copy.copy,
        copy.deepcopy,
        lambda m: pickle.loads(pickle.dumps(m)),
        lambda m: m.replace(),
        nn.inference,
        nn.training,
        nn.freeze,
        nn.unfreeze,
        lambda m: nn.cast(m, td.float32),
        lambda m: nn.combine(*nn.partition(m)),
        lambda m: td.vmap(lambda m, _: m, in_axes=(None, 0), out_axes=None)(
            m, tnp.ones(3)
        ),
    ):
        after = change(after)
        assert get(after, first) is get(after, second)
        assert len(tree.leaves(after)) == len(own)
        assert tree.structure(change(model)) == tree.structure(change(model))
    for x, y in zip(tree.leaves(after), tree.leaves(model), strict=True):
        np.testing.assert_array_equal(x, y * 8)
    assert tree.structure(after) == tree.structure(model)


class Twice(nn.Module):
    """A shared layer, deep in two parts, with one of its own between."""

    encoder: Any
    middle: nn.Linear
    decoder: Any

    def __init__(self) -> None:
        shared = linear()
        self.encoder = Holds(layers=[shared])
        self.middle = nn.Linear(2, 2, key=rng.key(1))
        self.decoder = Holds(last=shared)

    def __call__(self, x: Any) -> Any:
        x = tnp.tanh(self.encoder.layers[0](x))
        return self.decoder.last(tnp.tanh(self.middle(x)))


X = tnp.array([0.5, -2.0])


def loss(model: Any) -> Any:
    return (model(X) ** 2).sum()


def jax_loss(p: dict[str, Any]) -> Any:
    np_ = jax.numpy
    x = np_.tanh(np.asarray(X) @ p["shared.weight"] + p["shared.bias"])
    x = np_.tanh(x @ p["middle.weight"] + p["middle.bias"])
    return ((x @ p["shared.weight"] + p["shared.bias"]) ** 2).sum()


def named(model: Any) -> dict[str, np.ndarray]:
    pairs, _ = tree.flatten_with_path(model)
    return {
        tree.dotted(path).replace("encoder.layers.0", "shared"): np.asarray(x)
        for path, x in pairs
    }


@pytest.mark.parametrize("jitted", [False, True])
def test_gradients_add_up_and_training_is_jax(jitted: bool) -> None:
    model, params = Twice(), named(Twice())
    optimizer = optim.sgd(0.1, momentum=0.9)
    state = optimizer.init(model)

    def step(model: Any, state: Any) -> Any:
        grads = td.grad(loss)(model)
        updates, state = optimizer.update(grads, state, model)
        return grads, optim.apply_updates(model, updates), state

    run = td.jit(step) if jitted else step
    velocity = {name: np.zeros_like(x) for name, x in params.items()}
    for _ in range(3):
        wanted = jax.grad(jax_loss)(params)
        grads, model, state = run(model, state)
        assert grads.encoder.layers[0] is grads.decoder.last
        for name, x in named(grads).items():
            np.testing.assert_allclose(x, wanted[name], rtol=2e-5, atol=1e-6)
        velocity = {n: 0.9 * velocity[n] + np.asarray(wanted[n]) for n in params}
        params = {n: params[n] - 0.1 * velocity[n] for n in params}
    for name, x in named(model).items():
        np.testing.assert_allclose(x, params[name], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(loss(model), jax_loss(params), rtol=1e-4)


@EACH
@pytest.mark.parametrize("side", [1, 2])
def test_surgery_on_either_place_changes_both(where: str, side: int) -> None:
    make, first, second = PLACES[where]
    model, path = Holds(**make(linear())), PLACES[where][side]
    for held in (model, tree.map(lambda x: x, model)):
        whole = nn.at(held, path).set(nn.Linear(2, 5, key=KEY))
        part = nn.at(held, f"{path}.bias").apply(lambda b: b + 1)
        gone = nn.at(held, f"{path}.bias").set(None)
        other = nn.at(held, path).set(nn.relu)
        assert get(other, first) is get(other, second) is nn.relu
        for after in (whole, part, gone):
            assert get(after, first) is get(after, second)
            count = len(tree.leaves(get(after, first)))
            assert len(tree.leaves(after)) == count
            again = tree.map(lambda x: x, after)
            assert get(again, first) is get(again, second)
        assert get(whole, first).out_features == 5
        np.testing.assert_array_equal(
            get(part, second).bias, get(model, first).bias + 1
        )
        scaled = nn.at(held, nn.Linear).apply(lambda m: m.replace(weight=2 * m.weight))
        np.testing.assert_array_equal(
            get(scaled, second).weight, 2 * get(model, first).weight
        )
        assert len(tree.leaves(scaled)) == 2


def test_one_place_alone() -> None:
    model = tree.map(lambda x: x, Twice())
    apart = model.replace(decoder=model.decoder.replace(last=linear()))
    assert len(tree.leaves(apart)) == 6
    again = apart.replace(decoder=Holds(last=apart.encoder.layers[0]))
    assert len(tree.leaves(again)) == 4
    assert tree.structure(again) == tree.structure(model)
    # Taken out, each part is whole.
    assert len(tree.leaves(model.decoder)) == len(tree.leaves(model.encoder)) == 2
    joined = Holds(a=model.decoder, b=model.encoder)
    assert len(tree.leaves(joined)) == 2
    again = tree.map(lambda x: x, joined)
    assert again.b.layers[0] is again.a.last


def test_many_places_and_parts_of_parts() -> None:
    inner = linear()
    outer = Holds(inner=inner, again=inner, more=tnp.ones(1))
    model = Holds(a=inner, b=[outer, outer], c=Holds(d=outer.replace(more=3), e=inner))
    for m in (model, tree.map(lambda x: x * 1, model), td.jit(lambda m: m)(model)):
        assert len(tree.leaves(m)) == 3
        inners = [m.a, m.b[0].inner, m.b[1].again, m.c.d.inner, m.c.d.again, m.c.e]
        assert all(x is m.a for x in inners) and m.b[0] is m.b[1]
    changed = nn.at(model, "c.d.again.bias").set(tnp.zeros(2))
    assert changed.b[1].inner.bias.tolist() == [0.0, 0.0]
    assert len(tree.leaves(changed)) == 3
    paths = [path for path, _ in nn.iterate(model)]
    assert paths == ["", "a", "b.0", "c", "c.d"]


def test_params_in_two_fields() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            table = nn.Param(rng.normal(KEY, (3, 2)), axes=("vocab", None))
            self.embed = Holds(table=table)
            self.out = Holds(table=table, both=[table, tnp.ones(1)])
            self.own = table

        def __call__(self, x: Any) -> Any:
            return (self.embed.table[x] @ self.out.table.T) * self.own.sum()

    model = Tied()
    known = np.asarray(model.own)

    def jax_call(table: Any) -> Any:
        return ((table[np.array([0, 2])] @ table.T) * table.sum()).sum()

    wanted = jax.grad(jax_call)(known)
    for m in (model, tree.map(lambda x: x, model), model.replace(), nn.freeze(model)):
        assert m.embed.table is m.out.table is m.out.both[0] is m.own
        names = [tree.dotted(p) for p in tree.paths(tree.structure(m))]
        assert names == ["embed.table", "out.both.1"]
        assert nn.metadata(m) == {"embed.table": {"axes": ("vocab", None)}}
        again = td.jit(lambda m: m)(m.replace(own=m.own))
        assert tree.structure(again) == tree.structure(m)
    grads = td.jit(td.grad(lambda m: m(tnp.array([0, 2])).sum()))(model)
    np.testing.assert_allclose(grads.own, wanted, rtol=1e-5)
    assert grads.own is grads.embed.table
    moved = nn.at(model, "out.both.0").set(tnp.zeros((3, 2)))
    assert moved.embed.table is moved.own and not moved.own.any()
    moved = nn.at(tree.map(lambda x: x, model), "own").apply(lambda x: x + 1)
    assert len(tree.leaves(moved)) == 2 and moved.out.table is moved.own
    twins = copy.deepcopy(model)
    assert twins.own is twins.out.table


def test_plain_arrays_in_two_fields_are_two() -> None:
    array = tnp.ones(2)
    model = Holds(one=array, two=[array], three=Holds(x=array))
    assert len(tree.leaves(model)) == 3
    tied = Holds(one=nn.Param(array), two=nn.Param(array))
    assert len(tree.leaves(tied)) == 2
    drop = nn.Dropout(0.5)
    assert tree.structure(Holds(one=drop, two=drop)) == tree.structure(
        Holds(one=drop, two=nn.Dropout(0.5))
    )


def test_state_in_two_places() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            self.calls = nn.State(0)
            self.parts = [Holds(calls=self.calls)]

        def __call__(self) -> Any:
            self.calls.value = self.calls.value + 1
            self.parts[0].calls.value = self.parts[0].calls.value + 10
            return self.calls.value

    model = Counts()
    for _ in range(2):
        out, model = td.jit(lambda m: nn.stateful(m)())(model)
    assert int(out) == int(model.parts[0].calls.value) == 22
    norm = nn.BatchNorm(2)
    twice = nn.Sequential(norm, norm)
    x = rng.normal(KEY, (8, 2))
    _, after = nn.stateful(twice)(x)
    _, once = nn.stateful(norm)(x)
    _, wanted = nn.stateful(once)(nn.stateful(norm)(x)[0])
    np.testing.assert_allclose(after.layers[1].mean.value, wanted.mean.value, atol=1e-6)
    quiet = nn.inference(after)
    assert quiet.layers[0] is quiet.layers[1] and quiet.layers[0].inference


def test_vmap_scan_and_checkpoints(tmp_path: Any) -> None:
    stacked = td.vmap(
        lambda key: nn.at(Twice(), "middle").set(nn.Linear(2, 2, key=key))
    )(rng.split(KEY, 3))
    assert len(tree.leaves(stacked)) == 4
    out = td.scan(lambda x, m: (m(x), m.decoder.last.bias), X, stacked)[0]
    wanted = X
    for i in range(3):
        wanted = tree.map(lambda x, i=i: x[i], stacked)(wanted)
    np.testing.assert_allclose(out, wanted, rtol=1e-5)
    checkpoint.save(tmp_path / "one", Twice())
    zeros = tree.map(tnp.zeros_like, Twice())
    back = checkpoint.restore(tmp_path / "one", zeros)
    assert back.encoder.layers[0] is back.decoder.last
    np.testing.assert_array_equal(back(X), Twice()(X))


def test_calls_with_ties_are_read_without_flattening(monkeypatch: Any) -> None:
    """Also where a model was opened, and where it is in a plain list."""
    model = Twice()
    f = td.jit(lambda m, x: m(x))
    inner = linear()
    g = td.jit(lambda m, x: m.items[1](m.items[0](x)))
    listed = Holds(items=[inner, inner])
    calls = ((f, model), (f, tree.map(lambda x: x, model)), (g, listed))
    results = [h(m, X) for h, m in calls for _ in range(2)]

    def never(*_: Any) -> Any:
        raise AssertionError("flattened")

    monkeypatch.setattr("treadle.nn.field.Layout.take", never)
    for k, (h, m) in enumerate(calls):
        np.testing.assert_array_equal(h(m, X), results[2 * k])


def test_either_place_is_selected() -> None:
    model = Twice()
    shared = {"encoder.layers.0.weight", "encoder.layers.0.bias"}
    for what in (
        "decoder",
        "decoder.last",
        "encoder",
        "encoder.layers",
        ["decoder.last.bias", "encoder.layers.0.weight"],
        tree.select("decoder.**.weight") | "**.0.bias",
        lambda path, x: path.startswith("encoder"),
        ~tree.select("middle"),
    ):
        frozen = nn.freeze(model, what)
        assert set(nn.parameters(model)) - set(nn.parameters(frozen)) == shared
        chosen, _ = nn.partition(model, what)
        assert set(nn.parameters(chosen)) == shared
    outer = Holds(inner=[model], layer=model.middle)
    assert list(nn.parameters(nn.partition(outer, "inner.0.decoder.last")[0])) == [
        "inner.0.encoder.layers.0.weight",
        "inner.0.encoder.layers.0.bias",
    ]
    assert list(nn.parameters(nn.partition(outer, "layer.bias")[0])) == [
        "inner.0.middle.bias"
    ]
    with pytest.raises(ValueError, match=r"decoder\.last\.bias"):
        nn.freeze(model, "decoder.last.biass")


# Any nest -----------------------------------------------------------------------------

numbers = st.integers(0, 3)
nests = st.recursive(
    numbers,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        st.builds(Point, inner, inner),
        st.dictionaries(st.sampled_from("xyz"), inner, max_size=3).map(
            lambda d: ("module", d)
        ),
    ),
    max_leaves=10,
)


def built(nest: Any, pool: list[Any]) -> Any:
    """The nest with layers of the pool, and now and then a module that was there."""
    if isinstance(nest, int):
        return pool[nest]
    if isinstance(nest, tuple) and nest and nest[0] == "module":
        inner = {k: built(v, pool) for k, v in nest[1].items()}
        made = Holds(**inner)
        if len(inner) > 1:
            pool[0] = made
        return made
    if isinstance(nest, dict):
        return {k: built(v, pool) for k, v in nest.items()}
    items = [built(x, pool) for x in nest]
    return Point(*items) if isinstance(nest, Point) else type(nest)(items)


def objects(node: Any) -> list[int]:
    """The identities of all modules with arrays, in the order of their places."""
    if isinstance(node, nn.Module):
        inside = [] if isinstance(node, nn.Linear) else objects(fields_of(node))
        full = any(isinstance(m, nn.Linear) for _, m in nn.iterate(node))
        return ([id(node)] if full else []) + inside
    if isinstance(node, dict):
        return [i for _, x in sorted(node.items()) for i in objects(x)]
    if isinstance(node, list | tuple):
        return [i for x in node for i in objects(x)]
    return []


def pattern(node: Any) -> list[int]:
    """Which of the places hold the same."""
    found = objects(node)
    return [found.index(i) for i in found]


@given(nests)
@settings(max_examples=25, deadline=None)
def test_any_nest(nest: Any) -> None:
    model = Holds(content=built(nest, [linear() for _ in range(4)]))
    layers = {id(m) for _, m in nn.iterate(model) if isinstance(m, nn.Linear)}
    assert len(tree.leaves(model)) == 2 * len(layers)
    for change in (
        lambda m: tree.map(lambda x: x, m),
        lambda m: m.replace(),
        copy.deepcopy,
        nn.freeze,
        lambda m: tree.unflatten(tree.structure(m), tree.leaves(m)),
        lambda m: tree.map(lambda x: x, Holds(outer=[m])).outer[0],
    ):
        after = change(model)
        assert pattern(after) == pattern(model)
        assert tree.structure(change(after)) == tree.structure(after)
    if not layers:
        return
    scaled = nn.at(model, nn.Linear).apply(lambda m: m.replace(bias=m.bias + 1))
    assert pattern(scaled) == pattern(model)
    for _, layer in nn.iterate(scaled):
        if isinstance(layer, nn.Linear):
            np.testing.assert_array_equal(layer.bias, linear().bias + 1)
