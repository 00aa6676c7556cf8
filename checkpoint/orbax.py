"""Orbax's own checkpointers for Treadle's pytrees: import this module, and they work.

From then on JAX knows every class that Treadle knows as a container (modules, keys,
cells of state, states of optimizers, one's own), also those that are defined later;
and Orbax saves and restores arrays of Treadle's: in a `CheckpointManager`, in the
checkpointers for standard and other pytrees, and in the functions of its version 1.
What these save, `treadle.checkpoint.restore` reads, and they read what it saves.

>>> import os
>>> import orbax.checkpoint as ocp
>>> import treadle.checkpoint.orbax
>>> from treadle import nn, rng
>>> model = nn.Linear(2, 3, key=rng.key(0))
>>> with ocp.StandardCheckpointer() as checkpointer:
...     checkpointer.save(path := os.path.abspath("model"), model)
...     checkpointer.wait_until_finished()
...     again = checkpointer.restore(path, nn.Linear(2, 3, key=rng.key(1)))
>>> bool((again.weight == model.weight).all())
True

An array is restored as one of Treadle's where the target has one. Orbax has no empty
arrays, and where the target has another shape, it gives what was saved.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from treadle import Array, tree
from treadle.checkpoint import naming
from treadle.optional import needed_for

with needed_for("treadle.checkpoint.orbax"):
    import jax
    from orbax.checkpoint import checkpoint_utils, type_handlers
    from orbax.checkpoint._src.serialization.type_handler_registry import (
        GLOBAL_TYPE_HANDLER_REGISTRY,
    )
    from orbax.checkpoint.experimental.v1._src.serialization import registry
    from orbax.checkpoint.experimental.v1._src.serialization.numpy_leaf_handler import (
        NumpyLeafHandler,
    )
    from orbax.checkpoint.experimental.v1._src.tree import types as tree_types

_CONCRETE = type(Array(np.zeros(())))


_IN_A_LIST = """\
Orbax can't take apart a module that holds one layer as `{}` and, in a list, as `{}`
Let Treadle save it (`treadle.checkpoint.Manager`); or hold the layer once."""


class _None:
    """What stands for None where `jax.tree.map` has put that in a leaf's place: a field
    that is None has none."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "None"


_NONE = _None()


def _key(key: Any, is_list: bool) -> Any:
    """An entry of a path, as JAX has it.

    Orbax takes positions for those of a list without gaps: others are names to it.
    """
    if isinstance(key, tree.Attribute):
        return jax.tree_util.GetAttrKey(key.name)
    if is_list:
        return jax.tree_util.SequenceKey(key)
    return jax.tree_util.DictKey(str(key))


def _tell(kind: type, node: Any) -> None:
    """Tells JAX of a class of containers.

    Fields that are None are left out, as they are in our own checkpoints: Orbax takes
    them for leaves, and puts things there that a layer's second place, which is None
    when it is flattened, does not keep.
    """
    if kind in (*naming.PLAIN, type(None)) or naming.is_namedtuple(kind):
        return

    def with_keys(value: Any) -> tuple[list[tuple[Any, Any]], Any]:
        children, aux = node.flatten(value)
        for first, other in node.shared(aux) if node.shared else ():
            if isinstance(other[-1], int):
                raise TypeError(
                    _IN_A_LIST.format(tree.dotted(first), tree.dotted(other))
                )
        keys = list(node.keys(aux, len(children)))
        is_list = keys == list(range(len(keys)))
        kept = tuple(
            i for i, child in enumerate(children) if is_list or child is not None
        )
        found = [None if children[i] is _NONE else children[i] for i in kept]
        names = [_key(keys[i], is_list) for i in kept]
        return list(zip(names, found, strict=True)), (aux, kept, len(keys))

    def unflatten(facts: Any, found: Iterable[Any]) -> Any:
        aux, kept, count = facts
        children: list[Any] = [None] * count
        for i, child in zip(kept, found, strict=True):
            children[i] = _NONE if child is None else child
        return node.unflatten(aux, children)

    # Unless the user has told JAX already.
    with contextlib.suppress(ValueError):
        jax.tree_util.register_pytree_with_keys(kind, with_keys, unflatten)


class _Arrays(type_handlers.NumpyHandler):
    """Orbax's handler of NumPy's arrays, for those of Treadle's, too."""

    async def serialize(
        self, values: Sequence[Any], infos: Any, args: Any = None
    ) -> Any:
        return await super().serialize([np.asarray(v) for v in values], infos, args)

    async def deserialize(self, infos: Any, args: Any = None) -> Any:
        found = await super().deserialize(infos, args)
        kinds = [arg.restore_type for arg in args] if args else [None] * len(found)
        return [
            Array(array) if kind and issubclass(kind, Array) else array
            for array, kind in zip(found, kinds, strict=True)
        ]


def _is_array(kind: type) -> bool:
    return issubclass(kind, np.ndarray | Array)


class _Leaves(NumpyLeafHandler):
    """The same for version 1."""

    async def serialize(self, params: Sequence[Any], context: Any) -> Any:
        params = [replace(p, value=np.asarray(p.value)) for p in params]
        return await super().serialize(params, context)

    async def deserialize(self, params: Sequence[Any], context: Any) -> Any:
        reading = await super().deserialize(params, context)

        async def arrays() -> list[Any]:
            return [Array(array) for array in await reading]

        return arrays()


tree.follow(_tell)
# Orbax's public function for this warns of the overriding, which changes nothing here
# for NumPy's arrays.
GLOBAL_TYPE_HANDLER_REGISTRY.add(
    np.ndarray, _Arrays(), _is_array, override=True, ignore_warnings=True
)
# What a standard pytree may have as leaves stands in these lists.
checkpoint_utils.STANDARD_ARRAY_TYPES += (Array,)
tree_types.Leaf |= Array
registry.STANDARD_TYPE_AND_ABSTRACT_TYPE_AND_TYPESTR_TO_HANDLER.append(
    (_CONCRETE, _CONCRETE, [], _Leaves)
)
