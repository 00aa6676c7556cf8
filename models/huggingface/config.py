"""What config.json of a Hugging Face folder says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import treadle.numpy as tnp
from treadle import nn
from treadle.errors import at, user_source
from treadle.models.parts import Activation, exact_gelu


def _quick_gelu(x: Any) -> Any:
    return x * nn.sigmoid(1.702 * x)


_ACTIVATIONS: Mapping[str, Activation] = {
    "gelu": exact_gelu,
    "gelu_fast": nn.gelu,
    "gelu_new": nn.gelu,
    "gelu_pytorch_tanh": nn.gelu,
    "quick_gelu": _quick_gelu,
    "relu": nn.relu,
    "silu": nn.silu,
    "swish": nn.silu,
    "tanh": tnp.tanh,
}


class Config:
    """The options of a model, by their names in config.json."""

    def __init__(self, path: Path, options: Mapping[str, Any]) -> None:
        self.path, self.options = path, options

    @classmethod
    def read(cls, folder: Path) -> Config:
        """
        Raises:
          FileNotFoundError: if the folder has no config.json.
        """
        path = folder / "config.json"
        if not path.exists():
            raise FileNotFoundError(
                f"{folder} has no config.json, so it says of no model what it is"
                f"{at(user_source())}\nA folder is needed as `save_pretrained` writes "
                "it. For a single file: `weights.load`, then `weights.into` a model."
            )
        return cls(path, json.loads(path.read_text()))

    def __getitem__(self, name: str) -> Any:
        try:
            return self.options[name]
        except KeyError:
            raise ValueError(f"{self.path} does not say `{name}`") from None

    def get(self, name: str, default: Any = None) -> Any:
        """An option, or what it is where it is not said, or null."""
        found = self.options.get(name)
        return default if found is None else found

    def activation(self, name: str, meant: str | None = None) -> Activation:
        """That of an option, or the one that it means.

        Raises:
          ValueError: if it is one that there is not.
        """
        found = self[name] if meant is None else meant
        if found not in _ACTIVATIONS:
            raise ValueError(
                f"{self.path}: {name} is {found!r}; known are "
                f"{', '.join(sorted(_ACTIVATIONS))}"
            )
        return _ACTIVATIONS[found]

    def require(self, **values: Any) -> None:
        """
        Raises:
          ValueError: unless the options that are said have these values.
        """
        for name, value in values.items():
            found = self.get(name, value)
            if found != value:
                raise ValueError(
                    f"{self.path}: {name} is {found!r}; only {value!r} is supported"
                )
