"""A run: the folder that holds a training's settings, metrics and checkpoints."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

from treadle import __version__
from treadle.recipes.config import Training, from_dict
from treadle.recipes.errors import UsageError, command, option_text, unknown
from treadle.recipes.task import Begun, Data, Facts, Recipe

ROOT = Path("runs")
LATEST = "latest"
FIT = "fit"
"""What `recipes.fit` calls its recipe."""
_SETTINGS = "run.json"
_CLAIM = ".claim"
_ASKED = 10


@dataclass(frozen=True)
class Run:
    """A run's folder, and what its settings say.

    facts: what it keeps of its data (`treadle.recipes.task.Facts`).
    best: the metric that tells how good a checkpoint is, and which extreme is best;
      known once the training has begun.
    parameters: how many numbers are trained; known then, too.
    """

    folder: Path
    recipe: Recipe
    config: Any
    facts: Facts
    best: tuple[str, Literal["min", "max"]] = ("test_loss", "min")
    parameters: int | None = None

    @property
    def checkpoints(self) -> Path:
        """Orbax's folder of steps."""
        return self.folder / "checkpoints"

    @property
    def metrics(self) -> Path:
        """One JSON object per line."""
        return self.folder / "metrics.jsonl"

    @property
    def curves(self) -> Path:
        """The picture of the metrics."""
        return self.folder / "curves.png"

    @property
    def page(self) -> Path:
        """The report as a page for a browser."""
        return self.folder / "report.html"

    @property
    def profile(self) -> Path:
        """The folder of what `--profile` measured."""
        return self.folder / "profile"

    @property
    def logs(self) -> Path:
        """The folder of logs for TensorBoard."""
        return self.folder / "tensorboard"

    @property
    def diverged(self) -> Path:
        """What is known of values that were not finite, and the checkpoint before."""
        return self.folder / "diverged"

    @property
    def settings(self) -> Path:
        """The recipe and its options."""
        return self.folder / _SETTINGS

    @property
    def code(self) -> Path:
        """A copy of the recipe, if that is in a file of the user's."""
        return self.folder / "recipe.py"

    def data(self, config: Any = None) -> Data:
        """The run's data, read again: with its own options, or with changed ones.

        Raises:
          UsageError: if they are not those with which the run began.
        """
        config = self.config if config is None else config
        again = self.recipe.again
        if again is None:
            found = self.recipe.load(config)
        else:
            found = again(config, Begun(self.config, self.facts))
        check_same_data(self, found.facts)
        return found

    def write(self) -> None:
        """Puts the settings on the disk, whole or not at all."""
        content = {
            "treadle": __version__,
            "recipe": self.recipe.place,
            "config": asdict(self.config),
            "facts": self.facts,
            "best": self.best,
            "parameters": self.parameters,
        }
        replace_file(self.settings, json.dumps(content, indent=1) + "\n")


def replace_file(path: Path, text: str) -> None:
    """Gives a file another content; whoever reads it sees the old or the new."""
    temporary = path.with_name(path.name + ".new")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    # Rows that are appended are only safe once the new file has the name.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def create(recipe: Recipe, config: Training, facts: Facts, folder: Path | None) -> Run:
    """A new run.

    Args:
      folder: where; by default in `ROOT`, named after the recipe and the time.

    Raises:
      UsageError: if the folder holds something already, or can't be made.
    """
    asked = option_text("run_dir", str(folder))
    if folder is None:
        folder = _free(ROOT / f"{recipe.name}-{time.strftime('%Y%m%d-%H%M%S')}")
    elif exists(folder):
        raise UsageError(
            f"{asked}: there is a run already\n"
            f"Go on with it: {command('resume', folder)}"
        )
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{asked}: exists and is not an empty folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{asked}: {error.strerror}\nGive a folder that can be made and written to."
        ) from None
    run = Run(folder, recipe, config, facts)
    run.write()
    if recipe.code is not None:
        replace_file(run.code, recipe.code.read_text(encoding="utf-8"))
    return run


def exists(folder: Path) -> bool:
    """Whether there is a run in a folder."""
    return (folder / _SETTINGS).exists()


def _free(folder: Path) -> Path:
    """A folder that nobody else has, even if started in the same second."""
    for n in range(1, 1000):
        candidate = folder if n == 1 else folder.with_name(f"{folder.name}-{n}")
        try:
            candidate.mkdir(parents=True)
        except FileExistsError:
            continue
        return candidate
    raise UsageError(f"{folder} exists a thousand times")


def names() -> list[str]:
    """The runs in `ROOT`, the latest first."""
    # Those of a sweep are in a folder of their own.
    paths = [*ROOT.glob(f"*/{_SETTINGS}"), *ROOT.glob(f"*/*/{_SETTINGS}")]
    found = sorted(paths, key=lambda p: -p.stat().st_mtime)
    return [str(path.parent.relative_to(ROOT)) for path in found]


def inside(name: str) -> list[str]:
    """The runs in a folder of runs, such as that of a sweep; else the name itself."""
    for folder in (Path(name), ROOT / name):
        if not exists(folder):
            found = sorted(folder.glob(f"*/{_SETTINGS}"))
            if found:
                return [str(path.parent) for path in found]
    return [name]


def find(name: str, recipes: Mapping[str, Recipe]) -> Run:
    """The run that a user means by a path, by a name in `ROOT`, or by ``latest``.

    Raises:
      UsageError: if there is none, or its settings are not in order.
    """
    existing = names()
    if name == LATEST and existing:
        return load(ROOT / existing[0], recipes)
    for folder in (Path(name), ROOT / name):
        if (folder / _SETTINGS).is_file():
            return load(folder, recipes)
    raise unknown("run", name, existing)


def load(folder: Path, recipes: Mapping[str, Recipe]) -> Run:
    """The run in a folder.

    Raises:
      UsageError: if its settings are damaged, or of an unknown recipe.
    """
    path = folder / _SETTINGS
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        name, values = content["recipe"], content["config"]
        facts = content["facts"]
        if [type(part) for part in (name, values, facts)] != [str, dict, dict]:
            raise TypeError("recipe, config and facts are of other types")
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} is damaged: {error}\n"
            "It holds the run's recipe and options; another run's file shows its form."
        ) from None
    if name not in recipes and name != FIT:
        raise UsageError(f"{path}: {unknown('recipe', name, recipes)}")
    try:
        recipe = recipes[name] if name in recipes else _from_python(folder)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    config = from_dict(recipe.config, values, str(path))
    # Runs of earlier versions don't say them.
    best = content.get("best", Run.best)
    parameters = content.get("parameters")
    return Run(folder, recipe, config, facts, tuple(best), parameters)


def _from_python(folder: Path) -> Recipe:
    """What is known of a run of `recipes.fit` outside of its program."""

    def elsewhere(*_: Any) -> Any:
        raise UsageError(
            f"{folder} was trained by `recipes.fit`: its model and data are in the "
            "program that did so, and it goes on there"
        )

    return Recipe(FIT, "trained from Python", Training, elsewhere, elsewhere)


def check_same_data(run: Run, facts: Facts) -> None:
    """
    Raises:
      UsageError: if the data are not those with which the run began.
    """
    # What went through JSON compares with what will: tuples are lists there.
    now = json.loads(json.dumps(facts))
    names = [*run.facts, *(name for name in now if name not in run.facts)]
    changed = [name for name in names if run.facts.get(name) != now.get(name)]
    if changed:
        listing = ", ".join(
            f"{name}: {_start(run.facts.get(name))} then, {_start(now.get(name))} now"
            for name in changed
        )
        raise UsageError(
            f"the data of {run.folder} have changed, or how they are read ({listing})\n"
            "To go on, put data and options back as they were; else start a new run: "
            f"{run.recipe.anew}"
        )


def changes(before: Any, after: Any) -> list[str]:
    """The options that have changed, for people."""
    return [
        f"{option_text(name, value)} (it was {getattr(before, name)})"
        for name, value in asdict(after).items()
        if value != getattr(before, name)
    ]


def code_changed(run: Run) -> bool:
    """Whether the file of the run's recipe is another than when the run began."""
    if run.recipe.code is None or not run.code.exists():
        return False
    return run.code.read_bytes() != run.recipe.code.read_bytes()


def _start(value: Any) -> str:
    return "nothing" if value is None else str(value)[:40]


@contextmanager
def claimed(run: Run) -> Iterator[None]:
    """While it is entered, no other process trains the run.

    The system lets go of the claim when the process ends, however it ends.

    Raises:
      UsageError: if another process trains it.
    """
    with open(run.folder / _CLAIM, "a+", encoding="utf-8") as file:
        try:
            _lock(file)
        except BlockingIOError:
            file.seek(0)
            raise UsageError(
                f"{run.folder} is being trained by another process ({file.read()})\n"
                "Wait until it has ended, or stop it: its last step is then saved."
            ) from None
        except OSError:
            pass  # The file system has no locks.
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def _lock(file: TextIO) -> None:
    """Locks a file at once; but one who asks whether it is locked has it for a
    moment."""
    for _ in range(_ASKED):
        with suppress(BlockingIOError):
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(0.01)
    return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_claimed(folder: Path) -> bool:
    """Whether a process trains the run in a folder now."""
    try:
        with open(folder / _CLAIM, encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # Nobody has trained it, or the file system has no locks.
    return False
