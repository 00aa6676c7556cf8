"""`record` makes what `dataclasses.dataclass` makes of the same class."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from typing import Any

import pytest

from treadle.records import field, record

Maker = Callable[..., Any]


def point(maker: Maker, **options: bool) -> Any:
    """A class with fields of all kinds."""

    class Point:
        """A point."""

        x: int
        y: float = 2.5
        names: list[str] = field(default_factory=list)
        noted: Any = field(default=None, compare=False, repr=False)
        _: int = field(default=7, init=False)
        far: bool = field(default=False, kw_only=True)

        def twice(self) -> int:
            return 2 * self.x

    Point.__qualname__ = "Point"
    return maker(**options)(Point)


OPTIONS = [
    {},
    {"frozen": True},
    {"eq": False},
    {"repr": False},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "eq": False, "repr": False},
]
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}),
    ((1, 3.5, ["a"]), {"far": True}),
    ((), {"x": 4, "noted": "n"}),
    ((), {}),
    ((1, 2, [], None, True), {}),
    ((1,), {"unknown": 2}),
    ((1,), {"x": 1}),
]


def said(function: Callable[[], Any]) -> Any:
    """What a call gives, or how it fails."""
    try:
        return function()
    except Exception as error:
        return type(error), str(error).replace("super(type, obj)", "")


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("call", CALLS)
def test_objects_are_those_of_a_dataclass(options: Any, call: Any) -> None:
    args, given = call

    def shown(maker: Maker) -> Any:
        cls = point(maker, **options)
        made = cls(*args, **given)
        values = [getattr(made, f.name) for f in fields(made)]
        text = repr(made) if options.get("repr", True) else ""
        return values, text, made.twice(), cls.__doc__, cls.__match_args__

    assert str(said(lambda: shown(record))).replace("test_records.", "") == (
        str(said(lambda: shown(dataclass))).replace("test_records.", "")
    )


@pytest.mark.parametrize("options", OPTIONS)
def test_they_compare_and_hash_alike(options: Any) -> None:
    def compared(maker: Maker) -> list[Any]:
        cls, other = point(maker, **options), point(maker, **options)
        names: Any = ("a",)
        a, b, c = cls(1, 2, names), cls(1, 2, names, "noted"), cls(1, 3, names)
        found = [a == b, a == c, a != c, a == 1, a == other(1, 2, names)]
        hashed = said(lambda: hash(a) == hash(b))
        return [*found, hashed, said(lambda: hash(a) == hash(c))]

    assert compared(record) == compared(dataclass)


@pytest.mark.parametrize("options", OPTIONS)
def test_frozen_ones_stay_as_they_are(options: Any) -> None:
    made = point(record, **options)(1)
    if not options.get("frozen"):
        made.x = 5
        assert made.x == 5
        return
    like = point(dataclass, **options)(1)

    def assign(to: Any) -> None:
        to.x = 5

    def delete(of: Any) -> None:
        del of.x

    for change in (assign, delete):
        with pytest.raises(FrozenInstanceError) as ours:
            change(made)
        with pytest.raises(FrozenInstanceError) as theirs:
            change(like)
        assert str(ours.value) == str(theirs.value)
    assert replace(made, x=3).x == 3
    assert copy.copy(made) == made if options.get("eq", True) else copy.copy(made)


@record(frozen=True, slots=True)
class Slotted:
    x: int
    y: tuple[int, ...] = ()


@record(frozen=True)
class Base:
    x: int

    def __hash__(self) -> int:
        return 11

    def __repr__(self) -> str:
        return "own"


@record(frozen=True)
class Derived(Base):
    y: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", self.x + self.y)


def test_they_are_pickled() -> None:
    for made in (Slotted(1, (2, 3)), Derived(1), Base(3)):
        assert pickle.loads(pickle.dumps(made)) == made
        assert copy.deepcopy(made) == made


def test_what_a_class_says_itself_stays() -> None:
    made = Derived(4, y=6)
    assert (made.x, made.y) == (10, 6)
    assert (hash(Base(1)), repr(Base(1))) == (11, "own")
    assert repr(made) == "Derived(x=10, y=6)"
    assert Base(10) != made
