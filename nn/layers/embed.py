"""Vectors for tokens."""

from __future__ import annotations

from typing import Any, Literal, get_args

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn import check, init
from treadle.nn.module import Module


def _tokens(layer: str, tokens: tnp.ArrayLike) -> td.Array:
    tokens = check.as_array(tokens)
    if td.dtypes.is_integer(tokens.dtype):
        return tokens
    raise TypeError(
        f"{layer} takes integer tokens, got {td.typeof(tokens)}{at(user_source())}"
    )


def _table(
    layer: str,
    shape: tuple[int, int],
    padding_index: int | None,
    weight_init: init.Initializer,
    param_dtype: Any,
    key: rng.Key,
) -> td.Array:
    weight = weight_init(key, shape, param_dtype)
    if padding_index is None:
        return weight
    if not 0 <= padding_index < shape[0]:
        raise ValueError(
            f"{layer}: padding_index {padding_index} is none of {shape[0]} entries"
            f"{at(user_source())}"
        )
    return weight.at[padding_index].set(0)


class Embedding(Module):
    """A table with one vector per token.

    Shapes: ``(...) of integers -> (..., features)``; the weight is (entries, features).

    Args:
      padding_index: an entry that starts as zeros, and that is not trained.
      weight_init: draws the table; by default from the normal distribution.
      dtype: that of the output; by default that of the table.
      param_dtype: in which the table is made.

    Raises:
      TypeError: for tokens that are no integers.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> table = nn.Embedding(100, 8, key=rng.key(0))
    >>> table(tnp.array([[1, 5, 99]])).shape
    (1, 3, 8)
    """

    entries: int
    features: int
    padding_index: int | None
    dtype: Any
    weight: td.Array

    def __init__(
        self,
        entries: int,
        features: int,
        *,
        padding_index: int | None = None,
        weight_init: init.Initializer = init.standard_normal,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        self.entries, self.features = entries, features
        self.padding_index = padding_index
        self.dtype = check.dtype(dtype)
        shape = entries, features
        self.weight = _table(
            "Embedding", shape, padding_index, weight_init, param_dtype, key
        )

    def __call__(self, tokens: tnp.ArrayLike) -> td.Array:
        tokens = _tokens("Embedding", tokens)
        found = self.weight[tokens]
        if self.padding_index is not None:
            padding = (tokens == self.padding_index)[..., None]
            found = tnp.where(padding, td.stop_gradient(found), found)
        return found if self.dtype is None else found.astype(self.dtype)

    def attend(self, x: tnp.ArrayLike) -> td.Array:
        """How well vectors agree with each entry: logits of a model whose output shares
        the table. Shapes: ``(..., features) -> (..., entries)``."""
        name = "Embedding.attend"
        x = check.last_axis(name, x, self.features, "features")
        x, weight = check.operands(name, self.dtype, x, self.weight)
        return x @ weight.T


Mode = Literal["sum", "mean", "max"]


class EmbeddingBag(Module):
    """The sum, mean or largest elements of the vectors of each bag of tokens. A bag
    without tokens gives zeros.

    Shapes: ``(..., length) of integers -> (..., features)``, with bags of one length or
    with a mask; ``(count,), offsets (bags,) -> (bags, features)`` for bags one after
    the other. The weight is (entries, features).

    Args:
      mode: "sum", "mean" or "max".
      padding_index: an entry that starts as zeros, and whose tokens are not in the bag.
      weight_init, dtype, param_dtype: as for `Embedding`.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> bag = nn.EmbeddingBag(100, 8, mode="sum", key=rng.key(0))
    >>> bag(tnp.array([[1, 5], [99, 0]])).shape
    (2, 8)
    >>> bag(tnp.array([1, 5, 99, 0]), offsets=tnp.array([0, 1, 1])).shape
    (3, 8)
    """

    entries: int
    features: int
    mode: Mode
    padding_index: int | None
    dtype: Any
    weight: td.Array

    def __init__(
        self,
        entries: int,
        features: int,
        *,
        mode: Mode = "mean",
        padding_index: int | None = None,
        weight_init: init.Initializer = init.standard_normal,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        if mode not in get_args(Mode):
            raise ValueError(
                f"EmbeddingBag: mode is one of {get_args(Mode)}; got {mode!r}"
                f"{at(user_source())}"
            )
        self.entries, self.features, self.mode = entries, features, mode
        self.padding_index = padding_index
        self.dtype = check.dtype(dtype)
        shape = entries, features
        self.weight = _table(
            "EmbeddingBag", shape, padding_index, weight_init, param_dtype, key
        )

    def __call__(
        self,
        tokens: tnp.ArrayLike,
        *,
        offsets: tnp.ArrayLike | None = None,
        mask: tnp.ArrayLike | None = None,
        weights: tnp.ArrayLike | None = None,
    ) -> td.Array:
        """
        Args:
          offsets: where each bag begins, in ascending order, the first one at 0.
          mask: which tokens are in their bag; as large as `tokens`.
          weights: what each vector is multiplied with, for mode "sum"; as large as
            `tokens`.

        Raises:
          ValueError: for arguments that don't fit.
        """
        tokens = _tokens("EmbeddingBag", tokens)
        self._check(tokens, offsets=offsets, mask=mask, weights=weights)
        inside = None if mask is None else check.as_array(mask)
        if self.padding_index is not None:
            real = tokens != self.padding_index
            inside = real if inside is None else inside & real
        table = self.weight if self.dtype is None else self.weight.astype(self.dtype)
        found = check.wide(table)[tokens]
        if weights is not None:
            found = found * check.as_array(weights).astype(found.dtype)[..., None]
        if inside is not None:
            found = tnp.where(inside[..., None], found, self._nothing)
        if offsets is None:
            out = self._bags(found, inside)
        else:
            out = self._ragged(found, inside, check.as_array(offsets))
        return out.astype(table.dtype)

    @property
    def _nothing(self) -> float:
        """What changes no bag."""
        return -tnp.inf if self.mode == "max" else 0.0

    def _check(self, tokens: td.Array, **options: Any) -> None:
        offsets = options.pop("offsets")
        wrong = [
            f"{name} {td.typeof(x)}"
            for name, x in options.items()
            if x is not None and td.typeof(x).shape != tokens.shape
        ]
        if wrong or not tokens.ndim or (offsets is not None and tokens.ndim != 1):
            given = "" if offsets is None else f", offsets {td.typeof(offsets)}"
            raise ValueError(
                "EmbeddingBag takes tokens (..., length), or (count,) with offsets, "
                "and a mask and weights as large as these; got "
                f"{', '.join([str(td.typeof(tokens)), *wrong])}{given}"
                f"{at(user_source())}"
            )
        if options["weights"] is not None and self.mode != "sum":
            raise ValueError(
                f"EmbeddingBag: weights are for mode 'sum', not {self.mode!r}"
                f"{at(user_source())}"
            )

    def _bags(self, found: Any, inside: Any) -> Any:
        if self.mode == "max":
            return _finite(found.max(-2, initial=-tnp.inf))
        total = found.sum(-2)
        if self.mode == "sum":
            return total
        counts: Any = found.shape[-2] if inside is None else inside.sum(-1)[..., None]
        return total / tnp.maximum(counts, 1).astype(total.dtype)

    def _ragged(self, found: Any, inside: Any, offsets: Any) -> Any:
        count, bags = found.shape[0], offsets.shape[0]
        bag = tnp.searchsorted(offsets, tnp.arange(count), side="right") - 1
        if self.mode == "max":
            return _finite(td.segment_max(found, bag, bags))
        total = td.segment_sum(found, bag, bags)
        if self.mode == "sum":
            return total
        ones = tnp.ones(count) if inside is None else inside.astype(tnp.float32)
        counts = td.segment_sum(ones, bag, bags)[:, None]
        return total / tnp.maximum(counts, 1).astype(total.dtype)


def _finite(largest: Any) -> Any:
    """Bags without tokens as zeros."""
    return tnp.where(largest == -tnp.inf, 0, largest)
