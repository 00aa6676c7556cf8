"""Privacy: gradients are cut one by one, batches drawn as the accountant assumes, the
budget is kept."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

import treadle as td
from tests.recipes.small import begin, rows, train
from treadle import optim, rng, tree
from treadle.data import Source
from treadle.recipes import cli, dp_sgd, privacy, runs, supervised
from treadle.recipes.catalogue import RECIPES
from treadle.recipes.errors import UsageError
from treadle.recipes.step import make_step
from treadle.recipes.task import Data, Learner

CONFIG = dp_sgd.Config(
    steps=4,
    batch_size=40,
    noise=4.0,
    clip=2.0,
    width=5,
    log_every=1,
    checkpoint_every=2,
)


@cache
def begun() -> tuple[Data, Learner]:
    data = dp_sgd.load(CONFIG)
    return data, dp_sgd.learner(CONFIG, data.facts, rng.key(3))


def lengths_by_loop(model: Any, batch: Any) -> tuple[np.ndarray, list[float]]:
    """The sum of the cut gradients of those drawn, one after the other, and how long
    each was."""
    facts = begun()[0].facts
    total, lengths = 0.0, []
    for image, label, taken in zip(*batch, strict=True):
        if taken:
            loss = partial(supervised.loss, facts)
            one = image[None], label[None]
            grad, _ = td.grad(loss, has_aux=True)(model, one, None)
            flat = np.concatenate([np.ravel(np.asarray(g)) for g in tree.leaves(grad)])
            lengths.append(float(np.linalg.norm(flat)))
            total = total + flat * min(1.0, CONFIG.clip / lengths[-1])
    return np.asarray(total), lengths


def test_gradients_are_cut_one_by_one() -> None:
    data, learner = begun()
    inputs, labels, taken = (x[0] for x in next(data.batches.repeat()))
    _, grads = dp_sgd.clipped(
        data.facts, CONFIG.clip, learner.model, (inputs[:32], labels[:32])
    )
    first = tuple(x[:32] for x in (inputs, labels, np.ones(32, bool)))
    total, lengths = lengths_by_loop(learner.model, first)
    assert max(lengths) > CONFIG.clip > min(lengths)  # Some are cut, some are not.
    found = np.linalg.norm(np.asarray(grads), axis=1)
    np.testing.assert_allclose(found, np.minimum(lengths, CONFIG.clip), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(grads).sum(0), total, rtol=1e-4, atol=1e-5)
    assert taken.sum() > 0


def steps_along(noise: float, seeds: range) -> list[np.ndarray]:
    """What a step of plain descent adds to the model, by the state's key."""
    data, learner = begun()
    facts = data.facts | {"noise": noise}
    optimizer = optim.sgd(1.0)
    own = replace(
        learner,
        update=lambda state, batch: dp_sgd.update(
            CONFIG, facts, optimizer, state, batch
        ),
    )
    step, batch = make_step(own), dp_sgd.drawn(_source(), CONFIG).fetch(np.array([0]))
    found = []
    for seed in seeds:
        model = tree.map(td.numpy.copy, learner.model)
        begin = dp_sgd.TrainState(
            model, optimizer.init(model), rng.key(seed), td.numpy.zeros((), td.int32)
        )
        after = step(begin, batch)[0].model
        change = tree.map(lambda a, b: a - b, after, learner.model)
        found.append(np.asarray(tree.ravel(change)[0]))
    return found


def _source() -> Source:
    found = dp_sgd.classify.images(CONFIG)
    return found.train.source


def test_a_step_is_the_sum_of_what_is_cut_and_noise() -> None:
    batch = dp_sgd.drawn(_source(), CONFIG).fetch(np.array([0]))
    total, _ = lengths_by_loop(begun()[1].model, [x[0] for x in batch])
    (quiet,) = steps_along(0.0, range(1))
    np.testing.assert_allclose(quiet, -total / CONFIG.batch_size, rtol=1e-3, atol=1e-6)
    noises = [x - quiet for x in steps_along(4.0, range(20))]
    deviation = 4.0 * CONFIG.clip / CONFIG.batch_size
    assert np.std(noises) == pytest.approx(deviation, rel=0.05)
    assert abs(np.mean(noises)) < 0.05 * deviation
    assert abs(np.corrcoef(noises[0], noises[1])[0, 1]) < 0.2


def test_each_example_is_drawn_with_the_same_chance() -> None:
    count, batches = 1000, 300
    source = Source(lambda n: (n, n), count)
    drawn = dp_sgd.drawn(source, replace(CONFIG, batch_size=100))
    often, sizes = np.zeros(count), []
    for number in range(batches):
        inputs, _, taken = (x[0] for x in drawn.fetch(np.array([number])))
        assert len(np.unique(inputs[taken])) == taken.sum() < len(taken)
        often[inputs[taken]] += 1
        sizes.append(taken.sum())
    # Binomial, both ways: five deviations.
    width = np.sqrt(0.1 * 0.9)
    assert abs(often / batches - 0.1).max() < 5 * width / np.sqrt(batches)
    assert abs(np.mean(sizes) - 100) < 5 * width * np.sqrt(count / batches)
    assert np.std(sizes) == pytest.approx(width * np.sqrt(count), rel=0.2)
    again = dp_sgd.drawn(source, replace(CONFIG, batch_size=100)).fetch(np.array([7]))
    tree.map(np.testing.assert_array_equal, again, drawn.fetch(np.array([7])))


def test_an_empty_draw_is_a_step() -> None:
    source = Source(lambda n: (n, n), 10**6)
    draws = dp_sgd.drawn(source, replace(CONFIG, batch_size=1))
    sizes = [int(draws.fetch(np.array([n]))[2].sum()) for n in range(20)]
    assert 0 in sizes and max(sizes) > 0


def test_what_is_spent_is_what_accountants_say() -> None:
    event = dp_accounting.PoissonSampledDpEvent(
        0.01, dp_accounting.GaussianDpEvent(1.5)
    )
    found = privacy.spent(1.5, 0.01, 200, 1e-5)
    exact, other = PLDAccountant(), RdpAccountant(orders=[2, 4, 8, 16, 32, 64])
    exact.compose(event, 200)
    other.compose(event, 200)
    # It is rounded up; the accountant of moments is never below.
    assert found == pytest.approx(exact.get_epsilon(1e-5), rel=0.01)
    assert found < other.get_epsilon(1e-5)
    least = privacy.noise_for(1.0, 0.01, 200, 1e-5)
    assert privacy.spent(least, 0.01, 200, 1e-5) <= 1.0
    assert privacy.spent(least - 0.003, 0.01, 200, 1e-5) > 1.0


def test_a_run_tells_what_is_spent_and_keeps_its_budget(tmp_path: Path) -> None:
    config = replace(CONFIG, noise=None, epsilon=1.0)
    run = begin(tmp_path / "run", config, dp_sgd.RECIPE)
    train(run)
    told = {row["step"]: row["epsilon"] for row in rows(run.folder) if "epsilon" in row}
    assert list(told) == [2, 4]
    assert 0 < told[2] < told[4] <= 1.0


def test_more_steps_with_noise_that_was_found_take_a_larger_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What they spend is known, and never allowed unasked."""
    folder = tmp_path / "run"
    options = ["--steps=4", "--batch-size=128", "--width=8", "--epsilon=1"]
    assert cli.main(["train", "dp-sgd", *options, "--run-dir", str(folder)]) == 0
    hint = capsys.readouterr().out.split("resume: treadle ")[1].splitlines()[0]
    noise = runs.load(folder, RECIPES).facts["noise"]
    assert cli.main(["resume", str(folder), "--steps=8"]) == 2
    said = capsys.readouterr().err
    assert "the budget --epsilon 1 is spent after 4 steps" in said
    flag = hint.split(str(folder))[1].split()
    assert flag[:2] == ["--steps", "8"] and flag[2] == "--epsilon"
    assert f"--epsilon {flag[3]};" in said
    assert cli.main(hint.split()) == 0
    told = f"so --steps 8 spend epsilon {float(flag[3]):.2f}"[:-1]
    assert told in capsys.readouterr().out
    spent = privacy.spent(noise, 128 / 1437, 8, 1e-4)
    assert rows(folder)[-1]["epsilon"] == pytest.approx(spent)
    assert 1 < spent <= float(flag[3]) < spent + 0.01
    assert runs.load(folder, RECIPES).facts["noise"] == noise
    # Another size of batches is another chance for each image.
    assert cli.main(["resume", str(folder), "--batch-size=64", "--steps=9"]) == 2
    assert "rate: 0.08" in capsys.readouterr().err


def test_more_steps_than_the_budget_are_refused() -> None:
    config = replace(CONFIG, noise=1.0, steps=1000)
    with pytest.raises(UsageError, match=r"--epsilon 3 is spent after \d+") as caught:
        dp_sgd.load(config)
    words = str(caught.value).split("after ")[1].split()
    rate, most = CONFIG.batch_size / 1437, int(words[0])
    assert (
        privacy.spent(1.0, rate, most, 1e-4)
        <= 3
        < privacy.spent(1.0, rate, most + 1, 1e-4)
    )
    with pytest.raises(UsageError, match=r"--delta 0\.01 allows"):
        dp_sgd.load(replace(CONFIG, delta=0.01))
    with pytest.raises(UsageError, match="no noise is enough"):
        privacy.noise_for(1e-6, 0.5, 1000, 1e-9)
