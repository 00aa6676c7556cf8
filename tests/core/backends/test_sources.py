"""The hash of the library's source: it changes with whatever is compiled by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle.backends import sources


def digest() -> bytes:
    sources._digest.cache_clear()
    return sources.source_digest("", "ops")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sources, "_ROOT", str(tmp_path))
    for name in ("compile.py", "ops/unary.py", "ops/deep/sort.py", "api/jit.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")
    yield tmp_path
    sources._digest.cache_clear()


@pytest.mark.parametrize(
    "name", ["compile.py", "ops/unary.py", "ops/deep/sort.py", "late.py", "ops/new.py"]
)
def test_an_edited_or_new_file_changes_it(root: Path, name: str) -> None:
    before = digest()
    assert digest() == before
    (root / name).write_text("# edited")
    assert digest() != before


def test_a_renamed_or_moved_file_changes_it(root: Path) -> None:
    found = {digest()}
    for old, new in (("ops/unary.py", "ops/other.py"), ("ops/other.py", "other.py")):
        (root / old).rename(root / new)
        found.add(digest())
    # The end of one file is not the beginning of the next.
    content = (root / "compile.py").read_text() + (root / "other.py").read_text()
    (root / "compile.py").write_text(content)
    (root / "other.py").write_text("")
    found.add(digest())
    assert len(found) == 4


def test_other_folders_and_compiled_files_do_not(root: Path) -> None:
    before = digest()
    (root / "api" / "jit.py").write_text("# edited")
    (root / "ops" / "__pycache__").mkdir()
    (root / "ops" / "__pycache__" / "unary.py").write_text("")
    (root / "ops" / "unary.pyc").write_text("")
    assert digest() == before
