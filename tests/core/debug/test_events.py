"""Traces and compilations are logged, or refused."""

from __future__ import annotations

import logging
import re
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp


def test_no_tracing_says_why() -> None:
    f = td.jit(lambda x, n: x * n, static="n")
    f(tnp.ones(3), 2)
    with td.debug.no_tracing():
        np.testing.assert_array_equal(np.asarray(f(tnp.ones(3), 2)), [2, 2, 2])
        with pytest.raises(RuntimeError) as caught:
            f(tnp.ones(3), 3)
    text = str(caught.value)
    assert text.startswith("<lambda> would be traced inside of no_tracing\n  at ")
    assert "static 'n' is 3, was 2" in text
    f(tnp.ones(3), 3)
    assert f.report().traces == 2


def test_no_tracing_admits_new_sizes() -> None:
    f = td.jit(lambda x: x * 2)
    f(tnp.ones(3)), f(tnp.ones(4))
    with td.debug.no_tracing():
        assert f(tnp.ones(5)).shape == (5,)


def test_no_tracing_refuses_what_is_called_inside_of_a_transform() -> None:
    f = td.jit(lambda x: x * 2)
    with td.debug.no_tracing(), pytest.raises(RuntimeError, match="inside of a trans"):
        td.grad(f)(1.0)
    td.grad(f)(1.0)
    with td.debug.no_tracing():
        td.grad(f)(1.0)


def test_no_tracing_refuses_to_compile() -> None:
    graph = td.jit(lambda x: x * 2)
    graph.graph(tnp.ones(3))  # traced, not compiled
    with td.debug.no_tracing(), pytest.raises(RuntimeError, match="be compiled"):
        graph(tnp.ones(3))


def test_log_compiles(caplog: Any) -> None:
    def scale(x: Any) -> Any:
        return x * 2

    f = td.jit(scale)
    f(tnp.ones(3))
    assert not caplog.records
    with td.debug.log_compiles():
        f(tnp.ones(3))
        assert not caplog.records
        f(tnp.ones(3, dtype="int32"))
    lines = [r.getMessage() for r in caplog.records]
    assert {r.name for r in caplog.records} == {"treadle"}
    assert {r.levelno for r in caplog.records} == {logging.WARNING}
    assert len(lines) == 2
    assert re.fullmatch(
        r"traced scale\(x: i32\[3\]\) in [\d.e-]+ ms, because `?x`? is i32\[3\], was "
        r"f32\[3\] \(.*test_events\.py:\d+\)",
        lines[0],
    ), lines[0]
    assert re.fullmatch(r"compiled scale \(1 equations\) in [\d.e+]+ ms", lines[1])


def test_the_environment_logs_everywhere(caplog: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("TREADLE_LOG_COMPILES", "1")
    f = td.jit(lambda x: x * 2)
    for n in (3, 4):
        f(tnp.ones(n))
    lines = [r.getMessage() for r in caplog.records]
    words = [line.split(" ")[0] for line in lines]
    assert words == ["traced", "compiled", "compiled", "traced"]
    assert "(x: f32[x.shape[0]])" in lines[3]
    caplog.clear()
    monkeypatch.setenv("TREADLE_LOG_COMPILES", "0")
    td.jit(lambda x: x * 3)(1.0)
    assert not caplog.records
