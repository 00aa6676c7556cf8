"""Tests against what `make oracles` installs: PyTorch, Flax, Equinox, transformers.

They are left out of `make test`, and never skipped: without the oracles they fail.
"""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Where the oracles are not asked for, they may not be installed."""
    asked = config.getoption("markexpr")
    return None if "oracle" in asked and "not oracle" not in asked else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.oracle)
