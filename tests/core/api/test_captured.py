"""Variables that a jitted function reads besides its arguments: it computes with what
they are bound to at the call."""

from __future__ import annotations

import dataclasses
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.alike import alike
from treadle.errors import SideEffectWarning
from treadle.trace.outside import is_foreign

scale: Any = 2.0


def scaled(x: Any) -> Any:
    return x * scale


class Trainer:
    rate = 0.5

    def __init__(self) -> None:
        self.power = 2
        self.weights = np.ones(3, np.float32)

    def step(self, x: Any) -> Any:
        return x**self.power * self.rate + self.weights.sum()


@pytest.mark.parametrize(
    "values",
    [
        [2.0, 3.0, 2.0, 5.0],
        [np.ones(3, np.float32), np.zeros(3, np.float32)],
        [tnp.ones(3), tnp.arange(3.0), tnp.ones(3) * 7],
        [1, 1.5, np.float32(3), True],
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_a_global_that_is_bound_anew(values: list[Any]) -> None:
    global scale
    f = td.jit(scaled)
    for value in values:
        scale = value
        for _ in range(4):
            assert np.array_equal(f(3.0), scaled(tnp.asarray(3.0)))


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_cells_defaults_and_attributes() -> None:
    bias = 1.0

    def helper(x: Any) -> Any:
        return x + bias

    def f(x: Any, factor: Any = 2.0) -> Any:
        return helper(x) * factor

    trainer = Trainer()
    jitted = [td.jit(f), td.jit(trainer.step), td.jit(lambda x: trainer.step(x))]

    def agree() -> None:
        for j in jitted:
            for _ in range(3):
                assert np.array_equal(j(3.0), j.function(tnp.asarray(3.0)))

    agree()
    bias = 4.0
    agree()
    trainer.power = 3
    agree()
    Trainer.rate = 0.25
    agree()
    trainer.weights = np.zeros(3, np.float32)
    agree()

    def helper(x: Any) -> Any:  # type: ignore[no-redef]  # noqa: F811
        return x - bias

    agree()


settings: dict[str, Any] = {"rate": 2.0, "net": {"width": 3}}


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_items_of_dicts() -> None:
    options: dict[str, Any] = {"bias": 1.0}
    holder = SimpleNamespace(items={"power": 2})

    def f(x: Any) -> Any:
        width = settings["net"]["width"]
        return x ** holder.items["power"] * settings["rate"] * width + options["bias"]

    jitted = td.jit(f)

    def agree() -> None:
        for _ in range(4):
            assert np.array_equal(jitted(3.0), f(tnp.asarray(3.0)))

    agree()
    traces = 1
    for held, key, value in (
        (settings, "rate", 4.0),
        (settings["net"], "width", 5),
        (options, "bias", np.ones(2, np.float32)),
        (holder.items, "power", 3),
        (settings, "net", {"width": 7}),
    ):
        held[key] = value
        agree()
        traces += 1
        assert jitted.report().traces == traces
    assert jitted.report().programs[-1].reason.startswith("`settings['net']")
    del options["bias"]
    with pytest.raises(KeyError, match="bias"):
        jitted(3.0)


def test_items_named_as_builtins_are_those_of_the_dict() -> None:
    options: dict[str, Any] = {"max": 1.0, "given": 2.0, "not a name": 3.0}
    f = td.jit(lambda x: x * options["max"] * options["given"] * options["not a name"])
    assert [f(1.0).item() for _ in range(3)] == [6.0] * 3
    options["max"] = 2.0
    with pytest.warns(SideEffectWarning, match=r"`options\['max'\]` was 1.0 when"):
        assert f(1.0).item() == 12.0


def test_it_is_told_once_and_reported() -> None:
    factor = 2.0
    f = td.jit(lambda x: x * factor)
    f(1.0)
    factor = 3.0
    with pytest.warns(SideEffectWarning, match=r"`factor` was 2.0 when .* is 3.0"):
        f(1.0)
    for factor in (4.0, 5.0):  # noqa: B007
        f(1.0)
    report = f.report()
    assert report.programs[-1].reason == "`factor` is 5.0, was 4.0"
    assert report.traces == 4


def test_what_is_bound_to_the_same_again_is_not_traced_again() -> None:
    factor: Any = 2.5
    f = td.jit(lambda x: x * factor)
    for _ in range(5):
        f(1.0)
        factor = float("2.5")
    assert f.report().traces == 1


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_programs_of_earlier_values_are_kept() -> None:
    training = True
    f = td.jit(lambda x: x * 2 if training else x)
    for i in range(12):
        training = i % 2 == 0
        assert f(3.0) == (6.0 if training else 3.0)
    assert f.report().traces == 2


def test_a_function_with_the_same_code_is_the_same() -> None:
    def made(n: float) -> Callable[..., Any]:
        return lambda x: x + n

    add = made(1.0)
    f = td.jit(lambda x: add(x))
    assert f(1.0) == 2.0
    add = made(1.0)
    assert f(1.0) == 2.0 and f.report().traces == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        add = made(2.0)
        assert f(1.0) == 3.0 and f.report().traces == 2


def test_what_only_a_callback_reads_is_read_when_it_runs() -> None:
    step = 0
    seen = []
    f = td.jit(lambda x: (td.debug.callback(lambda v: seen.append(step), x), x * 2)[1])
    for step in range(4):  # noqa: B007
        f(1.0)
    assert seen == [0, 1, 2, 3] and f.report().traces == 1


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_a_jitted_function_inside_of_another() -> None:
    factor = 2.0
    inner = td.jit(lambda x: x * factor)
    outer = td.jit(lambda x: inner(x) + 1)
    assert outer(1.0) == 3.0 and td.grad(inner)(1.0) == 2.0
    factor = 5.0
    assert outer(1.0) == 6.0 and td.grad(inner)(1.0) == 5.0


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_many_variables() -> None:
    space: dict[str, Any] = {f"v{i}": float(i) for i in range(60)}
    exec("def f(x): return x + " + " + ".join(space), space)
    f = td.jit(space["f"])
    for i in range(0, 60, 7):
        for _ in range(3):
            f(1.0)
        space[f"v{i}"] = 100.0 + i
        assert np.allclose(f(1.0), space["f"](1.0))


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
@pytest.mark.parametrize(
    "name", ["given", "given0", "given_by0", "__private", "max", "größe"]
)
def test_variables_of_any_name(name: str) -> None:
    space: dict[str, Any] = {name: 1.0, "other": 5.0}
    exec(f"def f(x): return x + {name} + other", space)
    f = td.jit(space["f"])
    for value in (1.0, 3.0):
        space[name] = value
        for _ in range(4):
            assert f(1.0) == 6.0 + value
    del space[name]
    with pytest.raises((NameError, TypeError)):
        f(1.0)


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_another_module_under_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    # The program that runs is the user's, not that of the tests.
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    is_foreign.cache_clear()
    around: dict[str, Any] = {"__name__": "__main__"}
    exec("def f(x): return settings.change(x)", around)
    modules = [ModuleType("settings"), ModuleType("others")]
    modules[0].change, modules[1].change = np.negative, np.square  # type: ignore
    around["settings"] = modules[0]
    f = td.jit(around["f"])
    for module in (*modules, *modules):
        around["settings"] = module
        for _ in range(4):
            x = np.float32(3)
            assert f(x) == around["f"](x)
    assert "` is the module others, was the module settings" in str(f.report())


def test_a_module_in_a_class_is_not_asked_for_what_it_may_lack() -> None:
    asked = []
    module = ModuleType("lazy")
    module.__dict__.update(double=lambda x: x * 2, __getattr__=asked.append)

    class Functions:
        name = module

        def run(self, x: Any) -> Any:
            return self.name.double(x)

    assert td.jit(Functions().run)(1.5) == 3.0
    assert asked == []


def test_variables_of_several_modules() -> None:
    inner: dict[str, Any] = {"a": 1.0, "b": 2.0, "c": 4.0}
    exec("def g(x): return x + a + b + c", inner)
    space: dict[str, Any] = {"a": 8.0, "g": inner["g"]}
    exec("def f(x): return g(x) + a", space)
    f = td.jit(space["f"])
    for _ in range(4):
        assert f(0.0) == 15.0
    for where, name, wanted in ((inner, "b", 29.0), (space, "a", 37.0)):
        where[name] += 14.0 if where is inner else 8.0
        with pytest.warns(SideEffectWarning):
            assert f(0.0) == wanted
        for _ in range(4):
            assert f(0.0) == wanted


def test_a_deleted_variable() -> None:
    space: dict[str, Any] = {"a": 1.0}
    exec("def f(x): return x + a", space)
    f = td.jit(space["f"])
    for _ in range(3):
        f(1.0)
    del space["a"]
    with pytest.raises(NameError), pytest.warns(SideEffectWarning, match="deleted"):
        f(1.0)


def test_values_of_arrays_are_not_kept_alive() -> None:
    weights: Any = tnp.ones(3)
    f = td.jit(lambda x: (x * weights).sum())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(6):
            weights = tnp.ones(3) * i
            f(1.0)
    assert not f._programs._earlier


class Settings:
    def __init__(self, rate: float) -> None:
        self.rate, self.step = rate, 0


class Slotted:
    __slots__ = ("rate",)

    def __init__(self, rate: float) -> None:
        self.rate = rate


@dataclasses.dataclass
class Fields:
    rate: float
    step: int = 0


def by_rate(x: Any, settings: Any) -> Any:
    return x * settings.rate


KINDS = [
    Settings,
    Slotted,
    Fields,
    lambda rate: SimpleNamespace(rate=rate),
    lambda rate: Namespace(rate=rate),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_attributes_of_objects_that_are_passed_on(kind: Callable[..., Any]) -> None:
    settings = kind(1.0)
    several = [settings]

    def with_default(x: Any, settings: Any = settings) -> Any:
        return x * settings.rate

    jitted = [
        td.jit(lambda x: x * settings.rate),
        td.jit(lambda x: by_rate(x, settings)),
        td.jit(lambda x: sum(by_rate(x, s) for s in several)),
        td.jit(with_default),
        td.jit(partial(by_rate, settings=settings)),
    ]
    for rate in (1.0, 2.0, 3.0):
        settings.rate = rate
        for f in jitted:
            assert f(5.0) == 5 * rate
            assert f(5.0) == 5 * rate


@pytest.mark.parametrize("kind", [Settings, Fields])
def test_attributes_that_are_not_read_may_change(kind: Callable[..., Any]) -> None:
    settings = kind(2.0)
    f = td.jit(lambda x: by_rate(x, settings))
    for _ in range(4):
        assert f(3.0) == 6.0
        settings.step += 1
    assert f.report().traces == 1


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_the_sign_of_zero_counts() -> None:
    zero = 0.0
    f = td.jit(lambda x: x / tnp.asarray(zero))
    assert f(1.0) == np.inf
    zero = -0.0
    assert f(1.0) == -np.inf
    zero = float("nan")
    f(1.0)
    zero = -float("nan")
    f(1.0)
    assert f.report().traces == 3


def test_a_library_function_by_a_name_of_the_users() -> None:
    settings = SimpleNamespace(act=tnp.tanh)
    activation: Callable[..., Any] = tnp.tanh
    jitted = [
        td.jit(lambda x: activation(x)),
        td.jit(lambda x: settings.act(x)),
    ]
    for activation in (tnp.tanh, tnp.sin, tnp.tanh):
        settings.act = activation
        for f in jitted:
            assert np.allclose(f(0.5), activation(0.5))
            assert f.report().traces <= 2


def test_functions_that_do_the_same_are_alike() -> None:
    """The same that lets a model built again be the one that it was."""

    def recursive(k: Any) -> Any:
        def count(n: int) -> Any:
            return count(n - 1) + k if n else k

        return count

    assert alike(recursive(2.0), recursive(2.0))
    assert not alike(recursive(2.0), recursive(-2.0))
    assert not alike(recursive(0.0), recursive(-0.0))
    assert alike(partial(recursive, float("nan")), partial(recursive, float("nan")))
    assert alike((np.float32(1), "a"), (np.float32(1), "a"))
    assert not alike(np.float32(1), np.float64(1))
    first, second = [1.0], [1.0]
    assert not alike(recursive(first), recursive(second))
