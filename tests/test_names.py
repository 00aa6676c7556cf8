"""Names from other libraries: what to write instead; what type checkers see."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import checkpoint, data, names, nn, optim, rng

ROOT = Path(__file__).parents[1]

MISSING = [
    (td, "array", "treadle.numpy.array"),
    (td, "relu", "treadle.nn.relu"),
    (td, "random", "treadle.rng"),
    (td, "freeze", "treadle.nn.freeze"),
    (optim, "LRScheduler", "treadle.optim.Schedule"),
    (optim, "lr_scheduler", "treadle.optim.Schedule"),
    (td, "PRNGKey", "treadle.rng.key"),
    (td, "tree_map", "treadle.tree.map"),
    (td, "filter_jit", "treadle.jit"),
    (td, "norm", "treadle.numpy.linalg.norm"),
    (td, "checkify", "treadle.debug.checkify"),
    (td, "log_compiles", "treadle.debug.log_compiles"),
    (td, "register_dataclass", "treadle.tree.register_dataclass"),
    (td.ops, "segment_sum", "treadle.segment_sum"),
    (td.errors, "ConcretizationTypeError", "treadle.errors.TracerError"),
    (nn, "initializers", "treadle.nn.init"),
    (nn, "replace", "treadle.nn.at"),
    (tnp, "normal", "treadle.rng.normal"),
    (tnp, "relu", "treadle.nn.relu"),
    (nn, "ReLU", "treadle.nn.relu"),
    (nn, "CrossEntropyLoss", "treadle.nn.cross_entropy"),
    (nn, "Conv2D", "treadle.nn.Conv2d"),
    (nn, "jit", "treadle.jit"),
    (optim, "Adam", "treadle.optim.adam"),
    (rng, "randn", "treadle.rng.normal"),
    (td, "save", "treadle.checkpoint.save"),
    (td, "load", "treadle.checkpoint.restore"),
    (checkpoint, "load", "treadle.checkpoint.restore"),
    (checkpoint, "CheckpointManager", "treadle.checkpoint.Manager"),
    (td, "state_dict", "treadle.weights.of"),
    (nn, "load_state_dict", "treadle.weights.into"),
    (tnp, "cat", "treadle.numpy.concatenate"),
    (nn, "Dense", "treadle.nn.Linear"),
    (optim, "StepLR", "treadle.optim.piecewise_constant_schedule"),
    (optim, "clip_grad_norm_", "treadle.optim.clip_by_global_norm"),
    (td.tree, "tree_map", "treadle.tree.map"),
    (td.tree, "sum", "treadle.optim.tree.sum"),
    (td.tree, "zeros_like", "treadle.optim.tree.zeros_like"),
    (optim, "l2_loss", "treadle.nn.squared_error"),
    (td, "cuda", "treadle.devices"),
    (data, "DataLoader", "treadle.data.Loader"),
    (data, "Dataset", "treadle.data.DataSet"),
    (td.scipy.special, "erf_inv", "treadle.lax.erf_inv"),
    (tnp, "special", "treadle.scipy.special"),
    (td.scipy, "erf", "treadle.lax.erf"),
    (td.image, "avg_pool", "treadle.nn.avg_pool"),
    (td.scipy.special, "lgamma", "treadle.scipy.special.gammaln"),
    (nn, "Dropout2d", "treadle.nn.Dropout"),
    (nn, "InstanceNorm2d", "treadle.nn.InstanceNorm"),
    (nn, "Hardswish", "treadle.nn.hard_silu"),
    (nn, "Softshrink", "treadle.nn.soft_shrink"),
    (nn.init, "trunc_normal_", "treadle.nn.init.truncated_normal"),
    (nn.init, "kaiming_normal_", "treadle.nn.init.kaiming_normal"),
    (nn.init, "xavier_uniform_", "treadle.nn.init.xavier_uniform"),
    (td, "Flatten", "treadle.nn.Flatten"),
    (nn, "Embed", "treadle.nn.Embedding"),
    (nn, "ZeroPad2d", "treadle.nn.Pad"),
]


@pytest.mark.parametrize(("module", "name", "instead"), MISSING)
def test_a_name_from_elsewhere(module: Any, name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=f"has no `{name}`: use `{instead}`") as e:
        getattr(module, name)
    assert f"at {__file__}:" in str(e.value)
    assert (e.value.name, e.value.obj) == (name, module)
    resolve_name(instead)


NEAR = [
    (optim, "warmup_cosine_decay", "treadle.optim.warmup_cosine_decay_schedule"),
    (optim, "cosine_decay", "treadle.optim.cosine_decay_schedule"),
    (checkpoint, "restor", "treadle.checkpoint.restore"),
    (tnp, "asarry", "treadle.numpy.asarray"),
    (td.tree, "flaten", "treadle.tree.flatten"),
]


@pytest.mark.parametrize(("module", "name", "meant"), NEAR)
def test_a_name_that_is_nearly_right(module: Any, name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=rf"`{name}`: did you mean `{meant}`\?"):
        getattr(module, name)
    resolve_name(meant)


SAID = [
    (td, "block_until_ready", "use `treadle.jit`: a call is done when it returns"),
    (nn, "ModuleList", "use `treadle.nn.Module`: "),
    (nn, "conv2d", "use `treadle.lax.conv_general_dilated`"),
    (td.lax, "conv_shape_tuple", "not planned: `treadle.eval_shape` tells the shape"),
    (td, "default_backend", "later: with the backend for GPUs"),
    (data, "random_split", "split the examples by indices: "),
    (td, "Subset", "take the examples: "),
    (data, "DistributedSampler", "use `treadle.data.Loader"),
    (nn, "utils", "use `treadle.optim.clip_by_global_norm` for `clip_grad_norm_`"),
    (tnp, "Unfold", "use `treadle.lax.conv_general_dilated_patches`"),
]


@pytest.mark.parametrize(("module", "name", "said"), SAID)
def test_what_pages_of_names_say(module: Any, name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=f"has no `{name}`: {said}"):
        getattr(module, name)


@pytest.mark.parametrize(
    ("thing", "name", "said"),
    [
        (
            "schedule",
            "step",
            r"function of the count of updates.*\n*.*schedule\(count\)",
        ),
        ("schedule", "get_last_lr", r"optim\.hyperparameters\(state\)"),
        ("loader", "num_workers", r"workers=2"),
        ("loader", "state_dict", r"loader\.state\(\)"),
    ],
)
def test_what_schedules_and_loaders_do_not_have(
    thing: str, name: str, said: str
) -> None:
    made = {
        "schedule": optim.cosine_decay_schedule(1.0, 10),
        "loader": data.Loader(np.zeros((4, 2)), batch_size=2),
    }[thing]
    assert not hasattr(made, "unknown")
    with pytest.raises(AttributeError, match=rf"has no `{name}`[\s\S]*{said}") as e:
        getattr(made, name)
    assert f"at {__file__}:" in str(e.value)


def test_what_is_said_of_names_elsewhere_is_there() -> None:
    said = names.elsewhere()
    assert sum(map(len, said.values())) > 1000
    for module, found in said.items():
        resolve_name(module)
        assert all(ours or why for ours, why in found.values())
        for ours in {ours for ours, _ in found.values() if ours}:
            resolve_name(ours)


@pytest.mark.parametrize(("module", "name", "instead"), MISSING)
def test_an_import_says_it_too(module: Any, name: str, instead: str) -> None:
    statement = f"from {module.__name__.replace('.np.', '.numpy.')} import {name}"
    with pytest.raises(ImportError, match=f"has no `{name}`: use `{instead}`"):
        exec(statement, {})


def test_an_import_of_a_module_finds_it() -> None:
    exec("from treadle import checkpoint, models, weights", {})
    with pytest.raises(ImportError, match="cannot import name 'nothing_alike'"):
        exec("from treadle.numpy import nothing_alike", {})


@pytest.mark.parametrize(
    ("module", "name"),
    [(tnp, "busday_count"), (tnp, "nditer")],
)
def test_what_only_numpy_has(module: Any, name: str) -> None:
    with pytest.raises(AttributeError, match=f"no `{name}`: use NumPy's") as caught:
        getattr(module, name)
    function = str(caught.value).split("pure_callback(")[1].split(",")[0]
    assert callable(eval(function, {"np": np}))


def test_no_loop_variable_is_a_public_name() -> None:
    for name in ("theirs", "ours", "name"):
        assert not hasattr(tnp, name)


def test_methods_of_other_modules() -> None:
    model = nn.Linear(2, 3, key=rng.key(0))
    for name, remedy in names._METHODS.items():
        assert not hasattr(model, name)
        assert name == names._plain(name)
        assert remedy.endswith(".")
    message = "no field `state_dict`(.|\n)*checkpoint.save\\(path, module\\)"
    with pytest.raises(AttributeError, match=message):
        model.state_dict()
    with pytest.raises(AttributeError, match=r"`wieght`; its fields are in_.*\n.*$"):
        _ = model.wieght


def test_checkpoint_is_a_module() -> None:
    with pytest.raises(TypeError, match=r"is a module(.|\n)*use `treadle.remat`"):
        td.checkpoint(lambda x: x)
    code = "import treadle as td\ntd.checkpoint(1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "use `treadle.remat`" in done.stderr


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("field", "convert in `__init__`"), ("state", "nn.partition\\(module, where\\)")],
)
def test_modules_that_are_functions_elsewhere(name: str, remedy: str) -> None:
    with pytest.raises(TypeError, match=rf"nn.{name} is a module(.|\n)*{remedy}"):
        getattr(nn, name)(static=True)


def test_every_synonym_is_there_and_needed() -> None:
    for name, instead in names._SYNONYMS.items():
        resolve_name(instead)
        assert name == names._plain(name)
        assert names.instead("treadle", name) == instead


@pytest.mark.parametrize("name", ["nonsense", "__path__x", "_private"])
def test_other_names_are_just_missing(name: str) -> None:
    for module in (td, tnp, nn, optim, rng):
        assert not hasattr(module, name)
        with pytest.raises(AttributeError, match=f"has no `{name}`$"):
            getattr(module, name)


def test_a_part_that_is_not_imported() -> None:
    code = """
import sys, treadle as td
assert not {"treadle.nn", "treadle.optim"} & {*sys.modules} and "nn" in dir(td)
print(td.nn.Linear.__name__, td.optim.adamw.__name__, td.recipes.__name__)
assert len(td.__dir__()) == len({*td.__dir__()})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["Linear", "adamw", "treadle.recipes"], done.stderr


USER = """\
import treadle as td
import treadle.numpy as tnp
from treadle.numpy import linalg
reveal_type(tnp.ones(3).sum())
reveal_type(linalg.norm(tnp.ones(3)))
reveal_type(td.numpy.ones(3))
tnp.nonsense
td.nonsense
"""


def test_type_checkers_see_through_a_normal_install(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "treadle").mkdir(parents=True)
    for path in (ROOT / "core").iterdir():
        (site / "treadle" / path.name).symlink_to(path)
    script = tmp_path / "user.py"
    script.write_text(USER)
    options = ["--config-file=", "--follow-imports=silent", f"--cache-dir={tmp_path}/c"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(site)},
    )
    assert done.stdout.count('Revealed type is "treadle.run.array.Array"') == 3
    assert done.stdout.count('Module has no attribute "nonsense"') == 2, done.stdout
    assert "Found 2 errors in 1 file" in done.stdout


def test_what_is_not_python_is_installed_too() -> None:
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    others = {p.name for p in (ROOT / "core").iterdir() if p.is_file()}
    others = {n for n in others if not n.endswith((".py", ".md"))}
    assert set(setup["package-data"]["treadle"]) == others


MODULES = [
    *[(td, name) for name in names._PLACES],
    *[(optim, name) for name in names._PLACES_OF_OPTAX],
]


@pytest.mark.parametrize(
    ("module", "name"), MODULES, ids=[f"{m.__name__}.{n}" for m, n in MODULES]
)
def test_modules_of_other_libraries(module: Any, name: str) -> None:
    with pytest.raises(AttributeError, match=f"has no `{name}`: ") as caught:
        getattr(module, name)
    for named in re.findall(r"`((?:treadle|optim|nn)\.[\w.]+)", str(caught.value)):
        path = named if named.startswith("treadle") else f"treadle.{named}"
        assert resolve_name(path) is not None
