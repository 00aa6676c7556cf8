"""State cells and the scope in which they are written, under every transform."""

from __future__ import annotations

import pickle
from typing import NamedTuple

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng, tree


class Counter(nn.Module):
    """Counts its calls, and remembers the sum of its inputs."""

    scale: td.Array
    calls: nn.State
    total: nn.State

    def __init__(self):
        self.scale = tnp.array(2.0)
        self.calls = nn.State(0)
        self.total = nn.State({"sum": tnp.zeros(2)})

    def __call__(self, x):
        self.calls.value = self.calls.value + 1
        self.total.value = {"sum": self.total.value["sum"] + self.scale * x}
        return self.scale * x


class Pair(nn.Module):
    """Two counters, one in a list beside a function; `share` calls one twice."""

    layers: list

    def __init__(self):
        self.layers = [Counter(), nn.relu, Counter()]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.layers[0](x)


ONES = np.ones(2, np.float32)


def calls(model):
    return [int(layer.calls.value) for layer in model.layers[::2]]


# The scope ----------------------------------------------------------------------------


@pytest.mark.parametrize("transform", [lambda f: f, td.jit])
def test_writes_are_in_the_returned_model_only(transform):
    model = Pair()
    out, after = transform(lambda m, x: nn.stateful(m)(x))(model, tnp.ones(2))
    assert out.tolist() == [8.0, 8.0]
    assert (calls(model), calls(after)) == ([0, 0], [2, 1])
    assert after.layers[0].total.value["sum"].tolist() == [10.0, 10.0]
    assert tree.structure(after) == tree.structure(model)
    _, later = nn.stateful(after)(tnp.ones(2))
    assert calls(later) == [4, 2]


def test_methods():
    class Named(Counter):
        def twice(self, x, times):
            return self(self(x)) * times

    model = Named()
    out, after = nn.stateful(model.twice)(tnp.ones(2), times=3)
    assert out.tolist() == [12.0, 12.0] and after.calls.value.item() == 2


@pytest.mark.parametrize("held", [False, True])
def test_writing_outside_of_a_scope(held):
    model = tree.map(lambda x: x, Counter()) if held else Counter()
    with pytest.raises(RuntimeError, match=r"test_state.*(?s:.*)nn\.stateful\(model"):
        model(tnp.ones(2))
    _, after = nn.stateful(model)(tnp.ones(2))
    with pytest.raises(RuntimeError, match="outside of a scope"):
        after.calls.value = 1


def test_errors_inside_close_the_scope():
    model = Counter()
    with pytest.raises(ValueError):
        nn.stateful(model)(tnp.ones(3))
    with pytest.raises(RuntimeError, match="random key"):
        nn.draw_key("layer")


def test_types_of_cells_stay():
    class Writes(nn.Module):
        def __init__(self, value, new):
            self.cell, self.new = nn.State(value), new

        def __call__(self):
            self.cell.value = self.new

    for new in (tnp.ones(3), tnp.ones(2, tnp.int32), [tnp.ones(2)]):
        with pytest.raises(ValueError, match=r"holds \[f32\[2\]\] was written with"):
            nn.stateful(Writes(tnp.ones(2), new))()
    _, after = nn.stateful(Writes(None, tnp.ones(2)))()
    assert after.cell.value.shape == (2,)


# Under transforms ---------------------------------------------------------------------


@pytest.mark.parametrize("transform", [lambda f: f, td.jit])
def test_grad(transform):
    def loss(model, x):
        out, model = nn.stateful(model)(x)
        return out.sum(), model

    take = transform(td.value_and_grad(loss, has_aux=True))
    (value, after), grads = take(Pair(), ONES)
    assert float(value) == 16.0 and calls(after) == [2, 1]
    assert [g.scale.item() for g in grads.layers[::2]] == [16.0, 8.0]
    for layer in grads.layers[::2]:
        assert layer.calls.value is None and layer.total.value == {"sum": None}


def test_no_gradient_flows_from_what_a_cell_held():
    model = Counter()

    def loss(model):
        return (model.total.value["sum"] * model.scale).sum()

    grads = td.grad(loss)(model)
    assert grads.total.value["sum"] is None
    _, linear = td.linearize(loss, model)
    tangents = tree.map(
        lambda x: tnp.ones_like(x) if x.dtype == td.float32 else None, model
    )
    assert linear(tangents).item() == 0.0


def test_what_is_written_has_gradients_inside_one_loss():
    def loss(model):
        _, model = nn.stateful(model)(ONES)
        return model.total.value["sum"].sum()

    assert td.grad(loss)(Counter()).scale.item() == 2.0


def test_vmap_inside_and_outside():
    model, xs = Counter(), tnp.ones((3, 2))
    outs, after = td.vmap(lambda x: nn.stateful(model)(x))(xs)
    assert after.calls.value.tolist() == [1, 1, 1] and outs.shape == (3, 2)
    models = td.vmap(lambda n: nn.at(model, lambda m: m.scale).set(n))(tnp.arange(3.0))
    _, after = td.vmap(lambda m, x: nn.stateful(m)(x))(models, xs)
    assert after.total.value["sum"][:, 0].tolist() == [0.0, 1.0, 2.0]


def test_scan_carries_the_model():
    def body(model, x):
        out, model = nn.stateful(model)(x)
        return model, out

    after, outs = td.scan(body, Counter(), tnp.ones((5, 2)))
    assert after.calls.value.item() == 5 and outs.shape == (5, 2)
    assert after.total.value["sum"].tolist() == [10.0, 10.0]


def test_remat_of_the_whole_call():
    def loss(model, x):
        out, model = td.remat(lambda m, x: nn.stateful(m)(x))(model, x)
        return out.sum(), model

    grads, after = td.grad(loss, has_aux=True)(Counter(), ONES)
    assert grads.scale.item() == 2.0 and after.calls.value.item() == 1


@pytest.mark.parametrize(
    "nested",
    [
        lambda layer, x: td.vmap(layer)(x),
        lambda layer, x: td.jit(lambda x: layer(x))(x),
        lambda layer, x: td.grad(lambda x: layer(x).sum())(x),
    ],
)
def test_a_transform_that_begins_inside_the_scope_may_not_write(nested):
    class Outer(nn.Module):
        inner: Counter

        def __call__(self, x):
            return nested(self.inner, x)

    with pytest.raises(RuntimeError, match=r"Call `nn\.stateful` inside"):
        nn.stateful(Outer(Counter()))(tnp.ones((1, 2)))


def test_a_cell_that_came_as_an_argument_is_closed():
    class Outer(nn.Module):
        inner: Counter

        def __call__(self, x):
            return td.jit(lambda m, x: m(x))(self.inner, x)

    with pytest.raises(RuntimeError, match="came through the arguments of jit"):
        nn.stateful(Outer(Counter()))(tnp.ones(2))


# Keys ---------------------------------------------------------------------------------


class Draws(nn.Module):
    def __call__(self, n):
        return [nn.draw_key("Draws") for _ in range(n)]


def test_draws_differ_and_repeat():
    first, _ = nn.stateful(Draws(), key=rng.key(0))(3)
    again, _ = nn.stateful(Draws(), key=rng.key(0))(3)
    other, _ = nn.stateful(Draws(), key=rng.key(1))(3)
    bits = [
        [np.asarray(rng.key_data(k)).tobytes() for k in keys]
        for keys in (first, again, other)
    ]
    assert bits[0] == bits[1]
    assert len({*bits[0], *bits[2]}) == 6


def test_draws_need_a_scope_with_a_key():
    for run in (Draws(), nn.stateful(Draws())):
        with pytest.raises(RuntimeError, match="Draws needs a random key"):
            run(1)


def test_an_inner_scope_without_key_uses_the_outer_one():
    class Outer(nn.Module):
        def __call__(self):
            mine = nn.draw_key("Outer")
            (inner,), _ = nn.stateful(Draws())(1)
            return mine, inner

    (a, b), _ = nn.stateful(Outer(), key=rng.key(0))()
    assert rng.key_data(a).tolist() != rng.key_data(b).tolist()


def test_draws_inside_a_later_transform():
    class Outer(nn.Module):
        def __call__(self, x):
            return td.vmap(lambda row: nn.Dropout(0.5)(row))(x)

    with pytest.raises(RuntimeError, match=r"(?s)same key.*rng\.split\(nn\.draw_key"):
        nn.stateful(Outer(), key=rng.key(0))(tnp.ones((2, 3)))


def test_keys_may_be_traced():
    @td.jit
    def run(key):
        return nn.stateful(nn.Dropout(0.5), key=key)(tnp.ones(100))[0]

    assert run(rng.key(0)).tolist() == run(rng.key(0)).tolist()
    assert run(rng.key(0)).tolist() != run(rng.key(1)).tolist()


# Inference ----------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self):
        self.layers = [nn.BatchNorm(2), nn.relu, (nn.Dropout(0.5), {"n": nn.relu})]
        self.head = nn.Dropout(0.1)

    def __call__(self, x):
        return self.head(self.layers[2][0](self.layers[0](x)))


def test_inference_writes_and_draws_nothing():
    model, x = Net(), tnp.ones((3, 2))
    evaluated = nn.inference(model)
    assert evaluated.layers[0].inference and evaluated.layers[2][0].inference
    assert evaluated(x).shape == (3, 2)
    assert td.jit(lambda m, x: m(x))(evaluated, x).shape == (3, 2)
    assert not model.head.inference
    back = nn.training(evaluated)
    assert tree.structure(back) == tree.structure(model)
    assert tree.structure(evaluated) != tree.structure(model)


def test_a_jitted_model_knows_its_mode():
    run = td.jit(lambda m, x: nn.stateful(m, key=rng.key(0))(x)[0])
    x = tnp.ones((3, 2))
    assert run(nn.inference(Net()), x).tolist() != run(Net(), x).tolist()


def test_cells_print_copy_and_pickle():
    model = pickle.loads(pickle.dumps(Counter()))
    assert model.total.value["sum"].tolist() == [0.0, 0.0]
    assert repr(model.calls) == "State(value=i32[])"
    paths = [tree.key_name(p) for p in tree.paths(tree.structure(model))]
    assert paths == [".scale", ".calls.value", ".total.value['sum']"]


class Point(NamedTuple):
    drop: nn.Dropout


def test_inference_reaches_into_named_tuples():
    model = nn.Sequential(nn.relu).replace(layers=Point(nn.Dropout(0.5)))
    assert nn.inference(model).layers.drop.inference
    assert nn.inference([Point(nn.Dropout(0.5))])[0].drop.inference
    assert nn.training(model) is model


def test_numbers_are_written_in_the_dtype_of_the_cell():
    class Writes(nn.Module):
        def __init__(self, value):
            self.cell = nn.State(value)

        def __call__(self, new):
            self.cell.value = new

    _, after = nn.stateful(Writes(tnp.ones((), tnp.bfloat16)))(2)
    assert td.typeof(after.cell.value) == td.typeof(tnp.ones((), tnp.bfloat16))
    with pytest.raises(ValueError, match=r"holds \[i32\[\]\] was written with \[f32"):
        nn.stateful(Writes(1))(2.5)
    with pytest.raises(ValueError, match=r"written with \[i32\[\]\] as list"):
        nn.stateful(Writes(1))([2])


def test_what_is_not_a_model():
    with pytest.raises(TypeError, match=r"stateful takes a Module.*got list"):
        nn.stateful([Counter()])


@pytest.mark.parametrize("transform", [lambda f: f, td.jit])
def test_jacobians_leave_out_what_grad_leaves_out(transform):
    layer, x = nn.BatchNorm(2), tnp.array([[1.0, 2.0], [3.0, 5.0], [0.0, 1.0]])

    def outputs(layer):
        return nn.stateful(layer)(x)[0][0]

    def loss(layer):
        return tnp.square(nn.stateful(layer)(x)[0]).sum()

    centred = np.asarray(x - x.mean(0))
    normal = np.diag((centred / np.sqrt(np.var(x, 0) + 1e-5))[0])
    for take in (td.jacfwd, td.jacrev):
        found = transform(take(outputs))(layer)
        np.testing.assert_allclose(found.weight, normal, 1e-5, 1e-6)
        assert found.mean.value is None and found.var.value is None
    found = transform(td.hessian(loss))(layer)
    np.testing.assert_allclose(found.weight.weight, 6 * np.eye(2), 1e-3)
    assert found.mean.value is None and found.weight.mean.value is None
