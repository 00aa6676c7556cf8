"""Numbers about a run: kept in the state on the way, or what the run is steered by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.errors import at, user_source
from treadle.optim.base import Record, Transform, check_state
from treadle.optim.hyper import Hyperparameter, Hyperparameters, hyper
from treadle.optim.leaves import map_updates, settle, zeros_for
from treadle.optim.limits import check


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class MonitorState(Record):
    """The state of `monitor`; read it by `measurements`."""

    hyper: Hyperparameters
    values: dict[str, Any]


def monitor(
    measures: Mapping[str, Callable[[Any], Any]], decay: Hyperparameter = 0.0
) -> Transform:
    """Keeps what functions say of the gradients that come by; passes these on.

    Args:
      measures: by name, functions from gradients to arrays, or trees of them.
      decay: of the exponential moving averages that are kept; 0 keeps the last values.

    >>> from treadle import optim
    >>> sizes = monitor({"norm": optim.global_norm})
    >>> optimizer = optim.chain(sizes, optim.clip_by_global_norm(1.0), optim.sgd(0.1))
    >>> grads = tnp.array([3.0, 4.0])
    >>> _, state = optimizer.update(grads, optimizer.init(grads))
    >>> measurements(state)
    {'norm': Array(5., dtype=float32)}
    """
    check("monitor", decay=decay)
    if not isinstance(measures, Mapping):
        raise TypeError(
            f"monitor takes a dict of functions by name, got {measures!r:.60}"
            f"{at(user_source())}\n"
            'For example `optim.monitor({"norm": optim.global_norm})`.'
        )

    def measured(grads: Any) -> dict[str, Any]:
        return {name: measure(grads) for name, measure in measures.items()}

    def init(params: Any) -> MonitorState:
        types = td.eval_shape(measured, zeros_for(params))
        values = tree.map(lambda t: tnp.zeros(t.shape, t.dtype), types)
        return MonitorState(hyper(decay=decay), values)

    def update(grads: Any, state: MonitorState, params: Any = None) -> tuple[Any, Any]:
        check_state(state, MonitorState, "monitor")
        now, after = state.hyper.step()
        # An average that is right from the first value on: nothing of the zeros stays.
        old = now.decay * (1 - now.decay**state.hyper.count)
        keep = old / (1 - now.decay**after.count)
        values = tree.map(
            lambda was, new: settle(was, _mixed(keep, was, new)),
            state.values,
            measured(grads),
        )
        return grads, MonitorState(after, values)

    return Transform(init, update, "monitor")


def _mixed(keep: Any, was: Any, new: Any) -> Any:
    # The value itself where nothing is kept: 0 · inf would stay for ever.
    return tnp.where(keep == 0, new, keep * was + (1 - keep) * new)


def measurements(state: Any) -> dict[str, Any]:
    """What the monitors in an optimizer's state have kept, by name.

    Raises:
      ValueError: if two of them have one name for it.

    >>> import treadle.numpy as tnp
    >>> watch = monitor({"largest": lambda g: abs(g).max()})
    >>> measurements(watch.update(tnp.array([1.0, -2.0]), watch.init(tnp.ones(2)))[1])
    {'largest': Array(2., dtype=float32)}
    """
    found: dict[str, Any] = {}
    for part in tree.leaves(state, is_leaf=lambda s: isinstance(s, MonitorState)):
        if isinstance(part, MonitorState):
            twice = found.keys() & part.values.keys()
            if twice:
                raise ValueError(
                    f"two monitors measure {', '.join(map(repr, sorted(twice)))}"
                    f"{at(user_source())}\nName them differently."
                )
            found |= part.values
    return found


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class PlateauState(Record):
    """The state of `reduce_on_plateau`.

    scale: what updates are multiplied by.
    best_value: the least value (the mean of `accumulation_size` of them) so far.
    plateau_count, cooldown_count: for how many values it hasn't got better; for how
      many more that doesn't count.
    mean_value, mean_count: of the values that are being averaged.
    """

    hyper: Hyperparameters
    scale: Any
    best_value: Any
    plateau_count: Any
    cooldown_count: Any
    mean_value: Any
    mean_count: Any


def reduce_on_plateau(
    factor: Hyperparameter = 0.1,
    patience: Hyperparameter = 10,
    rtol: Hyperparameter = 1e-4,
    atol: Hyperparameter = 0.0,
    cooldown: Hyperparameter = 0,
    accumulation_size: Hyperparameter = 1,
    min_scale: Hyperparameter = 0.0,
) -> Transform:
    """Makes updates smaller whenever a value has stopped falling: last in a chain,
    which gets the value, ``optimizer.update(grads, state, params, value=loss)``.

    Args:
      factor: what the scale is multiplied by then.
      patience: after how many values that are no better than the best.
      rtol, atol: a value is better below ``(1 - rtol) best - atol``.
      cooldown: how many values after a reduction aren't looked at.
      accumulation_size: how many values are averaged before they are looked at.
      min_scale: the least that the scale becomes.

    >>> from treadle import optim
    >>> optimizer = optim.chain(optim.sgd(1.0), reduce_on_plateau(0.5, patience=1))
    >>> state = optimizer.init(tnp.zeros(1))
    >>> _, state = optimizer.update(tnp.ones(1), state, value=3.0)
    >>> optimizer.update(tnp.ones(1), state, value=3.0)[0]
    Array([-0.5], dtype=float32)
    """
    numbers = {
        "factor": factor,
        "patience": patience,
        "rtol": rtol,
        "atol": atol,
        "cooldown": cooldown,
        "accumulation_size": accumulation_size,
        "min_scale": min_scale,
    }
    check("reduce_on_plateau", **numbers)

    def init(params: Any) -> PlateauState:
        one, most, mean = (tnp.asarray(x, td.float32) for x in (1.0, tnp.inf, 0.0))
        plateau, cooling, count = (tnp.zeros((), td.int32) for _ in range(3))
        return PlateauState(hyper(**numbers), one, most, plateau, cooling, mean, count)

    def update(
        grads: Any, state: PlateauState, params: Any = None, *, value: Any = None
    ) -> tuple[Any, Any]:
        check_state(state, PlateauState, "reduce_on_plateau")
        if value is None:
            raise ValueError(
                f"reduce_on_plateau needs the value{at(user_source())}\n"
                "Pass it by name: `optimizer.update(grads, state, params, value=loss)`."
            )
        after = _watched(state, value)
        return map_updates(lambda g: (after.scale * g,), grads)[0], after

    return Transform(init, update, "reduce_on_plateau")


def _watched(state: PlateauState, value: Any) -> PlateauState:
    now, after = state.hyper.step()
    count = state.mean_count + 1
    mean = state.mean_value + (value - state.mean_value) / count
    look = count >= now.accumulation_size
    better = mean < (1 - now.rtol) * state.best_value - now.atol
    cooling = state.cooldown_count > 0
    waited = tnp.where(better | cooling, 0, state.plateau_count + 1)
    reduce = look & (waited >= now.patience)
    smaller = tnp.maximum(state.scale * now.factor, now.min_scale)
    left = tnp.where(
        reduce, now.cooldown.astype(td.int32), state.cooldown_count - cooling
    )
    return PlateauState(
        after,
        tnp.where(reduce, smaller, state.scale),
        tnp.where(look & better, mean, state.best_value).astype(td.float32),
        tnp.where(look, tnp.where(reduce, 0, waited), state.plateau_count),
        tnp.where(look, left, state.cooldown_count),
        tnp.where(look, 0, mean).astype(td.float32),
        tnp.where(look, 0, count),
    )
