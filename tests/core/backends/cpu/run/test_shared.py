"""Functions that modules have in common, compiled once."""

from __future__ import annotations

import ctypes
import time

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.backends import installed
from treadle.backends.cpu.run import native
from treadle.backends.cpu.run.divided import COLD
from treadle.backends.cpu.run.native import NativeError, Source
from treadle.backends.cpu.run.shared import LEAST, SHARED, apart

STEPS = "".join(
    f"  %x{n + 1} = call i64 @llvm.smax.i64(i64 %x{n}, i64 {n})\n" for n in range(LEAST)
)
"""The larger one of %x0 and of LEAST - 1."""

COMMON = f"""\
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
define internal i64 @common(i64 %x0) {SHARED} {{
{STEPS}  ret i64 %x{LEAST}
}}
"""

MAIN = """\
define i64 @{name}(i64 %x) {how} {{
  %y = call i64 @common(i64 %x)
  %z = add i64 %y, {more}
  ret i64 %z
}}
"""


def module(name: str, more: int, how: str = "") -> str:
    return COMMON + MAIN.format(name=name, more=more, how=how)


def source(text: str, symbol: str, **more) -> Source:
    return Source(f"test/shared/{time.time_ns()}", symbol, lambda: text, **more)


def call(address: int, x: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(x)


@pytest.fixture
def compiled(tmp_path, monkeypatch) -> list[str]:
    """What LLVM is given, where nothing was installed, with an empty cache."""
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(installed, "FOLDER", str(tmp_path / "none"))
    monkeypatch.setattr(native, "_shared", {})
    texts: list[str] = []
    real = native._compile_text

    def noted(text: str, level: int, folds: bool) -> bytes:
        texts.append(text)
        return real(text, level, folds)

    monkeypatch.setattr(native, "_compile_text", noted)
    return texts


def test_a_module_without_what_it_shares() -> None:
    own, (shared,) = apart(module("main", 1), "1")
    assert f"declare i64 @{shared.symbol}(i64)" in own
    assert f"call i64 @{shared.symbol}(i64 %x)" in own
    assert shared.declared == ("declare i64 @llvm.smax.i64(i64, i64)",)
    assert f"define weak_odr i64 @{shared.symbol}(i64 %x0)" in shared.code
    # One name is one code, compiled in one way.
    assert apart(module("other", 2), "1")[1] == [shared]
    assert apart(module("main", 1), "2")[1][0].symbol != shared.symbol
    longer = module("main", 1).replace("i64 %x3, i64 3", "i64 %x3, i64 4")
    assert apart(longer, "1")[1][0].symbol != shared.symbol


@pytest.mark.parametrize(
    "text",
    [
        module("main", 1).replace(f" {SHARED}", ""),
        module("main", 1).replace("@llvm.smax.i64(i64 %x3,", "@main(i64 %x3) ;"),
        "@at = global i64 0\n"
        + module("main", 1).replace(
            "  ret i64 %x", "  %at = load i64, ptr @at\n  ret i64 %x"
        ),
        COMMON.replace(STEPS, "").replace(f"%x{LEAST}", "%x0")
        + MAIN.format(name="main", more=1, how=""),
    ],
    ids=["not marked", "calls another", "reads a variable", "short"],
)
def test_others_stay_whole(text: str) -> None:
    assert apart(text, "1") == (text, [])


def test_of_two_modules_it_is_compiled_once(compiled: list[str]) -> None:
    sources = [
        source(module("one", 1), "one"),
        source(module("two", 2, COLD), "two"),
        source(module("one", 3), "one"),
    ]
    for _ in ("compiled", "from the disk"):
        found = native.load(sources)
        for x in (-7, LEAST + 5):
            results = [call(found[s.key], x) for s in sources]
            assert results == [max(x, LEAST - 1) + n for n in (1, 2, 3)]
        assert sum("define weak_odr i64 @common" in text for text in compiled) == 1
        assert len(compiled) == 4
        for s in sources:
            del native._functions[s.key]


def test_another_process_finds_it(compiled: list[str], monkeypatch) -> None:
    first, second = source(module("one", 1), "one"), source(module("two", 2), "two")
    native.load([first])
    monkeypatch.setattr(native, "_shared", {})
    assert call(native.load([second])[second.key], 0) == LEAST + 1
    assert sum("define weak_odr i64 @common" in text for text in compiled) == 1


def test_objects_that_have_one_function_twice_are_linked_as_one(
    compiled: list[str], monkeypatch, tmp_path
) -> None:
    second = COMMON[COMMON.index("define") :].replace("@common", "@second")
    second = second.replace("i64 %x2, i64 2", "i64 %x2, i64 99")
    more = "  %w = call i64 @second(i64 %y)\n  %z = add i64 %w,"
    text = second + module("one", 1).replace("  %z = add i64 %y,", more)
    first, other = source(text, "one"), source(module("two", 2), "two")
    native.load([first])
    assert sum("define weak_odr" in text for text in compiled) == 1
    kept = native.object_key(first)
    for file in tmp_path.glob("*.o"):
        if file.stem != kept:
            file.unlink()
    monkeypatch.setattr(native, "_shared", {})
    native.load([other])
    assert sum("@common" in text for text in compiled if "weak_odr" in text) == 2
    for s in (first, other):
        del native._functions[s.key]
    links = native._link_count
    found = native.load([first, other])
    assert native._link_count == links + 1 and len(compiled) == 4
    assert [call(found[s.key], 0) for s in (first, other)] == [100, LEAST + 1]


def test_what_failed_is_tried_again(compiled: list[str], monkeypatch) -> None:
    real = native._compile_text
    made = source(module("one", 1), "one")

    def no_memory(text: str, level: int, folds: bool) -> bytes:
        if "define weak_odr i64 @common" in text:
            raise RuntimeError("no memory")
        return real(text, level, folds)

    monkeypatch.setattr(native, "_compile_text", no_memory)
    with pytest.raises(NativeError, match="no memory"):
        native.load([made])
    monkeypatch.setattr(native, "_compile_text", real)
    assert call(native.load([made])[made.key], 0) == LEAST


def test_kernels_that_turn_rows_share_that(compiled: list[str]) -> None:
    x = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32)
    functions = [
        lambda np, x: np.sqrt((x * x + 1.25).sum(1)) * 3.5,
        lambda np, x: np.log((x * x * x * x + 2.75).sum(1)) - 7.5,
    ]
    for function in functions:
        exact = function(np, x.astype(np.float64))
        # Of open rows it is not known how long they are.
        opened = td.jit(lambda x, f=function: f(tnp, x), dynamic={"x": ("n", "k")})
        np.testing.assert_allclose(opened(x), exact, rtol=1e-5)
    turning = [text for text in compiled if "@treadle.turned_in." in text]
    defined = [
        text for text in turning if "define weak_odr void @treadle.turned_in." in text
    ]
    assert len(defined) == 1 and len(turning) == 3
