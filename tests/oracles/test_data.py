"""Data sets of others in our loaders."""

from __future__ import annotations

from itertools import islice
from typing import Any

import datasets
import grain
import numpy as np
import pytest
import torch

from treadle import data


class Squares(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        return torch.full((3,), float(number)), number**2


class Lines(torch.utils.data.IterableDataset):
    def __iter__(self) -> Any:
        return iter([torch.tensor([n]) for n in range(7)])


def columns() -> datasets.Dataset:
    return datasets.Dataset.from_dict(
        {"x": [[float(n), 0.0] for n in range(10)], "label": list(range(10))}
    )


@pytest.mark.parametrize(
    "source",
    [
        Squares(),
        torch.utils.data.TensorDataset(
            torch.arange(10.0)[:, None].repeat(1, 3), torch.arange(10) ** 2
        ),
        grain.MapDataset.range(10).map(lambda n: (np.full(3, n, np.float32), n * n)),
    ],
    ids=["torch", "tensors", "grain"],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_examples_by_number(source: Any, workers: int) -> None:
    seen = []
    for x, y in data.Loader(source, 5, workers=workers):
        assert x.shape == (5, 3) and x.dtype == np.float32
        assert (x[:, 0] ** 2 == y).all()
        seen += y.tolist()
    assert sorted(seen) == [n**2 for n in range(10)]


def test_columns_of_hugging_face() -> None:
    for batch in data.Loader(columns(), 5):
        assert batch["x"].shape == (5, 2)
        assert (batch["x"][:, 0] == batch["label"]).all()
    ragged = datasets.Dataset.from_dict({"tokens": [[1, 2, 3], [4], [5, 6]]})
    (batch,) = data.Loader(ragged, 3, collate=data.pad, shuffle=False)
    assert batch["tokens"].tolist() == [[1, 2, 3], [4, 0, 0], [5, 6, 0]]


@pytest.mark.parametrize(
    "make",
    [
        lambda: columns().to_iterable_dataset(),
        lambda: grain.MapDataset.range(10).to_iter_dataset(),
    ],
    ids=["hugging face", "grain"],
)
@pytest.mark.parametrize("stop", [0, 1, 3, 4, 6])
def test_streams_of_others_go_on_where_they_stopped(make: Any, stop: int) -> None:
    def numbers(batches: Any) -> list[list[int]]:
        return [
            np.asarray(b["label"] if isinstance(b, dict) else b).tolist()
            for b in batches
        ]

    whole = numbers(islice(data.Stream(make(), 3).repeat(), 8))
    assert whole[:3] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    first = data.Stream(make(), 3)
    begun = numbers(islice(first.repeat(), stop))
    again = data.Stream(make(), 3)
    again.restore(first.state())
    assert begun + numbers(islice(again.repeat(), 8 - stop)) == whole


def test_a_stream_of_torch() -> None:
    batches = [b.ravel().tolist() for b in data.Stream(Lines(), 3)]
    assert batches == [[0, 1, 2], [3, 4, 5]]
