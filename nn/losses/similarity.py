"""Losses of vectors that shall point in the same direction, or not."""

from __future__ import annotations

import treadle as td
import treadle.numpy as tnp
from treadle.errors import at, user_source
from treadle.nn import check
from treadle.nn.functions.activation import logsumexp, softplus
from treadle.nn.losses.operands import among, narrow, same

Array = td.Array


def cosine_similarity(
    x: tnp.ArrayLike,
    y: tnp.ArrayLike,
    *,
    eps: float = 1e-8,
    where: tnp.ArrayLike | None = None,
) -> Array:
    """The cosine of the angle between vectors: ``x · y / (‖x‖ ‖y‖)``.

    Shapes: ``(..., features), (..., features) -> (...)``.

    Args:
      eps: the least that a norm is taken for: vectors of zeros give 0, with a
        derivative.
      where: the features that count, like `x`.

    Raises:
      ValueError: if the shapes differ.

    >>> import treadle.numpy as tnp
    >>> cosine_similarity(tnp.array([3.0, 4.0]), tnp.array([1.0, 0.0]))
    Array(0.6, dtype=float32)
    """
    check.within("cosine_similarity", "eps", eps)
    a, b = same("cosine_similarity", x, y)
    a, b = among(a, where), among(b, where)
    return narrow((_unit(a, eps) * _unit(b, eps)).sum(-1), x)


def _unit(x: Array, eps: float) -> Array:
    squares = tnp.square(x).sum(-1, keepdims=True)
    return x / tnp.sqrt(tnp.maximum(squares, eps * eps))


def cosine_distance(
    x: tnp.ArrayLike,
    y: tnp.ArrayLike,
    *,
    eps: float = 1e-8,
    where: tnp.ArrayLike | None = None,
) -> Array:
    """``1 - cosine_similarity(x, y)``, from 0 to 2.

    >>> import treadle.numpy as tnp
    >>> cosine_distance(tnp.array([3.0, 4.0]), tnp.array([1.0, 0.0]))
    Array(0.4, dtype=float32)
    """
    check.within("cosine_distance", "eps", eps)
    a, b = same("cosine_distance", x, y)
    return narrow(1 - cosine_similarity(a, b, eps=eps, where=where), x)


def cosine_embedding(
    x: tnp.ArrayLike, y: tnp.ArrayLike, targets: tnp.ArrayLike, margin: float = 0.0
) -> Array:
    """`cosine_distance` of pairs that shall be alike, and of the others how far their
    `cosine_similarity` is above a margin.

    Shapes: ``(..., features), (..., features)``; targets (...), 1 for pairs that shall
    be alike and -1 (or anything else) for the others; the result (...).

    Raises:
      ValueError: if the shapes don't fit.

    >>> import treadle.numpy as tnp
    >>> x, y = tnp.array([[3.0, 4.0]] * 2), tnp.array([[1.0, 0.0]] * 2)
    >>> cosine_embedding(x, y, tnp.array([1, -1]))
    Array([0.4, 0.6], dtype=float32)
    """
    check.within("cosine_embedding", "margin", margin, -1, 1)
    a, b = same("cosine_embedding", x, y)
    cosine, targets = cosine_similarity(a, b), check.as_array(targets)
    if targets.shape != cosine.shape:
        raise ValueError(
            "cosine_embedding takes vectors (..., features) and targets (...); got "
            f"{td.typeof(a)} and {td.typeof(targets)}{at(user_source())}"
        )
    return narrow(
        tnp.where(targets == 1, 1 - cosine, tnp.maximum(cosine - margin, 0)), x
    )


def hinge_embedding(
    distances: tnp.ArrayLike, targets: tnp.ArrayLike, margin: float = 1.0
) -> Array:
    """The distance of pairs that shall be near (targets of 1), and ``max(0, margin -
    distance)`` of the others (-1). Elementwise.

    Raises:
      ValueError: if the shapes differ.

    >>> import treadle.numpy as tnp
    >>> hinge_embedding(tnp.array([0.25, 0.25]), tnp.array([1, -1]))
    Array([0.25, 0.75], dtype=float32)
    """
    check.within("hinge_embedding", "margin", margin)
    d, y = same("hinge_embedding", distances, targets)
    return narrow(tnp.where(y == 1, d, tnp.maximum(margin - d, 0)), distances)


def ntxent(
    embeddings: tnp.ArrayLike, labels: tnp.ArrayLike, temperature: float = 0.07
) -> Array:
    """Contrast of each example with all others of a batch: those of its label shall be
    nearer than those of other labels.

    For each pair of example i with another j of its label,
    ``-log(exp(s_ij) / (exp(s_ij) + Σ_k exp(s_ik)))``, where s is the cosine similarity
    over the temperature and k goes through the examples of other labels. The loss of i
    is the mean over its pairs, and 0 if it has none.

    Shapes: embeddings (examples, features), labels (examples,); the result (examples,).

    Chen et al., *A Simple Framework for Contrastive Learning of Visual
    Representations*, 2020.

    Raises:
      ValueError: if the shapes don't fit.

    >>> import treadle.numpy as tnp
    >>> vectors = tnp.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> ntxent(vectors, tnp.array([0, 0, 1, 1]), temperature=0.5)
    Array([0.265 , 0.3147, 0.265 , 0.3147], dtype=float32)
    """
    check.positive("ntxent", "temperature", temperature)
    embeddings, labels = check.as_array(embeddings), check.as_array(labels)
    if embeddings.ndim != 2 or labels.shape != embeddings.shape[:1]:
        raise ValueError(
            "ntxent takes embeddings (examples, features) and labels (examples,); got "
            f"{td.typeof(embeddings)} and {td.typeof(labels)}{at(user_source())}\n"
            "Of several batches take it by `td.vmap`."
        )
    units = _unit(check.wide(embeddings), 1e-8)
    similar = units @ units.mT / temperature
    alike = labels[:, None] == labels
    others = tnp.arange(labels.shape[0])
    positive = alike & (others[:, None] != others)
    # Far below all similarities, but finite: so is the derivative without negatives.
    negatives = tnp.where(alike, -1e30, similar)
    gaps = logsumexp(negatives, keepdims=True) - similar
    losses = tnp.where(positive, softplus(gaps), 0).sum(-1)
    pairs = positive.sum(-1)
    return check.narrow(losses / tnp.maximum(pairs, 1), embeddings)
