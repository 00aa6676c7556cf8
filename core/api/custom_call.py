"""One call of a function that brings its own derivative: checks and messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from treadle import dtypes, tree
from treadle.api.args import RETURN, check_leaf, described, name_of
from treadle.errors import StructureError, at, user_source
from treadle.trace.interpreter import current_source
from treadle.trace.value import Tracer, is_array, typeof


class Call:
    """One call: the user's pytrees on one side, flat lists of arrays on the other.

    fixed: the arguments that are not differentiated. Traced arrays among them are
      operands like others, the first ones.
    """

    def __init__(self, custom: Any, args: tuple[Any, ...]) -> None:
        self.custom, self.args, self.name = custom, args, name_of(custom.function)
        nondiff = {n % len(args) for n in custom.nondiff if args}
        self.places = sorted(nondiff)
        self.moving = [i for i in range(len(args)) if i not in nondiff]
        given = self._given = tuple(args[i] for i in self.places)
        # What is no pytree (a dict of mixed keys) holds nothing that is traced.
        self._fixed, self._fixed_form = tree.flatten(
            given, lambda x: x is not given and _is_whole(x)
        )
        traced = [x for x in self._fixed if isinstance(x, Tracer)]
        self.n_fixed = len(traced)
        moving, self.form = tree.flatten(tuple(args[i] for i in self.moving))
        self.leaves = [*traced, *moving]
        self.out_form: tree.Structure | None = None
        for path, leaf in zip(tree.paths(self.form), moving, strict=True):
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

    def fixed(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments that are not differentiated, with these for the traced ones."""
        if not self.n_fixed:
            return self._given
        rest = iter(leaves)
        return self._fixed_form.unflatten(
            [next(rest) if isinstance(x, Tracer) else x for x in self._fixed]
        )

    def whole(self, leaves: Sequence[Any]) -> list[Any]:
        """All arguments, of these leaves."""
        args = list(self.args)
        n = self.n_fixed
        for places, values in (
            (self.places, self.fixed(leaves[:n])),
            (self.moving, self.form.unflatten(leaves[n:])),
        ):
            for i, x in zip(places, values, strict=True):
                args[i] = x
        return args

    def check_fixed(self, moving: Sequence[bool]) -> None:
        """
        Raises:
          TypeError: if an argument that is not to be differentiated, is.
        """
        if any(moving[: self.n_fixed]):
            raise TypeError(
                f"{self.custom!r} is differentiated in an argument that is one of "
                f"nondiff_argnums={self.custom.nondiff}{at(current_source())}"
                "\nIts rule knows nothing of that derivative: take the argument out of "
                "`nondiff_argnums`, or cut it by\n`td.stop_gradient`."
            )

    def flatten_out(self, out: Any, what: str) -> list[Any]:
        outs, form = tree.flatten(out)
        if self.out_form is None:
            self.out_form = form
        elif form != self.out_form:
            raise self._other_structure(
                f"{what} gives a result", self.out_form, form, out
            )
        for path, x in zip(tree.paths(form), outs, strict=True):
            check_leaf(x, f"what {what} of {self.name} gives{inside(path)}", RETURN)
        return outs

    def _other_structure(
        self, what: str, wanted: tree.Structure, found: tree.Structure, given: Any
    ) -> StructureError:
        difference = tree.difference(wanted, found) or f"it is {described(given)}"
        return StructureError(
            f"{self.name}: {what} of another structure\n  expected: {wanted}\n"
            f"  given:    {found}\n  {difference}{at(current_source())}"
        )

    def run(self, *leaves: Any) -> list[Any]:
        return self.flatten_out(
            self.custom.function(*self.whole(leaves)), "the function"
        )

    def pair(self, out: Any, what: str) -> tuple[Any, Any]:
        if not isinstance(out, tuple) or len(out) != 2:
            raise TypeError(
                f"the rule of {self.name} must return a pair {what}, got "
                f"{described(out)}{at(current_source())}"
            )
        return out

    def fitting(
        self, form: tree.Structure, given: Any, values: Sequence[Any], kinds: Kinds
    ) -> list[Any]:
        """Tangents or cotangents, checked against the values to which they belong; None
        for those that are zero."""
        try:
            found = tree.flatten_up_to(form, given, none=True)
        except StructureError:
            found = []
        whole = [d for d in found if d is not None]
        if len(found) != form.count or not tree.all_leaves(whole):
            what = f"{kinds.rule} gives {kinds.derivative}"
            raise self._other_structure(what, form, tree.structure(given), given)
        return [
            self._of_type(d, x, f"{kinds.derivative}{inside(path)}", kinds)
            for path, d, x in zip(tree.paths(form), found, values, strict=True)
        ]

    def _of_type(self, d: Any, x: Any, what: str, kinds: Kinds) -> Any:
        t = typeof(x).strong()
        if d is None or not dtypes.is_differentiable(t.dtype):
            return None
        check_leaf(d, f"{what} of {self.name}", RETURN)
        own = typeof(d)
        if own.shape != t.shape or (own.dtype != t.dtype and not own.weak):
            raise TypeError(
                f"{self.name}: {kinds.rule} gives {what} of type {own}, and its "
                f"{kinds.value} has type {t}{at(current_source())}"
            )
        scalar = isinstance(d, bool | int | float | complex)
        return t.dtype.type(d) if scalar else d


def _is_whole(value: Any) -> bool:
    """Whether something is to be taken as it is."""
    try:
        tree.structure(value)
    except TypeError:
        return True
    return False


class Kinds(NamedTuple):
    """How messages name a derivative, who gives it, and to what it belongs."""

    derivative: str
    rule: str
    value: str


TANGENT = Kinds("a tangent", "the rule", "result")
COTANGENT = Kinds("a cotangent", "the backward rule", "argument")


def inside(path: tree.Path) -> str:
    return f" at {tree.key_name(path)}" if path else ""
