"""A model that is built again with equal functions is not traced again."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn
from treadle.alike import representative

OFFSET = [0.0]


class Scaled(nn.Module):
    act: Any
    weight: td.Array

    def __init__(self, act: Any) -> None:
        self.act, self.weight = act, tnp.ones(3)

    def __call__(self, x: td.Array) -> td.Array:
        return self.act(x * self.weight)


def times(k: Any) -> Callable:
    return lambda x: x * k


def with_default(k: Any) -> Callable:
    def act(x: Any, k: Any = k, *, shift: float = 0.0) -> Any:
        return x * k + shift

    return act


def nested(k: Any) -> Callable:
    inner = times(k)
    return lambda x: inner(x) + 1


def scale(k: Any, x: Any) -> Any:
    return x * k


def recursive(k: Any) -> Callable:
    def act(x: Any, n: int = 2) -> Any:
        return act(x * k, n - 1) if n else x

    return act


MAKERS = [
    times,
    with_default,
    nested,
    lambda k: partial(scale, k),
    lambda k: partial(times(k)),
    recursive,
]


@pytest.mark.parametrize("make", MAKERS)
def test_equal_functions_are_traced_once(make: Callable) -> None:
    traced = []

    @td.jit
    def run(model: Scaled, x: Any) -> Any:
        traced.append(1)
        return model(x)

    x = tnp.ones(3)
    for k in (2.0, 2.0, 3.0, 2.0, 3.0):
        assert (run(Scaled(make(k)), x) == Scaled(make(k))(x)).all()
    assert len(traced) == 2


@pytest.mark.parametrize("make", MAKERS)
def test_numbers_that_are_equal_are_told_apart(make: Callable) -> None:
    a, b, c = (representative(make(k)) for k in (1, 1.0, True))
    assert a is not b and b is not c and a is not c
    zero, minus = representative(make(0.0)), representative(make(-0.0))
    assert zero is not minus
    assert representative(make(0.0)) is zero


def test_objects_count_by_identity() -> None:
    first, second = [1.0], [1.0]
    kept = representative(times(first))
    assert representative(times(first)) is kept
    assert representative(times(second)) is not kept


def test_other_code_is_another_function() -> None:
    a = representative(lambda x: x + 1)
    b = representative(lambda x: x + 1)
    assert a is not b
    assert representative(tnp.sin) is tnp.sin
    assert representative(3) == 3


def test_functions_with_attributes_are_their_own() -> None:
    a, b = times(2.0), times(2.0)
    a.note = "mine"  # type: ignore[attr-defined]
    assert representative(b) is representative(times(2.0))
    assert representative(a) is a


@pytest.mark.usefixtures("only_new_objects")
def test_functions_are_not_kept_alive() -> None:
    def wait(n: int) -> int:
        gc.collect()
        return len([1 for f in gc.get_objects() if getattr(f, "__qualname__", "") == n])

    name = times(0).__qualname__
    before = wait(name)  # type: ignore[arg-type]
    for i in range(20):
        representative(times(float(i)))
    assert wait(name) <= before + 1  # type: ignore[arg-type]


def test_what_was_changed_since_is_another_function() -> None:
    def counter() -> tuple[Callable, Callable]:
        k = 2.0

        def act(x: Any) -> Any:
            return x * k

        def change(to: float) -> None:
            nonlocal k
            k = to

        return act, change

    (first, change), (second, _) = counter(), counter()
    assert representative(first) is first
    assert representative(second) is first
    change(5.0)
    third, _ = counter()
    assert representative(third) is third
