"""`treadle checkpoint`: looks into checkpoints, and converts them."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from treadle import checkpoint
from treadle.checkpoint import tools
from treadle.recipes.errors import UsageError

_PATH = "a checkpoint, a folder of them (then the last), or a run's folder"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\nSee: {self.prog} --help")


def _parser() -> _Parser:
    about = "Look into checkpoints, Orbax's too, and convert them."
    top = _Parser(prog="treadle checkpoint", description=about, allow_abbrev=False)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in (
        ("ls", "list the steps with their metrics and sizes"),
        ("show", "list the arrays with their dtypes and shapes"),
        ("diff", "say where two checkpoints differ; the exit status is 1 if they do"),
        ("verify", "read all steps and compare checksums"),
        ("convert", "from and to safetensors, and from Orbax's format"),
    ):
        parser = commands.add_parser(name, help=text, description=text)
        two = {"diff": ("first", "second"), "convert": ("source", "target")}
        for path in two.get(name, ("path",)):
            parser.add_argument(path, metavar=path.upper(), help=_PATH)
        if name != "ls":
            parser.add_argument("--item", help="which of the items of a step")
        if name == "convert":
            parser.add_argument(
                "--only", action="append", help="take only what is at this path"
            )
            parser.add_argument(
                "--overwrite", action="store_true", help="replace what is at TARGET"
            )
    return top


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """
    Raises:
      UsageError: for what is wrong with the arguments.
    """
    return _parser().parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Runs one of the commands, and returns the exit status.

    Raises:
      UsageError: for what is wrong with the arguments.
    """
    arguments = parse(argv)
    try:
        return _COMMANDS[arguments.command](arguments)
    except (checkpoint.DamagedError, ValueError, TypeError) as error:
        print(f"treadle: {error}", file=sys.stderr)
        return 1


def _ls(arguments: argparse.Namespace) -> int:
    entries = tools.find(arguments.path)
    for entry in entries:
        step = entry.path.name if entry.step is None else str(entry.step)
        saved = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.saved))
        facts = [f"{name} {value:.6g}" for name, value in entry.metrics.items()]
        if entry.items not in ((), ("default",)):
            facts.append(f"items {', '.join(entry.items)}")
        print(
            f"{step:>8}  {saved}  {_size(entry.size):>9}  {'  '.join(facts)}".rstrip()
        )
    return 0


def _show(arguments: argparse.Namespace) -> int:
    path = tools.latest(arguments.path)
    leaves = checkpoint.describe(path, item=arguments.item)
    width = max(map(len, leaves), default=0)
    print(path)
    for name, text in leaves.items():
        print(f"  {name:<{width}}  {text}")
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    paths = [tools.latest(path) for path in (arguments.first, arguments.second)]
    found = tools.compare(*paths, item=arguments.item)
    for name, text in found.items():
        print(f"{name}: {text}")
    if not found:
        print("the same")
    return int(bool(found))


def _verify(arguments: argparse.Namespace) -> int:
    damaged = 0
    for entry in tools.find(arguments.path):
        items: Any = [arguments.item] if arguments.item else entry.items or [None]
        for item in items:
            name = f"{entry.path}{f', item {item}' if len(items) > 1 else ''}"
            try:
                checkpoint.verify(entry.path, item=item)
            except (checkpoint.DamagedError, FileNotFoundError) as error:
                damaged += 1
                print(f"{name}: DAMAGED\n  {error}")
            else:
                print(f"{name}: intact")
    return int(damaged > 0)


def _convert(arguments: argparse.Namespace) -> int:
    try:
        left = tools.convert(
            arguments.source,
            arguments.target,
            only=arguments.only,
            item=arguments.item,
            overwrite=arguments.overwrite,
        )
    except FileExistsError:
        raise UsageError(
            f"{arguments.target} exists: it is left as it is\nTo replace it, add "
            "--overwrite."
        ) from None
    print(f"wrote {arguments.target}")
    if left:
        print(f"left out, as they are no arrays: {', '.join(left)}", file=sys.stderr)
    return 0


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "ls": _ls,
    "show": _show,
    "diff": _diff,
    "verify": _verify,
    "convert": _convert,
}


def _size(size: int) -> str:
    power = min(4, int(math.log(max(size, 1), 1000)))
    return f"{size / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"
