"""The metrics of a run: one JSON object per line, one line per step."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from treadle.recipes.runs import replace_file

Row = dict[str, Any]


def read(path: Path) -> list[Row]:
    """The rows, in the order of their steps.

    Lines that are not rows are left out: one that was being written when the process
    was killed, or a damaged one.
    """
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [row for row in map(_row, lines) if row is not None]


def _row(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or not {"step", "seconds"} <= row.keys():
        return None
    return row if all(isinstance(v, int | float) for v in row.values()) else None


class Tail:
    """The rows of a file that others write to: each is read once.

    path: the file. It may be put in another's place, when a run goes on from an earlier
      step; then it is read again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: list[Row] = []
        self._file: tuple[int, int] | None = None
        self._read = 0

    def rows(self) -> list[Row]:
        """All rows that are there now."""
        with suppress(FileNotFoundError), open(self.path, "rb") as file:
            self._read_on(file)
        return self._rows

    def _read_on(self, file: BinaryIO) -> None:
        found = os.fstat(file.fileno())
        if self._file != (found.st_dev, found.st_ino) or found.st_size < self._read:
            self._file, self._read = (found.st_dev, found.st_ino), 0
            self._rows = []
        file.seek(self._read)
        text = file.read()
        # A line that is being written is read when it is whole.
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        rows = map(_row, whole.splitlines())
        self._rows = [*self._rows, *(row for row in rows if row is not None)]


class Log:
    """Appends rows.

    Args:
      path: the file.
      step: the step from which the run goes on: rows after it are dropped, because
        they will be written again.
    """

    def __init__(self, path: Path, step: int) -> None:
        kept = [row for row in read(path) if row["step"] <= step]
        replace_file(path, "".join(_line(row) for row in kept))
        self.seconds = kept[-1]["seconds"] if kept else 0.0
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115

    def write(self, row: Row) -> None:
        """Appends a row; other processes see it at once."""
        self._file.write(_line(row))
        self._file.flush()

    def sync(self) -> None:
        """Returns when all rows are on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _line(row: Row) -> str:
    return json.dumps(row) + "\n"


def last(rows: list[Row], name: str) -> float | None:
    """The last value of a metric."""
    return next((row[name] for row in reversed(rows) if name in row), None)


def series(rows: Sequence[Row], name: str) -> tuple[list[int], list[float]]:
    """The steps at which a metric was measured, and its values."""
    found = [(row["step"], row[name]) for row in rows if name in row]
    return [step for step, _ in found], [value for _, value in found]
