"""Containers that a jitted function reads besides its arguments: it computes with what
is in them at the call, and is not traced again for what it did not read."""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.errors import SideEffectWarning

pytestmark = pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")


class Pair(NamedTuple):
    first: float
    table: dict[str, Any]


class Table:
    def __init__(self) -> None:
        self.held = {"a": 2.0}

    def __getitem__(self, name: str) -> Any:
        return self.held[name]


settings: dict[Any, Any] = {"rate": 2.0, 0: 3.0, (1, 2): 4.0, "inner": {"a": 5.0}}
numbers = [2.0, 3.0]
nested = [[2.0], [3.0, 4.0]]
among = {2.0}
queue = deque([2.0, 3.0])
made: defaultdict[str, Any] = defaultdict(float, a=2.0)
ordered = OrderedDict(a=2.0)
pair = Pair(1.0, {"a": 2.0})
space = SimpleNamespace(rate=2.0, numbers=[2.0, 3.0])
table = Table()
name, place, attribute = "rate", 1, "rate"


def of_argument(given: Any, x: Any) -> Any:
    return x * given["rate"]


def through(given: Any, x: Any) -> Any:
    return of_argument(given, x)


def product(given: Any, x: Any) -> Any:
    for n in given:
        x = x * n
    return x


def unpacked(x: Any) -> Any:
    a, b = numbers
    return x * a + b


def iterated(x: Any) -> Any:
    for n in numbers:
        x = x * n
    return x


def of_items(x: Any) -> Any:
    for _, value in settings["inner"].items():
        x = x * value
    return x


def matched(x: Any) -> Any:
    match settings:
        case {"rate": rate}:
            return x * rate


def by_loop(x: Any) -> Any:
    for i in range(2):
        x = x * numbers[i - 1]
    return x


# What reads; what then gets another value under which key; what the function does not
# read.
READS: list[tuple[Callable[[Any], Any], Any, Any, Any]] = [
    (lambda x: x * settings[0], settings, 0, "rate"),
    (lambda x: x * settings[1, 2], settings, (1, 2), "rate"),
    (lambda x: x * settings[name], settings, "rate", 0),
    (lambda x: x * settings.get("rate"), settings, "rate", 0),
    (lambda x: x * settings.get("none", 1.0), settings, "none", "rate"),
    (lambda x: x * (2.0 if "none" in settings else 1.0), settings, "none", "rate"),
    (lambda x: x * settings[f"{'rate'}"], settings, "rate", None),
    (lambda x: x * settings["inner"]["a"], settings["inner"], "a", "b"),
    (lambda x: x * sum(settings["inner"].values()), settings["inner"], "a", None),
    (lambda x: x * dict(**settings["inner"])["a"], settings["inner"], "a", None),
    (lambda x: x * numbers[0], numbers, 0, 1),
    (lambda x: x * numbers[-1], numbers, -1, 0),
    (lambda x: x * numbers[place], numbers, 1, 0),
    (lambda x: x * sum(numbers[1:]), numbers, 1, None),
    (lambda x: x * sum(a for a in numbers), numbers, 1, None),
    (lambda x: x * sum([a * 2 for a in numbers]), numbers, 0, None),
    (lambda x: x * max(*numbers), numbers, 0, None),
    (lambda x: product(numbers, x), numbers, 0, None),
    (lambda x: x * sum(map(sum, nested)), nested[1], 1, None),
    (lambda x: x * sum(among), among, None, None),
    (lambda x: x * len(among), among, None, None),
    (lambda x: x * (2.0 if 7.0 in among else 1.0), among, None, None),
    (lambda x: x * queue[1], queue, 1, 0),
    (lambda x: x * made["a"], made, "a", "b"),
    (lambda x: x * ordered["a"], ordered, "a", "b"),
    (lambda x: x * pair.table["a"], pair.table, "a", "b"),
    (lambda x: x * getattr(space, "rate"), vars(space), "rate", "b"),  # noqa: B009
    (lambda x: x * getattr(space, attribute), vars(space), "rate", "b"),
    (lambda x: x * space.numbers[1], space.numbers, 1, 0),
    (lambda x: x * table["a"], table.held, "a", None),
    (lambda x: of_argument(settings, x), settings, "rate", 0),
    (lambda x: through(settings, x), settings, "rate", 0),
    (unpacked, numbers, 0, None),
    (iterated, numbers, 1, None),
    (by_loop, numbers, 1, None),
    (of_items, settings["inner"], "a", None),
    (matched, settings, "rate", None),
]


@pytest.mark.parametrize("row", READS, ids=lambda row: str(row[1:])[:40])
def test_an_item_that_is_bound_anew(row: tuple[Any, ...]) -> None:
    function, holder, key, other = row
    f = td.jit(function)
    before = copy.copy(holder)

    def agree() -> None:
        for _ in range(4):
            assert f(3.0).item() == function(tnp.asarray(3.0)).item()

    try:
        agree()
        if holder is among:
            holder.add(7.0)
        else:
            holder[key] = 7.0
        agree()
        assert f.report().traces == 2
        if other is not None:
            holder[other] = 9.0
            agree()
            assert f.report().traces == 2
    finally:
        holder.clear()
        getattr(holder, "update" if hasattr(holder, "update") else "extend")(before)
    agree()


def test_the_number_of_items() -> None:
    words = [*"abc"]
    f = td.jit(lambda x: x * len(words))
    assert [f(1.0).item() for _ in range(4)] == [3.0] * 4
    words[0] = "d"
    assert f(1.0).item() == 3.0
    assert f.report().traces == 1
    words += ["e"] * 1000
    with pytest.warns(SideEffectWarning, match=r"`len\(words\)` was 3 when .* is 1003"):
        assert f(1.0).item() == 1003.0


@pytest.mark.parametrize("kind", [list, dict, set, deque])
def test_whether_there_are_items(kind: Any) -> None:
    held, other = SimpleNamespace(some=kind()), kind()
    f = td.jit(lambda x: x * (2 if held.some else 3) * (5 if not other else 7))
    assert [f(1.0).item() for _ in range(4)] == [15.0] * 4
    getattr(held.some, "update" if kind in (dict, set) else "extend")({1: 2})
    assert [f(1.0).item() for _ in range(4)] == [10.0] * 4
    getattr(other, "update" if kind in (dict, set) else "extend")({1: 2})
    assert [f(1.0).item() for _ in range(4)] == [14.0] * 4
    held.some.clear()
    assert f(1.0).item() == 21.0


def test_what_is_filled_once_is_no_reason_either() -> None:
    cache: list[float] = []

    @td.jit
    def f(x: Any) -> Any:
        if not cache:
            cache.append(2.0)
        return x * cache[0]

    assert [f(1.0).item() for _ in range(4)] == [2.0] * 4
    assert f.report().traces <= 2


def test_keys_that_are_missing_are_not_made() -> None:
    counts: defaultdict[str, float] = defaultdict(float)
    f = td.jit(lambda x: x + counts["a"])
    counts["a"] = 2.0
    assert [f(1.0).item() for _ in range(4)] == [3.0] * 4
    del counts["a"]
    assert f._programs.kept.same is not None and not f._programs.kept.same()
    assert not counts


def test_what_a_function_fills_itself_is_no_reason_to_trace_it_again() -> None:
    cache: dict[Any, Any] = {}
    losses: list[float] = []

    def table(n: int) -> Any:
        if n not in cache:
            cache[n] = float(n)
        return cache[n]

    def f(x: Any) -> Any:
        losses.append(len(losses))
        return x * table(x.shape[0])

    jitted = td.jit(f)
    for n in (2, 2, 3, 2, 4, 2, 3, 4):
        assert jitted(tnp.ones(n))[0] == n
    assert jitted.report().traces <= 3


def test_functions_and_built_in_names_that_are_bound_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = sys.modules[__name__]
    f = td.jit(lambda x: of_argument({"rate": 2.0}, x) * max(1, 2))
    assert [f(1.0).item() for _ in range(4)] == [4.0] * 4
    monkeypatch.setattr(here, "of_argument", lambda given, x: x)
    assert f(1.0).item() == 2.0
    monkeypatch.setattr(here, "max", lambda *_: 5, raising=False)
    assert f(1.0).item() == 5.0
    monkeypatch.undo()
    assert f(1.0).item() == 4.0
