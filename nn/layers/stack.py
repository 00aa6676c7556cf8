"""Equal layers as one: run by a scan, compiled once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import treadle as td
import treadle.numpy as tnp
from treadle import rng, tree
from treadle.errors import at, user_source
from treadle.nn import check
from treadle.nn.module import Module
from treadle.nn.state import State, stateful
from treadle.nn.surgery import iterate

_UNEQUAL = """\
Stack takes equal layers, and layer {i} differs from the first {how}{at}
Sizes, dtypes and static fields of all must be those of the first."""


class Stack(Module):
    """Equal layers, one after the other, as a scan over their stacked parameters: the
    time to compile does not depend on how many they are.

    A layer gives the next one's input, or a pair: that, and a result of its own. These
    are stacked. State cells in layers and keys that they draw work as in a plain loop.

    Args:
      make: makes a layer from a key.
      length: how many.
      remat: whether the backward pass computes again what is inside of a layer, and
        keeps only what lies between layers.

    Of a call, further arguments are for all layers, and `each` holds keyword arguments
    that have a row for each: ``stack(x, mask, each={"cache": caches})``.

    >>> import treadle.numpy as tnp
    >>> from treadle import nn, rng
    >>> stack = nn.Stack(lambda key: nn.Linear(4, 4, key=key), 12, key=rng.key(0))
    >>> stack
    Stack(
      layers=Linear(in_features=4, out_features=4, weight=f32[12,4,4], bias=f32[12,4]),
      length=12,
      remat=False,
    )
    >>> stack(tnp.ones((2, 4))).shape
    (2, 4)
    """

    layers: Any
    length: int
    remat: bool

    def __init__(
        self,
        make: Callable[[rng.Key], Any],
        length: int,
        *,
        remat: bool = False,
        key: rng.Key,
    ) -> None:
        if length < 1:
            raise ValueError(
                f"Stack takes one layer or more, got length={length}{at(user_source())}"
            )
        self.layers = td.vmap(make)(rng.split(key, length))
        self.length, self.remat = length, remat

    @classmethod
    def of(cls, layers: Sequence[Any], *, remat: bool = False) -> Self:
        """A stack of layers that are made. `unstack` is the way back.

        Raises:
          ValueError: if they are not equal but for the values of their arrays.

        >>> from treadle import nn, rng
        >>> layers = [nn.Linear(4, 4, key=key) for key in rng.split(rng.key(0), 3)]
        >>> nn.Stack.of(layers).length
        3
        """
        empty = cls(lambda key: None, len(layers), remat=remat, key=rng.key(0))
        forms = [tree.structure(layer) for layer in layers]
        types = [[td.typeof(x) for x in tree.leaves(layer)] for layer in layers]
        for i, (form, kinds) in enumerate(zip(forms, types, strict=True)):
            how = tree.difference(forms[0], form)
            if not how and kinds != types[0]:
                how = f"in its arrays: {types[0]} against {kinds}"
            if how:
                raise ValueError(_UNEQUAL.format(i=i, how=how, at=at(user_source())))
        stacked = tree.map(lambda *rows: tnp.stack(rows), *layers)
        return empty.replace(layers=stacked)

    def unstack(self) -> list[Any]:
        """The layers."""
        leaves, form = tree.flatten(self.layers)
        rows = [[x[i] for x in leaves] for i in range(self.length)]
        return [form.unflatten(row) for row in rows]

    def __call__(
        self, x: Any, *args: Any, each: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> Any:
        cells = _cells(self.layers)
        is_open = any(cell.is_open for cell in cells)
        single = not isinstance(x, tuple)
        paired = False

        def run(layer: Any, x: Any, more: Any) -> Any:
            if not is_open:
                return layer(x, *args, **kwargs, **more), None
            out, after = stateful(layer)(x, *args, **kwargs, **more)
            return out, [cell.value for cell in _cells(after)]

        if self.remat:
            run = td.remat(run)

        def body(x: Any, row: Any) -> Any:
            nonlocal paired
            out, held = run(row[0], x, row[1])
            paired = single and isinstance(out, tuple) and len(out) == 2
            x, extra = out if paired else (out, None)
            return x, (extra, held)

        rows = (self.layers, dict(each or {}))
        x = self._entering(x, rows[1], args, kwargs)
        x, (extras, held) = td.scan(body, x, rows, length=self.length)
        for cell, value in zip(cells, held or (), strict=is_open):
            cell.value = value
        return (x, extras) if paired else x

    def _entering(self, x: Any, each: dict, args: tuple, kwargs: dict) -> Any:
        """The input in the dtype of what a layer makes of it: the input of the next."""
        if _computed_in(self.layers) <= {
            check.as_array(v).dtype for v in tree.leaves(x)
        }:
            return x

        def first() -> Any:
            layer, more = tree.map(lambda rows: rows[0], (self.layers, each))
            out, _ = stateful(layer, key=rng.key(0))(x, *args, **kwargs, **more)
            is_pair = not isinstance(x, tuple) and isinstance(out, tuple)
            return out[0] if is_pair and len(out) == 2 else out

        made = td.eval_shape(first)
        if tree.structure(made) != tree.structure(x):
            return x
        return tree.map(
            lambda v, t: v.astype(t.dtype) if td.dtypes.is_float(t.dtype) else v,
            tree.map(check.as_array, x),
            made,
        )


def _computed_in(layers: Any) -> set[Any]:
    """The dtypes of the floating arrays in layers, and those they are told to use."""
    own = {x.dtype for x in tree.leaves(layers) if check.is_floating(x)}
    said = {getattr(layer, "dtype", None) for _, layer in iterate(layers)}
    return own | said - {None}


def _cells(layers: Any) -> list[State]:
    found = tree.leaves(layers, lambda x: type(x) is State)
    return [x for x in found if type(x) is State]
