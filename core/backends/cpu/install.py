"""Compiles, for this machine, what is to be installed beside the library's code."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from treadle.backends import installed, objects
from treadle.backends.cpu import common
from treadle.backends.cpu.run import kept, native


def install(folder: Path, programs: Iterable[Callable[[], object]]) -> Path:
    """The file, in a folder, of all that `common` names and that some programs run.

    To be called once, before anything else of this process compiles.

    Raises:
      NativeError: if LLVM can't compile something.
      OSError: if the folder can't be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)  # or say so before all the work
    with tempfile.TemporaryDirectory() as own:
        os.environ["TREADLE_CACHE_DIR"] = own
        os.environ.pop("TREADLE_DEBUG_IR", None)
        installed.forget()
        store = objects.default_store()
        sources = {
            source.key: source
            for wanted in common.sources()
            for source in native.with_needed(wanted)
        }
        codes = native.compile_all(list(sources.values()))
        for source, code in zip(sources.values(), codes, strict=True):
            store.put(native.object_key(source), code)
        for program in programs:
            program()
        names = [path.stem for path in Path(own).glob("*.o")]
        found = {name: store.get(name) for name in names if len(name) == installed.KEY}
    made = {name: code for name, code in found.items() if code is not None}
    if not made:
        raise OSError(f"no file could be written to {own}")
    return installed.write(folder, kept.environment(), made)
