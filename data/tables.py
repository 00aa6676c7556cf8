"""Tables: columns of numbers and of categories, and one that is to be predicted."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from treadle.errors import at, user_source

_FEW = 20
"""Whole numbers of so many different values are taken for classes."""
_EPOCH = datetime(1970, 1, 1)
_MISSING = ("", "na", "n/a", "nan", "null", "none", "?")


@dataclass(frozen=True)
class Column:
    """One that predictions are made from.

    categories: by number, from 1; () for a column of numbers. 0 is a missing value, and
      one that the training data don't have.
    """

    name: str
    categories: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """inputs: "numbers" (n, of numbers) float32, NaN where one is missing, and
    "categories" (n, of the others) int32; columns: numbers first."""

    inputs: dict[str, np.ndarray]
    labels: np.ndarray
    classes: tuple[str, ...] | None
    columns: tuple[Column, ...]
    about: str


def table(path: Path, target: str | None = None) -> Table:
    """The table in a CSV file with a header.

    target: the column to be predicted, by default the last one. Words are classes, and
      so are whole numbers of at most 20 different values.

    Dates and times of ISO 8601 are numbers: of days since 1970. Between semicolons, a
    comma is that of decimals.

    Raises:
      ValueError: if it is no table, or has no such column.
    """
    header, rows = _read(path)
    if target is None:
        target = header[-1]
    if target not in header:
        raise ValueError(
            f"{path} has no column {target!r}{at(user_source())}\n"
            f"Its columns: {', '.join(header)}."
        )
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    wanted = columns.pop(target)
    gone = [i for i, v in enumerate(wanted) if _is_missing(v)]
    if gone:
        raise ValueError(
            f"{path}: {len(gone)} rows have no {target}, the first in line "
            f"{gone[0] + 2}{at(user_source())}\nRows without it teach nothing."
        )
    labels, classes = _target(wanted)
    if classes is None:
        _check_finite(path, target, labels, wanted)
    numbers, categories = {}, {}
    for name, values in columns.items():
        found = _numbers(values)
        if found is not None:
            _check_finite(path, name, found, values)
        if found is not None:
            numbers[name] = found
        else:
            categories[name] = values
    described = [Column(name) for name in numbers]
    codes = []
    for name, values in categories.items():
        kinds = tuple(sorted({v for v in values if not _is_missing(v)}))
        number = {kind: i for i, kind in enumerate(kinds, 1)}
        codes.append([number.get(v, 0) for v in values])
        described.append(Column(name, kinds))
    inputs = {
        "numbers": _matrix(list(numbers.values()), len(rows), np.float32),
        "categories": _matrix(codes, len(rows), np.int32),
    }
    missing = int(np.isnan(inputs["numbers"]).sum() + (inputs["categories"] == 0).sum())
    about = (
        f"{len(rows)} rows of {len(numbers)} numbers and {len(categories)} categories; "
        f"{target} is to be predicted"
    )
    about += f", one of {len(classes)} classes" if classes else ", a number"
    about += f"; {missing} values are missing" if missing else ""
    alone = [n for n, v in categories.items() if len(set(v)) == len(rows)]
    if alone:
        about += f"; each row has its own {', '.join(alone)}, which teaches nothing"
    return Table(inputs, labels, classes, tuple(described), about)


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            sample = file.read(1 << 16)
            file.seek(0)
            first = sample.partition("\n")[0]
            mark = max(",;\t|", key=first.count)
            lines = [r for r in csv.reader(file, delimiter=mark) if r]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            f"{path} is no table: {error}{at(user_source())}\n"
            "It is read as UTF-8: `iconv -f latin1 -t utf-8` converts other texts."
        ) from None
    if len(lines) < 2 or len(lines[0]) < 2:
        raise ValueError(
            f"{path} is no table of a header and rows of two columns or more"
            f"{at(user_source())}\n"
            "The first line has the names of columns, with commas between them."
        )
    header = [name.strip() for name in lines[0]]
    if len(set(header)) < len(header):
        twice = next(n for n in header if header.count(n) > 1)
        raise ValueError(f"{path} has two columns {twice!r}{at(user_source())}")
    for number, row in enumerate(lines[1:], 2):
        if len(row) != len(header):
            raise ValueError(
                f"{path}, line {number}: {len(row)} values, where the header has "
                f"{len(header)}{at(user_source())}"
            )
    rows = [[v.strip() for v in row] for row in lines[1:]]
    if mark == ";":
        rows = [[_with_point(v) for v in row] for row in rows]
    return header, rows


def _with_point(value: str) -> str:
    """A number with a comma before its decimals as others are written."""
    whole, comma, decimals = value.partition(",")
    if comma and decimals.isdigit() and whole.lstrip("+-").isdigit():
        return f"{whole}.{decimals}"
    return value


def _is_missing(value: str) -> bool:
    return value.lower() in _MISSING


def _numbers(values: tuple[str, ...]) -> np.ndarray | None:
    """A column as numbers, if it is one of numbers or of dates."""
    for read in (float, _days):
        try:
            found = [np.nan if _is_missing(v) else read(v) for v in values]
        except (ValueError, OverflowError):
            continue
        return np.array(found, np.float64)
    return None


def _days(text: str) -> float:
    """Days since 1970 of a date, or a date and a time, as ISO 8601 writes them."""
    if text[4:5] != "-":
        raise ValueError(f"{text!r} is no date")
    seconds = (
        datetime.fromisoformat(text).replace(tzinfo=None) - _EPOCH
    ).total_seconds()
    return seconds / 86400


def _check_finite(
    path: Path, name: str, found: np.ndarray, values: Sequence[str]
) -> None:
    wrong = np.flatnonzero(np.isinf(found))
    if wrong.size:
        raise ValueError(
            f"{path}, line {wrong[0] + 2}: {name} is {values[wrong[0]]}; {wrong.size} "
            f"rows have such{at(user_source())}\n"
            "Numbers are finite, as float32; what is not known is left empty."
        )


def _target(values: tuple[str, ...]) -> tuple[np.ndarray, tuple[str, ...] | None]:
    numbers = _numbers(values)
    kinds = sorted(set(values))
    if numbers is not None:
        whole = bool((numbers == np.round(numbers)).all())
        if not whole or len(kinds) > _FEW:
            with np.errstate(over="ignore"):  # It is said which are too large.
                return numbers.astype(np.float32), None
        kinds.sort(key=float)
    number = {kind: i for i, kind in enumerate(kinds)}
    return np.array([number[v] for v in values], np.int32), tuple(kinds)


def _matrix(columns: list, count: int, dtype: type) -> np.ndarray:
    if not columns:
        return np.zeros((count, 0), dtype)
    return np.stack(columns, -1).astype(dtype)
