"""Sums of products by formula: `einsum`.

A formula becomes a plan (cached per formula and shapes): axes that only one operand
has are summed, then operands are contracted in pairs, each pair one `dot_general`.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import lru_cache
from operator import index
from typing import Any, NamedTuple

import numpy as np

from treadle.control.spelled import product
from treadle.dims import hint, is_dim, one, settled
from treadle.errors import at, user_source
from treadle.np.contract import factors, of_dtype, preference
from treadle.np.matrices import diagonal
from treadle.np.operands import ArrayLike, Shape, operand
from treadle.np.reductions import sum as sum_of
from treadle.np.shapes import moveaxis, transpose
from treadle.ops.arithmetic import mul
from treadle.ops.dot import free_axes
from treadle.ops.movement import broadcast_in_dim, reshape
from treadle.run.array import Array
from treadle.trace.value import typeof

Labels = tuple[str, ...]


class _Plan(NamedTuple):
    """labels: per operand. sizes: per label. steps: which operands meet, in turn."""

    labels: tuple[Labels, ...]
    out: Labels
    sizes: dict[str, int]
    steps: tuple[tuple[int, ...], ...]


def einsum(
    formula: str | ArrayLike,
    /,
    *operands: Any,
    optimize: Any = True,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """Sums of products of elements, by Einstein's notation.

    >>> import treadle.numpy as tnp
    >>> x, y = tnp.ones((2, 3)), tnp.ones((3, 4))
    >>> tnp.einsum("ij,jk->ik", x, y).shape
    (2, 4)

    Args:
      formula: the labels of each operand's axes and, after ``->``, of the result's;
        ``...`` stands for axes that broadcast. Without ``->``, the labels that occur
        once, in alphabetical order. Or instead of a formula each operand, followed by
        the list of its labels, which are integers, and the list of the result's.
      optimize: changes nothing: a good order of the products is always found.
      precision, preferred_element_type: as in `matmul`.
    """
    if not isinstance(formula, str):
        formula, operands = _of_lists(formula, operands)
    wide = preference(preferred_element_type, *operands)
    xs = []
    if operands:
        xs = factors("einsum", *operands, precision=precision, preferred=wide)
    shapes = tuple([typeof(x).shape for x in xs])
    # What is kept must not keep a trace's sizes.
    open_sizes = any([is_dim(n) for shape in shapes for n in shape])
    plan = (_plan.__wrapped__ if open_sizes else _plan)(formula, shapes)
    terms = [
        _simplified(x, labels, plan.sizes)
        for x, labels in zip(xs, plan.labels, strict=True)
    ]
    for step in plan.steps:
        chosen = [terms[i] for i in step]
        terms = [t for i, t in enumerate(terms) if i not in step]
        wanted = {*plan.out, *(label for _, labels in terms for label in labels)}
        terms.append(_met(chosen, wanted))
    (x, labels), *_ = terms
    return of_dtype(_finished(x, labels, plan), wide)


def _of_lists(first: Any, rest: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The formula and the operands of ``einsum(x, [0, 1], y, [1, 2], [0, 2])``."""
    items = [first, *rest]
    last = items.pop() if len(items) % 2 else None
    lists = [*items[1::2], *([] if last is None else [last])]
    if not all([isinstance(part, list | tuple) for part in lists]) or not items:
        raise TypeError(
            f"einsum takes a formula first, got {type(first).__name__}"
            f"{at(user_source())}\nWrite it like `tnp.einsum('ij,jk->ik', x, y)`."
        )
    texts = ["".join(map(_letter, part)) for part in lists]
    if last is None:
        return ",".join(texts), tuple(items[::2])
    return f"{','.join(texts[:-1])}->{texts[-1]}", tuple(items[::2])


def _letter(label: Any) -> str:
    letters = string.ascii_uppercase + string.ascii_lowercase
    return "..." if label is Ellipsis else letters[index(label)]


def einsum_path(
    formula: str, /, *operands: ArrayLike, optimize: Any = "greedy"
) -> tuple[list[Any], str]:
    """The order in which NumPy would multiply the operands of `einsum`, and a report:
    see `numpy.einsum_path`."""
    stand_ins = [
        np.broadcast_to(np.float32(0), [hint(n) for n in typeof(x).shape])
        for x in (operand("einsum_path", x) for x in operands)
    ]
    path, report = np.einsum_path(formula, *stand_ins, optimize=optimize)
    return list(path), report


@lru_cache(maxsize=4096)
def _plan(formula: str, shapes: tuple[Shape, ...]) -> _Plan:
    text = formula.replace(" ", "")
    inputs, arrow, result = text.partition("->")
    parts = inputs.split(",")
    if len(parts) != len(shapes):
        raise ValueError(
            f"einsum: {formula!r} has {len(parts)} operands, got {len(shapes)}"
            f"{at(user_source())}"
        )
    rank = max(
        [len(s) - _named(p) for p, s in zip(parts, shapes, strict=True) if "..." in p],
        default=0,
    )
    dots = tuple([f".{i}" for i in range(rank)])
    labels = tuple(
        [_labels(formula, p, s, dots) for p, s in zip(parts, shapes, strict=True)]
    )
    sizes = _sizes(formula, labels, shapes)
    if arrow:
        out = _labels(formula, result, None, dots)
    else:
        flat = [label for part in labels for label in part]
        once = sorted(x for x in set(flat) - set(dots) if flat.count(x) == 1)
        out = (*dots, *once)
    unknown = [x for x in out if x not in sizes]
    if unknown or len(set(out)) != len(out):
        raise ValueError(
            f"einsum: the result of {formula!r} has axes that no operand has, or one "
            f"twice{at(user_source())}"
        )
    return _Plan(labels, out, sizes, _steps(labels, out, sizes))


def _named(part: str) -> int:
    return len(part.replace("...", ""))


def _labels(formula: str, part: str, shape: Shape | None, dots: Labels) -> Labels:
    """The labels of one operand's axes (shape None: of the result's)."""
    before, ellipsis, after = part.partition("...")
    if not all(c.isascii() and c.isalpha() for c in before + after):
        raise ValueError(
            f"einsum: {formula!r}: axes are letters, or `...`{at(user_source())}"
        )
    n = len(dots)
    if shape is not None:
        n = len(shape) - _named(part)
        if n < 0 or (n and not ellipsis):
            raise ValueError(
                f"einsum: {part!r} in {formula!r} does not name the axes of an "
                f"operand of shape {shape}{at(user_source())}"
            )
    return (*before, *(dots[len(dots) - n :] if ellipsis else ()), *after)


def _sizes(
    formula: str, labels: Sequence[Labels], shapes: Sequence[Shape]
) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for part, shape in zip(labels, shapes, strict=True):
        own: dict[str, int] = {}
        for label, n in zip(part, shape, strict=True):
            # Operands broadcast against each other, not one's axes among themselves.
            if own.setdefault(label, n) != n:
                raise ValueError(
                    f"einsum: {formula!r} takes the diagonal of axes of lengths "
                    f"{own[label]} and {n}, of an operand of shape {shape}"
                    f"{at(user_source())}"
                )
            if one(sizes.setdefault(label, n)):
                sizes[label] = n
            elif not one(n) and n != sizes[label]:
                raise ValueError(
                    f"einsum: axis {label!r} of {formula!r} has lengths "
                    f"{sizes[label]} and {n}: shapes {' and '.join(map(str, shapes))}"
                    f"{at(user_source())}"
                )
    return sizes


def _steps(
    labels: Sequence[Labels], out: Labels, sizes: dict[str, int]
) -> tuple[tuple[int, ...], ...]:
    if len(labels) < 2:
        return ()
    if len(labels) == 2:
        return ((0, 1),)
    letters = dict(zip(sizes, map(chr, range(ord("a"), ord("a") + 400)), strict=False))
    parts = ["".join(letters[x] for x in dict.fromkeys(part)) for part in labels]
    formula = f"{','.join(parts)}->{''.join(letters[x] for x in out)}"
    used = "".join(letters.values())
    lengths = tuple(sizes.values())
    path = _path(formula, used, *map(hint, lengths))
    if any(map(is_dim, lengths)):
        settled(_takes_path, (path, formula, used, *lengths))
    return path


def _path(formula: str, letters: str, *lengths: int) -> tuple[tuple[int, ...], ...]:
    """In which order operands meet, for axes of given lengths."""
    length = dict(zip(letters, lengths, strict=False))
    operands = formula.partition("->")[0].split(",")
    stand_ins = [
        np.broadcast_to(np.float32(0), [length[x] for x in part]) for part in operands
    ]
    path = np.einsum_path(formula, *stand_ins, optimize="greedy")[0][1:]
    return tuple([tuple(sorted(step)) for step in path])


def _takes_path(path: tuple, formula: str, letters: str, *lengths: int) -> int:
    return int(_path(formula, letters, *lengths) == path)


def _simplified(x: Any, labels: Labels, sizes: dict[str, int]) -> tuple[Any, Labels]:
    """An operand without axes of length 1 that broadcast, and without repeats."""
    shape = typeof(x).shape
    kept = [
        i for i, label in enumerate(labels) if not one(shape[i]) or one(sizes[label])
    ]
    if len(kept) < len(labels):
        x = reshape(x, shape=tuple([shape[i] for i in kept]))
        labels = tuple([labels[i] for i in kept])
    while len(set(labels)) < len(labels):
        second = next(i for i, label in enumerate(labels) if label in labels[:i])
        first = labels.index(labels[second])
        x = moveaxis(diagonal(x, 0, first, second), -1, first)
        labels = (*labels[:second], *labels[second + 1 :])
    return x, labels


def _met(terms: list[tuple[Any, Labels]], wanted: set[str]) -> tuple[Any, Labels]:
    """The product of terms, summed over the labels that nobody wants any more."""
    x, labels = terms[0]
    for k, (y, others) in enumerate(terms[1:], 2):
        later = {label for _, ls in terms[k:] for label in ls}
        x, labels = _pair(x, labels, y, others, wanted | later)
    return x, labels


def _pair(x: Any, a: Labels, y: Any, b: Labels, wanted: set[str]) -> tuple[Any, Labels]:
    x, a = _summed(x, a, wanted | set(b))
    y, b = _summed(y, b, wanted | set(a))
    shared = [label for label in a if label in b]
    batch = [label for label in shared if label in wanted]
    contract = [label for label in shared if label not in wanted]
    if not contract and set(a) == set(b):
        return mul(x, transpose(y, [b.index(label) for label in a])), a
    ca, cb = (tuple([ls.index(v) for v in contract]) for ls in (a, b))
    ba, bb = (tuple([ls.index(v) for v in batch]) for ls in (a, b))
    out = product(x, y, contract=(ca, cb), batch=(ba, bb))
    rest_a = [a[i] for i in free_axes(len(a), ca, ba)]
    rest_b = [b[i] for i in free_axes(len(b), cb, bb)]
    return out, (*batch, *rest_a, *rest_b)


def _summed(x: Any, labels: Labels, wanted: set[str]) -> tuple[Any, Labels]:
    axes = tuple([i for i, label in enumerate(labels) if label not in wanted])
    if not axes:
        return x, labels
    kept = tuple([label for label in labels if label in wanted])
    return sum_of(x, axes, typeof(x).dtype), kept


def _finished(x: Any, labels: Labels, plan: _Plan) -> Any:
    x, labels = _summed(x, labels, set(plan.out))
    present = [label for label in plan.out if label in labels]
    x = transpose(x, [labels.index(label) for label in present])
    if len(present) == len(plan.out):
        return x
    # Axes that had length 1 everywhere.
    shape = tuple([plan.sizes[label] for label in plan.out])
    dims = tuple([i for i, label in enumerate(plan.out) if label in labels])
    return broadcast_in_dim(x, shape=shape, dims=dims)
