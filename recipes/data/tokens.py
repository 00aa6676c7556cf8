"""Text as tokens: pieces of words, which a tokenizer has found to be frequent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from treadle.optional import needed_for

_LEARNT_FROM, _PIECE = 1 << 21, 1 << 16
"""A tokenizer learns from so many bytes, in pieces from all over the text."""
_USUAL = 4
"""Bytes that a token has, seldom more."""


class Utf8:
    """A text's bytes, in place of a `Vocabulary`."""

    dtype = np.dtype(np.uint8)

    def encode(self, text: str) -> np.ndarray:
        """Bytes (length,)."""
        return np.frombuffer(text.encode("utf-8"), np.uint8)


class Held(NamedTuple):
    """Tokens from the beginning of a text, and how many characters all but the first
    have."""

    numbers: np.ndarray
    characters: int


class Tokens:
    """Byte-pair encoding (R. Sennrich et al., *Neural Machine Translation of Rare Words
    with Subword Units*, 2016), of bytes: every text can be written.

    Args:
      form: all of it, as JSON.

    Raises:
      MissingPackageError: without the package `tokenizers`.
    """

    def __init__(self, form: str) -> None:
        with needed_for("--tokens bpe"):
            from tokenizers import Tokenizer

        self.form = form
        self._tokenizer = Tokenizer.from_str(form)
        # Each letter of a token stands for a byte.
        self.longest = max(map(len, self._tokenizer.get_vocab()))

    @classmethod
    def of(cls, text: np.ndarray, limit: int) -> Tokens:
        """At most `limit` tokens, 256 of them bytes, that suit a text (bytes,)."""
        with needed_for("--tokens bpe"):
            from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=limit,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        pieces = max(1, min(_LEARNT_FROM, len(text)) // _PIECE)
        starts = np.linspace(0, max(len(text) - _PIECE, 0), pieces).astype(np.int64)
        made.train_from_iterator((_text(text[s : s + _PIECE]) for s in starts), trainer)
        return cls(made.to_str())

    def __len__(self) -> int:
        return self._tokenizer.get_vocab_size()

    def encode(self, text: str) -> np.ndarray:
        """Numbers (length,)."""
        return np.array(self._tokenizer.encode(text).ids, np.int32)

    def speaker(self) -> Callable[[int], str]:
        """A function from one number after the other to the text that they add: none
        while a character is not complete."""
        with needed_for("--tokens bpe"):
            from tokenizers.decoders import DecodeStream

        stream: Any = DecodeStream(skip_special_tokens=False)
        return lambda number: stream.step(self._tokenizer, number) or ""

    def reach(self, size: int) -> int:
        """In how many bytes there are `size` tokens, whatever they are."""
        return size * self.longest + _USUAL  # Characters may be cut at both ends.

    def windows(self, text: np.ndarray, size: int, starts: np.ndarray) -> np.ndarray:
        """The first tokens (n, size) after some places of a text (bytes,)."""
        usual = min(_USUAL * size, self.reach(size))
        found = self._encoded([_text(text[s : s + usual]) for s in starts])
        for place in [n for n, ids in enumerate(found) if len(ids) < size]:
            whole = text[starts[place] : starts[place] + self.reach(size)]
            found[place] = self._encoded([_text(whole)])[0]
        return np.array([ids[:size] for ids in found], np.int32)

    def held(self, text: np.ndarray, size: int, most: int) -> Held:
        """Tokens from the beginning of a text (bytes,): in windows of `size`, `most` of
        them or fewer, and one more; all but the first are to be guessed."""
        encoding = self._tokenizer.encode(_text(text[: _USUAL * size * most]))
        count = min((len(encoding) - 1) // size, most) * size
        characters = encoding.offsets[count][1] - encoding.offsets[0][1]
        return Held(np.array(encoding.ids[: count + 1], np.int32), characters)

    def _encoded(self, texts: Sequence[str]) -> list[list[int]]:
        return [e.ids for e in self._tokenizer.encode_batch_fast(texts)]


def _text(content: np.ndarray) -> str:
    """Bytes as text, without the characters that are cut at its ends."""
    return content.tobytes().decode("utf-8", "ignore")
