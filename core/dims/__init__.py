"""Sizes that are not fixed: polynomials over named dimensions, with a hint each.

A `Dim` behaves like an integer while a program is traced and planned. Arithmetic gives
other Dims; a question that only some sizes answer alike (``n > 3``) is answered for the
hint, and remembered as a guard. It is not an int for C code: whatever asks for its
`__index__` gets the hint, and the guard that the size is that one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from treadle.dims.dim import Dim as Dim
from treadle.dims.found import Restart as Restart
from treadle.dims.guard import Fact as Fact
from treadle.dims.guard import Guard as Guard
from treadle.dims.number import Real as Real
from treadle.dims.polynomial import Atom as Atom
from treadle.dims.polynomial import Part as Part
from treadle.dims.residue import Residue as Residue
from treadle.dims.residue import larger as larger
from treadle.dims.scope import CLOSED as CLOSED
from treadle.dims.scope import LONGEST as LONGEST
from treadle.dims.scope import Scope as Scope
from treadle.dims.scope import called
from treadle.dims.terms import symbols_in as symbols_in


def is_dim(x: Any) -> bool:
    """Whether a number is a size that is not fixed."""
    return type(x) is Dim


def is_symbolic(x: Any) -> bool:
    """Whether a number depends on sizes that are not fixed: a `Dim` or a `Real`."""
    return type(x) is Dim or type(x) is Real


def hint(x: Any) -> Any:
    """The number for which decisions are made."""
    return x.hint if is_symbolic(x) else x


def plain(x: Any) -> Any:
    """NumPy's integers as Python's; sizes as they are."""
    return x if type(x) is Dim else int(x)


def one(n: Any) -> bool:
    """Whether a length is 1 by construction: that of a batch that may be is not."""
    return type(n) is not Dim and n == 1


def never_positive(n: Any) -> bool:
    """Whether a number is at most 0 for all sizes. No guard: for those who can do
    without this, and who ask no question that only some sizes answer so."""
    return n.range()[1] <= 0 if type(n) is Dim else n <= 0


def positive_part(n: Any) -> Any:
    """The number, or 0 where it is below. A guard says where, if some sizes differ."""
    return 0 if never_positive(n) else max(n, 0)


def likely_less(a: Any, b: Any) -> bool:
    """Whether ``a < b``, where True is right for other sizes too: no guard then."""
    return hint(a) < hint(b) or a < b


def is_inside(index: Any, length: Any) -> bool:
    """Whether an axis has such an index, also where its length is 1: what is right for
    other lengths would read behind it there. A guard, where that depends on sizes."""
    d = index - length
    return d.is_negative(general=False) if type(d) is Dim else d < 0


def same_shape(a: tuple, b: tuple) -> bool:
    """Whether two shapes are equal for all sizes. No guard: broadcasting asks next."""
    return a is b or (
        len(a) == len(b) and all([_same(m, n) for m, n in zip(a, b, strict=True)])
    )


def _same(m: Any, n: Any) -> bool:
    if m is n:
        return True
    if type(m) is Dim or type(n) is Dim:
        difference = m - n
        return type(difference) is int and difference == 0
    return m == n


def equal_shapes(a: tuple, b: tuple) -> bool:
    """Whether two shapes are equal: a guard, where that depends on sizes."""
    return len(a) == len(b) and all([m == n for m, n in zip(a, b, strict=True)])


def settled(fn: Callable[..., int], args: Sequence[Any]) -> int:
    """``fn(*args)``, of sizes and constants, as a plain number: sizes that give another
    need another program."""
    value = fn(*map(hint, args))
    scope = next((a.scope for a in args if type(a) is Dim), None)
    if scope is not None:
        found = scope.derived(fn, args, value, low=-(2**63))
        scope.guard(found - value, "==", True, called(fn), settle=False)
    return value


def is_one(*lengths: int) -> bool:
    """Whether a length is 1, or all of several are, where sums are added up in another
    order if it is."""
    return bool(settled(_is_one, lengths))


def _is_one(*lengths: int) -> int:
    return int(all([n == 1 for n in lengths]))


def span(item: slice, n: Any) -> tuple[Any, Any, Any]:
    """Start, step and length of a slice of an axis of length n."""
    step = 1 if item.step is None else item.step
    if step == 0:
        raise ValueError("slice step cannot be zero")
    first, last = (0, n) if step > 0 else (n - 1, -1)

    def bound(x: Any, default: Any) -> Any:
        if x is None:
            return default
        if x < 0:
            x = x + n
            low = 0 if step > 0 else -1
            return x if x >= low else low
        most = n if step > 0 else n - 1
        return x if x <= most else most

    start, stop = bound(item.start, first), bound(item.stop, last)
    length = stop - start if step > 0 else start - stop
    # A length that may be 0 for some sizes is no case of its own.
    return (start, step, 0) if length < 0 else (start, step, -(-length // abs(step)))
