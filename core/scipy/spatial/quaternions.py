"""Rotations as quaternions (x, y, z, w): what they are made of and become."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from treadle import np as tnp
from treadle.errors import at, user_source


def product(p: Any, q: Any) -> Any:
    """First q, then p."""
    pv, qv, pw, qw = p[..., :3], q[..., :3], p[..., 3:], q[..., 3:]
    vector = pw * qv + qw * pv + tnp.cross(pv, qv)
    scalar = pw * qw - (pv * qv).sum(-1, keepdims=True)
    return tnp.concatenate([vector, scalar], -1)


def conjugate(q: Any) -> Any:
    return q * tnp.asarray([-1, -1, -1, 1], q.dtype)


def canonical(q: Any) -> Any:
    """Of q and -q the one whose w is positive; or its first number, if w is 0."""
    first = q[..., 3]
    for i in range(3):
        first = tnp.where(first == 0, q[..., i], first)
    return tnp.where(first[..., None] < 0, -q, q)


def _length(v: Any) -> tuple[Any, Any]:
    """The lengths of vectors, where they have derivatives, and whether they are so
    short that series are exact."""
    squares = (v * v).sum(-1, keepdims=True)
    short = squares < float(np.finfo(v.dtype).eps) ** 0.5
    return tnp.sqrt(tnp.where(short, 1, squares)), (short, squares)


def of_vector(v: Any) -> Any:
    """The rotations about vectors by their lengths."""
    size, (short, squares) = _length(v)
    series = 0.5 - squares / 48 + squares * squares / 3840
    sine = tnp.where(short, series, tnp.sin(size / 2) / size)
    cosine = 1 - squares / 8 + squares * squares / 384
    cosine = tnp.where(short, cosine, tnp.cos(size / 2))
    return tnp.concatenate([v * sine, cosine], -1)


def as_vector(q: Any) -> Any:
    q = tnp.where(q[..., 3:] < 0, -q, q)
    v, w = q[..., :3], q[..., 3:]
    size, (short, squares) = _length(v)
    # 2 asin(s) / s
    series = 2 + squares / 3 + squares * squares * (3 / 20)
    return v * tnp.where(short, series, 2 * tnp.atan2(size, w) / size)


def angle(q: Any) -> Any:
    return 2 * tnp.atan2(tnp.linalg.norm(q[..., :3], axis=-1), tnp.abs(q[..., 3]))


def as_matrix(q: Any) -> Any:
    x, y, z, w = (q[..., i] for i in range(4))
    rows = [
        [x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), -x * x + y * y - z * z + w * w, 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), -x * x - y * y + z * z + w * w],
    ]
    return tnp.stack([tnp.stack(row, -1) for row in rows], -2)


def of_matrix(m: Any) -> Any:
    """By the largest of the four numbers, so that nothing small is divided by."""
    a = [[m[..., i, j] for j in range(3)] for i in range(3)]
    total = a[0][0] + a[1][1] + a[2][2]
    candidates = []
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        numbers: list[Any] = [None] * 4
        numbers[i] = 1 - total + 2 * a[i][i]
        numbers[j] = a[j][i] + a[i][j]
        numbers[k] = a[k][i] + a[i][k]
        numbers[3] = a[k][j] - a[j][k]
        candidates.append(tnp.stack(numbers, -1))
    turns = [a[2][1] - a[1][2], a[0][2] - a[2][0], a[1][0] - a[0][1], 1 + total]
    candidates.append(tnp.stack(turns, -1))
    sizes = tnp.stack([a[0][0], a[1][1], a[2][2], total], -1)
    best = sizes.argmax(-1)[..., None]
    q = candidates[3]
    for i in range(3):
        q = tnp.where(best == i, candidates[i], q)
    return q / tnp.linalg.norm(q, axis=-1, keepdims=True)


# Angles about axes --------------------------------------------------------------------


def axes_of(seq: str, counts: tuple[int, ...]) -> tuple[list[int], bool]:
    """The numbers of axes, and whether they turn with what is rotated.

    Raises:
      ValueError: if there are others, or two of the same in a row.
    """
    moving = seq.isupper()
    axes = ["xyz".find(c) for c in (seq.lower() if moving else seq)]
    repeated = any(a == b for a, b in pairwise(axes))
    if len(axes) not in counts or -1 in axes or repeated:
        raise ValueError(
            f"Rotation: axes are {' or '.join(map(str, counts))} of 'xyz' or of 'XYZ', "
            f"none twice in a row, got {seq!r}{at(user_source())}"
        )
    return axes, moving


def about(axis: int, angles: Any) -> Any:
    """The rotations about an axis."""
    zero = tnp.zeros_like(angles)
    parts = [zero, zero, zero, tnp.cos(angles / 2)]
    parts[axis] = tnp.sin(angles / 2)
    return tnp.stack(parts, -1)


def as_angles(q: Any, axes: list[int], moving: bool) -> Any:
    """By E. Bernardes and S. Viollet, Quaternion to Euler angles conversion (2022)."""
    i, j, k = axes if not moving else axes[::-1]
    symmetric = i == k
    if symmetric:
        k = 3 - i - j
    sign = (i - j) * (j - k) * (k - i) // 2
    a, b, c, d = (q[..., 3], q[..., i], q[..., j], q[..., k] * sign)
    if not symmetric:
        a, b, c, d = a - c, b + d, c + a, d - b
    half = tnp.hypot(c, d)
    second = 2 * tnp.atan2(half, tnp.hypot(a, b))
    small = 1e-7 if q.dtype == np.float64 else 1e-4
    at_zero, at_pi = tnp.abs(second) < small, tnp.abs(second - np.pi) < small
    together = at_zero | at_pi
    plus = tnp.atan2(tnp.where(at_pi, 0, b), tnp.where(at_pi, 1, a))
    minus = tnp.atan2(tnp.where(at_zero, 0, d), tnp.where(at_zero, 1, c))
    first, third = plus - minus, plus + minus
    # Two axes coincide: one angle says both. The one about the last axis is 0.
    alone = tnp.where(at_zero, 2 * plus, (2 if moving else -2) * minus)
    first, third = (
        (tnp.where(together, 0, first), tnp.where(together, alone, third))
        if moving
        else (tnp.where(together, alone, first), tnp.where(together, 0, third))
    )
    if not symmetric:
        third = third * sign
        second = second - np.pi / 2
    ordered = (third, second, first) if moving else (first, second, third)
    return tnp.stack([_within_turn(x) for x in ordered], -1)


def _within_turn(angles: Any) -> Any:
    over, under = angles > np.pi, angles < -np.pi
    return (
        angles
        - 2 * np.pi * over.astype(angles.dtype)
        + 2 * np.pi * under.astype(angles.dtype)
    )
