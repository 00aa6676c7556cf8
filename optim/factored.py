"""Adafactor: mean squares of matrices as products of a row and a column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import dtypes, tree
from treadle.optim.base import Record, Transform, check_state
from treadle.optim.decay import Mask, add_decayed_weights
from treadle.optim.hyper import Hyperparameter, Hyperparameters, hyper
from treadle.optim.layerwise import clip_by_block_rms, scale_by_param_block_rms
from treadle.optim.leaves import map_trainable, map_updates, square, wide, widen
from treadle.optim.limits import check
from treadle.optim.named import named
from treadle.optim.scale import ema, scale, scale_by_learning_rate


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class FactoredState(Record):
    """The state of `scale_by_factored_rms`: mean squares over rows and columns of what
    is factored, whole ones of the rest. What a leaf doesn't use has no elements."""

    hyper: Hyperparameters
    rows: Any
    columns: Any
    mean_square: Any


def scale_by_factored_rms(
    decay_power: Hyperparameter = 0.8,
    eps: Hyperparameter = 1e-30,
    min_dim_size_to_factor: int = 128,
    *,
    step_offset: Hyperparameter = 0,
    factored: bool = True,
) -> Transform:
    """Divides by the root of a mean square of which only two margins are kept.

    With ``d = 1 - t**-decay_power`` for the step t from 1 (less `step_offset`) and
    ``q = g² + eps``, over the two longest axes of a leaf:
    ``r ← d r + (1 - d) mean(q, longest)``, ``c ← d c + (1 - d) mean(q, second)``; the
    update is ``g / √(r c / mean(r))``. Leaves whose second longest axis is shorter than
    `min_dim_size_to_factor` keep ``v ← d v + (1 - d) q`` and get ``g / √v``.

    Shazeer and Stern, *Adafactor: Adaptive Learning Rates with Sublinear Memory Cost*,
    2018.

    >>> factored = scale_by_factored_rms(min_dim_size_to_factor=2)
    >>> grads = tnp.array([[3.0, -3.0], [3.0, 3.0]])
    >>> factored.update(grads, factored.init(grads))[0]
    Array([[ 1., -1.],
           [ 1.,  1.]], dtype=float32)
    """
    name = "scale_by_factored_rms"
    numbers = {"decay_power": decay_power, "eps": eps, "step_offset": step_offset}
    check(name, **numbers, min_dim_size_to_factor=min_dim_size_to_factor)

    def axes(shape: tuple[int, ...]) -> tuple[int, int] | None:
        """The second longest axis and the longest, of those of equal length the last
        ones."""
        order = sorted(range(len(shape)), key=shape.__getitem__)
        if not factored or len(shape) < 2 or shape[order[-2]] < min_dim_size_to_factor:
            return None
        return order[-2], order[-1]

    def init(params: Any) -> FactoredState:
        def without(which: int) -> Any:
            def zeros(x: Any) -> Any:
                found = axes(td.typeof(x).shape)
                return _zeros(x, None if found is None else found[which])

            return map_trainable(zeros, params)

        whole = map_trainable(
            lambda x: _zeros(x, None if axes(td.typeof(x).shape) else ()), params
        )
        return FactoredState(hyper(**numbers), without(1), without(0), whole)

    def update(grads: Any, state: FactoredState, params: Any = None) -> tuple[Any, Any]:
        check_state(state, FactoredState, name)
        now, after = state.hyper.step()
        time = after.count.astype(td.float32) - now.step_offset
        new = time**-now.decay_power
        keep = 1 - new

        def leaf(g: Any, r: Any, c: Any, v: Any) -> tuple[Any, Any, Any, Any]:
            g = widen(g)
            q = square(g) + now.eps
            found = axes(g.shape)
            if found is None:
                v = keep * v + new * q
                return g / tnp.sqrt(v), r, c, v
            second, longest = found
            r = keep * r + new * tnp.mean(q, axis=longest)
            c = keep * c + new * tnp.mean(q, axis=second)
            mean = tnp.mean(r, axis=second - (second > longest), keepdims=True)
            rows = tnp.expand_dims(tnp.sqrt(r / mean), longest)
            return g / (rows * tnp.expand_dims(tnp.sqrt(c), second)), r, c, v

        updates, *rest = map_updates(
            leaf, grads, state.rows, state.columns, state.mean_square
        )
        return updates, FactoredState(after, *rest)

    return Transform(init, update, name)


def _zeros(x: Any, without: int | tuple[()] | None) -> Any:
    """Real zeros like x without an axis; () for none of them, None for no elements."""
    t = td.typeof(x)
    dtype = wide(dtypes.to_real(t.dtype))
    if without is None:
        return tnp.zeros((0,), dtype)
    kept = tuple(n for i, n in enumerate(t.shape) if i != without)
    return tnp.zeros(kept, dtype)


def adafactor(
    learning_rate: Hyperparameter | None = None,
    decay_power: Hyperparameter = 0.8,
    eps: Hyperparameter = 1e-30,
    clipping_threshold: Hyperparameter | None = 1.0,
    momentum: Hyperparameter | None = None,
    weight_decay: Hyperparameter | None = None,
    mask: Mask | None = None,
    moment_dtype: Any = None,
    *,
    min_dim_size_to_factor: int = 128,
    relative: bool = True,
) -> Transform:
    """Adafactor: hardly any state for matrices; see `scale_by_factored_rms`.

    Its update is limited to a root mean square of `clipping_threshold`, multiplied by
    the learning rate and by the root mean square of the parameter, averaged if there
    is `momentum`, and what decays is added.

    Args:
      learning_rate: in units of the parameter's size, so 1e-2 or so; 1 if None.
      weight_decay: taken off at each step, not multiplied by the learning rate.
      mask: which parameters decay; all by default.
      relative: False for steps in absolute units.

    Shazeer and Stern, *Adafactor: Adaptive Learning Rates with Sublinear Memory Cost*,
    2018.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.array([2.0])}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.adafactor(0.01)
    >>> optimizer.update(grads, optimizer.init(params), params)[0]
    {'w': Array([-0.02], dtype=float32)}
    """
    parts = [scale_by_factored_rms(decay_power, eps, min_dim_size_to_factor)]
    if clipping_threshold is not None:
        parts.append(clip_by_block_rms(clipping_threshold))
    if learning_rate is not None:
        check("adafactor", learning_rate=learning_rate)
        parts.append(scale_by_learning_rate(learning_rate, flip_sign=False))
    if relative:
        parts.append(scale_by_param_block_rms())
    if momentum is not None:
        parts.append(ema(momentum, False, moment_dtype))
    if weight_decay is not None:
        parts.append(add_decayed_weights(weight_decay, mask))
    return named("adafactor", *parts, scale(-1.0))
