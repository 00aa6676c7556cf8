"""Digits, text, and the order of batches."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from treadle.data import Source
from treadle.recipes import char_gpt
from treadle.recipes.config import Training
from treadle.recipes.data import digits, text
from treadle.recipes.errors import UsageError
from treadle.recipes.task import batches, in_turn


def test_digits_are_split_once_and_for_all() -> None:
    found = digits.load()
    train, test = found.train, found.test
    assert test is not None
    assert (len(train), len(test)) == (1437, 360)
    assert train.inputs.shape == (1437, 8, 8)
    assert (train.inputs.min(), train.inputs.max()) == (0, 1)
    again = digits.load().test
    assert again is not None and np.array_equal(test.inputs, again.inputs)
    # Every digit is tested about as often.
    assert np.bincount(test.labels).min() > 20


def numbers(count: int) -> Source:
    return Source(lambda numbers: numbers, count)


def test_a_batch_larger_than_the_data() -> None:
    with pytest.raises(UsageError, match="--batch-size 11: there are 10 training"):
        batches(numbers(10), Training(batch_size=11))


def test_in_turn() -> None:
    found = [(b.tolist(), n) for b, n in in_turn(numbers(5), 2)]
    assert found == [([0, 1], 2), ([2, 3], 2), ([4], 1)]


def read(path: Path | None) -> str:
    with text.Corpus(None if path is None else str(path)) as corpus:
        return "".join(corpus.pieces())


def test_python_sources_are_the_default_corpus() -> None:
    corpus = read(None)
    assert 500_000 < len(corpus) <= 1_000_000
    assert "\ndef " in corpus


def test_vocabulary() -> None:
    counts = Counter("abracadabra" + 7 * text.UNKNOWN)
    vocabulary = text.Vocabulary.of(counts, limit=4)
    assert vocabulary.characters == text.UNKNOWN + "abr"
    assert vocabulary.decode(vocabulary.encode("cab")) == text.UNKNOWN + "ab"
    assert vocabulary.encode("\udcff\U0010ffff").tolist() == [0, 0]


@pytest.mark.parametrize("size", [256, 257, 70000])
def test_a_large_vocabulary(size: int) -> None:
    known = [chr(n) for n in range(33, 0xD800)] + [
        chr(n) for n in range(1 << 16, 90000)
    ]
    vocabulary = text.Vocabulary("".join(known[:size]))
    numbers = vocabulary.encode(vocabulary.characters)
    assert numbers.tolist() == list(range(size))
    assert numbers.dtype.itemsize == {256: 1, 257: 2, 70000: 4}[size]


AWKWARD = "Größe\r\n\r\r\n𝄞 naïve\n\ufeff€\r" * 5 + "\r"


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 64, 1 << 20])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_text_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, mark: str
) -> None:
    monkeypatch.setattr(text, "_PIECE", piece)
    path = tmp_path / "corpus.txt"
    path.write_bytes((mark + AWKWARD).encode())
    plain = AWKWARD.replace("\r\n", "\n")
    vocabulary = text.Vocabulary.of(Counter(plain), 9)
    numbers = [max(vocabulary.characters.find(c), 0) for c in plain]
    with text.Corpus(str(path)) as corpus:
        assert "".join(corpus.pieces()) == plain
        survey = corpus.survey()
        content = plain.encode()
        expected = len(plain), len(content), Counter(plain), zlib.crc32(content)
        assert survey == expected
        assert corpus.numbers(vocabulary, len(plain)).tolist() == numbers
        monkeypatch.setattr(text, "_IN_MEMORY", 0)
        stored = corpus.numbers(vocabulary, len(plain))
        assert isinstance(stored, np.memmap)
        assert stored.tolist() == numbers
        path.write_bytes(AWKWARD.encode() * 2)
        with pytest.raises(UsageError, match="was changed while it was read"):
            corpus.numbers(vocabulary, len(plain))


def test_a_text_from_a_pipe() -> None:
    reader, writer = os.pipe()
    os.write(writer, "Größe".encode())
    os.close(writer)
    with text.Corpus(f"/dev/fd/{reader}") as corpus:
        assert corpus.survey().length == 5
        assert "".join(corpus.pieces()) == "Größe"
    os.close(reader)


def test_no_room_for_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "_IN_MEMORY", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    path = tmp_path / "corpus.txt"
    path.write_text("text" * 1000)
    with pytest.raises(UsageError, match=r"missing: No such file(.|\n)*TMPDIR"):
        char_gpt.load(char_gpt.Config(data=str(path)))


@pytest.mark.parametrize(
    ("tokens", "length"),
    [
        ("characters", 40_000_000),
        pytest.param("characters", 200_000_000, marks=pytest.mark.slow),
        pytest.param("bpe", 200_000_000, marks=pytest.mark.slow),
    ],
)
def test_a_long_text_takes_little_memory(
    tmp_path: Path, tokens: str, length: int
) -> None:
    """Less than one byte of memory for each character."""
    path = tmp_path / "corpus.txt"
    line = "the quick brown fox jumps over the lazy dog; größer, naïve, 3.14159\n"
    path.write_text(line * (length // len(line)))
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(path), tokens],
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert float(done.stdout) < 40


LOAD = """
import resource, sys
from treadle.recipes import char_gpt
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
warm = char_gpt.load(char_gpt.Config(tokens=sys.argv[2]))
next(warm.batches.repeat())
before = peak()
data = char_gpt.load(char_gpt.Config(data=sys.argv[1], tokens=sys.argv[2]))
data.batches.restore(data.batches.state() | {"epoch": 3, "batch": 1000})
batch = next(data.batches.repeat())
after = peak()
assert batch.shape == (16, 129) and batch.dtype == "int32"
print((after - before) / 1024)
"""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"Gr\xfc\xdfe", r"corpus: not UTF-8 text: byte 2 is 0xfc\n.*-f latin1 -t"),
        (b"a" * 99 + b"\xe2\x82", r"corpus: not UTF-8 text: byte 99 is 0xe2\n"),
        ("text\n".encode("utf-16"), r"byte 0 is 0xff\n.*iconv -f utf-16 -t utf-8"),
        ("text\n".encode("utf-16be"), r"byte 0 is 0x00\n.*-f utf-16be -t"),
        ("text\n".encode("utf-16le"), r"UTF-8 text: byte 1 is 0x00\n.*-f utf-16le -t"),
        ("text\n".encode("utf-32"), r"byte 0 is 0xff\n.*-f utf-32 -t"),
        (b"\x7fELF\0\0", r"corpus: not text: byte 4 is 0x00\n"),
        (b"too short", r"corpus: 9 characters are too few\n.*at least 1290: choose"),
        (b"", r"corpus: 0 characters are too few"),
        (None, r"corpus: No such file or directory\n"),
    ],
    ids=[
        "latin1",
        "cut",
        "utf16",
        "utf16be",
        "utf16le",
        "utf32",
        "binary",
        "short",
        "empty",
        "missing",
    ],
)
def test_a_corpus_that_is_none(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "corpus"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        char_gpt.load(char_gpt.Config(data=str(path)))


def test_a_folder_is_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Is a directory"):
        text.Corpus(str(tmp_path))


def test_a_command_can_be_pasted(tmp_path: Path) -> None:
    path = tmp_path / "my corpus.txt"
    path.write_bytes(b"Gr\xfc\xdfe")
    with pytest.raises(UsageError) as caught:
        char_gpt.load(char_gpt.Config(data=str(path)))
    assert f"-t utf-8 '{path}' > corpus.txt" in str(caught.value)


def test_windows_of_text(tmp_path: Path) -> None:
    path = tmp_path / "corpus"
    path.write_text("".join(chr(ord("a") + n % 26) for n in range(1000)))
    config = char_gpt.Config(data=str(path), context=9, batch_size=4)
    data = char_gpt.load(config)
    batch = next(data.batches.repeat())
    assert batch.shape == (4, 10)
    # Each window is a run of the alphabet, from anywhere.
    assert set(np.diff(batch).ravel().tolist()) <= {1, -25}
    held_out = [window for windows, _ in data.test() for window in windows]
    assert len(held_out) * config.context == data.facts["test"] == 99
    assert held_out[0][0] == data.facts["characters"].index(chr(ord("a") + 900 % 26))


def test_a_byte_order_mark_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_bytes("\N{BYTE ORDER MARK}Größe\r\n".encode())
    assert read(path) == "Größe\n"
