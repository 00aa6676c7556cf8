"""Recipes in files of one's own: a `RECIPE`, or a model's class alone."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import math
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from treadle import nn, rng
from treadle.errors import is_ours
from treadle.recipes import supervised
from treadle.recipes.config import option
from treadle.recipes.errors import UsageError
from treadle.recipes.task import Facts, Learner, Recipe

_FROM_DATA: dict[str, Callable[[Facts], Any]] = {
    "shape": lambda facts: tuple(facts["shape"]),
    "in_features": lambda facts: math.prod(facts["shape"]),
    "in_channels": lambda facts: facts["shape"][-1],
    "out_features": supervised.outputs_for,
    "classes": supervised.outputs_for,
}
_PREFIX = "treadle_recipe_"
_OPTION_TYPES = (bool, int, float, str)
_COMMANDS = {"command", "recipe", "run", "run_dir", "config"}
"""What the command line has for itself."""
_ARGUMENT = """\
{where} can't be made from the command line: what is its argument `{name}`?
From the data come {known}; `key` is a random key. Any other one needs a default value \
that is a number, a text or a boolean: it becomes the option {flag}."""
_NOTHING = """\
{path} has neither a RECIPE nor a model
Write a class of nn.Module in it; or let `treadle new NAME` write a recipe to begin \
with."""


def is_file(name: str) -> bool:
    """Whether a recipe is named by its file: ``model.py``, or ``model.py:Net``."""
    return name.endswith(".py") or ".py:" in name


def from_file(name: str) -> Recipe:
    """The recipe in a file: its `RECIPE`, or one made for the model in it.

    Args:
      name: the file; behind a colon, which of several models.

    Raises:
      UsageError: if there is none, or the file fails.
    """
    path, _, wanted = name.partition(".py:")
    file = Path(path if path.endswith(".py") else path + ".py").resolve()
    if not file.is_file():
        raise UsageError(f"there is no file {file}")
    module = _loaded(file)
    place = f"{file}:{wanted}" if wanted else str(file)
    recipe = getattr(module, "RECIPE", None)
    if not isinstance(recipe, Recipe) or wanted:
        recipe = _of_model(_model(module, file, wanted), file)
    return dataclasses.replace(recipe, file=place)


def _loaded(file: Path) -> ModuleType:
    """The module in a file, which can import those beside it."""
    name = f"{_PREFIX}{file.stem}"
    known = sys.modules.get(name)
    if known is not None and known.__file__ == str(file):
        return known
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise UsageError(_failed(file, error)) from error
    return module


def lines_of(error: BaseException) -> list[traceback.FrameSummary]:
    """The lines that led to an error in files of recipes, and in what they called;
    none where it is from elsewhere."""
    files = {
        module.__file__
        for name, module in sys.modules.items()
        if name.startswith(_PREFIX)
    }
    frames = traceback.extract_tb(error.__traceback__)
    own = [i for i, frame in enumerate(frames) if frame.filename in files]
    return [f for f in frames[own[0] :] if not is_ours(f.filename)] if own else []


def _failed(file: Path, error: Exception) -> str:
    """Where a file failed: its own line, even if the error is from below it."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    if isinstance(error, SyntaxError) and error.filename == str(file):
        lines, error = [error.lineno], SyntaxError(error.msg)
    return f"{file}:{lines[-1]}: {type(error).__name__}: {error}"


def _model(module: ModuleType, file: Path, wanted: str) -> type[nn.Module]:
    found = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, nn.Module)
        and value.__module__ == module.__name__
    }
    if wanted in found:
        return found[wanted]
    if len(found) == 1 and not wanted:
        return next(iter(found.values()))
    if not found:
        raise UsageError(_NOTHING.format(path=file))
    listing = ", ".join(found)
    said = f"no model {wanted!r}" if wanted else "several models"
    raise UsageError(
        f"{file} has {said}: {listing}\nName one: {file.name}:{list(found)[-1]}"
    )


def _of_model(model: type[nn.Module], file: Path) -> Recipe:
    """A recipe that trains a model on whatever `--data` holds."""
    from_data, own = [], []
    used = {field.name for field in dataclasses.fields(supervised.Files)} | _COMMANDS
    for argument in inspect.signature(model).parameters.values():
        name, default = argument.name, argument.default
        if name == "key" or (default is inspect.Parameter.empty and name in _FROM_DATA):
            from_data.append(name)
        elif type(default) in _OPTION_TYPES and name not in used:
            help = f"an argument of {model.__name__}"
            own.append((name, type(default), option(default, help)))
        elif default is inspect.Parameter.empty or name in used:
            raise UsageError(
                _ARGUMENT.format(
                    where=f"{model.__name__} ({file.name})",
                    name=name,
                    known=", ".join(f"`{n}`" for n in _FROM_DATA),
                    flag="--" + name.replace("_", "-"),
                )
            )
    config = dataclasses.make_dataclass(
        "Config", own, bases=(supervised.Files,), frozen=True
    )
    names = [name for name, _, _ in own]

    def learner(config: Any, facts: Facts, key: rng.Key) -> Learner:
        found = {n: _FROM_DATA[n](facts) for n in from_data if n != "key"}
        if "key" in from_data:
            found["key"] = key
        chosen = {name: getattr(config, name) for name in names}
        return supervised.learner(model(**found, **chosen), config, facts)

    summary = (model.__doc__ or "").strip().partition("\n")[0]
    return Recipe(
        name=file.stem.replace("_", "-"),
        summary=summary or f"trains {model.__name__} on --data",
        config=config,
        load=supervised.load,
        learner=learner,
    )
