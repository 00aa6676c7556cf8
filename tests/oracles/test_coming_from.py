"""The programs of other libraries that stand beside ours in the pages for who comes
from there: they run, and learn what ours learn."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from tests.style.sources import ROOT

PEERS = ("pytorch", "jax", "flax", "keras")


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("language", ["py", "python"])
@pytest.mark.parametrize("peer", PEERS)
def test_it_learns(
    peer: str, language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (peer, language) == ("keras", "py"):
        monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / f"from-{peer}.md").read_text()
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", page, re.M | re.S)
    script = tmp_path / "program.py"
    script.write_text("".join(blocks))
    assert float(runpy.run_path(str(script))["accuracy"]) > 0.95
