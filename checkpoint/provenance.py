"""What wrote a checkpoint: versions, the program, its commit."""

from __future__ import annotations

import contextlib
import platform
import sys
from functools import lru_cache
from pathlib import Path

import treadle


@lru_cache(maxsize=1)
def of_this_process() -> dict[str, str]:
    """The versions of Treadle and Python; the program, and the commit of the Git
    repository that it is in, where there are such.

    >>> sorted(of_this_process())[-2:]
    ['python', 'treadle']
    """
    found = {"treadle": treadle.__version__, "python": platform.python_version()}
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    if program:
        path = Path(program).resolve()
        found["program"] = path.name
        with contextlib.suppress(OSError):
            if commit := _commit(path.parent):
                found["commit"] = commit
    return found


def _commit(folder: Path) -> str:
    """What is checked out in the repository that a folder is in; "" if in none."""
    for above in (folder, *folder.parents):
        git = above / ".git"
        if git.is_file():  # A worktree, or a submodule.
            git = above / git.read_text().removeprefix("gitdir: ").strip()
        if (git / "HEAD").is_file():
            return _head(git)
    return ""


def _head(git: Path) -> str:
    head = (git / "HEAD").read_text().strip()
    if not head.startswith("ref: "):
        return head
    reference = head.removeprefix("ref: ")
    common = git / "commondir"
    places = [git, *([git / common.read_text().strip()] if common.is_file() else [])]
    for place in places:
        if (place / reference).is_file():
            return (place / reference).read_text().strip()
        packed = place / "packed-refs"
        for line in packed.read_text().splitlines() if packed.is_file() else ():
            if line.endswith(f" {reference}"):
                return line.split()[0]
    return ""
