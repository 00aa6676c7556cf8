"""Text as numbers, one for each character; read piece by piece, however long it is."""

from __future__ import annotations

import codecs
import shlex
import shutil
import sysconfig
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from treadle.recipes.data.tokens import Utf8
from treadle.recipes.errors import UsageError

UNKNOWN = "\N{REPLACEMENT CHARACTER}"
_PYTHON_LIMIT = 1_000_000
_PIECE = 1 << 16
_IN_MEMORY = 1 << 24
"""Numbers of longer texts (in bytes) are kept in a file, of which the system holds in
memory what is used."""
_CODES = 0x110000

# Byte order marks, UTF-32's first: it begins with UTF-16's.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class Survey(NamedTuple):
    """What one reading of a text finds out.

    length: in characters.
    size: in bytes, as UTF-8.
    counts: how often each character occurs.
    checksum: tells whether two texts are the same.
    """

    length: int
    size: int
    counts: dict[str, int]
    checksum: int


class Corpus:
    """A text file; without one, a million characters of Python's standard library.

    Raises:
      UsageError: if there is no such file.

    >>> with Corpus(None) as corpus:
    ...     corpus.survey().length
    1000000
    """

    def __init__(self, path: str | None) -> None:
        self.path = path
        self._file = None if path is None else _open(path)

    def __enter__(self) -> Corpus:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"--data {self.path}" if self.path else "the default corpus"

    def pieces(self) -> Iterator[str]:
        """The text from its beginning, in pieces of bounded length.

        Raises:
          UsageError: if it is not text; it names the byte.
        """
        if self._file is None:
            return _python_sources()
        self._file.seek(0)
        return _decoded(self._file, self.name, str(self.path))

    def survey(self) -> Survey:
        """Reads all of it once."""
        counts = np.zeros(_CODES, np.int64)
        checksum = size = 0
        for piece in self.pieces():
            content = piece.encode("utf-8")
            checksum, size = zlib.crc32(content, checksum), size + len(content)
            found = np.bincount(_codes(piece))
            counts[: len(found)] += found
        present = np.flatnonzero(counts)
        numbered = {chr(code): int(counts[code]) for code in present}
        return Survey(int(counts.sum()), size, numbered, checksum)

    def numbers(self, vocabulary: Vocabulary | Utf8, length: int) -> np.ndarray:
        """All characters, or all bytes, as numbers (length,), in memory or in a file.

        Raises:
          UsageError: if there is no room for the file, or the text has changed since
            its length was found.
        """
        encoded = map(vocabulary.encode, self.pieces())
        if length * vocabulary.dtype.itemsize <= _IN_MEMORY:
            found = np.concatenate([np.zeros(0, vocabulary.dtype), *encoded])
        else:
            found = self._in_file(encoded, vocabulary.dtype)
        if len(found) != length:
            raise UsageError(f"{self.name}: was changed while it was read\nTry again.")
        return found

    def _in_file(self, pieces: Iterator[np.ndarray], dtype: np.dtype) -> np.ndarray:
        # Nobody else sees the file, and it goes when the process ends, however it does.
        # The corpus itself is no place to look at later: it might be edited meanwhile.
        try:
            with tempfile.TemporaryFile() as file:
                for piece in pieces:
                    file.write(piece.data)
                file.flush()
                return np.memmap(file, dtype, "r")
        except OSError as error:
            raise UsageError(
                f"{self.name}: its characters can't be kept as numbers in "
                f"{tempfile.gettempdir()}: {error.strerror}\n"
                "Choose another folder with the environment variable TMPDIR."
            ) from None


def _open(path: str) -> BinaryIO:
    try:
        file: Any = open(path, "rb")  # noqa: SIM115
        if file.seekable():
            return file
        # A pipe can be read only once.
        with file:
            copy: Any = tempfile.TemporaryFile()  # noqa: SIM115
            shutil.copyfileobj(file, copy)
        return copy
    except OSError as error:
        raise UsageError(
            f"--data {path}: {error.strerror}\nGive the path of a text file."
        ) from None


def _decoded(file: BinaryIO, name: str, path: str) -> Iterator[str]:
    start, rest, held = 0, b"", ""
    while True:
        read = file.read(_PIECE)
        content = rest + read
        try:
            text, used = codecs.utf_8_decode(content, "strict", not read)
        except UnicodeDecodeError as error:
            where = start + error.start
            raise _not_text(file, name, path, where, content[error.start]) from None
        zero = content.find(0, 0, used)
        if zero >= 0:
            raise _not_text(file, name, path, start + zero, 0)
        if start == 0:
            # Some editors begin a file with a byte order mark, which is no part of it.
            text = text.removeprefix("\ufeff")
        start, rest = start + used, content[used:]
        # A line's end may be cut in two.
        text = held + text
        held = "\r" if read and text.endswith("\r") else ""
        text = text.removesuffix(held)
        yield text.replace("\r\n", "\n") if "\r" in text else text
        if not read:
            return


def _not_text(
    file: BinaryIO, name: str, path: str, where: int, byte: int
) -> UsageError:
    file.seek(0)
    encoding = _encoding(file.read(4096))
    if not encoding and byte:
        encoding = "latin1"
    what = "not UTF-8 text" if encoding else "not text"
    convert = (
        " or, if it is text in another encoding, convert it: "
        f"iconv -f {encoding} -t utf-8 {shlex.quote(path)} > corpus.txt"
    )
    return UsageError(
        f"{name}: {what}: byte {where} is 0x{byte:02x}\n"
        f"Choose a text file{convert if encoding else '.'}"
    )


def _encoding(start: bytes) -> str:
    """The encoding of UTF's wide kinds that a file begins like, or nothing."""
    for mark, encoding in _MARKS.items():
        if start.startswith(mark):
            return encoding
    even, odd = start[::2].count(0), start[1::2].count(0)
    # Most characters of most texts have a zero byte there, and none here.
    if 2 * max(even, odd) > len(start) // 2 and not min(even, odd):
        return "utf-16le" if odd else "utf-16be"
    return ""


def _python_sources() -> Iterator[str]:
    folder = Path(sysconfig.get_path("stdlib"))
    left = _PYTHON_LIMIT
    for source in sorted(folder.glob("*.py")):
        text = source.read_text(encoding="utf-8")[:left]
        left -= len(text)
        yield text
        if not left:
            return
    if left == _PYTHON_LIMIT:
        raise UsageError(
            f"this Python keeps no sources in {folder}, which are the default corpus\n"
            "Choose a text: --data FILE"
        )


def _codes(text: str) -> np.ndarray:
    """Unicode's numbers of characters (length,)."""
    if text.isascii():
        return np.frombuffer(text.encode("ascii"), np.uint8)
    # A prompt may hold what is no character: bytes of another encoding.
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


class Vocabulary:
    """The characters that have numbers; the others share one.

    >>> letters = Vocabulary.of({"b": 1, "a": 3, "n": 2, "s": 1}, limit=4)
    >>> letters.characters[1:], letters.decode(letters.encode("bananas"))[:-1]
    ('abn', 'banana')
    """

    def __init__(self, characters: str) -> None:
        self.characters = characters
        self.dtype = np.min_scalar_type(max(len(characters) - 1, 0))
        self._numbers = np.zeros(_CODES, self.dtype)
        self._numbers[_codes(characters)] = np.arange(len(characters))
        self._ascii = self._numbers[: 1 << 8].tobytes() if self.dtype == "u1" else None

    @classmethod
    def of(cls, counts: Mapping[str, int], limit: int) -> Vocabulary:
        """The most frequent characters of a text, at most `limit`."""
        ranked = [pair for pair in counts.items() if pair[0] != UNKNOWN]
        # Ties are broken by the alphabet, so that the choice depends on the text alone.
        ranked.sort(key=lambda pair: (-pair[1], pair[0]))
        chosen = [c for c, _ in ranked[: limit - 1]]
        return cls(UNKNOWN + "".join(sorted(chosen)))

    def __len__(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> np.ndarray:
        """Numbers (length,), of the smallest dtype that has them."""
        if self._ascii is not None and text.isascii():
            return np.frombuffer(
                text.encode("ascii").translate(self._ascii), self.dtype
            )
        return self._numbers[_codes(text)]

    def decode(self, numbers: np.ndarray) -> str:
        """The text of some numbers."""
        return "".join(self.characters[int(n)] for n in numbers)

    def speaker(self) -> Callable[[int], str]:
        """A function from a number to its text."""
        return self.characters.__getitem__
