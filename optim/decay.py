"""Weight decay, and which parameters it concerns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import treadle as td
from treadle import tree
from treadle.optim.base import Transform, check_params, check_state
from treadle.optim.hyper import Hyperparameter, Hyperparameters, hyper
from treadle.optim.leaves import map_updates
from treadle.optim.limits import check

Mask = Any | Callable[[Any], Any]
"""Whatever `treadle.tree.select` takes: patterns over paths (``"**.weight"``), classes,
predicates, a pytree of booleans like the parameters (or a prefix: True for a whole
layer), or a function from the parameters to one."""


def matrices(params: Any) -> Any:
    """A mask of the parameters with two axes or more: no biases, scales or gains.

    It counts axes. Where the parameters of several layers are stacked, for a `scan`
    over them, biases have two: then give a mask of your own.

    >>> import treadle.numpy as tnp
    >>> matrices({"weight": tnp.ones((2, 3)), "bias": tnp.ones(3)})
    {'bias': False, 'weight': True}
    """
    return tree.map(lambda x: td.typeof(x).ndim >= 2, params)


def add_decayed_weights(
    weight_decay: Hyperparameter, mask: Mask | None = None
) -> Transform:
    """Adds ``weight_decay`` times the parameter to its gradient.

    ``g ← g + weight_decay · p``: before an optimizer this is an L2 penalty, between its
    moments and its learning rate it is decoupled weight decay (AdamW).

    Args:
      mask: which parameters decay; all by default. `matrices` leaves out biases.

    Loshchilov and Hutter, *Decoupled Weight Decay Regularization*, 2019.

    >>> import treadle.numpy as tnp
    >>> params = {"weight": tnp.ones((1, 2)), "bias": tnp.ones(2)}
    >>> decay = add_decayed_weights(0.1, mask=matrices)
    >>> grads = tree.map(tnp.zeros_like, params)
    >>> decay.update(grads, decay.init(params), params)[0]["weight"]
    Array([[0.1, 0.1]], dtype=float32)
    """
    check("add_decayed_weights", weight_decay=weight_decay)

    def init(params: Any) -> Hyperparameters:
        return hyper(weight_decay=weight_decay)

    def update(
        grads: Any, state: Hyperparameters, params: Any = None
    ) -> tuple[Any, Any]:
        check_state(state, Hyperparameters, "add_decayed_weights")
        check_params(params, grads, "add_decayed_weights")
        now, after = state.step()
        rate = now.weight_decay
        decays = tree.select(True if mask is None else mask)(params)
        (updates,) = map_updates(
            lambda g, p, here: (g + rate * p if here else g,),
            grads,
            read=(params, decays),
        )
        return updates, after

    return Transform(init, update, "add_decayed_weights")
