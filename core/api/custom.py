"""Functions that bring their own derivative: custom_jvp, custom_vjp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from treadle import tree
from treadle.api.args import (
    as_results,
    check_leaf,
    described,
    name_of,
    positions,
    signature_of,
)
from treadle.api.boundary import boundary
from treadle.api.custom_call import COTANGENT, TANGENT, Call, inside
from treadle.control import custom as ops
from treadle.control.graphs import nonzero
from treadle.control.ways import explore
from treadle.errors import at, user_source
from treadle.ops.arithmetic import add
from treadle.ops.movement import instantiate
from treadle.trace.interpreter import current_source
from treadle.trace.op import Zero
from treadle.trace.stage import is_staging
from treadle.trace.value import typeof

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
Owner = TypeVar("Owner")
Rule = TypeVar("Rule", bound=Callable[..., Any])


class _Custom(Generic[P, R]):
    """What the two kinds share: arguments, and how to call the function."""

    kind: str

    def __init__(
        self,
        function: Callable[P, R],
        nondiff_argnums: Sequence[int],
        nondiff_argnames: Sequence[str],
    ):
        self.function = function
        numbers, _ = positions(function, nondiff_argnames, "nondiff_argnames")
        self.nondiff = (*nondiff_argnums, *sorted(numbers - {*nondiff_argnums}))
        self._signature = signature_of(function)
        update_wrapper(self, function, updated=())

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: _Custom[Concatenate[Owner, Q], R],
        instance: Owner,
        owner: type | None = None,
    ) -> _Method[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else _Method(self, instance)

    def __repr__(self) -> str:
        return f"<{self.kind} of {name_of(self.function)}>"

    def _positional(self, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """All arguments by position, defaults included."""
        if not kwargs and self._signature is None:
            return args
        if self._signature is None:
            raise TypeError(f"{self!r} takes no keyword arguments{at(user_source())}")
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.kwargs:
            raise TypeError(
                f"{self!r} can't pass {', '.join(bound.kwargs)} by keyword only"
                f"{at(user_source())}\nIts rules take arguments by position."
            )
        return bound.args

    @boundary
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        call = Call(self, self._positional(args, kwargs))
        if not is_staging():
            outs = call.bind(call.run, [])
        else:
            types = [typeof(x) for x in call.leaves]
            form, name = lambda: call.out_form, name_of(self.function)
            graph, captured = explore(call.run, types, form, name=name)
            outs = call.bind(graph, captured)
        assert call.out_form is not None
        return call.out_form.unflatten(outs)

    def bind(self, call: Call, graph: Any, captured: Sequence[Any]) -> list[Any]:
        raise NotImplementedError


class _Method(Generic[P, R]):
    """A custom function bound to an instance, which is its first argument."""

    def __init__(self, custom: _Custom[..., R], instance: Any) -> None:
        self._custom, self._instance = custom, instance

    @boundary
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._custom(self._instance, *args, **kwargs)


def _given(derivatives: Sequence[Any], symbolic: bool) -> list[Any]:
    """What a rule gets: arrays; if it knows of zeros, None for those."""
    if symbolic:
        return [None if isinstance(d, Zero) else d for d in derivatives]
    return as_results([instantiate(d) for d in derivatives])


class CustomVJPPrimal:
    """An argument of a forward rule that was defined with ``symbolic_zeros=True``.

    value: the array.
    perturbed: whether it is differentiated.
    """

    __slots__ = ("perturbed", "value")

    def __init__(self, value: Any, perturbed: bool) -> None:
        self.value, self.perturbed = value, perturbed

    def __repr__(self) -> str:
        return f"CustomVJPPrimal(value={self.value!r}, perturbed={self.perturbed})"


class custom_jvp(_Custom[P, R]):
    """A function whose forward derivative is given; reverse mode follows from it.

    Args:
      function: from pytrees of arrays to a pytree of arrays.
      nondiff_argnums: arguments that are not differentiated; they may be anything
        (functions, strings…), and come first in the rule.
      nondiff_argnames: more of them, by their names.

    >>> import treadle as td, treadle.numpy as tnp
    >>> @td.custom_jvp
    ... def log1pexp(x):
    ...     return tnp.log(1.0 + tnp.exp(x))
    >>> @log1pexp.defjvp
    ... def _(primals, tangents):
    ...     (x,), (dx,) = primals, tangents
    ...     return log1pexp(x), dx / (1.0 + tnp.exp(-x))
    >>> td.grad(log1pexp)(100.0)
    Array(1., dtype=float32)
    """

    kind = "custom_jvp"

    def __init__(
        self,
        function: Callable[P, R],
        nondiff_argnums: Sequence[int] = (),
        nondiff_argnames: Sequence[str] = (),
    ) -> None:
        super().__init__(function, nondiff_argnums, nondiff_argnames)
        self.rule: Callable[..., Any] | None = None
        self.symbolic_zeros = False

    def defjvp(self, rule: Rule, symbolic_zeros: bool = False) -> Rule:
        """Sets the rule ``(*nondiff, primals, tangents) -> (out, out_tangent)``; the
        two tuples have an entry for each differentiable argument.

        Args:
          symbolic_zeros: if True, the leaves of `tangents` that are known to be zero
            are None: what they would contribute need not be computed. The rule may
            always give None for zero.

        >>> import treadle as td
        >>> f = td.custom_jvp(lambda x, y: x * y)
        >>> def rule(primals, tangents):
        ...     (x, y), (dx, dy) = primals, tangents
        ...     terms = [] if dx is None else [dx * y]
        ...     terms += [] if dy is None else [x * dy]
        ...     return f(x, y), sum(terms)
        >>> _ = f.defjvp(rule, symbolic_zeros=True)
        >>> td.grad(f)(2.0, 3.0)
        Array(3., dtype=float32)
        """
        self.rule, self.symbolic_zeros = rule, symbolic_zeros
        return rule

    def defjvps(self, *rules: Callable[..., Any] | None) -> None:
        """Sets one rule ``(tangent, out, *primals) -> out_tangent`` per argument; None
        where the derivative is zero. Their results are summed."""
        if self.nondiff:
            raise TypeError(
                f"defjvps of {self!r}: it has nondiff_argnums={self.nondiff}"
                f"{at(user_source())}\nDefine one rule for all arguments: `defjvp`."
            )

        def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
            if len(rules) != len(primals):
                raise TypeError(
                    f"{self!r} was given {len(rules)} rules by defjvps, and is called "
                    f"with {len(primals)} arguments{at(current_source())}\n"
                    "Give one for each, None where the derivative is zero."
                )
            function: Callable[..., R] = self
            out = function(*primals)
            terms = [
                r(t, out, *primals)
                for r, t in zip(rules, tangents, strict=True)
                if r is not None
            ]
            if not terms:
                return out, None
            total = terms[0]
            for term in terms[1:]:
                total = tree.map(add, total, term)
            return out, total

        self.defjvp(rule)

    def bind(self, call: Call, graph: Any, captured: Sequence[Any]) -> list[Any]:
        rule, symbolic_zeros, n = self.rule, self.symbolic_zeros, call.n_fixed
        if rule is None:
            raise TypeError(
                f"{self!r} has no rule{at(user_source())}\n"
                "Define it with `defjvp` before calling the function."
            )

        def flat(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
            call.check_fixed(nonzero(tangents))
            pair = rule(
                *call.fixed(primals[:n]),
                call.form.unflatten(as_results(primals[n:])),
                call.form.unflatten(_given(tangents[n:], symbolic_zeros)),
            )
            out, tangent = call.pair(pair, "(out, tangent)")
            outs = call.flatten_out(out, "the rule")
            assert call.out_form is not None
            found = call.fitting(call.out_form, tangent, outs, TANGENT)
            return outs, [
                Zero(typeof(o).strong()) if t is None else t
                for o, t in zip(outs, found, strict=True)
            ]

        return ops.custom_jvp(
            *captured,
            *call.leaves,
            graph=graph,
            rule=flat,
            n_consts=len(captured),
            name=call.name,
        )


class custom_vjp(_Custom[P, R]):
    """A function whose reverse derivative is given by a pair of functions.

    Args:
      function: from pytrees of arrays to a pytree of arrays.
      nondiff_argnums: arguments that are not differentiated; they may be anything, and
        come first in the backward function.
      nondiff_argnames: more of them, by their names.

    >>> import treadle as td, treadle.numpy as tnp
    >>> @td.custom_vjp
    ... def clip_gradient(x):
    ...     return x
    >>> def forward(x):
    ...     return x, None
    >>> def backward(residuals, ct):
    ...     return (tnp.clip(ct, -1.0, 1.0),)
    >>> clip_gradient.defvjp(forward, backward)
    >>> td.grad(lambda x: 5.0 * clip_gradient(x))(2.0)
    Array(1., dtype=float32)
    """

    kind = "custom_vjp"

    def __init__(
        self,
        function: Callable[P, R],
        nondiff_argnums: Sequence[int] = (),
        nondiff_argnames: Sequence[str] = (),
    ) -> None:
        super().__init__(function, nondiff_argnums, nondiff_argnames)
        self.forward: Callable[..., Any] | None = None
        self.backward: Callable[..., Any] | None = None
        self.symbolic_zeros = False

    def defvjp(
        self,
        forward: Callable[..., Any],
        backward: Callable[..., Any],
        symbolic_zeros: bool = False,
    ) -> None:
        """Sets the rules.

        Args:
          forward: takes the function's arguments; returns (result, residuals), where
            residuals are a pytree of arrays for `backward`.
          backward: ``(*nondiff, residuals, ct)``; returns a tuple with a cotangent for
            each differentiable argument (None for zero).
          symbolic_zeros: if True, `forward` gets objects with a `value` and a bool
            `perturbed` (whether it is differentiated) in place of the leaves of its
            differentiable arguments, and the leaves of `ct` that are known to be zero
            are None.
        """
        self.forward, self.backward = forward, backward
        self.symbolic_zeros = symbolic_zeros

    def bind(self, call: Call, graph: Any, captured: Sequence[Any]) -> list[Any]:
        if self.forward is None or self.backward is None:
            raise TypeError(
                f"{self!r} has no rules{at(user_source())}\n"
                "Define them with `defvjp` before calling the function."
            )
        forward, backward, n = self.forward, self.backward, call.n_fixed
        symbolic_zeros = self.symbolic_zeros

        def flat_forward(moving: Sequence[bool], *leaves: Any) -> Any:
            call.check_fixed(moving)
            given = list(leaves)
            if symbolic_zeros:
                given[n:] = map(CustomVJPPrimal, leaves[n:], moving[n:])
            pair = call.pair(forward(*call.whole(given)), "(result, residuals)")
            outs = call.flatten_out(pair[0], "the forward rule")
            residuals, form = tree.flatten(pair[1])
            for path, x in zip(tree.paths(form), residuals, strict=True):
                check_leaf(x, f"a residual of {call.name}{inside(path)}", _RESIDUAL)
            return outs, [*leaves[:n], *residuals], form

        def flat_backward(
            form: tree.Structure, residuals: Sequence[Any], cts: Sequence[Any]
        ) -> list[Any]:
            assert call.out_form is not None
            ct = call.out_form.unflatten(_given(cts, symbolic_zeros))
            known = form.unflatten(as_results(residuals[n:]))
            found = backward(*call.fixed(residuals[:n]), known, ct)
            return [*[None] * n, *_flat_cotangents(call, found)]

        return ops.custom_vjp(
            *captured,
            *call.leaves,
            graph=graph,
            forward=flat_forward,
            backward=flat_backward,
            n_consts=len(captured),
            name=call.name,
        )


_RESIDUAL = (
    "Residuals are arrays: give `backward` what is not by `nondiff_argnums`; if they "
    "are arguments of a\nrule with symbolic_zeros=True, take their `value`."
)


def _flat_cotangents(call: Call, found: Any) -> list[Any]:
    """What a backward rule returned, as one cotangent for each leaf."""
    n = len(call.moving)
    if isinstance(found, list):
        found = tuple(found)
    if not isinstance(found, tuple) or len(found) != n:
        got = f"{len(found)}" if isinstance(found, tuple) else described(found)
        raise TypeError(
            f"the backward rule of {call.name} must return a tuple of {n} cotangents, "
            f"one for each differentiable argument; got {got}{at(current_source())}"
        )
    return call.fitting(call.form, found, call.leaves[call.n_fixed :], COTANGENT)
