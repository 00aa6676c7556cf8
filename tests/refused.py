"""What a user's mistake must give: the right error, their own line, and the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from inspect import unwrap
from types import CodeType, FunctionType
from typing import Any

import pytest


def refused(
    mistake: Callable[[], Any],
    error: type[Exception],
    *parts: str,
    at: Callable[..., Any] | None = None,
) -> str:
    """The message with which a call is refused.

    Args:
      parts: what the message must say.
      at: the function in which the line lies that the message must name.
    """
    with pytest.raises(error) as caught:
        mistake()
    notes = getattr(caught.value, "__notes__", [])
    message = "\n".join([str(caught.value), *notes])
    for part in parts:
        assert part in message, f"{part!r} is missing in: {message}"
    place = re.search(r"\n +at (.*):(\d+)", message)
    assert place is not None, f"no line is named in: {message}"
    function = mistake if at is None else unwrap(at)
    assert isinstance(function, FunctionType)
    assert place[1] == function.__code__.co_filename
    assert int(place[2]) in set(_lines(function.__code__)), message
    return message


def _lines(code: CodeType) -> Iterator[int]:
    """The lines of a function and of those defined in it."""
    yield from (line for _, _, line in code.co_lines() if line is not None)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _lines(constant)
