"""The recipes: those that `treadle list` shows, of other packages too, and files.

A recipe of this package is a file and a name here. One of another package is an entry
point of the group `treadle.recipes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points

from treadle.recipes import (
    cartpole_ppo,
    char_gpt,
    diffusion,
    digits_cnn,
    digits_mlp,
    dp_sgd,
    finetune_lora,
    own,
    resnet,
    tabular,
)
from treadle.recipes.errors import UsageError
from treadle.recipes.task import Recipe

GROUP = "treadle.recipes"
_OWN = (
    digits_mlp,
    digits_cnn,
    resnet,
    tabular,
    char_gpt,
    finetune_lora,
    diffusion,
    dp_sgd,
    cartpole_ppo,
)
DEFAULT = digits_mlp.RECIPE.name


class Catalogue(Mapping[str, Recipe]):
    """Recipes by name; by their file, too, which is not among the names.

    Getting one raises UsageError if its file or its package fails.
    """

    def __init__(self) -> None:
        self._here = {module.RECIPE.name: module.RECIPE for module in _OWN}

    def __getitem__(self, name: str) -> Recipe:
        if own.is_file(name):
            return own.from_file(name)
        return self._here[name] if name in self._here else _loaded(_plugins()[name])

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (own.is_file(name) or name in list(self))

    def __iter__(self) -> Iterator[str]:
        yield from self._here
        yield from (name for name in _plugins() if name not in self._here)

    def summary(self, name: str) -> str:
        """What a recipe does, or why it can't be used."""
        try:
            return self[name].summary
        except UsageError as error:
            return str(error)

    def __len__(self) -> int:
        return len(list(iter(self)))


def _plugins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _loaded(point: EntryPoint) -> Recipe:
    where = f"the recipe {point.name!r} of {point.dist.name if point.dist else point}"
    try:
        found = point.load()
    except Exception as error:
        raise UsageError(
            f"{where} can't be loaded: {type(error).__name__}: {error}"
        ) from error
    recipe = getattr(found, "RECIPE", found)
    if not isinstance(recipe, Recipe):
        raise UsageError(f"{where} is no Recipe, but {type(recipe).__name__}")
    return replace(recipe, name=point.name)


RECIPES = Catalogue()
