"""What every test session has: a quiet CPU oracle and repeatable random examples."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# JAX is only the oracle here: it must not look for accelerators, nor take their memory.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Its programs are small and run once: it should not optimise what it compiles.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")

# Kernels of tests are not for the user's own cache.
_CACHE = Path(__file__).parent.parent / "build" / "kernels"
os.environ.setdefault("TREADLE_CACHE_DIR", str(_CACHE))

settings.register_profile("treadle", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("treadle")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays until the end: millions of objects that the garbage
    collector, which tests of leaks ask for again and again, need not look through."""
    gc.disable()
    collected = yield
    gc.collect()
    gc.freeze()
    gc.enable()
    return collected


@pytest.fixture(autouse=True, scope="session")
def every_program_is_planned() -> Iterator[None]:
    """Tests of the compiler must not find what it made in another session."""
    from treadle.backends import plans

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "WORTH_STORING", 10**9)
        yield
