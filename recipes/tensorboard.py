"""Logs that TensorBoard reads."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from treadle.optional import need, needed_for
from treadle.recipes.callbacks import Callback

PURPOSE = "writing logs for TensorBoard"
PACKAGES = ("tensorboardX",)
_SUFFIX = ".treadle"
_TEST = "test_"
_FLUSHED = 5
"""How many seconds a row may wait until TensorBoard sees it."""


class TensorBoard(Callback):
    """Writes what `metrics.jsonl` has to a folder for TensorBoard: ``train/loss``,
    ``test/loss`` and so on, by step.

    Where a training goes on, the log is written anew from the rows that are kept: so no
    step is in it twice, and none is missing that was lost with a process.

    Args:
      folder: made if need be; what others have written in it is left alone.

    Raises:
      MissingPackageError: if tensorboardX is not installed.

    >>> from treadle import recipes
    >>> callbacks = [recipes.TensorBoard("runs/first/tensorboard")]
    """

    def __init__(self, folder: str | Path) -> None:
        need(PURPOSE, *PACKAGES)
        self.folder = Path(folder)
        self._writer: Any = None
        self._began = 0.0

    def on_start(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Begins the log, with the rows that there are."""
        with needed_for(PURPOSE):
            from tensorboardX import SummaryWriter

        old = [*self.folder.glob(f"events.out.tfevents.*{_SUFFIX}")]
        self._began = time.time() - (rows[-1]["seconds"] if rows else 0.0)
        # TensorBoard names files by the second, and may have read the old ones.
        self._writer = SummaryWriter(
            str(self.folder),
            purge_step=0,
            flush_secs=_FLUSHED,
            filename_suffix=f".{time.time_ns()}{_SUFFIX}",
        )
        for row in rows:
            self.on_log(row)
        self._writer.flush()
        for path in old:
            path.unlink()

    def on_log(self, row: Mapping[str, Any]) -> None:
        """Writes a row."""
        at = self._began + row["seconds"]
        for name, value in row.items():
            if name not in ("step", "seconds"):
                part = "test" if name.startswith(_TEST) else "train"
                tag = f"{part}/{name.removeprefix(_TEST)}"
                self._writer.add_scalar(tag, value, row["step"], at)

    def on_end(self) -> None:
        """Closes the log."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
