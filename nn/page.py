"""How models look in a notebook: a tree that folds, of plain HTML."""

from __future__ import annotations

from html import escape
from typing import Any

from treadle.nn.show import count, rows, size_text, text_of

_STYLE = "margin-left:1.2em;font-family:monospace"


def page(name: str, value: Any, fields: dict[str, Any]) -> str:
    """A module with its fields, opened."""
    return f'<div style="{_STYLE}">{_folded(name, value, fields, " open")}</div>'


def _folded(label: str, value: Any, fields: dict[str, Any], is_open: str = "") -> str:
    inside = "".join(_entry(f"{name}=", v) for name, v in fields.items())
    size = size_text(sum(row.bytes for row in rows(value)))
    return (
        f"<details{is_open}><summary>{escape(label)} "
        f"<small>{count(value):,} parameters, {size}</small></summary>"
        f'<div style="{_STYLE}">{inside}</div></details>'
    )


def _entry(label: str, value: Any) -> str:
    name = type(value).__name__
    if hasattr(value, "_shown"):
        return _folded(label + name, value, value._shown())
    if isinstance(value, dict) and _holds_modules(value.values()):
        return _folded(label + name, value, {repr(k): v for k, v in value.items()})
    if isinstance(value, list | tuple) and _holds_modules(value):
        return _folded(label + name, value, {f"[{i}]": v for i, v in enumerate(value)})
    return f"<div>{escape(label + text_of(value))}</div>"


def _holds_modules(values: Any) -> bool:
    return any(
        hasattr(x, "_shown") or isinstance(x, list | tuple | dict) for x in values
    )
