"""Code for CPUs that this machine is not, or is more than."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.backends.cpu import target
from treadle.backends.cpu.run import kept
from treadle.backends.cpu.run.threads_ir import pool_ir
from treadle.backends.cpu.target import host

HERE = Path(__file__).parent
X86 = host().arch == "x86_64"
# Only these may be called from outside: in particular no library calls for what is one
# instruction elsewhere. Those may be slow (fmaf) or not be there at all (__truncsfhf2).
LIBRARY = {"memcpy", "memset", "bzero", "sin", "sinf", "cos", "cosf", "sched_yield"}
LINUX = {"syscall", "sched_getcpu", "sched_setaffinity"}
APPLE = {
    *("pthread_mutex_lock", "pthread_mutex_unlock"),
    *("pthread_cond_wait", "pthread_cond_broadcast"),
}


def script(name: str, *args: str, **environment: str) -> tuple[str, str]:
    """What one of the scripts in this folder prints, also as errors."""
    done = subprocess.run(
        [sys.executable, str(HERE / name), *args],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(HERE.parents[3])} | environment,
    )
    return done.stdout, done.stderr


@pytest.mark.skipif(not X86, reason="levels of x86-64")
@pytest.mark.parametrize(
    ("level", "vector_bytes"),
    [
        ("x86-64", 16),
        pytest.param("x86-64-v2", 16, marks=pytest.mark.slow),
        pytest.param("x86-64-v3", 32, marks=pytest.mark.slow),
    ],
)
def test_code_for_a_level_of_x86_64_is_right(level: str, vector_bytes: int) -> None:
    out, errors = script("target_programs.py", TREADLE_CPU=level)
    if "this CPU lacks" in errors:
        pytest.skip(errors.splitlines()[-1])
    assert out == f"{level} {vector_bytes}\n", errors


@pytest.mark.parametrize(
    "machine",
    [
        "aarch64-unknown-linux-gnu",
        pytest.param("arm64-apple-darwin23", marks=pytest.mark.slow),
    ],
)
def test_kernels_compile_for_aarch64(machine: str) -> None:
    out, errors = script("cross_compile.py", machine)
    assert not errors
    linux, apple = (set(line.split()) for line in out.splitlines())
    assert linux <= LIBRARY | LINUX
    assert apple <= {f"_{name}" for name in LIBRARY | APPLE}


def test_aarch64_reads_its_clock() -> None:
    """llvm.readsteadycounter is 0 there: workers would never look for work."""
    assert "cntvct_el0" in pool_ir("aarch64", "futex", True)


@pytest.mark.parametrize(
    ("level", "arch", "message"),
    [
        ("x86-64-v9", "x86_64", "must be one of x86-64, .* on x86_64, not 'x86-64-v9'"),
        ("x86-64-v3", "x86_64", "'x86-64-v3', but this CPU lacks avx2, bmi2"),
        ("x86-64-v3", "aarch64", "TREADLE_CPU must be unset on aarch64"),
    ],
)
def test_refused_levels(level: str, arch: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        target._level_flags(level, arch, frozenset({"popcnt", "sse4.2"}))


@pytest.mark.skipif(not X86, reason="levels of x86-64")
def test_level_decides_the_object_key(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = set()
    for level in ("", "x86-64", "x86-64-v2"):
        monkeypatch.setenv("TREADLE_CPU", level)
        chosen = target.host.__wrapped__()
        monkeypatch.setattr(kept, "host", lambda chosen=chosen: chosen)
        digests.add(kept._digest.__wrapped__())
    assert len(digests) == 3
