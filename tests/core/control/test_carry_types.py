"""A carry that changes its dtype: the error names the line where that came about."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp

X = np.ones(3, np.float32)
WIDE = np.ones(3)


def _in_the_middle(c: Any) -> Any:
    y = tnp.sin(c)
    z = y * WIDE  # here
    return tnp.cos(z) + 1


def _in_a_sum(c: Any) -> Any:
    far = tnp.exp(c)
    near = tnp.concatenate([c, WIDE])[:3]  # here
    other = near * 2
    return other - far


def _beside(c: Any) -> Any:
    return c + WIDE  # here


@pytest.mark.parametrize("f", [_in_the_middle, _in_a_sum, _beside])
@pytest.mark.parametrize("loop", ["scan", "fori", "while"])
def test_the_line_where_the_dtype_came_in(f: Any, loop: str) -> None:
    loops: dict[str, Any] = {
        "scan": lambda x: td.scan(lambda c, _: (f(c), None), x, length=2),
        "fori": lambda x: td.fori_loop(0, 2, lambda i, c: f(c), x),
        "while": lambda x: td.while_loop(lambda c: c.sum() < 9, f, x),
    }
    code = f.__code__
    with open(__file__) as file:
        rows = file.read().splitlines()
    start = code.co_firstlineno
    line = next(n for n in range(start, len(rows)) if rows[n - 1].endswith("# here"))
    with pytest.raises(TypeError, match="the carry must keep its types") as caught:
        td.jit(loops[loop])(X)
    assert f"(made at {__file__}:{line})" in str(caught.value)
