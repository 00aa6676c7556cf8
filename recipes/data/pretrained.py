"""A language model in a Hugging Face folder, with its tokenizer."""

from __future__ import annotations

import json
import zlib
from functools import cached_property
from pathlib import Path
from typing import Any

from treadle import models
from treadle.recipes.errors import UsageError, unplaced

_WHAT = """\
It is a folder on this machine of a GPT-2 or Llama, as transformers saves it: with
config.json, model.safetensors and tokenizer.json, such as
`hf download openai-community/gpt2 --local-dir gpt2` fetches."""
_FAMILIES = (models.GPT2, models.Llama)
_UNLIMITED = 10**9


class Folder:
    """What is in the folder that `--model` names.

    Raises:
      UsageError: here and in all methods, if it is not there.
    """

    def __init__(self, path: str | None) -> None:
        if path is None:
            raise UsageError(f"--model FOLDER is missing\n{_WHAT}")
        self.path = Path(path)
        if not (self.path / "config.json").is_file():
            there = self.path.is_dir()
            what = "has no config.json" if there else "there is no such folder"
            raise UsageError(f"--model {path}: {what}\n{_WHAT}")

    def model(self) -> models.GPT2 | models.Llama:
        """The model, for evaluation."""
        try:
            found = models.from_huggingface(self.path)
        except (ValueError, OSError) as error:
            raise UsageError(f"--model: {unplaced(error)}") from None
        if not isinstance(found, _FAMILIES):
            raise UsageError(
                f"--model {self.path}: is of a {type(found).__name__}; this recipe "
                "takes a GPT-2 or a Llama"
            )
        return found

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with the marks that the model expects."""
        return self._tokenizer(text).tokens[0].tolist()

    def decode(self, tokens: list[int]) -> str:
        """The text of tokens, without marks."""
        return self._tokenizer.decode([tokens])[0]

    @cached_property
    def ends(self) -> list[int]:
        """The tokens after which a text is over."""
        for name in ("generation_config.json", "config.json"):
            end = self._json(name).get("eos_token_id")
            if end is not None:
                return [end] if isinstance(end, int) else list(end)
        raise UsageError(
            f"--model {self.path}: config.json does not say `eos_token_id`"
        )

    def checksum(self) -> int:
        """What tells whether adapters belong to this model."""
        found = 0
        weights = [p for kind in ("safetensors", "bin") for p in self._files(kind)]
        for path in [self.path / "config.json", *weights]:
            with path.open("rb") as file:
                while piece := file.read(1 << 24):
                    found = zlib.crc32(piece, found)
        return found

    def _files(self, suffix: str) -> list[Path]:
        return sorted(self.path.glob(f"*.{suffix}"))

    @cached_property
    def _tokenizer(self) -> models.Tokenizer:
        try:
            return models.tokenizer(self.path, max_length=_UNLIMITED)
        except (ValueError, OSError) as error:
            raise UsageError(f"--model: {unplaced(error)}") from None

    def _json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            return json.loads(path.read_text()) if path.exists() else {}
        except ValueError as error:
            raise UsageError(f"--model: {path} is no JSON: {error}") from None
