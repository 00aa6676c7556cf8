"""Which arguments are differentiated, and whether they can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

from treadle import dtypes, tree
from treadle.api.args import Chosen, argument, check_leaf, described, name_of, result
from treadle.api.tangents import differentiable, differentiable_leaves
from treadle.errors import at, user_source
from treadle.trace.value import typeof

Argnums = int | Sequence[int]

_NO_DERIVATIVE = (
    "{what}: {argument} is {found}, and only floating and complex arrays have "
    "derivatives{at}\n"
    "Pass floats (`3.0`, `x.astype(float)`), or choose another argument with "
    "`argnums`{more}."
)
_ALLOW = "; with\n`allow_int=True` its gradient is None"
_NOT_COMPLEX = (
    "{what} with holomorphic=True is for complex functions of complex numbers, but "
    "{value} is {found}{at}\n"
    "Make it complex (`.astype(complex)`), or leave `holomorphic` out."
)
_NOT_REAL = (
    "{what}: {value} is {found}{at}\n"
    "If the function is holomorphic, say `holomorphic=True`; otherwise give it real "
    "numbers: the real and\nthe imaginary part{more}."
)
_IN_OTHERS = (
    "Choose what to differentiate with `argnums`; other arguments may be anything."
)


_FROZEN = """\
{what}: {argument} has nothing to differentiate: all its arrays are frozen, buffers or \
state{at}
`nn.unfreeze` lets them be trained again."""


class Differentiated:
    """What a derivative is taken in, and of which kind it is.

    what: the transform, for messages.
    holomorphic: the function is complex differentiable, and its complex derivative is
      meant.
    allow_int: whether an argument may have no derivative at all.
    forward: whether directions are pushed forward: those of complex numbers are two.
    """

    def __init__(
        self,
        what: str,
        function: Callable[..., Any],
        argnums: Argnums,
        holomorphic: bool,
        allow_int: bool = False,
        forward: bool = False,
    ) -> None:
        self.what, self.function = what, function
        self.holomorphic, self.allow_int = holomorphic, allow_int
        self.forward = forward
        self.many = isinstance(argnums, Sequence)
        items: Any = argnums if self.many else (argnums,)
        try:
            self.numbers = tuple(map(index, items))
        except TypeError:
            raise TypeError(
                f"argnums takes positions of arguments: an int, or a tuple of them; "
                f"got {described(argnums)}{at(user_source())}"
            ) from None

    def choose(self, args: Sequence[Any], kwargs: dict) -> tuple[Chosen, list[Any]]:
        """The function of the arguments that are differentiated, and those.

        Raises:
          ValueError, TypeError: if there are no such arguments, or they have no
            derivatives.
        """
        count = len(args)
        for n in self.numbers:
            if not -count <= n < count:
                raise ValueError(
                    f"argnums={n}, but {name_of(self.function)} was called with "
                    f"{count} positional arguments{at(user_source())}\n"
                    "Arguments passed by keyword are not differentiated."
                )
            self._check(n % count, args[n])
        if len({n % count for n in self.numbers}) < len(self.numbers):
            raise ValueError(
                f"argnums={self.numbers} chooses an argument twice{at(user_source())}"
            )
        chosen = [args[n] for n in self.numbers]
        leaves, form = tree.flatten(chosen)
        if (
            leaves
            and not self.allow_int
            and not any(differentiable_leaves(leaves, form))
        ):
            raise TypeError(
                _FROZEN.format(
                    what=self.what,
                    argument=argument(self.function, (self.numbers[0] % count,)),
                    at=at(user_source()),
                )
            )
        return Chosen(self.function, self.numbers, args, kwargs), chosen

    def _check(self, n: int, value: Any) -> None:
        leaves, form = tree.flatten((value,))
        places = [(n, *path[1:]) for path in tree.paths(form)]
        for place, leaf in zip(places, leaves, strict=True):
            check_leaf(leaf, argument(self.function, place), _IN_OTHERS)
        moving = [differentiable(x) for x in leaves]
        if leaves and not self.allow_int and not any(moving):
            found = " and ".join(sorted({repr(typeof(x)) for x in leaves}))
            raise TypeError(
                _NO_DERIVATIVE.format(
                    what=self.what,
                    argument=argument(self.function, (n,)),
                    found=found,
                    at=at(user_source()),
                    more="" if self.forward else _ALLOW,
                )
            )
        for place, leaf, moves in zip(places, leaves, moving, strict=True):
            is_complex = dtypes.is_complex(typeof(leaf).dtype)
            if moves and self.holomorphic and not is_complex:
                self._refuse(_NOT_COMPLEX, argument(self.function, place), leaf)
            if is_complex and self.forward and not self.holomorphic:
                self._refuse(_NOT_REAL, argument(self.function, place), leaf)

    def check_results(self, leaves: Sequence[Any], form: tree.Structure) -> None:
        """
        Raises:
          TypeError: if the results are not of the kind of numbers that is meant.
        """
        for path, leaf in zip(tree.paths(form), leaves, strict=True):
            dtype = typeof(leaf).dtype
            where = result(self.function, path)
            if self.holomorphic and not dtypes.is_complex(dtype):
                self._refuse(_NOT_COMPLEX, where, leaf)
            if dtypes.is_complex(dtype) and not (self.holomorphic or self.forward):
                self._refuse(_NOT_REAL, where, leaf)

    def _refuse(self, message: str, value: str, leaf: Any) -> None:
        more = "" if self.forward else ", or `abs(z)`"
        raise TypeError(
            message.format(
                what=self.what,
                value=value,
                found=typeof(leaf),
                at=at(user_source()),
                more=more,
            )
        )
