"""Text as tokens: as the tokenizer's own library has it, from any place of a text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.recipes.small import Silent, assert_same_run, begin, train
from treadle.recipes import char_gpt, cli, loop, runs
from treadle.recipes.catalogue import RECIPES
from treadle.recipes.data.tokens import Tokens
from treadle.recipes.errors import UsageError
from treadle.recipes.task import Sampling, Trained

TEXT = "".join(f"{n} times {n} is {n * n}, größer als €{n}.\n" for n in range(500))
BYTES = np.frombuffer(TEXT.encode(), np.uint8)


def config(folder: Path, **options: object) -> char_gpt.Config:
    corpus = folder / "corpus.txt"
    corpus.write_text(TEXT)
    small = dict(steps=6, batch_size=4, context=16, width=8, layers=1, heads=2)
    often = dict(log_every=1, checkpoint_every=2, tokens="bpe", vocabulary=300)
    return char_gpt.Config(**{"data": str(corpus), **small, **often, **options})


def test_tokens_are_the_librarys_and_always_the_same() -> None:
    tokens = Tokens.of(BYTES, 300)
    assert len(tokens) == 300
    assert tokens.form == Tokens.of(BYTES, 300).form
    other = Tokenizer.from_str(tokens.form)
    numbers = tokens.encode(TEXT[:200])
    assert numbers.tolist() == other.encode(TEXT[:200]).ids
    assert len(numbers) < 150 and other.decode(numbers.tolist()) == TEXT[:200]


def test_windows_from_any_place() -> None:
    tokens = Tokens.of(BYTES, 300)
    starts = np.random.default_rng(0).integers(0, len(BYTES) - tokens.reach(33), 50)
    found = tokens.windows(BYTES, 33, starts)
    assert found.shape == (50, 33) and found.dtype == np.int32
    for start, numbers in zip(starts, found, strict=True):
        whole = BYTES[start : start + 4 * 33].tobytes().decode(errors="ignore")
        expected = tokens.encode(whole)[:33]
        assert numbers[: len(expected)].tolist() == expected.tolist()


def test_windows_of_long_tokens_are_full() -> None:
    spaces = np.frombuffer((" " * 4000 + "x\n").encode() * 5, np.uint8)
    tokens = Tokens.of(spaces, 400)
    assert tokens.longest > 30
    found = tokens.windows(spaces, 9, np.array([0, 17, 5000]))
    assert found.shape == (3, 9)


def test_bits_per_character_are_those_of_the_whole_text(tmp_path: Path) -> None:
    """By the model's own probabilities of what is held out, window by window."""
    options = config(tmp_path)
    run = begin(tmp_path / "run", options, char_gpt.RECIPE)
    outcome = train(run)
    tokens = Tokens(run.facts["tokenizer"])
    held = BYTES[-(len(BYTES) // 10) :].tobytes().decode(errors="ignore")
    numbers = tokens.encode(held)
    count = run.facts["test"]
    bits = 0.0
    for start in range(0, count, 16):
        logits = np.asarray(outcome.model(numbers[start : start + 16]), np.float64)
        of_all = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        guessed = numbers[start + 1 : start + 17]
        bits -= of_all[np.arange(16), guessed].sum() / np.log(2)
    library = Tokenizer.from_str(tokens.form)
    characters = len(library.decode(numbers[1 : count + 1].tolist()))
    assert count > 200
    assert outcome.tested["test_bits_per_character"] == pytest.approx(
        bits / characters, rel=2e-3
    )


def test_bits_per_character_of_characters(tmp_path: Path) -> None:
    outcome = train(
        begin(tmp_path / "run", config(tmp_path, tokens="characters"), char_gpt.RECIPE)
    )
    bits = outcome.tested["test_loss"] / np.log(2)
    assert outcome.tested["test_bits_per_character"] == pytest.approx(bits, rel=1e-5)


def test_an_interrupted_run_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    options = config(tmp_path, dropout=0.1)
    whole = begin(tmp_path / "whole", options, char_gpt.RECIPE)
    train(whole)
    parts = begin(tmp_path / "parts", options, char_gpt.RECIPE)
    assert train(parts, Silent(interrupt_at=3)).step == 3
    train(runs.load(parts.folder, RECIPES))
    assert_same_run(parts.folder, whole.folder)


def test_a_run_keeps_its_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where those that would be learnt now are others."""
    options = config(tmp_path)
    run = begin(tmp_path / "run", options, char_gpt.RECIPE)

    learnt = Tokens.of

    def others(text: np.ndarray, limit: int) -> Tokens:
        return learnt(text[: len(text) // 2], limit)

    monkeypatch.setattr(Tokens, "of", others)
    anew = char_gpt.load(options).facts
    assert anew["tokenizer"] != run.facts["tokenizer"]
    assert run.data().facts["tokenizer"] == run.facts["tokenizer"]
    train(run)
    assert cli.main(["eval", str(run.folder)]) == 0
    with pytest.raises(UsageError, match="have changed"):
        run.data(replace(options, vocabulary=301))


def test_a_model_of_tokens_writes_text(tmp_path: Path) -> None:
    options = config(tmp_path)
    facts = char_gpt.load(options).facts
    model = loop.learner_of(char_gpt.RECIPE, options, facts).model
    trained = Trained(model, options, facts, tmp_path)
    wanted = Sampling("größer", 40, 1.0, 1)
    pieces = list(char_gpt.sample(trained, wanted))
    assert pieces[0] == "größer" and len(pieces) == 41 and "".join(pieces[1:])
    assert pieces == list(char_gpt.sample(trained, wanted))


def test_characters_of_several_tokens_are_said_once_complete() -> None:
    tokens = Tokens.of(BYTES, 260)
    speak = tokens.speaker()
    said = [speak(int(n)) for n in tokens.encode("a\N{GRINNING FACE}b")]
    assert "".join(said) == "a\N{GRINNING FACE}b"
    assert "" in said


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'bpe'"):
        char_gpt.load(config(tmp_path, tokens="bep"))
    with pytest.raises(UsageError, match="characters are too few"):
        char_gpt.load(config(tmp_path, context=900))
