"""SOAP: Adam in the eigenbasis of Shampoo's preconditioner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.optim.base import Record, Transform, check_state
from treadle.optim.decay import Mask, add_decayed_weights
from treadle.optim.hyper import Hyperparameter, Hyperparameters, hyper
from treadle.optim.leaves import map_updates, positions, wide, widen, zeros_for
from treadle.optim.limits import check
from treadle.optim.named import named
from treadle.optim.scale import scale_by_learning_rate

Sides = tuple[Any, ...]
"""For each axis of a leaf a matrix, or None where the axis is too long for one."""


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class SoapState(Record):
    """The state of `scale_by_soap`: moments of gradients, and for each leaf with two
    axes or more the second moments along its axes and their eigenvectors."""

    hyper: Hyperparameters
    mean: Any
    mean_square: Any
    outer: tuple[Sides, ...]
    bases: tuple[Sides, ...]


def scale_by_soap(
    b1: Hyperparameter = 0.95,
    b2: Hyperparameter = 0.95,
    b3: Hyperparameter | None = None,
    eps: Hyperparameter = 1e-8,
    frequency: Hyperparameter = 10,
    max_size: int = 10000,
    moment_dtype: Any = None,
) -> Transform:
    """Adam on gradients rotated into the eigenbasis of their second moments.

    For a matrix: ``L ← b3 L + (1 - b3) G Gᵀ``, ``R ← b3 R + (1 - b3) Gᵀ G``, with
    eigenvectors P and Q; ``M ← b1 M + (1 - b1) G``, ``V ← b2 V + (1 - b2) (Pᵀ G Q)²``;
    the update is ``P ((Pᵀ M̂ Q) / (√V̂ + eps)) Qᵀ``, corrected as in `scale_by_adam`.
    P and Q are kept for `frequency` steps, and then follow L and R by one step of
    power iteration, ``P ← qr(L P)``. Arrays with more axes have a basis for each; those
    with fewer are treated as by Adam. The first step only looks: its update is 0.

    Args:
      b3: how slowly L and R change, as b2 if None.
      max_size: axes longer than this are not rotated.
      moment_dtype: the dtype of M.

    Vyas et al., *SOAP: Improving and Stabilizing Shampoo using Adam*, 2024.

    >>> soap = scale_by_soap()
    >>> grads = tnp.array([100.0, -0.5])  # no matrix: as by Adam
    >>> _, state = soap.update(grads, soap.init(grads))
    >>> soap.update(grads, state)[0]
    Array([ 1., -1.], dtype=float32)
    """
    numbers = {"b1": b1, "b2": b2, "eps": eps, "frequency": frequency}
    if b3 is not None:
        numbers["b3"] = b3
    check("scale_by_soap", **numbers, max_size=max_size)

    def init(params: Any) -> SoapState:
        mean = zeros_for(params, moment_dtype)
        leaves = tree.leaves(mean)

        def sides(make: Any) -> tuple[Sides, ...]:
            return tuple([_sides(x, make, max_size) for x in leaves])

        square = zeros_for(params, real=True)
        outer = sides(lambda n, dtype: tnp.zeros((n, n), dtype))
        return SoapState(hyper(**numbers), mean, square, outer, sides(_identity))

    def update(grads: Any, state: SoapState, params: Any = None) -> tuple[Any, Any]:
        check_state(state, SoapState, "scale_by_soap")
        now, after = state.hyper.step()
        first = state.hyper.count == 0
        keep = now.b2 if b3 is None else now.b3
        # The first step makes the bases, and no moments.
        time = tnp.maximum(after.count - 1, 1).astype(td.float32)
        root = tnp.sqrt(1 - now.b2**time)
        factor, eps = root / (1 - now.b1**time), root * now.eps
        outer, bases = list(state.outer), list(state.bases)
        places = iter(positions(tree.structure(grads), tree.structure(state.mean), ""))
        due = after.count % now.frequency.astype(td.int32) == 0

        def leaf(g: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
            g = widen(g)
            n = next(places)
            basis = bases[n]
            new_m = now.b1 * m + (1 - now.b1) * g
            new_v = now.b2 * v + (1 - now.b2) * _rotated(g, basis) ** 2
            turned = factor * _rotated(new_m, basis)
            update = _rotated(turned / (tnp.sqrt(new_v) + eps), basis, back=True)
            new_m, new_v = tnp.where(first, m, new_m), tnp.where(first, v, new_v)
            outer[n] = _remembered(g, outer[n], keep)
            bases[n], new_v = _turned(first, due, outer[n], basis, new_v)
            return tnp.where(first, 0, update), new_m, new_v

        updates, mean, square = map_updates(leaf, grads, state.mean, state.mean_square)
        return updates, SoapState(after, mean, square, tuple(outer), tuple(bases))

    return Transform(init, update, "scale_by_soap")


def _sides(x: Any, make: Any, max_size: int) -> Sides:
    if x.ndim < 2:
        return ()
    dtype = wide(x.dtype)
    return tuple([make(n, dtype) if n <= max_size else None for n in x.shape])


def _identity(n: int, dtype: Any) -> Any:
    return tnp.eye(n, dtype=dtype)


def _along(x: Any, matrix: Any, axis: int) -> Any:
    """``matrix @ x`` over one axis."""
    return tnp.moveaxis(tnp.tensordot(matrix, x, axes=(1, axis)), 0, axis)


def _rotated(x: Any, basis: Sides, back: bool = False) -> Any:
    for axis, side in enumerate(basis):
        if side is not None:
            x = _along(x, side if back else side.mT, axis)
    return x


def _outer(g: Any, axis: int) -> Any:
    """The products of all slices along an axis."""
    rows = tnp.moveaxis(g, axis, 0).reshape(g.shape[axis], -1)
    return rows @ rows.mT


def _remembered(g: Any, outer: Sides, keep: Any) -> Sides:
    return tuple(
        None if side is None else keep * side + (1 - keep) * _outer(g, axis)
        for axis, side in enumerate(outer)
    )


def _turned(first: Any, due: Any, outer: Sides, basis: Sides, v: Any) -> Any:
    """The bases for the next step, and V in them."""
    if all(side is None for side in basis):
        return basis, v

    def later(outer: Sides, basis: Sides, v: Any) -> Any:
        return td.cond(due, _followed, lambda _, basis, v: (basis, v), outer, basis, v)

    def begin(outer: Sides, basis: Sides, v: Any) -> Any:
        return _eigenbases(outer), v

    return td.cond(first, begin, later, outer, basis, v)


def _eigenbases(outer: Sides) -> Sides:
    """Eigenvectors, those of the largest eigenvalues first."""
    return tuple(
        None if side is None else tnp.linalg.eigh(side)[1][:, ::-1] for side in outer
    )


def _followed(outer: Sides, basis: Sides, v: Any) -> tuple[Sides, Any]:
    """Bases after one power iteration, and V with its axes in the order that they
    have now: by how large the second moments are."""
    found: list[Any] = []
    for axis, (side, old) in enumerate(zip(outer, basis, strict=True)):
        if side is None:
            found.append(None)
            continue
        sizes = tnp.sum(old * (side @ old), axis=0)
        order = tnp.argsort(-sizes)
        v = tnp.take(v, order, axis=axis)
        found.append(tnp.linalg.qr(side @ old[:, order])[0])
    return tuple(found), v


def soap(
    learning_rate: Hyperparameter,
    b1: Hyperparameter = 0.95,
    b2: Hyperparameter = 0.95,
    b3: Hyperparameter | None = None,
    eps: Hyperparameter = 1e-8,
    weight_decay: Hyperparameter = 0.01,
    mask: Mask | None = None,
    frequency: Hyperparameter = 10,
    max_size: int = 10000,
    moment_dtype: Any = None,
) -> Transform:
    """SOAP: AdamW in the eigenbasis of Shampoo's preconditioner; see `scale_by_soap`.

    Vyas et al., *SOAP: Improving and Stabilizing Shampoo using Adam*, 2024.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.eye(2)}, {"w": tnp.eye(2)}
    >>> optimizer = optim.soap(0.1, weight_decay=0.0)
    >>> _, state = optimizer.update(grads, optimizer.init(params), params)
    >>> tnp.round(optimizer.update(grads, state, params)[0]["w"], 3) + 0
    Array([[-0.1,  0. ],
           [ 0. , -0.1]], dtype=float32)
    """
    check("soap", learning_rate=learning_rate)
    return named(
        "soap",
        scale_by_soap(b1, b2, b3, eps, frequency, max_size, moment_dtype),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )
