"""Who may import whom."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.style.sources import (
    AROUND,
    FOLDERS,
    LIBRARY,
    ROOT,
    facts,
    module,
    name,
)
from treadle.backends.devices import TARGETS

# Data flows from left to right, and an import points to the left. Rooms in one group
# may use each other.
STAGES = (
    (
        "alike",
        "errors",
        "optional",
        "records",
        "events",
        "names",
        "spellings",
        "scopes",
        "settings",
        "dims",
        "late",
    ),
    ("dtypes", "arraytype", "structure", "matching", "selection", "tree"),
    ("reading",),
    ("ir", "trace"),
    ("run.array", "run.device", "run.eager"),
    ("ops",),
    ("transforms",),
    ("control",),
    ("passes",),
    ("kernels",),
    ("fuse",),
    ("plan",),
    ("backends",),
    ("run",),
    ("fitting",),
    ("compile", "check", "show"),
    ("api", "debug"),
    ("np", "numpy"),
    ("lax", "extend", "scipy", "image"),
    ("",),
    ("rng",),
    ("nn",),
    ("metrics", "weights", "data"),
    ("optim",),
    ("models",),
    ("checkpoint",),
    ("recipes",),
    ("install",),
)
RANK = {room: rank for rank, rooms in enumerate(STAGES) for room in rooms}
# Above `core/`, only what a user could import.
PUBLIC = (
    "",
    "alike",
    "errors",
    "optional",
    "names",
    "spellings",
    "scopes",
    "settings",
    "dims",
    "dtypes",
    "arraytype",
    "tree",
    "reading",
    "debug",
    "np",
    "numpy",
    "lax",
    "scipy",
    "image",
)
ABOVE = tuple(key.split(".")[1] for key in FOLDERS if "." in key)

PEERS = {"jax", "jaxlib", "torch", "equinox", "flax", "optax"}
OPTIONAL = {"PIL", "cupy", "cupyx", "matplotlib", "mpi4py", "nvidia", "rich", "sklearn"}
OPTIONAL |= {"dp_accounting", "scipy", "tensorboardX", "tokenizers", "treescope"}
# What Orbax's own checkpointers need, the file that nothing else imports.
FOR_ORBAX = "checkpoint/orbax.py"
# Not optional, but slow to load and not needed by everybody who says `import treadle`.
SLOW = {"llvmlite", "tensorstore"}


def rank(dotted: str) -> int:
    """The stage of a module: that of its own name, or of its room."""
    inside = dotted.partition(".")[2]
    return RANK.get(inside, RANK[room(dotted)])


def room(dotted: str) -> str:
    """The folder or file at the level of `treadle` that a module belongs to."""
    return ([*dotted.split("."), ""])[1]


def test_imports_point_down() -> None:
    wrong = [
        f"{name(path)}:{line}: {target}"
        for path in LIBRARY
        for line, target in facts(path).imports
        if target.split(".")[0] == "treadle"
        and (
            rank(target) > rank(module(path))
            or (room(module(path)) in ABOVE and room(target) not in (*PUBLIC, *ABOVE))
        )
    ]
    assert not wrong, "imports of a later stage, or of the inside of core:\n" + (
        "\n".join(wrong)
    )


def test_two_files_outside_a_backend_import_it() -> None:
    """The compiler is given its target; only the list of devices knows all."""
    wrong = [
        f"{name(path)}:{line}: {target}"
        for path in LIBRARY
        if name(path) not in ("core/backends/devices.py", "core/backends/first.py")
        for line, target in facts(path).imports
        for backend in TARGETS
        if target.startswith(f"treadle.backends.{backend}")
        and not module(path).startswith(f"treadle.backends.{backend}")
    ]
    assert not wrong, "ask the target:\n" + "\n".join(wrong)


def test_no_file_outside_a_backend_names_a_device() -> None:
    wrong = [
        f"{name(path)}:{line}: {text!r}"
        for path in LIBRARY
        if not name(path).startswith("core/backends/")
        for line, text in facts(path).texts
        if text in TARGETS
    ]
    assert not wrong, "ask the list of devices:\n" + "\n".join(wrong)


def test_every_room_has_a_stage() -> None:
    rooms = {room(module(path)) for path in LIBRARY}
    assert rooms <= set(RANK), f"add {sorted(rooms - set(RANK))} to STAGES"


def test_imports_are_absolute_and_by_the_installed_name() -> None:
    bare = set(FOLDERS.values())
    wrong = [
        f"{name(path)}:{line}: {target}"
        for path in LIBRARY + AROUND
        for line, target in facts(path).imports
        if target.split(".")[0] in bare or target.startswith(".")
    ]
    assert not wrong, "write `treadle.…`:\n" + "\n".join(wrong)


def test_peers_are_imported_by_tests_only() -> None:
    wrong = [
        f"{name(path)}:{line}: {target}"
        for path in LIBRARY
        for line, target in facts(path).imports
        if (target.split(".")[0] in PEERS | {"orbax"} and name(path) != FOR_ORBAX)
        or f"{target}.".startswith("treadle.checkpoint.orbax.")
    ]
    assert not wrong, "\n".join(wrong)


def test_only_optional_and_slow_dependencies_are_imported_late() -> None:
    wrong = [
        f"{name(path)}:{line}: {target}"
        for path in LIBRARY
        for line, target in facts(path).late
        if target.split(".")[0] not in OPTIONAL | SLOW
    ]
    assert not wrong, "import these at the top of the file:\n" + "\n".join(wrong)


def _loaded_by(statement: str) -> set[str]:
    program = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT.parent,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stdout))


def test_importing_the_library_loads_no_compiler_and_no_peer() -> None:
    loaded = _loaded_by("import treadle")
    heavy = PEERS | OPTIONAL | SLOW | {"orbax"}
    assert not heavy & {m.split(".")[0] for m in loaded}


@pytest.mark.parametrize("package", sorted(FOLDERS))
def test_importing_a_package_loads_no_peer(package: str) -> None:
    loaded = _loaded_by(f"import {package}")
    assert not (PEERS | {"orbax"}) & {m.split(".")[0] for m in loaded}
