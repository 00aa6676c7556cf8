"""The command line as a user meets it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle as td
from tests.recipes.small import begin, train
from tests.recipes.test_loop import damage, small
from treadle import tree
from treadle.checkpoint import Manager
from treadle.recipes import char_gpt, cli, runs
from treadle.recipes.catalogue import DEFAULT, RECIPES
from treadle.recipes.errors import command

TINY = ["--steps=4", "--batch-size=500", "--width=8", "--depth=1"]
TINY += ["--log-every=1", "--checkpoint-every=2"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


Captured = pytest.CaptureFixture[str]


def fails(captured: Captured, *arguments: str) -> str:
    """The message with which a command is refused."""
    assert cli.main(arguments) == 2
    output, errors = captured.readouterr()
    assert output == ""
    assert errors.startswith("treadle: ")
    return errors


@pytest.mark.parametrize(
    ("command", "first", "second"),
    [
        ("trian", "no command is called 'trian': did you mean 'train'?", "There are:"),
        ("train digits-mpl", "no recipe is called 'digits-mpl': did you", "digits-cnn"),
        ("train --widht 8", "called '--widht': did you mean '--width'?", "--depth"),
        ("train digits-cnn --channel=8", "did you mean '--channels'?", "--dropout"),
        ("train --lr 1e-3", "called '--lr': did you mean '--learning-rate'?", "--dep"),
        ("train --learning_rate 1", "did you mean '--learning-rate'?", "--depth"),
        (
            "train --batch 8",
            "called '--batch': did you mean '--batch-size'?",
            "--depth",
        ),
        ("train --wd 1", "called '--wd': did you mean '--weight-decay'?", "--depth"),
        (
            "train --xx 1",
            "no option of `treadle train digits-mlp` is called '--xx'\n",
            "",
        ),
        ("train --width wide", "--width wide: expected a whole number", ""),
        ("train --dropout 1", "--dropout 1.0: it must be below 1", ""),
        ("train --width", "argument --width: expected one argument", "--help"),
        ("train digits-mlp more", "treadle train digits-mlp takes no 'more'", ""),
        ("resume", "required: RUN", "treadle resume --help"),
        ("resume nothing", "no run is called 'nothing'", "There are: none yet"),
        ("eval latest", "no run is called 'latest'", "none yet"),
        ("train --steps 99999999999", "--steps 99999999999: it must be below", ""),
        ("train --seed 18446744073709551616", "it must be below 184467", ""),
        (
            "train char-gpt --context 200000",
            "the default corpus: 1000000 char",
            "2000010",
        ),
        ("report nothing --bets", "called '--bets'", "--help"),
        ("train --batch-size 2000", "--batch-size 2000: there are 1437 training", ""),
        ("train char-gpt --data no.txt", "--data no.txt: No such file", ""),
        ("train char-gpt --heads 3", "--width 128 can't be split", "--width 96"),
        ("", "required: COMMAND", "treadle --help"),
    ],
)
def test_what_is_wrong_is_named(
    capsys: Captured, command: str, first: str, second: str
) -> None:
    message = fails(capsys, *command.split())
    line, _, rest = message.partition("\n")
    assert first in line + "\n"
    assert second in rest


@pytest.mark.parametrize("name", RECIPES)
def test_help_of_a_recipe(capsys: Captured, name: str) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["train", name, "--help"])
    assert caught.value.code == 0
    output = capsys.readouterr().out
    assert "--learning-rate NUMBER" in output
    assert "(default: 0.0" in output


def test_the_default_recipe() -> None:
    assert DEFAULT == "digits-mlp"
    assert cli.parse(["train"]).recipe == DEFAULT
    assert cli.parse(["train", "--width", "8"]).width == 8


def test_list_loads_no_compiler(here: Path) -> None:
    code = "import sys; from treadle.recipes import cli; cli.main(['list'])\n"
    code += "print([m for m in ('llvmlite', 'treadle.compile') if m in sys.modules])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *listed, loaded = done.stdout.splitlines()
    assert any("digits-mlp     a multilayer" in line for line in listed)
    assert loaded == "[]"


def test_from_training_to_report(capsys: Captured, here: Path) -> None:
    assert cli.main(["train", *TINY]) == 0
    lines = capsys.readouterr().out.splitlines()
    (folder,) = (here / "runs").iterdir()
    run = f"runs/{folder.name}"
    assert lines[-1].startswith("test accuracy: 0.")
    assert lines[-2] == f"resume: treadle resume {run} --steps 8"
    assert f"run: {run}" in lines

    assert cli.main(["resume", "latest", "--steps", "6"]) == 0
    trained = capsys.readouterr().out.splitlines()[-1]
    assert cli.main(["eval", folder.name]) == 0
    tested = capsys.readouterr().out.splitlines()
    assert tested[0] == f"{run}, step 6"
    assert trained in tested
    assert cli.main(["eval", "latest", "--best"]) == 0
    capsys.readouterr()

    assert cli.main(["report", str(folder)]) == 0
    output = capsys.readouterr().out
    assert "6 of 6 (complete)" in output
    assert "610" in output
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    page = (folder / "report.html").read_text()
    assert "best test accuracy" in page
    for heading in ("model", "activations", "gradients", "kernels of a training step"):
        assert f"<h2>{heading}</h2>" in page
    assert "left out" not in page

    assert cli.main(["list"]) == 0
    assert folder.name in capsys.readouterr().out


def test_a_run_folder_is_not_taken_twice(capsys: Captured, here: Path) -> None:
    begin(here / "mine")
    message = fails(capsys, "train", *TINY, "--run-dir", "mine")
    assert "--run-dir mine: there is a run already" in message
    assert "treadle resume mine" in message
    (here / "other").mkdir()
    (here / "other" / "file").touch()
    message = fails(capsys, "train", *TINY, "--run-dir", "other")
    assert "not an empty folder" in message


def test_runs_are_listed_where_one_is_unknown(capsys: Captured, here: Path) -> None:
    begin(here / "runs" / "digits-mlp-1")
    message = fails(capsys, "resume", "digit-mlp-1")
    assert "did you mean 'digits-mlp-1'?" in message


def test_a_run_without_a_checkpoint(capsys: Captured, here: Path) -> None:
    begin(here / "runs" / "new")
    assert "runs/new has no checkpoint" in fails(capsys, "eval", "new")
    assert cli.main(["report", "new"]) == 0
    assert "0 of 12 (not complete)" in capsys.readouterr().out


def test_a_damaged_checkpoint(capsys: Captured, here: Path) -> None:
    run = begin(here / "runs" / "hurt")
    train(run)
    damage(run, 12)
    assert cli.main(["eval", "hurt"]) == 0
    output, errors = capsys.readouterr()
    assert output.startswith("runs/hurt, step 8\n")
    assert "warning: step 12 cannot be restored" in errors
    for step in (4, 8):
        damage(run, step)
    assert "No earlier step is intact" in fails(capsys, "eval", "hurt")


def test_settings_that_do_not_fit_the_checkpoint(capsys: Captured, here: Path) -> None:
    run = begin(here / "runs" / "run")
    train(run)
    text = run.settings.read_text()
    run.settings.write_text(text.replace('"width": 8', '"width": 16'))
    message = fails(capsys, "eval", "run")
    assert "model.out.weight: float32[16,10] expected, float32[8,10] saved" in message
    assert "runs/run/run.json" in message
    run.settings.write_text(text.replace('"recipe"', '"receipt"'))
    assert "runs/run/run.json is damaged" in fails(capsys, "eval", "run")
    run.settings.write_text(text.replace("digits-mlp", "digits-vit"))
    assert "no recipe is called 'digits-vit'" in fails(capsys, "eval", "run")


def test_the_corpus_has_changed(capsys: Captured, here: Path) -> None:
    config = small("char-gpt", here)
    run = begin(here / "runs" / "gpt", config, char_gpt.RECIPE)
    train(run)
    (here / "corpus.txt").write_text("something else entirely, " * 100)
    message = fails(capsys, "resume", "gpt")
    assert "the data of runs/gpt have changed" in message
    assert "treadle train char-gpt" in message
    # What it has learned does not depend on the file.
    assert cli.main(["sample", "gpt", "--length", "5"]) == 0


def test_sample(capsys: Captured, here: Path) -> None:
    run = begin(here / "runs" / "gpt", small("char-gpt", here), char_gpt.RECIPE)
    train(run)
    texts = []
    for options in ("", "", "--seed 1", "--temperature 0", "--temperature 0 --seed 1"):
        arguments = ["sample", "gpt", "--prompt", "12 ", "--length", "30"]
        assert cli.main([*arguments, *options.split()]) == 0
        texts.append(capsys.readouterr().out)
    assert all(text.startswith("12 ") for text in texts)
    assert all(len(text) == 3 + 30 + 1 for text in texts)
    assert texts[0] == texts[1] != texts[2]
    assert texts[3] == texts[4]


def test_a_recipe_that_does_not_write(capsys: Captured, here: Path) -> None:
    begin(here / "runs" / "run")
    message = fails(capsys, "sample", "run")
    assert "runs/run is a run of digits-mlp, which doesn't write" in message
    assert "char-gpt" in message


def test_a_step_that_is_behind(capsys: Captured, here: Path) -> None:
    run = begin(here / "runs" / "run")
    train(run)
    before = run.settings.read_text()
    message = fails(capsys, "resume", "run", "--steps", "8")
    assert "--steps 8: runs/run is at step 12 already" in message
    assert "treadle resume runs/run --steps 24" in message
    assert run.settings.read_text() == before


def test_two_processes_do_not_train_one_run(capsys: Captured, here: Path) -> None:
    run = begin(here / "runs" / "run")
    code = "import sys; from pathlib import Path\n"
    code += "from treadle.recipes import catalogue, runs\n"
    code += "with runs.claimed(runs.load(Path('runs/run'), catalogue.RECIPES)):\n"
    code += "    print('claimed', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "claimed\n"
        message = fails(capsys, "resume", "run", "--steps", "20")
        assert f"being trained by another process (process {other.pid} on" in message
        other.kill()
    assert runs.load(run.folder, RECIPES).config.steps == 12
    assert cli.main(["resume", "run"]) == 0


@pytest.mark.parametrize("log_every", ["2", "1000"])
def test_a_training_that_diverges(capsys: Captured, here: Path, log_every: str) -> None:
    options = ["--steps=30", "--checkpoint-every=3", f"--log-every={log_every}"]
    options += ["--learning-rate=1e37", "--width=8", "--run-dir=run"]
    assert cli.main(["train", *options]) == 2
    errors = capsys.readouterr().err
    assert re.search("loss is (nan|inf) after step .*: the training has div", errors)
    assert "--learning-rate, such as 1e+36 instead of 1e+37" in errors
    kept = Manager(here / "run" / "checkpoints").latest_step()
    assert ("from it the same happens" in errors) == (kept is not None)
    # What is kept is worth keeping: finite parameters, and rows that are JSON.
    manager = Manager(here / "run" / "checkpoints")
    for step in manager.all_steps():
        leaves = tree.leaves(manager.restore(step=step)["state"]["model"])
        assert all(np.isfinite(np.asarray(leaf)).all() for leaf in leaves)
    assert "NaN" not in (here / "run" / "metrics.jsonl").read_text()
    assert cli.main(["report", "run"]) == 0


def test_a_run_whose_settings_are_of_another_kind(capsys: Captured, here: Path) -> None:
    run = begin(here / "runs" / "run")
    content = json.loads(run.settings.read_text())
    for wrong in (
        [],
        content | {"config": []},
        content | {"recipe": ["digits-mlp"]},
        content | {"facts": "none"},
    ):
        run.settings.write_text(json.dumps(wrong))
        assert "runs/run/run.json is damaged" in fails(capsys, "report", "run")
    run.settings.write_text(json.dumps(content | {"facts": {}}))
    assert "training: nothing then, 1437 now" in fails(capsys, "resume", "run")


@pytest.mark.parametrize("folder", ["file/run", "/proc/none"])
def test_a_folder_that_cannot_be_made(
    capsys: Captured, here: Path, folder: str
) -> None:
    (here / "file").touch()
    errors = fails(capsys, "train", *TINY, "--run-dir", folder)
    assert errors.startswith(f"treadle: --run-dir {folder}: No")


def test_a_full_disk(here: Path) -> None:
    """Files may not grow beyond 40 kB: the third checkpoint's would."""
    code = "import resource, sys; from treadle.recipes import cli\n"
    code += "resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))\n"
    code += "sys.exit(cli.main(sys.argv[1:]))"
    options = [*TINY, "--width", "200", "--run-dir", "run"]
    command = [sys.executable, "-c", code, "train", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == "treadle: could not write the checkpoint: File too large"
    assert "Traceback" not in done.stderr
    assert Manager(here / "run" / "checkpoints").all_steps() == []
    assert cli.main(["resume", "run"]) == 0


def test_version(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"treadle {td.__version__}\n"


@pytest.mark.parametrize("on_path", [False, True])
def test_commands_are_shown_as_they_can_be_typed(
    here: Path, monkeypatch: pytest.MonkeyPatch, on_path: bool
) -> None:
    script = here / "bin" / "treadle"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent if on_path else here))
    monkeypatch.setattr(sys, "argv", ["bin/treadle", "train"])
    assert command("list") == f"{'treadle' if on_path else 'bin/treadle'} list"
    monkeypatch.setattr(sys, "argv", ["/usr/bin/pytest"])
    assert command("list") == "treadle list"
    (here / "my bin").mkdir()
    script.rename(here / "my bin" / "treadle")
    monkeypatch.setattr(sys, "argv", ["my bin/treadle", "train"])
    assert command("list") == "'my bin/treadle' list"


def test_commands_can_be_pasted(capsys: Captured, here: Path) -> None:
    assert cli.main(["train", *TINY, "--run-dir", "my runs/it's one"]) == 0
    output = capsys.readouterr().out
    commands = re.findall(r"^(?:report|resume): treadle (.*)$", output, re.M)
    assert len(commands) == 2
    for line in commands:
        assert cli.main(shlex.split(line)) == 0
    capsys.readouterr()
    message = fails(capsys, "train", "--run-dir", "my runs/it's one")
    assert shlex.split(message.splitlines()[1])[-1] == "my runs/it's one"


def test_an_interrupt_inside_of_a_lock_is_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = threading.Condition()

    def interrupted(arguments: Any) -> int:
        with lock:
            lock.release()  # as `wait` does, in which the interrupt comes
            raise KeyboardInterrupt

    monkeypatch.setitem(cli._COMMANDS, "list", interrupted)
    assert cli.main(["list"]) == 130
    assert capsys.readouterr().err == "treadle: interrupted\n"

    def failing(arguments: Any) -> int:
        raise RuntimeError("of another kind")

    monkeypatch.setitem(cli._COMMANDS, "list", failing)
    with pytest.raises(RuntimeError, match="of another kind"):
        cli.main(["list"])
