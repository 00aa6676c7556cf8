"""Examples in docstrings are shown as Python sessions, wherever in them they stand."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

SESSION = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)


class Sessions(Extension):
    """Fences what begins with `>>>`, up to the next empty line."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = SESSION.sub(_fenced, obj.docstring.value)


def _fenced(match: re.Match[str]) -> str:
    indent = match["indent"]
    return f"{indent}```pycon\n{match[0]}\n{indent}```"
