"""`import treadle` takes along only what it needs; errors name the user's line wherever
the library lies."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import treadle

ROOT = Path(__file__).parents[1]
HEAVY = ("jax", "torch", "llvmlite", "tensorstore", "orbax", "matplotlib", "sklearn")
LATER = ("treadle.compile", "treadle.backends.devices", "treadle.backends.first")
LATER += ("importlib.metadata", "socket")


def python(code: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=os.sep,
        env=os.environ | environment,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("module", [*HEAVY, *LATER])
def test_heavy_modules_are_not_loaded(module: str) -> None:
    code = "import sys, treadle; from treadle import nn, optim, rng; "
    assert python(code + f"print({module!r} in sys.modules)") == "False"


def test_the_version_is_that_of_the_package() -> None:
    assert treadle.__version__ == version("treadle")
    assert "__version__" not in python("import treadle; print(list(vars(treadle)))")


MISTAKE = """\
import treadle as td, treadle.numpy as tnp
from treadle import nn, rng

def f(x):
    return nn.Linear(3, 4, key=rng.key(0))(x)

try:
    {call}
except ValueError as error:
    print(td.__file__, str(error).splitlines()[1].split(" at ")[1], sep="\\n")
"""
CALLS = ("f(tnp.ones(5))", "td.jit(f)(tnp.ones(5))")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like site-packages, with the library as a normal install lays it."""
    folder = tmp_path_factory.mktemp("site-packages")
    shutil.copytree(ROOT / "core", folder / "treadle")
    for name in (
        "nn",
        "optim",
        "rng",
        "metrics",
        "weights",
        "models",
        "data",
        "checkpoint",
        "recipes",
    ):
        shutil.copytree(ROOT / name, folder / "treadle" / name)
    return folder


@pytest.mark.parametrize("call", CALLS)
def test_the_users_line_in_a_checkout(tmp_path: Path, call: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(MISTAKE.format(call=call))
    found = python(f"import runpy; runpy.run_path({str(script)!r})")
    assert found.splitlines()[1] == f"{script}:5"


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", ["nn", "treadle_models", "core", "optim"])
def test_the_users_line_beside_an_install(
    installed: Path, name: str, call: str
) -> None:
    """Other people's packages lie in the same folder, some with names like ours."""
    package = installed / name
    package.mkdir(exist_ok=True)
    script = package / "script.py"
    script.write_text(MISTAKE.format(call=call))
    code = f"import runpy; runpy.run_path({str(script)!r})"
    library, line = python(code, PYTHONPATH=str(installed)).splitlines()
    assert Path(library) == installed / "treadle" / "__init__.py"
    assert line == f"{script}:5"


@pytest.mark.parametrize("name", ["core_models", "nn2", "recipes"])
def test_folders_whose_names_begin_like_ours(name: str) -> None:
    """Also beside a checkout's folders."""
    from treadle.errors import is_ours

    assert not is_ours(str(ROOT / name / "model.py"))
    assert is_ours(str(ROOT / "nn" / "linear.py"))


def test_recipes_are_programs_as_a_user_would_write(installed: Path) -> None:
    code = (
        "from treadle.errors import is_ours; import treadle, os; "
        "here = os.path.dirname(treadle.__file__); "
        "print(is_ours(here + '/recipes/loop.py'), is_ours(here + '/nn/linear.py'))"
    )
    assert python(code, PYTHONPATH=str(installed)) == "False True"


@pytest.mark.parametrize(
    "family", ["attention", "conv", "fourier", "integers", "lapack"]
)
def test_a_program_loads_only_kernels_that_it_needs(family: str) -> None:
    code = "import sys, treadle as td, numpy as np; "
    code += "td.jit(lambda x: td.scan(lambda c, y: (c + y, c), 0.0, x @ x[0]))"
    code += "(np.ones((9, 9), 'float32')); "
    names = ("kernel", "schedule", "choice", "emitted")
    modules = [f"treadle.backends.cpu.{family}.{name}" for name in names]
    code += f"print([name in sys.modules for name in {modules}])"
    assert python(code) == "[False, False, False, False]"
