"""The layout of sentence-transformers: modules.json names what comes after what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from treadle.models.sentence import Pooling

_POOLINGS: dict[str, Pooling] = {"mean_tokens": "mean", "cls_token": "first"}
_POOLINGS |= {"max_tokens": "max", "mean": "mean", "cls": "first", "max": "max"}
_ORDER = ["Transformer", "Pooling", "Normalize"]


class Parts(NamedTuple):
    """What a folder is made of: where its transformer lies, and what follows."""

    transformer: Path
    pooling: Pooling
    normalize: bool


def parts(folder: Path) -> Parts:
    """
    Raises:
      ValueError: if there is more than a transformer, pooling and normalising.
    """
    path = folder / "modules.json"
    modules = {m["type"].split(".")[-1]: m for m in json.loads(path.read_text())}
    if list(modules) not in (_ORDER[:2], _ORDER):
        raise ValueError(
            f"{path} has the modules {', '.join(modules)}; known are "
            f"{', '.join(_ORDER)}, in this order"
        )
    pooling = folder / modules["Pooling"]["path"] / "config.json"
    return Parts(
        folder / modules["Transformer"]["path"],
        _pooling(pooling, json.loads(pooling.read_text())),
        "Normalize" in modules,
    )


def _pooling(path: Path, config: dict[str, Any]) -> Pooling:
    modes = [
        name.removeprefix("pooling_mode_")
        for name, chosen in config.items()
        if name.startswith("pooling_mode_") and chosen
    ]
    if "pooling_mode" in config:
        modes = [config["pooling_mode"]]
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise ValueError(
            f"{path}: the pooling is {', '.join(map(str, modes)) or 'none'}; known are "
            f"{', '.join(_POOLINGS)}, one of them"
        )
    return _POOLINGS[modes[0]]
