"""Transforms made of others: one after the other, or each on its own parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from treadle import tree
from treadle.errors import at, user_source
from treadle.optim.base import Transform, check_params, check_state
from treadle.optim.leaves import map_updates, positions, spread

Labels = Any | Callable[[Any], Any]
"""A pytree of names like the parameters (or a prefix: one name for a whole layer), or a
function from the parameters to one."""


def chain(*transforms: Transform) -> Transform:
    """Each transform's updates are the next one's gradients. The state is a tuple.

    >>> import treadle.numpy as tnp
    >>> from treadle import optim
    >>> optimizer = chain(optim.clip_by_global_norm(1.0), optim.sgd(0.1))
    >>> state = optimizer.init(tnp.zeros(2))
    >>> optimizer.update(tnp.array([3.0, 4.0]), state)[0]
    Array([-0.06, -0.08], dtype=float32)
    """
    for transform in transforms:
        if not isinstance(transform, Transform):
            raise TypeError(
                f"chain takes transforms, got {transform!r:.60}{at(user_source())}"
            )

    def init(params: Any) -> tuple:
        return tuple([t.init(params) for t in transforms])

    def update(
        grads: Any, state: tuple, params: Any = None, **extra: Any
    ) -> tuple[Any, tuple]:
        check_state(state, tuple, "chain")
        if len(state) != len(transforms):
            raise ValueError(
                f"this chain has {len(transforms)} transforms, but its state has "
                f"{len(state)} parts{at(user_source())}\n"
                "Use the state that this chain's `init` makes."
            )
        after = []
        for transform, part in zip(transforms, state, strict=True):
            grads, part = transform.update(grads, part, params, **extra)
            after.append(part)
        return grads, tuple(after)

    return Transform(init, update, f"chain of {', '.join(map(repr, transforms))}")


def identity() -> Transform:
    """Leaves gradients as they are: for a part of a `partition`, or an option.

    >>> import treadle.numpy as tnp
    >>> identity().update({"w": tnp.ones(2)}, ())[0]
    {'w': Array([1., 1.], dtype=float32)}
    """
    return Transform(
        lambda params: (), lambda g, state, params=None: (g, ()), "identity"
    )


def freeze() -> Transform:
    """Gives no updates: in a `partition`, what it gets is not trained.

    >>> import treadle.numpy as tnp
    >>> freeze().update({"w": tnp.ones(2)}, ())[0]
    {'w': None}
    """

    def update(grads: Any, state: tuple, params: Any = None) -> tuple[Any, tuple]:
        return map_updates(lambda g: (None,), grads)[0], ()

    return Transform(lambda params: (), update, "freeze")


def partition(transforms: Mapping[str, Transform], labels: Labels) -> Transform:
    """Different transforms for different parameters. The state is a dict.

    Args:
      transforms: by name.
      labels: for each parameter the name of its transform.

    Raises:
      ValueError: from `init` and `update`, for a label without a transform.

    >>> import treadle.numpy as tnp
    >>> from treadle import optim
    >>> optimizer = partition(
    ...     {"slow": optim.sgd(0.1), "fast": optim.sgd(1.0)},
    ...     labels={"body": "slow", "head": "fast"},
    ... )
    >>> params = {"body": tnp.ones(1), "head": tnp.ones(1)}
    >>> optimizer.update(params, optimizer.init(params), params)[0]
    {'body': Array([-0.1], dtype=float32), 'head': Array([-1.], dtype=float32)}
    """

    def label(params: Any) -> list[str]:
        names = tree.leaves(spread(labels, params, "the labels of a partition"))
        for path, name in zip(tree.paths(tree.structure(params)), names, strict=True):
            if name not in transforms:
                raise ValueError(
                    f"partition: the label of {tree.key_name(path)} is {name!r}"
                    f"{at(user_source())}\n"
                    f"There are transforms for {', '.join(map(repr, transforms))}."
                )
        return names

    def init(params: Any) -> dict[str, Any]:
        names = label(params)
        return {n: t.init(_only(params, names, n)) for n, t in transforms.items()}

    def update(
        grads: Any, state: dict, params: Any = None, **extra: Any
    ) -> tuple[Any, dict]:
        check_state(state, dict, "partition")
        check_params(params, grads, "partition")
        names = label(params)
        leaves, form = tree.flatten(grads)
        places = positions(form, tree.structure(params), "the parameters")
        here = [names[i] for i in places]
        results: list[Any] = [None] * len(leaves)
        after = {}
        for name, transform in transforms.items():
            mine = _only(params, names, name)
            part = form.unflatten(
                [g if n == name else None for g, n in zip(leaves, here, strict=True)]
            )
            updates, after[name] = transform.update(
                part, state[name], mine, **_for_part(extra, params, names, name)
            )
            values, own = tree.flatten(updates)
            for i, value in zip(
                positions(own, form, "the updates"), values, strict=True
            ):
                results[i] = value
        return form.unflatten(results), after

    return Transform(init, update, f"partition of {', '.join(transforms)}")


def _for_part(
    extra: dict[str, Any], params: Any, names: list[str], wanted: str
) -> dict[str, Any]:
    """The extras for one part: with a loss that is a function of that part alone."""
    loss = extra.get("value_fn")
    if loss is None:
        return extra
    leaves, form = tree.flatten(params)
    places = [i for i, name in enumerate(names) if name == wanted]

    def value_fn(part: Any) -> Any:
        whole = list(leaves)
        for i, x in zip(places, tree.leaves(part), strict=True):
            whole[i] = x
        return loss(form.unflatten(whole))

    return {**extra, "value_fn": value_fn}


def _only(params: Any, names: list[str], wanted: str) -> Any:
    leaves, form = tree.flatten(params)
    return form.unflatten(
        [x if name == wanted else None for x, name in zip(leaves, names, strict=True)]
    )
