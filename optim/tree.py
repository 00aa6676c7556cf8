"""Arithmetic of pytrees, and parts of states by name: ``optim.tree.add(a, b)``.

Trees of two have the same structure; None is no leaf, and stays. Structures, paths and
`map` are in `treadle.tree`, the norm of all leaves together is `optim.global_norm`.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any, TypeVar

import treadle as td
import treadle.numpy as tnp
from treadle import rng, tree
from treadle.dtypes import DTypeLike
from treadle.errors import at, user_source

T = TypeVar("T")
_NONE = object()


def add(first: T, *others: Any) -> T:
    """The sum of trees, leaf by leaf.

    >>> add({"w": 1}, {"w": 2}, {"w": 3})
    {'w': 6}
    """
    return tree.map(lambda *xs: reduce(operator.add, xs), first, *others)


def sub(x: T, y: Any) -> T:
    """``x - y``, leaf by leaf.

    >>> sub({"w": 3}, {"w": 1})
    {'w': 2}
    """
    return tree.map(operator.sub, x, y)


def mul(x: T, y: Any) -> T:
    """``x · y``, leaf by leaf.

    >>> mul({"w": 3}, {"w": 2})
    {'w': 6}
    """
    return tree.map(operator.mul, x, y)


def div(x: T, y: Any) -> T:
    """``x / y``, leaf by leaf.

    >>> div({"w": 3}, {"w": 2})
    {'w': 1.5}
    """
    return tree.map(operator.truediv, x, y)


def scale(factor: Any, x: T) -> T:
    """``factor · x``.

    >>> scale(2, {"w": 3})
    {'w': 6}
    """
    return tree.map(lambda leaf: factor * leaf, x)


def add_scale(x: T, factor: Any, y: Any) -> T:
    """``x + factor · y``.

    >>> add_scale({"w": 1}, 2, {"w": 3})
    {'w': 7}
    """
    return tree.map(lambda a, b: a + factor * b, x, y)


def where(condition: Any, x: T, y: Any) -> T:
    """``x`` where the condition holds, else ``y``; one condition for all leaves.

    >>> where(True, {"w": tnp.ones(1)}, {"w": tnp.zeros(1)})
    {'w': Array([1.], dtype=float32)}
    """
    return tree.map(lambda a, b: tnp.where(condition, a, b), x, y)


def clip(x: T, min_value: Any = None, max_value: Any = None) -> T:
    """The elements within bounds.

    >>> clip({"w": tnp.array([-2.0, 0.5])}, -1.0, 1.0)
    {'w': Array([-1. ,  0.5], dtype=float32)}
    """
    return tree.map(lambda leaf: tnp.clip(leaf, min_value, max_value), x)


def cast(x: T, dtype: DTypeLike) -> T:
    """The leaves of a floating or complex dtype in another one; others stay.

    >>> cast({"w": tnp.ones(1), "n": tnp.array(1)}, td.float16)
    {'n': Array(1, dtype=int32), 'w': Array([1.], dtype=float16)}
    """
    return tree.map(lambda a: tnp.asarray(a, dtype) if _moves(a) else a, x)


def cast_like(x: T, y: Any) -> T:
    """The leaves in the dtypes of another tree's.

    >>> cast_like({"w": tnp.ones(1)}, {"w": tnp.ones(1, td.float16)})
    {'w': Array([1.], dtype=float16)}
    """
    return tree.map(lambda a, b: tnp.asarray(a, td.typeof(b).dtype), x, y)


def _moves(x: Any) -> bool:
    return td.dtypes.is_differentiable(td.typeof(x).dtype)


def conj(x: T) -> T:
    """Complex conjugates.

    >>> conj({"w": tnp.array(1 + 2j)})
    {'w': Array(1.-2.j, dtype=complex64)}
    """
    return tree.map(tnp.conj, x)


def real(x: T) -> T:
    """Real parts.

    >>> real({"w": tnp.array(1 + 2j)})
    {'w': Array(1., dtype=float32)}
    """
    return tree.map(tnp.real, x)


# Numbers of whole trees ---------------------------------------------------------------


def vdot(x: Any, y: Any) -> td.Array:
    """The inner product of all leaves together; complex ones of `x` are conjugated.

    >>> vdot({"a": tnp.array([1.0, 2.0]), "b": 3.0}, {"a": tnp.ones(2), "b": 2.0})
    Array(9., dtype=float32)
    """
    return sum(tree.map(tnp.vdot, x, y))


def sum(x: Any) -> td.Array:
    """The sum of all elements.

    >>> from treadle import optim
    >>> optim.tree.sum({"a": tnp.array([1.0, 2.0]), "b": 3.0})
    Array(6., dtype=float32)
    """
    sums = [tnp.sum(leaf) for leaf in tree.leaves(x)]
    return reduce(operator.add, sums) if sums else tnp.zeros(())


def max(x: Any) -> td.Array:
    """The largest of all elements; minus infinity if there are none.

    >>> from treadle import optim
    >>> optim.tree.max({"a": tnp.array([1.0, 2.0]), "b": 3.0})
    Array(3., dtype=float32)
    """
    return _extreme(tnp.max, tnp.maximum, x, -tnp.inf)


def min(x: Any) -> td.Array:
    """The least of all elements; infinity if there are none.

    >>> from treadle import optim
    >>> optim.tree.min({"a": tnp.array([1.0, 2.0]), "b": 3.0})
    Array(1., dtype=float32)
    """
    return _extreme(tnp.min, tnp.minimum, x, tnp.inf)


def _extreme(of_one: Callable, of_two: Callable, x: Any, of_none: float) -> td.Array:
    found = [of_one(leaf) for leaf in map(tnp.asarray, tree.leaves(x)) if leaf.size]
    return reduce(of_two, found) if found else tnp.asarray(of_none)


def size(x: Any) -> int:
    """How many elements there are.

    >>> size({"a": tnp.ones((2, 3)), "b": 1.0})
    7
    """
    sizes: list[Any] = [td.typeof(leaf).size for leaf in tree.leaves(x)]
    return builtins.sum(sizes)


# Trees like others --------------------------------------------------------------------


def zeros_like(x: T, dtype: DTypeLike | None = None) -> T:
    """Zeros.

    >>> zeros_like({"w": tnp.ones(2)})
    {'w': Array([0., 0.], dtype=float32)}
    """
    return tree.map(lambda leaf: tnp.zeros_like(leaf, dtype), x)


def ones_like(x: T, dtype: DTypeLike | None = None) -> T:
    """Ones.

    >>> ones_like({"w": tnp.zeros(2)})
    {'w': Array([1., 1.], dtype=float32)}
    """
    return tree.map(lambda leaf: tnp.ones_like(leaf, dtype), x)


def full_like(x: T, fill_value: Any, dtype: DTypeLike | None = None) -> T:
    """One value everywhere.

    >>> full_like({"w": tnp.zeros(2)}, 5)
    {'w': Array([5., 5.], dtype=float32)}
    """
    return tree.map(lambda leaf: tnp.full_like(leaf, fill_value, dtype), x)


def split_key_like(key: rng.Key, x: Any) -> Any:
    """A key for each leaf.

    >>> split_key_like(rng.key(0), {"a": 1, "b": 2}).keys()
    dict_keys(['a', 'b'])
    """
    form = tree.structure(x)
    return form.unflatten(rng.split(key, form.count))


def random_like(
    key: rng.Key,
    x: T,
    sampler: Callable[[rng.Key, Any, Any], Any] = rng.normal,
    dtype: DTypeLike | None = None,
) -> T:
    """Random leaves, independent of each other.

    Args:
      sampler: ``(key, shape, dtype) -> array``, such as `rng.normal`.

    >>> random_like(rng.key(0), {"w": tnp.zeros(2)})["w"].shape
    (2,)
    """
    leaves, form = tree.flatten(x)
    drawn = []
    for leaf, own in zip(leaves, rng.split(key, form.count), strict=True):
        t = td.typeof(leaf)
        drawn.append(sampler(own, t.shape, t.dtype if dtype is None else dtype))
    return form.unflatten(drawn)


# Parts by name ------------------------------------------------------------------------


def get_all(x: Any, name: str) -> dict[str, Any]:
    """All parts of a tree that are fields, or entries of dicts, of a name: by path.

    >>> from treadle import optim
    >>> state = optim.adam(0.1).init({"w": tnp.zeros(2)})
    >>> list(get_all(state, "count"))
    ['0.hyper.count', '1.count']
    """
    return {tree.dotted(path): _part(x, path) for path in _places(x, name)}


def get(x: Any, name: str, default: Any = _NONE) -> Any:
    """The part of a tree that is a field, or an entry of a dict, of a name.

    Raises:
      KeyError: if there are several, or there is none and no default.

    >>> from treadle import optim
    >>> state = optim.adam(0.1).init({"w": tnp.zeros(2)})
    >>> get(state, "mean")
    {'w': Array([0., 0.], dtype=float32)}
    """
    found = get_all(x, name)
    if len(found) == 1:
        return next(iter(found.values()))
    if not found and default is not _NONE:
        return default
    places = f"at {', '.join(found)}" if found else "nowhere"
    raise KeyError(
        f"one part named {name!r} was asked for, and it is {places}{at(user_source())}"
    )


def set(x: T, **values: Any) -> T:
    """The tree with other parts in all places of these names.

    Raises:
      KeyError: for a name that the tree does not have.
      StructureError: for a value of another structure.

    >>> from treadle import optim
    >>> state = optim.sgd(0.1).init({"w": tnp.zeros(2)})
    >>> optim.tree.set(state, count=tnp.array(7))
    (Hyperparameters(count=7, learning_rate=0.1),)
    """
    leaves, form = tree.flatten(x)
    paths = tree.paths(form)
    for name, value in values.items():
        places = _places(x, name)
        if not places:
            raise KeyError(f"the tree has no part named {name!r}{at(user_source())}")
        for place in places:
            new = iter(tree.leaves(tree.map(lambda _, v: v, _part(x, place), value)))
            for number, path in enumerate(paths):
                if path[: len(place)] == place:
                    leaves[number] = next(new)
    return form.unflatten(leaves)


def _places(x: Any, name: str) -> list[tree.Path]:
    """The paths that end in a name, without those inside of another."""
    found: dict[tree.Path, None] = {}
    for path in tree.paths(tree.structure(x)):
        names = [getattr(key, "name", key) for key in path]
        if name in names:
            found[path[: names.index(name) + 1]] = None
    return list(found)


def _part(x: Any, path: tree.Path) -> Any:
    for key in path:
        x = getattr(x, key.name) if isinstance(key, tree.Attribute) else x[key]
    return x
