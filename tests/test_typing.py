"""What a strict type checker, and with it an editor, finds of the library."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import treadle.numpy as tnp
from treadle import names

ROOT = Path(__file__).parents[1]
USES = ROOT / "tests" / "typed_uses.py"

# A strict checker wants to know what the functions of README's program take.
ANNOTATED = {
    "activation: Callable ": "activation: Callable[[td.Array], td.Array] ",
    "def __init__(self, width, *, key):": (
        "def __init__(self, width: int, *, key: rng.Key) -> None:"
    ),
    "def __call__(self, x):": "def __call__(self, x: tnp.ArrayLike) -> td.Array:",
    "def step(model, state, x, y):": (
        "def step(model: Classifier, state: Any, x: tnp.ArrayLike, y: tnp.ArrayLike):"
    ),
    "def loss(model):": "def loss(model: Classifier):",
    "def accuracy(model, x, y):": (
        "def accuracy(model: Classifier, x: tnp.ArrayLike, y: tnp.ArrayLike):"
    ),
    # scikit-learn has no types.
    "from sklearn.datasets import load_digits": "from data import load_digits",
}
DATA = """
from typing import Any
import numpy as np
Numbers = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
def load_digits(return_X_y: bool) -> tuple[Numbers, Numbers]:
    raise NotImplementedError
"""
TYPES = """
assert_type(step(model, state, images, digits), tuple[Classifier, Any, td.Array])
assert_type(model.hidden.weight, td.Array)
assert_type(accuracy(model, images[test], digits[test]), td.Array)
"""


def readme() -> str:
    text = (ROOT / "README.md").read_text()
    program = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    for plain, annotated in ANNOTATED.items():
        assert program.count(plain) == 1, plain
        program = program.replace(plain, annotated)
    imports = "from typing import Any, assert_type\nimport treadle.numpy as tnp\n"
    return imports + program + TYPES


def installed(site: Path) -> None:
    """The library as a wheel lays it out."""
    (site / "treadle").mkdir(parents=True)
    folders = [*(ROOT / "core").iterdir()]
    folders += [
        ROOT / f
        for f in (
            "nn",
            "optim",
            "rng",
            "metrics",
            "weights",
            "models",
            "data",
            "checkpoint",
            "recipes",
        )
    ]
    for path in folders:
        (site / "treadle" / path.name).symlink_to(path)


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What the checker says of each program."""
    folder = tmp_path_factory.mktemp("typing")
    installed(folder / "site")
    programs = {
        "uses": USES.read_text(),
        "readme": readme(),
        "wrong": "import treadle.numpy as tnp\nx: int = tnp.sin(1.0)\nlambda y: y\n",
    }
    for name, program in programs.items():
        (folder / f"{name}.py").write_text(program)
    (folder / "data.py").write_text(DATA)
    options = {
        "include": [f"{name}.py" for name in programs],
        "extraPaths": ["site"],
        "typeCheckingMode": "strict",
        "reportUnnecessaryTypeIgnoreComment": "error",
        "reportPossiblyUnboundVariable": False,  # what README's loop has computed last
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(options))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "-p", str(folder)]
    command += ["--pythonpath", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found: dict[str, list[Any]] = {name: [] for name in programs}
    for one in json.loads(done.stdout)["generalDiagnostics"]:
        found[Path(one["file"]).stem].append(one)
    return found


def shown(findings: list[Any]) -> list[str]:
    return [f"{f['range']['start']['line'] + 1}: {f['message']}" for f in findings]


def test_the_checker_finds_mistakes(findings: dict[str, list[Any]]) -> None:
    rules = {f["rule"] for f in findings["wrong"]}
    assert rules >= {"reportAssignmentType", "reportUnknownLambdaType"}


def test_what_programs_write_has_the_types_that_it_should(
    findings: dict[str, list[Any]],
) -> None:
    assert len(re.findall(r"^ *assert_type\(", USES.read_text(), re.MULTILINE)) >= 100
    assert shown(findings["uses"]) == []


def test_the_program_of_the_readme(findings: dict[str, list[Any]]) -> None:
    assert shown(findings["readme"]) == []


def functions() -> list[Any]:
    return [
        pytest.param(value, id=f"{module.__name__}.{name}")
        for module in (tnp, tnp.linalg, tnp.fft)
        for name in names.public(vars(module))
        if isinstance(value := inspect.unwrap(getattr(module, name)), FunctionType)
        and value.__module__.startswith("treadle.")  # others are NumPy's
    ]


@pytest.mark.parametrize("function", functions())
def test_editors_find_definition_signature_and_documentation(function: Any) -> None:
    """Made by a `def` of its own name, with parameters, and a docstring."""
    assert function.__code__.co_name == function.__name__ != "<lambda>"
    assert re.search(rf"^def {function.__name__}\(", inspect.getsource(function), re.M)
    parameters = inspect.signature(function).parameters.values()
    kinds = {p.kind for p in parameters}
    assert kinds != {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    assert all(p.annotation is not p.empty for p in parameters)
    assert (function.__doc__ or "").strip()
