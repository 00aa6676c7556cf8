"""Losses against PyTorch's, in values and gradients, with its reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import close, random
from treadle import nn

X, Y, Z = (2 * random(6, 5, seed=s) for s in range(3))
SIGNS = np.sign(Y)
P = torch.softmax(torch.tensor(Y), -1).numpy()
LABELS = np.array([0, 4, 2, 2, -100, 1])
WEIGHTS = np.array([0.5, 2.0, 1.0, 0.1, 3.0], np.float32)
COUNTS = np.array([[0, 1, 2, 3, 4]] * 6, np.float32)
FRAMES = np.array([12, 9, 5, 7])
LETTERS = np.array([3, 4, 2, 0])
SPELLED = np.array([[1, 2, 2, 0], [3, 1, 3, 3], [2, 2, 0, 0], [1, 1, 1, 1]])
WEIGHT = torch.tensor(WEIGHTS)
NAMED = torch.tensor(LABELS)


def counted(x: Any, smoothing: float) -> Any:
    """Weighted by classes, without the label that says that none is known."""
    losses = nn.cross_entropy(x, LABELS, smoothing, class_weights=WEIGHTS)
    known = LABELS >= 0
    return losses.sum(where=known) / WEIGHTS[LABELS[known]].sum()


TABLE: dict[str, tuple[Callable, Callable, tuple]] = {
    "mse": (lambda x, y: nn.squared_error(x, y).mean(), F.mse_loss, (X, Y)),
    "l1": (lambda x, y: nn.absolute_error(x, y).sum(), lambda x, y: F.l1_loss(
        x, y, reduction="sum"), (X, Y)),
    "huber": (lambda x, y: nn.huber(x, y, 0.7), lambda x, y: F.huber_loss(
        x, y, reduction="none", delta=0.7), (X, Y)),
    "smooth_l1": (lambda x, y: nn.huber(x, y, 0.7) / 0.7, lambda x, y: F.smooth_l1_loss(
        x, y, reduction="none", beta=0.7), (X, Y)),
    "cross_entropy, ignored": (
        lambda x: nn.cross_entropy(x, LABELS).mean(where=LABELS >= 0),
        lambda x: F.cross_entropy(x, NAMED), (X,)),
    "cross_entropy, weighted": (
        lambda x: counted(x, 0.0),
        lambda x: F.cross_entropy(x, NAMED, WEIGHT), (X,)),
    "cross_entropy, weighted, smooth": (
        lambda x: counted(x, 0.2),
        lambda x: F.cross_entropy(x, NAMED, WEIGHT, label_smoothing=0.2), (X,)),
    "cross_entropy of probabilities": (
        lambda x, p: nn.cross_entropy(x, p, 0.2, class_weights=WEIGHTS).mean(),
        lambda x, p: F.cross_entropy(x, p, WEIGHT, label_smoothing=0.2), (X, P)),
    "nll": (
        lambda x: nn.cross_entropy(x, LABELS).mean(where=LABELS >= 0),
        lambda x: F.nll_loss(F.log_softmax(x, -1), NAMED), (X,)),
    "binary_cross_entropy": (
        lambda x, p: nn.binary_cross_entropy(x, p, positive_weight=WEIGHTS).mean(),
        lambda x, p: F.binary_cross_entropy_with_logits(x, p, pos_weight=WEIGHT),
        (X, P)),
    "soft_margin": (
        lambda x: nn.binary_cross_entropy(x, SIGNS > 0).mean(),
        lambda x: F.soft_margin_loss(x, torch.tensor(SIGNS)), (X,)),
    "kl_div": (
        lambda q, p: nn.kl_divergence(nn.log_softmax(q), nn.log_softmax(p)).mean(),
        lambda q, p: F.kl_div(F.log_softmax(q, -1), F.log_softmax(p, -1),
                              reduction="batchmean", log_target=True), (X, Y)),
    "poisson_nll": (
        lambda x: nn.poisson_nll(x, COUNTS, full=True).mean(),
        lambda x: F.poisson_nll_loss(x, torch.tensor(COUNTS), full=True), (X,)),
    "gaussian_nll": (
        lambda x, y, v: nn.gaussian_nll(x, y, v).mean(),
        F.gaussian_nll_loss, (X, Y, P)),
    "multi_margin": (
        lambda x: nn.multi_margin(x, abs(LABELS) % 5, 0.7, 2).mean(),
        lambda x: F.multi_margin_loss(x, NAMED.abs() % 5, 2, 0.7), (X,)),
    "margin_ranking": (
        lambda x, y: nn.margin_ranking(x, y, SIGNS, 0.3).mean(),
        lambda x, y: F.margin_ranking_loss(x, y, torch.tensor(SIGNS), 0.3), (X, Y)),
    "triplet_margin": (
        lambda a, p, n: nn.triplet_margin(a, p, n, 0.5).mean(),
        lambda a, p, n: F.triplet_margin_loss(a, p, n, 0.5), (X, Y, Z)),
    "cosine_embedding": (
        lambda x, y: nn.cosine_embedding(x, y, SIGNS[:, 0], 0.2).mean(),
        lambda x, y: F.cosine_embedding_loss(
            x, y, torch.tensor(SIGNS[:, 0]), 0.2), (X, Y)),
    "hinge_embedding": (
        lambda x: nn.hinge_embedding(x, SIGNS, 0.7).mean(),
        lambda x: F.hinge_embedding_loss(x, torch.tensor(SIGNS), 0.7), (abs(X),)),
    "multilabel_soft_margin": (
        lambda x: nn.binary_cross_entropy(x, SIGNS > 0).mean(-1),
        lambda x: F.multilabel_soft_margin_loss(
            x, torch.tensor(SIGNS > 0).float(), reduction="none"), (X,)),
    "triplet_margin_with_distance": (
        lambda a, p, n: nn.margin_ranking(
            abs(a - n).sum(-1), abs(a - p).sum(-1), np.ones(6), 0.5),
        lambda a, p, n: F.triplet_margin_with_distance_loss(
            a, p, n, margin=0.5, reduction="none",
            distance_function=lambda x, y: abs(x - y).sum(-1)), (X, Y, Z)),
    "cosine_similarity": (nn.cosine_similarity, F.cosine_similarity, (X, Y)),
    "ctc": (
        lambda x: nn.ctc(x, SPELLED, FRAMES, LETTERS),
        lambda x: F.ctc_loss(
            F.log_softmax(x, -1).transpose(0, 1), torch.tensor(SPELLED),
            torch.tensor(FRAMES), torch.tensor(LETTERS), reduction="none"),
        (3 * random(4, 12, 5),)),
    "ctc with another blank": (
        lambda x: nn.ctc(x, SPELLED, blank=4),
        lambda x: F.ctc_loss(
            F.log_softmax(x, -1).transpose(0, 1), torch.tensor(SPELLED),
            torch.full((4,), 12), torch.full((4,), 4), blank=4, reduction="none"),
        (random(4, 12, 5),)),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_losses_are_theirs(name: str) -> None:
    ours, theirs, args = TABLE[name]
    tensors = [torch.tensor(a, requires_grad=True) for a in args]
    expected = theirs(*tensors)
    expected.sum().backward()
    arrays = [tnp.asarray(a) for a in args]
    close(ours(*arrays), expected.detach().numpy(), 5e-5)
    numbers = tuple(range(len(args)))
    grads = td.jit(td.grad(lambda *a: ours(*a).sum(), numbers))(*arrays)
    for found, tensor in zip(grads, tensors, strict=True):
        close(found, tensor.grad.numpy(), 5e-5)


def test_ctc_without_a_way_is_infinite_there_too() -> None:
    x = random(1, 3, 4)
    logs = F.log_softmax(torch.tensor(x), -1).transpose(0, 1)
    for labels, possible in (([[1, 1]], True), ([[1, 1, 1]], False)):
        lengths = torch.tensor([3]), torch.tensor([len(labels[0])])
        theirs = F.ctc_loss(logs, torch.tensor(labels), *lengths, reduction="none")
        ours = nn.ctc(x, np.array(labels))
        assert bool(np.isfinite(ours).all()) == possible
        assert bool(torch.isfinite(theirs).all()) == possible
