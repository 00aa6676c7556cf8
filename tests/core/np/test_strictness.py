"""Promotion can be made an error, as JAX can do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp

ROW, MATRIX = np.ones(3, np.float32), np.ones((3, 3), np.float32)
WHOLE = np.arange(3, dtype=np.int32)

PROGRAMS: list[Callable[[Any, Any], Any]] = [
    lambda np_, a: a(MATRIX) + a(ROW),
    lambda np_, a: a(MATRIX) + 2.0,
    lambda np_, a: a(MATRIX) * a(ROW)[None],
    lambda np_, a: a(MATRIX) + a(ROW)[0],
    lambda np_, a: np_.where(a(MATRIX) > 0, a(MATRIX), 0.0),
    lambda np_, a: np_.maximum(a(ROW), a(MATRIX)),
    lambda np_, a: a(ROW) + a(WHOLE),
    lambda np_, a: a(WHOLE) + 1,
    lambda np_, a: a(ROW) + 1,
    lambda np_, a: a(ROW) * a(ROW).astype("float16"),
    lambda np_, a: a(ROW) + a(WHOLE).astype("float32"),
]


def outcome(run: Callable[[], Any]) -> str:
    try:
        run()
    except (ValueError, TypeError, jax.errors.JAXTypeError) as error:
        return "raises" if "promot" in str(error) or "differ" in str(error) else "other"
    return "runs"


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("wrap", [lambda td_, f: f, lambda td_, f: td_.jit(f)])
@pytest.mark.parametrize(
    ("setting", "mode"),
    [("numpy_rank_promotion", "raise"), ("numpy_dtype_promotion", "strict")],
)
def test_what_raises_in_jax_raises(
    program: Any, wrap: Callable[..., Any], setting: str, mode: str
) -> None:
    with getattr(td, setting)(mode):
        ours = outcome(wrap(td, lambda: program(tnp, tnp.asarray)))
    with getattr(jax, setting)(mode):
        theirs = outcome(wrap(jax, lambda: program(jnp, jnp.asarray)))
    assert ours == theirs
    assert outcome(lambda: program(tnp, tnp.asarray)) == "runs"


def test_ranks_warn() -> None:
    with (
        td.numpy_rank_promotion("warn"),
        pytest.warns(UserWarning, match=r"add of shapes \(3, 3\) and \(3,\)") as told,
    ):
        found = tnp.asarray(MATRIX) + ROW
    np.testing.assert_array_equal(found, MATRIX + ROW)
    assert told[0].filename == __file__


def test_wrong_modes() -> None:
    with pytest.raises(ValueError, match="'warn' or 'raise', got 'error'"):
        td.numpy_rank_promotion("error").__enter__()
    with pytest.raises(ValueError, match="'standard' or 'strict', got 'off'"):
        td.numpy_dtype_promotion("off").__enter__()
