"""Programs that hold for sizes with one remainder, and sizes rounded to multiples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.dynamic import agree, floats, gradient_of, same_bytes
from treadle import nn


def halved(x: Any, w: Any, times: int) -> Any:
    """Made shorter by convolutions, and longer again beside what it was."""
    how = {"dimension_numbers": ("NWC", "WIO", "NWC")}
    skips = []
    for _ in range(times):
        skips.append(x)
        x = tnp.tanh(td.lax.conv_general_dilated(x, w, (2,), "SAME", **how))
    for skip in reversed(skips):
        x = tnp.tanh(tnp.repeat(x, 2, 1) + skip)
    return x


def filled(x: Any, w: Any) -> Any:
    """Of images of any size: filled up to a multiple of 4, and cut again."""
    n = x.shape[1]
    return halved(tnp.pad(x, ((0, 0), (0, -n % 4), (0, 0))), w, 2)[:, :n]


def sums_and_differences(x: Any) -> Any:
    found = []
    for _ in range(3):
        found.append((x[::2] - x[1::2]) / 2)
        x = (x[::2] + x[1::2]) / 2
    for d in reversed(found):
        x = tnp.stack([x + d, x - d], 1).reshape(-1)
    return x


def merged(x: Any) -> Any:
    """Attention in blocks of what four pixels are, of images of any size."""
    x = tnp.pad(x, ((0, x.shape[0] % 2), (0, x.shape[1] % 2), (0, 0)))
    y = tnp.concatenate([x[i::2, j::2] for i in range(2) for j in range(2)], -1)
    h, w, c = y.shape
    y = tnp.pad(y, ((0, -h % 3), (0, -w % 3), (0, 0)))
    rows, columns = y.shape[0] // 3, y.shape[1] // 3
    z = y.reshape(rows, 3, columns, 3, -1).swapaxes(1, 2).reshape(-1, 9, c)
    z = (nn.softmax(z @ z.mT) @ z).reshape(rows, columns, 3, 3, c)
    return z.swapaxes(1, 2).reshape(3 * rows, 3 * columns, c)[:h, :w]


WIDTH = floats("3 4 4")
CASES: dict[str, tuple[Any, list[Any], Any]] = {
    "shorter": (
        lambda x, w: halved(x, w, 2),
        [floats("b n 4"), WIDTH],
        ((2, 12), (3, 16), (1, 20), (2, 68)),
    ),
    "filled": (filled, [floats("2 n 4"), WIDTH], ((9,), (8,), (17,), (5,), (102,))),
    "sums": (sums_and_differences, [floats("n")], ((24,), (16,), (104,))),
    "merged": (merged, [floats("h w 2")], ((5, 9), (8, 8), (17, 3), (33, 18))),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_halved_or_rounded_is_one_program(name: str) -> None:
    agree(*CASES[name])


@pytest.mark.parametrize("name", ["shorter", "sums"])
def test_gradients_of_what_is_halved_are_one_program(name: str) -> None:
    function, args, sizes = CASES[name]
    agree(gradient_of(function), args, sizes)


def test_sizes_with_one_remainder_share_a_program() -> None:
    @td.jit
    def upper(x: Any) -> Any:
        return tnp.repeat(x[::4], 2) + x[::2]

    for n in (15, 11, 3, 7, 12, 16, 31, 4, 40):
        x = np.random.default_rng(n).normal(size=n).astype("float32")
        wanted = np.repeat(x[::4], 2) + x[::2]
        assert not same_bytes(upper(x), wanted), n
    report = upper.report()
    guards = [[str(g) for g in p.guards if "% 4" in str(g)] for p in report.programs]
    rests = [g for g in guards if g]
    assert rests == [["(x.shape[0] % 4) == 3"], ["(x.shape[0] % 4) == 0"]]
    # Besides, there is the first program, and 3 and 4 may have some of their own.
    assert report.traces <= 5, report


def test_two_axes_that_must_agree_where_one_is_halved() -> None:
    @td.jit
    def function(x: Any, y: Any) -> Any:
        return x[: x.shape[0] // 2] + y, x.shape[0] // 4 * y

    for n in (8, 12, 40, 100):
        x, y = (np.arange(m, dtype="float32") for m in (n, n // 2))
        wanted = x[: n // 2] + y, np.float32(n // 4) * y
        assert not same_bytes(function(x, y), wanted), n
    assert function.report().traces <= 3, function.report()


def windowed(x: Any) -> Any:
    """Windows of two, three apart, of what was rounded down to fours."""
    v = x[: x.shape[0] - x.shape[0] % 4]
    last = (v.shape[0] - 2) // 3 * 3 + 1
    return v[:last:3] + 2 * v[1 : last + 1 : 3]


def columns_of_rests(x: Any) -> Any:
    v = x[::2][::2] + x[::4]
    v = v[: v.shape[0] - v.shape[0] % 3]
    return v.reshape(3, -1).sum(0)


def begun(x: Any) -> Any:
    """The first two rows of a matrix that is made of what was repeated."""
    v = tnp.tile(x, 4)
    n = v.shape[0]
    return tnp.broadcast_to(v, (n, n)).T.reshape(-1)[: n + n]


REGRESSIONS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "nothing lies apart": (windowed, (2, 8, 3, 1, 9, 4, 31)),
    "nothing backwards": (lambda x: x[2::2][::-4], (2, 9, 1, 3, 4, 12, 40)),
    "a row of one": (columns_of_rests, (14, 12, 25, 62, 8, 48)),
    "a repeated one": (begun, (3, 1, 8, 2)),
    "first of one": (begun, (1, 4, 2)),
}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_short_axes_are_no_case_of_their_own(name: str) -> None:
    function, sizes = REGRESSIONS[name]
    agree(function, [floats("n")], [(n,) for n in sizes], guards="short axes")


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8])
def test_strides_of_what_may_be_empty_are_those_of_numpy(length: int) -> None:
    compiled = td.jit(windowed, dynamic={"x": ("n",)})
    x = np.arange(length, dtype="float32")
    v = x[: length - length % 4]
    last = (v.size - 2) // 3 * 3 + 1
    wanted = v[:last:3] + 2 * v[1 : last + 1 : 3]
    assert not same_bytes(compiled(x), wanted)


def test_an_error_at_one_size_leaves_the_others_open() -> None:
    def function(x: Any) -> Any:
        if x.shape[0] > 50 and type(x.shape[0]) is not int:
            raise RuntimeError("not like this")
        return x * x.shape[0]

    compiled = td.jit(function)
    for n in (4, 7, 60, 9, 61, 33):
        x = np.ones(n, "float32")
        assert not same_bytes(compiled(x), x * np.float32(n))
    report = compiled.report()
    assert [p.symbolic for p in report.programs] == [False, True, False, False]
    assert "for this size alone, since that failed" in report.programs[2].reason
    assert not report.notes


def test_errors_show_the_sizes_that_were_given() -> None:
    compiled = td.jit(sums_and_differences, dynamic={"x": ("n",)})
    compiled(np.ones(16, "float32"))
    with pytest.raises(ValueError, match="don't broadcast") as caught:
        compiled(np.ones(20, "float32"))
    assert "In this call, n = 20." in caught.value.__notes__
