"""Which leaves a selector means; `fnmatch` and plain loops over paths as oracles."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, optim, rng, tree
from treadle.errors import StructureError, TracerError


class Pair(NamedTuple):
    weight: Any
    bias: Any


TREE = {
    "body": [Pair(1.0, 2.0), Pair(3.0, None)],
    "head": {"weight": 4.0, "scale": 5.0},
    "weight": 6.0,
    "a.weight": 7.0,
}
PATHS = [tree.dotted(path) for path in tree.paths(tree.structure(TREE))]


def chosen(what: Any, whole: Any = TREE) -> list[Any]:
    mask = tree.select(what)(whole)
    assert tree.structure(mask) == tree.structure(whole)
    pairs = zip(tree.leaves(whole), tree.leaves(mask), strict=True)
    return sorted(leaf for leaf, picked in pairs if picked)


PATTERNS = {
    "weight": [6.0],
    "head": [4.0, 5.0],
    "body": [1.0, 2.0, 3.0],
    "body.0": [1.0, 2.0],
    "body[1]": [3.0],
    "body.*.weight": [1.0, 3.0],
    "body[*].weight": [1.0, 3.0],
    "*.weight": [4.0, 7.0],
    "**.weight": [1.0, 3.0, 4.0, 6.0, 7.0],
    "head.**": [4.0, 5.0],
    "he?d.s*": [5.0],
    "['a.weight']": [7.0],
    "'a.weight'": [7.0],
    ".head['scale']": [5.0],
    "**": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
    "*": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
    "**.bias": [2.0],
    "body.1.bias": [],  # it is None: there is the place, but no leaf
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(pattern: str) -> None:
    assert chosen(pattern) == PATTERNS[pattern]


@pytest.mark.parametrize("text", ["*weight*", "b*0*", "*.0.*", "head.*", "*e*"])
def test_pieces_of_parts_as_fnmatch(text: str) -> None:
    """In flat dicts without dots a pattern is that of a shell."""
    flat = {path.replace(".", "_"): i for i, path in enumerate(PATHS)}
    text = text.replace(".", "_")
    wanted = [i for name, i in flat.items() if fnmatchcase(name, text)]
    assert chosen(text, flat) == sorted(wanted) != []


def test_paths_are_what_they_say() -> None:
    for path, leaf in zip(PATHS, tree.leaves(TREE), strict=True):
        assert leaf in chosen(path)


def test_classes() -> None:
    assert chosen(Pair) == [1.0, 2.0, 3.0]
    assert chosen(list) == [1.0, 2.0, 3.0]
    model = nn.Sequential(nn.Linear(2, 3, key=rng.key(0)), nn.BatchNorm(3))
    names = [tree.dotted(path) for path in tree.paths(tree.structure(model))]
    for kind, start in ((nn.BatchNorm, "layers.1"), (nn.Module, "")):
        mask = tree.leaves(tree.select(kind)(model))
        assert mask == [name.startswith(start) for name in names]
    cells = tree.leaves(tree.select(nn.State)(model))
    assert cells == [name.endswith(".value") for name in names]


def test_functions() -> None:
    assert chosen(lambda path, x: path.startswith("body") and x > 1) == [2.0, 3.0]
    assert chosen(lambda t: tree.map(lambda x: x > 5, t)) == [6.0, 7.0]
    assert chosen(lambda t: {k: k == "head" for k in t}) == [4.0, 5.0]


def test_masks() -> None:
    parts = {"body": [True, False], "head": False, "weight": True, "a.weight": False}
    assert chosen(parts) == [1.0, 2.0, 6.0]
    assert chosen(True) == sorted(tree.leaves(TREE)) and chosen(False) == []
    assert chosen(tree.select("head")(TREE)) == [4.0, 5.0]


MODEL = nn.MLP((2, 3, 1), key=rng.key(0))


def test_masks_that_can_be_called() -> None:
    """A mask made of a Module is a Module."""
    mask = tree.map(lambda x: x.ndim == 2, MODEL)
    assert callable(mask)
    wanted = ["layers.0.bias", "layers.1.bias"]
    assert list(nn.parameters(nn.freeze(MODEL, mask))) == wanted
    assert list(nn.parameters(nn.freeze(MODEL, tree.select(mask)))) == wanted
    assert list(nn.parameters(nn.freeze(MODEL, lambda _: mask))) == wanted
    both = [mask, tree.map(lambda x: True, MODEL)]
    assert list(nn.parameters(nn.freeze([MODEL, MODEL], both)[0])) == wanted
    chosen, _ = nn.partition(MODEL, mask)
    assert [x.ndim for x in tree.leaves(chosen)] == [2, 2]
    optimizer = optim.masked(optim.sgd(1.0), mask)
    ones = tree.map(tnp.ones_like, MODEL)
    updates, _ = optimizer.update(ones, optimizer.init(MODEL), MODEL)
    assert [float(x.sum()) for x in tree.leaves(updates)] == [-6.0, 3.0, -3.0, 1.0]


def test_masks_of_arrays_and_of_modules() -> None:
    class Two(nn.Module):
        weight: Any
        bias: Any

    model = Two(tnp.ones(3), tnp.zeros(2))
    arrays = tree.map(lambda x: tnp.any(x == 1), model)
    assert list(nn.parameters(nn.freeze(model, arrays))) == ["bias"]
    with pytest.raises(StructureError, match="part of its structure; make the mask"):
        nn.freeze(model, Two(True, False))
    with pytest.raises(StructureError, match=r"it holds Array.*which is no bool"):
        nn.freeze(model, Two(tnp.array([True, False, True]), tnp.bool_(True)))
    with pytest.raises(TracerError, match="not known while"):
        td.jit(lambda m: nn.freeze(m, tree.map(lambda x: tnp.any(x == 1), m)))(model)


def test_functions_that_give_a_part() -> None:
    def names(where: Any) -> list[str]:
        return list(nn.parameters(nn.freeze(MODEL, where)))

    assert names(lambda m: m.layers[0]) == ["layers.1.weight", "layers.1.bias"]
    assert names(lambda m: (m.layers[0], m.layers[1].bias)) == ["layers.1.weight"]
    same = {"a": tnp.ones(2), "b": tnp.ones(2)}
    same["b"] = same["a"]
    assert tree.select(lambda t: t["b"])(same) == {"a": False, "b": True}
    with pytest.raises(StructureError, match="no bool"):
        tree.select(lambda t: [t["a"] * 2])(same)


def test_several_mean_any() -> None:
    assert chosen(("head", "weight")) == chosen(["weight", "head"]) == [4.0, 5.0, 6.0]
    mask = tree.select("head", lambda path, x: x == 1)(TREE)
    assert mask == tree.map(lambda x: x in (1.0, 4.0, 5.0), TREE)


def test_algebra() -> None:
    weights, body = tree.select("**.weight"), tree.select("body")
    every = set(tree.leaves(TREE))
    a, b = set(chosen(weights)), set(chosen(body))
    for found, wanted in (
        (weights | body, a | b),
        (weights & body, a & b),
        (~weights, every - a),
        (~(weights & ~body) | "head.scale", every - (a - b) | {5.0}),
        ("head" & weights, {4.0}),
        (Pair | weights, a | b),
        (weights & (lambda path, x: x > 3), {x for x in a if x > 3}),
    ):
        assert set(chosen(found)) == wanted, found


def test_equal_selectors_are_one() -> None:
    assert tree.select("a", nn.Linear) == tree.select("a", nn.Linear)
    assert hash(~tree.select("a") | "b") == hash(~tree.select("a") | "b")
    assert tree.select("a") != tree.select("a", required=False)
    assert repr(tree.select("**.bias") & ~tree.select(nn.Linear)) == (
        "(select('**.bias') & ~select(Linear))"
    )


def test_nothing_there() -> None:
    with pytest.raises(ValueError, match=r"'haed' selects nothing[\S\s]*Near.* head"):
        chosen("haed")
    with pytest.raises(ValueError, match=r"no such class in this dict[\S\s]*Pair"):
        chosen(nn.Linear)
    with pytest.raises(ValueError, match="selects nothing"):
        chosen(~tree.select("haed"))
    assert chosen(tree.select("haed", nn.Linear, required=False)) == []
    assert chosen(lambda path, x: False) == []


def test_no_mask() -> None:
    with pytest.raises(
        StructureError, match=r"does not fit.*expected list, found dict"
    ):
        chosen([True])
    with pytest.raises(StructureError, match=r"holds 0\.5, which is no bool"):
        chosen({"body": 0.5, "head": True, "weight": True, "a.weight": True})
    with pytest.raises(TypeError, match="takes patterns, classes, functions, masks"):
        chosen(3)


def test_arrays_that_are_left_out() -> None:
    """A pattern is no mistake in the part of the parameters that it is not about."""
    part = {"body": {"weight": tnp.ones(2), "bias": None}, "head": None}
    assert chosen("**.bias", part) == chosen("head", part) == []
