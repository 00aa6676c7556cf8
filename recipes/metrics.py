"""The metrics of a run: one JSON object per line, one line per step."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

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


def series(rows: list[Row], name: str) -> tuple[list[int], list[float]]:
    """The steps at which a metric was measured, and its values."""
    found = [(row["step"], row[name]) for row in rows if name in row]
    return [step for step, _ in found], [value for _, value in found]
