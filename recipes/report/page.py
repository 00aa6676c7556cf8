"""A report as one file for the browser: it asks for no other, and for no network."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from treadle.recipes.report.parts import Pairs, Part, Picture, Report, Table, Text

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<header><h1>{title}</h1><span id="status" class="{state}">{status}</span></header>
<noscript>The curves are drawn by a script.</noscript>
<div id="charts"></div>
<div id="tables">{tables}</div>
<script id="data" type="application/json">{data}</script>
<script>
{script}</script>
</body>
</html>
"""


def page(report: Report) -> str:
    """The whole page."""
    data = content(report)
    # The tables stand in the page already; a script reads them only when they change.
    inline = json.dumps({**data, "tables": None}, allow_nan=False)
    return _PAGE.format(
        title=escape(report.title),
        style=_beside("page.css"),
        state=escape(report.state),
        status=escape(report.status),
        tables=data["tables"],
        # Within a script nothing else ends it, or begins a comment.
        data=inline.replace("<", "\\u003c"),
        script=_beside("page.js"),
    )


def content(report: Report) -> dict[str, Any]:
    """What changes of a page while a run goes on."""
    return {
        "version": report.version,
        "title": report.title,
        "state": report.state,
        "status": report.status,
        "charts": [chart.content() for chart in report.charts],
        "tables": "".join(map(_part, report.parts)),
    }


@cache
def _beside(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _part(part: Part) -> str:
    heading = f"<h2>{escape(part.title)}</h2>"
    match part:
        case Pairs():
            kind, inside = "narrow", _pairs(part)
        case Table():
            kind, inside = "", _table(part)
        case Text():
            kind, inside = part.kind, f"<pre>{escape(part.text)}</pre>"
        case Picture():
            coded = base64.b64encode(part.png).decode()
            kind, inside = "", f'<img alt="" src="data:image/png;base64,{coded}">'
    return f'<section class="card {kind}">{heading}{inside}</section>'


def _pairs(part: Pairs) -> str:
    rows = []
    for name, value, remark in part.entries:
        mark = ' class="marked"' if remark else ""
        said = f"<small>{escape(remark)}</small>" if remark else ""
        rows.append(
            f"<tr{mark}><th>{escape(name)}</th><td>{escape(value)}{said}</td></tr>"
        )
    return f'<table class="pairs"><tbody>{"".join(rows)}</tbody></table>'


def _table(part: Table) -> str:
    head = _cells("th", part.head, part)
    rows = "".join(f"<tr>{_cells('td', row, part)}</tr>" for row in part.rows)
    note = f'<p class="note">{escape(part.note)}</p>' if part.note else ""
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{note}"
    )


def _cells(kind: str, row: Iterable[str], part: Table) -> str:
    cells = []
    for n, text in enumerate(row):
        words = ["number"] * (n in part.numbers)
        words += ["code"] * (n in part.code and kind == "td")
        cells.append(f'<{kind} class="{" ".join(words)}">{escape(text)}</{kind}>')
    return "".join(cells)
