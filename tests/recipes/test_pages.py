"""What the README and the documentation show works as it stands there."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from benchmarks import recipes
from tests.style.sources import ROOT
from treadle.recipes import checkpoints, cli

STATED = ROOT / "recipes" / "README.md"
PAGES = [ROOT / "README.md", STATED, *sorted((ROOT / "docs").glob("*.md"))]
CODE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in CODE.findall(page.read_text()) if kind == language]


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name
)
def test_python_runs(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "page.py"
    script.write_text("".join(blocks(page, "python")))
    runpy.run_path(str(script))
    assert capsys.readouterr().out


def test_the_readme_learns(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "page.py"
    script.write_text("".join(blocks(ROOT / "README.md", "python")))
    runpy.run_path(str(script))
    found = re.findall(r"test accuracy (0\.\d+)", capsys.readouterr().out)
    # Before it was saved, and after it was restored.
    assert len(found) == 2
    assert found[0] == found[1]
    assert float(found[0]) > 0.95


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_are_understood(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks(page, "python") + blocks(page, "toml"):
        named = re.match(r"# (\w+\.(?:py|toml))\n", block)
        if named:
            Path(named[1]).write_text(block)
    for block in blocks(page, "sh"):
        for line in block.splitlines():
            program, *arguments = shlex.split(line, comments=True)
            if not program.endswith("treadle"):
                continue
            if "--help" in arguments:
                arguments.remove("--help")
            if arguments[0] == "checkpoint":
                checkpoints.parse(arguments[1:])
                continue
            cli.parse(arguments)
            if arguments[0] == "new":
                cli.main(arguments)


def test_what_is_stated_of_recipes_can_be_run() -> None:
    found = recipes.statements(STATED)
    assert len(found) == STATED.read_text().count("| `treadle train ")
    for stated in found:
        cli.parse(stated.command)
        better = stated.value + (1 if stated.least else -1)
        assert stated.holds(better) and not stated.holds(2 * stated.value - better)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


def test_the_readme_opens_with_the_two_commands() -> None:
    first = blocks(ROOT / "README.md", "sh")[0]
    commands = [line.split("#")[0].strip() for line in first.splitlines()]
    assert commands == ["make demo", "make test"]
