"""State cells and drawn keys in loops, branches and remat: as in plain Python.

All arithmetic here is exact (halves and small integers), so that compiled programs,
which may round otherwise, must give the same bits too.
"""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng, tree
from treadle.rng import key_data


class Layer(nn.Module):
    """Dropout, a running sum, and a count of the calls."""

    scale: td.Array
    drop: nn.Dropout
    total: nn.State
    calls: nn.State
    unused: nn.State

    def __init__(self):
        self.scale = tnp.array([1.0, 2.0, 0.5, 1.0])
        self.drop = nn.Dropout(0.5)
        self.total = nn.State({"sum": tnp.zeros(4)})
        self.calls = nn.State(0)
        self.unused = nn.State(tnp.ones(3))

    def __call__(self, x):
        x = 0.5 * self.drop(x * self.scale) + 1
        self.calls.value = self.calls.value + 1
        mean = 0.5 * self.total.value["sum"] + 0.5 * td.stop_gradient(x)
        self.total.value = {"sum": mean}
        return x


class Run(nn.Module):
    """A layer, called by one of the programs; draws a last key when that is done."""

    layer: Layer
    stack: nn.Dropout
    program: object

    def __call__(self, x, n):
        out = self.program(self, x, n)
        return out, key_data(nn.draw_key("Run"))


def scan_of(**options):
    def program(run, x, n):
        xs = tnp.arange(5.0)
        return td.scan(lambda x, y: (run.layer(x + y),) * 2, x, xs, **options)

    return program


def nested(run, x, n):
    def inner(x, _):
        return run.layer(x), x

    def outer(x, _):
        x, ys = td.scan(inner, run.layer(x), None, length=2)
        return run.layer(x), ys

    return td.scan(outer, x, None, length=3)


def stacked_layers(run, x, n):
    def body(x, scale):
        layer, drop = run.layer.replace(scale=scale), nn.Dropout(0.5)
        return drop(layer(x)), None

    scales = tnp.array([[1.0, 2.0, 1.0, 0.5], [0.5, 1.0, 2.0, 1.0], [1.0] * 4])
    return td.scan(body, x, scales)[0]


def a_scope_in_a_loop(run, x, n):
    """Layers that are scanned over: their cells, and the keys of the outer scope."""

    def body(x, layer):
        return nn.stateful(layer)(x)

    layers = tree.map(lambda leaf: tnp.stack([leaf, leaf]), Layer())
    out, after = td.scan(body, x, layers)
    return out, tree.leaves(after)


def fori(run, x, n):
    return td.fori_loop(0, 4, lambda i, x: run.layer(x) + i, x)


def fori_to_traced(run, x, n):
    return td.fori_loop(0, n, lambda i, x: run.layer(x) + i, x)


def while_cells(run, x, n):
    def going(x):
        return (run.layer.calls.value < n) & (run.layer.unused.value[0] == 1)

    return td.while_loop(going, run.layer, x)


def once_or_twice(run, x, first):
    return td.cond(first, run.layer, lambda x: run.layer(run.layer(x)), x)


def cond(run, x, n):
    return once_or_twice(run, once_or_twice(run, x, n > 2), n > 5)


def cond_in_scan(run, x, n):
    def body(x, i):
        return once_or_twice(run, x, i % 2 == 0), x

    return td.scan(body, x, tnp.arange(5))


def cond_in_one_branch(run, x, n):
    def body(x, i):
        return td.cond(i == n, run.layer, lambda x: x, x), None

    return td.scan(body, x, tnp.arange(5))[0]


def switch(run, x, n):
    def body(x, i):
        def write(x):
            run.layer.unused.value = run.layer.unused.value + x[0]
            return x

        return td.switch(i, [run.layer, run.layer.drop, write, lambda x: x], x), None

    return td.scan(body, x, tnp.array([2, 0, 1, 3, 1, 2]))[0]


def remat(run, x, n):
    return td.remat(run.layer)(td.remat(lambda x: run.layer.drop(x) * x)(x))


def remat_with_policy(run, x, n):
    return td.remat(run.layer, policy=td.everything_saveable)(x)


def remat_in_scan(run, x, n):
    return td.scan(lambda x, _: (td.remat(run.layer)(x), None), x, None, length=4)[0]


def scan_in_remat(run, x, n):
    @td.remat
    def block(x):
        return td.scan(lambda x, _: (run.layer(x), None), x, None, length=3)[0]

    return block(block(x))


def rows(run, x, n):
    return td.map(lambda row: run.layer(row), tnp.stack([x, 2 * x, x + 1]))


PROGRAMS = {
    "scan": scan_of(),
    "reverse": scan_of(reverse=True),
    "unroll 2": scan_of(unroll=2),
    "unroll 2, reverse": scan_of(unroll=2, reverse=True),
    "unroll": scan_of(unroll=True),
    "nested": nested,
    "stacked layers": stacked_layers,
    "scope in a loop": a_scope_in_a_loop,
    "fori_loop": fori,
    "fori_loop to n": fori_to_traced,
    "while_loop": while_cells,
    "cond": cond,
    "cond in scan": cond_in_scan,
    "cond in one branch": cond_in_one_branch,
    "switch in scan": switch,
    "remat": remat,
    "remat, policy": remat_with_policy,
    "remat in scan": remat_in_scan,
    "scan in remat": scan_in_remat,
    "map": rows,
}
FORWARD_ONLY = ("fori_loop to n", "while_loop")
X = np.array([1.0, -2.0, 3.0, 0.5], np.float32)


def run(name):
    def call(x, n, key=None):
        model = Run(Layer(), nn.Dropout(0.5), PROGRAMS[name])
        return nn.stateful(model, key=rng.key(7) if key is None else key)(x, n)

    return call


def bits(result):
    return [(np.asarray(x).dtype, np.asarray(x).tobytes()) for x in tree.leaves(result)]


def in_plain_python(function, *args):
    with td.disable_jit():
        return function(*args)


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_plain_python(name):
    wanted = bits(in_plain_python(run(name), X, 3))
    assert bits(run(name)(X, 3)) == wanted
    assert bits(td.jit(run(name))(X, 3)) == wanted
    assert bits(td.jit(run(name))(X, 3, rng.key(7))) == wanted


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in FORWARD_ONLY])
def test_gradients_are_those_of_plain_python(name):
    def loss(x, scale):
        model = Run(Layer().replace(scale=scale), nn.Dropout(0.5), PROGRAMS[name])
        (out, key), after = nn.stateful(model, key=rng.key(7))(x, 3)
        return sum([y.sum() for y in tree.leaves(out)]), (key, after)

    def take(x, scale):
        grads, rest = td.grad(loss, argnums=(0, 1), has_aux=True)(x, scale)
        return [g + 0.0 for g in grads], rest  # -0.0 is 0.0

    scale = np.array([1.0, 2.0, 0.5, 1.0], np.float32)
    wanted = bits(in_plain_python(take, X, scale))
    assert bits(take(X, scale)) == wanted
    assert bits(td.jit(take)(X, scale)) == wanted


@pytest.mark.parametrize("name", PROGRAMS)
def test_examples_of_a_vmap_are_single_calls(name):
    keys, xs, counts = rng.split(rng.key(1), 3), tnp.stack([X, X + 1, 2 * X]), [0, 3, 4]
    found = td.vmap(run(name))(xs, tnp.array(counts), keys)
    for i, n in enumerate(counts):
        one = in_plain_python(run(name), xs[i], n, keys[i])
        assert bits(tree.map(lambda leaf, i=i: leaf[i], found)) == bits(one)


def test_a_scan_draws_the_keys_of_its_loop():
    class Draws(nn.Module):
        looping: bool

        def __call__(self):
            nn.draw_key("first")

            def body(_, x):
                return None, [key_data(nn.draw_key("layer")) for _ in range(2)]

            if self.looping:
                return tree.map(
                    lambda *keys: tnp.stack(keys), *[body(None, i)[1] for i in range(3)]
                )
            return td.scan(body, None, None, length=3)[1]

    key = rng.key(0)
    found = nn.stateful(Draws(False), key=key)()[0]
    assert bits(found) == bits(nn.stateful(Draws(True), key=key)()[0])
    wanted = [key_data(rng.fold_in(key, k)) for k in range(2, 8)]
    assert np.stack(found, 1).reshape(6, 2).tolist() == np.stack(wanted).tolist()


class Norms(nn.Module):
    """BatchNorm and dropout, three times."""

    norm: nn.BatchNorm
    drop: nn.Dropout
    how: str

    def block(self, x):
        return self.drop(self.norm(x))

    def __call__(self, x):
        if self.how == "scan":
            return td.scan(lambda x, _: (self.block(x), None), x, None, length=3)[0]
        call = td.remat(self.block) if self.how == "remat" else self.block
        return call(call(call(x)))


@pytest.mark.parametrize("how", ["scan", "remat"])
def test_batch_norm_and_dropout_train_as_the_unrolled_loop(how):
    x = rng.normal(rng.key(1), (6, 4))

    def loss(model):
        out, after = nn.stateful(model, key=rng.key(2))(x)
        return (out**3).sum(), (out, after)

    def step(how):
        model = Norms(nn.BatchNorm(4), nn.Dropout(0.5), how)
        grads, (out, after) = td.grad(loss, has_aux=True)(model)
        cells = after.norm.mean.value, after.norm.var.value
        return out, cells, grads.norm.weight, grads.norm.bias

    out, cells, *grads = step(how)
    plain, plain_cells, *plain_grads = step("loop")
    assert bits((out, cells)) == bits((plain, plain_cells))
    for found, wanted in zip(grads, plain_grads, strict=True):
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)


def test_a_loop_that_never_runs_changes_nothing():
    def program(run, x, n):
        x, ys = td.scan(lambda x, _: (run.layer(x), x), x, None, length=0)
        return td.while_loop(lambda x: x[0] < -9, run.layer, x), ys

    for call in (lambda f: f(), td.jit(lambda f: f(), static="f")):
        model = Run(Layer(), nn.Dropout(0.5), program)
        (_, key), after = call(lambda m=model: nn.stateful(m, key=rng.key(0))(X, 0))
        assert int(after.layer.calls.value) == 0
        assert bits(key) == bits(key_data(rng.fold_in(rng.key(0), 1)))


def test_a_number_that_starts_as_an_int_restarts_the_draws():
    def program(run, x, n):
        def body(total, _):
            return total + rng.uniform(nn.draw_key("body")), None

        return td.scan(body, 0, None, length=3)[0]

    model = Run(Layer(), nn.Dropout(0.5), program)
    call = nn.stateful(model, key=rng.key(0))
    assert bits(call(X, 0)) == bits(in_plain_python(call, X, 0))


class Writes(nn.Module):
    cell: nn.State
    program: object

    def __call__(self, x):
        return self.program(self.cell, x)


def set_to(cell, value):
    cell.value = value
    return value


REFUSED = {
    "first value in a loop": (
        lambda cell, x: td.scan(lambda c, x: (set_to(cell, x), x), x[0], x),
        r"(?s)scan: what <lambda> changes.*goes in.*None.*comes out.*Give it a value",
    ),
    "first value in a branch": (
        lambda cell, x: td.cond(x[0] > 0, lambda x: set_to(cell, x), lambda x: x, x),
        "cond: what <lambda> changes",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_cells_need_a_value_before(name):
    program, message = REFUSED[name]
    with pytest.raises(TypeError, match=message):
        td.jit(lambda x: nn.stateful(Writes(nn.State(None), program))(x))(tnp.ones(2))


def test_remat_may_give_a_cell_its_first_value():
    def program(cell, x):
        return td.remat(lambda x: set_to(cell, x * 2))(x)

    _, after = nn.stateful(Writes(nn.State(None), program))(tnp.ones(2))
    assert after.cell.value.tolist() == [2.0, 2.0]


def test_the_condition_of_a_staged_loop_may_not_write():
    def program(cell, x):
        def going(x):
            cell.value = cell.value + 1
            return x < 3

        return td.while_loop(going, lambda x: x + 1, x)

    model = Writes(nn.State(0), program)
    with pytest.raises(RuntimeError, match="the condition going writes a state cell"):
        td.jit(lambda x: nn.stateful(model)(x))(0)


def test_looking_at_a_layer_writes_and_draws_nothing():
    def program(run, x, n):
        assert td.eval_shape(run.layer, x).shape == (4,)
        assert len(td.trace(run.layer)(x).outputs) == 1
        return run.layer(x)

    out, after = nn.stateful(Run(Layer(), None, program), key=rng.key(7))(X, 0)
    plain = Run(Layer(), None, lambda run, x, n: run.layer(x))
    assert bits((out, after)) == bits(nn.stateful(plain, key=rng.key(7))(X, 0))


def test_errors_in_a_body_leave_the_scope_as_it_was():
    def program(cell, x):
        def body(c, _):
            cell.value = c
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            td.scan(body, x, None, length=2)
        with pytest.raises(KeyError, match="mine"):
            td.remat(body)(x, 0)
        return x

    _, after = nn.stateful(Writes(nn.State(tnp.zeros(2)), program))(tnp.ones(2))
    assert after.cell.value.tolist() == [0.0, 0.0]


def test_split_and_shared_keys_under_vmap():
    class Many(nn.Module):
        drop: nn.Dropout
        shared: bool

        def __call__(self, xs):
            if self.shared:
                key = nn.draw_key("Many")
                return td.vmap(lambda x: nn.stateful(self.drop, key=key)(x)[0])(xs)
            keys = rng.split(nn.draw_key("Many"), len(xs))
            return td.vmap(lambda x, k: nn.stateful(self.drop, key=k)(x)[0])(xs, keys)

    xs = tnp.ones((3, 50))
    split = nn.stateful(Many(nn.Dropout(0.5), False), key=rng.key(0))(xs)[0]
    shared = nn.stateful(Many(nn.Dropout(0.5), True), key=rng.key(0))(xs)[0]
    assert len({row.tobytes() for row in np.asarray(split)}) == 3
    assert len({row.tobytes() for row in np.asarray(shared)}) == 1
