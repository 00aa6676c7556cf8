"""Primitives from outside: records of rules, as the library's own are."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from treadle import dtypes
from treadle.api.boundary import boundary
from treadle.api.loops import scan
from treadle.arraytype import ArrayType
from treadle.errors import at, user_frame, user_source
from treadle.np.operands import as_array, operand
from treadle.ops import elementwise as families
from treadle.ops.movement import move_axis
from treadle.trace.interpreter import current_source
from treadle.trace.lowering import Elementwise, Host, Lowering
from treadle.trace.op import Op, Zero, registry
from treadle.trace.value import typeof

Rule = Callable[..., Any]


class _Own(NamedTuple):
    """A primitive that a user has made. code: of what made it, in that line."""

    op: Op
    code: CodeType | None
    line: int


_OWN: dict[str, _Own] = {}
"""The primitives that users have made, by name."""


class Primitive:
    """An operation: arrays by position, what is known while tracing by keyword.

    `primitive` and `elementwise` make them.
    """

    def __init__(self, op: Op) -> None:
        self._op = op
        self.__name__ = op.name

    def __repr__(self) -> str:
        return f"<primitive {self._op.name}>"

    @boundary
    def __call__(self, *args: Any, **params: Any) -> Any:
        for name, value in params.items():
            try:
                hash(value)
            except TypeError:
                raise TypeError(
                    f"{self._op.name}: the parameter {name}={value!r:.60} can't be "
                    f"hashed{at(user_source())}\nArrays are given by position; make "
                    "tuples of lists."
                ) from None
        values = [operand(self._op.name, x) for x in args]
        if not self._op.takes_scalars:
            values = [as_array(x) for x in values]
        out = self._op(*values, **params)
        return tuple(out) if self._op.multiple else out


@boundary
def primitive(
    name: str,
    run: Rule,
    *,
    types: Rule,
    jvp: Rule | None = None,
    transpose: Rule | None = None,
    batch: Rule | None = None,
    multiple: bool = False,
) -> Primitive:
    """Makes an operation of its rules. It runs under every transform; compiled programs
    call its NumPy meaning on the host.

    Args:
      name: with a dot, such as "mylib.cross": Treadle's own have none. A module or cell
        of a notebook that runs again replaces its primitives.
      run: ``(*numpy_arrays, **params) -> array``: what it computes. It is pure.
      types: ``(*types, **params) -> td.ShapeDtype(...)``: the shape and dtype of the
        result, from the like of the arguments (with `shape`, `dtype`, `ndim`). Bad
        arguments raise TypeError or ValueError here.
      jvp: ``(primals, tangents, **params) -> (result, tangent)``, in Treadle's
        operations; None stands for a tangent that is zero. Without it, derivatives are
        an error.
      transpose: ``(ct, *args, **params) -> (cotangent or None for each argument)``, if
        it is linear in some arguments. Those in which to transpose are `Linear`, with a
        `shape` and a `dtype` and no value.
      batch: ``(size, args, axes, **params) -> (result, axis)``: what `td.vmap` does.
        `axes` has, for each argument, the axis of the examples, or None. Without it
        examples are computed one after the other.
      multiple: whether there are several results: `run`, `types` and the rules then
        give (and, for `ct`, take) sequences.

    Raises:
      ValueError: for a name without a dot, and for one that is taken.

    >>> import numpy as np, treadle as td, treadle.numpy as tnp
    >>> cube = td.extend.primitive(
    ...     "doc.cube",
    ...     lambda x: x**3,
    ...     types=lambda x: td.ShapeDtype(x.shape, x.dtype),
    ...     jvp=lambda xs, ts: (cube(*xs), 3 * xs[0] ** 2 * ts[0]),
    ... )
    >>> td.jit(td.grad(cube))(2.0)
    Array(12., dtype=float32)
    """
    made_in = _check_name(name)
    adapted = _Adapted(name, run, types, multiple)
    op = Op(
        name,
        adapted.type_rule,
        adapted.run,
        lowering=Host(f"{name} has a NumPy meaning only"),
        jvp=adapted.jvp(jvp),
        transpose=None if transpose is None else adapted.transpose(transpose),
        batch=adapted.one_by_one if batch is None else adapted.batch(batch),
        multiple=multiple,
    )
    adapted.op = op
    _OWN[name] = _Own(op, *made_in)
    return Primitive(op)


def _check_name(name: str) -> tuple[CodeType | None, int]:
    """Where it is made."""
    if not isinstance(name, str) or "." not in name.strip("."):
        raise ValueError(
            f"a primitive's name has a dot, such as 'mylib.cross', got {name!r}"
            f"{at(user_source())}"
        )
    frame = user_frame()
    code, line = (frame.f_code, frame.f_lineno) if frame else (None, 0)
    known = _OWN.get(name)
    if known is not None:
        if not _is_again(known, code, line):
            first = f"{known.code.co_filename if known.code else '?'}:{known.line}"
            raise ValueError(
                f"the primitive {name!r} is there already{at(user_source())}\n"
                f"  made at {first}\nGive one of them another name."
            )
        registry.pop(name)
    return code, line


def _is_again(known: _Own, code: CodeType | None, line: int) -> bool:
    """Whether a primitive is made by what made the one of its name: the same line, or
    that module or cell of a notebook, run once more."""
    if code is None or known.code is None:
        return True
    if code is known.code:
        return line == known.line
    return code.co_filename == known.code.co_filename or not all(
        map(_is_file, (code, known.code))
    )


def _is_file(code: CodeType) -> bool:
    return os.path.exists(code.co_filename) and "ipykernel" not in code.co_filename


class _Adapted:
    """A user's rules as those of an `Op`: zeros are None, and what they give is
    checked."""

    op: Op

    def __init__(self, name: str, run: Rule, types: Rule, multiple: bool) -> None:
        self.name, self._run, self._types = name, run, types
        self.multiple = multiple

    def several(self, out: Any, what: str) -> list[Any]:
        if not self.multiple:
            return [out]
        if isinstance(out, tuple | list):
            return [*out]
        raise TypeError(
            f"{self.name}: {what} must give a sequence, with one for each result, got "
            f"{out!r:.60}{at(current_source())}"
        )

    def one(self, outs: Sequence[Any]) -> Any:
        return [*outs] if self.multiple else outs[0]

    def type_rule(self, *types: ArrayType, **params: Any) -> Any:
        found = self.several(self._types(*types, **params), "the rule of types")
        for t in found:
            if not isinstance(t, ArrayType):
                hint = ""
                if isinstance(t, tuple | list) and not self.multiple:
                    hint = "\nOf several results: `multiple=True`."
                raise TypeError(
                    f"{self.name}: the rule of types must give `td.ShapeDtype(shape, "
                    f"dtype)`, got {t!r:.60}{at(current_source())}{hint}"
                )
        return self.one([t.strong() for t in found])

    def run(self, *arrays: Any, **params: Any) -> Any:
        found = self.several(self._run(*arrays, **params), "its NumPy meaning")
        given = [ArrayType(np.shape(a), a.dtype) for a in map(np.asarray, arrays)]
        types = self.several(self.type_rule(*given, **params), "the rule of types")
        if len(found) != len(types):
            raise TypeError(
                f"{self.name}: its NumPy meaning gives {len(found)} arrays, the rule "
                f"of types says {len(types)}{at(current_source())}"
            )
        outs = [np.asarray(x) for x in found]
        for x, t in zip(outs, types, strict=True):
            if x.shape != t.shape or x.dtype != t.dtype:
                raise TypeError(
                    f"{self.name}: its NumPy meaning gives {x.dtype.name}"
                    f"{list(x.shape)}, the rule of types says {t}{at(current_source())}"
                )
        return self.one(outs)

    def jvp(self, rule: Rule | None) -> Rule:
        def derivative(primals: Any, tangents: Any, **params: Any) -> Any:
            if rule is None:
                raise TypeError(
                    f"{self.name} has no derivative{at(current_source())}\nGive it "
                    "`jvp=`, or give its arguments `td.stop_gradient(x)`."
                )
            given = tuple([None if isinstance(t, Zero) else t for t in tangents])
            out, tangent = rule(tuple(primals), given, **params)
            outs = self.several(out, "the rule `jvp`")
            moved = self.several(tangent, "the rule `jvp`")
            checked = [self._tangent(t, o) for t, o in zip(moved, outs, strict=True)]
            return self.one(outs), self.one(checked)

        return derivative

    def _tangent(self, tangent: Any, out: Any) -> Any:
        t = typeof(out).strong()
        if tangent is None or not dtypes.is_differentiable(t.dtype):
            return Zero(t)
        found = as_array(operand(self.name, tangent))
        return self._like(found, t, "`jvp` gives a tangent", "the result is")

    def _like(self, x: Any, t: ArrayType, gives: str, wanted: str) -> Any:
        if x.shape != t.shape or x.dtype != t.dtype:
            raise TypeError(
                f"{self.name}: the rule {gives} {x.type}, and {wanted} {t}"
                f"{at(current_source())}"
            )
        return x

    def transpose(self, rule: Rule) -> Rule:
        def transposed(ct: Any, *args: Any, **params: Any) -> list[Any]:
            cts = [None if isinstance(c, Zero) else c for c in self.several(ct, "")]
            found = rule(self.one(cts), *args, **params)
            if not isinstance(found, tuple | list) or len(found) != len(args):
                raise TypeError(
                    f"{self.name}: the rule `transpose` must give a cotangent or None "
                    f"for each of {len(args)} arguments, got {found!r:.60}"
                    f"{at(current_source())}"
                )
            return [
                c
                if c is None or not hasattr(a, "type")
                else self._like(c, a.type, "`transpose` gives", "the argument is")
                for c, a in zip(found, args, strict=True)
            ]

        return transposed

    def batch(self, rule: Rule) -> Rule:
        def batched(size: int, args: Any, axes: Any, **params: Any) -> Any:
            out, axis = rule(size, tuple(args), tuple(axes), **params)
            if not self.multiple:
                return out, axis
            places = axis if isinstance(axis, tuple | list) else [axis] * len(out)
            return [*out], [*places]

        return batched

    def one_by_one(self, size: int, args: Any, axes: Any, **params: Any) -> Any:
        """A loop over the examples."""
        mapped = [i for i, a in enumerate(axes) if a is not None]

        def step(_: None, rows: Sequence[Any]) -> tuple[None, list[Any]]:
            given = [*args]
            for i, row in zip(mapped, rows, strict=True):
                given[i] = row
            out = self.op(*given, **params)
            return None, [*out] if self.multiple else [out]

        rows = [move_axis(args[i], axes[i], 0) for i in mapped]
        _, outs = scan(step, None, rows)
        return (outs, [0] * len(outs)) if self.multiple else (outs[0], 0)


@boundary
def elementwise(
    name: str,
    run: Rule,
    partials: Sequence[Rule | None] | None = None,
    *,
    expression: str | Rule | None = None,
    accepts: Sequence[Any] = ("float16", "bfloat16", "float32", "float64"),
) -> Primitive:
    """Makes an operation on each element: its arguments have one dtype and one shape,
    or are scalars, and its result has them, too.

    Args:
      name: with a dot, as in `primitive`.
      run: the NumPy meaning, of arrays.
      partials: for each argument ``(g, out, *args, **params) -> tangent``: what a
        tangent g of it makes of the result; None where that is zero. Without any,
        derivatives are an error.
      expression: how compiled kernels compute an element, in scalar instructions:
        ``(w, *args, **params) -> value``, where ``w("mul", x, 2.0)`` writes one. Their
        names are listed in `treadle.ir.scalar`. Without it, `run` is called on the
        host.
      accepts: the dtypes that it takes.

    >>> import numpy as np, treadle as td
    >>> softsign = td.extend.elementwise(
    ...     "doc.softsign",
    ...     lambda x: x / (1 + np.abs(x)),
    ...     [lambda g, out, x: g / (1 + abs(x)) ** 2],
    ...     expression=lambda w, x: w("div", x, w("add", w("abs", x), 1.0)),
    ... )
    >>> td.jit(td.vmap(td.grad(softsign)))(np.ones(2, "float32"))
    Array([0.25, 0.25], dtype=float32)
    """
    made_in = _check_name(name)
    taken = frozenset([dtypes.canonical(d) for d in accepts])
    lowering: Lowering = Host(f"{name} has a NumPy meaning only")
    if expression is not None:
        lowering = Elementwise(expression)
    rules: Sequence[Rule | None] | None = partials
    if partials is None and any(map(dtypes.is_differentiable, taken)):
        rules = [_no_partial(name)]
    op = families.elementwise(
        name, run, rules, accepts=taken.__contains__, lowering=lowering
    )
    if rules is not partials:
        op.jvp = op.linearize = _no_partial(name)
    # Beside arrays, Python's numbers take their dtype, compiled or not.
    op.takes_scalars = True
    _OWN[name] = _Own(op, *made_in)
    return Primitive(op)


def _no_partial(name: str) -> Rule:
    def partial(*args: Any, **params: Any) -> Any:
        raise TypeError(
            f"{name} has no derivative{at(current_source())}\nGive it `partials=`, or "
            "give its arguments `td.stop_gradient(x)`."
        )

    return partial
