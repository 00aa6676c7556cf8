"""Derivatives: grad, value_and_grad, jvp, vjp, linearize, Jacobians, Hessians."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from treadle import dtypes, tree
from treadle.api.args import (
    RETURN,
    Chosen,
    argument,
    as_results,
    check_arguments,
    check_function,
    check_leaf,
    check_results,
    described,
    name_of,
    number_of,
)
from treadle.api.boundary import boundary
from treadle.api.purity import call_pure
from treadle.arraytype import ArrayType
from treadle.control.ways import branching
from treadle.errors import StructureError, at, user_source
from treadle.ir.walk import call_graph
from treadle.ops.cast import convert
from treadle.ops.movement import instantiate
from treadle.trace.op import Linear, Zero
from treadle.trace.value import is_array, typeof
from treadle.transforms.jvp import jvp_flat
from treadle.transforms.linearize import linearize_flat
from treadle.transforms.transpose import backward

_NOT_SCALAR = (
    "{what} takes the gradient of a function with one real scalar result, but {name} "
    "returned {result}{at}\n"
    "Reduce it (`.mean()`, `.sum()`), or use `td.jacrev`; extra results go through "
    "`has_aux=True`."
)
_NO_DERIVATIVE = (
    "grad: {argument} is {found}, and only floating and complex arrays have "
    "derivatives{at}\n"
    "Pass floats (`3.0`, `x.astype(float)`), or choose another argument with `argnums`."
)
_NO_TANGENT = (
    "{clause}{at}\n"
    "Only floating and complex values have derivatives: pass floats (`3.0`, "
    "`x.astype(float)`), or None where there is no tangent."
)
_IN_OTHERS = (
    "Choose what to differentiate with `argnums`; other arguments may be anything."
)


def differentiable(leaf: Any) -> bool:
    """Whether a leaf has a tangent."""
    return dtypes.is_differentiable(typeof(leaf).dtype)


def differentiable_leaves(leaves: Sequence[Any], form: tree.Structure) -> list[bool]:
    """For each leaf of a pytree, whether it is differentiated: not integers, and not
    what a node holds that is registered as constant (`treadle.tree.register`)."""
    return [
        not constant and differentiable(x)
        for x, constant in zip(leaves, tree.constants(form), strict=True)
    ]


class _Flat:
    """A function of flat leaves made from one of pytrees; remembers what came out."""

    def __init__(
        self, function: Callable[..., Any], form: tree.Structure, has_aux: bool
    ) -> None:
        self.function, self.form, self.has_aux = function, form, has_aux
        self.out_form: tree.Structure | None = None
        self.aux_form: tree.Structure | None = None

    def __call__(self, *leaves: Any) -> list[Any]:
        out = call_pure(self.function, self.form, leaves, lambda x: (x, {}), skip=0)
        aux_leaves: list[Any] = []
        if self.has_aux:
            if not isinstance(out, tuple) or len(out) != 2:
                raise TypeError(
                    f"with has_aux=True, {name_of(self.function)} must return a pair "
                    f"(result, aux), got {described(out)}{at(user_source())}"
                )
            out, aux = out
            aux_leaves, self.aux_form = tree.flatten(aux)
            check_results(self.function, aux_leaves, self.aux_form)
        leaves_out, self.out_form = tree.flatten(out)
        check_results(self.function, leaves_out, self.out_form)
        self.count = len(leaves_out)
        return [*leaves_out, *aux_leaves]

    def whole(self) -> tree.Structure:
        """The structure of all that came out."""
        assert self.out_form is not None
        return tree.together(self.out_form, self.aux_form or tree.structure(()))


@boundary
def vjp(
    function: Callable[..., Any], *primals: Any, has_aux: bool = False
) -> tuple[Any, ...]:
    """The result, and the function that pulls a cotangent of it back to the arguments.

    Args:
      function: from pytrees of arrays to a pytree of arrays.
      primals: where to differentiate.
      has_aux: if True, `function` returns (result, aux); aux is passed through.

    Returns:
      (result, pullback), or (result, pullback, aux). ``pullback(ct)`` gives a tuple
      with one cotangent per argument; None stands for leaves without derivative
      (integers, keys), in what it takes too.

    >>> import treadle as td
    >>> y, pullback = td.vjp(lambda x: x * x, 3.0)
    >>> pullback(1.0)
    (Array(6., dtype=float32),)
    """
    check_function("vjp", function)
    leaves, form = tree.flatten(primals)
    check_arguments(function, leaves, form, skip=0)
    nonzero = differentiable_leaves(leaves, form)
    flat = _Flat(function, form, has_aux)
    name, types = name_of(function), [typeof(x) for x in leaves]
    split = branching(
        linearize_flat, flat, types, flat.whole, leaves, nonzero, name, name=name
    )
    assert flat.out_form is not None
    out = flat.out_form.unflatten(as_results(split.outs[: flat.count]))

    @boundary
    def pullback(ct: Any) -> tuple[Any, ...]:
        cts = _cotangents(flat.out_form, out, ct, name_of(function))
        needed = [c for c, nz in zip(cts, split.nonzero_out, strict=False) if nz]
        # Aux results may have tangents too; nothing flows back through them.
        rest = split.graph.outputs[len(needed) :]
        n = len(split.residuals)
        args = [*split.residuals, *(Linear(v.type) for v in split.graph.inputs[n:])]
        found = backward(split.graph, args, [*needed, *(Zero(a.type) for a in rest)])
        grads = iter(as_results([instantiate(ct) for ct in found[n:]]))
        return form.unflatten([next(grads) if nz else None for nz in nonzero])

    if not has_aux:
        return out, pullback
    assert flat.aux_form is not None
    return out, pullback, flat.aux_form.unflatten(split.outs[flat.count :])


def _cotangents(form: Any, out: Any, ct: Any, name: str) -> list[Any]:
    leaves = _matching(f"the cotangent of {name}", form, ct)
    clause = f"the cotangent of {name} has type {{}}, its result {{}}"
    return [
        _of_type(typeof(value), c, clause)
        for value, c in zip(tree.leaves(out), leaves, strict=True)
    ]


def _of_type(t: ArrayType, given: Any, clause: str) -> Any:
    """A tangent or cotangent that belongs to a value of a type; None is zero.

    Raises:
      ValueError, TypeError: if it is of another shape or dtype, or is there though the
        value has no derivative.
    """
    if given is None:
        return Zero(t.strong())
    given = check_leaf(given, "a tangent or cotangent", RETURN)
    found = typeof(given)
    if not dtypes.is_differentiable(t.dtype):
        clause = clause.format(found, t)
        raise TypeError(_NO_TANGENT.format(clause=clause, at=at(user_source())))
    fits = dtypes.promote((t.dtype, False), (found.dtype, found.weak))[0] == t.dtype
    if found.shape != t.shape:
        raise ValueError(f"{clause.format(found, t)}{at(user_source())}")
    if found.dtype != t.dtype and not (found.weak and fits):
        raise TypeError(
            f"{clause.format(found, t)}{at(user_source())}\n"
            f"Convert it: `.astype({t.dtype.name!r})`."
        )
    if not is_array(given):
        return number_of(given, t.dtype)
    return given if found.dtype == t.dtype else convert(given, dtype=t.dtype)


def _matching(what: str, form: tree.Structure, values: Any) -> list[Any]:
    """What stands at the leaves of a structure."""
    try:
        return tree.flatten_up_to(form, values, none=True)
    except StructureError as error:
        raise StructureError(
            f"{what} has another structure, {error}{at(user_source())}"
        ) from None


@boundary
def value_and_grad(
    function: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
) -> Callable[..., Any]:
    """A function that returns `function`'s value and its gradient.

    Args:
      function: returns a real scalar; its arguments are pytrees of arrays (Modules,
        optimizer states, dicts…). Its keyword arguments are not differentiated.
      argnums: the argument, or arguments, to differentiate in.
      has_aux: if True, `function` returns (value, aux).

    Returns:
      A function returning (value, gradient), or ((value, aux), gradient). The gradient
      has the structure of the argument (a tuple of them, if `argnums` is a sequence);
      leaves that can't be differentiated (integers, keys, state cells) are None in it.

    Raises:
      TypeError: when called, if the value is not a real scalar.

    >>> import treadle as td
    >>> td.value_and_grad(lambda x: x**2)(3.0)
    (Array(9., dtype=float32), Array(6., dtype=float32))
    """
    check_function("grad", function)
    many = not isinstance(argnums, int)
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @boundary
    @wraps(function)
    def value_and_grad_function(*args: Any, **kwargs: Any) -> Any:
        chosen = _choose(function, numbers, args)

        partial = Chosen(function, numbers, args, kwargs)
        result = vjp(partial, *chosen, has_aux=has_aux)
        value, pullback = result[0], result[1]
        _check_scalar(value, function)
        one = typeof(value).dtype.type(1)
        grads = pullback(one)
        grads = grads if many else grads[0]
        return ((value, result[2]), grads) if has_aux else (value, grads)

    return value_and_grad_function


def _choose(function: Any, numbers: Sequence[int], args: Sequence[Any]) -> list[Any]:
    for n in numbers:
        if not isinstance(n, int):
            raise TypeError(
                f"argnums takes positions of arguments, got {n!r}{at(user_source())}"
            )
        if not -len(args) <= n < len(args):
            raise ValueError(
                f"argnums={n}, but {name_of(function)} was called with {len(args)} "
                f"positional arguments{at(user_source())}\n"
                "Arguments passed by keyword are not differentiated."
            )
        _check_chosen(function, n % len(args), args[n])
    if len({n % len(args) for n in numbers}) < len(numbers):
        raise ValueError(
            f"argnums={tuple(numbers)} chooses an argument twice{at(user_source())}"
        )
    return [args[n] for n in numbers]


def _check_chosen(function: Any, n: int, value: Any) -> None:
    leaves, form = tree.flatten((value,))
    for path, leaf in zip(tree.paths(form), leaves, strict=True):
        check_leaf(leaf, argument(function, (n, *path[1:])), _IN_OTHERS)
    if leaves and not any(differentiable(x) for x in leaves):
        found = " and ".join(sorted({repr(typeof(x)) for x in leaves}))
        raise TypeError(
            _NO_DERIVATIVE.format(
                argument=argument(function, (n,)),
                found=found,
                at=at(user_source()),
            )
        )


def _check_scalar(value: Any, function: Any) -> None:
    try:
        t = typeof(value)
        if t.shape == () and dtypes.is_float(t.dtype):
            return
        found = repr(t)
    except TypeError:
        found = described(value)
    raise TypeError(
        _NOT_SCALAR.format(
            what="grad", name=name_of(function), result=found, at=at(user_source())
        )
    )


@boundary
def grad(
    function: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
) -> Callable[..., Any]:
    """A function that returns the gradient of `function`; see `value_and_grad`.

    >>> import treadle as td
    >>> td.grad(lambda x: x**3)(2.0)
    Array(12., dtype=float32)
    """
    both = value_and_grad(function, argnums, has_aux)

    @boundary
    @wraps(function)
    def grad_function(*args: Any, **kwargs: Any) -> Any:
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return grad_function


@boundary
def jvp(
    function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Any, Any]:
    """The result, and its directional derivative along `tangents`.

    Args:
      primals: the arguments, pytrees of arrays.
      tangents: one per argument, of the same structure; None where there is none, as
        for integers.

    Returns:
      (result, tangent); the tangent has None for integers in the result.

    Raises:
      TypeError, ValueError: if a tangent is not of its argument's type, or stands where
        that is an integer.

    >>> import treadle as td
    >>> td.jvp(lambda x: x * x, (3.0,), (1.0,))
    (Array(9., dtype=float32), Array(6., dtype=float32))
    """
    check_function("jvp", function)
    for what, values in (("primals", primals), ("tangents", tangents)):
        if not isinstance(values, tuple | list):
            raise TypeError(
                f"jvp: {what} is a tuple with one entry per argument, got "
                f"{described(values)}{at(user_source())}\n"
                "For one argument: `td.jvp(f, (x,), (tangent,))`."
            )
    leaves, form = tree.flatten(tuple(primals))
    check_arguments(function, leaves, form, skip=0)
    given = _tangents(form, leaves, tuple(tangents), name_of(function))
    flat = _Flat(function, form, False)
    name, types = name_of(function), [typeof(x) for x in leaves]
    outs, out_tangents = branching(
        jvp_flat, flat, types, flat.whole, leaves, given, name=name
    )
    assert flat.out_form is not None
    result = flat.out_form.unflatten(as_results(outs))
    return result, flat.out_form.unflatten(_results(out_tangents))


def _results(tangents: Sequence[Any]) -> list[Any]:
    """Tangents of results as arrays; None for what can't have one."""
    return [
        as_results([instantiate(t)])[0]
        if dtypes.is_differentiable(
            t.type.dtype if isinstance(t, Zero) else typeof(t).dtype
        )
        else None
        for t in tangents
    ]


def _tangents(form: Any, leaves: Sequence[Any], tangents: Any, name: str) -> list[Any]:
    given = _matching(f"the tangents of {name}", form, tangents)
    clause = f"a tangent of {name} has type {{}}, its primal {{}}"
    return [_of_type(typeof(x), t, clause) for x, t in zip(leaves, given, strict=True)]


@boundary
def linearize(function: Callable[..., Any], *primals: Any) -> tuple[Any, Any]:
    """The result, and the function's linear approximation there.

    The primal work is done once; the linear function may be called many times. It
    takes tangents and gives them as `jvp` does: None stands for those of integers.

    >>> import treadle as td
    >>> y, df = td.linearize(lambda x: x * x, 3.0)
    >>> df(1.0), df(2.0)
    (Array(6., dtype=float32), Array(12., dtype=float32))
    """
    check_function("linearize", function)
    leaves, form = tree.flatten(primals)
    check_arguments(function, leaves, form, skip=0)
    nonzero = differentiable_leaves(leaves, form)
    flat = _Flat(function, form, False)
    name, types = name_of(function), [typeof(x) for x in leaves]
    split = branching(
        linearize_flat, flat, types, flat.whole, leaves, nonzero, name, name=name
    )
    assert flat.out_form is not None
    out_form = flat.out_form

    @boundary
    def linear(*tangents: Any) -> Any:
        given = _tangents(form, leaves, tangents, name_of(function))
        moving = [instantiate(t) for t, nz in zip(given, nonzero, strict=True) if nz]
        found = iter(call_graph(split.graph, [*split.residuals, *moving]))
        outs = [
            next(found) if nz else Zero(typeof(o).strong())
            for o, nz in zip(split.outs, split.nonzero_out, strict=True)
        ]
        return out_form.unflatten(_results(outs))

    return out_form.unflatten(as_results(split.outs)), linear
