"""The `treadle` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from treadle import __version__
from treadle.errors import MissingPackageError
from treadle.optional import need
from treadle.recipes import commands, config
from treadle.recipes.catalogue import DEFAULT, RECIPES
from treadle.recipes.display import silence
from treadle.recipes.errors import UsageError, brief, unknown
from treadle.recipes.task import Recipe, Sampling

_INTERRUPTED = 130
_METAVARS = {int: "INTEGER", float: "NUMBER", str: "TEXT", bool: "BOOLEAN"}
_RUN_HELP = "a run's folder, its name in runs/, or 'latest'"


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are `UsageError`, and which knows its recipe."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\nSee: {self.prog} --help")

    def flags(self) -> list[str]:
        """All options, by their long names."""
        return [a.option_strings[-1] for a in self._actions if a.option_strings]


def _parser() -> tuple[_Parser, dict[str, _Parser]]:
    """The parser of everything, and those of the commands (`train NAME` too)."""
    top = _Parser(prog="treadle", description="Train models from the command line.")
    top.add_argument("--version", action="version", version=f"treadle {__version__}")
    commands_of = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands_of.add_parser("list", help="show the recipes and the runs")
    train = commands_of.add_parser(
        "train",
        help="start a run of a recipe",
        description=f"Start a run of a recipe; without a NAME, of {DEFAULT}.",
        epilog="The options of a recipe: treadle train NAME --help",
    )
    recipes = train.add_subparsers(dest="recipe", metavar="NAME", required=True)
    parsers = {
        f"train {recipe.name}": _recipe_parser(recipes, recipe)
        for recipe in RECIPES.values()
    }
    for name, help, add in (
        ("resume", "go on with a run from its latest checkpoint", _resume_options),
        ("eval", "test a run's model", _checkpoint_option),
        ("report", "show what became of a run, with curves", None),
        ("sample", "let a run's model write", _sample_options),
    ):
        parser = commands_of.add_parser(name, help=help, description=help)
        parser.add_argument("run", metavar="RUN", help=_RUN_HELP)
        if add is not None:
            add(parser)
        parsers[name] = parser
    return top, parsers


def _recipe_parser(recipes: Any, recipe: Recipe) -> _Parser:
    parser = recipes.add_parser(
        recipe.name, help=recipe.summary, description=recipe.summary
    )
    for option in config.options(recipe.config).values():
        _add(parser, option)
    parser.add_argument(
        "--run-dir",
        type=Path,
        metavar="FOLDER",
        help="where the run goes (default: runs/NAME-DATE-TIME)",
        default=argparse.SUPPRESS,
    )
    return parser


def _add(parser: _Parser, option: config.Option) -> None:
    usual = "" if option.default is None else f" (default: {option.default})"
    parser.add_argument(
        option.flag,
        dest=option.name,
        type=option.parse,
        default=option.default,
        help=option.help + usual,
        metavar=_METAVARS[option.kind],
    )


def _resume_options(parser: _Parser) -> None:
    steps = config.options(config.Training)["steps"]
    parser.add_argument(
        steps.flag,
        type=steps.parse,
        default=argparse.SUPPRESS,
        metavar=_METAVARS[int],
        help="train up to this step instead of the one the run began with",
    )


def _checkpoint_option(parser: _Parser) -> None:
    parser.add_argument(
        "--best", action="store_true", help="take the best checkpoint, not the latest"
    )


def _sample_options(parser: _Parser) -> None:
    _checkpoint_option(parser)
    parser.add_argument("--prompt", default="", help="what the text begins with")
    for name, default, help, least in (
        ("length", 500, "how many characters to write", 0),
        ("temperature", 0.8, "0: the likeliest; 1: as in the corpus", 0),
        ("seed", 0, "other numbers give other texts", 0),
    ):
        kind = type(default)
        below = 2**64 if name == "seed" else None
        _add(parser, config.Option(name, kind, default, help, least, below))


def _check_names(argv: Sequence[str]) -> list[str]:
    """The arguments with the default recipe filled in.

    Raises:
      UsageError: for an unknown command or recipe.
    """
    names = ["list", "train", "resume", "eval", "report", "sample"]
    if argv and not argv[0].startswith("-") and argv[0] not in names:
        raise unknown("command", argv[0], names)
    if list(argv[:1]) != ["train"] or set(argv[1:2]) & {"-h", "--help"}:
        return list(argv)
    if len(argv) == 1 or argv[1].startswith("-"):
        return ["train", DEFAULT, *argv[1:]]
    if argv[1] not in RECIPES:
        raise unknown("recipe", argv[1], RECIPES)
    return list(argv)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The parsed arguments.

    Raises:
      UsageError: for whatever is wrong with them; it lists what would be right.
    """
    top, parsers = _parser()
    arguments, rest = top.parse_known_args(_check_names(argv))
    if rest:
        name = f"train {arguments.recipe}" if "recipe" in arguments else argv[0]
        flag = next((a for a in rest if a.startswith("-")), None)
        valid = parsers[name].flags() if name in parsers else []
        if flag is None or not valid:
            raise UsageError(f"treadle {name} takes no {rest[0]!r}")
        raise unknown(f"option of `treadle {name}`", flag.split("=")[0], valid)
    return arguments


def _train(arguments: argparse.Namespace) -> int:
    recipe = RECIPES[arguments.recipe]
    names = config.options(recipe.config)
    values = {k: v for k, v in vars(arguments).items() if k in names}
    folder = getattr(arguments, "run_dir", None)
    return commands.train(recipe, recipe.config(**values), folder)


def _resume(arguments: argparse.Namespace) -> int:
    return commands.resume(arguments.run, getattr(arguments, "steps", None))


def _sample(arguments: argparse.Namespace) -> int:
    names = Sampling._fields
    wanted = Sampling(**{k: v for k, v in vars(arguments).items() if k in names})
    return commands.sample(arguments.run, wanted, arguments.best)


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "list": lambda arguments: commands.show_list(),
    "train": _train,
    "resume": _resume,
    "eval": lambda arguments: commands.evaluate(arguments.run, arguments.best),
    "report": lambda arguments: commands.report(arguments.run),
    "sample": _sample,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line, and returns the exit status."""
    try:
        arguments = parse(sys.argv[1:] if argv is None else argv)
        need("the command line", "rich", "matplotlib", "sklearn")
        return _COMMANDS[arguments.command](arguments)
    except (UsageError, MissingPackageError) as error:
        print(f"treadle: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, RuntimeError) as error:
        if not _is_interrupt(error):
            raise
        print("treadle: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        silence(sys.stdout)  # The reader (`head`, a pager) has left.
        return 0
    except (OSError, MemoryError) as error:
        # The disk or the memory is full, a folder is read-only: no fault of a line.
        print(f"treadle: {brief(error)}", file=sys.stderr)
        return 1


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether an error is an interrupt, or what became of one: where it comes while a
    lock is given back, Python says that the lock is not locked."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None
