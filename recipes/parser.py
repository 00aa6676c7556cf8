"""What may be said on the command line, and what it means."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from treadle import __version__
from treadle.recipes import config, runs
from treadle.recipes.catalogue import DEFAULT, RECIPES
from treadle.recipes.errors import UsageError, unknown
from treadle.recipes.task import Recipe, Sampling

_METAVARS = {int: "INTEGER", float: "NUMBER", str: "TEXT", bool: "BOOLEAN"}
_RUN_HELP = "a run's folder, its name in runs/, or 'latest'"
_PORT = 6060
_TAKE_RECIPES = {
    "train": f"start a run of a recipe (without a NAME: {DEFAULT})",
    "sweep": "train a recipe with several values of its options, and compare",
}
_TAKE_RUNS = {
    "resume": "go on with a run from its latest checkpoint",
    "eval": "test a run's model",
    "report": "show what became of a run, with curves",
    "sample": "let a run's model write, or draw",
    "export": "write a run's model for others to use",
}
_NAMES = ["list", *_TAKE_RECIPES, *_TAKE_RUNS, "compare", "new"]
_NAMES += ["checkpoint", "kernels"]


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are `UsageError`; it leaves out what is not given."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            **kwargs, allow_abbrev=False, argument_default=argparse.SUPPRESS
        )

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\nSee: {self.prog} --help")

    def flags(self) -> list[str]:
        """All options, by their long names."""
        return [a.option_strings[-1] for a in self._actions if a.option_strings]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The parsed arguments; options of recipes that were not given are not among them.

    Raises:
      UsageError: for whatever is wrong with them; it lists what would be right.
    """
    argv = _named(argv)
    top, parsers = _parser(argv)
    arguments, rest = top.parse_known_args(argv)
    if rest:
        name = argv[0]
        if name in _TAKE_RECIPES:
            name += f" {arguments.recipe}"
        flag = next((a for a in rest if a.startswith("-")), None)
        valid = parsers[name].flags() if name in parsers else []
        if flag is None or not valid:
            raise UsageError(f"treadle {name} takes no {rest[0]!r}")
        raise unknown(f"option of `treadle {name}`", flag.split("=")[0], valid)
    return arguments


def _named(argv: Sequence[str]) -> list[str]:
    """The arguments with a recipe filled in where none is named.

    Raises:
      UsageError: for an unknown command or recipe.
    """
    argv = list(argv)
    if argv and not argv[0].startswith("-") and argv[0] not in _NAMES:
        meant = f"\nTo train it: treadle train {argv[0]}" if argv[0] in RECIPES else ""
        raise UsageError(f"{unknown('command', argv[0], _NAMES)}{meant}")
    if argv[:1] == [] or argv[0] not in _TAKE_RECIPES:
        return argv
    if set(argv[1:2]) & {"-h", "--help"}:
        return argv
    if len(argv) == 1 or argv[1].startswith("-"):
        argv.insert(1, _recipe_of_file(argv) or DEFAULT)
    if argv[1] not in RECIPES:
        raise unknown("recipe", argv[1], RECIPES)
    return argv


def _recipe_of_file(argv: Sequence[str]) -> str | None:
    """The recipe that `--config FILE` names."""
    early = _Parser(add_help=False)
    early.add_argument("--config", type=Path)
    found, _ = early.parse_known_args(argv)
    return config.read_toml(found.config)[0] if "config" in found else None


def _parser(argv: Sequence[str]) -> tuple[_Parser, dict[str, _Parser]]:
    """The parser of these arguments, and those of the commands (`train NAME` too)."""
    top = _Parser(prog="treadle", description="Train models from the command line.")
    top.add_argument("--version", action="version", version=f"treadle {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("list", help="show the recipes and the runs")
    commands.add_parser("checkpoint", help="look into checkpoints, and convert them")
    commands.add_parser("kernels", help="compile for this CPU what many programs need")
    parsers: dict[str, _Parser] = {}
    for name, help in _TAKE_RECIPES.items():
        parsers |= _recipe_parsers(commands, name, help, argv)
    for name, help in _TAKE_RUNS.items():
        parser = commands.add_parser(name, help=help, description=help)
        parser.add_argument("run", metavar="RUN", help=_RUN_HELP)
        parsers[name] = parser
    _resume_options(parsers["resume"], argv)
    _report_options(parsers["report"])
    _checkpoint_option(parsers["eval"])
    _sample_options(parsers["sample"], argv)
    _checkpoint_option(parsers["export"])
    parsers["export"].add_argument(
        "folder", type=Path, metavar="FOLDER", help="where to write it"
    )
    help = "show runs beside each other"
    compare = commands.add_parser("compare", help=help, description=help)
    compare.add_argument("runs", metavar="RUN", nargs="+", help=_RUN_HELP)
    compare.add_argument(
        "--page",
        type=Path,
        metavar="FILE",
        default=None,
        help="write a page for the browser, with curves",
    )
    parsers["compare"] = compare
    help = "write a recipe to begin with"
    new = commands.add_parser("new", help=help, description=help)
    new.add_argument("name", metavar="NAME", help="of the recipe, such as my-recipe")
    return top, parsers


def _recipe_parsers(
    commands: Any, command: str, help: str, argv: Sequence[str]
) -> dict[str, _Parser]:
    """The parsers of a command for the recipe that is named, or for all."""
    parser = commands.add_parser(
        command,
        help=help,
        description=help,
        epilog=f"The options of a recipe: treadle {command} NAME --help. "
        "NAME may be a file: one with a recipe or a model of your own.",
    )
    if argv[:1] != [command]:
        return {}
    recipes = parser.add_subparsers(dest="recipe", metavar="NAME", required=True)
    named = [name for name in argv[1:2] if name in RECIPES]
    found = {}
    for name in named or RECIPES:
        summary = RECIPES.summary(name)
        one = recipes.add_parser(name, help=summary, description=summary)
        if named:
            _train_options(one, RECIPES[name], several=command == "sweep")
            found[f"{command} {name}"] = one
    return found


def _train_options(parser: _Parser, recipe: Recipe, *, several: bool) -> None:
    """Those of a recipe; several: each takes values with commas between them."""
    for option in config.options(recipe.config).values():
        _add(parser, option, partial(_values, option) if several else option.parse)
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="a TOML file of options; those that are given here go before it",
    )
    where = "runs go (default: runs/sweep-NAME-DATE-TIME)"
    parser.add_argument(
        "--run-dir",
        type=Path,
        metavar="FOLDER",
        help="where the "
        + (where if several else "run goes (default: runs/NAME-DATE-TIME)"),
    )


def _values(option: config.Option, text: str) -> list[Any]:
    return [option.parse(part) for part in text.split(",")]


def _add(
    parser: _Parser, option: config.Option, parse: Callable[[str], Any], **more: Any
) -> None:
    usual = "" if option.default is None else f" (default: {option.default})"
    if option.kind is bool:
        more |= {"nargs": "?", "const": True}
    parser.add_argument(
        option.flag,
        dest=option.name,
        type=parse,
        help=option.help + usual,
        metavar=_METAVARS[option.kind],
        **more,
    )


def _resume_options(parser: _Parser, argv: Sequence[str]) -> None:
    """The options of the run's recipe; as long as no run is named, those of all."""
    recipe = _recipe_of_run("resume", argv)
    kind: Any = config.Training if recipe is None else recipe.config
    for option in config.options(kind).values():
        _add(parser, option, option.parse)


def _recipe_of_run(command: str, argv: Sequence[str]) -> Recipe | None:
    """The recipe of the run that a command takes, if it can be found."""
    if argv[:1] == [command] and len(argv) > 1:
        with suppress(UsageError):  # It is said when the command runs.
            return runs.find(argv[1], RECIPES).recipe
    return None


def _checkpoint_option(parser: _Parser) -> None:
    parser.add_argument(
        "--best",
        action="store_true",
        default=False,
        help="take the best checkpoint, not the latest",
    )


def _report_options(parser: _Parser) -> None:
    parser.add_argument(
        "--live",
        action="store_true",
        default=False,
        help="serve it to browsers on this machine while the run goes on",
    )
    help = "of --live; 0: any that is free"
    port = config.Option("port", int, _PORT, help, 0, 2**16)
    _add(parser, port, port.parse, default=_PORT)


def _sample_options(parser: _Parser, argv: Sequence[str]) -> None:
    """Those of the run's recipe; as long as no run is named, those of all."""
    _checkpoint_option(parser)
    recipe = _recipe_of_run("sample", argv)
    kinds: list[Any] = [Sampling if recipe is None else recipe.sampling]
    if argv[:1] == ["sample"] and recipe is None:
        kinds = [one.sampling for one in RECIPES.values() if one.sample is not None]
    found = {o.name: o for kind in kinds for o in config.options(kind).values()}
    for option in found.values():
        _add(parser, option, option.parse)
