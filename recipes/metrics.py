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

    A line that was being written when the process was killed is left out.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    rows = []
    for line in text.splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


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
