"""The pages say what the code says."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tests.style.sources import LIBRARY, ROOT, name

PAGES = [
    *(ROOT / folder / "README.md" for folder in ("", "core", "benchmarks")),
    *sorted((ROOT / "docs").glob("*.md")),
]
# As pages call the modules whose names they mention.
SHORT = {"td": "treadle", "tnp": "treadle.numpy"} | {
    name: f"treadle.{name}"
    for name in (
        *("nn", "optim", "rng", "tree", "checkpoint", "weights", "data"),
        *("metrics", "models", "recipes"),
    )
}
NAME = re.compile(rf"(?<![\w./-])(?:{'|'.join(SHORT)})(?:\.[A-Za-z_]\w*)+")
FILES = (".jsonl", ".py")


def test_the_variables_of_the_environment_are_listed() -> None:
    variable = r"TREADLE_[A-Z_]+[A-Z]"
    used = {v for path in LIBRARY for v in re.findall(variable, path.read_text())}
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert used == set(re.findall(rf"^\| `({variable})`", page, re.M))


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)#]*)", path.read_text()):
        assert (path.parent / link).exists(), link


def exists(dotted: str) -> bool:
    """Whether there is what a page calls so."""
    short, *parts = dotted.split(".")
    found, path = importlib.import_module(SHORT[short]), SHORT[short]
    for part in parts:
        path += f".{part}"
        if not hasattr(found, part):
            try:
                importlib.import_module(path)
            except ImportError:
                return False
        found = getattr(found, part)
    return True


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_names_exist(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S)
    code = " ".join(re.findall(r"`([^`]+)`", text))
    named = {n for n in NAME.findall(code) if not n.endswith(FILES)}
    assert [n for n in sorted(named) if not exists(n)] == []


ANCHOR = re.compile(r"\]\((?!https?:)([^)#]*)#([^)]+)\)")


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_anchors_lead_somewhere(path: Path) -> None:
    for link, anchor in ANCHOR.findall(path.read_text()):
        page = path.parent / link if link else path
        titles = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
        assert anchor in map(slug, titles), f"{link}#{anchor}"


def slug(title: str) -> str:
    """The anchor of a heading, as GitHub and mkdocs make it."""
    return re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-")


def test_the_readme_has_the_speeds_of_the_benchmarks() -> None:
    measured = speeds(ROOT / "benchmarks" / "README.md")
    stated = speeds(ROOT / "README.md")
    assert len(stated) >= 5
    for workload, numbers in stated.items():
        assert [n for n in numbers if n not in measured[workload]] == []


def speeds(page: Path) -> dict[str, list[str]]:
    """The first table that begins with workloads and what their steps take."""
    found = re.search(
        r"^\|.*[Tt]readle.*[Jj][Aa][Xx].*\n\|[- |]+\n((?:\|.*\n)+)",
        page.read_text(),
        re.M,
    )
    assert found
    rows = [[c.strip() for c in r.split("|")[1:-1]] for r in found[1].splitlines()]
    return {workload: numbers for workload, *numbers in rows}
