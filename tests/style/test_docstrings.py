"""The examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import numpy as np
import pytest

from tests.style.sources import LIBRARY, module, name

WITH_EXAMPLES = [path for path in LIBRARY if ">>> " in path.read_text()]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.usefixtures("only_new_objects", "no_primitives_left")
@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=name)
def test_examples(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with np.printoptions(precision=4, suppress=True):
        result = doctest.testmod(
            importlib.import_module(module(path)), optionflags=FLAGS
        )
    assert result.attempted, "`>>>` outside a docstring?"
    assert not result.failed, f"{result.failed} failed: see the output above"
