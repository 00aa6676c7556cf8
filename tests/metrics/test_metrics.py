"""Metrics against scikit-learn and NumPy: at once, in batches, merged, compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk

import treadle as td
import treadle.numpy as tnp
from treadle import metrics, nn, tree

DRAW = np.random.default_rng(0)
EXAMPLES, CLASSES = 48, 4
LABELS = DRAW.integers(0, CLASSES, EXAMPLES).astype(np.int32)
LOGITS = DRAW.normal(size=(EXAMPLES, CLASSES)).astype(np.float32)
LOGITS += 1.5 * np.eye(CLASSES, dtype=np.float32)[LABELS]
GUESSES = LOGITS.argmax(-1)
BITS = (LABELS > 1).astype(np.int32)
SCORES = np.float32(DRAW.integers(0, 100, EXAMPLES) * 0.006 + 0.3 * BITS + 0.001)
GUESSED = (SCORES > 0.5).astype(np.int32)
X = DRAW.normal(100, 3, EXAMPLES).astype(np.float32)
Y = (X + DRAW.normal(size=EXAMPLES)).astype(np.float32)
WHERE = DRAW.random(EXAMPLES) < 0.7

AVERAGES = ("micro", "macro", "weighted", None)
OF_CLASSES: dict[str, tuple[Any, Callable]] = {
    "Precision": (metrics.Precision, sk.precision_score),
    "Recall": (metrics.Recall, sk.recall_score),
    "F1": (metrics.F1, sk.f1_score),
}


def summary(x: np.ndarray) -> tuple:
    x = x.astype(np.float64)
    return x.mean(), x.var(), x.std(), x.min(), x.max(), x.size


# A metric without examples, what it is told of, and the number it should find.
TABLE: dict[str, tuple[Any, tuple, Callable]] = {
    "Mean": (metrics.Mean(), (X,), np.mean),
    "Perplexity": (metrics.Perplexity(), (SCORES,), lambda x: np.exp(x.mean())),
    "Statistics": (metrics.Statistics(), (X,), summary),
    "Accuracy of logits": (
        metrics.Accuracy(), (LOGITS, LABELS),
        lambda x, y: sk.accuracy_score(y, x.argmax(-1))),
    "Accuracy of classes": (
        metrics.Accuracy(), (GUESSES, LABELS), lambda x, y: sk.accuracy_score(y, x)),
    **{f"TopKAccuracy {k}": (
        metrics.TopKAccuracy(k), (LOGITS, LABELS),
        lambda x, y, k=k: sk.top_k_accuracy_score(y, x, k=k)) for k in (1, 2, 3)},
    "ConfusionMatrix": (
        metrics.ConfusionMatrix(CLASSES), (GUESSES, LABELS),
        lambda x, y: sk.confusion_matrix(y, x, labels=range(CLASSES))),
    **{f"{name} {average}": (
        kind(CLASSES, average), (LOGITS, LABELS),
        lambda x, y, a=average, f=theirs: f(
            y, x.argmax(-1), labels=range(CLASSES), average=a, zero_division=0))
       for name, (kind, theirs) in OF_CLASSES.items() for average in AVERAGES},
    **{f"{name} binary": (
        kind(2), (GUESSED, BITS), lambda x, y, f=theirs: f(y, x))
       for name, (kind, theirs) in OF_CLASSES.items()},
    "ROCAUC": (
        metrics.ROCAUC(500), (SCORES, BITS), lambda x, y: sk.roc_auc_score(y, x)),
    "AveragePrecision": (
        metrics.AveragePrecision(500), (SCORES, BITS),
        lambda x, y: sk.average_precision_score(y, x)),
    "MeanSquaredError": (
        metrics.MeanSquaredError(), (X, Y), lambda x, y: sk.mean_squared_error(y, x)),
    "MeanSquaredError root": (
        metrics.MeanSquaredError(root=True), (X, Y),
        lambda x, y: sk.root_mean_squared_error(y, x)),
    "R2": (metrics.R2(), (X, Y), lambda x, y: sk.r2_score(y, x)),
    "Pearson": (metrics.Pearson(), (X, Y), lambda x, y: np.corrcoef(x, y)[0, 1]),
}  # fmt: skip


def agree(metric: Any, expected: Any) -> None:
    found = metric.compute()
    if isinstance(found, tuple):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5)
    else:
        np.testing.assert_allclose(found, expected, rtol=2e-5)


def parts(args: tuple, *borders: int) -> Any:
    return zip(*[np.split(x, borders) for x in args], strict=True)


@pytest.mark.parametrize("name", TABLE)
def test_metrics_are_theirs(name: str) -> None:
    empty, args, theirs = TABLE[name]
    expected = theirs(*args)
    agree(empty.update(*args), expected)
    seen = [empty.update(*part) for part in parts(args, 5, 6, 30)]
    agree(seen[0].merge(seen[1]).merge(seen[2].merge(seen[3])), expected)
    kept = empty.update(*args, WHERE)
    agree(kept, theirs(*[x[WHERE] for x in args]))
    assert tree.equal(kept.reset(), empty)


# Of each kind one.
KINDS = {type(row[0]): name for name, row in TABLE.items()}.values()


@pytest.mark.parametrize("name", KINDS)
def test_metrics_are_carried_by_scans_and_mapped(name: str) -> None:
    empty, args, theirs = TABLE[name]
    batches = [tnp.asarray(x).reshape(4, 12, *x.shape[1:]) for x in args]

    @td.jit
    def scanned(empty: Any, *batches: Any) -> Any:
        return td.scan(lambda m, b: (m.update(*b), None), empty, batches)[0]

    expected = theirs(*args)
    agree(scanned(empty, *batches), expected)
    stack = td.vmap(lambda *batch: empty.update(*batch))(*batches)
    agree(metrics.merged(stack), expected)


def test_weights_of_a_mean() -> None:
    weights = DRAW.random(EXAMPLES).astype(np.float32)
    found = metrics.Mean()
    for x, w in parts((X, weights), 7, 20):
        found = found.update(x, w)
    agree(found, np.average(X, weights=weights))
    padded = metrics.Mean().update(tnp.array([1.0, tnp.nan]), tnp.array([True, False]))
    assert padded.compute() == 1


def test_long_runs_lose_no_digits() -> None:
    step = td.jit(lambda m, x: m.update(x))
    mean, spread = metrics.Mean(), metrics.Statistics()
    values = 1e4 + np.tile(np.float32([0.0, 1.0]), 500).astype(np.float32)
    for _ in range(50):
        mean, spread = step(mean, values), step(spread, values)
    np.testing.assert_allclose(mean.compute(), 1e4 + 0.5, rtol=1e-7)
    np.testing.assert_allclose(spread.compute().variance, 0.25, rtol=1e-3)
    many = metrics.Accuracy(
        tnp.asarray(2**31, tnp.int64), tnp.asarray(2**32, tnp.int64)
    )
    assert many.update(tnp.array([1]), tnp.array([1])).correct == 2**31 + 1


def test_nothing_gives_nan() -> None:
    for name in ("Mean", "Accuracy of logits", "Perplexity", "MeanSquaredError"):
        assert np.isnan(TABLE[name][0].compute())
    one_class = metrics.ROCAUC().update(tnp.array([0.5]), tnp.array([1]))
    with np.errstate(invalid="ignore"):
        assert np.isnan(td.jit(lambda m: m.compute())(one_class))


def test_exact_areas() -> None:
    rough = np.float32(DRAW.integers(0, 7, EXAMPLES))
    for scores in (SCORES, rough, rough.reshape(4, -1)):
        labels = BITS.reshape(scores.shape)
        flat = BITS, scores.reshape(-1)
        for transform in (lambda f: f, td.jit):
            found = transform(metrics.roc_auc)(scores, labels)
            np.testing.assert_allclose(found, sk.roc_auc_score(*flat), rtol=1e-6)
            found = transform(metrics.average_precision)(scores, labels)
            expected = sk.average_precision_score(*flat)
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_labels_that_are_no_class() -> None:
    labels = tnp.array([0, 1, -100, 7])
    guesses = tnp.array([0, 0, 1, 1])
    assert metrics.ConfusionMatrix(2).update(guesses, labels).compute().sum() == 2
    logits = nn.one_hot(guesses, 2)
    assert metrics.TopKAccuracy(2).update(logits, labels).compute() == 0.5
    f1 = metrics.F1(2).update(guesses, labels, where=(labels >= 0) & (labels < 2))
    assert f1.compute() == 0


def test_a_collection_hands_on_what_each_wants() -> None:
    empty = metrics.Collection(
        {
            "loss": metrics.Mean(),
            "accuracy": metrics.Accuracy(),
            "top": metrics.TopKAccuracy(2),
        }
    )

    @td.jit
    def step(seen: Any, logits: Any, labels: Any, where: Any) -> Any:
        loss = nn.cross_entropy(logits, labels)
        return seen.update(
            loss=loss, predictions=logits, logits=logits, labels=labels, where=where
        )

    seen = empty
    for batch in parts((LOGITS, LABELS, WHERE), 16, 32):
        seen = step(seen, *batch)
    found = seen.compute()
    labels, guesses = LABELS[WHERE], GUESSES[WHERE]
    assert found["accuracy"] == np.float32(sk.accuracy_score(labels, guesses))
    expected = sk.top_k_accuracy_score(labels, LOGITS[WHERE], k=2)
    np.testing.assert_allclose(found["top"], expected, rtol=1e-6)
    np.testing.assert_allclose(
        found["loss"], sk.log_loss(LABELS, nn.softmax(LOGITS)), rtol=1e-5
    )
    both = seen.merge(seen)
    assert both["accuracy"].count == 2 * WHERE.sum()
    assert tree.equal(both.reset(), empty)
    with pytest.raises(TypeError, match="'accuracy', Accuracy, needs predictions; got"):
        empty.update(loss=0.5, labels=LABELS, logits=LOGITS)
    with pytest.raises(TypeError, match="no metric takes lables"):
        metrics.Collection({"loss": metrics.Mean()}).update(loss=1.0, lables=1)


def test_errors_say_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"got f32\[48,4\] and i32\[47\]"):
        metrics.Accuracy().update(LOGITS, LABELS[1:])
    with pytest.raises(TypeError, match=r"metric.update\(logits > 0, labels\)"):
        metrics.Accuracy().update(SCORES, BITS)
    with pytest.raises(ValueError, match=r"average is one of 'binary', (.|\n)*'mean'"):
        metrics.F1(3, "mean")
    with pytest.raises(ValueError, match="there are 3 classes"):
        metrics.F1(3)
    with pytest.raises(TypeError, match="merge takes a metric like itself"):
        metrics.TopKAccuracy(2).merge(metrics.TopKAccuracy(3))
    with pytest.raises(ValueError, match=r"bools of shape \(48,\); got bool\[47\]"):
        metrics.Accuracy().update(LOGITS, LABELS, WHERE[1:])
    with pytest.raises(ValueError, match=r"R2.update takes two arrays of one shape"):
        metrics.R2().update(X, Y[1:])


@pytest.mark.parametrize("name", KINDS)
def test_halves_are_summed_in_the_types_that_a_metric_has(name: str) -> None:
    empty, args, _ = TABLE[name]
    halves = [x.astype(td.bfloat16) if x.dtype == np.float32 else x for x in args]
    wides = [x.astype(np.float32) if x.dtype == td.bfloat16 else x for x in halves]
    found = empty.update(*halves).update(*halves)
    types = [td.typeof(x) for x in tree.leaves(empty)]
    assert [td.typeof(x) for x in tree.leaves(found)] == types
    expected = empty.update(*wides).update(*wides)
    tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, expected)
