"""Loops of any length: while_loop and fori_loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, overload

from treadle import dtypes, tree
from treadle.api.args import CLOSE_OVER, as_results, check_function, name_of
from treadle.api.boundary import boundary
from treadle.api.carry import (
    LoopBody,
    PythonCarry,
    flatten_checked,
    of_types,
    trace_body,
)
from treadle.api.loops import scanned
from treadle.arraytype import ArrayType
from treadle.control import while_loop as while_op
from treadle.control.ways import explore
from treadle.control.while_linearize import Memory
from treadle.dims import is_dim, plain
from treadle.errors import at, user_source
from treadle.ir.graph import Graph
from treadle.ir.walk import has_effects
from treadle.ops.arithmetic import add
from treadle.ops.compare import lt
from treadle.ops.shape import iota
from treadle.run.array import Array, ArrayLike
from treadle.trace.stage import is_staging, known_value
from treadle.trace.value import typeof

MOST_STEPS = 4096
"""How many iterations reverse mode is prepared for, unless it is said."""

_TEST_CHANGES = """\
while_loop: the condition {} writes a state cell or draws a random key{}
Do that in the body, and carry what the condition needs."""


Carry = TypeVar("Carry")


@overload
def while_loop(
    cond_fun: Callable[[Carry], Any],
    body_fun: Callable[[Carry], Carry],
    init_val: Carry,
    *,
    max_steps: int | None = None,
    remember: Literal["marks", "steps"] = "marks",
) -> Carry: ...
@overload
def while_loop(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Carry],
    init_val: Any,
    *,
    max_steps: int | None = None,
    remember: Literal["marks", "steps"] = "marks",
) -> Carry: ...
@boundary
def while_loop(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    *,
    max_steps: int | None = None,
    remember: Literal["marks", "steps"] = "marks",
) -> Any:
    """Repeats ``carry = body_fun(carry)`` while ``cond_fun(carry)`` is true.

    Under `vmap` it runs until every example has stopped; effects (`td.debug.print`,
    `td.io_callback`) happen only for those that are running.

    It has forward derivatives, and reverse ones, for which something of the way must be
    remembered while nobody knows how long it will be. By default that are marks: the
    carry at the beginning of each of 64 segments, and of the one in work what each of
    its 64 steps needs; the backward pass runs each segment once more. (Outside of `jit`
    and `vmap` this is a Python loop, which any transform sees through.)

    Args:
      cond_fun: from the carry to a bool scalar.
      body_fun: from the carry to the next one, of the same structure and types.
      init_val: the first carry, a pytree.
      max_steps: how many iterations reverse mode is prepared for; 4096 if None. What
        does not go backwards may have any number. Beyond 4096 marks have three levels,
        beyond 262,144 four: each costs one more forward run, and all levels together
        keep no more than 3 or 4 times the cube or fourth root of `max_steps`.
      remember: "marks", or "steps": keep what the backward pass needs of each iteration
        in arrays of `max_steps` rows, and run nothing again. Then `max_steps` must be
        given.

    Raises:
      TypeError, StructureError: if the carry changes; the message names the leaf.
      ValueError: for a `max_steps` or `remember` that is none of these.
      RuntimeError: in reverse mode, after more than `max_steps` iterations.

    >>> import treadle as td
    >>> td.while_loop(lambda x: x < 100, lambda x: x * 3, 1)
    Array(243, dtype=int32)
    >>> @td.jit
    ... @td.grad
    ... def slope(x):
    ...     return td.while_loop(lambda x: x < 100.0, lambda x: x * x, x)
    >>> slope(2.0)  # of x**8
    Array(1024., dtype=float32)
    """
    check_function("while_loop", cond_fun)
    check_function("while_loop", body_fun)
    memory = _memory("while_loop", max_steps, remember)
    return _repeated("while_loop", cond_fun, body_fun, init_val, memory)


def _repeated(
    what: str, cond_fun: Any, body_fun: Any, init_val: Any, memory: Memory
) -> Any:
    if is_staging():
        return _staged_while(what, cond_fun, body_fun, init_val, memory)
    carry = PythonCarry(init_val, what, body_fun)
    first = True
    while True:
        going = _scalar_bool(cond_fun(carry.value), cond_fun)
        known = known_value(going)
        if known is None:
            # Examples of a vmap may go on for different times.
            return _staged_while(what, cond_fun, body_fun, carry.value, memory, going)
        if not known:
            return _untouched(what, body_fun, init_val) if first else carry.value
        carry.update(body_fun(carry.value))
        first = False


def _memory(what: str, max_steps: Any, remember: Any) -> Memory:
    if remember not in ("marks", "steps"):
        raise ValueError(
            f"{what}: remember={remember!r} is neither 'marks' nor 'steps'"
            f"{at(user_source())}"
        )
    if max_steps is None and remember == "steps":
        raise ValueError(
            f"{what}: remember='steps' keeps something of each iteration: say for how "
            f"many there must be room, `max_steps=`{at(user_source())}"
        )
    number = isinstance(max_steps, int) and not isinstance(max_steps, bool)
    if max_steps is not None and (not number or max_steps < 1):
        raise ValueError(
            f"{what}: max_steps={max_steps!r} is no positive number of iterations"
            f"{at(user_source())}"
        )
    most = MOST_STEPS if max_steps is None else int(max_steps)
    return Memory(most, remember == "steps")


def _untouched(what: str, body_fun: Any, init: Any) -> Any:
    """The carry of a loop without iterations. If there are numbers in it, only tracing
    says of which types they would be after one."""
    leaves, form = flatten_checked(init, f"{what}: init", CLOSE_OVER)
    types = [typeof(x) for x in leaves]
    if any(t.weak for t in types):
        types = _trace_while(what, body_fun, form, types).types
    return form.unflatten(as_results(of_types(leaves, types)))


def _trace_while(
    what: str, body_fun: Any, form: tree.Structure, types: list[ArrayType]
) -> LoopBody:
    def flat(*values: Any) -> Any:
        return body_fun(form.unflatten(values)), []

    return trace_body(flat, form, types, [], what, name_of(body_fun))


def _staged_while(
    what: str,
    cond_fun: Any,
    body_fun: Any,
    init: Any,
    memory: Memory,
    going: Any = None,
) -> Any:
    """The loop as an operation. If the first test has been done, it gave `going`."""
    leaves, form = flatten_checked(init, f"{what}: init", CLOSE_OVER)
    body = _trace_while(what, body_fun, form, [typeof(x) for x in leaves])
    test, captured = _trace_test(cond_fun, form, body)
    args = [*captured, *body.captured, *body.initial(leaves)]
    params: dict[str, Any] = {
        "test": test,
        "body": body.graph,
        "n_test_consts": len(captured),
        "n_body_consts": len(body.captured),
        "memory": memory,
    }
    if going is not None and has_effects(test):
        outs = while_op.resume(going, args, **params)
    else:
        outs = while_op.while_loop(*args, **params)
    return form.unflatten(body.leave(outs)[0])


def _trace_test(
    cond_fun: Any, form: tree.Structure, body: LoopBody
) -> tuple[Graph, list[Any]]:
    """The condition, of what the body carries."""
    n, around = len(body.types), body.around
    ambient = [typeof(around.leaves[i]) for i in body.hidden]

    def flat(*values: Any) -> list[Any]:
        given = list(around.leaves)
        for i, x in zip(body.hidden, values[n:], strict=True):
            given[i] = x
        with around.inside(given):
            going = _scalar_bool(cond_fun(form.unflatten(values[:n])), cond_fun)
            now = around.now()[0]
        if [id(x) for x in now] != [id(x) for x in given]:
            where = at(user_source())
            raise RuntimeError(_TEST_CHANGES.format(name_of(cond_fun), where))
        return [going]

    types = [*body.types, *ambient]
    return explore(flat, types, lambda: tree.LEAF, name=name_of(cond_fun))


def _counter_dtype(*limits: Any) -> Any:
    """The dtype of what counts from one limit to the other."""
    types = [typeof(x) for x in limits]
    for x, t in zip(limits, types, strict=True):
        if t.shape or not dtypes.is_integer(t.dtype):
            raise TypeError(
                f"fori_loop: the limits are integers, got {x!r}{at(user_source())}"
            )
    return dtypes.promote(*((t.dtype, t.weak) for t in types))[0]


def _scalar_bool(x: Any, cond_fun: Any) -> Any:
    t = typeof(x)
    if t.shape or t.dtype != dtypes.bool_:
        raise TypeError(
            f"while_loop: {name_of(cond_fun)} must return a bool scalar, got {t}"
            f"{at(user_source())}"
        )
    return x


@overload
def fori_loop(
    lower: ArrayLike,
    upper: ArrayLike,
    body_fun: Callable[[Array, Carry], Carry],
    init_val: Carry,
    *,
    unroll: int | bool | None = None,
    max_steps: int | None = None,
    remember: Literal["marks", "steps"] = "marks",
) -> Carry: ...
@overload
def fori_loop(
    lower: ArrayLike,
    upper: ArrayLike,
    body_fun: Callable[[Any, Any], Carry],
    init_val: Any,
    *,
    unroll: int | bool | None = None,
    max_steps: int | None = None,
    remember: Literal["marks", "steps"] = "marks",
) -> Carry: ...
@boundary
def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
    *,
    unroll: int | bool | None = None,
    max_steps: int | None = None,
    remember: Literal["marks", "steps"] = "marks",
) -> Any:
    """``for i in range(lower, upper): carry = body_fun(i, carry)``.

    With known bounds this is a `scan`; with traced bounds it is a `while_loop`.

    Args:
      lower, upper: integer scalars.
      body_fun: from the number of the iteration and the carry to the new carry.
      init_val: the first carry.
      unroll: how many iterations the compiled loop does at once (True: all); the
        bounds must then be known.
      max_steps, remember: as for `td.while_loop`, with traced bounds.

    Raises:
      ValueError: for `unroll` with traced bounds.

    >>> import treadle as td
    >>> td.fori_loop(1, 5, lambda i, product: product * i, 1)
    Array(24, dtype=int32)
    """
    check_function("fori_loop", body_fun)
    dtype = _counter_dtype(lower, upper)
    first, last = known_value(lower), known_value(upper)
    if first is not None and last is not None:
        first, last = plain(first), plain(last)
        n = max(last - first, 0)
        numbers = iota(shape=(n,), axis=0, dtype=dtype)
        numbers = add(numbers, first if is_dim(first) else dtype.type(first))

        def row(carry: Any, i: Any) -> Any:
            return body_fun(i, carry), None

        row.__name__ = name_of(body_fun)
        at_once = 1 if unroll is None else unroll
        return scanned(row, init_val, numbers, n, False, at_once, "fori_loop")[0]
    if unroll is not None:
        raise ValueError(
            f"fori_loop: unroll={unroll!r}, but the limits are traced: how many "
            f"iterations there are is not known{at(user_source())}\n"
            "Give limits that are known while tracing, or leave `unroll` out."
        )
    lower, upper = of_types([lower, upper], [ArrayType((), dtype)] * 2)

    def step(state: Any) -> Any:
        i, carry = state
        return add(i, 1), body_fun(i, carry)

    def goes_on(state: Any) -> Any:
        return lt(state[0], upper)

    step.__name__ = name_of(body_fun)
    memory = _memory("fori_loop", max_steps, remember)
    return _repeated("fori_loop", goes_on, step, (lower, init_val), memory)[1]
