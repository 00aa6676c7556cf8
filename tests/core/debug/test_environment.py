"""print_environment_info has what a report needs."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

import treadle as td


def test_it_names_versions_and_settings(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("TREADLE_LOG_COMPILES", "0")
    text = td.print_environment_info(return_string=True)
    assert text is not None
    rows = dict(line.split(maxsplit=1) for line in text.split("\n"))
    assert rows["numpy"] == np.__version__
    assert platform.python_version() in rows["python"]
    assert rows["TREADLE_LOG_COMPILES"] == "'0'"
    assert {"treadle", "llvmlite", "device", "CPU", "threads", "cache"} <= rows.keys()
    assert capsys.readouterr().out == ""
    assert td.print_environment_info() is None
    assert capsys.readouterr().out == text + "\n"
