"""Texts to learn from, as tokens: whole texts, and answers to prompts."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from treadle.recipes.errors import UsageError

Encode = Callable[[str], Sequence[int]]
_SUFFIXES = (".txt", ".md", ".jsonl")
_FORMS = """\
{where}: expected an object with "text", or with "prompt" and "completion", got {found}
One a line: {{"prompt": "2 + 2 =", "completion": " 4"}}"""


class Passage(NamedTuple):
    """A text; of what stands before `learnt_from`, nothing is to be learnt."""

    text: str
    prompt: str = ""


class Rows(NamedTuple):
    """Tokens in rows of one length, (n, length) int32, and which of them are to be
    told, (n, length) bool; how many passages there were, and a checksum of these."""

    tokens: np.ndarray
    told: np.ndarray
    passages: int
    checksum: int


def read(path: str) -> list[Passage]:
    """The passages of a file, or of all files in a folder: each text file is one, and
    so is each line of JSON.

    Raises:
      UsageError: if there are none, or a file is something else.
    """
    place = Path(path)
    files = [place]
    if place.is_dir():
        files = [f for f in sorted(place.rglob("*")) if f.suffix in _SUFFIXES]
    if not files:
        raise UsageError(f"--data {path}: holds no file of {', '.join(_SUFFIXES)}")
    found = [passage for file in files for passage in _file(file)]
    if not found:
        raise UsageError(f"--data {path}: has no text in it")
    return found


def _file(path: Path) -> Iterator[Passage]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) else f"no UTF-8: {error}"
        raise UsageError(f"--data {path}: {told}") from None
    if path.suffix != ".jsonl":
        if text.strip():
            yield Passage(text)
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield _line(line, f"--data {path}, line {number}")


def _line(line: str, where: str) -> Passage:
    try:
        found: Any = json.loads(line)
    except ValueError as error:
        raise UsageError(f"{where}: is no JSON: {error}") from None
    keys: tuple[str, ...] = ("text",)
    if isinstance(found, dict) and "text" not in found:
        keys = ("prompt", "completion")
    if not isinstance(found, dict) or not all(
        isinstance(found.get(key), str) for key in keys
    ):
        raise UsageError(_FORMS.format(where=where, found=line[:60]))
    if keys == ("text",):
        return Passage(found["text"])
    return Passage(found["prompt"] + found["completion"], found["prompt"])


def rows(passages: Sequence[Passage], encode: Encode, end: int, length: int) -> Rows:
    """Passages as rows of tokens, each passage with an end.

    Texts follow each other, and are cut into rows. An answer has a row of its own,
    filled up with ends of which nothing is learnt; what is too long loses its
    beginning, so that the answer stays.
    """
    stream: list[int] = []
    answers = []
    checksum = 0
    for passage in passages:
        for part in passage:
            checksum = zlib.crc32(part.encode(), checksum)
        tokens = [*encode(passage.text), end]
        if not passage.prompt:
            stream += tokens
            continue
        # A token across the border belongs to the answer.
        given = _common(encode(passage.prompt), tokens)
        told = [False] * given + [True] * (len(tokens) - given)
        answers.append((tokens[-length:], told[-length:]))
    count = -(-len(stream) // length)
    values = np.full((count + len(answers), length), end, np.int32)
    told_at = np.zeros(values.shape, bool)
    values[:count].reshape(-1)[: len(stream)] = stream
    told_at[:count].reshape(-1)[: len(stream)] = True
    for row, (tokens, told) in enumerate(answers, count):
        values[row, : len(tokens)], told_at[row, : len(told)] = tokens, told
    told_at[:, 0] = False  # Nothing stands before it.
    kept = told_at.any(1)
    return Rows(values[kept], told_at[kept], len(passages), checksum)


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens are the same at the beginning."""
    pairs = zip(first, second, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), len(first))
