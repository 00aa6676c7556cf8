"""How freely arrays of different ranks and dtypes meet."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from treadle.arraytype import ArrayType
from treadle.errors import at, user_source, warn

_RANKS = ("allow", "warn", "raise")
_DTYPES = ("standard", "strict")


class _Strictness(threading.local):
    ranks = "allow"
    dtypes = "standard"


strictness = _Strictness()
"""What this thread has chosen."""


@contextmanager
def numpy_rank_promotion(mode: str) -> Iterator[None]:
    """Says what happens in a block where arrays of different ranks meet: what is meant
    for a row is then not taken for a column without a word.

    Scalars meet everything. What has been compiled before is not looked at again.

    Args:
      mode: "allow", as in NumPy; "warn"; or "raise".

    Raises:
      ValueError: for another mode, and in the block with "raise".

    >>> import treadle as td
    >>> import treadle.numpy as tnp
    >>> with td.numpy_rank_promotion("raise"):
    ...     tnp.ones((3, 3)) + tnp.ones(3)
    Traceback (most recent call last):
      ...
    ValueError: add of shapes (3, 3) and (3,), which have different ranks...
    """
    _check("numpy_rank_promotion", mode, _RANKS)
    previous, strictness.ranks = strictness.ranks, mode
    try:
        yield
    finally:
        strictness.ranks = previous


@contextmanager
def numpy_dtype_promotion(mode: str) -> Iterator[None]:
    """Says what happens in a block where arrays of different dtypes meet.

    Python's numbers meet everything, as they take the array's dtype. What has been
    compiled before is not looked at again.

    Args:
      mode: "standard", where one dtype is found that both promote to; or "strict", an
        error.

    Raises:
      ValueError: for another mode.
      TypeError: in the block with "strict".

    >>> import treadle as td
    >>> import treadle.numpy as tnp
    >>> with td.numpy_dtype_promotion("strict"):
    ...     tnp.ones(3) + tnp.arange(3)
    Traceback (most recent call last):
      ...
    TypeError: add of float32 and int32, which have different dtypes...
    """
    _check("numpy_dtype_promotion", mode, _DTYPES)
    previous, strictness.dtypes = strictness.dtypes, mode
    try:
        yield
    finally:
        strictness.dtypes = previous


def _check(name: str, mode: str, modes: Sequence[str]) -> None:
    if mode not in modes:
        raise ValueError(
            f"{name} takes {' or '.join(map(repr, modes))}, got {mode!r}"
            f"{at(user_source())}"
        )


def check_ranks(name: str, shapes: Sequence[tuple[int, ...]]) -> None:
    """Warns or raises, as was chosen, if shapes but for those of scalars have different
    ranks."""
    if len({len(shape) for shape in shapes if shape}) < 2:
        return
    text = (
        f"{name} of shapes {' and '.join(map(str, shapes))}, which have different "
        f"ranks{at(user_source())}\nAdd the axes that are meant, as in `x[:, None]`."
    )
    if strictness.ranks == "raise":
        raise ValueError(text)
    warn(text)


def check_dtypes(name: str, types: Sequence[ArrayType]) -> None:
    """Raises if types but for weak ones have different dtypes."""
    found = list(dict.fromkeys([t.dtype.name for t in types if not t.weak]))
    if len(found) > 1:
        raise TypeError(
            f"{name} of {' and '.join(found)}, which have different dtypes"
            f"{at(user_source())}\nConvert one of them: `x.astype(...)`."
        )
