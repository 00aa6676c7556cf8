"""Where values that are not finite come from: the steps are made again, and watched."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import checkpoint, tree
from treadle.recipes.runs import replace_file

WHY = "why.txt"


class Origin(NamedTuple):
    """What made the first value that is not finite.

    where: in what it happened. before: the checkpoint after `done` steps, from which it
      happens again.
    """

    where: str
    done: int
    before: Any
    why: str


def in_steps(
    step: Callable[..., Any],
    start: Any,
    batches: Iterator[tuple[Any, Any]],
    until: int,
    inf: bool,
    stopped: Callable[[], bool],
) -> Origin | None:
    """Looks for it in the steps after a checkpoint; None if they give none, or if it is
    stopped.

    start: a `Checkpoint`. batches: pairs of a batch and of the position after it.
    inf: whether infinities are looked for, too.
    """
    before, done = start, int(start.state.step)
    while done < until and not stopped():
        # The step reuses what it is given.
        given = tree.map(lambda x: tnp.asarray(np.array(x)), before.state)
        batch, position = next(batches)
        try:
            with td.debug.check_nans(inf=inf):
                state, _ = step(given, batch)
        except FloatingPointError as error:
            return Origin(f"step {done + 1}", done, before, str(error))
        before, done = start._replace(state=state, position=position), done + 1
    return None


def in_test(
    test: Callable[[Any], Any], model: Any, before: Any, inf: bool
) -> Origin | None:
    """Looks for it in the test of a model, that of a `Checkpoint`."""
    done = int(before.state.step)
    try:
        with td.debug.check_nans(inf=inf):
            test(model)
    except FloatingPointError as error:
        return Origin(f"the test after step {done}", done, before, str(error))
    return None


def keep(folder: Path, origin: Origin) -> Path:
    """Keeps what was before, as a checkpoint."""
    folder.mkdir(exist_ok=True)
    path = folder / str(origin.done)
    checkpoint.save(path, origin.before)
    return path


def note(folder: Path, text: str) -> None:
    """Keeps what is said of it, for the report."""
    folder.mkdir(exist_ok=True)
    replace_file(folder / WHY, text + "\n")


def forget(folder: Path) -> None:
    """Drops what was kept: the training goes on from before."""
    shutil.rmtree(folder, ignore_errors=True)
