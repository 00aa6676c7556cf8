"""Muon: steps along orthogonal matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.errors import at, user_source
from treadle.optim.base import Record, Transform, check_state
from treadle.optim.chain import chain, partition
from treadle.optim.decay import Mask, add_decayed_weights
from treadle.optim.hyper import Hyperparameter, Hyperparameters, hyper
from treadle.optim.leaves import map_updates, spread, widen, zeros_for
from treadle.optim.limits import check
from treadle.optim.moments import ahead
from treadle.optim.named import adamw
from treadle.optim.scale import scale_by_learning_rate

Preconditioning = Literal["frobenius", "spectral", "aol", "schatten"]
Coefficients = Sequence[float] | Sequence[Sequence[float]] | Literal["dion"]

_STANDARD = (3.4445, -4.7750, 2.0315)
_DION = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)


@dataclass(frozen=True)
class MatrixAxes:
    """Which axes of a parameter are a matrix; those not named are a batch of matrices.

    inputs: the axes that a product sums over, together the rows.
    outputs: together the columns.

    >>> MatrixAxes(inputs=(0, 1, 2), outputs=(3,))  # a kernel of a 2d convolution
    MatrixAxes(inputs=(0, 1, 2), outputs=(3,))
    """

    inputs: tuple[int, ...] = (-2,)
    outputs: tuple[int, ...] = (-1,)


Matrices = Any | Callable[[Any], Any]
"""For each parameter whether it is a matrix: True (the last two axes are), False, or
`MatrixAxes`. A pytree like the parameters, a prefix of one, or a function to one."""


def _is_rule(matrices: Any) -> bool:
    """Whether it says by paths or classes which parameters are meant."""
    if isinstance(matrices, list | tuple) and matrices:
        return all(map(_is_rule, matrices))
    return isinstance(matrices, str | type | tree.Selector)


def _chosen(matrices: Matrices | None, params: Any) -> Any:
    """For each parameter True, False or `MatrixAxes`."""
    if matrices is None:
        return tree.map(lambda x: td.typeof(x).ndim == 2, params)
    if not _is_rule(matrices):
        return spread(matrices, params, "`matrices`")
    where = tree.select(matrices)(params)
    return tree.map(lambda meant, x: meant and td.typeof(x).ndim > 1, where, params)


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class MuonState(Record):
    """The state of `scale_by_muon`: momentum, and the polynomial's coefficients."""

    hyper: Hyperparameters
    mean: Any
    coefficients: Any


def scale_by_muon(
    b1: Hyperparameter = 0.95,
    eps: Hyperparameter = 1e-8,
    coefficients: Coefficients = _STANDARD,
    steps: int = 5,
    nesterov: bool = True,
    moment_dtype: Any = None,
    *,
    matrices: Matrices = True,
    adaptive: bool = False,
    preconditioning: Preconditioning = "frobenius",
    consistent_rms: Hyperparameter | None = None,
) -> Transform:
    """The orthogonal matrix that is nearest to a mean of the gradients, roughly.

    ``m ← b1 m + (1 - b1) g``; m̂ (corrected as in `scale_by_adam`) is divided by its
    norm, and `steps` times ``X ← a X + (b A + c A²) X`` with ``A = X Xᵀ`` brings all
    its singular values near 1. The update is ``√max(1, n_out / n_in) X``.

    Args:
      coefficients: (a, b, c) for all steps, one such row for each of at least `steps`
        steps, or "dion" for those of Dion.
      matrices: which axes are the matrix.
      adaptive: whether the update is multiplied by ``<m̂, X>``.
      preconditioning: how m̂ is scaled: by its Frobenius or its spectral norm, or in
        the first step by its rows ("aol") or by the norm of A ("schatten").
      consistent_rms: if given, the update is ``consistent_rms √max(n_in, n_out) X``,
        which has the size of Adam's for 0.2 or so.

    Jordan et al., *Muon: An optimizer for hidden layers in neural networks*, 2024; Liu
    et al., *Muon is Scalable for LLM Training*, 2025 (consistent_rms); Bernstein and
    Newhouse, *Old Optimizer, New Norm: An Anthology*, 2024 (adaptive).

    >>> muon = scale_by_muon()
    >>> grads = tnp.array([[3.0, 0.0], [0.0, 0.01]])
    >>> tnp.round(muon.update(grads, muon.init(grads))[0], 1) + 0
    Array([[0.7, 0. ],
           [0. , 1.2]], dtype=float32)
    """
    numbers = {"b1": b1, "eps": eps}
    if consistent_rms is not None:
        numbers["consistent_rms"] = consistent_rms
    check("scale_by_muon", **numbers, steps=steps)
    _check_preconditioning(preconditioning)
    rows = _rows(coefficients, steps)

    def init(params: Any) -> MuonState:
        mean = zeros_for(params, moment_dtype)
        return MuonState(hyper(**numbers), mean, tnp.array(rows, td.float32))

    def update(grads: Any, state: MuonState, params: Any = None) -> tuple[Any, Any]:
        check_state(state, MuonState, "scale_by_muon")
        now, after = state.hyper.step()
        hat = ahead(now.b1, after.count.astype(td.float32), nesterov)

        def leaf(g: Any, m: Any, which: Any) -> tuple[Any, Any]:
            g = widen(g)
            m = now.b1 * m + (1 - now.b1) * g
            mean = hat(g, m)
            axes = _axes(which, g)
            x, back = _as_matrices(mean, axes)
            rows, columns = x.shape[-2:]
            x = _orthogonal(x, state.coefficients, steps, preconditioning, now.eps)
            factor: Any
            if consistent_rms is None:
                factor = max(1.0, columns / rows) ** 0.5
            else:
                factor = now.consistent_rms * max(rows, columns) ** 0.5
            update = back(x)
            if adaptive:
                factor = factor * tnp.sum(tnp.conj(mean) * update)
            return factor * update, m

        chosen = spread(matrices, grads, "`matrices`")
        updates, mean = map_updates(leaf, grads, state.mean, read=(chosen,))
        return updates, MuonState(after, mean, state.coefficients)

    return Transform(init, update, "scale_by_muon")


def _check_preconditioning(given: str) -> None:
    kinds = get_args(Preconditioning)
    if given not in kinds:
        raise ValueError(
            f"muon: preconditioning={given!r}{at(user_source())}\n"
            f"It is one of {', '.join(map(repr, kinds))}."
        )


def _rows(coefficients: Coefficients, steps: int) -> list[Any]:
    """Three coefficients for each step."""
    given: Any = _DION if coefficients == "dion" else coefficients
    if isinstance(given, Sequence) and not isinstance(given, str):
        whole = all(isinstance(row, Sequence) and len(row) == 3 for row in given)
        if whole and len(given) >= steps:
            return list(given[len(given) - steps :])
        if len(given) == 3 and not any(isinstance(x, Sequence) for x in given):
            return [given] * steps
    raise ValueError(
        f"muon: coefficients={coefficients!r} for {steps} steps{at(user_source())}\n"
        "Give three numbers, at least as many rows of three as there are steps, or "
        "'dion'."
    )


def _axes(which: Any, x: Any) -> MatrixAxes:
    axes = MatrixAxes() if which is True else which
    named = [*axes.inputs, *axes.outputs] if isinstance(axes, MatrixAxes) else []
    if not named or x.ndim < 2 or len({n % x.ndim for n in named}) < len(named):
        raise ValueError(
            f"muon: {which!r} gives no matrix in a parameter of shape {x.shape}"
            f"{at(user_source())}\n"
            "Say with `matrices` which parameters have axes of inputs and of outputs: "
            "True for the last two, or optim.MatrixAxes."
        )
    return axes


def _as_matrices(x: Any, axes: MatrixAxes) -> tuple[Any, Callable[[Any], Any]]:
    """An array of shape (batch, inputs, outputs), and the way back."""
    inputs = [n % x.ndim for n in axes.inputs]
    outputs = [n % x.ndim for n in axes.outputs]
    batch = [n for n in range(x.ndim) if n not in (*inputs, *outputs)]
    order = [*batch, *inputs, *outputs]
    moved = x.transpose(order)
    sizes = [math.prod(x.shape[n] for n in part) for part in (batch, inputs, outputs)]
    inverse = sorted(range(x.ndim), key=order.__getitem__)
    return moved.reshape(sizes), lambda y: y.reshape(moved.shape).transpose(inverse)


def _orthogonal(
    x: Any, coefficients: Any, steps: int, preconditioning: str, eps: Any
) -> Any:
    """Newton and Schulz's iteration on each of a batch of matrices."""
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    if preconditioning == "frobenius":
        size = tnp.sum(tnp.real(x * tnp.conj(x)), (-2, -1), keepdims=True)
        x = x / (tnp.sqrt(size) + eps)
    elif preconditioning == "spectral":
        x = x / (tnp.linalg.norm(x, 2, (-2, -1), keepdims=True) + eps)
    for step in range(steps):
        a, b, c = (coefficients[step, n] for n in range(3))
        square = x @ tnp.conj(x.mT)
        if step == 0 and preconditioning == "aol":
            size = tnp.sum(tnp.abs(square), -1, keepdims=True)
            root = 1 / tnp.sqrt(tnp.maximum(size, 1e-8))
            x, square = x * root, square * root * root.mT
        elif step == 0 and preconditioning == "schatten":
            size = tnp.sum(tnp.real(square * tnp.conj(square)), (-2, -1), keepdims=True)
            root = 1 / tnp.sqrt(tnp.maximum(tnp.sqrt(size), 1e-8))
            x, square = x * root, square * root**2
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x


def muon(
    learning_rate: Hyperparameter,
    b1: Hyperparameter = 0.95,
    eps: Hyperparameter = 1e-8,
    weight_decay: Hyperparameter = 0.0,
    mask: Mask | None = None,
    coefficients: Coefficients = _STANDARD,
    steps: int = 5,
    nesterov: bool = True,
    moment_dtype: Any = None,
    *,
    matrices: Matrices | None = None,
    adaptive: bool = False,
    preconditioning: Preconditioning = "frobenius",
    consistent_rms: Hyperparameter | None = None,
    adam: Transform | None = None,
) -> Transform:
    """Muon for matrices, Adam for the rest; see `scale_by_muon`.

    ``p ← p - learning_rate (X + weight_decay · p)``

    Args:
      matrices: which parameters are matrices, and by which axes. None: those with two
        axes. Patterns, classes, selectors: those of them with two or more. Embeddings
        and the last layer are better left to Adam.
      adam: the optimizer of the rest, ``nadamw(learning_rate, weight_decay=0)`` by
        default (`adamw` unless `nesterov`).

    Jordan et al., *Muon: An optimizer for hidden layers in neural networks*, 2024.

    >>> from treadle import optim
    >>> params = {"w": tnp.eye(2), "b": tnp.ones(2)}
    >>> optimizer = optim.muon(0.1, matrices={"w": True, "b": False})
    >>> updates, state = optimizer.update(params, optimizer.init(params), params)
    >>> tnp.round(updates["w"], 2) + 0
    Array([[-0.11,  0.  ],
           [ 0.  , -0.11]], dtype=float32)
    """
    check("muon", learning_rate=learning_rate)
    if adam is None:
        adam = adamw(
            learning_rate,
            eps=eps,
            weight_decay=0.0,
            nesterov=nesterov,
            moment_dtype=moment_dtype,
        )

    orthogonal = scale_by_muon(
        b1,
        eps,
        coefficients,
        steps,
        nesterov,
        moment_dtype,
        matrices=True if matrices is None or _is_rule(matrices) else matrices,
        adaptive=adaptive,
        preconditioning=preconditioning,
        consistent_rms=consistent_rms,
    )
    decay = add_decayed_weights(weight_decay, mask)
    parts = {
        "muon": chain(orthogonal, decay, scale_by_learning_rate(learning_rate)),
        "adam": adam,
    }

    def labels(params: Any) -> Any:
        return tree.map(
            lambda w: "adam" if w is False else "muon", _chosen(matrices, params)
        )

    whole = partition(parts, labels)
    return Transform(whole.init, whole.update, "muon")
