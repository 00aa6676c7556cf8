"""Buffers, frozen parameters and metadata."""

from __future__ import annotations

import copy
import pickle
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import checkpoint, nn, optim, rng, tree

KEY = rng.key(0)
Point = namedtuple("Point", ["x", "y"])


class Holds(nn.Module):
    def __init__(self, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(self, name, value)


class Shifted(nn.Module):
    """A buffer, a parameter with metadata, a frozen one, and layers."""

    weight: td.Array
    scale: td.Array
    shift: td.Array
    parts: list[Any]
    layer: nn.Linear

    def __init__(self) -> None:
        self.weight = tnp.array([1.0, 2.0])
        self.scale = nn.Param(tnp.array([3.0, 4.0]), decay=False, axes=("embed",))
        self.shift = nn.Buffer(tnp.array([5.0, 6.0]), unit="m")
        self.parts = [nn.Buffer(tnp.ones(2)), tnp.ones(2), nn.relu]
        self.layer = nn.Linear(2, 2, key=KEY)

    def __call__(self, x: Any) -> td.Array:
        x = self.parts[2](x * self.weight * self.scale + self.shift)
        return self.layer(x * self.parts[0] * self.parts[1])


TRAINED = ["weight", "scale", "parts.1", "layer.weight", "layer.bias"]
X = tnp.array([0.5, -2.0])


def loss(model: Any) -> td.Array:
    return (model(X) ** 2).sum()


def jax_loss(p: dict[str, Any]) -> Any:
    x = np.asarray(X) * p["weight"] * p["scale"] + p["shift"]
    x = jax.nn.relu(x) * p["parts.0"] * p["parts.1"]
    return ((x @ p["layer.weight"] + p["layer.bias"]) ** 2).sum()


def by_path(model: Any) -> dict[str, np.ndarray]:
    pairs, _ = tree.flatten_with_path(model)
    return {tree.dotted(path): np.asarray(leaf) for path, leaf in pairs}


def test_fields_read_as_arrays() -> None:
    model = Shifted()
    for x in (model.scale, model.shift, model.parts[0]):
        assert isinstance(x, td.Array)
    assert list(nn.parameters(model)) == TRAINED
    assert nn.count(model) == 2 + 2 + 2 + 6
    assert "shift         f32[2] (not trained)" in nn.summary(model)
    assert repr(model).count("f32[2]") == 6
    names = list(by_path(model))
    assert names == ["weight", "scale", "shift", "parts.0", "parts.1", *TRAINED[3:]]


def test_marked_fields_may_be_used_in_init() -> None:
    class Early(nn.Module):
        def __init__(self) -> None:
            self.table = nn.Buffer(tnp.arange(3.0))
            self.twice = 2 * self.table
            self.inside = td.grad(lambda m: m.twice.sum() + m.table.sum())(self)
            self.table = nn.Buffer(self.table + 1)

    model = Early()
    assert model.table.tolist() == [1.0, 2.0, 3.0]
    assert model.inside.table is None and model.inside.twice.tolist() == [1.0] * 3
    assert list(nn.parameters(model)) == ["twice", "inside.twice"]


def test_the_last_assignment_says_what_a_field_is() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            self.a = nn.Buffer(tnp.ones(1))
            self.a = tnp.ones(1)
            self.b = tnp.ones(1)
            self.b = nn.Buffer(tnp.ones(1))

    assert list(nn.parameters(Twice())) == ["a"]


def test_generated_constructors_and_defaults() -> None:
    class Layer(nn.Module):
        weight: td.Array
        table: td.Array = nn.Buffer(np.ones(2, np.float32))

    one = Layer(tnp.ones(2))
    pair = Holds(a=one, b=Layer(nn.Buffer(tnp.ones(2)), nn.Param(tnp.ones(2))))
    assert list(nn.parameters(pair)) == ["a.weight", "b.table"]
    # The default is not shared.
    assert len(tree.leaves(Holds(a=one, b=Layer(tnp.ones(2))))) == 4


@pytest.mark.parametrize("jitted", [False, True])
def test_gradients(jitted: bool) -> None:
    """Those of JAX in what is trained; None in what is not."""
    model = Shifted()
    wanted = jax.grad(jax_loss)(by_path(model))
    wrap = td.jit if jitted else lambda f: f
    grads = wrap(td.grad(loss))(model)
    value, pullback = td.vjp(loss, model)
    value2, grads2 = wrap(td.value_and_grad(loss))(model)
    np.testing.assert_allclose(value, jax_loss(by_path(model)), rtol=1e-6)
    np.testing.assert_array_equal(value, value2)
    for found in (grads, grads2, pullback(tnp.ones(()))[0]):
        assert list(by_path(found)) == TRAINED
        assert found.shift is None and found.parts[0] is None
        for name in TRAINED:
            np.testing.assert_allclose(
                by_path(found)[name], wanted[name], rtol=1e-5, err_msg=name
            )


def test_hessian_and_jvp() -> None:
    """Of the scale alone, the only one that is trained."""
    model = nn.freeze(Shifted(), ~tree.select("scale"))
    known = by_path(model)
    scale, ones = known["scale"], np.ones(2, np.float32)

    def of_scale(scale: Any) -> Any:
        return jax_loss(known | {"scale": scale})

    blocks = td.hessian(loss)(model)
    assert list(nn.parameters(blocks.scale)) == ["scale"]
    assert list(nn.parameters(blocks)) == ["scale.scale"]
    wanted = jax.jacfwd(jax.grad(of_scale))(scale)
    np.testing.assert_allclose(blocks.scale.scale, wanted, rtol=1e-4)
    tangent = nn.partition(tree.map(tnp.ones_like, model))[0]
    _, moved = td.jvp(loss, (model,), (tangent,))
    np.testing.assert_allclose(moved, jax.grad(of_scale)(scale) @ ones, rtol=1e-5)


OPTIMIZERS = {
    "sgd": lambda: optim.sgd(0.1, momentum=0.9),
    "adamw": lambda: optim.adamw(0.1, weight_decay=0.5),
    "average": lambda: optim.chain(optim.adamw(0.1), optim.average_parameters(0.5)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_leave_alone_what_is_not_trained(name: str) -> None:
    model = nn.freeze(Shifted(), "layer.weight")
    optimizer = OPTIMIZERS[name]()
    state = optimizer.init(model)

    @td.jit
    def step(model: Any, state: Any) -> Any:
        updates, state = optimizer.update(td.grad(loss)(model), state, model)
        return optim.apply_updates(model, updates), state

    before = by_path(model)
    for _ in range(3):
        model, state = step(model, state)
    after = by_path(model)
    changed = [n for n in before if not np.array_equal(before[n], after[n])]
    assert changed == [n for n in TRAINED if n != "layer.weight"]
    moments = [p for p, _ in tree.leaves_with_path(state)]
    said = {tree.dotted(path) for path in moments}
    assert not [s for s in said if s.endswith(("shift", "parts.0", "layer.weight"))]
    assert [s for s in said if s.endswith(("scale", "layer.bias"))]


def test_freeze_and_unfreeze() -> None:
    model = Shifted()
    frozen = nn.freeze(model)
    assert nn.parameters(frozen) == {} and nn.parameters(model) != {}
    assert list(nn.parameters(nn.unfreeze(frozen))) == TRAINED
    assert tree.structure(nn.unfreeze(frozen)) == tree.structure(model)
    assert tree.structure(frozen) != tree.structure(model)
    some = nn.freeze(model, ["layer", "parts.1"])
    assert list(nn.parameters(some)) == ["weight", "scale"]
    assert list(nn.parameters(nn.unfreeze(some, nn.Linear))) == [
        "weight",
        "scale",
        "layer.weight",
        "layer.bias",
    ]
    assert list(nn.parameters(some.layer)) == []  # wherever it goes
    assert nn.parameters(Holds(inner=[some.layer])) == {}
    for a, b in zip(tree.leaves(frozen), tree.leaves(model), strict=True):
        assert a is b
    assert nn.metadata(nn.freeze(model)) == nn.metadata(model)
    with pytest.raises(ValueError, match="selects nothing"):
        nn.freeze(model, "wieght")


@dataclass
class Record:
    a: Any
    b: Any


tree.register_dataclass(Record)

CONTENTS = {
    "array": lambda: tnp.ones(1),
    "list": lambda: [tnp.ones(1), tnp.zeros(1)],
    "mixed": lambda: [tnp.ones(1), 3, (tnp.ones(1), "x")],
    "dict": lambda: {"b": tnp.ones(1), "a": (tnp.ones(1), None)},
    "namedtuple": lambda: Point(tnp.ones(1), tnp.ones(1)),
    "dataclass": lambda: Record(tnp.ones(1), tnp.ones(1)),
    "modules": lambda: {
        "a": [Holds(x=tnp.ones(1))],
        "b": Record(Holds(z=tnp.ones(1)), None),
    },
    "none": lambda: [None, tnp.ones(1)],
}


@pytest.mark.parametrize("name", CONTENTS)
def test_freezing_part_by_part(name: str) -> None:
    """Each leaf by itself, in any container; and the way back is the same structure."""
    model = Holds(x=CONTENTS[name](), y=tnp.ones(1))
    form = tree.structure(model)
    names = [tree.dotted(path) for path in tree.paths(form)]
    alone = name != "dataclass"
    for chosen in names if alone else ["y"]:
        frozen = nn.freeze(model, chosen)
        flags = tree.constants(tree.structure(frozen))
        assert flags == [n == chosen for n in names]
        assert [tree.dotted(p) for p in tree.paths(tree.structure(frozen))] == names
        again = frozen.replace(y=frozen.y)
        assert tree.structure(again) == tree.structure(frozen)
        assert tree.structure(nn.unfreeze(frozen)) == form
    whole = nn.freeze(model, "x")
    assert tree.constants(tree.structure(whole)) == [n != "y" for n in names]
    assert tree.structure(nn.unfreeze(whole)) == form


def test_buffers_of_containers() -> None:
    for name in ("list", "dict", "namedtuple", "dataclass", "mixed"):
        made = Holds(x=nn.Buffer(CONTENTS[name]()), y=tnp.ones(1))
        flags = tree.constants(tree.structure(made))
        assert flags == [True] * (len(flags) - 1) + [False]
        assert type(made.x) is type(CONTENTS[name]())
        grads = td.grad(lambda m: sum(v.sum() for v in tree.leaves(m)))(made)
        assert list(nn.parameters(grads)) == ["y"]


def test_what_cannot_be_marked() -> None:
    layer = nn.Linear(2, 2, key=KEY)
    for bad in (layer, "text", nn.State(0)):
        with pytest.raises(TypeError, match=r"field `x` of Holds is nn\.Buffer"):
            Holds(x=nn.Buffer(bad))
    with pytest.raises(TypeError, match="inside of an object that it cannot mark"):
        Holds(x=Record(nn.Buffer(tnp.ones(1)), 1))
    with pytest.raises(TypeError, match=r"metadata axes=\['a'\] .* not hashable"):
        nn.Param(tnp.ones(1), axes=["a"])
    with pytest.raises(TypeError, match="array in a dict can't be frozen"):
        nn.freeze({"x": tnp.ones(1)})
    with pytest.raises(TypeError, match="array in a Record can't be frozen"):
        nn.freeze(Holds(x=Record(tnp.ones(1), tnp.ones(1))), "x.a")


def test_metadata() -> None:
    model = Shifted()
    assert nn.metadata(model) == {
        "scale": {"axes": ("embed",), "decay": False},
        "shift": {"unit": "m"},
    }
    mask = nn.tagged(decay=False)(model)
    assert [p for p, x in by_path(mask).items() if x] == ["scale"]
    assert not any(tree.leaves(nn.tagged(decay=True)(model)))
    optimizer = optim.chain(
        optim.add_decayed_weights(1.0, mask=~nn.tagged(decay=False)), optim.freeze()
    )
    decay = optim.add_decayed_weights(1.0, mask=~nn.tagged(decay=False))
    zero = tree.map(tnp.zeros_like, nn.partition(model)[0])
    updates, _ = decay.update(zero, decay.init(model), model)
    decayed = [p for p, x in by_path(updates).items() if x.any()]
    assert decayed == ["weight", "parts.1", "layer.weight", "layer.bias"]
    assert optimizer.init(model) is not None


def test_replacing_keeps_roles() -> None:
    model = Shifted()
    after = model.replace(shift=tnp.zeros(2), parts=[tnp.zeros(2), tnp.zeros(2), None])
    assert list(nn.parameters(after)) == TRAINED and nn.metadata(after)["shift"]
    after = nn.at(model, "shift").apply(lambda x: x * 2)
    after = nn.at(after, lambda m: m.parts[0]).set(tnp.zeros(2))
    assert list(nn.parameters(after)) == TRAINED
    after = model.replace(shift=nn.Param(model.shift), weight=nn.Buffer(model.weight))
    assert list(nn.parameters(after)) == [
        "scale",
        "shift",
        "parts.1",
        "layer.weight",
        "layer.bias",
    ]
    assert model.replace(shift=3).shift == 3
    assert list(nn.parameters(model.replace(shift=[tnp.ones(1)])))[2] == "shift.0"


def test_copies_and_pickles_and_checkpoints(tmp_path: Any) -> None:
    model = nn.freeze(Shifted(), "layer")
    form = tree.structure(model)
    for twin in (
        copy.copy(model),
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        tree.map(lambda x: x, model),
        model.replace(),
        td.jit(lambda m: m)(model),
    ):
        assert tree.structure(twin) == form
        assert tree.constants(tree.structure(twin)) == tree.constants(form)
    checkpoint.save(tmp_path / "one", Shifted())
    back = checkpoint.restore(tmp_path / "one", tree.map(tnp.zeros_like, model))
    assert tree.structure(back) == form
    for name, x in by_path(Shifted()).items():
        np.testing.assert_array_equal(by_path(back)[name], x)


def test_stacked_layers() -> None:
    """vmap makes layers with buffers; scan goes over them; gradients are JAX's."""

    class Layer(nn.Module):
        def __init__(self, key: Any) -> None:
            self.weight = rng.normal(key, (2, 2))
            self.gain = nn.Buffer(rng.normal(key, (2,)))

        def __call__(self, x: Any) -> Any:
            return tnp.tanh(x @ self.weight) * self.gain

    layers = td.vmap(Layer)(rng.split(KEY, 3))
    assert list(nn.parameters(layers)) == ["weight"]

    def run(layers: Any) -> td.Array:
        return td.scan(lambda x, layer: (layer(x), None), X, layers)[0].sum()

    def run_jax(weight: Any, gain: Any) -> Any:
        x = np.asarray(X)
        for w, g in zip(weight, gain, strict=True):
            x = jax.numpy.tanh(x @ w) * g
        return x.sum()

    wanted = jax.grad(run_jax)(np.asarray(layers.weight), np.asarray(layers.gain))
    grads = td.jit(td.grad(run))(layers)
    assert grads.gain is None
    np.testing.assert_allclose(grads.weight, wanted, rtol=1e-5)
    np.testing.assert_allclose(
        td.vmap(lambda layer: layer(X))(layers)[1],
        np.tanh(np.asarray(X) @ np.asarray(layers.weight)[1])
        * np.asarray(layers.gain)[1],
        rtol=1e-5,
    )


def test_cast() -> None:
    model = nn.Sequential(Shifted(), nn.BatchNorm(2), nn.Embedding(3, 2, key=KEY))
    half = nn.cast(model, td.bfloat16)
    dtypes = {n: x.dtype for n, x in nn.parameters(half).items()}
    assert set(dtypes.values()) == {td.bfloat16}
    assert half.layers[0].shift.dtype == td.bfloat16
    assert half.layers[1].mean.value.dtype == td.float32
    assert tree.structure(half) == tree.structure(model)
    some = nn.cast(model, "float16", where="**.bias")
    for name, x in nn.parameters(some).items():
        assert x.dtype == (np.float16 if name.endswith("bias") else np.float32)
    numbers = {"n": tnp.arange(3), "z": tnp.ones(1, complex), "x": tnp.ones(1)}
    cast = nn.cast(numbers, td.float64)
    dtypes = {name: x.dtype for name, x in cast.items()}
    assert dtypes == {"n": np.int32, "z": np.complex64, "x": np.float64}


def test_a_jitted_function_is_traced_anew_for_other_roles() -> None:
    traces = []

    @td.jit
    def f(model: Any) -> Any:
        traces.append(1)
        return td.grad(loss)(model)

    model = Shifted()
    for m in (model, nn.freeze(model, "layer"), model, nn.freeze(model, "layer")):
        f(f(m) and m)
    assert len(traces) == 2
