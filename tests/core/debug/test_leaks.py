"""check_leaks finds traced values that are kept, and what keeps them; no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, optim, rng
from treadle.errors import LeakError

X = np.linspace(0.5, 1.5, 6, dtype=np.float32).reshape(2, 3)

kept: list[Any] = []


class Keeper:
    last: Any = None

    def __init__(self) -> None:
        self.value: Any = None


class Slotted:
    __slots__ = ("value",)


keeper, slotted = Keeper(), Slotted()


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    kept.clear()
    keeper.value = Keeper.last = slotted.value = None


def closing() -> Callable[[Any], None]:
    found: Any = None

    def store(x: Any) -> None:
        nonlocal found
        found = {"a": x}

    return store


HOLDERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "list": (lambda x: kept.append(x), "`kept[0]`, a global of the module "),
    "nested": (lambda x: kept.append({"a": (1, x)}), "`kept[0]['a'][1]`, a global"),
    "attribute": (lambda x: setattr(keeper, "value", x), "`keeper.value`, a global"),
    "slot": (lambda x: setattr(slotted, "value", x), "`slotted.value`, a global"),
    "class": (lambda x: setattr(Keeper, "last", [x]), "`Keeper.last[0]`, of a class"),
    "closure": (
        closing(),
        "`found['a']`, a variable that closing.<locals>.store closes",
    ),
}


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
@pytest.mark.parametrize("name", HOLDERS)
def test_what_holds_it_is_named(name: str) -> None:
    store, words = HOLDERS[name]

    def f(x: Any) -> Any:
        y = x * 2
        store(y)
        return y

    with pytest.raises(LeakError) as caught, td.debug.check_leaks():
        td.jit(f)(X)
    text = str(caught.value)
    line = f.__code__.co_firstlineno + 1
    assert f"\n  f32[2,3], made at {__file__}:{line}\n    held by {words}" in text
    assert text.startswith("1 traced value outlived")


@pytest.mark.parametrize(
    "leak",
    [
        lambda: td.grad(lambda x: kept.append(x) or x)(1.0),
        lambda: td.vmap(lambda x: kept.append(x) or x)(X),
        lambda: td.scan(lambda c, x: (kept.append(x) or c, x), 0.0, X),
        lambda: td.trace(lambda x: kept.append(x) or x)(X),
        lambda: td.jit(td.grad(lambda x: kept.append(x) or x))(1.0),
    ],
    ids=["grad", "vmap", "scan", "trace", "jit of grad"],
)
def test_each_transform(leak: Callable[[], Any]) -> None:
    with pytest.raises(LeakError, match=r"`kept\[0\]`"), td.debug.check_leaks():
        leak()
    # What leaked before the block is not its concern.
    with td.debug.check_leaks():
        td.jit(lambda x: x * 2)(X)


def programs() -> Iterator[Any]:
    model = nn.Sequential(
        nn.Linear(3, 4, key=rng.key(0)), tnp.tanh, nn.Linear(4, 1, key=rng.key(1))
    )
    optimizer = optim.adam(1e-2)

    @td.jit
    def step(model: Any, state: Any, x: Any) -> Any:
        loss, g = td.value_and_grad(lambda m: tnp.sum(td.vmap(m)(x) ** 2))(model)
        updates, state = optimizer.update(g, state, model)
        return loss, updates, state

    yield step(model, optimizer.init(model), X)
    big = tnp.ones((40, 40))
    f = td.jit(lambda x: x * big)
    yield f(big)
    yield td.grad(lambda x: td.jit(lambda y: tnp.sum(y * x))(x))(tnp.ones(3))
    out, pullback = td.vjp(lambda x: tnp.sin(x) * x, tnp.ones(3))
    yield pullback(out)
    yield td.jit(lambda x: x if x > 0 else -x)(1.0)
    yield td.jit(lambda x: td.scan(lambda c, x: (c + x, c), 0.0, x))(tnp.ones(7))
    for n in (3, 4, 5):
        yield f(tnp.ones((n, 40, 40)))
    yield td.jit(td.grad(td.remat(lambda x: tnp.sum(tnp.sin(x)))))(X)
    with pytest.raises(ValueError, match="shape"):
        td.jit(lambda x: x @ tnp.ones((7, 2)))(X)


def test_programs_that_keep_nothing() -> None:
    with td.debug.check_leaks():
        for result in programs():
            td.tree.map(np.asarray, result)


def test_an_error_of_the_block_goes_before() -> None:
    with pytest.raises(ZeroDivisionError), td.debug.check_leaks():
        td.jit(lambda x: kept.append(x) or 1 / 0)(X)
