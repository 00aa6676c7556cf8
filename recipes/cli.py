"""The `treadle` command."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from treadle.errors import MissingPackageError
from treadle.optional import need
from treadle.recipes import checkpoints, commands, own
from treadle.recipes.catalogue import RECIPES
from treadle.recipes.config import from_dict, read_toml
from treadle.recipes.display import silence
from treadle.recipes.errors import UsageError, brief, unplaced
from treadle.recipes.parser import parse
from treadle.recipes.sweep import sweep

_INTERRUPTED = 130


def _train(arguments: argparse.Namespace) -> int:
    recipe = RECIPES[arguments.recipe]
    values = _from_file(arguments) | _given(arguments)
    config = from_dict(recipe.config, values, _source(arguments))
    return commands.train(recipe, config, getattr(arguments, "run_dir", None))


def _sweep(arguments: argparse.Namespace) -> int:
    recipe = RECIPES[arguments.recipe]
    found = _from_file(arguments) | _given(arguments)
    values = {n: v if isinstance(v, list) else [v] for n, v in found.items()}
    # Whatever is wrong is said before the first run.
    checked = {
        name: [
            getattr(from_dict(recipe.config, {name: v}, _source(arguments)), name)
            for v in several
        ]
        for name, several in values.items()
    }
    return sweep(recipe, checked, getattr(arguments, "run_dir", None))


def _from_file(arguments: argparse.Namespace) -> dict[str, Any]:
    return read_toml(arguments.config)[1] if "config" in arguments else {}


def _source(arguments: argparse.Namespace) -> str:
    """Where options are from, that are not checked yet."""
    return f"--config {arguments.config}" if "config" in arguments else "options"


def _resume(arguments: argparse.Namespace) -> int:
    return commands.resume(arguments.run, _given(arguments))


def _given(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of a recipe that were given."""
    about = ("command", "recipe", "run", "run_dir", "config", "best")
    return {name: v for name, v in vars(arguments).items() if name not in about}


def _report(arguments: argparse.Namespace) -> int:
    if arguments.live:
        return commands.report_live(arguments.run, arguments.port)
    return commands.report(arguments.run)


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "list": lambda arguments: commands.show_list(),
    "train": _train,
    "sweep": _sweep,
    "compare": lambda arguments: commands.compare(arguments.runs, arguments.page),
    "resume": _resume,
    "eval": lambda arguments: commands.evaluate(arguments.run, arguments.best),
    "report": _report,
    "sample": lambda arguments: commands.sample(
        arguments.run, _given(arguments), arguments.best
    ),
    "export": lambda arguments: commands.export(
        arguments.run, arguments.folder, arguments.best
    ),
    "new": lambda arguments: commands.new(arguments.name),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line, and returns the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        if list(argv[:1]) == ["checkpoint"]:
            return checkpoints.main(argv[1:])
        if list(argv[:1]) == ["kernels"]:  # in a process that has compiled nothing yet
            command = [sys.executable, "-m", "treadle.install", *argv[1:]]
            return subprocess.call(command)
        arguments = parse(argv)
        need("the command line", "rich", "matplotlib", "sklearn")
        return _COMMANDS[arguments.command](arguments)
    except UsageError as error:
        print(f"treadle: {error}", file=sys.stderr)
        return 2
    except MissingPackageError as error:
        print(f"treadle: {unplaced(error)}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, RuntimeError) as error:
        if not _is_interrupt(error):
            return _of_user(error)
        print("treadle: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        silence(sys.stdout)  # The reader (`head`, a pager) has left.
        return 0
    except (OSError, MemoryError) as error:
        # The disk or the memory is full, a folder is read-only: no fault of a line.
        print(f"treadle: {brief(error)}", file=sys.stderr)
        return 1
    except Exception as error:
        return _of_user(error)


def _of_user(error: BaseException) -> int:
    """Shows an error in a recipe's file by the lines there, and returns the status.

    Raises:
      BaseException: the error itself, if it is from elsewhere: it is a fault of ours.
    """
    lines = own.lines_of(error)
    if not lines or os.environ.get("TREADLE_TRACEBACK") == "full":
        raise error
    said = "".join(traceback.format_exception_only(error)).strip()
    print(f"treadle: {said}", file=sys.stderr)
    print("".join(traceback.format_list(lines)), end="", file=sys.stderr)
    return 1


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether an error is an interrupt, or what became of one: where it comes while a
    lock is given back, Python says that the lock is not locked."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None
