"""Functions of whole pytrees, with JAX's as the oracle."""

from __future__ import annotations

import inspect
import sys
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.flatten_util
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.refused import refused
from treadle import nn, rng, tree
from treadle.errors import StructureError


class Pair(NamedTuple):
    a: Any
    b: Any


TREES: dict[str, Any] = {
    "leaf": 3,
    "none": None,
    "empty": {},
    "nested": {"b": [1, (2, None)], "a": Pair(3, {"c": 4})},
    "dicts": (OrderedDict(z=1, a=2), defaultdict(int, y=3)),
    "lists": [[], [[]], [5]],
}
EACH = pytest.mark.parametrize("x", TREES.values(), ids=TREES.keys())


@EACH
def test_reduce_and_all(x: Any) -> None:
    for start in ((), (100,)):
        try:
            wanted = jax.tree.reduce(lambda a, b: 2 * a + b, x, *start)
        except TypeError:
            refused(
                lambda x=x: tree.reduce(lambda a, b: a + b, x),
                TypeError,
                "without leaves",
                "initializer",
            )
        else:
            assert tree.reduce(lambda a, b: 2 * a + b, x, *start) == wanted
    for threshold in (0, 3):
        flags = tree.map(lambda n, t=threshold: n > t, x)
        assert tree.all(flags) is jax.tree.all(flags)
    pairs = [(1, 2), (3, 4)]
    is_leaf = lambda t: isinstance(t, tuple)  # noqa: E731
    assert tree.reduce(lambda a, b: a + b, pairs, is_leaf=is_leaf) == (1, 2, 3, 4)
    assert tree.all([(), (0,)], is_leaf=is_leaf) is False
    assert tree.all([(0,)], is_leaf=is_leaf) is True


@EACH
def test_counts(x: Any) -> None:
    ours, theirs = tree.structure(x), jax.tree.structure(x)
    assert (ours.num_leaves, ours.num_nodes) == (theirs.num_leaves, theirs.num_nodes)
    assert hash(ours) == hash(tree.structure(tree.map(lambda n: n + 1, x)))


@EACH
def test_leaves_with_path(x: Any) -> None:
    ours = [(tree.key_name(p), v) for p, v in tree.leaves_with_path(x)]
    theirs = jax.tree.leaves_with_path(x)
    assert ours == [(jax.tree_util.keystr(p) or "<root>", v) for p, v in theirs]


def test_is_leaf_of_what_has_paths() -> None:
    is_leaf = lambda t: isinstance(t, tuple)  # noqa: E731
    x = {"a": (1, 2), "b": [3]}
    named = tree.map_with_path(lambda p, v: (p, v), x, is_leaf=is_leaf)
    assert named == {"a": (("a",), (1, 2)), "b": [(("b", 0), 3)]}
    assert tree.leaves_with_path(x, is_leaf)[0] == (("a",), (1, 2))


def test_transpose() -> None:
    rows = [{"x": k, "y": (k + 1, None)} for k in (1, 2, 3)]
    outer, inner = tree.structure([0, 0, 0]), tree.structure(rows[0])
    wanted = jax.tree.transpose(
        jax.tree.structure([0, 0, 0]), jax.tree.structure(rows[0]), rows
    )
    assert tree.transpose(outer, inner, rows) == wanted
    assert tree.transpose(outer, None, rows) == wanted
    assert tree.transpose(inner, outer, wanted) == rows
    for call, *words in (
        (lambda: tree.transpose(outer, None, rows[:2]), "3 entries, found 2"),
        (lambda: tree.transpose(outer, outer, rows), "at [0], at <root>: list against"),
        (
            lambda: tree.transpose(outer, inner, [*rows[:2], {"x": 1}]),
            "at [2], at <root>: static ('x', 'y') against ('x',)",
        ),
    ):
        refused(call, td.errors.StructureError, "tree.transpose", *words)


def test_broadcast() -> None:
    x = {"a": (1, [2, 3]), "b": Pair(4, None)}
    for prefix in (0, {"a": 5, "b": 6}, {"a": (7, 8), "b": Pair(9, None)}, x):
        assert tree.broadcast(prefix, x) == jax.tree.broadcast(prefix, x)
    wrong = {"a": (7, 8, 9), "b": 0}
    refused(
        lambda: tree.broadcast(wrong, x),
        td.errors.StructureError,
        "not the upper part",
        "at ['a']: two tuple differ: expected 3 entries, found 2",
    )


@pytest.mark.parametrize(
    ("prefix", "full", "words"),
    [
        ({"a": 1}, {"b": 1}, "at <root>: two dict differ: 'a' is missing; 'b' is too"),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, "at ['a']: two dict differ: 'c'"),
        (
            ((1, 2),),
            ((1, 2, 3),),
            "at [0]: two tuple differ: expected 2 entries, found",
        ),
        ([1, (2,)], [1, [2]], "at [1]: expected tuple, found list"),
        ({"a": None}, {"a": 1}, "at ['a']: expected None, found 1"),
    ],
)
def test_prefixes_that_are_none(prefix: Any, full: Any, words: str) -> None:
    refused(
        lambda: tree.map(lambda a, b: a, prefix, full),
        td.errors.StructureError,
        words,
    )


def test_static_classes() -> None:
    @tree.register_static
    @dataclass(frozen=True)
    class Mode:
        name: str

    fast, slow = Mode("fast"), Mode("slow")
    assert tree.leaves({"m": fast, "x": 1}) == [1]
    assert tree.structure(fast) == tree.structure(Mode("fast"))
    assert tree.structure(fast) != tree.structure(slow)
    assert tree.map(lambda n: n + 1, (fast, 1)) == (fast, 2)
    traces = []

    @td.jit
    def f(mode: Mode, x: Any) -> Any:
        traces.append(mode.name)
        return (mode, x * (2 if mode.name == "fast" else 3))

    assert f(fast, 1.0)[0] is fast
    assert float(f(slow, 1.0)[1]) == 3 and float(f(Mode("fast"), 2.0)[1]) == 4
    assert traces == ["fast", "slow"]


def scaled(a: Any, b: Any, *, by: Any = 1.0) -> Any:
    return (a * b).sum() * by


def test_fields_of_a_dataclass_that_say_they_are_static() -> None:
    @dataclass
    class Layer:
        weight: Any
        name: str = field(metadata={"static": True})
        size: int = 2

    jax.tree_util.register_dataclass(Layer)
    tree.register_dataclass(Layer, static=["size"])
    layer = Layer(1.0, "a")
    assert jax.tree.leaves(layer) == [1.0, 2]
    assert tree.leaves(layer) == [1.0]
    doubled = tree.map(lambda x: 2 * x, layer)
    assert (doubled.weight, doubled.name, doubled.size) == (2.0, "a", 2)
    for mistake, error, part in (
        (lambda: tree.register_dataclass(int), TypeError, "no"),
        (lambda: tree.register_dataclass(Layer, static="q"), ValueError, "size"),
        (
            lambda: tree.register_dataclass(Layer, meta_fields=["name"]),
            TypeError,
            "say `static=[...]`",
        ),
        (lambda: tree.register_dataclass(Layer, ["weight"]), TypeError, "say `static="),
    ):
        refused(mistake, error, part)


def test_partial_is_a_pytree() -> None:
    w = np.arange(3, dtype=np.float32)
    part = tree.Partial(scaled, w, by=2.0)
    assert len(tree.leaves(part)) == 2
    paths = [tree.key_name(p) for p, _ in tree.leaves_with_path(part)]
    assert paths == [".args[0]", ".keywords['by']"]
    assert tree.structure(part) == tree.structure(tree.Partial(scaled, w * 2, by=0.0))
    assert tree.structure(part) != tree.structure(tree.Partial(sum, w, by=0.0))
    theirs = jax.tree_util.Partial(scaled, w, by=2.0)
    x = np.ones(3, np.float32)
    assert float(td.jit(lambda p, x: p(x))(part, x)) == float(theirs(x)) == 6
    made = td.jit(lambda w: tree.Partial(scaled, w, by=3.0))(w)
    assert isinstance(made, tree.Partial) and float(made(x)) == 9
    grad = td.grad(lambda p: p(x))(part)
    np.testing.assert_array_equal(grad.args[0], 2 * x)
    assert float(grad.keywords["by"]) == 3


def ravelled(x: Any) -> Any:
    ours, unravel = tree.ravel(x)
    theirs, _ = jax.flatten_util.ravel_pytree(x)
    assert ours.dtype.name == theirs.dtype.name
    np.testing.assert_array_equal(ours, theirs)
    return ours, unravel


def test_ravel() -> None:
    x = {
        "w": np.arange(6, dtype=np.float32).reshape(2, 3),
        "n": (np.array([1, 2], np.int32), np.array(True)),
        "none": None,
    }
    flat, unravel = ravelled(x)
    back = unravel(flat)
    assert tree.structure(back) == tree.structure(x)
    for a, b in zip(tree.leaves(back), tree.leaves(x), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)
    ravelled({"h": np.ones(2, np.float16), "i": np.ones(2, np.int32)})
    ravelled([np.ones((0, 3), np.float32), np.float32(2)])
    assert tree.ravel(())[0].shape == (0,) and tree.ravel(())[1](tnp.zeros(0)) == ()
    for wrong in (flat[:-1], flat.astype(int), flat.reshape(1, -1)):
        refused(lambda w=wrong: unravel(w), TypeError, "unravel takes", "f32[9]")
    refused(lambda: tree.ravel({"a": "x"}), TypeError, "the leaf ['a'] is a str")


def test_ravel_under_transforms() -> None:
    model = nn.MLP([3, 4, 1], key=rng.key(0))
    x = np.ones((5, 3), np.float32)
    flat, unravel = tree.ravel(model)
    assert unravel == tree.ravel(model)[1]

    def loss(flat: Any) -> Any:
        return (unravel(flat)(x) ** 2).sum()

    wanted = tree.ravel(td.grad(lambda m: (m(x) ** 2).sum())(model))[0]
    np.testing.assert_allclose(td.jit(td.grad(loss))(flat), wanted, rtol=1e-6)
    again = td.jit(lambda m: tree.ravel(m)[0] * 2)(model)
    np.testing.assert_array_equal(again, flat * 2)
    stacked = td.vmap(lambda s: tree.ravel(unravel(flat * s))[0])(tnp.arange(2.0))
    np.testing.assert_array_equal(stacked[1], flat)
    assert td.hessian(loss)(flat).shape == (flat.size, flat.size)


def test_equal() -> None:
    x = {"a": np.arange(3.0), "b": (1, "name", None)}
    assert tree.equal(x, {"a": np.arange(3.0), "b": (1, "name", None)}) is True
    assert tree.equal(x, x, x) is True and tree.equal(x) is True
    for other in (
        {"a": np.arange(3.0) + 1e-9, "b": (1, "name", None)},
        {"a": np.arange(3), "b": (1, "name", None)},
        {"a": np.arange(4.0), "b": (1, "name", None)},
        {"a": np.arange(3.0), "b": (1, "other", None)},
        {"a": np.arange(3.0), "b": [1, "name", None]},
        {"a": 0.0, "b": (1, "name", None)},
    ):
        assert tree.equal(x, other) is False
        assert tree.equal(x, x, other) is False
    near = {"a": np.arange(3.0) + 1e-9, "b": (1, "name", None)}
    assert tree.equal(x, near, atol=1e-6) is True
    assert tree.equal(np.float64("nan"), np.float64("nan")) is False
    y = tnp.arange(3.0)
    same = td.jit(lambda a, b: tree.equal((a, b), (b, a)))
    assert bool(same(y, y)) is True and bool(same(y, y + 1)) is False
    assert same(y, y).shape == () and same(y, y).dtype == td.bool_


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("tree_reduce", "treadle.tree.reduce"),
        ("tree_transpose", "treadle.tree.transpose"),
        ("ravel_pytree", "treadle.tree.ravel"),
        ("tree_equal", "treadle.tree.equal"),
        ("register_pytree_node", "treadle.tree.register"),
        ("keystr", "treadle.tree.key_name"),
        ("Partial", "treadle.tree.Partial"),
        ("PyTreeDef", "treadle.tree.Structure"),
    ],
)
def test_names_of_others_lead_here(name: str, ours: str) -> None:
    with pytest.raises(AttributeError, match=f"use `{ours}`"):
        getattr(td, name)


def nested(levels: int, value: Any = 1.0) -> Any:
    for _ in range(levels):
        value = [value]
    return value


def test_trees_of_hundreds_of_levels_pass_every_transform() -> None:
    x = nested(600)
    assert tree.leaves(tree.map(lambda v: 2 * v, x)) == [2.0]
    double = td.jit(lambda t: tree.map(lambda v: 2 * v, t))
    for _ in range(3):
        assert float(tree.leaves(double(x))[0]) == 2.0
    square = td.grad(lambda t: sum(v * v for v in tree.leaves(t)))
    slope = square(x)
    assert tree.structure(slope) == tree.structure(x)
    assert float(tree.leaves(slope)[0]) == 2.0
    assert tree.structure(x) != tree.structure(nested(600, (1.0,)))
    assert str(tree.structure(x)).count("list(") == 600


def test_trees_that_python_cannot_go_down() -> None:
    x = nested(3000)
    for function in (tree.leaves, td.jit(lambda t: t), td.grad(lambda t: 1.0)):
        refused(lambda f=function: f(x), tree.StructureError, "too many levels: list")
    loop: list[Any] = [1.0]
    loop.append({"back": loop})
    refused(lambda: tree.leaves(loop), tree.StructureError, "a list holds itself")


def test_frames_that_others_have_used_up_are_no_fault_of_a_tree() -> None:
    def down(levels: int) -> Any:
        return tree.leaves(nested(150)) if levels == 0 else down(levels - 1)

    with pytest.raises(RecursionError):
        down(sys.getrecursionlimit() - len(inspect.stack()) - 50)


def test_a_container_where_others_have_leaves_can_be_passed_whole() -> None:
    params = {"w": tnp.ones(2), "b": tnp.ones(())}
    keys = dict(zip(params, rng.split(rng.key(0)), strict=True))

    def draw(key: Any, x: Any) -> Any:
        return rng.normal(key, x.shape)

    with pytest.raises(StructureError, match=r"is_leaf=lambda x: isinstance\(x, Key\)"):
        tree.map(draw, keys, params)
    with pytest.raises(TypeError, match=r"is_leaf=lambda x: isinstance\(x, rng.Key\)"):
        tree.map(lambda key: rng.normal(key), keys)
    whole = tree.map(draw, keys, params, is_leaf=lambda x: isinstance(x, rng.Key))
    second = tree.map(lambda x, key: draw(key, x), params, keys)
    assert tree.equal(whole, second)
    with pytest.raises(StructureError) as caught:
        tree.map(draw, {"w": [1.0], "b": 1.0}, params)
    assert "is_leaf" not in str(caught.value)
