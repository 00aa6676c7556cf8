"""What catches all errors around a branch, and what the trace raises for itself too."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td


def halved_or_not(x: Any) -> Any:
    x = x * 2 if x > 1 else x * 3
    if x > 5:
        x = x - 1
    while x < 10:
        x = x * 1.5
    return x


def in_a_bare_except(x: Any) -> Any:
    try:
        if x > 1:
            x = x * 2
        x = halved_or_not(x)
    except:  # noqa: E722
        x = x - 1000
    return x


def in_an_except_of_all(x: Any) -> Any:
    try:
        x = x * 2 if x > 1 else x * 3
        if x > 5:
            x = x - 1
    except BaseException:
        x = x - 1000
    return x


def before_a_return(x: Any) -> Any:
    try:
        if x > 1:
            x = x * 2
        x = halved_or_not(x)
    finally:
        return x  # noqa: B012


class SwallowingAll:
    def __enter__(self) -> SwallowingAll:
        return self

    def __exit__(self, *error: object) -> bool:
        return True


def in_a_manager_that_ends_all(x: Any) -> Any:
    with SwallowingAll():
        if x > 1:
            x = x * 2
        x = halved_or_not(x)
    return x


@pytest.mark.parametrize(
    "function",
    [
        in_a_bare_except,
        in_an_except_of_all,
        before_a_return,
        in_a_manager_that_ends_all,
    ],
)
@pytest.mark.parametrize("x", [0.5, 1.5, 4.0])
def test_what_catches_all_does_not_end_a_trace_that_begins_anew(
    function: Callable[[Any], Any], x: float
) -> None:
    np.testing.assert_allclose(td.jit(function)(x), function(x), rtol=1e-6)
    slope = (function(x + 1e-6) - function(x - 1e-6)) / 2e-6
    np.testing.assert_allclose(td.jit(td.grad(function))(x), slope, rtol=1e-4)
    found = td.vmap(function)(np.float32([x, x + 0.25]))
    np.testing.assert_allclose(found[1], function(x + 0.25), rtol=1e-6)


LOCK = threading.Lock()


def with_a_lock(x: Any) -> Any:
    if not LOCK.acquire(blocking=False):
        raise RuntimeError("the lock was not released")
    try:
        if x > 1:
            x = x * 2
    finally:
        td.jit(halved_or_not)(1.0)
        LOCK.release()
    return x


def test_a_finally_that_the_trace_passes_runs_to_its_end() -> None:
    assert td.jit(with_a_lock)(3.0) == 6
    assert not LOCK.locked()
