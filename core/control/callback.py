"""Ops that call Python on the host while a program runs.

Params:
  function: takes NumPy arrays, gives a sequence of arrays of the declared types.
  types: of the results.
  batching: how `vmap` calls it (`BATCHINGS`): "sequential", for one example after the
    other; else once, for all of them: "broadcast_all" gives each argument a leading
    axis, "expand_dims" one of length 1 to those that are not mapped.

Compiled, each is a host step of the program. `io_callback` and `debug_callback` have
an effect: they run each time the program comes by, in the program's order, whether
or not their results are used. Under `vmap` it comes by with one example after the
other; a guard keeps out those that take another branch or have left the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.errors import at, user_source
from treadle.ops.movement import spread
from treadle.records import record
from treadle.trace.interpreter import current_source
from treadle.trace.lowering import Host
from treadle.trace.op import Op
from treadle.trace.value import Value, typeof
from treadle.transforms.batch import move_axis

Types = tuple[ArrayType, ...]

BATCHINGS = ("sequential", "expand_dims", "broadcast_all")

_NO_DERIVATIVE = (
    "`{name}` has no derivative: what Python computes is not known to differentiation"
    "{at}\n"
    "Wrap the call in a function with `td.custom_jvp` or `td.custom_vjp`, or give it "
    "`td.stop_gradient(x)`."
)


def _run(
    *arrays: Any, function: Callable[..., Any], types: Types, batching: str
) -> list[np.ndarray]:
    # Copies: the function may keep its arguments or write to them, and in a compiled
    # program they lie in memory that is used again at once.
    results = function(*[np.array(a) for a in arrays])
    name = getattr(function, "__name__", "a callback")
    return [_checked(r, t, name) for r, t in zip(results, types, strict=True)]


def _checked(result: Any, t: ArrayType, name: str) -> np.ndarray:
    # Python's numbers (and lists of them) have no dtype of their own; NumPy's do.
    typed = isinstance(result, Value | np.ndarray | np.generic)
    if typed:
        typeof(result)  # refuses masks, and dtypes that arrays can't have
    array = np.asarray(result)
    same = array.dtype == t.dtype
    if not same and (not typed or type(result) in dtypes.PYTHON_OF):
        same = _holds(t.dtype, array)
    if array.shape != t.shape or not same:
        raise TypeError(
            f"the callback {name} declared {t} but returned {array.dtype.name}"
            f"{list(array.shape)}{at(user_source())}\n"
            "Declare what it returns, or convert it there: `result.astype(...)`."
        )
    return array.astype(t.dtype, copy=False)


def _holds(dtype: np.dtype, numbers: np.ndarray) -> bool:
    """Whether Python's numbers can be of a dtype: its kind, and integers in range."""
    if numbers.size and dtypes.is_integer(dtype) and numbers.dtype.kind in "iu":
        info = np.iinfo(dtype)
        return bool(info.min <= numbers.min() and numbers.max() <= info.max)
    return np.can_cast(numbers.dtype, dtype, "same_kind")


@record(frozen=True)
class _OneByOne:
    """The function of a whole batch that calls a function of one example."""

    function: Callable[..., Any]
    types: Types
    size: int
    axes: tuple[int | None, ...]

    @property
    def __name__(self) -> str:
        return getattr(self.function, "__name__", "")

    def __call__(self, *arrays: np.ndarray) -> list[Any]:
        rows = [
            [
                _checked(result, t, self.__name__)
                for result, t in zip(self._one(arrays, i), self.types, strict=True)
            ]
            for i in range(self.size)
        ]
        if not rows:
            return [np.empty((0, *t.shape), t.dtype) for t in self.types]
        return [np.stack(column) for column in zip(*rows, strict=True)]

    def _one(self, arrays: Sequence[np.ndarray], i: int) -> Any:
        """The results for example i."""
        places = zip(arrays, self.axes, strict=True)
        return self.function(*[x if a is None else np.take(x, i, a) for x, a in places])


@record(frozen=True)
class _Guarded:
    """A function with one more argument, the first: it is called only where that is
    True, and zeros stand for its results elsewhere."""

    function: Callable[..., Any]
    types: Types

    @property
    def __name__(self) -> str:
        return getattr(self.function, "__name__", "")

    def __call__(self, active: np.ndarray, *arrays: np.ndarray) -> Sequence[Any]:
        if active:
            return self.function(*arrays)
        return [np.zeros(t.shape, t.dtype) for t in self.types]


def _callback(name: str, effect: bool, differentiable: bool) -> Op:
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        raise TypeError(_NO_DERIVATIVE.format(name=name, at=at(current_source())))

    def batch(
        size: int,
        args: Sequence[Any],
        axes: Sequence[int | None],
        *,
        function: Callable[..., Any],
        types: Types,
        batching: str,
    ) -> Any:
        wide = tuple(ArrayType((size, *t.shape), t.dtype) for t in types)
        if batching == "sequential":
            function = _OneByOne(function, types, size, tuple(axes))
        else:
            length = 1 if batching == "expand_dims" else size
            args = [
                spread(x, 0, length) if a is None else move_axis(x, a, 0)
                for x, a in zip(args, axes, strict=True)
            ]
        outs = op(*args, function=function, types=wide, batching=batching)
        return outs, [0] * len(outs)

    def guard(
        active: Any,
        args: Sequence[Any],
        *,
        function: Callable[..., Any],
        types: Types,
        batching: str,
    ) -> Any:
        function = _Guarded(function, types)
        return op(active, *args, function=function, types=types, batching=batching)

    op = Op(
        name,
        lambda *in_types, function, types, batching: types,
        _run,
        lowering=Host("it calls a Python function"),
        jvp=jvp,
        batch=batch,
        guard=guard if effect else None,
        multiple=True,
        effect=effect,
        differentiable=differentiable,
    )
    return op


pure_callback = _callback("pure_callback", effect=False, differentiable=True)
io_callback = _callback("io_callback", effect=True, differentiable=True)
debug_callback = _callback("debug_callback", effect=True, differentiable=False)
