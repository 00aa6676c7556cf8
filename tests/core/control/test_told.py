"""Values of which errors tell that a compiled program raises.

PYTEST_DONT_REWRITE: an assert that pytest has rewritten writes its message earlier.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp

pytestmark = pytest.mark.filterwarnings("error")


class Bad(Exception):
    def __init__(self, value: Any, *, name: str) -> None:
        super().__init__(f"{name} is {value:.1f}")
        self.value = value


def said(x: Any) -> str:
    return f"about {x:.1f}"


def argument(x: Any) -> None:
    raise ValueError("bad", x, {"twice": x * 2})


def formatted(x: Any) -> None:
    raise ValueError(f"{x} {x!r} {x * 2:.3f} {x:6.1f}")


def asserted(x: Any) -> None:
    assert x < 0, f"{x=}"


def of_class(x: Any) -> None:
    raise Bad(x, name="it") from KeyError("cause")


def by_another(x: Any) -> None:
    raise KeyError(said(x + 1))


def named(x: Any) -> None:
    text = f"{x} and {x * 2:.2f}"
    more = "so {:.1f}".format(x)  # noqa: UP032
    raise ValueError(text, more)


WAYS: list[Callable[[Any], None]] = [
    argument,
    formatted,
    asserted,
    of_class,
    by_another,
    named,
]


def expected(fail: Callable[[Any], None], x: Any) -> Exception:
    try:
        fail(tnp.asarray(x))
    except Exception as error:
        return error
    raise AssertionError


@pytest.mark.parametrize("fail", WAYS)
@pytest.mark.parametrize("how", ["jit", "loop", "grad", "vmap"])
def test_values_are_those_of_the_run(fail: Callable[[Any], None], how: str) -> None:
    def f(x: Any) -> Any:
        if x > 2:
            fail(x)
        return x * 3

    def looped(x: Any) -> Any:
        while x < 40:
            if x > 4:
                fail(x)
            x = x * x
        return x

    whole = {
        "jit": td.jit(f),
        "loop": td.jit(looped),
        "grad": td.jit(td.grad(f)),
        "vmap": lambda x: td.vmap(f)(tnp.stack([x * 0, x, x + 1])),
    }[how]
    if how != "loop":
        whole(tnp.array(np.float32(-3)))
    for x in np.float32([5.25, 7.5]):
        error = expected(fail, x)
        with pytest.raises(type(error)) as found:
            whole(tnp.array(x))
        assert str(found.value) == str(error)
        assert repr(found.value.__cause__) == repr(error.__cause__)
        if isinstance(error, Bad):
            assert found.value.value == x  # type: ignore[attr-defined]


def test_what_is_no_message_is_an_error_as_ever() -> None:
    @td.jit
    def f(x: Any) -> Any:
        text = f"{x:.2f}"
        if x > 2:
            raise ValueError(text)
        return x

    with pytest.raises(td.errors.TracerError, match=re.escape("td.debug.print")):
        f(1.0)


def test_percent_says_what_to_write() -> None:
    @td.jit
    def f(x: Any) -> Any:
        if x > 2:
            raise ValueError("%.2f" % x)  # noqa: UP031
        return x

    with pytest.raises(td.errors.TracerError, match=re.escape('write `f"{x:.2f}"`')):
        f(1.0)


def test_a_text_that_is_cut_says_what_it_is_of() -> None:
    @td.jit
    def f(x: Any) -> Any:
        if x > 2:
            raise ValueError(f"{x}"[:4])
        return x

    with pytest.raises(ValueError, match="<f32"):
        f(3.0)
