"""What every test session has: a quiet CPU oracle and repeatable random examples."""

from __future__ import annotations

import gc
import importlib
import itertools
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# JAX is only the oracle here: it must not look for accelerators, nor take their memory.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Its programs are small and run once: it should not optimise what it compiles.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
)

# Kernels of tests are not for the user's own cache.
_BUILD = Path(__file__).parent.parent / "build"
os.environ.setdefault("TREADLE_CACHE_DIR", str(_BUILD / "kernels"))
# The next run finds the oracle's programs: to compile one takes six times as long.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_BUILD / "oracle"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ.setdefault("JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES", "none")

settings.register_profile("treadle", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("treadle")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Next to nothing of what is made here becomes garbage: looking for it, again and
    again among millions of objects, would take a third of the time."""
    gc.disable()
    collected = yield
    gc.enable()
    # Nor is there much among the many objects of a trace.
    gc.set_threshold(100_000, 50, 100)
    _share_contexts()
    return collected


def _share_contexts() -> None:
    """JAX makes a context, with all dialects of MLIR, for each program that it writes,
    which takes half of the time of writing a small one. A few of them will do; not one
    alone, for what they have seen stays in them."""
    mlir = sys.modules.get("jax._src.interpreters.mlir")
    make = getattr(mlir, "make_ir_context", None)
    if make is None:
        return
    made: list[Any] = []
    calls = itertools.count()

    def shared() -> Any:
        if next(calls) % 500 == 0:
            made[:] = [make()]
        return made[0]

    mlir.make_ir_context = shared


@pytest.fixture
def only_new_objects() -> Iterator[None]:
    """Hides what there was before the test from the garbage collector: the objects of
    a whole session are millions, and tests of leaks look through all they are shown.

    Functions from before the test are hidden too, from what rewrites their code.
    """
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def no_primitives_left() -> Iterator[None]:
    """Forgets the primitives that a test has defined: others go through all of them."""
    from treadle.trace.op import registry

    own = importlib.import_module("treadle.extend.primitive")._OWN
    yield
    for name in [*own]:
        registry.pop(name)
        own.pop(name)


@pytest.fixture(autouse=True, scope="session")
def every_program_is_planned() -> Iterator[None]:
    """Tests of the compiler must not find what it made in another session."""
    from treadle.backends import plans

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "WORTH_STORING", 10**9)
        yield
