"""From a folder of Hugging Face's to a model, and back."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng, tree, weights
from treadle.errors import at, user_source
from treadle.models.bert import Bert
from treadle.models.huggingface import (
    bert,
    convnext,
    gpt2,
    llama,
    resnet,
    sentence,
    t5,
    vit,
)
from treadle.models.huggingface.config import Config
from treadle.models.sentence import SentenceEncoder
from treadle.weights.rules import group

Model = TypeVar("Model")


class Family(Protocol):
    """A module of this folder: what it knows of one kind of models."""

    PREFIX: str
    """What names begin with, where a model has a head."""

    @staticmethod
    def make(config: Config, values: Any, key: rng.Key) -> nn.Module: ...
    @staticmethod
    def names(model: nn.Module) -> list[weights.Rule]: ...


FAMILIES: dict[str, Any] = {
    "bert": bert,
    "convnext": convnext,
    "gpt2": gpt2,
    "llama": llama,
    "resnet": resnet,
    "t5": t5,
    "vit": vit,
}
"""By `model_type` of config.json."""
_WEIGHTS = ("*.safetensors", "*.bin", "*.index.json", "*.h5", "*.msgpack", "*.onnx")


def from_huggingface(folder: str | os.PathLike[str], *, dtype: Any = None) -> Any:
    """The model of a folder that transformers' ``save_pretrained`` wrote.

    Known are BERT, ConvNeXt, GPT-2, Llama, ResNet, T5 and ViT, with the heads for
    tokens and classes: `Bert`, `BertMaskedLM`, `BertClassifier`, `ConvNeXt`, `GPT2`,
    `Llama`, `ResNet`, `T5`, `ViT`. Of a folder with the modules.json of
    sentence-transformers it is a `SentenceEncoder`. It comes ready for evaluation; to
    train it: `nn.training`.

    Args:
      folder: with config.json and the weights, as safetensors or as PyTorch's file.
      dtype: of the parameters; float32 by default, whatever the file has.

    Raises:
      FileNotFoundError: if one of the files is missing.
      ValueError: if the model is of another kind, has options that are not known, or
        the arrays do not fit its config.json.

    ```py
    bert = models.from_huggingface("bert-base-uncased")
    ```
    """
    folder = Path(folder)
    if not _has_parts(folder):
        return _transformer(folder, dtype)
    parts = sentence.parts(folder)
    model = _transformer(parts.transformer, dtype)
    if not isinstance(model, Bert):
        raise ValueError(
            f"{folder} makes sentences of a {type(model).__name__}; known is Bert"
        )
    return SentenceEncoder(model, pooling=parts.pooling, normalize=parts.normalize)


def _has_parts(folder: Path) -> bool:
    return (folder / "modules.json").exists()


def _family(config: Config) -> Any:
    """
    Raises:
      ValueError: for models of a kind that is not known.
    """
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise ValueError(
            f"{config.path}: model_type is {kind!r}; known are {', '.join(FAMILIES)}"
            f"{at(user_source())}\nOther models: write them of `treadle.nn`, and put "
            "the arrays of `weights.load` into them by `weights.into`."
        )
    return FAMILIES[kind]


def _transformer(folder: Path, dtype: Any) -> Any:
    config = Config.read(folder)
    family = _family(config)
    values = {
        name.removeprefix(family.PREFIX): value
        for name, value in weights.load(folder).items()
    }
    param_dtype = td.dtypes.canonical(tnp.float32 if dtype is None else dtype)
    empty = td.eval_shape(lambda: family.make(config, values, rng.key(0)))
    model = weights.into(_in_dtype(empty, param_dtype), values, family.names(empty))
    return nn.inference(model)


def to_huggingface(
    folder: str | os.PathLike[str], model: Any, *, like: str | os.PathLike[str]
) -> None:
    """Writes a model for transformers to load: what `from_huggingface` gave, after
    training.

    Args:
      folder: is made. What the model has not is copied from `like`: all other files,
        and arrays that the model leaves out.
      model: of the options that `like` has.
      like: the folder that the model came from.

    Raises:
      FileExistsError: if `folder` exists.
      ValueError: if the model has other arrays than `like`.

    ```py
    models.to_huggingface("my-bert", bert, like="bert-base-uncased")
    ```
    """
    folder, like = Path(folder), Path(like)
    place = sentence.parts(like).transformer if _has_parts(like) else like
    inner = model.bert if isinstance(model, SentenceEncoder) else model
    config = Config.read(place)
    family = _family(config)
    theirs = weights.load(place)
    # Models with a head have a prefix before the names of all but the head.
    prefixes = {
        name.removeprefix(family.PREFIX).split(".")[0]: family.PREFIX
        for name in theirs
        if name.startswith(family.PREFIX)
    }
    values = {n.removeprefix(family.PREFIX): x for n, x in theirs.items()}
    rules = family.names(inner)
    weights.into(inner, values, rules)  # says what does not fit
    arrays = weights.of(inner, rules)
    for found in group(values, rules, theirs=True).groups:
        if found.rule.ours is None and found.rule.same_as is None:
            arrays |= {name: values[name] for name in found.members.values()}
    shutil.copytree(like, folder, ignore=shutil.ignore_patterns(*_WEIGHTS))
    weights.save(
        folder / place.relative_to(like),
        {prefixes.get(n.split(".")[0], "") + n: x for n, x in arrays.items()},
        # Without it, older versions of transformers refuse the file.
        metadata={"format": "pt"},
    )


def _in_dtype(model: Model, dtype: np.dtype) -> Model:
    """A model of types with parameters of another dtype; State cells keep theirs."""
    types, form = tree.flatten(model)
    return form.unflatten(
        [
            t
            if constant or not td.dtypes.is_float(t.dtype)
            else td.ArrayType(t.shape, dtype)
            for t, constant in zip(types, tree.constants(form), strict=True)
        ]
    )
