"""Functions that run seldom, compiled apart from others."""

from __future__ import annotations

import ctypes
import time

import pytest

from treadle.backends.cpu.run import native
from treadle.backends.cpu.run.divided import COLD, divided, exported
from treadle.backends.cpu.run.native import Source

MODULE = f"""\
@step = internal constant i64 3
@table = internal constant [1 x ptr] [ptr @listed]
declare i64 @llvm.smax.i64(i64, i64)

define internal i64 @often(i64 %x,
  i64 %y) noinline nounwind {{
entry:
  %step = load i64, ptr @step
  %more = mul i64 %x, %step
  %sum = add i64 %more, %y
  ret i64 %sum
}}
define internal i64 @often_too(i64 %x) {{
  %found = call i64 @often(i64 %x, i64 1)
  %rest = call i64 @seldom(i64 %found)
  ret i64 %rest
}}
define internal i64 @listed(i64 %x) {{
  %y = xor i64 %x, -1
  ret i64 %y
}}
define internal i64 @seldom(i64 %x) {COLD} {{
  %step = load i64, ptr @step
  %found = call i64 @llvm.smax.i64(i64 %x, i64 %step)
  ret i64 %found
}}
define i64 @main(i64 %x) {COLD} {{
  %a = call i64 @often(i64 %x, i64 10)
  %b = call i64 @often_too(i64 %x)
  %c = mul i64 %a, 100
  %d = add i64 %b, %c
  %e = load ptr, ptr @table
  %f = call i64 %e(i64 %d)
  ret i64 %f
}}
"""


def expected(x: int) -> int:
    return ~((3 * x + 10) * 100 + max(3 * x + 1, 3))


def defined(text: str) -> list[str]:
    heads = [line for line in text.splitlines() if line.startswith("define ")]
    return [line.split("@")[1].split("(")[0] for line in heads]


def test_each_function_is_in_one_module() -> None:
    often, seldom = divided(MODULE, "main")
    assert defined(often) == ['"main.often"', '"main.often_too"', '"main.listed"']
    assert defined(seldom) == ['"main.seldom"', "main"]
    assert "internal" not in often.replace("internal constant", "")
    assert 'declare i64 @"main.often"(i64, i64) nounwind\n' in seldom
    assert 'declare i64 @"main.seldom"(i64)\n' in often


@pytest.mark.parametrize(
    "text",
    [
        MODULE.replace(f" {COLD}", ""),
        MODULE.replace("@often(i64 %x,", f"@often(i64 %x) {COLD} {{\n}}\n;").split(";")[
            0
        ],
        MODULE.replace("internal constant", "constant"),
        MODULE.replace("internal constant i64", "internal global i64"),
    ],
    ids=["nothing seldom", "nothing else", "a constant that others see", "a variable"],
)
def test_others_stay_whole(text: str) -> None:
    assert divided(text, "main") == (text, "")


def source(text: str, symbol: str, **more) -> Source:
    return Source(f"test/divided/{time.time_ns()}", symbol, lambda: text, **more)


def call(address: int, x: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(x)


def test_both_run_as_one(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path))
    made = source(MODULE, "main")
    for _ in ("compiled", "from the disk"):
        address = native.load([made])[made.key]
        assert [call(address, x) for x in (-7, 0, 5)] == [*map(expected, (-7, 0, 5))]
        del native._functions[made.key]


def test_a_module_exports_several_functions() -> None:
    text = """\
define internal i64 @{0}(i64 %x) {{
  %y = add i64 %x, {1}
  ret i64 %y
}}
define internal i64 @other(i64 %x) {{
  %y = mul i64 %x, {1}
  ret i64 %y
}}
"""
    caller = """\
declare i64 @one(i64)
declare i64 @other(i64)
define i64 @both(i64 %x) {
  %y = call i64 @one(i64 %x)
  %z = call i64 @other(i64 %y)
  ret i64 %z
}
"""
    needed = [
        source(
            exported(text.format("one", n), ("one", "other")), "one", exports=("other",)
        )
        for n in (2, 3)
    ]
    callers = [source(caller, "both", needs=(n,)) for n in needed]
    found = native.load(callers)
    # Names mean another module's function for each.
    assert [call(found[c.key], 5) for c in callers] == [(5 + 2) * 2, (5 + 3) * 3]
