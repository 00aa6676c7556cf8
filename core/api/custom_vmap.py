"""Functions that bring their own vectorised form: custom_vmap, sequential_vmap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from treadle import tree
from treadle.api.args import (
    as_results,
    check_function,
    described,
    name_of,
    signature_of,
)
from treadle.api.boundary import boundary
from treadle.api.carry import flatten_checked
from treadle.control import custom_vmap as ops
from treadle.control.ways import explore
from treadle.errors import StructureError, at, user_source
from treadle.run.eager import EagerInterpreter
from treadle.trace.interpreter import state
from treadle.trace.value import typeof

_NO_PAIR = (
    "the vmap rule of {name} must return a pair (out, out_batched), got {got}{at}\n"
    "`out_batched` has the structure of `out`, with True for arrays that have an axis "
    "of examples, at 0."
)


P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
Owner = TypeVar("Owner")
Rule = TypeVar("Rule", bound=Callable[..., Any])


class _Vectorised(Generic[P, R]):
    """What the two kinds share: how they are called."""

    kind: str

    def __init__(self, function: Callable[P, R]) -> None:
        check_function(self.kind, function)
        self.function = function
        update_wrapper(self, function, updated=())

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: _Vectorised[Concatenate[Owner, Q], R],
        instance: Owner,
        owner: type | None = None,
    ) -> Callable[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<{self.kind} of {name_of(self.function)}>"

    @boundary
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._called(args, kwargs)

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = name_of(self.function)
        function: Callable[..., Any] = self.function
        if kwargs:
            signature = signature_of(self.function)
            if signature is None:
                raise TypeError(f"{self!r} takes no keywords{at(user_source())}")
            bound = signature.bind(*args, **kwargs)
            if bound.kwargs:
                raise TypeError(
                    f"{self!r} can't pass {', '.join(bound.kwargs)} by keyword only"
                    f"{at(user_source())}\nIts rule takes arguments by position."
                )
            args = bound.args
        if state.staging_disabled and isinstance(state.interpreter, EagerInterpreter):
            return function(*args)
        leaves, form = flatten_checked(args, f"an argument of {name}: ")
        out_form: Any = None

        def flat(*values: Any) -> list[Any]:
            nonlocal out_form
            out = function(*form.unflatten(values))
            outs, out_form = flatten_checked(out, f"the result of {name}")
            return outs

        types = [typeof(x) for x in leaves]
        graph, captured = explore(flat, types, lambda: out_form, name=name)
        outs = ops.custom_vmap(
            *captured,
            *leaves,
            graph=graph,
            rule=self.flat_rule(form, out_form),
            n_consts=len(captured),
            name=name,
        )
        return out_form.unflatten(as_results(outs))

    def flat_rule(self, form: tree.Structure, out_form: tree.Structure) -> Any:
        """The op's rule, for arguments and results of these structures."""
        raise NotImplementedError


class custom_vmap(_Vectorised[P, R]):
    """A function whose vectorised form is given.

    The rule is used where `td.vmap` meets a call of the function; also of its forward
    derivative, by the derivative of the rule. Reverse mode inside of a `vmap`
    vectorises the function itself.

    Args:
      function: from pytrees of arrays to a pytree of arrays. It is always traced.

    >>> import treadle as td, treadle.numpy as tnp
    >>> @td.custom_vmap
    ... def product(a, b):
    ...     return a @ b
    >>> @product.def_vmap
    ... def _(axis_size, in_batched, a, b):
    ...     print("batched:", in_batched)
    ...     return tnp.matmul(a, b), True
    >>> a, b = tnp.ones((5, 2, 3)), tnp.ones((3, 4))
    >>> td.vmap(product, in_axes=(0, None))(a, b).shape
    batched: [True, False]
    (5, 2, 4)
    """

    kind = "custom_vmap"

    def __init__(self, function: Callable[P, R]) -> None:
        super().__init__(function)
        self.rule: Callable[..., Any] | None = None

    def def_vmap(self, rule: Rule) -> Rule:
        """Sets the rule ``(axis_size, in_batched, *args) -> (out, out_batched)``.

        Args:
          rule: gets the number of examples; a list with, for each argument, a tree like
            it that says which of its arrays have an axis of examples; and the
            arguments, with these axes at 0. It returns the result for all examples, and
            a tree like it of bools: which of its arrays have such an axis.
        """
        self.rule = rule
        return rule

    def flat_rule(self, form: tree.Structure, out_form: tree.Structure) -> Any:
        rule, name = self.rule, name_of(self.function)
        if rule is None:
            raise TypeError(
                f"{self!r} has no rule{at(user_source())}\n"
                "Define it with `def_vmap` before calling the function."
            )

        def flat(size: int, batched: Sequence[bool], args: Sequence[Any]) -> Any:
            values = form.unflatten(as_results(args))
            pair = rule(size, list(form.unflatten(batched)), *values)
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                text = _NO_PAIR.format(name=name, got=described(pair), at=_here())
                raise TypeError(text)
            outs, found = flatten_checked(pair[0], f"the result of {name}'s vmap rule")
            if found != out_form:
                raise StructureError(
                    f"the vmap rule of {name} gives a result of another structure than "
                    f"the function: {tree.difference(out_form, found)}{_here()}"
                )
            return outs, _flags(pair[1], pair[0], name)

        return flat


def _here() -> str:
    return at(user_source())


def _flags(batched: Any, out: Any, name: str) -> tuple[bool, ...]:
    """One bool for each array of the result, from a tree of them, or a prefix."""
    entries, form = tree.flatten(batched)
    try:
        parts = tree.flatten_up_to(form, out)
    except ValueError as error:
        raise StructureError(
            f"out_batched of the vmap rule of {name} does not fit the result: {error}"
            f"{_here()}"
        ) from None
    for entry in entries:
        if not isinstance(entry, bool):
            raise TypeError(
                f"out_batched of the vmap rule of {name} holds {described(entry)}, not "
                f"a bool{_here()}"
            )
    return tuple(
        [e for e, p in zip(entries, parts, strict=True) for _ in tree.leaves(p)]
    )


class sequential_vmap(_Vectorised[P, R]):
    """A function that `td.vmap` calls for one example after the other, in a loop: in
    the memory of one, and with its effects in their order.

    Args:
      function: from pytrees of arrays to a pytree of arrays. It is always traced.

    >>> import treadle as td, treadle.numpy as tnp
    >>> @td.sequential_vmap
    ... def f(x):
    ...     td.debug.print("{}", x)
    ...     return x + 1
    >>> td.vmap(f)(tnp.arange(2))
    0
    1
    Array([1, 2], dtype=int32)
    """

    kind = "sequential_vmap"

    def flat_rule(self, form: tree.Structure, out_form: tree.Structure) -> Any:
        return None
