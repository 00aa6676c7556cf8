"""Small trainable parts for large models that stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import treadle as td
import treadle.numpy as tnp
from treadle import rng, tree
from treadle.errors import at as at_line
from treadle.errors import user_source
from treadle.nn import check, init
from treadle.nn.freeze import freeze
from treadle.nn.functions.activation import relu
from treadle.nn.layers.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from treadle.nn.layers.dropout import Dropout
from treadle.nn.layers.embed import Embedding
from treadle.nn.layers.linear import Linear
from treadle.nn.layers.stack import Stack
from treadle.nn.module import Module
from treadle.nn.surgery import at, iterate

_NO_WEIGHT = """\
LoRA wraps layers with a `weight` of shape (..., in, out), such as Linear, Conv2d and \
Embedding; got {found}{at}"""
_NO_DROPOUT = """\
LoRA: dropout is of the inputs of the change, which can't be told apart in a {found}{at}
It is for Linear, convolutions and Embedding."""
_NONE = """\
nn.lora: {where!r} has no layer with a weight of two axes or more{at}"""
_TWICE = """\
lora: the model has adapters already{at}
Fold these in first, `nn.merge_lora(model)`, or choose all layers in one call."""

# What they compute is linear in their weight, so the change goes its own, short way.
_LINEAR = {
    *(Linear, Embedding, Conv1d, Conv2d, Conv3d),
    *(ConvTranspose1d, ConvTranspose2d, ConvTranspose3d),
}

Model = TypeVar("Model")


class LoRA(Module):
    """A layer that is frozen, and a trainable change of low rank to its weight (Hu
    2021): ``weight + alpha / rank * lora_a @ lora_b``.

    It is called as the layer is. At first it computes what that does: `lora_b` is 0.

    Args:
      layer: with a `weight` of shape (*window, in, out): `Linear`, a convolution,
        `Embedding`; or one of your own, which is called with the changed weight.
      rank: of the change: `lora_a` is (*window, in, rank), `lora_b` (rank, out).
      alpha: by default the rank, so that the change counts as it is.
      dropout: the rate at which inputs of the change are dropped in training; not for
        layers of your own.
      lora_a_init, lora_b_init: draw them.
      dtype: in which the change is computed; by default that of its parameters. The
        output is of the layer's dtype.
      param_dtype: in which the parameters are made.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> k1, k2 = rng.split(rng.key(0))
    >>> layer = nn.LoRA(nn.Linear(64, 32, key=k1), 4, key=k2)
    >>> layer.lora_a.shape, layer.lora_b.shape, layer(tnp.ones((2, 64))).shape
    ((64, 4), (4, 32), (2, 32))
    """

    layer: Any
    rank: int
    alpha: float
    dropout: Dropout
    dtype: Any
    lora_a: td.Array
    lora_b: td.Array

    def __init__(
        self,
        layer: Any,
        rank: int,
        *,
        alpha: float | None = None,
        dropout: float = 0.0,
        lora_a_init: init.Initializer | None = None,
        lora_b_init: init.Initializer = init.zeros,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        if not _fits(layer):
            found = type(layer).__name__
            raise TypeError(_NO_WEIGHT.format(found=found, at=at_line(user_source())))
        if rank < 1:
            raise ValueError(
                f"LoRA: a rank is positive, got {rank!r}{at_line(user_source())}"
            )
        if alpha is not None:
            check.within("LoRA", "alpha", alpha)
        if dropout and type(layer) not in _LINEAR:
            found = type(layer).__name__
            raise ValueError(_NO_DROPOUT.format(found=found, at=at_line(user_source())))
        self.layer, self.rank = freeze(layer), rank
        self.alpha = float(rank if alpha is None else alpha)
        self.dropout, self.dtype = Dropout(dropout), check.dtype(dtype)
        if lora_a_init is None:
            # Rows of a table are picked, not summed.
            is_table = isinstance(layer, Embedding)
            lora_a_init = init.standard_normal if is_table else init.fan_in_uniform
        k1, k2 = rng.split(key)
        *lead, out = layer.weight.shape
        self.lora_a = lora_a_init(k1, (*lead, rank), param_dtype)
        self.lora_b = lora_b_init(k2, (rank, out), param_dtype)

    @property
    def weight(self) -> td.Array:
        """The changed weight."""
        return self.layer.weight + self._change().astype(self.layer.weight.dtype)

    @property
    def bias(self) -> td.Array | None:
        """The layer's bias."""
        return getattr(self.layer, "bias", None)

    def merged(self) -> Any:
        """The layer, with the change in its weight."""
        return self.layer.replace(weight=self.weight)

    def __call__(self, x: tnp.ArrayLike, *args: Any, **kwargs: Any) -> td.Array:
        if type(self.layer) not in _LINEAR:
            return self.merged()(x, *args, **kwargs)
        out = self.layer(x, *args, **kwargs)
        x = check.as_array(x)
        if td.dtypes.is_float(x.dtype):
            x = self.dropout(x)
        if getattr(self.layer, "groups", 1) == 1:
            low = self._with(self.lora_a)(x, *args, **kwargs)
            change = low @ (self.lora_b * self._scale).astype(low.dtype)
        else:  # an output sees a part of the inputs, other outputs another one
            change = self._with(self._change())(x, *args, **kwargs)
        return out + change.astype(out.dtype)

    @property
    def _scale(self) -> float:
        return self.alpha / self.rank

    def _change(self) -> td.Array:
        product = tnp.matmul
        for _ in range(self.lora_b.ndim - 2):  # in a Stack that does not run
            product = td.vmap(product)
        return product(self.lora_a, self.lora_b * self._scale)

    def _with(self, weight: td.Array) -> Any:
        """The layer with another weight, and nothing added to that."""
        fields: dict[str, Any] = {"weight": weight}
        for name, value in (("bias", None), ("dtype", self.dtype)):
            if hasattr(self.layer, name):
                fields[name] = value
        return self.layer.replace(**fields)


class Adapter(Module):
    """A bottleneck that is added to its input (Houlsby 2019): ``x +
    up(activation(down(x)))``. At first it changes nothing: `up` is 0.

    Shapes: ``(..., features) -> (..., features)``.

    Args:
      features: the size of the last axis.
      bottleneck: the size in between.
      dtype: in which it computes; by default that of its parameters.
      param_dtype: in which the parameters are made.

    >>> import treadle.numpy as tnp
    >>> from treadle import nn, rng
    >>> k1, k2 = rng.split(rng.key(0))
    >>> mlp = nn.MLP((2, 16, 1), key=k1)
    >>> adapted = nn.at(mlp, lambda m: m.layers[0]).apply(
    ...     lambda layer: nn.Sequential(layer, nn.Adapter(16, 4, key=k2))
    ... )
    >>> x = tnp.ones((3, 2))
    >>> (adapted(x) == mlp(x)).all()
    Array(True, dtype=bool)
    """

    down: Linear
    activation: Callable[[td.Array], td.Array]
    up: Linear

    def __init__(
        self,
        features: int,
        bottleneck: int,
        *,
        activation: Callable[[td.Array], td.Array] = relu,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        k1, k2 = rng.split(key)
        options = {"dtype": dtype, "param_dtype": param_dtype, "bias_init": init.zeros}
        self.down = Linear(features, bottleneck, key=k1, **options)
        self.activation = activation
        self.up = Linear(
            bottleneck, features, weight_init=init.zeros, key=k2, **options
        )

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x = check.as_array(x)
        change = self.up(self.activation(self.down(x)))
        return x + change.astype(td.dtypes.to_float(x.dtype))


def lora(
    model: Model,
    where: Any = Linear,
    *,
    rank: int,
    alpha: float | None = None,
    dropout: float = 0.0,
    key: rng.Key,
) -> Model:
    """A model of which only adapters are trained: chosen layers are wrapped in `LoRA`,
    and all else is frozen.

    The adapters are the trainable half of `nn.partition`, so they are saved, sent and
    put into another copy of the model alone. `merge_lora` folds them in.

    Args:
      where: which layers: a class, a function that picks parts, as `nn.at` takes them;
        or patterns over paths (``"blocks.*.query"``): all layers there, and inside of
        what is there, that have a weight of two axes or more.
      rank, alpha, dropout: as of `LoRA`.

    Raises:
      ValueError: if nothing is picked, or there are adapters already.

    >>> from treadle import nn, rng
    >>> k1, k2 = rng.split(rng.key(0))
    >>> model = nn.lora(nn.MLP((2, 64, 1), key=k1), rank=2, key=k2)
    >>> list(nn.parameters(model))
    ['layers.0.lora_a', 'layers.0.lora_b', 'layers.1.lora_a', 'layers.1.lora_b']
    """
    if _adapters(model):
        raise ValueError(_TWICE.format(at=at_line(user_source())))
    if isinstance(where, str | tree.Selector) or _are_patterns(where):
        where = _layers(model, where)
    frozen = freeze(model)
    chosen = at(frozen, where)
    found = chosen.get()
    layers = (found,) if chosen.single else found
    lengths = _stacked(frozen)

    def wrap(layer: Any, key: rng.Key, lengths: tuple[int, ...]) -> LoRA:
        if not lengths:
            return LoRA(layer, rank, alpha=alpha, dropout=dropout, key=key)
        keys = rng.split(key, lengths[0])
        return td.vmap(lambda layer, key: wrap(layer, key, lengths[1:]))(layer, keys)

    wrapped = [
        wrap(layer, k, lengths.get(id(layer), ()))
        for layer, k in zip(layers, rng.split(key, len(layers)), strict=True)
    ]
    return chosen.set(wrapped[0] if chosen.single else wrapped)


def _stacked(model: Any) -> dict[int, tuple[int, ...]]:
    """Of modules (by id) in a Stack, in Stacks: how many layers are stacked."""
    found: dict[int, tuple[int, ...]] = {}
    for _, stack in iterate(model):
        if isinstance(stack, Stack):
            around = found.get(id(stack), ())
            for _, part in iterate(stack.layers):
                found[id(part)] = (*around, stack.length)
    return found


def _are_patterns(where: Any) -> bool:
    return isinstance(where, list | tuple) and all(isinstance(w, str) for w in where)


def _layers(model: Any, where: Any) -> list[str]:
    """The paths of layers to wrap, of whose weights a selection has some."""
    leaves, form = tree.flatten(tree.select(where)(model))
    chosen = {
        tree.dotted(path)
        for path, wanted in zip(tree.paths(form), leaves, strict=True)
        if wanted
    }
    stacked = _stacked(model)
    found = [
        path
        for path, part in iterate(model)
        if f"{path}.weight" in chosen and _fits(part, len(stacked.get(id(part), ())))
    ]
    if not found:
        raise ValueError(_NONE.format(where=where, at=at_line(user_source())))
    return found


def _fits(part: Any, stacked: int = 0) -> bool:
    """Whether `LoRA` wraps it, or each of the layers that are stacked in it."""
    weight: Any = getattr(part, "weight", None)
    return isinstance(part, Module) and getattr(weight, "ndim", 0) >= 2 + stacked


def merge_lora(model: Model) -> Model:
    """The model with its adapters folded into the layers that they wrap: it computes
    the same as in inference, at the cost of the model without adapters.

    What was frozen stays so; `nn.unfreeze` undoes that.

    Raises:
      ValueError: if there are no adapters.

    >>> from treadle import nn, rng
    >>> k1, k2 = rng.split(rng.key(0))
    >>> model = nn.lora(nn.MLP((2, 64, 1), key=k1), rank=2, key=k2)
    >>> nn.merge_lora(model).layers[0]
    Linear(in_features=2, out_features=64, weight=f32[2,64], bias=f32[64])
    """
    return at(model, LoRA).apply(LoRA.merged)


def _adapters(model: Any) -> list[LoRA]:
    found = tree.leaves(model, lambda x: type(x) is LoRA)
    return [x for x in found if type(x) is LoRA]
