"""The recipe of adapters: what it learns from, what it saves, writes and exports."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.recipes.small import begin, final_leaves, language_model, train
from treadle import models, nn, rng, weights
from treadle.recipes import cli, finetune_lora
from treadle.recipes.data import passages
from treadle.recipes.errors import UsageError

TEXT = "".join(f"{n} times {n} is {n * n}.\n" for n in range(200))


@pytest.fixture
def config(tmp_path: Path) -> finetune_lora.Config:
    """Options of a short training."""
    (tmp_path / "text.txt").write_text(TEXT)
    return finetune_lora.Config(
        model=str(language_model(tmp_path / "model", TEXT)),
        data=str(tmp_path / "text.txt"),
        steps=3,
        batch_size=4,
        context=16,
        checkpoint_every=3,
    )


def test_adapters_alone_are_trained_and_saved(
    tmp_path: Path, config: finetune_lora.Config
) -> None:
    run = begin(tmp_path / "run", config, finetune_lora.RECIPE)
    outcome = train(run)
    saved = [name for name in final_leaves(run.folder) if "attention" in name]
    assert len(saved) == 4 * 2 * 3  # the adapters, and two moments of each
    assert all(name.endswith(("['lora_a']", "['lora_b']")) for name in saved)
    assert not [
        name for name in final_leaves(run.folder) if name.endswith("['weight']")
    ]
    before = nn.parameters(nn.unfreeze(models.from_huggingface(config.model or "")))
    after = nn.parameters(nn.unfreeze(outcome.model))
    for name, value in before.items():
        layer, _, leaf = name.rpartition(".")
        found = after.get(name, after.get(f"{layer}.layer.{leaf}"))
        np.testing.assert_array_equal(found, value, err_msg=name)
    moved = [n for n, x in after.items() if n.endswith("lora_b") and (x != 0).any()]
    assert len(moved) == 4  # query, key, value and out of one layer


@pytest.mark.slow
def test_it_writes_and_exports(
    tmp_path: Path, config: finetune_lora.Config, capsys: Any
) -> None:
    quick = replace(config, learning_rate=0.1)
    run = begin(tmp_path / "run", quick, finetune_lora.RECIPE)
    outcome = train(run)

    def written(*options: str) -> str:
        capsys.readouterr()
        assert cli.main(["sample", str(run.folder), "--length=9", *options]) == 0
        return capsys.readouterr().out

    assert written("--prompt=2 times 2") == written("--prompt=2 times 2")
    assert written("--prompt=2 times 2").startswith("2 times 2")
    assert written("--seed=1") != written("--seed=2")
    assert cli.main(["sample", str(run.folder), "--length=32"]) == 2
    assert "the model knows 32 tokens" in capsys.readouterr().err

    folder = tmp_path / "exported"
    assert cli.main(["export", str(run.folder), str(folder)]) == 0
    exported = models.from_huggingface(folder)
    tokens = np.arange(10)[None]
    whole = nn.inference(outcome.model)
    np.testing.assert_allclose(exported(tokens), whole(tokens), 1e-4, 1e-5)
    base = models.from_huggingface(config.model or "")
    assert np.abs(np.asarray(exported(tokens) - base(tokens))).max() > 1e-2
    tokenizer = models.tokenizer(folder)
    likeliest = tokenizer("2 times").tokens[0].tolist()
    for _ in range(9):
        likeliest.append(int(whole([likeliest])[0, -1].argmax()))
    greedy = tokenizer.decode([likeliest])[0]
    assert written("--prompt=2 times", "--temperature=0") == greedy + "\n"
    assert cli.main(["export", str(run.folder), str(folder)]) == 2


def test_another_model_is_refused(
    tmp_path: Path, config: finetune_lora.Config, capsys: Any
) -> None:
    run = begin(tmp_path / "run", config, finetune_lora.RECIPE)
    train(run)
    path = Path(config.model or "") / "model.safetensors"
    arrays = weights.load(path)
    weights.save(path, arrays | {"ln_f.bias": arrays["ln_f.bias"] + 1})
    assert cli.main(["resume", str(run.folder), "--steps=6"]) == 2
    assert "have changed, or how they are read (model:" in capsys.readouterr().err


def letters(text: str) -> list[int]:
    return [ord(c) for c in text]


def test_rows_of_texts_and_answers() -> None:
    """Texts follow each other; of a prompt nothing is learnt, nor of what fills up."""
    found = passages.rows(
        [
            passages.Passage("abcd"),
            passages.Passage("2+2=4", "2+2="),
            passages.Passage("xyz"),
            passages.Passage("a long question: no", "a long question:"),
        ],
        letters,
        0,
        6,
    )
    shown = ["".join(chr(t) if t else "." for t in row) for row in found.tokens]
    told = ["".join("x" if t else " " for t in row) for row in found.told]
    assert shown == ["abcd.x", "yz....", "2+2=4.", "n: no."]
    assert told == [" xxxxx", " xx   ", "    xx", "  xxxx"]
    assert (found.passages, found.tokens.dtype) == (4, np.int32)


def test_a_token_across_the_border_belongs_to_the_answer() -> None:
    def encode(text: str) -> list[int]:
        return letters(text.replace("= ", "~"))

    (answer,) = [passages.Passage("1= 1", "1=")]
    found = passages.rows([answer], encode, 0, 8)
    assert found.tokens[0, :4].tolist() == [*letters("1~1"), 0]
    assert found.told[0].tolist() == [False, True, True, True] + [False] * 4


def test_the_loss_is_of_what_is_told(config: finetune_lora.Config) -> None:
    """Against sums of the logarithms of probabilities, in NumPy."""
    model = models.from_huggingface(config.model or "")
    random = np.random.default_rng(0)
    tokens = random.integers(0, 200, (3, 9)).astype(np.int32)
    told = random.random((3, 9)) < 0.5
    value, (found, _) = finetune_lora.loss(None, model, (tokens, told), None)
    logits = np.asarray(model(tokens), np.float64)
    chances = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    at = [(i, j) for i in range(3) for j in range(1, 9) if told[i, j]]
    expected = -np.mean([chances[i, j - 1, tokens[i, j]] for i, j in at])
    hits = np.mean([logits[i, j - 1].argmax() == tokens[i, j] for i, j in at])
    assert float(value) == pytest.approx(expected, rel=1e-5)
    assert float(found["accuracy"]) == pytest.approx(hits)


def test_what_can_not_be_learnt(tmp_path: Path, config: finetune_lora.Config) -> None:
    def refused(*parts: str, **options: Any) -> None:
        chosen = replace(config, **options)
        with pytest.raises(UsageError) as caught:
            data = finetune_lora.load(chosen)
            finetune_lora.learner(chosen, data.facts, rng.key(0))
        for part in parts:
            assert part in str(caught.value)
        assert ".py:" not in str(caught.value)

    path = tmp_path / "other.jsonl"
    other = str(path)
    refused("--model FOLDER is missing", "hf download", model=None)
    refused("there is no such folder", "config.json", model="nowhere")
    refused("has no config.json", model=str(tmp_path))
    refused("--data PATH is missing", data=None)
    refused("No such file", data="nowhere.txt")
    refused("holds no file of .txt", data=config.model)
    for line, message in (
        ("", "has no text in it"),
        ("{", "line 1: is no JSON"),
        ("[1]", "line 1: expected an object"),
        ('{"prompt": "a"}', 'with "prompt" and "completion", got {"prompt": "a"}'),
        ('{"text": "short"}', "1 rows of --context 16 tokens can be made"),
    ):
        path.write_text(line)
        refused(message, data=other)
    refused("--context 33:", "knows 32 positions", context=33)
    refused("--adapt", "layers.*.attention.query", adapt="nothing")
    refused("--batch-size 4000", batch_size=4000)
    options = json.loads((Path(config.model or "") / "config.json").read_text())
    written = json.dumps(options | {"eos_token_id": None})
    (Path(config.model or "") / "config.json").write_text(written)
    refused("does not say `eos_token_id`")
