"""Rows of a table as a model takes them: numbers standardised, categories by number.

What is missing in a column of numbers counts as the column's mean; where that happens,
a further number is 1 for the rows in which it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from treadle.data import DataSet

Columns = dict[str, list[dict[str, Any]]]
"""What is known of the columns of "numbers" and of "categories": plain JSON."""


def describe(found: DataSet) -> Columns:
    """What of a table's columns has to be known: it follows from the training rows."""
    numbers = found.train.inputs["numbers"].astype(np.float64)
    named = [c for c in found.columns if not c.categories][: numbers.shape[1]]
    return {
        "numbers": [
            _number(column.name, values)
            for column, values in zip(named, numbers.T, strict=True)
        ],
        "categories": [
            {"name": column.name, "categories": list(column.categories)}
            for column in found.columns[len(named) :]
        ],
    }


def _number(name: str, values: np.ndarray) -> dict[str, Any]:
    there = values[~np.isnan(values)]
    return {
        "name": name,
        "mean": float(there.mean()) if there.size else 0.0,
        "spread": (float(there.std()) if there.size else 0.0) or 1.0,
        "missing": len(there) < len(values),
    }


def standardized(inputs: Mapping[str, Any], columns: Columns) -> dict[str, np.ndarray]:
    """The "numbers" (n, numbers and marks) float32 with mean 0 and deviation 1 in each
    column, and the "categories" (n, of them) int32."""
    known = columns["numbers"]
    mean = np.array([c["mean"] for c in known], np.float32)
    spread = np.array([c["spread"] for c in known], np.float32)
    marked = np.array([c["missing"] for c in known], bool)
    values = (inputs["numbers"] - mean) / spread
    missing = np.isnan(values)
    marks = missing[:, marked].astype(np.float32)
    numbers = np.concatenate([np.where(missing, np.float32(0), values), marks], -1)
    return {"numbers": numbers, "categories": inputs["categories"]}


def vectors(inputs: Mapping[str, Any], columns: Columns) -> np.ndarray:
    """Rows as vectors (n, features) float32: the numbers, then for each category a 1
    among zeros."""
    found = standardized(inputs, columns)
    parts = [found["numbers"]]
    for i, column in enumerate(columns["categories"]):
        size = len(column["categories"]) + 1
        parts.append(np.eye(size, dtype=np.float32)[found["categories"][:, i]])
    return np.concatenate(parts, -1)
