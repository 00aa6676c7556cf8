"""The training loop: resume is exact, a signal stops it cleanly, damage is noticed."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.recipes.small import (
    SMALL,
    Silent,
    assert_same_run,
    begin,
    final_leaves,
    image_model,
    images,
    language_model,
    rows,
    table,
    train,
)
from treadle.checkpoint import DamagedError, Manager, commit
from treadle.errors import StructureError
from treadle.recipes import (
    cartpole_ppo,
    char_gpt,
    diffusion,
    digits_cnn,
    dp_sgd,
    finetune_lora,
    resnet,
    runs,
    tabular,
)
from treadle.recipes.catalogue import RECIPES
from treadle.recipes.config import Training
from treadle.recipes.errors import UsageError
from treadle.recipes.interrupt import Interrupts
from treadle.recipes.task import Recipe

CORPUS = "".join(f"{n} times {n} is {n * n}.\n" for n in range(300))


def small(name: str, folder: Path) -> Training:
    """Options of a recipe with which a test is short."""
    if name == "digits-mlp":
        return replace(SMALL, dropout=0.2)
    if name == "digits-cnn":
        return digits_cnn.Config(
            steps=6, batch_size=100, channels=2, log_every=1, checkpoint_every=2
        )
    if name == "tabular":
        return tabular.Config(
            steps=6,
            batch_size=200,
            width=4,
            data=str(table(folder / "prices.csv")),
            target="colour",
            log_every=1,
            checkpoint_every=2,
        )
    if name == "dp-sgd":
        return dp_sgd.Config(
            steps=6, batch_size=64, noise=4.0, width=4, log_every=1, checkpoint_every=2
        )
    if name == "cartpole-ppo":
        return cartpole_ppo.Config(
            steps=6, batch_size=4, moves=8, width=4, checkpoint_every=2
        )
    if name == "resnet":
        return resnet.Config(
            steps=4,
            batch_size=16,
            data=str(images(folder / "images.npz")),
            pretrained=str(image_model(folder / "model")),
            log_every=1,
            checkpoint_every=2,
            average=0.9,
        )
    if name == "diffusion":
        return diffusion.Config(
            steps=4,
            batch_size=16,
            data=str(images(folder / "images.npz")),
            width=8,
            levels=1,
            log_every=1,
            checkpoint_every=2,
        )
    corpus = folder / "corpus.txt"
    corpus.write_text(CORPUS)
    if name == "finetune-lora":
        return finetune_lora.Config(
            steps=4,
            batch_size=4,
            model=str(language_model(folder / "model", CORPUS)),
            data=str(corpus),
            context=16,
            log_every=1,
            checkpoint_every=2,
            dropout=0.1,
        )
    return char_gpt.Config(
        steps=6,
        batch_size=4,
        data=str(corpus),
        context=16,
        width=8,
        layers=1,
        heads=2,
        log_every=1,
        checkpoint_every=2,
        dropout=0.1,
    )


TESTED = {
    "dp-sgd": {"test_loss", "test_accuracy", "epsilon"},
    "cartpole-ppo": {"test_return"},
    "char-gpt": {"test_loss", "test_accuracy", "test_bits_per_character"},
    "diffusion": {"test_loss"},
}
# It compiles for long.
SLOW = {"diffusion"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in RECIPES],
)
def test_an_interrupted_run_ends_as_if_it_had_not_been(
    tmp_path: Path, name: str
) -> None:
    recipe: Recipe = RECIPES[name]
    config = small(name, tmp_path)
    whole = begin(tmp_path / "whole", config, recipe)
    outcome = train(whole)
    assert (outcome.step, outcome.interrupted) == (config.steps, None)
    assert set(outcome.tested) == TESTED.get(name, {"test_loss", "test_accuracy"})

    parts = begin(tmp_path / "parts", config, recipe)
    outcome = train(parts, Silent(interrupt_at=3))
    assert outcome.step == 3
    assert outcome.interrupted is not None
    outcome = train(runs.load(parts.folder, RECIPES))
    assert outcome.step == config.steps
    assert_same_run(parts.folder, whole.folder)


def test_checkpoints_tests_and_rows_come_when_they_are_due(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    display = Silent()
    train(run, display)
    assert display.steps == list(range(SMALL.steps + 1))
    assert display.tests == [4, 8, 12]
    assert Manager(run.checkpoints).all_steps() == [4, 8, 12]
    assert [row["step"] for row in rows(run.folder)] == [2, 4, 6, 8, 10, 12]
    tested = [row["step"] for row in rows(run.folder) if "test_accuracy" in row]
    assert tested == [4, 8, 12]
    lines = run.metrics.read_text().splitlines()
    times = [json.loads(line)["seconds"] for line in lines]
    assert times == sorted(times)


def test_other_seeds_give_other_runs(tmp_path: Path) -> None:
    one, other = begin(tmp_path / "0"), begin(tmp_path / "1", replace(SMALL, seed=1))
    train(one)
    train(other)
    assert rows(one.folder) != rows(other.folder)


def test_options_that_do_not_fit_leave_the_run_as_it_is(tmp_path: Path) -> None:
    run = begin(tmp_path / "run", small("dp-sgd", tmp_path), RECIPES["dp-sgd"])
    train(run)
    settings = run.settings.read_text()
    with pytest.raises(UsageError, match="--accumulate 2: this recipe makes its steps"):
        train(replace(run, config=replace(run.config, accumulate=2)))
    assert run.settings.read_text() == settings


def test_a_complete_run_is_left_as_it_is(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    first = train(run)
    before = final_leaves(run.folder), rows(run.folder)
    again = train(run)
    assert (again.step, again.tested) == (first.step, first.tested)
    assert (final_leaves(run.folder), rows(run.folder)) == before


def test_a_complete_run_is_rid_of_leftovers(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    train(run)
    made = Path(commit.temporary(str(run.checkpoints / "9")))
    nobody = f"-{2**22 + 1}-"
    left = made.with_name(made.name.replace(f"-{os.getpid()}-", nobody))
    (left / "default").mkdir(parents=True)
    train(run)
    assert not left.exists()


def test_a_run_goes_on_beyond_its_end(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    train(run)
    longer = replace(run, config=replace(SMALL, steps=16))
    assert train(longer).step == 16
    assert [row["step"] for row in rows(run.folder)] == list(range(2, 17, 2))


def test_an_interrupt_before_the_first_step(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")

    class Early(Silent):
        def start(self, step: int, steps: int) -> None:
            self.interrupt_at = step
            self.update(step, {})

    outcome = train(run, Early())
    assert (outcome.step, outcome.interrupted is not None) == (0, True)
    assert not run.checkpoints.exists()
    assert train(run).step == SMALL.steps


def damage(run: runs.Run, step: int) -> None:
    """Cuts the largest data file of a checkpoint in half."""
    files = (run.checkpoints / str(step) / "default" / "d").iterdir()
    largest = max(files, key=lambda path: path.stat().st_size)
    content = largest.read_bytes()
    largest.write_bytes(content[: len(content) // 2])


def test_a_truncated_checkpoint_is_passed_over(tmp_path: Path) -> None:
    whole, run = begin(tmp_path / "whole"), begin(tmp_path / "run")
    train(whole)
    train(run)
    damage(run, 12)
    display = Silent()
    train(run, display)
    assert display.steps[0] == 8
    assert len(display.notes) == 1
    assert "step 12 cannot be restored" in display.notes[0]
    assert "Step 8 is restored instead" in display.notes[0]
    assert_same_run(run.folder, whole.folder)


def test_no_checkpoint_is_intact(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    train(run)
    for step in (4, 8, 12):
        damage(run, step)
    with pytest.raises(DamagedError, match="No earlier step is intact"):
        train(run)


def test_a_checkpoint_of_another_model(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    train(run)
    wider = replace(run, config=replace(SMALL, width=9))
    with pytest.raises(StructureError) as caught:
        train(wider)
    message = str(caught.value)
    assert "model.out.weight: float32[9,10] expected, float32[8,10] saved" in message
    assert str(run.checkpoints / "12") in message


def test_an_interrupt_in_a_finalizer_waits_for_the_step() -> None:
    class Freed:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGTERM)
        Freed()  # Python would print what is raised there, and go on
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert interrupts.received == signal.SIGTERM
