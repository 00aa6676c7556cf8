"""`treadle.scipy.spatial.transform`: rotations of space, and between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle import np as tnp
from treadle import tree
from treadle.dtypes import DTypeLike
from treadle.errors import at, user_source
from treadle.np.operands import ArrayLike, as_array, as_inexact
from treadle.run.array import Array
from treadle.scipy.spatial import quaternions

__all__ = ["Rotation", "Slerp"]


def _vectors(what: str, x: Any, length: int) -> Any:
    x = as_array(as_inexact("Rotation", x))
    if x.shape[-1:] != (length,):
        raise ValueError(
            f"Rotation: {what} have shape (..., {length}), got {x.shape}"
            f"{at(user_source())}"
        )
    return x


@dataclass(frozen=True, eq=False)
class Rotation:
    """Rotations of three-dimensional space: a pytree of unit quaternions.

    Made by `from_quat`, `from_matrix`, `from_rotvec`, `from_mrp` or `from_euler`, of
    one or (with leading axes) of many.

    >>> import treadle as td, treadle.numpy as tnp
    >>> Rotation = td.scipy.spatial.transform.Rotation
    >>> quarter = Rotation.from_euler("z", 90.0, degrees=True)
    >>> quarter.apply(tnp.array([1.0, 0.0, 0.0])).round(3)
    Array([0., 1., 0.], dtype=float32)
    >>> (quarter * quarter).magnitude()
    Array(3.1416, dtype=float32)
    """

    quat: Array

    @classmethod
    def from_quat(cls, quat: ArrayLike, *, scalar_first: bool = False) -> Rotation:
        """Of quaternions (x, y, z, w), or (w, x, y, z) if `scalar_first`: of any length
        but 0."""
        q = _vectors("quaternions", quat, 4)
        q = tnp.roll(q, -1, -1) if scalar_first else q
        return cls(q / tnp.linalg.norm(q, axis=-1, keepdims=True))

    @classmethod
    def from_matrix(cls, matrix: ArrayLike) -> Rotation:
        """Of orthogonal matrices with determinant 1, shape ``(..., 3, 3)``."""
        m = _vectors("matrices", matrix, 3)
        if m.shape[-2:] != (3, 3):
            raise ValueError(
                f"Rotation: matrices have shape (..., 3, 3), got {m.shape}"
                f"{at(user_source())}"
            )
        return cls(quaternions.of_matrix(m))

    @classmethod
    def from_rotvec(cls, rotvec: ArrayLike, degrees: bool = False) -> Rotation:
        """Of axes, each as long as the angle of the rotation about it."""
        v = _vectors("rotation vectors", rotvec, 3)
        return cls(quaternions.of_vector(v * (np.pi / 180) if degrees else v))

    @classmethod
    def from_mrp(cls, mrp: ArrayLike) -> Rotation:
        """Of modified Rodrigues parameters: axes, each as long as the tangent of a
        quarter of the angle."""
        m = _vectors("modified Rodrigues parameters", mrp, 3)
        squares = (m * m).sum(-1, keepdims=True)
        return cls(tnp.concatenate([2 * m, 1 - squares], -1) / (1 + squares))

    @classmethod
    def from_euler(cls, seq: str, angles: ArrayLike, degrees: bool = False) -> Rotation:
        """Of angles about axes, one after the other.

        Args:
          seq: up to three axes: of "xyz", which stay where they are, or of "XYZ", which
            turn with what is rotated.
          angles: one for each axis along the last one; for one axis, angles of any
            shape.
        """
        axes, moving = quaternions.axes_of(seq, (1, 2, 3))
        turns = as_array(as_inexact("Rotation", angles))
        if len(axes) == 1 and turns.shape[-1:] != (1,):
            turns = turns[..., None]
        turns = _vectors(f"angles about {seq!r}", turns, len(axes))
        turns = turns * (np.pi / 180) if degrees else turns
        found = quaternions.about(axes[0], turns[..., 0])
        for i, axis in list(enumerate(axes))[1:]:
            turn = quaternions.about(axis, turns[..., i])
            pair = (found, turn) if moving else (turn, found)
            found = quaternions.product(*pair)
        return cls(found)

    @classmethod
    def identity(
        cls, num: int | None = None, dtype: DTypeLike = np.float32
    ) -> Rotation:
        """The rotation that changes nothing, or `num` of them."""
        one = tnp.array([0, 0, 0, 1], dtype)
        return cls(one if num is None else tnp.broadcast_to(one, (num, 4)))

    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """All of some rotations, along the first axis."""
        return cls(tnp.concatenate([tnp.atleast_2d(r.quat) for r in rotations]))

    @property
    def single(self) -> bool:
        """Whether it is one rotation, and not an array of them."""
        return self.quat.ndim == 1

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Array:
        """Quaternions (x, y, z, w); if `canonical` the one of the two for a rotation
        whose w, or else first number, is positive."""
        q = quaternions.canonical(self.quat) if canonical else self.quat
        return tnp.roll(q, 1, -1) if scalar_first else q

    def as_matrix(self) -> Array:
        """Matrices, shape ``(..., 3, 3)``."""
        return quaternions.as_matrix(self.quat)

    def as_rotvec(self, degrees: bool = False) -> Array:
        """Axes, each as long as the angle: at most half a turn."""
        v = quaternions.as_vector(self.quat)
        return v * (180 / np.pi) if degrees else v

    def as_mrp(self) -> Array:
        """Modified Rodrigues parameters."""
        q = tnp.where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        return q[..., :3] / (1 + q[..., 3:])

    def as_euler(self, seq: str, degrees: bool = False) -> Array:
        """Angles about three axes (see `from_euler`). Where two of these coincide the
        third angle is 0, and the angles have no derivative."""
        axes, moving = quaternions.axes_of(seq, (3,))
        angles = quaternions.as_angles(self.quat, axes, moving)
        return angles * (180 / np.pi) if degrees else angles

    def apply(self, vectors: ArrayLike, inverse: bool = False) -> Array:
        """Vectors, shape ``(..., 3)``, turned; back if `inverse`."""
        v = _vectors("vectors", vectors, 3)
        m = self.as_matrix()
        m = tnp.swapaxes(m, -1, -2) if inverse else m
        return (m @ v[..., None])[..., 0]

    def inv(self) -> Rotation:
        """The rotations back."""
        return Rotation(quaternions.conjugate(self.quat))

    def magnitude(self) -> Array:
        """The angles, from 0 to π."""
        return quaternions.angle(self.quat)

    def mean(self, weights: ArrayLike | None = None) -> Rotation:
        """The rotation from which the squared distances of all to it are least.

        By F. L. Markley et al., Averaging quaternions (2007).
        """
        q = tnp.atleast_2d(self.quat).reshape(-1, 4)
        weighted = q
        if weights is not None:
            w = as_array(as_inexact("Rotation", weights)).astype(q.dtype)
            if w.shape != q.shape[:1]:
                raise ValueError(
                    f"Rotation.mean: weights of shape {w.shape} for {q.shape[0]} "
                    f"rotations{at(user_source())}"
                )
            weighted = q * w[:, None]
        return Rotation(tnp.linalg.eigh(weighted.T @ q).eigenvectors[:, -1])

    def __mul__(self, other: Rotation) -> Rotation:
        """`other` first, then this one."""
        found = quaternions.product(self.quat, other.quat)
        return Rotation(found / tnp.linalg.norm(found, axis=-1, keepdims=True))

    def __getitem__(self, index: Any) -> Rotation:
        self._several("is no array: it has no elements")
        return Rotation(self.quat[index if isinstance(index, tuple) else (index,)])

    def __len__(self) -> int:
        self._several("is no array: it has no length")
        return self.quat.shape[0]

    def _several(self, what: str) -> None:
        if self.single:
            raise TypeError(f"one Rotation {what}{at(user_source())}")


tree.register(Rotation, lambda r: ((r.quat,), None), lambda _, parts: Rotation(*parts))


class Slerp:
    """Rotations between others, along the shortest ways: a pytree of arrays.

    Args:
      times: when the rotations are reached, in ascending order.
      rotations: two or more.

    Raises:
      TypeError: if they are no `Rotation`.
      ValueError: if there is one only, or another number of times.

    >>> import treadle.numpy as tnp
    >>> from treadle.scipy.spatial.transform import Rotation, Slerp
    >>> ends = Rotation.from_euler("z", tnp.array([0.0, 90.0]), degrees=True)
    >>> Slerp(tnp.array([0.0, 1.0]), ends)(0.5).apply(tnp.array([1.0, 0.0, 0.0]))[:2]
    Array([0.7071, 0.7071], dtype=float32)
    """

    def __init__(self, times: ArrayLike, rotations: Rotation) -> None:
        if not isinstance(rotations, Rotation):
            raise TypeError(
                f"Slerp goes between rotations, got {rotations!r:.60}"
                f"{at(user_source())}"
            )
        self.times = as_array(as_inexact("Slerp", times)).astype(rotations.quat.dtype)
        if rotations.quat.ndim != 2 or len(rotations) < 2:
            raise ValueError(
                "Slerp goes between two rotations or more, got quaternions of shape "
                f"{rotations.quat.shape}{at(user_source())}"
            )
        if self.times.shape != (len(rotations),):
            raise ValueError(
                f"Slerp: times of shape {self.times.shape} for {len(rotations)} "
                f"rotations{at(user_source())}"
            )
        self.rotations = rotations[:-1]
        self.steps = (self.rotations.inv() * rotations[1:]).as_rotvec()

    def __call__(self, times: ArrayLike) -> Rotation:
        """The rotations at some times; before the first and after the last one they go
        on as beside."""
        t = as_array(as_inexact("Slerp", times)).astype(self.times.dtype)
        last = self.times.shape[0] - 2
        i = tnp.clip(tnp.searchsorted(self.times, t, side="right") - 1, 0, last)
        share = (t - self.times[i]) / (self.times[i + 1] - self.times[i])
        turn = Rotation.from_rotvec(self.steps[i] * share[..., None])
        return self.rotations[i] * turn


def _slerp_of(_: Any, parts: Any) -> Slerp:
    made = object.__new__(Slerp)
    made.times, made.rotations, made.steps = parts
    return made


tree.register(Slerp, lambda s: ((s.times, s.rotations, s.steps), None), _slerp_of)
