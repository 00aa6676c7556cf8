"""Kernels that are compiled when the library is installed, and what finds them."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from treadle import install
from treadle.backends import installed
from treadle.backends.cpu import common
from treadle.backends.cpu.run import kept, native
from treadle.backends.cpu.run.native import Source
from treadle.recipes import cli

ROOT = Path(__file__).parents[4]
FEW = """
import sys
from pathlib import Path
import numpy as np
from treadle.backends import devices, installed
from treadle.backends.cpu import common
from treadle.backends.cpu.gemm import kernel as gemm
from treadle.backends.cpu.run import callpath, executor, native, threads

float32 = np.dtype(np.float32)
common.sources = lambda: [
    threads.source(), executor.SOURCE, callpath.SOURCE, gemm.source(float32)]
"""
"""What takes a tenth of the time that all of it takes."""
INSTALL = """
import treadle as td
def program():
    td.jit(lambda x: td.numpy.cos(x) + x)(np.ones((5, 200), np.float32))
print(devices.install(Path(sys.argv[1]), [program]))
"""
TRAIN = """
import json
import treadle as td
installed.FOLDER = sys.argv[1]
compiled, compile = set(), native._compile
def noted(source):
    compiled.add(source.key)
    return compile(source)
native._compile = noted
rng = np.random.default_rng(0)
x, w, c = [rng.normal(size=s).astype("f4") for s in ((70, 40), (40, 90), (7, 64))]
loss = td.jit(td.value_and_grad(lambda w, x: td.numpy.sin(x @ w).sum()))
for _ in range(2):
    found = [*loss(w, x), td.jit(lambda x: td.numpy.cos(x) + x)(c)]
shared = {s.key for c in common.sources() for s in native.with_needed(c)}
print(json.dumps([
    len(shared), sorted(shared & compiled), sorted(compiled - shared),
    [np.asarray(v).tobytes().hex() for v in found]]))
"""


def alone(program: str, folder: Path, cache: Path | str, **settings: str) -> str:
    """What a process prints."""
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        env={**os.environ, "TREADLE_CACHE_DIR": str(cache), **settings},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def trained(folder: Path, cache: Path | str, **settings: str) -> tuple[Any, ...]:
    return tuple(json.loads(alone(FEW + TRAIN, folder, cache, **settings)))


def test_a_first_call_compiles_nothing_of_what_was_installed(tmp_path: Path) -> None:
    folder, none = tmp_path / "beside", tmp_path / "none"
    path = Path(alone(FEW + INSTALL, folder, tmp_path / "own").strip())
    assert [*folder.iterdir()] == [path] and path.name.endswith(".objects")
    assert not (tmp_path / "own").exists()
    count, shared, others, bits = trained(none, "")
    assert count == len(shared) > 4 and others
    cache = tmp_path / "cache"
    _, again, nests, same = trained(folder, cache)
    assert again == [] and same == bits
    assert 0 < len(nests) < len(others)
    # The user's cache holds what else there was, and no copy of what was installed.
    found = installed._places(str(path))
    assert len(found) > count and not {p.stem for p in cache.glob("*.o")} & {*found}


def test_each_kernel_that_is_to_be_installed_has_its_text() -> None:
    found = [s for c in common.sources() for s in native.with_needed(c)]
    assert len({source.key for source in found}) > 60
    for source in {source.key: source for source in found}.values():
        assert source.symbol in source.emit(), source.key


ONE = "define i64 @{0}() {{\n  ret i64 1\n}}\n"
CALLS = "declare i64 @one()\n" + ONE.format("two").replace(
    "ret i64 1", "%x = call i64 @one()\n  %y = add i64 %x, 1\n  ret i64 %y"
)


def test_a_larger_module_that_was_installed_is_taken(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TREADLE_CACHE_DIR", "")
    monkeypatch.setattr(installed, "FOLDER", str(tmp_path))

    def source(name: str, symbol: str, text: str, **more: Any) -> Source:
        return Source(f"test/{tmp_path}/{name}", symbol, lambda: text, **more)

    one = source("one", "one", ONE.format("one"))
    larger = source("larger", "two", CALLS, needs=(one,))
    small = [source(n, "one", ONE.format("one"), within=(larger,)) for n in "abc"]
    here = kept.environment()

    def call(number: int) -> tuple[int, int, int]:
        """What the function gives; how many modules were compiled, and loaded."""
        before = native.stats.compiled, native.stats.from_disk
        address = native.load([small[number]])[small[number].key]
        more = native.stats.compiled - before[0], native.stats.from_disk - before[1]
        return (ctypes.CFUNCTYPE(ctypes.c_int64)(address)(), *more)

    assert call(0) == (1, 1, 0)
    sources = [one, larger]
    codes = zip(sources, native.compile_all(sources), strict=True)
    installed.write(tmp_path, here, {native.object_key(s): code for s, code in codes})
    with monkeypatch.context() as patch:  # who wants to see the text compiles it
        patch.setenv("TREADLE_DEBUG_IR", str(tmp_path / "ir"))
        assert call(1) == (1, 1, 0)
    assert call(2) == (2, 0, 2)
    assert call(0) == (1, 0, 0), "what is loaded stays what it is"


@pytest.mark.parametrize(
    ("inside", "error", "why"),
    [("file/folder", None, "Not a directory"), ("folder", ValueError("cpu"), "cpu")],
)
def test_where_it_cannot_be_compiled_it_says_why(
    inside: str, error: Any, why: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    (tmp_path / "file").write_text("")
    folder = installed.FOLDER
    monkeypatch.setattr(common, "sources", Mock(side_effect=error))
    monkeypatch.setattr(installed, "FOLDER", folder)
    monkeypatch.setenv("TREADLE_CACHE_DIR", "")
    assert install.main([str(tmp_path / inside)]) == 1
    said = capsys.readouterr()
    assert not said.out and said.err.count("\n") == 1
    assert (
        said.err.startswith("treadle: no kernels are installed: ") and why in said.err
    )


def test_the_command_runs_in_a_process_of_its_own(monkeypatch) -> None:
    called = Mock(return_value=7)
    monkeypatch.setattr(subprocess, "call", called)
    assert cli.main(["kernels", "somewhere"]) == 7
    called.assert_called_once_with(
        [sys.executable, "-m", "treadle.install", "somewhere"]
    )


@pytest.fixture
def hook() -> Any:
    """`setup.py`, not run."""
    pytest.importorskip("setuptools")
    spec = importlib.util.spec_from_file_location("hook", ROOT / "setup.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("print('library'); print(__import__('sys').argv[2])", "{folder}"),
        ("raise SystemExit('why')", "why"),
        ("import llvmlite_is_missing", "No module named 'llvmlite_is_missing'"),
        ("import os; os.abort()", "nothing was said"),
        ("import time; time.sleep(60)", "1 s were not enough"),
        ("import sys; sys.stdout.buffer.write(b'caf\\xe9')", "caf\\ufffd"),
    ],
)
def test_an_installation_goes_on_whatever_happens(
    hook: Any, program: str, said: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(hook, "PROGRAM", program)
    monkeypatch.setattr(hook, "SECONDS", 1 if "sleep" in program else 60)
    hook.compile_kernels(tmp_path / "folder")
    assert said.format(folder=tmp_path / "folder") in capsys.readouterr().out


def test_the_hook_writes_where_the_library_looks(hook: Any) -> None:
    assert Path(installed.FOLDER) == ROOT / "core" / hook.FOLDER
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert f"core/{hook.FOLDER.as_posix()}/" in ignored


@pytest.mark.slow
def test_all_of_it_is_compiled_and_found(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from treadle import install
from treadle.backends import installed
from treadle.backends.cpu import common
from treadle.backends.cpu.run import kept, native

print(install.build(Path(sys.argv[1])))
installed.FOLDER = sys.argv[1]
for wanted in common.sources():
    for source in native.with_needed(wanted):
        assert kept.is_installed(source.symbol, source.key), source.key
print(installed.count(kept.environment()))
"""
    said, count = alone(program, tmp_path, "").splitlines()
    assert said.startswith("compiled kernels (") and int(count) > 60
