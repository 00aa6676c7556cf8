"""What the transforms share: arguments by number or name, checked leaves."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from treadle import dtypes, tree
from treadle.arraytype import ArrayType
from treadle.dims import is_symbolic
from treadle.errors import FOREIGN, at, foreign, user_source
from treadle.run.array import Array
from treadle.trace.op import as_size
from treadle.trace.value import Value, is_array, typeof

Which = int | str | Sequence[int | str]

STATIC = (
    "Pass values that are not arrays as static arguments: "
    "`td.jit(function, static=...)`."
)
CLOSE_OVER = (
    "Close over values that are not arrays instead of passing them: "
    "`lambda x: function(x, value)`."
)
NO_VALUES = (
    "It has a shape and a dtype, but no values: pass an array, such as "
    "`tnp.zeros(shape, dtype)`;\n`td.eval_shape`, `td.trace` and the methods `lower`, "
    "`explain` and `graph` of a jitted function take it as it is."
)
RETURN = "Functions that are transformed return arrays, numbers, and pytrees of them."


def name_of(function: Callable[..., Any]) -> str:
    """A function's name for messages and graphs."""
    return getattr(function, "__name__", None) or type(function).__name__


def check_function(what: str, function: Any) -> None:
    """
    Raises:
      TypeError: if a transform was given something other than a function.
    """
    if callable(function):
        return
    remedy = ""
    if is_array(function):
        remedy = f"\nPass the function, not its result: `td.{what}(f)(x)`."
    raise TypeError(
        f"{what} takes a function, got {described(function)}{at(user_source())}{remedy}"
    )


_KEYWORDS = {
    "static_argnums": "static=...",
    "static_argnames": "static=...",
    "donate_argnums": "donate=...",
    "donate_argnames": "donate=...",
}
"""How other libraries spell what a function takes, and our spelling."""
_NOT_NEEDED = {
    "keep_unused": "arguments that are not used cost nothing",
    "inline": "a jitted function within another one is always part of its program",
    "device": "a program runs where its arguments are: `td.device_put`",
    "backend": "a program runs where its arguments are: `td.device_put`",
    "in_shardings": "a program runs on one device, where its arguments are",
    "out_shardings": "a program runs on one device, where its arguments are",
    "compiler_options": "there is one way of compiling; `TREADLE_CPU` sets the target",
    "mode": "there is one way of compiling",
    "fullgraph": "a function is always compiled as a whole",
}


def check_keywords(what: str, unknown: dict[str, Any]) -> None:
    """
    Raises:
      TypeError: if there are any: with our spelling, or why there is none.
    """
    for name, value in unknown.items():
        ours = _KEYWORDS.get(name)
        remedy = f"leave it out: {_NOT_NEEDED[name]}" if name in _NOT_NEEDED else ""
        if ours:
            remedy = f"write `{ours.replace('...', repr(value))}`, positions and names"
        raise TypeError(
            f"{what} has no argument {name!r}{at(user_source())}"
            + (f"\n{remedy[0].upper()}{remedy[1:]}." if remedy else "")
        )


def described(value: Any) -> str:
    """A value in a message about what kind of value it should have been."""
    if is_array(value):
        return f"an array of type {typeof(value)}"
    if value is None:
        return "None"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of length {len(value)}"
    return f"a value of type {type(value).__name__}: {value!r:.60}"


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (ValueError, TypeError):
        return None


def positions(function: Callable[..., Any], which: Which, what: str) -> tuple[set, set]:
    """The positions and names that `which` selects: each as both, where it has both.

    Raises:
      ValueError: if the function has no such argument.
      TypeError: if `which` holds something other than int and str.
    """
    items = (which,) if isinstance(which, int | str) else _items(which, what)
    signature = signature_of(function)
    numbered, named = _parameters(signature)
    numbers: set[int] = set()
    chosen: set[str] = set()
    for item in items:
        if isinstance(item, str):
            more = signature is None or _takes_more(signature, _NAMED)
            if not more and item not in (*numbered, *named):
                raise ValueError(_no_argument(function, signature, what, item))
            chosen.add(item)
            if item in numbered:
                numbers.add(numbered.index(item))
        elif isinstance(item, int) and not isinstance(item, bool):
            more = signature is None or _takes_more(signature, _COUNTED)
            if not more and not -len(numbered) <= item < len(numbered):
                raise ValueError(_no_argument(function, signature, what, item))
            if not more:
                item %= len(numbered)
            numbers.add(item)
            if 0 <= item < len(numbered) and numbered[item] in named:
                chosen.add(numbered[item])
        else:
            raise TypeError(_not_which(what, item))
    return numbers, chosen


_NAMED, _COUNTED = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL


def _items(which: Any, what: str) -> tuple:
    try:
        return tuple(which)
    except TypeError:
        raise TypeError(_not_which(what, which)) from None


def _not_which(what: str, item: Any) -> str:
    return (
        f"{what} takes names and positions of arguments, or a tuple of them; got "
        f"{described(item)}{at(user_source())}"
    )


def _parameters(signature: inspect.Signature | None) -> tuple[list[str], list[str]]:
    """The names of the parameters that have positions, and of those that callers may
    name."""
    if signature is None:
        return [], []
    found = signature.parameters.values()
    numbered = [p.name for p in found if p.kind <= p.POSITIONAL_OR_KEYWORD]
    either = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return numbered, [p.name for p in found if p.kind in either]


def _takes_more(signature: inspect.Signature, kind: Any) -> bool:
    return any(p.kind is kind for p in signature.parameters.values())


def _no_argument(
    function: Any, signature: inspect.Signature | None, what: str, item: Any
) -> str:
    numbered, named = _parameters(signature)
    listed = [f"{n} ({i})" for i, n in enumerate(numbered)]
    listed += [n for n in named if n not in numbered]
    listing = ", ".join(listed) or "(none)"
    return (
        f"{what}={item!r}: {name_of(function)} has no such argument; its arguments are "
        f"{listing}{at(user_source())}"
    )


def argument(function: Callable[..., Any], path: tree.Path) -> str:
    """How messages name a leaf of a function's arguments: by the parameter's name.

    Args:
      path: the parameter's position or name, then the way inside the argument.

    >>> argument(lambda model, x: x, (0, "weight"))
    "argument `model['weight']` of <lambda>"
    """
    if not path:
        return f"an argument of {name_of(function)}"
    first: Any = path[0]
    signature = signature_of(function)
    if isinstance(first, int) and signature:
        names, parameters = _parameters(signature)[0], signature.parameters.values()
        more = [p.name for p in parameters if p.kind is _COUNTED]
        if first < len(names):
            first = names[first]
        elif more:
            first = f"{more[0]}[{first - len(names)}]"
    inside = tree.key_name(path[1:]) if path[1:] else ""
    return f"argument `{first}{inside}` of {name_of(function)}"


def result(function: Callable[..., Any], path: tree.Path) -> str:
    """How messages name a leaf of a function's result."""
    inside = f" at {tree.key_name(path)}" if path else ""
    return f"the result of {name_of(function)}{inside}"


def check_leaf(leaf: Any, where: str, remedy: str = STATIC) -> Any:
    """The leaf itself, if it can be traced; NumPy's Python numbers as what they are.

    Raises:
      TypeError: naming the leaf's place and what to do.
    """
    if type(leaf) in dtypes.PYTHON_OF:
        return leaf.item()
    if is_array(leaf) or isinstance(leaf, bool | int | float | complex):
        typeof(leaf)
        return leaf
    if isinstance(leaf, ArrayType):
        remedy = NO_VALUES
    elif foreign(leaf):
        remedy = FOREIGN
    elif is_dataclass(leaf):
        remedy = "Make its class a pytree: `td.tree.register_dataclass(TheClass)`."
    raise TypeError(
        f"{where} is {_kind(leaf)} ({leaf!r:.60}), not an array or a number"
        f"{at(user_source())}\n{remedy}"
    )


def _kind(leaf: Any) -> str:
    return "a ShapeDtype" if type(leaf) is ArrayType else f"a {type(leaf).__name__}"


def is_operand(leaf: Any) -> bool:
    """Whether a leaf shall be an array: it is one, a number, or another library's array
    or a mere type, which `check_leaf` refuses with what to do."""
    if is_array(leaf) or isinstance(leaf, bool | int | float | complex):
        return True
    return isinstance(leaf, ArrayType) or foreign(leaf)


def check_arguments(
    function: Callable[..., Any],
    leaves: list[Any],
    form: tree.Structure,
    skip: int = 1,
    remedy: str = CLOSE_OVER,
) -> None:
    """Checks every leaf of a function's arguments, in place.

    Args:
      skip: how many path entries come before the argument: 1 in (args, kwargs), 0 in a
        tuple of arguments.
    """
    for i, leaf in enumerate(leaves):
        kind = type(leaf)
        if kind in dtypes.PYTHON_OF:
            leaves[i] = leaf.item()
        elif not (is_array(leaf) or isinstance(leaf, bool | int | float | complex)):
            path = tree.paths(form)[i][skip:]
            check_leaf(leaf, argument(function, path), remedy)


def check_results(
    function: Callable[..., Any], leaves: Sequence[Any], form: tree.Structure
) -> None:
    """Checks every leaf of what a function returned."""
    for i, leaf in enumerate(leaves):
        if not (is_array(leaf) or isinstance(leaf, bool | int | float | complex)):
            check_leaf(leaf, result(function, tree.paths(form)[i]), RETURN)


def as_results(leaves: Sequence[Any]) -> list[Any]:
    """What a transform returns is an array, also where the function gave a number or an
    array of NumPy's (a copy: the caller may write to his)."""
    return [x if isinstance(x, Value) else _own_array(x) for x in leaves]


def _own_array(x: Any) -> Any:
    return array_of(x, typeof(x))


def number_of(x: Any, dtype: np.dtype) -> Any:
    """A number of Python's as one of a dtype."""
    return as_size(x, dtype) if is_symbolic(x) else dtype.type(x)


def array_of(x: Any, t: ArrayType) -> Any:
    """A number, or a copy of an array of NumPy's, as an array of a type."""
    if is_symbolic(x):
        return as_size(x, t.dtype, t.weak)
    return Array(np.array(x, t.dtype), t)


class Chosen:
    """A function of some of another's positional arguments; the rest is given."""

    def __init__(
        self,
        function: Callable[..., Any],
        numbers: Sequence[int],
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.numbers = [n % len(args) for n in numbers]
        self.__name__ = name_of(function)

    def __call__(self, *moving: Any, **named: Any) -> Any:
        full = list(self.args)
        for n, x in zip(self.numbers, moving, strict=True):
            full[n] = x
        return self.function(*full, **self.kwargs, **named)

    @property
    def __signature__(self) -> inspect.Signature | None:
        """For messages: the chosen parameters keep their names."""
        signature = signature_of(self.function)
        names = list(signature.parameters) if signature else []
        if max(self.numbers, default=0) >= len(names):
            return None
        return inspect.Signature(
            [
                inspect.Parameter(names[n], inspect.Parameter.POSITIONAL_ONLY)
                for n in self.numbers
            ]
        )
