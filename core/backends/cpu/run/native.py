"""IR text to callable addresses: memory cache, disk cache, parallel compilation."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any

from treadle.backends import objects
from treadle.backends.cpu.run import kept
from treadle.backends.cpu.run.divided import divided
from treadle.backends.cpu.run.forkgate import ForkGate
from treadle.backends.cpu.run.shared import Shared, apart, module_of
from treadle.backends.cpu.run.turns import ShortTurns
from treadle.backends.cpu.target import cpu_count, llvm, machine
from treadle.records import record


@record(frozen=True)
class Source:
    """One native function that may be needed.

    key: its structure as text, equal in every process for equal code.
    symbol: the function's name in the module.
    emit: gives the IR text of a module that defines `symbol`. Called only when no
        cache holds `key`, possibly on another thread.
    level: how hard LLVM works on the code, from 0 to 2.
    folds: whether LLVM is to work out first what follows from constants.
    within: larger modules whose functions do all that this one does, and are taken
        instead where they are loaded, too, or were installed: the largest first.
    needs: modules whose functions this one calls, by their symbols.
    exports: other functions of the module, which those call that need it.
    """

    key: str
    symbol: str
    emit: Callable[[], str]
    level: int = 2
    folds: bool = False
    within: tuple[Source, ...] = ()
    needs: tuple[Source, ...] = ()
    exports: tuple[str, ...] = ()

    @property
    def symbols(self) -> tuple[str, ...]:
        """What others call."""
        return self.symbol, *self.exports


@record
class Stats:
    """What `load` did so far in this process."""

    compiled: int = 0
    from_disk: int = 0
    from_memory: int = 0
    seconds: float = 0.0


class NativeError(RuntimeError):
    """LLVM rejected generated code. This is a bug of the emitter, not of the user."""


stats = Stats()
_functions: dict[str, int] = {}
_exported: dict[tuple[str, str], int] = {}  # by key and symbol
_symbols: dict[str, int] = {}
_libraries: list[Any] = []  # dropping one would unload its code
# Idle TargetMachines by level; each serves one thread at a time.
_machines: dict[int, list[Any]] = {0: [], 1: [], 2: []}
_lock = threading.Lock()
_gate = ForkGate()
_turns = ShortTurns()
# What `begin` has begun to compile and no `load` has asked for yet, by key. A forked
# child has none of the threads that work on it.
_begun: dict[str, futures.Future[bytes]] = {}
# Objects of functions that modules share, by symbol: whoever needs one first makes it.
_shared: dict[str, futures.Future[bytes]] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begun.clear)
    os.register_at_fork(after_in_child=_shared.clear)
_link_count = 0


def load(sources: Sequence[Source]) -> dict[str, int]:
    """Addresses of all `sources` by key; what no cache holds is compiled in parallel.

    Addresses stay valid until the process ends.
    """
    start = time.perf_counter()
    unique = {source.key: source for source in sources}
    taken = {key: _taken(source, unique) for key, source in unique.items()}
    missing = {s.key: s for s in taken.values() if s.key not in _functions}
    if needed := [n for s in missing.values() for n in s.needs]:
        load(needed)
    stats.from_memory += len(unique) - len(missing)
    if missing:
        _load_missing(list(missing.values()))
        stats.seconds += time.perf_counter() - start
    return {key: _functions[source.key] for key, source in taken.items()}


def _taken(source: Source, others: Container[str]) -> Source:
    """What is taken for a source, beside others."""
    is_new = source.key not in _functions
    for larger in source.within:
        if larger.key in others or (
            is_new and (larger.key in _functions or _is_installed(larger))
        ):
            return larger
    return source


def begin(sources: Iterable[Source], threads: int = 0) -> None:
    """Begins to compile, on other threads, what no cache holds: a later `load` of it
    has less to wait for. Returns at once.

    threads: at most; all but one of the CPUs if that is 0.
    """
    given = {source.key: source for source in sources}
    taken = [_taken(source, given) for source in given.values()]
    unique = {s.key: s for source in taken for s in with_needed(source)}
    known = _functions.keys() | _begun.keys()
    new = [source for key, source in unique.items() if key not in known]
    # On one CPU nothing is gained; with llvmlite's lock, others would wait for it.
    if not new or cpu_count() < 2 or not _unlocked_available() or _debug_folder():
        return
    found = kept.get_all(list(map(object_key, new)))
    missing = [s for s, code in zip(new, found, strict=True) if code is None]
    if not missing or not _has_pools():
        return
    store = objects.default_store()
    pool = futures.ThreadPoolExecutor(min(len(missing), threads or cpu_count() - 1))
    try:
        for source in missing:
            future = _begun[source.key] = pool.submit(_compile_ahead, source, store)
            _turns.shorten_until(future)
    except RuntimeError:  # Python is exiting
        pass
    pool.shutdown(wait=False)


def with_needed(source: Source) -> Iterator[Source]:
    """What a module needs, then itself."""
    for needed in source.needs:
        yield from with_needed(needed)
    yield source


def load_table(source: Source, names: Sequence[str]) -> dict[str, int]:
    """Addresses of several functions of one module, by name.

    The module exports a constant array of their addresses in `names`' order.
    """
    table = load([source])[source.key]
    words = (ctypes.c_size_t * len(names)).from_address(table)
    return dict(zip(names, words, strict=True))


def register_symbol(name: str, address: int) -> None:
    """Lets modules loaded from now on refer to `address` as external `name`."""
    _symbols[name] = address


def _load_missing(missing: list[Source]) -> None:
    store = objects.default_store()
    awaited = [(source, _begun.get(source.key)) for source in missing]
    begun = [(source, future) for source, future in awaited if future is not None]
    others = [source for source, future in awaited if future is None]
    # Dumping IR needs the emitter to run, so it goes past the disk cache.
    keys = [] if _debug_folder() else list(map(object_key, others))
    found = kept.get_all(keys) if keys else [None] * len(others)
    pairs = zip(others, found, strict=True)
    _link_cached([(source, code) for source, code in pairs if code is not None])
    rest = [source for source in others if source.key not in _functions]
    for source, code in zip(rest, compile_all(rest), strict=True):
        _link([(source, code)])
        store.put(object_key(source), code)
    try:
        _link_cached([(source, future.result()) for source, future in begun])
    finally:  # What failed may succeed another time, as where memory was short.
        for source, _ in begun:
            _begun.pop(source.key, None)
    stats.from_disk += len(others) - len(rest)
    stats.compiled += len(rest) + len(begun)


def _is_installed(source: Source) -> bool:
    return not _debug_folder() and kept.is_installed(source.symbol, source.key)


def object_key(source: Source) -> str:
    """Digest of everything that decides the object code of `source`."""
    return kept.digest_of(source.symbol, source.key)


# Compiling


def _has_pools() -> bool:
    """Whether threads can be started: not if Python exits, which it does while other
    threads than the first go on, and Python's own module is not loaded yet."""
    try:
        return futures.ThreadPoolExecutor is not None
    except RuntimeError:
        return False


def compile_all(sources: Sequence[Source]) -> list[bytes]:
    """Their objects, whatever any cache holds; nothing is loaded."""
    threads = min(len(sources), cpu_count())
    if threads < 2 or not _unlocked_available() or not _has_pools():
        return [_compile(source) for source in sources]
    with futures.ThreadPoolExecutor(threads) as pool:
        try:
            results = pool.map(_compile, sources)
        except RuntimeError:  # Python is exiting, and starts no threads
            return [_compile(source) for source in sources]
        return list(results)


def _compile_ahead(source: Source, store: objects.ObjectStore) -> bytes:
    code = _compile(source)
    # Whether or not this process will load it, the next one need not compile it.
    store.put(object_key(source), code)
    return code


def _compile(source: Source) -> bytes:
    text = source.emit()
    _dump(source, text)
    try:
        own, shared = apart(text, f"{source.level} {source.folds}")
        often, seldom = divided(own, source.symbol)
        with _gate:
            code = [_compile_text(often, source.level, source.folds)]
            if seldom:
                code.append(_compile_text(seldom, 0, False))
        code += _compiled_once(shared, source) if shared else []
        return _packed(code)
    except RuntimeError as error:
        message = f"LLVM rejects the IR of {source.symbol} ({source.key}):\n{error}"
        raise NativeError(message) from error


def _compiled_once(shared: Sequence[Shared], source: Source) -> list[bytes]:
    """The objects of functions that a source has in common with others."""
    futures_of = {x.symbol: futures.Future[bytes]() for x in shared}
    made = {name: _shared.setdefault(name, mine) for name, mine in futures_of.items()}
    # First all that is this thread's to do: no two threads wait for each other.
    ours = [x for x in shared if made[x.symbol] is futures_of[x.symbol]]
    try:
        for symbol, code in _found_or_compiled(ours, source).items():
            made[symbol].set_result(code)
    except BaseException as error:
        for x in ours:
            _shared.pop(x.symbol, None)
            made[x.symbol].set_exception(error)
        raise
    # Where another thread failed, this one tries.
    failed = [x for x in shared if made[x.symbol].exception() is not None]
    again = _found_or_compiled(failed, source)
    codes = [again.get(name) or future.result() for name, future in made.items()]
    return list(dict.fromkeys(codes))


def _found_or_compiled(shared: Sequence[Shared], source: Source) -> dict[str, bytes]:
    """Objects by symbol: those on the disk, and one of all others."""
    if not shared:
        return {}
    store, keys = objects.default_store(), {}
    for x in shared:
        keys[x.symbol] = kept.digest_of(x.symbol, "shared")
    found = dict(zip(keys, kept.get_all(list(keys.values())), strict=True))
    if missing := [x for x in shared if found[x.symbol] is None]:
        with _gate:
            code = _compile_text(module_of(missing), source.level, source.folds)
        for x in missing:
            store.put(keys[x.symbol], code)
            found[x.symbol] = code
    return {symbol: code for symbol, code in found.items() if code is not None}


def _packed(objects: Sequence[bytes]) -> bytes:
    """Object files as one."""
    sizes = [len(code).to_bytes(8, "little") for code in objects]
    return b"".join([x for pair in zip(sizes, objects, strict=True) for x in pair])


def _unpacked(code: bytes) -> Iterator[bytes]:
    """The object files of what `_packed` made."""
    while code:
        end = 8 + int.from_bytes(code[:8], "little")
        yield code[8:end]
        code = code[end:]


def _compile_text(text: str, level: int, folds: bool) -> bytes:
    try:
        target_machine = _machines[level].pop()
    except IndexError:
        target_machine = machine(level)
    try:
        context = llvm().create_context()
        if _unlocked_available():
            return _compile_unlocked(text, context, target_machine, folds)
        module = llvm().parse_assembly(text, context)
        module.verify()
        _prepare(text, module, target_machine, folds)
        return target_machine.emit_object(module)
    finally:
        _machines[level].append(target_machine)


def _prepare(text: str, module: Any, target_machine: Any, folds: bool) -> None:
    """Runs LLVM's level 0, which only inlines what is marked alwaysinline; or 1.

    Kernels are emitted as vector code, so a higher level would take as long as code
    generation and gain nothing, unless their sizes are constants.
    """
    if not folds and "alwaysinline" not in text:
        return
    options = llvm().create_pipeline_tuning_options(speed_level=int(folds))
    builder = llvm().create_pass_builder(target_machine, options)
    passes = builder.getModulePassManager()
    run = _unlocked("LLVMPY_RunNewModulePassManager")
    run(passes, module, builder)


def _unlocked(name: str) -> Any:
    """llvmlite's C function without llvmlite's global lock, if that can be had.

    The lock makes all compilation serial. LLVM itself needs only that threads share no
    context and no TargetMachine.
    """
    wrapped = getattr(llvm().ffi.lib, name)
    return getattr(wrapped, "_cfn", wrapped)


@functools.cache
def _unlocked_available() -> bool:
    """Whether this llvmlite has the private functions that `_compile_unlocked` uses."""
    names = ("ParseAssembly", "VerifyModule", "TargetMachineEmitToMemory")
    lib = llvm().ffi.lib
    return all(hasattr(getattr(lib, f"LLVMPY_{n}", None), "_cfn") for n in names)


def _compile_unlocked(
    text: str, context: Any, target_machine: Any, folds: bool
) -> bytes:
    ffi = llvm().ffi
    with ffi.OutputString() as error:
        parse = _unlocked("LLVMPY_ParseAssembly")
        pointer = parse(context, ctypes.c_char_p(text.encode()), error)
        module = llvm().ModuleRef(pointer, context)
        if error:
            module.close()
            raise RuntimeError(str(error))
    with ffi.OutputString() as error:
        if _unlocked("LLVMPY_VerifyModule")(module, error):
            raise RuntimeError(str(error))
    _prepare(text, module, target_machine, folds)
    with ffi.OutputString() as error:
        emit = _unlocked("LLVMPY_TargetMachineEmitToMemory")
        buffer = emit(target_machine, module, 1, error)
        if not buffer:
            raise RuntimeError(str(error))
    try:
        size = ffi.lib.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), size)
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _debug_folder() -> str | None:
    """Where the user wants to see what is compiled."""
    return os.environ.get("TREADLE_DEBUG_IR")


def _dump(source: Source, text: str) -> None:
    folder = _debug_folder()
    if folder:
        name = f"{source.symbol}.{object_key(source)[:8]}.ll"
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            Path(folder, name).write_text(f"; {source.key!r}\n{text}")
        except OSError as error:
            raise ValueError(
                f"TREADLE_DEBUG_IR must be a folder to write to, not {folder!r}: "
                f"{error.strerror}"
            ) from None


# Linking


@functools.cache
def _engine() -> Any:
    return llvm().create_lljit_compiler(machine(), use_jit_link=True)


Objects = list[tuple[Source, bytes]]


def _link(objects: Objects) -> None:
    """Loads object code into a library of its own: only names in it must differ."""
    global _link_count
    with _gate, _lock:
        _link_count += 1
        builder = llvm().JITLibraryBuilder()
        # What several share is there once.
        for one in dict.fromkeys(x for _, code in objects for x in _unpacked(code)):
            builder.add_object_img(one)
        for source, _ in objects:
            for name in source.symbols:
                builder.export_symbol(name)
        builder.add_current_process()
        others = {n for source, _ in objects for n in source.needs}
        needed = {name: _exported[n.key, name] for n in others for name in n.symbols}
        for name, address in (_symbols | needed).items():
            builder.import_symbol(name, address)
        try:
            library = builder.link(_engine(), f"treadle{_link_count}")
        except RuntimeError as error:
            names = ", ".join([source.symbol for source, _ in objects])
            raise NativeError(f"cannot link {names}: {error}") from error
        _libraries.append(library)
        for source, _ in objects:
            for name in source.symbols:
                _exported.setdefault((source.key, name), library[name])
            _functions.setdefault(source.key, _exported[source.key, source.symbol])


def _link_cached(objects: Objects) -> None:
    """Loads what can be loaded: as one library, which takes a third of the time that
    one for each takes, unless they share a name or one is damaged."""
    first = _apart(objects)
    if len(first) < len(objects):
        _link_cached(first)
        _link_cached([pair for pair in objects if pair not in first])
    elif objects:
        try:
            _link(objects)
        except NativeError:
            for pair in objects if len(objects) > 1 else ():
                _link_cached([pair])


def _apart(objects: Objects) -> Objects:
    """Those objects whose names, and those of what they need, mean one thing each."""
    names: dict[str, str] = {}
    found: Objects = []
    for source, code in objects:
        mine = {name: s.key for s in (*source.needs, source) for name in s.symbols}
        if all(names.get(name, key) == key for name, key in mine.items()):
            names |= mine
            found.append((source, code))
    return found
