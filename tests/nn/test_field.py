"""Roles of fields: any nesting of containers flattens and comes back."""

from __future__ import annotations

import pickle
from collections import namedtuple
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng, tree

Point = namedtuple("Point", ["x", "y"])


class Box(nn.Module):
    """Holds anything."""

    content: Any
    tag: Any = None


arrays = st.integers(0, 9).map(lambda n: np.full(1, n, np.float32))
statics = st.one_of(
    st.integers(), st.floats(allow_nan=False), st.booleans(), st.text(max_size=3)
) | st.sampled_from([nn.relu, int, (1, 2), np.dtype("int8"), slice, np.float32(3)])
contents = st.recursive(
    arrays | statics | st.none(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.builds(Point, inner, inner),
        st.builds(Box, inner, statics),
    ),
    max_leaves=12,
)


def found(value: Any) -> list[float]:
    """The arrays in a nest, in the order of flattening."""
    if isinstance(value, Box):
        return found(value.content) + found(value.tag)
    if isinstance(value, dict):
        return [x for key in sorted(value) for x in found(value[key])]
    if isinstance(value, list | tuple):
        return [x for inner in value for x in found(inner)]
    return [value.item()] if isinstance(value, np.ndarray) else []


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Box):
        return type(b) is Box and same(a.content, b.content) and same(a.tag, b.tag)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(np.all(a == b))


@given(contents)
def test_leaves_are_the_arrays_and_come_back(content):
    box = Box(content)
    leaves, form = tree.flatten(box)
    assert [x.item() for x in leaves] == found(content)
    assert len(tree.paths(form)) == len(leaves)
    back = form.unflatten(leaves)
    assert tree.structure(back) == form and hash(tree.structure(back)) == hash(form)
    assert same(back, box)
    assert same(box, pickle.loads(pickle.dumps(back)))


@given(contents)
def test_paths_lead_to_the_leaves(content):
    box = Box(content)
    for path, leaf in tree.flatten_with_path(box)[0]:
        at: Any = box
        for key in path:
            is_field = isinstance(key, tree.Attribute)
            at = getattr(at, key.name) if is_field else at[key]
        assert at is leaf


@given(contents)
def test_roles_stay_when_leaves_change(content):
    box = Box(content)
    gone = tree.map(lambda x: None, box)
    assert tree.leaves(gone) == []
    seen = []
    tree.map(lambda x, none: seen.append(none), box, gone)
    assert seen == [None] * len(found(content))
    wide = tree.map(lambda x: {"a": x, "b": (x, None)}, box)
    assert len(tree.leaves(wide)) == 2 * len(found(content))


@given(contents)
def test_equal_fields_give_equal_structures(content):
    a, b = tree.structure(Box(content)), tree.structure(Box(content))
    assert a == b and hash(a) == hash(b) and a.aux is b.aux


@dataclass(frozen=True)
class Config:
    sizes: Any


tree.register_dataclass(Config)


@pytest.mark.parametrize(
    "value, count",
    [
        (rng.key(0), 1),
        (Config(np.ones(2)), 1),
        (Config(3), 0),
        (nn.Dropout(0.5), 0),
        (nn.State(np.ones(1)), 1),
        (td.jit(nn.relu), 0),
        (nn.Linear, 0),
        ((None, 2), 0),
        ((None, np.ones(1)), 1),
    ],
)
def test_kinds(value, count):
    assert len(tree.leaves(Box(value))) == count


def test_unhashable_things_are_named():
    with pytest.raises(
        TypeError, match=r"field `content` of Box holds no array.*\{1\}"
    ):
        Box([{"a": {1}}])


@pytest.mark.parametrize(
    "value",
    [(nn.relu for _ in range(2)), map(abs, [1]), {"a": tnp.ones(1)}.values()],
    ids=["generator", "map", "values"],
)
def test_what_can_be_read_once_is_no_field(value):
    with pytest.raises(TypeError, match=r"(?s)field `content` of Box.*Hold a list"):
        Box(value)


@pytest.mark.parametrize("argument", [tnp.ones(2), nn.Dropout(0.5)], ids=repr)
def test_partials_that_hide_arrays(argument):
    assert Box(partial(nn.gelu, approximate=False)).content(1.0) is not None
    with pytest.raises(TypeError, match=r"functools.partial that holds arrays"):
        Box(partial(nn.relu, argument))
