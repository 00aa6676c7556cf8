"""An average of the parameters along their way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import treadle as td
from treadle import dtypes, tree
from treadle.errors import at, user_source
from treadle.nn import State
from treadle.optim.base import Record, Transform, check_params, check_state
from treadle.optim.hyper import Hyperparameter, Hyperparameters, hyper
from treadle.optim.leaves import map_updates, positions, settle, trainable, widen
from treadle.optim.limits import check
from treadle.optim.moments import copies


class Averaged(Record):
    """A state that has other weights than the parameters, to evaluate."""

    def weights(self, params: Any) -> Any:
        """These weights, where something is trained, for the present parameters."""
        raise NotImplementedError


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class AverageState(Averaged):
    """The state of `average_parameters`."""

    hyper: Hyperparameters
    average: Any

    def weights(self, params: Any) -> Any:
        return self.average


def average_parameters(
    decay: Hyperparameter = 0.999, *, state: bool = False
) -> Transform:
    """Keeps an exponential moving average of the parameters; passes updates on.

    ``a ← decay · a + (1 - decay) (p + u)``, from a = p. It has to be the last of a
    chain, where the updates u are those that will be applied. `averaged` gives the
    average back.

    Args:
      decay: the share of the past.
      state: whether floats in `nn.State` cells are averaged, too, as they are in the
        parameters given to `update`: statistics of norms then are of about the same
        steps as the weights. Else, and of whole numbers, the latest are used.

    Polyak and Juditsky, *Acceleration of Stochastic Approximation by Averaging*, 1992.

    >>> import treadle.numpy as tnp
    >>> from treadle import optim
    >>> optimizer = optim.chain(optim.sgd(1.0), average_parameters(0.5))
    >>> params, grads = {"w": tnp.zeros(1)}, {"w": tnp.ones(1)}
    >>> _, state = optimizer.update(grads, optimizer.init(params), params)
    >>> averaged(params, state)
    {'w': Array([-0.5], dtype=float32)}
    """
    check("average_parameters", decay=decay)

    def init(params: Any) -> AverageState:
        chosen = trainable(params)
        if state:
            chosen = [a or b for a, b in zip(chosen, _in_cells(params), strict=True)]
        return AverageState(hyper(decay=decay), copies(params, chosen))

    def update(grads: Any, held: AverageState, params: Any = None) -> tuple[Any, Any]:
        check_state(held, AverageState, "average_parameters")
        check_params(params, grads, "average_parameters")
        now, after = held.hyper.step()
        keep, new = now.decay, 1 - now.decay

        def leaf(u: Any, a: Any, p: Any) -> tuple[Any, Any]:
            return u, keep * a + new * (p + u)

        updates, average = map_updates(leaf, grads, held.average, read=(params,))
        if state:
            average = _with_cells(average, params, new)
        return updates, AverageState(after, average)

    return Transform(init, update, "average_parameters")


def _in_cells(params: Any) -> list[bool]:
    """For each leaf, whether it is a float in a `State`."""
    found: list[bool] = []
    for part in tree.leaves(params, is_leaf=lambda x: isinstance(x, State)):
        leaves = tree.leaves(part)
        inside = isinstance(part, State)
        found += [
            inside and dtypes.is_differentiable(td.typeof(x).dtype) for x in leaves
        ]
    return found


def _with_cells(average: Any, params: Any, new: Any) -> Any:
    """An average that has gone a step on in the leaves that are in cells."""
    leaves, form = tree.flatten(average)
    values, whole = tree.flatten(params)
    inside = _in_cells(params)
    for i, place in enumerate(positions(form, whole, "the parameters")):
        if inside[place]:
            # What does not change stays as it is, to the last bit.
            step = new * (widen(values[place]) - leaves[i])
            leaves[i] = settle(leaves[i], leaves[i] + step)
    return form.unflatten(leaves)


def averaged(params: Any, state: Any) -> Any:
    """The parameters to evaluate: with averages in place of what is trained.

    Args:
      params: gives what is not averaged, and the dtypes.
      state: of an optimizer with `average_parameters` in it, of `lookahead` (whose slow
        weights these are), or of `schedule_free`.

    Raises:
      ValueError: unless there is one average in the state.

    >>> import treadle.numpy as tnp
    >>> from treadle import optim
    >>> optimizer = optim.chain(optim.sgd(0.1), average_parameters())
    >>> params = {"w": tnp.ones(2), "steps": 3}
    >>> averaged(params, optimizer.init(params))
    {'steps': 3, 'w': Array([1., 1.], dtype=float32)}
    """
    parts = tree.leaves(state, is_leaf=lambda s: isinstance(s, Averaged))
    found = [part for part in parts if isinstance(part, Averaged)]
    if len(found) != 1:
        raise ValueError(
            f"expected one average in the optimizer's state, found {len(found)}"
            f"{at(user_source())}\n"
            "Put `average_parameters` last in the chain."
        )
    values, form = tree.flatten(found[0].weights(params))
    leaves, whole = tree.flatten(params)
    for i, value in zip(positions(form, whole, "the parameters"), values, strict=True):
        leaves[i] = settle(leaves[i], widen(value))
    return whole.unflatten(leaves)
