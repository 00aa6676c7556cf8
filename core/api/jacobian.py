"""Whole derivatives: Jacobians, Hessians; the transpose of a linear function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from treadle import dtypes, tree
from treadle.api.argnums import Argnums, Differentiated
from treadle.api.args import check_function, name_of
from treadle.api.boundary import boundary
from treadle.api.linear import jvp, vjp
from treadle.api.staging import type_of_leaf
from treadle.api.tangents import differentiable, differentiable_leaves
from treadle.api.vmap import vmap
from treadle.arraytype import ArrayType
from treadle.errors import at, user_source
from treadle.ops import identity
from treadle.ops.arithmetic import add
from treadle.ops.cast import convert
from treadle.ops.compare import eq
from treadle.ops.movement import reshape, zeros_like
from treadle.ops.shape import iota, slice_axis
from treadle.run.array import Array
from treadle.trace.stage import stage
from treadle.trace.value import typeof
from treadle.transforms.jvp import jvp_graph

T = TypeVar("T")
Aux = TypeVar("Aux")
P = ParamSpec("P")


@boundary
def stop_gradient(x: T) -> T:
    """The same pytree; derivatives count it as constant.

    >>> import treadle as td
    >>> td.grad(lambda x: x * td.stop_gradient(x))(3.0)
    Array(3., dtype=float32)
    """
    return tree.map(
        lambda leaf: identity.stop_gradient(leaf) if differentiable(leaf) else leaf, x
    )


def _basis(leaves: Sequence[Any]) -> list[Any]:
    """Unit tangents for all elements of all leaves: (total, *shape) for each leaf."""
    sizes = [typeof(x).size for x in leaves]
    total, start, basis = sum(sizes), 0, []
    for x, size in zip(leaves, sizes, strict=True):
        t = typeof(x)
        dtype = dtypes.of_index(total)
        rows, columns = (iota(shape=(total, size), axis=a, dtype=dtype) for a in (0, 1))
        if start:
            columns = add(columns, dtype.type(start))
        ones = convert(eq(rows, columns), dtype=t.dtype)
        basis.append(reshape(ones, shape=(total, *t.shape)))
        start += size
    return basis


def _blocks(x: Any, leaves: Sequence[Any], axis: int) -> list[Any]:
    """Cuts the axis of unit vectors into one block for each leaf, of its shape."""
    found, start = [], 0
    shape = typeof(x).shape
    for leaf in leaves:
        t = typeof(leaf)
        part = slice_axis(x, axis, start, start + t.size)
        new = (*shape[:axis], *t.shape, *shape[axis + 1 :])
        found.append(reshape(part, shape=new))
        start += t.size
    return found


def _jacobian(
    inputs: Differentiated, rows: Callable[..., Any], has_aux: bool
) -> Callable[..., Any]:
    """A function that gives the Jacobian; and aux, if there is one.

    rows: from the function of the chosen arguments, and a tuple of these, to both.
    """

    @boundary
    @wraps(inputs.function)
    def jacobian_function(*args: Any, **kwargs: Any) -> Any:
        partial, chosen = inputs.choose(args, kwargs)
        found, *aux = rows(partial, tree.map(_number, tuple(chosen)))
        return (found, *aux) if has_aux else found

    return jacobian_function


def _number(leaf: Any) -> Any:
    """NumPy's Python numbers as what they are: of no dtype of their own."""
    return leaf.item() if type(leaf) in dtypes.PYTHON_OF else leaf


@overload
def jacfwd(
    function: Callable[Concatenate[Array, P], Array],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    holomorphic: bool = False,
) -> Callable[Concatenate[Array, P], Array]: ...
@overload
def jacfwd(
    function: Callable[Concatenate[Array, P], tuple[Array, Aux]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
    holomorphic: bool = False,
) -> Callable[Concatenate[Array, P], tuple[Array, Aux]]: ...
@overload
def jacfwd(
    function: Callable[P, Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[P, Any]: ...
@boundary
def jacfwd(
    function: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """The Jacobian, column by column: cheap if there are few inputs.

    For each leaf of the result, the pytree of the argument (a tuple of them, if
    `argnums` is a sequence), with arrays of shape ``(*result.shape, *argument.shape)``,
    and None for what `td.grad` leaves out too (integers, keys, state cells). For
    integers in the result: None.

    Args:
      has_aux: if True, `function` returns (result, aux), and what is made (Jacobian,
        aux).
      holomorphic: if True, arguments and results are complex, and `function` is complex
        differentiable.

    Raises:
      TypeError: when called, if an argument has no leaf with a derivative, or complex
        ones without `holomorphic`.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.jacfwd(lambda x: x * x)(tnp.array([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], dtype=float32)
    """
    check_function("jacfwd", function)
    inputs = Differentiated("jacfwd", function, argnums, holomorphic, forward=True)

    def rows(partial: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
        _, form = tree.flatten(args)
        moved = _moved(args)
        leaves = [x for x in moved if x is not None]

        def push(*tangents: Any) -> Any:
            directions = form.unflatten(_spread(moved, tangents))
            out, *found = jvp(partial, args, directions, has_aux)
            inputs.check_results(*tree.flatten(out))
            return tuple(found)

        # The unit axis comes last, where the argument's axes belong; aux has none.
        found, *aux = vmap(push, out_axes=(-1, None)[: 1 + has_aux])(*_basis(leaves))
        outs, out_form = tree.flatten(found)
        blocks = [_blocks(x, leaves, typeof(x).ndim - 1) for x in outs]
        every = [_spread(moved, row) for row in blocks]
        return (_assemble(out_form, form, every, inputs.many), *aux)

    return _jacobian(inputs, rows, has_aux)


@overload
def jacrev(
    function: Callable[Concatenate[Array, P], Array],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[Concatenate[Array, P], Array]: ...
@overload
def jacrev(
    function: Callable[Concatenate[Array, P], tuple[Array, Aux]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[Concatenate[Array, P], tuple[Array, Aux]]: ...
@overload
def jacrev(
    function: Callable[P, Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[P, Any]: ...
@boundary
def jacrev(
    function: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """The Jacobian, row by row: cheap if there are few outputs. See `jacfwd`.

    Args:
      allow_int: if True, an argument may be without any derivative (integers): None
        stands for it.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.jacrev(lambda x: x * x)(tnp.array([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], dtype=float32)
    """
    check_function("jacrev", function)
    inputs = Differentiated("jacrev", function, argnums, holomorphic, allow_int)

    def rows(partial: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
        _, form = tree.flatten(args)
        moved = _moved(args)
        out, pullback, *aux = vjp(partial, *args, has_aux=has_aux)
        outs, out_form = tree.flatten(out)
        inputs.check_results(outs, out_form)
        places = [x if differentiable(x) else None for x in outs]
        floats = [x for x in places if x is not None]

        def pull(*cts: Any) -> Any:
            return tree.leaves(pullback(out_form.unflatten(_spread(places, cts))))

        pulled = vmap(pull)(*_basis(floats)) if floats else []
        blocks = [_blocks(x, floats, 0) for x in pulled]
        found = (
            [_spread(moved, row) for row in zip(*blocks, strict=True)]
            if blocks
            else [moved] * len(floats)
        )
        return (_assemble(out_form, form, _spread(places, found), inputs.many), *aux)

    return _jacobian(inputs, rows, has_aux)


jacobian = jacrev
"""The Jacobian: `jacrev`, unless there are fewer inputs than outputs (`jacfwd`)."""


def _assemble(
    out_form: tree.Structure,
    form: tree.Structure,
    found: Sequence[Sequence[Any] | None],
    many: bool,
) -> Any:
    """The pytree of the result, with that of the arguments in the place of leaves."""
    rows = [None if row is None else form.unflatten(row) for row in found]
    return out_form.unflatten(
        rows if many else [None if row is None else row[0] for row in rows]
    )


def _moved(args: tuple[Any, ...]) -> list[Any]:
    """The leaves of the arguments, None for those that `grad` leaves out too."""
    leaves, form = tree.flatten(args)
    chosen = differentiable_leaves(leaves, form)
    return [x if moves else None for x, moves in zip(leaves, chosen, strict=True)]


def _spread(places: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """The values in the places that are not None."""
    rest = iter(values)
    return [None if place is None else next(rest) for place in places]


@overload
def hessian(
    function: Callable[Concatenate[Array, P], Array],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    holomorphic: bool = False,
) -> Callable[Concatenate[Array, P], Array]: ...
@overload
def hessian(
    function: Callable[Concatenate[Array, P], tuple[Array, Aux]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
    holomorphic: bool = False,
) -> Callable[Concatenate[Array, P], tuple[Array, Aux]]: ...
@overload
def hessian(
    function: Callable[P, Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[P, Any]: ...
@boundary
def hessian(
    function: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """The second derivatives: forward mode over reverse mode. See `jacfwd`.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.hessian(lambda x: tnp.sum(x**3))(tnp.array([1.0, 2.0]))
    Array([[ 6.,  0.],
           [ 0., 12.]], dtype=float32)
    """
    rows = jacrev(function, argnums, has_aux, holomorphic)
    return jacfwd(rows, argnums, has_aux, holomorphic)


@boundary
def linear_transpose(function: Callable[..., Any], *primals: Any) -> Callable[..., Any]:
    """The transpose of a linear function.

    Args:
      function: linear in all its arguments.
      primals: arrays or `ShapeDtype`: only their types matter.

    Returns:
      A function from a cotangent of the result to a tuple of cotangents.

    Raises:
      TypeError: if the function's derivative depends on its arguments.

    >>> import treadle as td, treadle.numpy as tnp
    >>> transposed = td.linear_transpose(lambda x: x[1:], td.ShapeDtype((3,)))
    >>> transposed(tnp.array([1.0, 2.0]))
    (Array([0., 1., 2.], dtype=float32),)
    """
    types = tree.map(
        lambda x: type_of_leaf(x, f"an argument of {name_of(function)}"), primals
    )
    zeros = tree.map(_zeros, types)
    _check_linear(function, zeros)
    return vjp(function, *zeros)[1]


def _check_linear(function: Callable[..., Any], primals: tuple[Any, ...]) -> None:
    leaves, form = tree.flatten(primals)
    graph, captured = stage(
        lambda *xs: tree.leaves(function(*form.unflatten(xs))),
        [typeof(x) for x in leaves],
        name=name_of(function),
    )
    known = (False,) * len(captured)
    moving = tuple(differentiable(x) for x in leaves)
    both, _ = jvp_graph(graph, (*known, *moving))
    tangents = (False,) * sum(moving)
    _, second = jvp_graph(both, (*known, *moving, *tangents))
    if any(second[len(graph.outputs) :]):
        raise TypeError(
            f"linear_transpose: {name_of(function)} is not linear: its derivative "
            f"depends on its arguments{at(user_source())}\n"
            "The transpose of its derivative at a point is `td.vjp(f, x)[1]`."
        )


def _zeros(t: ArrayType) -> Any:
    return zeros_like(ArrayType(t.shape, t.dtype))
