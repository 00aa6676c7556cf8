"""What is said where a package is not installed that only some users need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from treadle.errors import MissingPackageError
from treadle.optional import need, needed_for

WITHOUT = """
import sys
for name in {names}:
    sys.modules[name] = None
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda n: None if n in {names} else found(n)
{program}
"""


def run(program: str, *names: str, cwd: Path | None = None) -> tuple[int, str]:
    """A program in which some packages can't be imported: its status and its errors."""
    text = WITHOUT.format(names=list(names), program=program)
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, cwd=cwd
    )
    return done.returncode, done.stderr


def test_a_missing_package_is_named_with_the_line_and_the_remedy() -> None:
    with pytest.raises(MissingPackageError) as caught, needed_for("a sum"):
        raise ModuleNotFoundError(name="tokenizers.models")
    message = str(caught.value)
    assert "a sum needs tokenizers, which is not installed" in message
    assert "test_optional.py" in message and "'.[hf]'" in message


def test_other_modules_are_not_taken_for_packages() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^inside$"), needed_for("a sum"):
        raise ModuleNotFoundError("inside", name="numpy.inside")


def test_all_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    need("nothing", "rich")
    monkeypatch.setattr("treadle.optional.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError) as caught:
        need("the command line", "rich", "sklearn", "orbax")
    message = str(caught.value)
    assert "needs rich and scikit-learn and orbax-checkpoint, which are" in message
    assert "'.[recipes,orbax]'" in message


def test_the_command_line_says_so_before_it_starts(tmp_path: Path) -> None:
    program = "import treadle_command; sys.argv = ['treadle', 'train', 'digits-mlp']; "
    program += "sys.exit(treadle_command.main())"
    status, errors = run(program, "matplotlib", "sklearn", cwd=tmp_path)
    assert status == 2
    assert errors.startswith("treadle: the command line needs matplotlib and scikit-")
    assert "Traceback" not in errors and not list(tmp_path.iterdir())


def test_the_library_trains_without_them() -> None:
    program = """
import treadle as td, treadle.numpy as tnp
from treadle import checkpoint, nn, optim, rng
layer = nn.Linear(2, 1, key=rng.key(0))
print(td.jit(td.grad(lambda m: m(tnp.ones(2)).sum()))(layer).weight)
"""
    status, errors = run(program, "rich", "matplotlib", "sklearn", "orbax", "jax")
    assert status == 0, errors
