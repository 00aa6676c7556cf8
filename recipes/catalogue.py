"""The recipes that `treadle list` shows. A new one is a file and a line here."""

from __future__ import annotations

from treadle.recipes import char_gpt, digits_cnn, digits_mlp
from treadle.recipes.task import Recipe

RECIPES: dict[str, Recipe] = {
    module.RECIPE.name: module.RECIPE for module in (digits_mlp, digits_cnn, char_gpt)
}
DEFAULT = digits_mlp.RECIPE.name
