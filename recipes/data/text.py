"""Text as numbers: one for each character."""

from __future__ import annotations

import sysconfig
import zlib
from collections import Counter
from pathlib import Path

import numpy as np

from treadle.recipes.errors import UsageError

UNKNOWN = "\N{REPLACEMENT CHARACTER}"
_PYTHON_LIMIT = 1_000_000


def load(path: str | None) -> str:
    """A text file; without one, a million characters of Python's standard library.

    Raises:
      UsageError: if there is no such file, or it is not text; it names the byte.
    """
    return _python_sources() if path is None else _read(path)


def _python_sources() -> str:
    folder = Path(sysconfig.get_path("stdlib"))
    parts: list[str] = []
    size = 0
    for source in sorted(folder.glob("*.py")):
        if size >= _PYTHON_LIMIT:
            break
        parts.append(source.read_text(encoding="utf-8"))
        size += len(parts[-1])
    if not parts:
        raise UsageError(
            f"this Python keeps no sources in {folder}, which are the default corpus\n"
            "Choose a text: --corpus FILE"
        )
    return "".join(parts)[:_PYTHON_LIMIT]


def _read(path: str) -> str:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(
            f"--corpus {path}: {error.strerror}\nGive the path of a text file."
        ) from None
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"--corpus {path}: not UTF-8 text: byte {error.start} is "
            f"0x{content[error.start]:02x}\n"
            "Choose a text file or, if it is text in an older encoding, convert it: "
            f"iconv -f latin1 -t utf-8 {path} > corpus.txt"
        ) from None
    if "\0" in text:
        raise UsageError(
            f"--corpus {path}: not text: byte {content.index(0)} is 0x00\n"
            "Choose a text file."
        )
    # Some editors begin a file with a byte order mark, which is no part of the text.
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def checksum(text: str) -> int:
    """Tells whether two texts are the same."""
    return zlib.crc32(text.encode("utf-8"))


class Vocabulary:
    """The characters that have numbers; the others share one.

    >>> letters = Vocabulary.of("banana", limit=4)
    >>> letters.characters[1:], letters.decode(letters.encode("bananas"))[:-1]
    ('abn', 'banana')
    """

    def __init__(self, characters: str) -> None:
        self.characters = characters
        self._numbers = {c: i for i, c in enumerate(characters)}

    @classmethod
    def of(cls, text: str, limit: int) -> Vocabulary:
        """The most frequent characters of a text, at most `limit`."""
        ranked = Counter(text.replace(UNKNOWN, "")).most_common()
        # Ties are broken by the alphabet, so that the choice depends on the text alone.
        ranked.sort(key=lambda pair: (-pair[1], pair[0]))
        chosen = [c for c, _ in ranked[: limit - 1]]
        return cls(UNKNOWN + "".join(sorted(chosen)))

    def __len__(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> np.ndarray:
        """Numbers (length,)."""
        return np.array([self._numbers.get(c, 0) for c in text], np.int32)

    def decode(self, numbers: np.ndarray) -> str:
        """The text of some numbers."""
        return "".join(self.characters[int(n)] for n in numbers)
