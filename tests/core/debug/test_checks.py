"""error_if: raises where the program comes by and the condition holds, nowhere else."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.backends import plans
from treadle.backends.devices import TARGETS
from treadle.compile import executable_of
from treadle.errors import CheckError, TracerError
from treadle.ir.digest import digest

X = np.array([4.0, 1.0, 9.0], np.float32)
BAD = np.array([4.0, -1.0, -9.0], np.float32)


def root(x: Any) -> Any:
    return tnp.sqrt(td.debug.error_if(x, x < 0, "it is negative"))


def total(x: Any) -> Any:
    return tnp.sum(root(x))


def positive(x: Any) -> Any:
    """The root, where there is one."""
    return td.cond(x >= 0, root, lambda x: 0.0 * x, x)


def counted(x: Any) -> Any:
    """Goes on while x is positive."""
    return td.while_loop(lambda x: x > 0, lambda x: root(x) - 3.0, x)


WAYS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "eager": lambda f: f,
    "jit": td.jit,
    "vmap": td.vmap,
    "jit of vmap": lambda f: td.jit(td.vmap(f)),
    "vmap of jit": lambda f: td.vmap(td.jit(f)),
    "grad": lambda f: td.grad(lambda x: tnp.sum(f(x))),
    "jit of grad": lambda f: td.jit(td.grad(lambda x: tnp.sum(f(x)))),
    "grad of jit": lambda f: td.grad(td.jit(lambda x: tnp.sum(f(x)))),
    "remat": lambda f: td.jit(td.grad(td.remat(lambda x: tnp.sum(f(x))))),
    "jvp": lambda f: lambda x: td.jvp(f, (x,), (x,)),
    "scan": lambda f: td.jit(lambda x: td.scan(lambda c, r: (c, f(r)), 0.0, x)[1]),
    "grad of scan": lambda f: td.jit(
        td.grad(lambda x: td.scan(lambda c, r: (c + f(r).sum(), None), 0.0, x)[0])
    ),
    "map": lambda f: lambda x: td.map(f, x),
    "fori_loop": lambda f: td.jit(
        lambda x: td.fori_loop(0, 3, lambda i, s: s + f(x[i]), tnp.zeros(()))
    ),
    "jit in jit": lambda f: td.jit(lambda x: td.jit(f)(x)),
    "twice mapped": lambda f: td.jit(lambda x: td.vmap(td.vmap(f))(x[None, :])),
}


@pytest.mark.parametrize("way", WAYS)
def test_it_raises_if_the_condition_holds_and_only_then(way: str) -> None:
    f = WAYS[way](root)
    plain = WAYS[way](tnp.sqrt)
    for got, wanted in zip(td.tree.leaves(f(X)), td.tree.leaves(plain(X)), strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))
    for _ in range(3):
        with pytest.raises(CheckError, match="it is negative") as caught:
            f(BAD)
    assert isinstance(caught.value, RuntimeError)
    text = str(caught.value)
    line = root.__code__.co_firstlineno + 1
    assert f"\n  at {__file__}:{line}" in text
    assert "-1." in text
    f(X)


SCALAR: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "eager": lambda f: lambda x: [f(v) for v in x],
    "jit": lambda f: lambda x: [td.jit(f)(v) for v in x],
    "vmap": td.vmap,
    "jit of vmap": lambda f: td.jit(td.vmap(f)),
    "scan": WAYS["scan"],
    "grad of vmap": lambda f: td.jit(
        td.grad(lambda x: td.vmap(f)(x).sum()),
    ),
}


@pytest.mark.parametrize("way", SCALAR)
def test_a_branch_that_is_not_taken_does_not_raise(way: str) -> None:
    SCALAR[way](positive)(BAD)


@pytest.mark.parametrize("way", [w for w in SCALAR if "grad" not in w])
def test_a_loop_that_has_ended_does_not_raise(way: str) -> None:
    SCALAR[way](counted)(X)
    SCALAR[way](counted)(BAD)


def test_every_example_that_fails_is_told_apart() -> None:
    f = td.jit(
        td.vmap(
            td.vmap(lambda a, b: td.debug.error_if((a, b), a > b, "m")[0]),
            in_axes=(0, None),
        )
    )
    a = np.zeros((2, 3), np.float32)
    b = np.arange(3, dtype=np.float32) + 1
    f(a, b)
    a[1, 2] = 7
    with pytest.raises(CheckError) as caught:
        f(a, b)
    assert str(caught.value).split("\n")[2:] == [
        "  in example 1, 2 of vmap",
        "  x[0]: f32[]: 7.",
        "  x[1]: f32[]: 3.",
    ]


def test_the_elements_that_fail_are_named() -> None:
    x = np.ones((2, 3), np.float32)
    x[1, 0] = -2
    with pytest.raises(CheckError) as caught:
        td.jit(root)(x)
    text = str(caught.value)
    assert "fails for 1 of 6 elements, the first at [1, 0]" in text
    assert "x: f32[2,3], -2.0 there: [[ 1., 1., 1.], [-2., 1., 1.]]" in text


def test_the_layer_is_named() -> None:
    class Layer(nn.Module):
        linear: nn.Linear

        def __call__(self, x: Any) -> Any:
            y = self.linear(x)
            return td.debug.error_if(y, tnp.isnan(y), "NaN")

    class Model(nn.Module):
        layers: list[Layer]

        def __call__(self, x: Any) -> Any:
            return td.scan(lambda c, _: (self.layers[1](c), None), x, None, length=2)[0]

    model = Model([Layer(nn.Linear(3, 3, key=k)) for k in rng.split(rng.key(0), 2)])
    with pytest.raises(CheckError, match=r"py:\d+, in layers\[1\]\n"):
        td.jit(lambda m, x: m(x))(model, np.full(3, np.nan, np.float32))
    outer = td.named_scope("outer")(td.jit(lambda m, x: m(x)))
    with pytest.raises(CheckError, match=r"py:\d+, in outer\.layers\[1\]\n"):
        td.jit(outer)(model, np.full(3, np.nan, np.float32))


def test_the_result_need_not_be_used() -> None:
    @td.jit
    def f(x: Any) -> Any:
        td.debug.error_if(x, tnp.any(x < 0), "bad")
        return x + 1

    f(X)
    with pytest.raises(CheckError):
        f(BAD)


def test_a_condition_that_is_known() -> None:
    f = td.jit(lambda x, bad: td.debug.error_if(x, bad, "known"), static="bad")
    assert not td.trace(lambda x: td.debug.error_if(x, False, "m"))(X).equations
    f(X, False)
    with pytest.raises(CheckError, match="known"):
        f(X, True)


def test_python_runs_only_where_it_fails() -> None:
    graph = td.trace(total)(X)
    plan = executable_of(graph).plan
    outside = [type(step).__name__ for step in plan.steps]
    assert "HostStep" not in outside
    (branch,) = [s for s in plan.steps if type(s).__name__ == "Branch"]
    assert [len(steps) for steps in branch.branches] == [0, 1]


def test_plans_are_kept_with_the_names_that_errors_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plans, "WORTH_STORING", 1)

    def f(x: Any, name: str) -> Any:
        with td.named_scope(name):
            x = td.scan(lambda c, _: (root(c), None), x, None, length=2)[0]
        return tnp.sin(x)

    target = TARGETS["cpu"]
    a, b = [td.trace(lambda x, n=n: f(x, n))(X) for n in "ab"]
    again = td.trace(lambda x: f(x, "a"))(X)
    assert plans.key_of(a, target, ())
    assert digest(a) == digest(again) != digest(b)
    for graph in (a, b, again):
        with pytest.raises(CheckError, match=r"py:\d+, in [ab]\n") as caught:
            executable_of(graph)([BAD])
        name = "b" if graph is b else "a"
        assert re.search(rf", in {name}\n", str(caught.value))


def test_checkify() -> None:
    f = td.debug.checkify(td.jit(root))
    error, out = f(X)
    assert error is None
    np.testing.assert_array_equal(np.asarray(out), np.sqrt(X))
    error, out = f(BAD)
    assert isinstance(error, CheckError)
    assert out is None
    with pytest.raises(ZeroDivisionError):
        td.debug.checkify(lambda x: 1 // 0)(X)
    with pytest.raises(TracerError, match="inside of a transform"):
        td.jit(td.debug.checkify(root))(X)


@pytest.mark.parametrize("pred", [1.0, np.ones(3), "x"])
def test_the_condition_must_be_of_bools(pred: Any) -> None:
    with pytest.raises(TypeError, match=r"\n  at .*test_checks\.py"):
        td.debug.error_if(X, pred, "m")


def test_the_message_must_be_text() -> None:
    with pytest.raises(TypeError, match="must be text"):
        td.debug.error_if(X, True, X)  # type: ignore[arg-type]
