"""What is known of the stack of code while its instructions are read, and what is noted
of what leaves it."""

from __future__ import annotations

from typing import Any

from treadle.trace.instructions import FUNCTIONS
from treadle.trace.paths import LOCAL, RESULT, Path


class Stack:
    """The top of the stack, as a row: paths, the numbers of constants, None for other
    values.

    paths: all that were used, each with the first line where.
    whole: paths to what is used in ways of which nothing is known: of a container all
      items may be; or, if it is False, only whether there are any.
    changes: lines that may change something in place, with its path if it is known.
    on_line: paths that are used in a line.
    """

    def __init__(self) -> None:
        self.paths: dict[Path, int] = {}
        self.whole: dict[Path, bool] = {}
        self.changes: list[tuple[int, Path | None]] = []
        self.on_line: dict[int, dict[Path, None]] = {}
        self._row: list[Path | int | None] = []
        self._line = 0

    def _pop(self) -> Any:
        return self._row.pop() if self._row else None

    def _end(self) -> None:
        """What is on the stack is used in ways of which nothing is known."""
        for path in self._row:
            self._use(path)
        self._row.clear()

    def _use(self, path: Path | int | None, every: bool = True) -> None:
        """Notes what is used in a way of which nothing is known; or, if not `every`,
        what is asked whether it is empty."""
        if path is None or isinstance(path, int):
            return
        if every or path not in self.whole:
            self.whole[path] = every
        if path[-1] is RESULT:
            self.paths.setdefault(path, self._line)
        self._note(path)

    def _note(self, path: Path | int | None) -> None:
        if path is None or isinstance(path, int):
            return
        if path[-1] is RESULT:
            path = tuple(path[:-1])
        if path not in self.paths:
            self.paths[path] = self._line
        if len(path) > 2 and not is_named(path):
            return  # What may be changed on this line is what has the item.
        if path[-1] in FUNCTIONS and path[0] != LOCAL:
            self.changes.append((self._line, None))
            return
        on_line = self.on_line.get(self._line)
        if on_line is None:
            on_line = self.on_line[self._line] = {}
        on_line[path] = None


def is_named(path: Path) -> bool:
    """Whether a path has attributes only."""
    for step in path:  # noqa: SIM110 (a third of the time)
        if type(step) is not str:
            return False
    return True
