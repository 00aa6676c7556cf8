"""check_leaks finds traced values that are kept, and what keeps them; no others."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, optim, rng
from treadle.errors import LeakError

X = np.linspace(0.5, 1.5, 6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def places(only_new_objects: None) -> ModuleType:
    """A new module that keeps values, as the search finds no holders from before."""
    path = Path(__file__).with_name("places.py")
    spec = importlib.util.spec_from_file_location("places", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOLDERS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "list": (lambda p, x: p.kept.append(x), "`kept[0]`, a global of the module "),
    "nested": (
        lambda p, x: p.kept.append({"a": (1, x)}),
        "`kept[0]['a'][1]`, a global",
    ),
    "attribute": (
        lambda p, x: setattr(p.keeper, "value", x),
        "`keeper.value`, a global",
    ),
    "slot": (lambda p, x: setattr(p.slotted, "value", x), "`slotted.value`, a global"),
    "class": (
        lambda p, x: setattr(p.Keeper, "last", [x]),
        "`Keeper.last[0]`, of a class",
    ),
    "closure": (
        lambda p, x: p.store(x),
        "`found['a']`, a variable that closing.<locals>.store closes",
    ),
}


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
@pytest.mark.parametrize("name", HOLDERS)
def test_what_holds_it_is_named(name: str, places: ModuleType) -> None:
    store, words = HOLDERS[name]

    def f(x: Any) -> Any:
        y = x * 2
        store(places, y)
        return y

    with pytest.raises(LeakError) as caught, td.debug.check_leaks():
        td.jit(f)(X)
    text = str(caught.value)
    line = f.__code__.co_firstlineno + 1
    assert f"\n  f32[2,3], made at {__file__}:{line}\n    held by {words}" in text
    assert text.startswith("1 traced value outlived")


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
@pytest.mark.parametrize(
    "leak",
    [
        lambda kept: td.grad(lambda x: kept.append(x) or x)(1.0),
        lambda kept: td.vmap(lambda x: kept.append(x) or x)(X),
        lambda kept: td.scan(lambda c, x: (kept.append(x) or c, x), 0.0, X),
        lambda kept: td.trace(lambda x: kept.append(x) or x)(X),
        lambda kept: td.jit(td.grad(lambda x: kept.append(x) or x))(1.0),
    ],
    ids=["grad", "vmap", "scan", "trace", "jit of grad"],
)
def test_each_transform(leak: Callable[[list[Any]], Any], places: ModuleType) -> None:
    with pytest.raises(LeakError, match=r"`kept\[0\]`"), td.debug.check_leaks():
        leak(places.kept)
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


@pytest.mark.usefixtures("only_new_objects")
def test_programs_that_keep_nothing() -> None:
    with td.debug.check_leaks():
        for result in programs():
            td.tree.map(np.asarray, result)


def test_an_error_of_the_block_goes_before(places: ModuleType) -> None:
    with pytest.raises(ZeroDivisionError), td.debug.check_leaks():
        td.jit(lambda x: places.kept.append(x) or 1 / 0)(X)
