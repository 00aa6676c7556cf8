"""Texts to arrays of tokens, by the package `tokenizers`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from treadle.errors import at, user_source
from treadle.optional import needed_for

_NO_FILES = """\
{folder} has no tokenizer: {found}{at}
Needed is tokenizer.json; or vocab.txt (BERT); or vocab.json and merges.txt (GPT-2)."""
# What transformers writes where there is no limit.
_UNLIMITED = 10**9


class Tokens(NamedTuple):
    """Texts as tokens, padded to the longest: arrays of (texts, length).

    mask is True at tokens and False at padding, which stands behind them. segments is 1
    at the tokens of a second text.
    """

    tokens: np.ndarray
    mask: np.ndarray
    segments: np.ndarray


class Tokenizer:
    """Texts to arrays, and back. Made by `tokenizer`."""

    def __init__(self, inner: Any, max_length: int | None) -> None:
        self._inner, self.max_length = inner, max_length
        inner.no_padding()
        inner.no_truncation()
        if max_length is not None:
            inner.enable_truncation(max_length)

    @property
    def entries(self) -> int:
        """The number of tokens that there are."""
        return self._inner.get_vocab_size()

    def __call__(
        self, texts: str | Sequence[str], second: Sequence[str] | None = None
    ) -> Tokens:
        """The tokens of texts, with the marks that their model expects.

        Args:
          second: for models of pairs of texts, the other one of each.

        Raises:
          ValueError: if there are more of the first than of the second.
        """
        texts = [texts] if isinstance(texts, str) else list(texts)
        if second is None:
            found = self._inner.encode_batch(texts)
        else:
            second = [second] if isinstance(second, str) else list(second)
            if len(texts) != len(second):
                raise ValueError(
                    f"a tokenizer of pairs got {len(texts)} first and {len(second)} "
                    f"second texts{at(user_source())}"
                )
            found = self._inner.encode_batch(list(zip(texts, second, strict=True)))
        shape = len(found), max((len(f.ids) for f in found), default=0)
        out = Tokens(
            np.zeros(shape, np.int32), np.zeros(shape, bool), np.zeros(shape, np.int32)
        )
        for row, f in enumerate(found):
            out.tokens[row, : len(f.ids)] = f.ids
            out.mask[row, : len(f.ids)] = True
            out.segments[row, : len(f.ids)] = f.type_ids
        return out

    def decode(self, tokens: Any) -> list[str]:
        """Texts of tokens, (texts, length) or a list of rows, without the marks."""
        return self._inner.decode_batch([np.asarray(row).tolist() for row in tokens])


def tokenizer(
    folder: str | os.PathLike[str], *, max_length: int | None = None
) -> Tokenizer:
    """The tokenizer of a Hugging Face folder.

    Args:
      folder: with tokenizer.json; or vocab.txt, as BERT has; or vocab.json and
        merges.txt, as GPT-2 has.
      max_length: longer texts are cut; by default the largest length that the folder
        names.

    Raises:
      MissingPackageError: without the package tokenizers.
      FileNotFoundError: if the folder has none of these files.

    ```py
    tokens, mask, segments = models.tokenizer(folder)(["A text.", "A longer text."])
    ```
    """
    folder = Path(folder)
    settings = _json(folder / "tokenizer_config.json")
    if max_length is None:
        max_length = _max_length(folder, settings)
    return Tokenizer(_read(folder, settings), max_length)


def _read(folder: Path, settings: dict[str, Any]) -> Any:
    with needed_for("models.tokenizer"):
        import tokenizers
    if (folder / "tokenizer.json").exists():
        return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    if (folder / "vocab.txt").exists():
        return tokenizers.BertWordPieceTokenizer(
            str(folder / "vocab.txt"),
            lowercase=settings.get("do_lower_case", True),
            strip_accents=settings.get("strip_accents"),
            handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        )
    if (folder / "merges.txt").exists() and (folder / "vocab.json").exists():
        return tokenizers.ByteLevelBPETokenizer(
            str(folder / "vocab.json"),
            str(folder / "merges.txt"),
            add_prefix_space=settings.get("add_prefix_space", False),
        )
    found = ", ".join(sorted(p.name for p in folder.glob("*"))) or "it is empty"
    raise FileNotFoundError(
        _NO_FILES.format(folder=folder, found=found, at=at(user_source()))
    )


def _max_length(folder: Path, settings: dict[str, Any]) -> int | None:
    config = _json(folder / "config.json")
    for found in (
        _json(folder / "sentence_bert_config.json").get("max_seq_length"),
        settings.get("model_max_length"),
        config.get("max_position_embeddings"),
        config.get("n_positions"),
    ):
        if found is not None and found < _UNLIMITED:
            return int(found)
    return None


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}
