"""The primitive record: everything that an operation owes, in one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.dims import CLOSED, Dim, Real, hint, is_symbolic
from treadle.trace.interpreter import state
from treadle.trace.lowering import Elementwise, Expanded, Lowering
from treadle.trace.value import typeof

Rule = Callable[..., Any]


class Zero:
    """A tangent or cotangent that is known to be zero, and is never computed."""

    __slots__ = ("type",)

    def __init__(self, type: ArrayType) -> None:
        self.type = type

    def __repr__(self) -> str:
        return f"Zero({self.type})"


class Linear:
    """Stands for an argument in which a transpose rule is to be linear."""

    __slots__ = ("type",)

    def __init__(self, type: ArrayType) -> None:
        self.type = type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> Any:
        return self.type.dtype


class Op:
    """A primitive operation with all its rules. Calling it binds it: the current
    interpreter carries it out. Arrays are positional, metadata are keywords.

    type_rule: ``(*types, **params) -> ArrayType`` (a sequence if `multiple`); raises
      TypeError or ValueError naming the shapes for bad input.
    run: ``(*numpy_arrays, **params) -> array`` (a sequence if `multiple`): the
      reference meaning.
    jvp: ``(primals, tangents, **params) -> (out, tangent)``; tangents may be `Zero`.
    linearize: the same signature, run while tangents are being staged; only for ops
      that hold a graph, where one rule can't serve both. Default: `jvp`.
    transpose: ``(ct, *args, **params) -> [ct or None per arg]``; args in which to
      transpose are `Linear`, for the others return None. Ops with several results get
      a list of cts (possibly `Zero`).
    batch: ``(size, args, axes, **params) -> (out, axis)``; axes are int or None, at
      least one is an int. Several results: (outs, axes).
    names_axis: True for ops that mean an axis by its name, or hold a graph that may:
      `batch` then takes the `MappedAxis` in the place of its size, and, where the op
      speaks of it, arguments none of which has the axis.
    guard: ``(active, args, **params) -> outs``: binds the op so that its effects, and
      those of graphs that it holds, happen only where `active`, a bool scalar, holds.
      The results mean nothing elsewhere.
    lowering: how it runs on a device.
    differentiable: False declares that tangents stop here (integer results).
    effect: True if running it matters even when its results are not used.
    remembered: whether its result, where all is written down, knows what it was made
      of (`Tracer.origin`).
    """

    __slots__ = (
        "batch",
        "differentiable",
        "effect",
        "guard",
        "jvp",
        "linearize",
        "lowering",
        "multiple",
        "name",
        "names_axis",
        "remembered",
        "run",
        "takes_scalars",
        "transpose",
        "type_rule",
    )

    def __init__(
        self,
        name: str,
        type_rule: Rule,
        run: Rule,
        *,
        lowering: Lowering,
        jvp: Rule | None = None,
        linearize: Rule | None = None,
        transpose: Rule | None = None,
        batch: Rule | None = None,
        guard: Rule | None = None,
        multiple: bool = False,
        differentiable: bool = True,
        effect: bool = False,
        names_axis: bool = False,
    ) -> None:
        self.name, self.type_rule, self.run = name, type_rule, run
        self.jvp, self.linearize, self.transpose = jvp, linearize or jvp, transpose
        self.batch, self.guard, self.lowering = batch, guard, lowering
        self.takes_scalars = isinstance(lowering, Elementwise)
        self.multiple, self.differentiable = multiple, differentiable
        self.effect, self.names_axis = effect, names_axis
        self.remembered = False
        if name in registry:
            raise ValueError(f"an op named {name!r} exists already")
        registry[name] = self

    def __call__(self, *args: Any, **params: Any) -> Any:
        if self.takes_scalars:
            for a in args:
                if type(a) in _NUMBERS:
                    args = _settle_numbers(args)
                    break
        interpreter = state.interpreter
        out = interpreter.process(self, args, params)
        if self.remembered and interpreter.writer is not None:
            out.origin = self, args, params
        return out

    def infer(
        self, types: Sequence[ArrayType], params: dict[str, Any]
    ) -> Sequence[ArrayType]:
        """The types of the results."""
        result = self.type_rule(*types, **params)
        return result if self.multiple else (result,)

    def __repr__(self) -> str:
        return self.name

    def __lt__(self, other: Op) -> bool:
        return self.name < other.name


registry: dict[str, Op] = {}
"""Every primitive, by name."""

_SCALARS = frozenset((int, float, bool, complex))
_NUMBERS = _SCALARS | {Dim, Real}


def _settle_numbers(args: tuple) -> tuple:
    """Makes what an array may stand beside of numbers among the operands of a map."""
    if any([is_symbolic(a) for a in args]):
        args = _settle_sizes(args)
    return _settle_scalars(args)


def _settle_scalars(args: tuple) -> tuple:
    """Gives Python scalars among the operands of a map the dtype of the others."""
    for a in args:
        if type(a) in _SCALARS:
            break
    else:
        return args
    types = [typeof(a) for a in args if type(a) not in _SCALARS]
    numbers = [t for t in types if t.dtype != dtypes.bool_]
    if numbers:
        dtype = numbers[0].dtype
        weak = all([t.weak for t in types])
    else:  # Conditions say nothing of what is chosen: `select(mask, 1.0, 0.0)`.
        scalars = [(dtypes.of_scalar(a), True) for a in args if type(a) in _SCALARS]
        dtype, weak = dtypes.promote(*scalars)[0], True
    if weak:
        return tuple([_weak(a, dtype) if type(a) in _SCALARS else a for a in args])
    return tuple([dtypes.number(dtype, a) if type(a) in _SCALARS else a for a in args])


def _settle_sizes(args: tuple) -> tuple:
    """Makes arrays of sizes among the operands of a map, of the dtype that Python's
    numbers in their places would get."""
    settled = _settle_scalars(tuple([hint(a) for a in args]))
    return tuple(
        [
            as_size(a, typeof(b).dtype, typeof(b).weak) if is_symbolic(a) else b
            for a, b in zip(args, settled, strict=True)
        ]
    )


def as_size(number: Any, dtype: np.dtype, weak: bool = False) -> Any:
    """An array of a number that depends on sizes.

    Raises:
      LeakError: if it is used after the trace of those sizes.
    """
    if number.scope.phase is CLOSED:
        raise number.scope.leak()
    return size_op(dim=getattr(number, "value", number), dtype=dtype, weak=weak)


_PYTHON = {"b": bool, "i": int, "f": float, "c": complex}


def _weak(x: Any, dtype: np.dtype) -> Any:
    """A Python scalar beside weak operands: stays weak, if its dtype can be theirs."""
    kind = _PYTHON.get(dtype.kind)
    plain = kind(x) if kind else x
    return plain if dtypes.of_scalar(plain) == dtype else dtypes.number(dtype, x)


size_op = Op(
    "size",
    lambda *, dim, dtype, weak=False: ArrayType((), dtype, weak),
    lambda *, dim, dtype, weak=False: dtype.type(hint(dim)),
    lowering=Expanded(),
    differentiable=False,
)
"""A number that depends on sizes, which are not fixed."""
