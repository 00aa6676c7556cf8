"""Transforms made of others: one after the other, or each on its own parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from treadle import tree
from treadle.errors import at, user_source
from treadle.optim.base import Transform, check_params, check_state
from treadle.optim.leaves import map_trainable, map_updates, positions, spread, widen

Labels = Any | Callable[[Any], Any]
"""A pytree of names like the parameters (or a prefix: one name for a whole layer), or a
function from the parameters to one, such as `groups` makes."""


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
                f"chain takes transforms, got {transform!r:.60}{at(user_source())}\n"
                "One after the other: `optim.chain(optim.clip(1.0), optim.sgd(0.1))`."
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


def named_chain(transforms: Mapping[str, Transform]) -> Transform:
    """A `chain` whose state is a dict: each transform's state is found by its name.

    >>> import treadle.numpy as tnp
    >>> from treadle import optim
    >>> optimizer = named_chain({"clip": optim.clip(1.0), "descend": optim.sgd(0.1)})
    >>> state = optimizer.init(tnp.zeros(1))
    >>> updates, state = optimizer.update(tnp.array([5.0]), state)
    >>> updates, state["clip"]
    (Array([-0.1], dtype=float32), Hyperparameters(count=1, max_delta=1.0))
    """
    whole = chain(*transforms.values())

    def init(params: Any) -> dict[str, Any]:
        return dict(zip(transforms, whole.init(params), strict=True))

    def update(
        grads: Any, state: dict, params: Any = None, **extra: Any
    ) -> tuple[Any, dict]:
        check_state(state, dict, "named_chain")
        parts = tuple(state[name] for name in transforms)
        updates, after = whole.update(grads, parts, params, **extra)
        return updates, dict(zip(transforms, after, strict=True))

    return Transform(init, update, f"chain of {', '.join(transforms)}")


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


def flatten(transform: Transform) -> Transform:
    """A transform of all parameters as one vector: bounds and norms that are taken
    array by array are of all together, and many small arrays are one.

    Not for transforms that call the loss, which takes the parameters as they are.

    >>> import treadle.numpy as tnp
    >>> from treadle import optim
    >>> params = {"a": tnp.zeros(1), "b": tnp.zeros(1)}
    >>> limit = flatten(optim.clip_by_block_rms(1.0))
    >>> grads = {"a": tnp.array([1.0]), "b": tnp.array([7.0])}
    >>> limit.update(grads, limit.init(params))[0]
    {'a': Array([0.2], dtype=float32), 'b': Array([1.4], dtype=float32)}
    """

    def init(params: Any) -> Any:
        return transform.init(tree.ravel(map_trainable(lambda x: x, params))[0])

    def update(
        grads: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        vector, unravel = tree.ravel(tree.map(widen, grads))
        if params is not None:
            leaves, whole = tree.flatten(params)
            form = tree.structure(grads)
            places = positions(form, whole, "the parameters")
            params = tree.ravel([leaves[i] for i in places])[0]
        updates, state = transform.update(vector, state, params, **extra)
        return unravel(updates), state

    return Transform(init, update, f"flatten {transform.name}")


def groups(**which: Any) -> Callable[[Any], Any]:
    """Labels for `partition` by path, class or test: the first group that has a
    parameter names it.

    Args:
      which: for each name what is in the group, whatever `treadle.tree.select` takes.

    Raises:
      ValueError: from the function it gives, for a parameter that is in no group.

    >>> params = {"body": {"weight": 1.0, "bias": 2.0}, "head": {"weight": 3.0}}
    >>> groups(fast=["head", "**.bias"], slow="**")(params)
    {'body': {'bias': 'fast', 'weight': 'slow'}, 'head': {'weight': 'fast'}}
    """
    selectors = {name: tree.select(what) for name, what in which.items()}

    def labels(params: Any) -> Any:
        form = tree.structure(params)
        columns = [tree.leaves(selector(params)) for selector in selectors.values()]
        found = []
        for number, path in enumerate(tree.paths(form)):
            here = [n for n, c in zip(selectors, columns, strict=True) if c[number]]
            if not here:
                raise ValueError(
                    f"groups: {tree.dotted(path)} is in none of "
                    f"{', '.join(map(repr, selectors))}{at(user_source())}\n"
                    'The last group may have all the rest: `rest="**"`.'
                )
            found.append(here[0])
        return form.unflatten(found)

    return labels


def masked(transform: Transform, mask: Any) -> Transform:
    """A transform for some parameters; gradients of the others are passed on.

    The state is that of the transform, for these parameters.

    Args:
      mask: which, as `treadle.tree.select` takes it. What shall not change at all:
        ``masked(freeze(), mask)``.

    >>> import treadle.numpy as tnp
    >>> from treadle import optim
    >>> params = {"weight": tnp.ones(1), "bias": tnp.ones(1)}
    >>> decay = masked(optim.scale(0.5), "weight")
    >>> decay.update(params, decay.init(params), params)[0]
    {'bias': Array([1.], dtype=float32), 'weight': Array([0.5], dtype=float32)}
    """
    name = f"masked {transform.name}"
    selector = tree.select(mask)

    def init(params: Any) -> Any:
        return transform.init(_only(params, tree.leaves(selector(params)), True))

    def update(
        grads: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        check_params(params, grads, name)
        flags = tree.leaves(selector(params))
        leaves, form = tree.flatten(grads)
        places = positions(form, tree.structure(params), "the parameters")
        mine = form.unflatten(
            [g if flags[i] else None for i, g in zip(places, leaves, strict=True)]
        )
        updates, state = transform.update(
            mine,
            state,
            _only(params, flags, True),
            **_for_part(extra, params, flags, True),
        )
        results = [None if flags[i] else g for i, g in zip(places, leaves, strict=True)]
        _place(updates, form, results)
        return form.unflatten(results), state

    return Transform(init, update, name)


def _place(updates: Any, form: tree.Structure, results: list[Any]) -> None:
    """Puts updates of some leaves among those of all."""
    values, own = tree.flatten(updates)
    for i, value in zip(positions(own, form, "the updates"), values, strict=True):
        results[i] = value


def partition(transforms: Mapping[str, Transform], labels: Labels) -> Transform:
    """Different transforms for different parameters. The state is a dict.

    Args:
      transforms: by name.
      labels: for each parameter the name of its transform; `groups` makes them of
        paths and classes.

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
    if not isinstance(transforms, Mapping):
        raise TypeError(
            "partition takes a dict of transforms by name, got "
            f"{transforms!r:.60}{at(user_source())}"
        )

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
            _place(updates, form, results)
        return form.unflatten(results), after

    return Transform(init, update, f"partition of {', '.join(transforms)}")


def _for_part(
    extra: dict[str, Any], params: Any, names: list[Any], wanted: Any
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


def _only(params: Any, names: list[Any], wanted: Any) -> Any:
    leaves, form = tree.flatten(params)
    return form.unflatten(
        [x if name == wanted else None for x, name in zip(leaves, names, strict=True)]
    )
