"""Traced values used where they can't be: the error names the line and the remedy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.errors import LeakError, TracerError

ONE = np.ones(2, "float32")

TRANSFORMS = {
    "jit": lambda f: td.jit(f)(ONE),
    "grad": lambda f: td.grad(lambda x: f(x).sum())(ONE),
    "jvp": lambda f: td.jvp(f, (ONE,), (ONE,)),
    "vmap": lambda f: td.vmap(f)(ONE),
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_leaked_values_are_found(name: str) -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        kept.append(x * 2.0)
        return x * 1.0

    TRANSFORMS[name](f)
    with pytest.raises(LeakError, match=r"(?s)leaked.*Return it"):
        kept[0] + 1.0
    with pytest.raises(LeakError):
        td.jit(lambda x: x + kept[0])(ONE)


CONCRETE = {
    "int": (lambda x: x * int(x[0]), "static"),
    "float": (lambda x: x * float(x[0]), "float()"),
    "range": (lambda x: range(x.astype("int32")[0]), "static"),
    "numpy": (lambda x: np.asarray(x), "treadle.numpy"),
    "item": (lambda x: x.item(), "item"),
    "tolist": (lambda x: x.tolist(), "tolist"),
}


@pytest.mark.parametrize("name", CONCRETE)
def test_needing_a_value_names_the_line_and_the_remedy(name: str) -> None:
    function, remedy = CONCRETE[name]
    with pytest.raises(TracerError) as raised:
        td.jit(function)(ONE)
    assert remedy in str(raised.value)
    assert "test_leaks.py:" in str(raised.value)


def test_unhashable() -> None:
    with pytest.raises(TypeError, match="not hashable"):
        hash(tnp.ones(2))


@pytest.mark.parametrize("transform", [td.jit, td.grad, td.vmap])
@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_tracers_are_arrays(transform):
    seen = []

    def f(x):
        seen.append((isinstance(x, td.Array), td.is_traced(x)))
        return x

    transform(f)(tnp.ones(2) if transform is td.vmap else 1.0)
    assert seen == [(True, True)]
    x = tnp.ones(2)
    assert (isinstance(x, td.Array), td.is_traced(x)) == (True, False)
    assert not isinstance(np.ones(2), td.Array) and not isinstance(1.0, td.Array)
