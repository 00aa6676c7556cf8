"""Options: from text, from files, within limits."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pytest

from treadle.recipes.catalogue import RECIPES
from treadle.recipes.config import Training, from_dict, option, options
from treadle.recipes.errors import UsageError


@dataclass(frozen=True)
class Config(Training):
    rate: float = option(0.5, "a share", least=0, below=1)
    name: str | None = option(None, "a name")
    quick: bool = option(False, "whether to hurry")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("steps", "12", 12),
        ("rate", "0.25", 0.25),
        ("rate", "0", 0.0),
        ("learning_rate", "1e-4", 1e-4),
        ("name", "12", "12"),
        ("quick", "True", True),
    ],
)
def test_parse(name: str, text: str, value: Any) -> None:
    found = options(Config)[name].parse(text)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("steps", "many", "--steps many: expected a whole number"),
        ("steps", "1.5", "--steps 1.5: expected a whole number"),
        ("steps", "0", "--steps 0: the least is 1"),
        ("rate", "1", "--rate 1.0: it must be below 1"),
        ("rate", "nan", "expected a finite number"),
        ("rate", "", "expected a number"),
        ("quick", "perhaps", "expected true or false"),
    ],
)
def test_wrong_text(name: str, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        options(Config)[name].parse(text)


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_have_options_with_help_and_defaults_in_order(name: str) -> None:
    kind = RECIPES[name].config
    for each in options(kind).values():
        assert each.help
        each.check(each.default)
    assert from_dict(kind, asdict(kind()), "run.json") == kind()


def test_a_file_with_wrong_options() -> None:
    with pytest.raises(UsageError, match=r"run.json: --width 8.5: expected a whole"):
        from_dict(RECIPES["digits-mlp"].config, {"width": 8.5}, "run.json")
    with pytest.raises(UsageError, match=r"run.json: no option is called 'widht': did"):
        from_dict(RECIPES["digits-mlp"].config, {"widht": 8}, "run.json")
