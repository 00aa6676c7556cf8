"""Training parameters of 16 bits without a copy in 32: what rounding takes is kept, or
made up for by chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import rng, tree
from treadle.optim.base import Record, Transform, check_params, check_state
from treadle.optim.hyper import Hyperparameters, hyper
from treadle.optim.leaves import map_trainable, map_updates, widen


def _is_half(x: Any) -> bool:
    return td.typeof(x).dtype.itemsize == 2


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class KahanState(Record):
    """The state of `kahan`: that of the optimizer within, and what rounding took of
    each parameter of 16 bits (no elements for others)."""

    inner: Any
    rest: Any


def kahan(optimizer: Transform) -> Transform:
    """Keeps what rounding to 16 bits takes of the parameters, for the next update.

    With c for what was taken: ``u ← u + c``, ``q ← round(p + u)``, ``c ← p + u - q``,
    ``p ← q``. Parameters and c together have as many bits as float32 would take, and go
    nearly its way: without c, updates below half a unit in the last place are lost.
    Parameters with more bits are left alone.

    Put it around a whole optimizer: what it gives is to be applied as it is.

    Kahan, *Further Remarks on Reducing Truncation Errors*, 1965; Zamirai et al.,
    *Revisiting BFloat16 Training*, 2020.

    >>> from treadle import optim
    >>> params = {"w": tnp.ones(1, td.bfloat16)}
    >>> grads = {"w": tnp.full(1, 0.001, td.bfloat16)}
    >>> optimizer = optim.kahan(optim.sgd(1.0))
    >>> state = optimizer.init(params)
    >>> for _ in range(100):
    ...     updates, state = optimizer.update(grads, state, params)
    ...     params = optim.apply_updates(params, updates)
    >>> params
    {'w': Array([0.898438], dtype=bfloat16)}
    """

    def init(params: Any) -> KahanState:
        def zeros(x: Any) -> Any:
            t = td.typeof(x)
            return tnp.zeros(t.shape if _is_half(x) else (0,), t.dtype)

        return KahanState(optimizer.init(params), map_trainable(zeros, params))

    def update(
        grads: Any, state: KahanState, params: Any = None, **extra: Any
    ) -> tuple[Any, KahanState]:
        check_state(state, KahanState, "kahan")
        check_params(params, grads, "kahan")
        updates, inner = optimizer.update(grads, state.inner, params, **extra)

        def leaf(u: Any, c: Any, p: Any) -> tuple[Any, Any]:
            if not _is_half(p):
                return u, c
            u = widen(u) + widen(c)
            exact = widen(p) + u
            return u, exact - widen(exact.astype(p.dtype))

        updates, rest = map_updates(leaf, updates, state.rest, read=(params,))
        return updates, KahanState(inner, rest)

    return Transform(init, update, f"kahan of {optimizer}")


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class StochasticRoundingState(Record):
    """The state of `stochastic_rounding`: that of the optimizer within, and the key."""

    hyper: Hyperparameters
    inner: Any
    key: Any


def stochastic_rounding(optimizer: Transform, *, key: rng.Key) -> Transform:
    """Rounds parameters of 16 bits up or down by chance, so that they are right on
    average.

    ``p + u`` becomes the next value above with a probability equal to how far it is
    from the one below, in units of their distance. So many small updates add up, with
    noise, and no state but the key. Parameters with more bits are left alone.

    Put it around a whole optimizer: what it gives is to be applied as it is.

    Gupta et al., *Deep Learning with Limited Numerical Precision*, 2015; Zamirai et
    al., *Revisiting BFloat16 Training*, 2020.

    >>> from treadle import optim
    >>> params = {"w": tnp.ones(1000, td.bfloat16)}
    >>> grads = {"w": tnp.full(1000, 0.001, td.bfloat16)}
    >>> optimizer = optim.stochastic_rounding(optim.sgd(1.0), key=rng.key(0))
    >>> updates, state = optimizer.update(grads, optimizer.init(params), params)
    >>> params = optim.apply_updates(params, updates)
    >>> abs(float(params["w"].astype(td.float32).mean()) - 0.999) < 2e-4
    True
    """

    def init(params: Any) -> StochasticRoundingState:
        return StochasticRoundingState(hyper(), optimizer.init(params), rng.clone(key))

    def update(
        grads: Any, state: StochasticRoundingState, params: Any = None, **extra: Any
    ) -> tuple[Any, StochasticRoundingState]:
        check_state(state, StochasticRoundingState, "stochastic_rounding")
        check_params(params, grads, "stochastic_rounding")
        updates, inner = optimizer.update(grads, state.inner, params, **extra)
        _, after = state.hyper.step()
        now = rng.fold_in(state.key, state.hyper.count)
        numbers = iter(range(len(tree.leaves(updates))))

        def leaf(u: Any, p: Any) -> tuple[Any]:
            number = next(numbers)
            if not _is_half(p):
                return (u,)
            before = widen(p)
            exact = before + widen(u)
            return (_rounded(exact, p.dtype, rng.fold_in(now, number)) - before,)

        (updates,) = map_updates(leaf, updates, read=(params,))
        return updates, StochasticRoundingState(after, inner, state.key)

    return Transform(init, update, f"stochastic_rounding of {optimizer}")


def _rounded(x: Any, dtype: Any, key: rng.Key) -> Any:
    """float32 numbers that have the bits of a narrower dtype, rounded by chance."""
    if dtype == td.bfloat16:
        # What is cut off are the last 16 bits: a random number of 16 bits carries over
        # as often as it should.
        chance = rng.bits(key, x.shape, np.uint32) >> np.uint32(16)
        bits = (x.view(np.uint32) + chance) & np.uint32(0xFFFF0000)
        return tnp.where(tnp.isfinite(x), bits.view(np.float32), x)
    # Between the two nearest float16 numbers, whose distance grows with the exponent
    # down to that of the subnormal ones.
    _, exponent = tnp.frexp(x)
    unit = tnp.ldexp(tnp.ones_like(x), tnp.maximum(exponent - 11, -24))
    below = tnp.floor(x / unit)
    up = rng.uniform(key, x.shape) < x / unit - below
    return tnp.where(tnp.isfinite(x), (below + up) * unit, x)
