"""The mistakes that everybody makes once, each as a user would meet it: a script or a
command line in a process of its own, and what the terminal shows at the end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import checkpoint, nn, optim, rng
from treadle.checkpoint import DamagedError
from treadle.errors import StructureError
from treadle.recipes import cli

SCRIPTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "shapes in jit": (
        """
        import treadle as td, treadle.numpy as tnp

        @td.jit
        def predict(weight, x):
            hidden = tnp.tanh(x)
            return hidden @ weight  # here

        predict(tnp.ones((4, 5)), tnp.ones((2, 3)))
        """,
        ("ValueError: matmul: shapes (2, 3) and (4, 5)",),
    ),
    "a list": (
        """
        import treadle as td, treadle.numpy as tnp

        def mean(values):
            return tnp.mean(values)  # here

        mean([1.0, 2.0])
        """,
        ("TypeError: mean takes arrays, got a list: [1.0, 2.0]", "`tnp.array(...)`"),
    ),
    "a leak": (
        """
        import treadle as td, treadle.numpy as tnp

        history = []

        @td.jit
        def step(x):
            y = x * 2  # made
            history.append(y)
            return y

        step(tnp.ones(3))
        print(history[0] + 1)  # here
        """,
        ("LeakError: an array of type f32[3]", "Return it from the transformed"),
    ),
    "an if": (
        """
        import treadle as td, treadle.numpy as tnp

        @td.jit
        def relu(x):
            if x > 0:
                return x
            return "nothing"

        relu(1.0)
        """,
        ("TypeError: the result of relu", "taken as False"),
    ),
    "a changed argument": (
        """
        import treadle as td, treadle.numpy as tnp

        @td.jit
        def update(params, gradient):
            params["w"] = params["w"] - gradient  # here
            return params

        update({"w": tnp.ones(3)}, tnp.ones(3))
        """,
        ("MutationError: update changed its argument `params['w']`", "{**d,"),
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script(tmp_path: Path, name: str) -> None:
    text, parts = SCRIPTS[name]
    script = tmp_path / "script.py"
    script.write_text(dedent(text))
    lines = script.read_text().splitlines()
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 1
    said = done.stderr[done.stderr.rindex("Traceback") :]
    message = said[said.index("treadle.errors." if "errors." in said else "Error") :]
    for part in parts:
        assert part in said
    for mark, words in (("# here", "at"), ("# made", "traced at")):
        for number, line in enumerate(lines, 1):
            if line.endswith(mark):
                assert f"\n  {words} {script}:{number}\n" in message + "\n"


def refused_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(arguments) == 2
    output, errors = capsys.readouterr()
    assert not output
    return errors


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("train digits-mpl", ("'digits-mpl'", "did you mean 'digits-mlp'?")),
        ("train --learning-rat 1", ("'--learning-rat'", "'--learning-rate'")),
        ("train --steps many", ("--steps many", "a whole number")),
        ("resume nothing", ("'nothing'", "There are: none yet")),
        ("trian", ("'trian'", "did you mean 'train'?")),
    ],
)
def test_a_command(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    parts: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    message = refused_command(capsys, *command.split())
    for part in parts:
        assert part in message
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"\x89PNG\r\n\x1a\n", "byte 0 is 0x89"),
        (b"plain text, and then \xff", "byte 21 is 0xff"),
        (b"text\0text", "byte 4 is 0x00"),
        (b"", "corpus"),
        (b"short", "corpus"),
    ],
)
def test_a_corpus_that_is_not_text(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    part: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("corpus.bin").write_bytes(content)
    message = refused_command(capsys, "train", "char-gpt", "--data", "corpus.bin")
    assert "corpus.bin" in message
    assert part in message
    assert not (tmp_path / "runs").exists()


def test_a_corpus_that_is_a_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    message = refused_command(
        capsys, "train", "char-gpt", "--data", os.fspath(tmp_path)
    )
    assert f"--data {tmp_path}: Is a directory" in message


def trained(width: int) -> tuple[nn.Linear, object]:
    model = nn.Linear(3, width, key=rng.key(0))
    return model, optim.adamw(1e-3).init(model)


def test_a_checkpoint_of_another_model(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "run", trained(4))
    with pytest.raises(StructureError) as caught:
        checkpoint.restore(tmp_path / "run", trained(5))
    message = str(caught.value)
    assert str(tmp_path / "run") in message
    assert "weight: float32[3,5] expected, float32[3,4] saved" in message


def _halve(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize("harm", [_halve, Path.unlink], ids=["truncated", "deleted"])
def test_a_checkpoint_that_is_damaged(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    place = tmp_path / "run"
    checkpoint.save(place, {"weight": tnp.ones((100, 100))})
    files = [p for p in place.rglob("*") if p.is_file()]
    harm(max(files, key=lambda p: p.stat().st_size))
    with pytest.raises(DamagedError, match="run"):
        checkpoint.restore(place, {"weight": tnp.ones((100, 100))})


def test_a_checkpoint_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        checkpoint.restore(tmp_path / "nowhere", {"weight": tnp.ones(1)})


def test_a_donated_array() -> None:
    x = tnp.ones(3)
    td.jit(lambda x: x + 1.0, donate="x")(x)
    with pytest.raises(td.errors.DonatedError, match=r"test_wrong_input\.py:"):
        x + 1.0


LOGITS, KEY = np.ones((2, 3), np.float32), rng.key(0)
MEANT: dict[str, tuple[Callable[[], Any], str]] = {
    "float classes": (
        lambda: nn.cross_entropy(LOGITS, np.float32([0, 1])),
        "`labels.astype(int)`",
    ),
    "one-hot integers": (
        lambda: nn.cross_entropy(LOGITS, np.eye(3, dtype=int)[:2]),
        "`labels.argmax(-1)`",
    ),
    "a column of classes": (
        lambda: nn.cross_entropy(LOGITS, np.zeros((2, 1), int)),
        "`labels[..., 0]`",
    ),
    "images without channels": (
        lambda: nn.Conv2d(1, 8, 3, key=KEY)(np.ones((2, 28, 28))),
        "`x[..., None]`",
    ),
    "a list of layers": (lambda: nn.Sequential([nn.relu, nn.relu]), "(*layers)"),
    "half a size": (lambda: tnp.zeros((3 / 1, 2)), "`n // 2`"),
    "bf16": (lambda: tnp.ones(3, "bf16"), '"bfloat16"'),
    "fp16": (lambda: tnp.ones(3, "fp16"), '"float16"'),
    "a misspelt dtype": (lambda: tnp.ones(3, "flaot32"), '"float32"'),
    "arrays one by one": (
        lambda: tnp.concatenate(tnp.ones(2), tnp.ones(2)),  # type: ignore[arg-type]
        "`concatenate([a, b])`",
    ),
    "rows of many lengths": (lambda: tnp.array([[1, 2], [3]]), "`tnp.pad`"),
    "a list of keys": (lambda: tnp.stack([*rng.split(KEY)]), "`td.tree.map`"),  # type: ignore[list-item]
    "a dict": (lambda: tnp.sin({"a": 1.0}), "`td.tree.map`"),  # type: ignore[arg-type]
    "optimizer.step": (
        lambda: optim.adam(1e-3).step(),  # type: ignore[attr-defined]
        "optimizer.update(grads, state, params)",
    ),
}


@pytest.mark.parametrize("name", MEANT)
def test_what_is_meant(name: str) -> None:
    mistake, remedy = MEANT[name]
    with pytest.raises((TypeError, ValueError, AttributeError)) as found:
        mistake()
    text = str(found.value)
    assert remedy in text.splitlines()[-1] and "test_wrong_input.py:" in text
