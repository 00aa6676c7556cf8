"""Loaders: every example once an epoch, the same order again, exact places."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import treadle.numpy as tnp
from treadle import data


class Examples:
    """As a data set of PyTorch: one example at a time."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> dict[str, Any]:
        if number >= self.count:
            raise IndexError(number)
        return {"x": np.full(3, number, np.float32), "y": number, "name": f"n{number}"}


def numbers(batches: Any) -> list[list[int]]:
    return [np.asarray(b).tolist() for b in batches]


@given(
    st.integers(1, 40), st.integers(1, 40), st.booleans(), st.integers(0, 3), st.data()
)
def test_each_example_once_an_epoch(
    count: int, size: int, drop: bool, ahead: int, draw: Any
) -> None:
    shards = draw.draw(st.integers(1, count))
    own = count // shards
    if drop and size > own:
        return
    seen: list[int] = []
    for which in range(shards):
        loader = data.Loader(
            np.arange(count),
            size,
            drop_last=drop,
            shard=(which, shards),
            prefetch=ahead,
            seed=3,
        )
        batches = numbers(loader)
        assert len(batches) == len(loader)
        assert all(len(b) == size for b in batches[:-1])
        seen += chain.from_iterable(batches)
    assert len(set(seen)) == len(seen)
    if not drop:
        assert len(seen) == own * shards


@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("stop", [0, 1, 4, 5, 11])
def test_it_goes_on_where_it_stopped(stop: int, prefetch: int) -> None:
    def loader() -> data.Loader:
        return data.Loader(np.arange(17), 3, seed=1, prefetch=prefetch)

    whole = numbers(islice(loader().repeat(), 16))
    first = loader()
    begun = numbers(islice(first.repeat(), stop))
    again = loader()
    again.restore(json.loads(json.dumps(first.state())))
    assert begun + numbers(islice(again.repeat(), 16 - stop)) == whole


def test_epochs_differ_and_a_loop_is_the_rest_of_one() -> None:
    loader = data.Loader(np.arange(12), 4, seed=1)
    first, second = numbers(loader), numbers(loader)
    assert len(first) == len(second) == 3 and first != second
    assert loader.state()["epoch"] == 2
    begun = numbers(islice(iter(loader), 1))
    rest = numbers(loader)
    assert len(begun) + len(rest) == 3
    assert sorted(chain.from_iterable(begun + rest)) == list(range(12))


def test_another_seed_is_another_order_and_none_is_as_it_lies() -> None:
    one, other = (numbers(data.Loader(np.arange(50), 50, seed=s)) for s in (0, 1))
    assert one != other and sorted(one[0]) == sorted(other[0])
    assert numbers(data.Loader(np.arange(5), 2, shuffle=False)) == [[0, 1], [2, 3]]


def test_a_state_of_other_data_is_refused() -> None:
    state = data.Loader(np.arange(12), 4).state()
    with pytest.raises(ValueError, match="batch_size=4, this one has 3"):
        data.Loader(np.arange(12), 3).restore(state)
    with pytest.raises(ValueError, match="examples=12, this one has 13"):
        data.Loader(np.arange(13), 4).restore(state)


def test_pytrees_of_arrays_ours_and_numpys() -> None:
    x, y = tnp.arange(12.0).reshape(6, 2), np.arange(6)
    for batch in data.Loader({"x": x, "in": (y,)}, 2):
        assert type(batch["x"]) is np.ndarray and batch["x"].dtype == np.float32
        assert (batch["x"][:, 0] == 2 * batch["in"][0]).all()
    with pytest.raises(ValueError, match=r"different lengths") as caught:
        data.Loader({"x": x, "y": np.arange(7)}, 2)
    assert "['x']: 6" in str(caught.value) and "test_loader.py" in str(caught.value)


@pytest.mark.parametrize("options", [{}, {"workers": 3}, {"prefetch": 0}])
def test_examples_one_by_one(options: Any) -> None:
    for batch in data.Loader(Examples(10), 4, **options):
        assert batch["x"].shape == (4, 3) and batch["x"].dtype == np.float32
        assert batch["y"].dtype == np.int32
        assert batch["name"] == [f"n{y}" for y in batch["y"]]
        assert (batch["x"][:, 0] == batch["y"]).all()


def test_sources_and_transforms() -> None:
    source = data.Source(lambda n: n * 10, 6)
    loader = data.Loader(source, 3, shuffle=False, transform=lambda b: b + 1)
    assert numbers(loader) == [[1, 11, 21], [31, 41, 51]]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_errors_come_where_the_batch_would(prefetch: int) -> None:
    class Broken(Examples):
        def __getitem__(self, number: int) -> dict[str, Any]:
            if number == 5:
                raise OSError("unreadable")
            return super().__getitem__(number)

    batches = iter(data.Loader(Broken(8), 2, shuffle=False, prefetch=prefetch))
    assert next(batches)["y"].tolist() == [0, 1]
    assert next(batches)["y"].tolist() == [2, 3]
    with pytest.raises(OSError, match="unreadable") as caught:
        next(batches)
    assert "(example 5 of Broken)" in caught.value.__notes__


def test_a_loop_that_is_left_leaves_no_thread() -> None:
    for _ in range(20):
        batches = iter(data.Loader(Examples(100), 2, prefetch=3))
        next(batches)
        batches.close()  # type: ignore[attr-defined]
    assert not [t for t in threading.enumerate() if t.name == "treadle-data"]


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="batches of 9 can't be made of 8 examples"):
        data.Loader(np.arange(8), 9)
    with pytest.raises(ValueError, match="of 2 examples in each of 4 shards"):
        data.Loader(np.arange(8), 3, shard=(0, 4))
    with pytest.raises(ValueError, match=r"got \(2, 2\)"):
        data.Loader(np.arange(8), 2, shard=(2, 2))
    with pytest.raises(TypeError, match=r"got generator[\s\S]*data\.Stream"):
        data.Loader((i for i in range(3)), 2)


class Counted:
    """An iterator that knows its place, as Grain's do."""

    def __init__(self) -> None:
        self.next = 0

    def __iter__(self) -> Counted:
        return self

    def __next__(self) -> int:
        if self.next == 10:
            raise StopIteration
        self.next += 1
        return self.next - 1

    def get_state(self) -> dict[str, int]:
        return {"next": self.next}

    def set_state(self, state: dict[str, int]) -> None:
        self.next = state["next"]


def endless(epoch: int) -> Iterator[int]:
    return iter(range(100 * epoch, 100 * epoch + 10))


@pytest.mark.parametrize("examples", [endless, lambda epoch: Counted(), range(10)])
@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("stop", [0, 2, 3, 5])
def test_streams_go_on_where_they_stopped(
    examples: Any, prefetch: int, stop: int
) -> None:
    def stream() -> data.Stream:
        return data.Stream(examples, 3, prefetch=prefetch)

    whole = numbers(islice(stream().repeat(), 8))
    assert whole[:3] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    first = stream()
    begun = numbers(islice(first.repeat(), stop))
    again = stream()
    again.restore(json.loads(json.dumps(first.state())))
    assert begun + numbers(islice(again.repeat(), 8 - stop)) == whole


def test_streams_of_too_little_end() -> None:
    with pytest.raises(ValueError, match="fewer examples than a batch of 3"):
        next(data.Stream(range(2), 3).repeat())
    assert numbers(data.Stream(range(4), 3, drop_last=False)) == [[0, 1, 2], [3]]
    with pytest.raises(TypeError, match="generator ends once"):
        data.Stream((i for i in range(3)), 2)


def test_padding() -> None:
    batch = data.pad([{"t": [1, 2, 3]}, {"t": [4]}], value=-1, multiple_of=2)
    assert batch["t"].tolist() == [[1, 2, 3, -1], [4, -1, -1, -1]]
    with pytest.raises(
        ValueError, match=r"different shapes in \['t'\]: \(1,\), \(3,\)"
    ):
        data.stack([{"t": [1, 2, 3]}, {"t": [4]}])
    with pytest.raises(ValueError, match="different pytrees"):
        data.stack([{"t": 1}, {"u": 1}])
    assert data.stack([2**40, 1]).dtype == np.int64


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_source_that_fetches_other_numbers_of_examples(prefetch: int) -> None:
    rows = np.arange(20.0).reshape(10, 2)
    short = data.Source(lambda n: {"x": rows[n], "y": rows[n[1:], 0]}, 10)
    loader = data.Loader(short, 4, prefetch=prefetch)
    said = r"asked for 4 examples, and fetched in \['y'\] f64\[3\]"
    with pytest.raises(ValueError, match=said):
        next(iter(loader))
    right = data.Source(lambda n: {"x": rows[n], "scale": np.float32(2)}, 10)
    assert len(list(data.Loader(right, 4, prefetch=prefetch))) == 2
