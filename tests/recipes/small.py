"""Runs that are small enough for tests."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import ByteLevelBPETokenizer

from treadle import models, rng, tree, weights
from treadle.checkpoint import Manager
from treadle.models.huggingface import gpt2, resnet
from treadle.recipes import digits_mlp, loop, runs
from treadle.recipes import metrics as metrics_file
from treadle.recipes.config import Training
from treadle.recipes.runs import Run
from treadle.recipes.task import Recipe

SMALL = digits_mlp.Config(
    steps=12, batch_size=500, width=8, depth=1, log_every=2, checkpoint_every=4
)


class Silent:
    """A display that keeps what it is told, and may interrupt the training."""

    def __init__(self, interrupt_at: int | None = None) -> None:
        self.interrupt_at = interrupt_at
        self.notes: list[str] = []
        self.steps: list[int] = []
        self.tests: list[int] = []

    def start(self, step: int, steps: int) -> None:
        self.steps.append(step)

    def update(self, step: int, metrics: Mapping[str, Any]) -> None:
        self.steps.append(step)
        if step == self.interrupt_at:
            os.kill(os.getpid(), signal.SIGINT)

    def test(self, step: int, metrics: Mapping[str, Any]) -> None:
        self.tests.append(step)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def close(self) -> None:
        pass


def table(path: Path, rows: int = 300) -> Path:
    """A table: a colour and a size make the price; each eighth size is missing."""
    random = np.random.default_rng(0)
    with path.open("w") as file:
        print("size,colour,price", file=file)
        for row in range(rows):
            size, red = random.uniform(0, 50), random.random() < 0.3
            price = 1000 * size + 40000 * red
            colour = "red" if red else "blue" if row % 3 else "green"
            print(f"{size if row % 8 else ''},{colour},{price:.2f}", file=file)
    return path


def images(path: Path, count: int = 60) -> Path:
    """Images of 6x5 in three colours, of which each is a class."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 80, (count, 6, 5, 3), np.uint8)
    labels = np.arange(count) % 3
    for i, label in enumerate(labels):
        pixels[i, ..., label] += 100
    np.savez(path, x=pixels, y=labels)
    return path


def image_model(folder: Path) -> Path:
    """A folder with a ResNet that has learnt nothing."""
    folder.mkdir()
    model = models.ResNet((8, 16), (1, 1), 2, block="basic", stem=4, key=rng.key(0))
    weights.save(folder / "model.safetensors", weights.of(model, resnet.names(model)))
    options = {"model_type": "resnet", "hidden_sizes": [8, 16], "depths": [1, 1]}
    options |= {"layer_type": "basic", "embedding_size": 4, "num_channels": 3}
    options |= {"hidden_act": "relu", "downsample_in_first_stage": False}
    (folder / "config.json").write_text(json.dumps(options))
    return folder


def language_model(folder: Path, text: str) -> Path:
    """A folder with a GPT-2 that has learnt nothing, and a tokenizer of a text."""
    folder.mkdir()
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator([text], 300, special_tokens=["<end>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    entries = tokenizer.get_vocab_size()
    model = models.GPT2(entries, 16, 1, 2, positions=32, key=rng.key(0))
    arrays = weights.of(model, gpt2.names(model))
    weights.save(folder / "model.safetensors", arrays)
    options = {"model_type": "gpt2", "vocab_size": entries, "n_embd": 16}
    options |= {"n_layer": 1, "n_head": 2, "n_positions": 32, "eos_token_id": 0}
    options |= {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
    options |= {"resid_pdrop": 0.1}
    (folder / "config.json").write_text(json.dumps(options))
    return folder


def begin(
    folder: Path, config: Training = SMALL, recipe: Recipe = digits_mlp.RECIPE
) -> Run:
    """A run that has not been trained yet."""
    return runs.create(recipe, config, recipe.load(config).facts, folder)


def train(run: Run, display: Silent | None = None) -> loop.Outcome:
    """Trains a run, from its latest checkpoint."""
    data = run.data()
    learner = loop.learner_of(run.recipe, run.config, run.facts)
    return loop.train(run, data, learner, display or Silent())


def final_leaves(folder: Path) -> dict[str, bytes]:
    """Everything in a run's latest checkpoint, as bytes by path."""
    manager = Manager(folder / "checkpoints")
    leaves, form = tree.flatten(manager.restore())
    return {
        tree.key_name(path): np.asarray(leaf).tobytes()
        for path, leaf in zip(tree.paths(form), leaves, strict=True)
    }


def rows(folder: Path) -> list[dict[str, Any]]:
    """A run's metrics without the times."""
    found = metrics_file.read(folder / "metrics.jsonl")
    return [{k: v for k, v in row.items() if k != "seconds"} for row in found]


def assert_same_run(found: Path, expected: Path) -> None:
    """Two runs ended with the same bits, and have the same metrics at every step."""
    a, b = final_leaves(found), final_leaves(expected)
    assert a.keys() == b.keys()
    assert [name for name in a if a[name] != b[name]] == []
    assert rows(found) == rows(expected)
