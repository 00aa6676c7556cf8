"""`check_grads` passes what is right, and refuses what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.control.both import array
from tests.refused import refused


def tree_function(p: Any, n: int) -> Any:
    return {"y": tnp.tanh(p["w"] @ p["x"]) * n, "n": n}


RIGHT: dict[str, tuple[Any, tuple]] = {
    "number": (tnp.sin, (0.5,)),
    "trees": (tree_function, ({"w": array(2, 3), "x": array(3)}, 3)),
    "jit": (td.jit(tree_function), ({"w": array(2, 3), "x": array(3)}, 3)),
    "float64": (lambda x: tnp.exp(x).sum(), (array(3).astype(float),)),
    "float16": (lambda x: x * x, (np.float16(0.5),)),
    "complex": (lambda z: z * z * abs(z), (np.complex64(1 + 2j),)),
    "complex to real": (lambda z: abs(z * z), (np.complex128(1 - 2j),)),
    "no derivative": (lambda x, n: (x.shape[0], n + 1), (array(2), 3)),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("order", [1, 2])
def test_right(name: str, order: int) -> None:
    function, args = RIGHT[name]
    td.check_grads(function, args, order)


def forward(derivative: Any) -> Any:
    f = td.custom_jvp(lambda x: {"a": x**3})
    f.defjvp(lambda xs, ts: (f(*xs), {"a": derivative(*xs, *ts)}))
    return f


def reverse(derivative: Any) -> Any:
    f = td.custom_vjp(lambda x: {"a": x**3})
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (derivative(x, ct["a"]),))
    return f


def cut(x: Any) -> Any:
    """Right at first, wrong in its derivative."""
    return 3 * x * td.stop_gradient(x)


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "jvp": (forward(lambda x, t: 2 * x * x * t), {}, "the JVP of <lambda> at ['a']"),
    "vjp": (reverse(lambda x, t: 2 * x * x * t), {"modes": ["rev"]}, "VJP of <lambda>"),
    "nan": (forward(lambda x, t: x * x * t * np.nan), {}, "it gives nan"),
    "second": (
        forward(lambda x, t: cut(x) * t),
        {"order": 2, "modes": ["fwd"]},
        "the JVP of the JVP of <lambda> at [1]['a']",
    ),
    "second of reverse": (
        reverse(lambda x, t: cut(x) * t),
        {"order": 2, "modes": ["rev"]},
        "the VJP of the VJP of <lambda>",
    ),
    "value": (forward(lambda x, t: 3 * x * x * t * 1.01), {}, "finite differences"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    function, options, part = WRONG[name]
    x = np.array([0.5, -1.5])
    refused(lambda: td.check_grads(function, (x,), **options), AssertionError, part)


def test_tolerances() -> None:
    f = forward(lambda x, t: 3 * x * x * t * 1.01)
    td.check_grads(f, (0.5,), rtol=0.02)
    td.check_grads(f, (0.5,), atol=0.1)
    td.check_grads(lambda x: x**3, (10.0,), eps=1e-2, rtol=1e-3)


def test_misuse() -> None:
    refused(lambda: td.check_grads(tnp.sin, 1.0), TypeError, "td.check_grads(f, (x,))")
    refused(
        lambda: td.check_grads(tnp.sin, (1.0,), modes=["forward"]),
        ValueError,
        'modes are "fwd" and "rev"',
    )
    refused(lambda: td.check_grads(tnp.sin, (1.0,), modes="rev"), ValueError, "tuple")
    refused(lambda: td.check_grads(tnp.sin, ("a",)), TypeError, "not an array")


LARGE = np.array([[0, 4, 8], [12, 16, 20]], np.float32)
STEEP: dict[str, Callable[[Any], Any]] = {
    "cubes": lambda x: (x**3).sum(),
    "squares": lambda x: (x**2).sum(),
    "products": lambda x: x @ x.T,
    "exponentials": lambda x: tnp.exp(x / 4),
}


@pytest.mark.parametrize("name", STEEP)
def test_rounded_differences_of_large_numbers_are_no_mistakes(name: str) -> None:
    td.check_grads(STEEP[name], (LARGE,), order=2)


@pytest.mark.parametrize("name", STEEP)
def test_a_derivative_that_is_off_is_a_mistake_at_large_numbers(
    name: str,
) -> None:
    wrong = td.custom_jvp(STEEP[name])
    wrong.defjvp(lambda xs, ts: td.jvp(STEEP[name], xs, (1.2 * ts[0],)))
    for mode in ("fwd", "rev"):
        with pytest.raises(AssertionError, match="is wrong"):
            td.check_grads(wrong, (LARGE,), modes=[mode])
