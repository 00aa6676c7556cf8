"""Functions that bring their own derivative: custom_jvp, custom_vjp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any

from treadle import dtypes, tree
from treadle.api.args import as_results, name_of, signature_of
from treadle.api.boundary import boundary
from treadle.control import custom as ops
from treadle.control.ways import explore
from treadle.errors import StructureError, at, user_source
from treadle.ops.arithmetic import add
from treadle.ops.movement import zeros_like
from treadle.trace.stage import is_staging
from treadle.trace.value import is_array, typeof


class _Custom:
    """What the two kinds share: arguments, and how to call the function."""

    kind: str

    def __init__(self, function: Callable[..., Any], nondiff_argnums: Sequence[int]):
        self.function = function
        self.nondiff = tuple(nondiff_argnums)
        self._signature = signature_of(function)
        update_wrapper(self, function, updated=())

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
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = _Call(self, self._positional(args, kwargs))
        if not is_staging():
            outs = call.bind(call.run, [])
        else:
            types = [typeof(x) for x in call.leaves]
            form, name = lambda: call.out_form, name_of(self.function)
            graph, captured = explore(call.run, types, form, name=name)
            outs = call.bind(graph, captured)
        assert call.out_form is not None
        return call.out_form.unflatten(outs)

    def bind(self, call: _Call, graph: Any, captured: Sequence[Any]) -> list[Any]:
        raise NotImplementedError


class _Method:
    """A custom function bound to an instance, which is its first argument."""

    def __init__(self, custom: _Custom, instance: Any) -> None:
        self._custom, self._instance = custom, instance

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._custom(self._instance, *args, **kwargs)


class _Call:
    """One call: the user's pytrees on one side, flat lists of arrays on the other."""

    def __init__(self, custom: _Custom, args: tuple[Any, ...]) -> None:
        self.custom, self.args, self.name = custom, args, name_of(custom.function)
        nondiff = {n % len(args) for n in custom.nondiff if args}
        self.moving = [i for i in range(len(args)) if i not in nondiff]
        self.fixed = [args[i] for i in sorted(nondiff)]
        self.leaves, self.form = tree.flatten(tuple(args[i] for i in self.moving))
        self.out_form: tree.Structure | None = None
        for path, leaf in zip(tree.paths(self.form), self.leaves, strict=True):
            self._check(path, leaf)

    def _check(self, path: tree.Path, leaf: Any) -> None:
        if is_array(leaf) or isinstance(leaf, bool | int | float | complex):
            return
        place = self.moving[path[0]]  # type: ignore[call-overload]
        raise TypeError(
            f"argument {place} of {self.name} has a leaf that is a "
            f"{type(leaf).__name__} ({leaf!r:.60}), not an array{at(user_source())}\n"
            f"Declare it with `nondiff_argnums=({place},)`."
        )

    def bind(self, graph: Any, captured: Sequence[Any]) -> list[Any]:
        return self.custom.bind(self, graph, captured)

    def whole(self, leaves: Sequence[Any]) -> list[Any]:
        """All arguments, with these leaves for the differentiable ones."""
        args = list(self.args)
        for i, x in zip(self.moving, self.form.unflatten(leaves), strict=True):
            args[i] = x
        return args

    def flatten_out(self, out: Any, what: str) -> list[Any]:
        outs, form = tree.flatten(out)
        if self.out_form is None:
            self.out_form = form
        elif form != self.out_form:
            raise StructureError(
                f"{what} of {self.name} gives a result of another structure: {form} "
                f"instead of {self.out_form}, {tree.difference(form, self.out_form)}"
                f"{at(user_source())}"
            )
        return outs

    def run(self, *leaves: Any) -> list[Any]:
        return self.flatten_out(
            self.custom.function(*self.whole(leaves)), "the function"
        )

    def pair(self, out: Any, what: str) -> tuple[Any, Any]:
        if not isinstance(out, tuple) or len(out) != 2:
            raise TypeError(
                f"the rule of {self.name} must return a pair {what}, got "
                f"{type(out).__name__}{at(user_source())}"
            )
        return out


def _fitting(found: Sequence[Any], wanted: Sequence[Any], what: str) -> list[Any]:
    """Tangents or cotangents, checked against the values they belong to; None is 0."""
    result = []
    for d, x in zip(found, wanted, strict=True):
        t = typeof(x).strong()
        if d is None or not dtypes.is_differentiable(t.dtype):
            result.append(zeros_like(t))
            continue
        own = typeof(d)
        if own.shape != t.shape or (own.dtype != t.dtype and not own.weak):
            raise TypeError(
                f"{what} has type {own}, but belongs to a value of type {t}"
                f"{at(user_source())}"
            )
        scalar = isinstance(d, bool | int | float | complex)
        result.append(t.dtype.type(d) if scalar else d)
    return result


class custom_jvp(_Custom):
    """A function whose forward derivative is given; reverse mode follows from it.

    Args:
      function: from pytrees of arrays to a pytree of arrays.
      nondiff_argnums: arguments that are not differentiated; they may be anything
        (functions, strings…), and come first in the rule.

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
        self, function: Callable[..., Any], nondiff_argnums: Sequence[int] = ()
    ) -> None:
        super().__init__(function, nondiff_argnums)
        self.rule: Callable[..., Any] | None = None

    def defjvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Sets the rule ``(*nondiff, primals, tangents) -> (out, out_tangent)``; the
        two tuples have an entry for each differentiable argument."""
        self.rule = rule
        return rule

    def defjvps(self, *rules: Callable[..., Any] | None) -> None:
        """Sets one rule ``(tangent, out, *primals) -> out_tangent`` per argument; None
        where the derivative is zero. Their results are summed."""

        def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
            out = self(*primals)
            terms = [
                r(t, out, *primals)
                for r, t in zip(rules, tangents, strict=True)
                if r is not None
            ]
            if not terms:
                return out, tree.map(lambda x: zeros_like(typeof(x).strong()), out)
            total = terms[0]
            for term in terms[1:]:
                total = tree.map(add, total, term)
            return out, total

        self.rule = rule

    def bind(self, call: _Call, graph: Any, captured: Sequence[Any]) -> list[Any]:
        rule = self.rule
        if rule is None:
            raise TypeError(
                f"{self!r} has no rule{at(user_source())}\n"
                "Define it with `defjvp` before calling the function."
            )

        def flat(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
            pair = rule(
                *call.fixed,
                call.form.unflatten(as_results(primals)),
                call.form.unflatten(as_results(tangents)),
            )
            out, tangent = call.pair(pair, "(out, tangent)")
            outs = call.flatten_out(out, "the rule")
            assert call.out_form is not None
            found = tree.flatten_up_to(call.out_form, tangent)
            return outs, _fitting(found, outs, f"a tangent of {call.name}")

        return ops.custom_jvp(
            *captured,
            *call.leaves,
            graph=graph,
            rule=flat,
            n_consts=len(captured),
            name=call.name,
        )


class custom_vjp(_Custom):
    """A function whose reverse derivative is given by a pair of functions.

    Args:
      function: from pytrees of arrays to a pytree of arrays.
      nondiff_argnums: arguments that are not differentiated; they may be anything, and
        come first in the backward function.

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
        self, function: Callable[..., Any], nondiff_argnums: Sequence[int] = ()
    ) -> None:
        super().__init__(function, nondiff_argnums)
        self.forward: Callable[..., Any] | None = None
        self.backward: Callable[..., Any] | None = None

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """Sets the rules.

        Args:
          forward: takes the function's arguments; returns (result, residuals), where
            residuals are a pytree of arrays for `backward`.
          backward: ``(*nondiff, residuals, ct)``; returns a tuple with a cotangent for
            each differentiable argument (None for zero).
        """
        self.forward, self.backward = forward, backward

    def bind(self, call: _Call, graph: Any, captured: Sequence[Any]) -> list[Any]:
        if self.forward is None or self.backward is None:
            raise TypeError(
                f"{self!r} has no rules{at(user_source())}\n"
                "Define them with `defvjp` before calling the function."
            )
        forward, backward = self.forward, self.backward

        def flat_forward(*leaves: Any) -> Any:
            pair = call.pair(forward(*call.whole(leaves)), "(result, residuals)")
            outs = call.flatten_out(pair[0], "the forward rule")
            residuals, form = tree.flatten(pair[1])
            return outs, residuals, form

        def flat_backward(
            form: tree.Structure, residuals: Sequence[Any], cts: Sequence[Any]
        ) -> list[Any]:
            assert call.out_form is not None
            ct = call.out_form.unflatten(as_results(cts))
            known = form.unflatten(as_results(residuals))
            found = backward(*call.fixed, known, ct)
            return _flat_cotangents(call, found)

        return ops.custom_vjp(
            *captured,
            *call.leaves,
            graph=graph,
            forward=flat_forward,
            backward=flat_backward,
            n_consts=len(captured),
            name=call.name,
        )


def _flat_cotangents(call: _Call, found: Any) -> list[Any]:
    """What a backward rule returned, as one cotangent for each leaf."""
    n = len(call.moving)
    if isinstance(found, list):
        found = tuple(found)
    if not isinstance(found, tuple) or len(found) != n:
        got = f"{len(found)}" if isinstance(found, tuple) else type(found).__name__
        raise TypeError(
            f"the backward rule of {call.name} must return a tuple of {n} cotangents, "
            f"one for each differentiable argument; got {got}{at(user_source())}"
        )
    flat: list[Any] = []
    for ct, form in zip(found, call.form.children, strict=True):
        flat += [None] * form.count if ct is None else tree.flatten_up_to(form, ct)
    return _fitting(flat, call.leaves, f"a cotangent from {call.name}")
