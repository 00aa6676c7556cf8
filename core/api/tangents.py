"""Tangents and cotangents as users give and get them: checked, of their values' types.

None stands for those of leaves that have no derivative (integers, keys), and for zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from treadle import dtypes, tree
from treadle.api.args import (
    RETURN,
    as_results,
    check_leaf,
    check_results,
    described,
    name_of,
    number_of,
)
from treadle.api.purity import call_pure
from treadle.arraytype import ArrayType
from treadle.errors import StructureError, at, user_source
from treadle.ops import identity
from treadle.ops.cast import convert
from treadle.ops.movement import instantiate
from treadle.trace.op import Zero
from treadle.trace.value import Tracer, is_array, typeof

_NO_TANGENT = (
    "{clause}{at}\n"
    "Only floating and complex values have derivatives: pass floats (`3.0`, "
    "`x.astype(float)`), or None where there is no tangent."
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


class FlatFunction:
    """A function of flat leaves made from one of pytrees; remembers what came out.

    Results that are aux come last, and have no tangents.
    """

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
        return [*leaves_out, *map(_constant, aux_leaves)]

    def whole(self) -> tree.Structure:
        """The structure of all that came out."""
        assert self.out_form is not None
        return tree.together(self.out_form, self.aux_form or tree.structure(()))

    def results(self, outs: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
        """The pytree of the result; and of aux, if there is one."""
        assert self.out_form is not None
        n = self.out_form.count
        out = self.out_form.unflatten(as_results(outs[:n]))
        if self.aux_form is None:
            return out, ()
        return out, (self.aux_form.unflatten(outs[n:]),)


def _constant(x: Any) -> Any:
    moves = isinstance(x, Tracer) and differentiable(x)
    return identity.stop_gradient(x) if moves else x


def matching(what: str, form: tree.Structure, values: Any) -> list[Any]:
    """What stands at the leaves of a structure."""
    try:
        return tree.flatten_up_to(form, values, none=True)
    except StructureError as error:
        raise StructureError(
            f"{what} has another structure, {error}{at(user_source())}"
        ) from None


def of_type(t: ArrayType, given: Any, clause: str) -> Any:
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


def tangents_of(
    form: tree.Structure, types: Sequence[ArrayType], tangents: Any, name: str
) -> list[Any]:
    """The tangents of a function's arguments, flat; `Zero` for None."""
    given = matching(f"the tangents of {name}", form, tangents)
    clause = f"a tangent of {name} has type {{}}, its primal {{}}"
    return [of_type(t, x, clause) for t, x in zip(types, given, strict=True)]


def cotangents_of(
    form: tree.Structure, types: Sequence[ArrayType], ct: Any, name: str
) -> list[Any]:
    """The cotangents of a function's result, flat; `Zero` for None."""
    given = matching(f"the cotangent of {name}", form, ct)
    clause = f"the cotangent of {name} has type {{}}, its result {{}}"
    return [of_type(t, x, clause) for t, x in zip(types, given, strict=True)]


def as_tangents(tangents: Sequence[Any]) -> list[Any]:
    """Tangents of results as arrays; None for what can't have one."""
    return [
        as_results([instantiate(t)])[0]
        if dtypes.is_differentiable(
            t.type.dtype if isinstance(t, Zero) else typeof(t).dtype
        )
        else None
        for t in tangents
    ]
