"""Compiling, caching and linking of native code."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from treadle.backends import objects
from treadle.backends.cpu import target
from treadle.backends.cpu.run import native
from treadle.backends.cpu.run.native import NativeError, Source


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty disk cache for one test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(folder))
    return folder


def constant(value: int, *, key: str | None = None, symbol: str = "f") -> Source:
    """A function that returns `value`."""
    text = f"define i64 @{symbol}() {{\n  ret i64 {value}\n}}\n"
    return Source(
        key or f"test/constant/{value}/{time.time_ns()}", symbol, lambda: text
    )


def result(address: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64)(address)()


def forget(source: Source) -> None:
    """Drops the memory cache's entry, as a new process would see it."""
    del native._functions[source.key]


def counts() -> tuple[int, int, int]:
    s = native.stats
    return s.compiled, s.from_disk, s.from_memory


def test_memory_then_disk(cache: Path) -> None:
    source = constant(7)
    start = counts()
    assert result(native.load([source])[source.key]) == 7
    native.load([source])
    assert counts() == (start[0] + 1, start[1], start[2] + 1)
    forget(source)
    assert result(native.load([source])[source.key]) == 7
    assert counts() == (start[0] + 1, start[1] + 1, start[2] + 1)


def test_many_sources_with_one_symbol(cache: Path) -> None:
    sources = [constant(i) for i in range(20)]
    addresses = native.load(sources)
    assert [result(addresses[s.key]) for s in sources] == list(range(20))


def test_load_is_a_set(cache: Path) -> None:
    source = constant(3)
    before = native.stats.compiled
    assert list(native.load([source, source])) == [source.key]
    assert native.stats.compiled == before + 1
    assert native.load([]) == {}


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "nonsense"])
def test_damaged_object_is_compiled_again(cache: Path, damage: str) -> None:
    source = constant(11)
    native.load([source])
    (path,) = cache.glob("*.o")
    content = bytearray(path.read_bytes())
    content[-5] ^= damage == "flip"
    size = {"truncate": len(content) // 2, "empty": 0}.get(damage, len(content))
    path.write_bytes(b"?" * 3000 if damage == "nonsense" else content[:size])
    forget(source)
    before = native.stats.compiled
    assert result(native.load([source])[source.key]) == 11
    assert native.stats.compiled == before + 1
    forget(source)
    native.load([source])
    assert native.stats.compiled == before + 1  # the file has been repaired


def test_checked_but_unloadable_object_is_compiled_again(cache: Path) -> None:
    source = constant(12)
    objects.default_store().put(native.object_key(source), b"not an object file")
    assert result(native.load([source])[source.key]) == 12


def test_of_many_objects_those_that_can_be_loaded_are(cache: Path) -> None:
    """They are linked as one library if none is damaged and all names differ."""
    sources = [constant(i, symbol=f"f{i % 4}") for i in range(8)]
    wanted = list(range(8))

    def found() -> list[int]:
        for source in sources:
            forget(source)
        addresses = native.load(sources)
        return [result(addresses[s.key]) for s in sources]

    native.load(sources)
    before = counts()
    assert found() == wanted
    assert counts() == (before[0], before[1] + 8, before[2])
    store = objects.default_store()
    store.put(native.object_key(sources[5]), b"not an object file")
    (cache / f"{native.object_key(sources[2])}.o").unlink()
    assert found() == wanted
    assert counts() == (before[0] + 2, before[1] + 14, before[2])


def test_unwritable_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    for folder in (str(tmp_path / "file" / "below"), ""):
        monkeypatch.setenv("TREADLE_CACHE_DIR", folder)
        source = constant(13)
        assert result(native.load([source])[source.key]) == 13


def test_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TREADLE_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert objects.default_store().folder == tmp_path / "treadle"


def test_nothing_is_written_where_no_home_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TREADLE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.chdir(tmp_path)
    objects.default_store().put("key", b"code")
    assert os.listdir(tmp_path) == []


def test_pruning_drops_the_least_recently_used(tmp_path: Path) -> None:
    store = objects.ObjectStore(tmp_path, limit_bytes=10_000)
    for i in range(12):
        store.put(f"k{i}", bytes(1000))
        os.utime(tmp_path / f"k{i}.o", (i * objects.DAY, i * objects.DAY))
    assert store.get("k0") is not None  # a use after a day makes it recent
    store.prune()
    kept = {path.stem for path in tmp_path.glob("*.o")}
    assert kept == {"k0", "k6", "k7", "k8", "k9", "k10", "k11"}


def test_registered_symbol(cache: Path) -> None:
    square = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: x * x)
    address = ctypes.cast(square, ctypes.c_void_p).value
    assert address is not None
    native.register_symbol("test_square", address)
    text = (
        "declare i64 @test_square(i64)\n"
        "define i64 @f() {\n  %r = call i64 @test_square(i64 9)\n  ret i64 %r\n}\n"
    )
    source = Source("test/registered", "f", lambda: text)
    assert result(native.load([source])[source.key]) == 81


def calling(needed: Source, key: str) -> Source:
    """A function that returns the double of what another module's function returns."""
    text = (
        "declare i64 @part()\n"
        "define i64 @f() {\n  %r = call i64 @part()\n"
        "  %s = add i64 %r, %r\n  ret i64 %s\n}\n"
    )
    return Source(f"{key}/{time.time_ns()}", "f", lambda: text, needs=(needed,))


@pytest.mark.parametrize("begins", [False, True])
def test_functions_of_other_modules_by_their_names(cache: Path, begins: bool) -> None:
    parts = [constant(n, symbol="part") for n in (20, 21)]
    sources = [
        calling(part, f"test/calling/{k}") for k, part in enumerate((*parts, parts[0]))
    ]
    if begins:
        native.begin(sources)
    before = native.stats.compiled
    addresses = native.load(sources)
    assert native.stats.compiled == before + 5
    assert [result(addresses[s.key]) for s in sources] == [40, 42, 40]
    for source in (*parts, *sources):
        forget(source)
    addresses = native.load(sources)
    assert native.stats.compiled == before + 5
    assert [result(addresses[s.key]) for s in sources] == [40, 42, 40]


def test_inlines_what_is_marked(cache: Path) -> None:
    text = (
        "define internal i64 @g(i64 %x) alwaysinline {\n  ret i64 %x\n}\n"
        "define i64 @f() {\n  %r = call i64 @g(i64 5)\n  ret i64 %r\n}\n"
    )
    source = Source("test/inline", "f", lambda: text)
    assert result(native.load([source])[source.key]) == 5


def emitted_by(threads: list[str], value: int) -> Source:
    """A function that returns `value`; who emits it is added to `threads`."""
    plain = constant(value)

    def emit() -> str:
        threads.append(threading.current_thread().name)
        return plain.emit()

    return Source(plain.key, plain.symbol, emit)


two_cpus = pytest.mark.skipif(target.cpu_count() < 2, reason="one CPU")


@two_cpus
def test_what_was_begun_is_compiled_once_on_another_thread(cache: Path) -> None:
    threads: list[str] = []
    first, second = emitted_by(threads, 31), emitted_by(threads, 32)
    before = counts()
    native.begin([first, second, first])
    native.begin([first])
    addresses = native.load([first, second])
    assert [result(addresses[s.key]) for s in (first, second)] == [31, 32]
    assert len(threads) == 2 and threading.current_thread().name not in threads
    assert counts() == (before[0] + 2, before[1], before[2])
    assert len(list(cache.glob("*.o"))) == 2
    for source in (first, second):
        forget(source)
    native.begin([first, second])
    native.load([first, second])
    assert len(threads) == 2  # it was on disk
    native.begin([first])
    assert len(threads) == 2  # it was in memory


@two_cpus
def test_an_error_of_what_was_begun_is_that_of_its_load(cache: Path) -> None:
    bad = Source("test/begun/bad", "f", lambda: "this is no IR")
    native.begin([bad])
    with pytest.raises(NativeError, match=r"\bf\b"):
        native.load([bad])
    source = constant(33)
    native.begin([source])
    assert result(native.load([source])[source.key]) == 33


@two_cpus
def test_what_failed_once_is_tried_again(cache: Path) -> None:
    good, memory = constant(34), [MemoryError]

    def emit() -> str:
        if memory:
            raise memory.pop()
        return good.emit()

    source = Source(good.key, good.symbol, emit)
    native.begin([source])
    with pytest.raises(MemoryError):
        native.load([source])
    assert result(native.load([source])[source.key]) == 34


def printed(program: str) -> tuple[str, str]:
    """What a program writes to its output, and of errors."""
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return ran.stdout, ran.stderr


def test_programs_are_compiled_while_python_exits(cache: Path) -> None:
    program = (
        "import atexit\n"
        "from treadle.backends.cpu.run import native\n"
        "text = 'define i64 @f() { ret i64 5 }'\n"
        "sources = [native.Source(key, 'f', lambda: text) for key in 'ab']\n"
        "def late():\n"
        "    native.begin(sources)\n"
        "    native.load(sources)\n"
        "    print(native.stats.compiled)\n"
        "atexit.register(late)\n"
    )
    assert printed(program) == ("2\n", "")


def test_a_thread_compiles_while_the_first_one_has_ended(cache: Path) -> None:
    """Python's threads can't be started any more, nor can their pools be loaded."""
    program = (
        "import threading, time\n"
        "import treadle as td, treadle.numpy as tnp\n"
        "def work():\n"
        "    time.sleep(0.2)\n"
        "    f = td.jit(lambda x: (tnp.sort(x) @ x, tnp.sin(x).sum()))\n"
        "    print(float(f(tnp.ones(3))[0]))\n"
        "threading.Thread(target=work).start()\n"
    )
    assert printed(program) == ("3.0\n", "")


@two_cpus
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_compiles_what_its_parent_has_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TREADLE_CACHE_DIR", "")
    sources = [constant(i) for i in range(8)]
    native.begin(sources)
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        addresses = native.load(sources)
        os._exit([result(addresses[s.key]) for s in sources] != list(range(8)))
    assert os.waitpid(child, 0)[1] == 0
    addresses = native.load(sources)
    assert [result(addresses[s.key]) for s in sources] == list(range(8))


def test_table_of_functions(cache: Path) -> None:
    text = (
        "@t = constant [2 x ptr] [ptr @a, ptr @b]\n"
        "define internal i64 @a() {\n  ret i64 1\n}\n"
        "define internal i64 @b() {\n  ret i64 2\n}\n"
    )
    table = native.load_table(Source("test/table", "t", lambda: text), ("a", "b"))
    assert {name: result(address) for name, address in table.items()} == dict(a=1, b=2)


@pytest.mark.parametrize(
    "text",
    [
        "this is no IR",
        "define i64 @f() {\n  ret i32 0\n}\n",
        "define i64 @f(i64 %x) {\na:\n  br label %b\nb:\n  %p = phi i64 [1, %b]\n"
        "  ret i64 %p\n}\n",
        "declare i64 @nowhere_to_be_found()\n"
        "define i64 @f() {\n  %r = call i64 @nowhere_to_be_found()\n  ret i64 %r\n}\n",
    ],
    ids=["syntax", "type", "verifier", "undefined"],
)
@pytest.mark.parametrize("unlocked", [True, False])
def test_bad_code_is_an_error(
    cache: Path, text: str, unlocked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not unlocked:
        monkeypatch.setattr(native, "_unlocked_available", lambda: False)
    with pytest.raises(NativeError, match=r"\bf\b"):
        native.load([Source(f"test/bad/{text}", "f", lambda: text)])


def test_public_interface_suffices(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_unlocked_available", lambda: False)
    sources = [constant(i) for i in range(4)]
    addresses = native.load(sources)
    assert [result(addresses[s.key]) for s in sources] == [0, 1, 2, 3]


def test_emitters_error_comes_through(cache: Path) -> None:
    def emit() -> str:
        raise ZeroDivisionError("in the emitter")

    with pytest.raises(ZeroDivisionError, match="in the emitter"):
        native.load([constant(1), Source("test/raises", "f", emit)])


def test_threads_load_at_once(cache: Path) -> None:
    sources = [constant(i) for i in range(12)]
    found: list[dict[str, int]] = []
    threads = [
        threading.Thread(target=lambda: found.append(native.load(sources)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for addresses in found:
        assert [result(addresses[s.key]) for s in sources] == list(range(12))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_child_compiles_though_a_thread_did_during_the_fork(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TREADLE_CACHE_DIR", "")
    finished = threading.Event()

    def work() -> None:
        while not finished.is_set():
            native.load([constant(i) for i in range(4)])

    busy = threading.Thread(target=work)
    busy.start()
    try:
        for _ in range(12):
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                native.load([constant(i) for i in range(2)])
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        finished.set()
        busy.join()


def test_dump(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = constant(21)
    native.load([source])
    forget(source)
    monkeypatch.setenv("TREADLE_DEBUG_IR", str(tmp_path / "dump"))
    native.load([source])  # emits although the disk cache has it
    (path,) = (tmp_path / "dump").iterdir()
    assert source.emit() in path.read_text()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_dump_to_what_is_no_folder(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "file").touch()
    folder = str(tmp_path / place)
    monkeypatch.setenv("TREADLE_DEBUG_IR", folder)
    with pytest.raises(ValueError, match="TREADLE_DEBUG_IR must be a folder") as caught:
        native.load([constant(22)])
    assert folder in str(caught.value)


def test_second_process_compiles_nothing(cache: Path) -> None:
    program = (
        "from treadle.backends.cpu.run import native\n"
        "text = 'define i64 @f() { ret i64 5 }'\n"
        "native.load([native.Source('process', 'f', lambda: text)])\n"
        "print(native.stats.compiled, native.stats.from_disk)\n"
    )

    def run() -> str:
        command = [sys.executable, "-c", program]
        return subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout

    assert run() == "1 0\n"
    assert run() == "0 1\n"


@pytest.mark.parametrize(
    ("arch", "flags", "expected"),
    [
        ("x86_64", {"avx2", "avx512f", "avx512vl", "amx-bf16"}, ("sapphirerapids", 64)),
        ("x86_64", {"avx2", "avx512f", "avx512vl"}, ("skylake-avx512", 64)),
        ("x86_64", {"avx2", "fma"}, ("znver2", 32)),
        ("x86_64", set(), ("znver2", 16)),
        ("aarch64", {"neon"}, ("znver2", 16)),
    ],
)
def test_cpu_is_chosen_by_its_features(
    arch: str, flags: set[str], expected: tuple[str, int]
) -> None:
    assert target._choose(arch, frozenset(flags), "znver2") == expected


def test_host() -> None:
    host = target.host()
    assert host is target.host()
    assert host.triple.startswith(("x86_64", "aarch64", "arm64", "amd64"))
    assert host.vector_bytes in (16, 32, 64)


def test_llvm_loads_on_first_use() -> None:
    program = (
        "import sys\n"
        "from treadle.backends import memory\n"
        "from treadle.backends.cpu.run import executor, native, threads\n"
        "from treadle.backends.cpu import target\n"
        "print('llvmlite' in sys.modules)\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
