"""Module: creation, freezing, flattening, repr."""

from __future__ import annotations

import copy
import inspect
import pickle
import sys
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, tree


class Affine(nn.Module):
    weight: td.Array
    bias: td.Array | None = None
    power: int = 1

    def __call__(self, x):
        return x * self.weight**self.power


class Stack(nn.Module):
    """Every kind of field."""

    label: ClassVar[str] = "a constant of the class"
    first: Affine
    layers: list[Any]
    table: dict[str, Any]
    activation: Callable[..., Any]

    def __init__(self, scale: float = 2.0) -> None:
        self.sizes = (3, 4)
        self.first = Affine(tnp.ones(3) * scale)
        self.layers = [Affine(tnp.ones(2)), nn.relu, Affine(tnp.zeros(2)), 7]
        self.table = {"b": tnp.ones(1), "a": tnp.zeros(1), "name": "x"}
        self.activation = nn.relu
        self.numbers = [1, 2, 3]
        self.scale = np.sqrt(scale)


class Pair(NamedTuple):
    array: Any
    flag: Any


# Creation -----------------------------------------------------------------------------


def test_fields_by_annotation():
    layer = Affine(tnp.ones(2), power=3)
    assert (layer.power, layer.bias) == (3, None)
    with pytest.raises(TypeError, match="weight"):
        Affine()
    assert list(inspect.signature(Affine).parameters) == ["weight", "bias", "power"]


def test_inheritance():
    class Named(Affine):
        name: str = "n"

    class Written(Affine):
        def __init__(self, n):
            super().__init__(tnp.ones(n), power=n)
            self.extra = n

    class Inherits(Written):
        pass

    assert Named(tnp.ones(1), None, 2, "m").name == "m"
    assert Inherits(3).extra == Inherits(3).power == 3


def test_abstract_methods():
    class Base(nn.Module):
        @abstractmethod
        def __call__(self, x): ...

    class Real(Base):
        def __call__(self, x):
            return x

    with pytest.raises(TypeError, match="abstract"):
        Base()
    assert Real()(1) == 1


def test_forgotten_field():
    class Forgets(nn.Module):
        weight: td.Array

        def __init__(self) -> None:
            pass

    with pytest.raises(TypeError, match="field `weight` without a value"):
        Forgets()


def test_static_fields_must_be_hashable():
    class Holds(nn.Module):
        value: Any

    with pytest.raises(TypeError, match=r"field `value` of Holds .* not hashable"):
        Holds({1, 2})
    layer = Affine(tnp.ones(2))
    with pytest.raises(TypeError, match="method of the module Affine"):
        Holds(layer.__call__)


def test_transformations_inside_init():
    class Early(nn.Module):
        def __init__(self) -> None:
            self.weight = tnp.ones(2)
            self.twice = td.jit(Early.double)(self)

        @staticmethod
        def double(module):
            return module.weight * 2

    assert Early().twice.tolist() == [2.0, 2.0]


# Frozen -------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [Stack, lambda: tree.map(lambda x: x, Stack())])
def test_assignment_is_an_error_that_shows_replace(made):
    module = made()
    with pytest.raises(AttributeError, match=r"replace\(activation=\.\.\.\)"):
        module.activation = nn.gelu
    with pytest.raises(AttributeError, match="frozen"):
        del module.activation
    with pytest.raises(AttributeError, match=r"test_module\.py:\d+"):
        module.new = 1


def test_unknown_field():
    with pytest.raises(AttributeError, match=r"Affine has no field `wieght`.*weight"):
        _ = Affine(tnp.ones(1)).wieght
    with pytest.raises(TypeError, match="no field `wieght`"):
        Affine(tnp.ones(1)).replace(wieght=1)


def test_a_property_that_fails_says_why():
    class Broken(nn.Module):
        @property
        def size(self):
            return self.wieght.shape

    with pytest.raises(AttributeError, match=r"has no field `wieght`"):
        _ = Broken().size


def test_replace():
    before = Stack()
    after = before.replace(activation=nn.gelu, sizes=(1,))
    assert after.activation is nn.gelu and before.activation is nn.relu
    assert after.first is before.first
    assert tree.structure(after) != tree.structure(before)
    assert tree.structure(after.replace(activation=nn.relu, sizes=(3, 4))) == (
        tree.structure(before)
    )


# Flattening ---------------------------------------------------------------------------


def test_leaves_and_paths():
    pairs, form = tree.flatten_with_path(Stack())
    assert [tree.key_name(path) for path, _ in pairs] == [
        ".first.weight",
        ".layers[0].weight",
        ".layers[2].weight",
        ".table['a']",
        ".table['b']",
    ]
    assert form == tree.structure(Stack(2.0)) != tree.structure(Stack(3.0))
    assert hash(form) == hash(tree.structure(Stack()))


@pytest.mark.parametrize("leaf", [None, 1, object(), (1, 2), {"k": None}])
def test_roles_survive_any_leaves(leaf):
    """What was a child stays one, whatever stands there."""
    module = Stack()
    other = tree.map(lambda x: leaf, module)
    assert other.layers[1] is nn.relu and other.layers[3] == 7
    assert other.table["name"] == "x" and other.numbers == [1, 2, 3]
    assert other.first.weight is leaf
    back = tree.map(lambda x, old: x, module, other)
    assert tree.structure(back) == tree.structure(module)


def test_subtrees_can_be_replaced():
    form = tree.structure(Stack(), is_leaf=lambda x: isinstance(x, Affine))
    mask = form.unflatten(range(form.count))
    assert (mask.first, mask.layers) == (0, [1, nn.relu, 2, 7])
    assert tree.leaves(mask) == list(range(form.count))


def test_numbers_that_are_equal_are_different_programs():
    forms = {tree.structure(Affine(tnp.ones(1), None, p)) for p in (1, 1.0, True)}
    assert len(forms) == 3
    sizes = {tree.structure(Stack().replace(sizes=s)) for s in ((1, 2), (1.0, 2))}
    assert len(sizes) == 2


def test_named_tuples_with_static_entries():
    module = Affine(Pair(tnp.ones(1), "flag"))
    (path,) = tree.paths(tree.structure(module))
    assert tree.key_name(path) == ".weight.array"
    assert tree.map(lambda x: 0, module).weight == Pair(0, "flag")


def test_containers_changed_in_place_are_seen():
    module = Stack()
    module.layers.append(nn.relu)
    with pytest.raises(ValueError, match="changed in place"):
        tree.leaves(module)
    plain = Affine([tnp.ones(1)])
    plain.weight.append(tnp.zeros(1))
    assert len(tree.leaves(plain)) == 2


def test_held_modules_are_not_taken_apart():
    """Between two transformations a module is a list of leaves."""
    leaves, form = tree.flatten(Stack())
    held = form.unflatten(leaves)
    assert vars(held) == {}
    again, form_again = tree.flatten(held)
    assert form_again is form and [id(x) for x in again] == [id(x) for x in leaves]
    assert held.first.weight is leaves[0]
    assert list(vars(held)) == list(vars(Stack()))
    held.table["more"] = 1
    with pytest.raises(ValueError, match="changed in place"):
        tree.leaves(held)


def test_class_attributes_do_not_hide_fields():
    class Shadowed(nn.Module):
        rate = 0.5

        def __init__(self, rate):
            self.rate = rate
            self.weight = tnp.ones(1)

    moved = tree.map(lambda x: x, Shadowed(0.1))
    assert moved.rate == 0.1
    moved = tree.map(lambda x: x, Affine(tnp.ones(1), power=5))
    assert moved.power == 5


def test_own_getattr():
    class Dynamic(nn.Module):
        def __init__(self):
            self.weight = tnp.ones(1)

        def __getattr__(self, name):
            return name

    moved = tree.map(lambda x: x, Dynamic())
    assert moved.anything == "anything" and moved.weight.tolist() == [1.0]


def test_numpy_arrays_are_leaves_and_scalars_static():
    module = Affine(np.ones(2), None, np.float32(2))
    assert len(tree.leaves(module)) == 1
    assert tree.map(lambda x: x, module).power == 2


# Use ----------------------------------------------------------------------------------


def test_gradients_are_modules():
    module, x = Affine(tnp.array([1.0, 2.0]), power=2), tnp.array([3.0, 4.0])
    grads = td.grad(lambda m: m(x).sum())(module)
    assert isinstance(grads, Affine)
    assert grads.weight.tolist() == [6.0, 16.0]
    assert grads.bias is None and grads.power == 2


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_jit_retraces_for_static_fields_only():
    traces = []

    @td.jit
    def run(module, x):
        traces.append(module.power)
        return module(x)

    x = tnp.ones(2)
    for module in (
        Affine(tnp.ones(2), power=2),
        Affine(tnp.zeros(2), power=2),
        Affine(tnp.ones(2), power=3),
    ):
        run(module, x)
        run(tree.map(lambda w: w + 1, module), x)
    assert traces == [2, 3]


def test_jitted_methods():
    class Layer(nn.Module):
        weight: td.Array

        @td.jit
        def __call__(self, x):
            return self.weight * x

    layer = Layer(tnp.array([1.0, 2.0]))
    assert layer(tnp.ones(2)).tolist() == [1.0, 2.0]
    assert td.grad(lambda m: m(1.0).sum())(layer).weight.tolist() == [1.0, 1.0]


def test_vmap_over_models():
    models = Affine(tnp.array([[1.0], [2.0]]))
    out = td.vmap(lambda m, x: m(x), in_axes=(0, None))(models, tnp.ones(1))
    assert out.tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.loads])
def test_copies(copied):
    module = tree.map(lambda x: x, Stack())
    other = copied(pickle.dumps(module) if copied is pickle.loads else module)
    assert tree.structure(other) == tree.structure(module)
    assert other.first.weight.tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(AttributeError, match="frozen"):
        other.first = None


def test_identity():
    a, b = Affine(tnp.ones(1)), Affine(tnp.ones(1))
    assert a != b and a == a and len({a, b}) == 2


def test_repr():
    module = tree.map(lambda x: x, Stack())
    assert repr(module.first) == "Affine(weight=f32[3], bias=None, power=1)"
    assert repr(module) == (
        "Stack(\n"
        "  sizes=(3, 4),\n"
        "  first=Affine(weight=f32[3], bias=None, power=1),\n"
        "  layers=[\n"
        "    Affine(weight=f32[2], bias=None, power=1),\n"
        "    relu,\n"
        "    Affine(weight=f32[2], bias=None, power=1),\n"
        "    7,\n"
        "  ],\n"
        "  table={'a': f32[1], 'b': f32[1], 'name': 'x'},\n"
        "  activation=relu,\n"
        "  numbers=[1, 2, 3],\n"
        "  scale=np.float64(1.4142135623730951),\n"
        ")"
    )


def test_making_a_module_is_cheap():
    weight, calls = tnp.ones(1), []
    sys.setprofile(lambda frame, event, _: calls.append(event))
    try:
        Affine(weight)
    finally:
        sys.setprofile(None)
    assert calls.count("call") < 150


# Checks -------------------------------------------------------------------------------


def test_checks_of_all_classes_run_after_init():
    order = []

    class Base(nn.Module):
        size: int

        def __check_init__(self):
            order.append("base")
            if self.size < 1:
                raise ValueError(f"size is positive, got {self.size}")

    class Middle(Base):
        pass

    class Last(Middle):
        def __init__(self, size):
            self.size = size
            order.append("init")

        def __check_init__(self):
            order.append("last")
            with pytest.raises(AttributeError, match="frozen"):
                self.size = 3

    assert Last(2).size == 2 and order == ["init", "base", "last"]
    order.clear()
    tree.map(lambda x: x, Last(2).replace(size=0))
    assert order == ["init", "base", "last"]
    for make in (Base, Middle, Last):
        with pytest.raises(ValueError, match="size is positive, got 0"):
            make(0)
