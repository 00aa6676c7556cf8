"""What `remat` remembers after all: policies, and the names that some of them go by.

A policy is ``(op, *types, **params) -> bool``: whether the results of an operation are
kept for the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from treadle import tree
from treadle.api.args import RETURN, check_leaf, described
from treadle.api.boundary import boundary
from treadle.arraytype import ArrayType
from treadle.errors import at, user_source
from treadle.ops import identity
from treadle.trace.lowering import Product
from treadle.trace.op import Op

Policy = Callable[..., bool]


def check_policy(policy: Any) -> None:
    """
    Raises:
      TypeError: for what is no policy, such as its name.
    """
    if policy is None or callable(policy):
        return
    raise TypeError(
        "remat: policy is a function that says what is kept, got "
        f"{policy!r:.60}{at(user_source())}\nTake `td.dots_saveable`, "
        '`td.save_only_these_names("name")`, or None, which keeps nothing.'
    )


def everything_saveable(op: Op, *types: ArrayType, **params: Any) -> bool:
    """A policy: remember all that the backward pass uses."""
    return True


def nothing_saveable(op: Op, *types: ArrayType, **params: Any) -> bool:
    """A policy: compute everything again from the arguments. The default."""
    return False


def dots_saveable(op: Op, *types: ArrayType, **params: Any) -> bool:
    """A policy: remember contractions and convolutions, compute the rest again."""
    return isinstance(op.lowering, Product)


def dots_without_batch_saveable(op: Op, *types: ArrayType, **params: Any) -> bool:
    """A policy: remember contractions with weights; those between activations (as in
    attention, where both operands have a batch axis) are computed again."""
    return isinstance(op.lowering, Product) and not any(params.get("batch", ((), ())))


@dataclass(frozen=True)
class _Names:
    """A policy by names: what is kept of named values, among these and others, and what
    of the rest. Policies that say the same are equal, and share programs."""

    names: frozenset[str]
    these: bool
    others: bool
    unnamed: bool

    def __call__(self, op: Op, *types: ArrayType, **params: Any) -> bool:
        if op is not identity.checkpoint_name:
            return self.unnamed
        return self.these if params["name"] in self.names else self.others


@dataclass(frozen=True)
class _Either:
    """A policy: what one of two keeps."""

    first: Policy
    second: Policy

    def __call__(self, op: Op, *types: ArrayType, **params: Any) -> bool:
        return self.first(op, *types, **params) or self.second(op, *types, **params)


def _checked(what: str, names: tuple[Any, ...]) -> frozenset[str]:
    for name in names:
        if not isinstance(name, str):
            raise TypeError(
                f"{what} takes names, one after the other: strings; got "
                f"{described(name)}{at(user_source())}"
            )
    return frozenset(names)


@boundary
def save_only_these_names(*names: str) -> Policy:
    """A policy: remember the values with one of these names (`td.checkpoint_name`).

    >>> import treadle as td, treadle.numpy as tnp
    >>> policy = td.save_only_these_names("hidden")
    >>> f = td.remat(
    ...     lambda x: tnp.sin(td.checkpoint_name(tnp.exp(x), "hidden")), policy=policy
    ... )
    >>> td.print_saved_residuals(f, 1.0)
    <lambda> saves 1 array, 4 bytes
      f32[]      4  named 'hidden' ...
    """
    return _Names(_checked("save_only_these_names", names), True, False, False)


@boundary
def save_any_names_but_these(*names: str) -> Policy:
    """A policy: remember the values with names, but for those with one of these."""
    return _Names(_checked("save_any_names_but_these", names), False, True, False)


@boundary
def save_anything_except_these_names(*names: str) -> Policy:
    """A policy: remember all that the backward pass uses, but for the values with one
    of these names."""
    found = _checked("save_anything_except_these_names", names)
    return _Names(found, False, True, True)


@boundary
def save_from_both_policies(first: Policy, second: Policy) -> Policy:
    """A policy: remember what one of two would.

    >>> import treadle as td
    >>> policy = td.save_from_both_policies(
    ...     td.dots_saveable, td.save_only_these_names("hidden")
    ... )
    """
    for policy in (first, second):
        if not callable(policy):
            raise TypeError(
                f"save_from_both_policies takes two policies, got {described(policy)}"
                f"{at(user_source())}"
            )
    return _Either(first, second)


T = TypeVar("T")


@boundary
def checkpoint_name(x: T, name: str) -> T:
    """The same pytree of arrays, with a name by which policies of `td.remat` know it.

    >>> import treadle as td
    >>> td.checkpoint_name(1.0, "loss")
    Array(1., dtype=float32)
    """
    if not isinstance(name, str):
        raise TypeError(
            f"checkpoint_name gives names that are strings, got {described(name)}"
            f"{at(user_source())}"
        )

    def named(leaf: Any) -> Any:
        checked = check_leaf(leaf, f"what is to be named {name!r}", RETURN)
        return identity.checkpoint_name(checked, name=name)

    return tree.map(named, x)
