"""What a process keeps, and how it is forgotten."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.refused import refused
from treadle.api.programs import Programs


def counted(calls: list[int]) -> Any:
    def f(x: Any) -> Any:
        calls.append(1)
        return x + 1

    return td.jit(f)


def test_caches_are_cleared_of_one_function_or_of_all() -> None:
    one: list[int] = []
    two: list[int] = []
    f, g = counted(one), counted(two)
    for _ in range(4):
        f(1.0), g(1.0)
    f.clear_cache()
    for _ in range(3):
        f(1.0), g(1.0)
    assert (len(one), len(two)) == (2, 1)
    td.clear_caches()
    for _ in range(3):
        np.testing.assert_array_equal(f(1.0), g(1.0))
    assert (len(one), len(two)) == (3, 2)


@pytest.mark.usefixtures("only_new_objects")
def test_functions_that_are_gone_are_not_kept() -> None:
    from treadle.api.caches import made

    gc.collect()
    before = len(made)
    f = counted([])
    f(1.0)
    assert len(made) == before + 1
    del f
    gc.collect()
    assert len(made) == before


@pytest.mark.usefixtures("only_new_objects")
def test_live_arrays_are_those_that_something_holds() -> None:
    def mine() -> int:
        gc.collect()
        return sum(a.shape == (321, 7) for a in td.live_arrays())

    x = tnp.ones((321, 7)) * 2
    kept = {"y": td.jit(lambda x: x + 1)(x)}
    assert mine() == 2
    td.jit(lambda x: x * 0, donate=0)(x)
    assert mine() == 1
    sizes = [a.nbytes for a in td.live_arrays()]
    assert sizes == sorted(sizes, reverse=True)
    del kept["y"]
    assert mine() == 0


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("static_argnums", (0,), "Write `static=(0,)`"),
        ("static_argnames", "n", "Write `static='n'`"),
        ("donate_argnums", 1, "Write `donate=1`"),
        ("donate_argnames", ("a",), "Write `donate=('a',)`"),
        ("keep_unused", True, "Leave it out: arguments that are not used"),
        ("inline", True, "Leave it out: a jitted function within another"),
        ("device", None, "`td.device_put`"),
        ("compiler_options", {}, "Leave it out: there is one way of compiling"),
        ("fullgraph", True, "Leave it out: a function is always compiled as a whole"),
    ],
)
def test_other_spellings_of_keywords_get_ours(
    name: str, value: Any, remedy: str
) -> None:
    said = f"jit has no argument {name!r}"
    refused(lambda: td.jit(lambda x: x, **{name: value}), TypeError, said, remedy)
    refused(lambda: td.jit(**{name: value}), TypeError, said, remedy)


def test_keywords_that_nobody_knows() -> None:
    refused(lambda: td.jit(lambda x: x, fast=True), TypeError, "no argument 'fast'")


def test_another_open_size_is_found_by_what_arguments_have_in_common(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    f = td.jit(lambda x, scale: x * scale + x.shape[0], static="scale")
    for n in (3, 4):
        f(np.ones(n, np.float32), 2.0)

    def slowly(*args: Any) -> Any:
        raise AssertionError("its axes were looked at one by one")

    monkeypatch.setattr(Programs, "_made", slowly)
    for n in (5, 1, 9):
        np.testing.assert_array_equal(f(np.ones(n, np.float32), 2.0), np.full(n, 2 + n))
    with pytest.raises(AssertionError, match="one by one"):
        f(np.ones((2, 2), np.float32), 2.0)
