"""Digits, text, and the order of batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from treadle import rng
from treadle.recipes import char_gpt
from treadle.recipes.data import digits, text
from treadle.recipes.data.batches import Batches, Position, in_turn
from treadle.recipes.errors import UsageError


def test_digits_are_split_once_and_for_all() -> None:
    train, test = digits.load()
    assert (len(train.digits), len(test.digits)) == (1437, 360)
    assert train.pixels.shape == (1437, 8, 8)
    assert (train.pixels.min(), train.pixels.max()) == (0, 1)
    again = digits.load()[1]
    assert np.array_equal(test.pixels, again.pixels)
    # Every digit is tested about as often.
    assert np.bincount(test.digits).min() > 20


def batches(count: int = 10, size: int = 3, seed: int = 0) -> Batches:
    return Batches(lambda numbers: numbers, count, size, rng.key(seed))


def test_an_epoch_sees_each_example_once() -> None:
    position, epochs = Position(), {0: [], 1: []}
    while position.epoch < 2:
        seen = epochs[position.epoch]
        batch, position = batches().take(position)
        seen.extend(batch.tolist())
    assert len(set(epochs[0])) == len(epochs[0]) == 9
    assert epochs[0] != epochs[1]


def test_batches_depend_on_key_and_position_alone() -> None:
    walking = batches()
    position = Position()
    for _ in range(8):
        here = position
        batch, position = walking.take(here)
        assert np.array_equal(batches().take(here)[0], batch)
    assert not np.array_equal(
        batches(seed=1).take(Position())[0], batches().take(Position())[0]
    )


def test_a_batch_larger_than_the_data() -> None:
    with pytest.raises(UsageError, match="--batch-size 11: there are 10 training"):
        batches(size=11)


def test_in_turn() -> None:
    found = [(b.tolist(), n) for b, n in in_turn(lambda numbers: numbers, 5, 2)]
    assert found == [([0, 1], 2), ([2, 3], 2), ([4], 1)]


def test_python_sources_are_the_default_corpus() -> None:
    corpus = text.load(None)
    assert 500_000 < len(corpus) <= 1_000_000
    assert "\ndef " in corpus


def test_vocabulary() -> None:
    vocabulary = text.Vocabulary.of("abracadabra", limit=4)
    assert vocabulary.characters == text.UNKNOWN + "abr"
    assert vocabulary.decode(vocabulary.encode("cab")) == text.UNKNOWN + "ab"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"Gr\xfc\xdfe", r"corpus: not UTF-8 text: byte 2 is 0xfc\n.*iconv"),
        (b"\x7fELF\0\0", r"corpus: not text: byte 4 is 0x00\n"),
        (b"too short", r"corpus: 9 characters are too few\n.*at least 1290: choose"),
        (b"", r"corpus: 0 characters are too few"),
        (None, r"corpus: No such file or directory\n"),
    ],
    ids=["latin1", "binary", "short", "empty", "missing"],
)
def test_a_corpus_that_is_none(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "corpus"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        char_gpt.load(char_gpt.Config(corpus=str(path)))


def test_a_folder_is_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Is a directory"):
        text.load(str(tmp_path))


def test_windows_of_text(tmp_path: Path) -> None:
    path = tmp_path / "corpus"
    path.write_text("".join(chr(ord("a") + n % 26) for n in range(1000)))
    config = char_gpt.Config(corpus=str(path), context=9, batch_size=4)
    data = char_gpt.load(config)
    batch, _ = data.batches.take(Position())
    assert batch.shape == (4, 10)
    # Each window is a run of the alphabet, from anywhere.
    assert set(np.diff(batch).ravel().tolist()) <= {1, -25}
    held_out = [window for windows, _ in data.test() for window in windows]
    assert len(held_out) * config.context == data.facts["test"] == 99
    assert held_out[0][0] == data.facts["characters"].index(chr(ord("a") + 900 % 26))


def test_a_byte_order_mark_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_bytes("\N{BYTE ORDER MARK}Größe\r\n".encode())
    assert text.load(str(path)) == "Größe\n"
