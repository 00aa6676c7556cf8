"""Training from Python: `recipes.fit`, callbacks, early stopping, accumulation."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.recipes.small import assert_same_run, rows
from treadle import nn, optim, recipes, rng, tree
from treadle.errors import StructureError
from treadle.recipes import cli
from treadle.recipes.errors import UsageError

X = np.random.default_rng(0).normal(size=(240, 3)).astype(np.float32)
Y = (X @ np.array([1.0, -2.0, 0.5], np.float32) + 0.25).astype(np.float32)
LABELS = (Y > 0).astype(np.int32)


def linear(outputs: int = 1) -> nn.Linear:
    return nn.Linear(3, outputs, key=rng.key(0))


def fit(model: Any, data: Any, **options: Any) -> recipes.Fitted:
    usual = {"steps": 20, "batch_size": 40, "show": False}
    return recipes.fit(model, data, **(usual | options))


def bits(model: Any) -> list[bytes]:
    return [np.asarray(x).tobytes() for x in tree.leaves(model)]


def test_it_solves_least_squares() -> None:
    model = linear()
    before = bits(model)
    fitted = fit(
        model, (X, Y), test=0.25, steps=300, learning_rate=0.1, weight_decay=0.0
    )
    design = np.concatenate([X, np.ones((240, 1))], 1)
    solved = np.linalg.lstsq(design, Y, rcond=None)[0]
    found = np.append(np.asarray(fitted.model.weight), np.asarray(fitted.model.bias))
    np.testing.assert_allclose(found, solved, atol=1e-3)
    assert fitted.metrics["test_loss"] < 1e-5
    assert bits(model) == before
    assert fitted.step == 300 and fitted.rows[-1]["step"] == 300


def test_a_run_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    class Interrupt(recipes.Callback):
        def on_step(self, progress: recipes.Progress) -> None:
            if progress.step == 7:
                os.kill(os.getpid(), signal.SIGINT)

    model = nn.Sequential(linear(4), nn.Dropout(0.3), nn.Linear(4, 2, key=rng.key(1)))
    options: dict[str, Any] = {"test": 0.2, "log_every": 1, "checkpoint_every": 5}
    whole = fit(model, (X, LABELS), run_dir=tmp_path / "whole", **options)
    parts = options | {"run_dir": tmp_path / "parts"}
    with pytest.raises(KeyboardInterrupt):
        fit(model, (X, LABELS), **parts, callbacks=[Interrupt()])
    again = fit(model, (X, LABELS), **parts)
    assert bits(again.model) == bits(whole.model)
    assert again.metrics == whole.metrics
    assert set(whole.metrics) == {"test_loss", "test_accuracy"}
    assert_same_run(tmp_path / "parts", tmp_path / "whole")
    with pytest.raises(UsageError, match="give another run_dir"):
        fit(model, (X + 1, LABELS), **parts)
    with pytest.raises(StructureError, match="expected"):
        fit(linear(2), (X, LABELS), **parts)


def test_accumulated_gradients_are_those_of_the_large_batch() -> None:
    """With the order as it is, and the mean of equal batches."""
    found = [
        fit(
            linear(2),
            (X, LABELS),
            optimizer=optim.sgd(0.5),
            batch_size=size,
            accumulate=count,
            steps=6,
            log_every=1,
        )
        for size, count in ((240, 1), (80, 3))
    ]
    # An epoch is a step; the sum of gradients does not depend on the order.
    for a, b in zip(*(tree.leaves(f.model) for f in found), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=1e-6)
    losses = [[row["loss"] for row in f.rows] for f in found]
    np.testing.assert_allclose(*losses, rtol=2e-5)


def test_state_goes_through_accumulated_batches() -> None:
    """Batch normalisation counts each batch."""
    norm = nn.BatchNorm(3)
    fitted = fit(norm, (X, X), batch_size=60, accumulate=2, steps=2, weight_decay=0.0)
    apart = fit(norm, (X, X), batch_size=60, steps=4, learning_rate=0.0)
    for name in ("mean", "var"):
        a, b = (getattr(f.model, name).value for f in (fitted, apart))
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5)


class Rising(recipes.Callback):
    """Sees what it is told."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.seen: list[tuple[str, int]] = []
        self.stop_at = stop_at

    def on_start(self, rows: Any) -> None:
        self.seen.append(("start", len(rows)))

    def on_step(self, progress: recipes.Progress) -> str | None:
        assert progress.steps == 20 and "loss" in progress.metrics
        self.seen.append(("step", progress.step))
        return "enough" if progress.step == self.stop_at else None

    def on_test(self, progress: recipes.Progress) -> None:
        assert "test_loss" in progress.metrics
        self.seen.append(("test", progress.step))


def test_callbacks(tmp_path: Path) -> None:
    first, second = Rising(stop_at=3), Rising()
    options: dict[str, Any] = {"test": (X, Y), "checkpoint_every": 2, "log_every": 1}
    options["run_dir"] = tmp_path / "run"
    stopped = fit(linear(), (X, Y), **options, callbacks=[first])
    assert (stopped.step, stopped.stopped) == (3, "enough")
    expected = [("start", 0), ("step", 1), ("step", 2), ("test", 2), ("step", 3)]
    assert first.seen == expected
    fit(linear(), (X, Y), **options, callbacks=[second])
    assert second.seen[:2] == [("start", 3), ("step", 4)]


def test_early_stopping_remembers_what_was_before(tmp_path: Path) -> None:
    """The targets are noise: a test is soon as good as it gets."""
    noise = np.random.default_rng(1).normal(size=240).astype(np.float32)
    options: dict[str, Any] = {"test": 0.5, "patience": 3, "checkpoint_every": 1}
    options |= {"steps": 60, "learning_rate": 0.3, "run_dir": tmp_path / "run"}
    stopped = fit(linear(), (X, noise), **options)
    assert stopped.stopped is not None and "in 3 tests" in stopped.stopped
    tests = [row["test_loss"] for row in rows(tmp_path / "run")]
    assert len(tests) == stopped.step < 60
    best = min(tests)
    assert tests.index(best) == len(tests) - 4
    assert fit(linear(), (X, noise), **options).step == stopped.step
    further = fit(linear(), (X, noise), **(options | {"patience": 5}))
    assert further.step >= stopped.step + 2


@pytest.mark.parametrize("mode", ["min", "max"])
def test_what_is_hardly_better_does_not_count(mode: Any) -> None:
    """Small steps count once they add up to enough."""
    stopping = recipes.EarlyStopping(2, "m", mode, min_delta=0.25)
    sign = 1 if mode == "min" else -1
    values = [4.0, 3.875, 3.625, 3.5, 3.375]
    reasons = [
        stopping.on_test(recipes.Progress(n, 9, None, {"m": sign * value}))
        for n, value in enumerate(values)
    ]
    assert [r is None for r in reasons] == [True, True, True, True, False]
    assert f"better than {sign * 3.625} in 2 tests" in str(reasons[-1])
    with pytest.raises(UsageError, match="min_delta -1"):
        recipes.EarlyStopping(2, "m", mode, min_delta=-1)


def test_options_and_data_that_are_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options, part in (
        ({"lr": 1}, "no option is called 'lr'"),
        ({"steps": 0}, "fit: steps=0: the least is 1"),
        ({"batch_size": "8"}, "batch_size='8': expected a whole number"),
        ({"epochs": 2}, "steps and epochs say the same"),
        ({"patience": 2}, "patience counts tests"),
        ({"test": 0.001}, "leaves nothing to test with"),
        ({"batch_size": 500}, "batch_size=500: there are 240 training examples only"),
    ):
        with pytest.raises(UsageError, match=part):
            fit(linear(), (X, Y), **options)
    fit(linear(), (X, Y), steps=1, run_dir=tmp_path / "run")
    assert cli.main(["resume", str(tmp_path / "run")]) == 2
    assert "was trained by `recipes.fit`" in capsys.readouterr().err


def test_options_are_arguments_in_what_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="a smaller learning_rate, such as 1e"):
        fit(linear(), (X, Y), optimizer=optim.sgd(1e30), learning_rate=1e30)
    learner = replace(averaged(linear()), update=lambda state, batch: (state, {}))
    said = r"(?s)accumulate=2: .* larger batch_size does"
    with pytest.raises(UsageError, match=said):
        fit(learner, (X, Y), accumulate=2)
    fit(linear(), (X, Y), run_dir=tmp_path / "run")
    capsys.readouterr()
    fit(linear(), (X, Y), run_dir=tmp_path / "run", steps=21, show=True)
    assert "changed: steps=21 (it was 20)" in capsys.readouterr().out


def test_a_model_of_which_all_is_frozen() -> None:
    with pytest.raises(UsageError, match="nothing of this Linear is to be trained"):
        fit(nn.freeze(linear()), (X, Y))


def test_epochs() -> None:
    usual = {"batch_size": 40, "show": False}
    assert recipes.fit(linear(), (X, Y), epochs=2, **usual).step == 12


def averaged(model: Any) -> recipes.Learner:
    """Tested with averages that are far behind the weights."""

    def loss(model: Any, batch: Any, key: Any) -> Any:
        x, y = batch
        return ((model(x)[..., 0] - y) ** 2).mean(), ({}, model)

    average = optim.average_parameters(0.9)
    optimizer = optim.chain(optim.sgd(0.1), average)
    best = "test_loss", "min"
    return recipes.Learner(model, optimizer, loss, best, evaluated=optim.averaged)


@pytest.mark.parametrize("model", [linear(), averaged(linear())])
def test_a_run_is_tested_with_other_data(tmp_path: Path, model: Any) -> None:
    options: dict[str, Any] = {"test": (X[:50], Y[:50]), "checkpoint_every": 10}
    fitted = fit(model, (X, Y), **options, run_dir=tmp_path / "run")
    kept = {"run_dir": tmp_path / "run"}
    assert recipes.evaluate(model, (X[:50], Y[:50]), **kept) == fitted.metrics
    found = recipes.evaluate(model, (X, Y), **kept)["test_loss"]
    outputs = np.asarray(fitted.model(X))[:, 0]
    np.testing.assert_allclose(found, ((outputs - Y) ** 2).mean(), rtol=1e-5)
    untrained = recipes.evaluate(model, (X, Y))["test_loss"]
    outputs = np.asarray(linear()(X))[:, 0]
    np.testing.assert_allclose(untrained, ((outputs - Y) ** 2).mean(), rtol=1e-5)
    assert found < untrained


def test_the_best_checkpoint_is_tested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From where it is well, a training with a large rate leads away."""
    model, kept = linear(2), {"run_dir": tmp_path / "run"}
    options: dict[str, Any] = {"test": 0.5, "checkpoint_every": 1, "log_every": 1}
    options |= {"optimizer": optim.sgd(30.0), "keep": 1, "batch_size": 4, **kept}
    tests = [row["test_loss"] for row in fit(model, (X, LABELS), **options).rows]
    assert min(tests) < tests[-1]
    held = np.sort(np.asarray(rng.permutation(rng.key(0), 240))[:120])
    data = X[held], LABELS[held]
    for best, said in ((True, min(tests)), (False, tests[-1])):
        found = recipes.evaluate(model, data, best=best, **kept)["test_loss"]
        assert found == pytest.approx(said, rel=1e-5)
    assert cli.main(["eval", str(tmp_path / "run")]) == 0
    assert "recipes.evaluate(model, data, run_dir=" in capsys.readouterr().out


def test_what_can_not_be_tested(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no run"):
        recipes.evaluate(linear(), (X, Y), run_dir=tmp_path)
    with pytest.raises(UsageError, match="best=True is about a run"):
        recipes.evaluate(linear(), (X, Y), best=True)
    fit(linear(), (X, Y), run_dir=tmp_path / "run", steps=1)
    with pytest.raises(UsageError, match="has no checkpoint of that kind"):
        recipes.evaluate(linear(), (X, Y), run_dir=tmp_path / "run", best=True)
    with pytest.raises(StructureError):
        recipes.evaluate(linear(2), (X, Y), run_dir=tmp_path / "run")
