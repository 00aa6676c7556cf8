"""docs/parity.md is what its script writes, and what it says is so."""

from __future__ import annotations

from types import ModuleType

import jax
import pytest

from tests.parity.judged import JUDGED
from tests.parity.names import PLACES, module, resolves, rows
from tests.parity.page import PAGE, page

WITHOUT_OURS = ("later", "not planned")


def test_what_is_named_exists() -> None:
    wrong = [n for n, j in JUDGED.items() if j.ours and not resolves(j.ours)]
    assert wrong == []
    assert [
        n for n, j in JUDGED.items() if bool(j.ours) == (j.verdict in WITHOUT_OURS)
    ] == []
    assert [
        n for n, j in JUDGED.items() if not j.why and j.verdict != "other name"
    ] == []


def test_no_judgement_is_of_a_name_that_is_the_same() -> None:
    """Nor of one that JAX doesn't have."""
    for place in PLACES:
        for name in JUDGED:
            outer, _, last = name.rpartition(".")
            if outer != place.theirs or "*" in last:
                continue
            found = [getattr(module(m), last, None) for m in place.ours]
            # (A folder of ours may have been imported by that name.)
            assert all(x is None or isinstance(x, ModuleType) for x in found), name


def test_nothing_is_missing() -> None:
    missing = [
        f"{p.theirs}.{r.name}"
        for p in PLACES
        for r in rows(p)
        if r.verdict == "missing"
    ]
    assert missing == []


def test_the_page_is_current() -> None:
    if f"JAX {jax.__version__}," not in PAGE.read_text():
        pytest.skip("the page is of another version of JAX")
    assert PAGE.read_text() == page(), "run `python -m tests.parity.page`"
