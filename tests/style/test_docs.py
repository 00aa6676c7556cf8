"""The pages say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.style.sources import LIBRARY, ROOT, name

PAGES = [
    *(ROOT / folder / "README.md" for folder in ("", "core", "benchmarks")),
    *sorted((ROOT / "docs").glob("*.md")),
]


def test_the_variables_of_the_environment_are_listed() -> None:
    variable = r"TREADLE_[A-Z_]+[A-Z]"
    used = {v for path in LIBRARY for v in re.findall(variable, path.read_text())}
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert used == set(re.findall(rf"^\| `({variable})`", page, re.M))


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)#]*)", path.read_text()):
        assert (path.parent / link).exists(), link
