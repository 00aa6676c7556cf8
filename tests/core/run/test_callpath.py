"""Native paths of calls: the same results and errors as without, nothing leaked."""

from __future__ import annotations

import sys
import sysconfig
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.run.call_trees import (
    HELD,
    TREES,
    Layer,
    Pair,
    Record,
    array,
    known,
    made,
    model,
    same,
    twice,
)
from treadle import rng, tree
from treadle.api.jit import MOST_PATHS, Jitted
from treadle.backends.cpu.run import callpath
from treadle.errors import DonatedError
from treadle.run.execute import Executable

GLOBAL_LOCK = not sysconfig.get_config_var("Py_GIL_DISABLED")


@pytest.fixture(params=["native", "python"])
def native(request: Any, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param == "python":
        monkeypatch.setattr(callpath, "available", lambda: False)
    return request.param == "native"


@pytest.fixture
def no_slow_calls(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forbids every other way than a path, from when it is called on."""

    def slow(*args: Any) -> Any:
        raise AssertionError("this call took no path")

    return lambda: monkeypatch.setattr(Jitted, "_call", slow)


def test_native_paths_work_here() -> None:
    cpython = sys.implementation.name == "cpython"
    assert callpath.available() == (cpython and GLOBAL_LOCK)


@pytest.mark.parametrize("name", TREES)
def test_trees_go_in_and_out(name: str, native: bool) -> None:
    f = td.jit(twice)
    for _ in range(4):
        given = TREES[name]()
        with td.disable_jit():
            wanted = twice(given)
        same(f(given), wanted)
        same(f(given), wanted)


@pytest.mark.parametrize("name", TREES)
def test_a_third_call_takes_the_path(
    name: str, native: bool, no_slow_calls: Callable[[], None]
) -> None:
    given = TREES[name]()
    f = known(td.jit(twice), given)
    with td.disable_jit():
        wanted = twice(given)
    no_slow_calls()
    same(f(given), wanted)


@pytest.mark.parametrize("name", ["module", "held", "rebuilt", "mixed", "dict", "key"])
def test_a_tree_made_anew_takes_it_too(
    name: str, native: bool, no_slow_calls: Callable[[], None]
) -> None:
    f = known(td.jit(twice), TREES[name]())
    no_slow_calls()
    f(TREES[name]())


OTHERS = [
    (array(1, 2), array(1, 2, 3)),
    (array(1, 2), tnp.array([1, 2])),
    (array(1, 2), np.array([1, 2])),
    (array(1, 2), 1.5),
    (1.5, 1),
    (1, True),
    (np.ones(2, np.float32), np.ones((2, 1), np.float32)),
    ([array(1)], (array(1),)),
    ((array(1), array(2)), Pair(array(1), array(2))),
    ([array(1)], [array(1), array(2)]),
    ([array(1), array(2)], [array(1)]),
    ({"a": array(1)}, {"b": array(1)}),
    ({"a": array(1)}, {"a": array(1), "b": array(2)}),
    ({"a": array(1)}, OrderedDict(a=array(1))),
    ((array(1), None), (array(1), array(2))),
    ((array(1), array(2)), (array(1), None)),
    (Record(array(1), 2), Record(array(1), 3)),
    (Record(array(1), 1), Record(array(1), True)),
    (Layer(array(1)), Layer(array(1), "other")),
    (Layer(array(1)), Layer(array(1, 2))),
    (Layer(array(1)), Layer([array(1)])),
    (HELD(Layer(array(1))), HELD(Layer(array(1), "other"))),
    (HELD(Layer(array(1))), HELD(Layer([array(1), array(2)]))),
    (HELD(Layer(array(1))), Layer(array(1))),
    (model(), model(extra=array(1))),
    (model(np.sin), model(np.cos)),
    (rng.key(0), rng.split(rng.key(0))),
]


@pytest.mark.parametrize(("first", "other"), OTHERS, ids=range(len(OTHERS)))
def test_other_arguments_take_their_own(first: Any, other: Any, native: bool) -> None:
    f = td.jit(lambda t: (twice(t), t))
    for given in (first, first, first, other, other, other, first, other):
        with td.disable_jit():
            wanted = twice(given)
        same(f(given)[0], wanted)
        assert tree.structure(f(given)[1]) == tree.structure(given)


@pytest.fixture
def no_programs_called(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forbids calls of programs from Python, from when it is called on."""

    def slow(*args: Any) -> Any:
        raise AssertionError("this call took no path")

    return lambda: monkeypatch.setattr(Executable, "__call__", slow)


@pytest.mark.parametrize("wrap", [HELD, HELD.function], ids=["held", "open"])
def test_a_new_size_takes_the_path_of_others(
    wrap: Callable[[Any], Any], no_programs_called: Callable[[], None]
) -> None:
    @td.jit(donate=("state",))
    def f(layer: Any, state: Any, x: Any) -> Any:
        return {"sum": state + x.sum(0), "rows": x * layer.weight, "first": state}

    def call(n: int) -> None:
        x = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
        out = f(wrap(Layer(array(1, 2))), array(1, n), tnp.asarray(x))
        np.testing.assert_array_equal(out["sum"], x.sum(0) + np.array([1, n]))
        np.testing.assert_array_equal(out["rows"], x * [2, 3])
        np.testing.assert_array_equal(out["first"], [1, n])

    for n in (5, 5, 7, 7):
        call(n)
    if callpath.available():
        no_programs_called()
    for n in [*range(2, 40), *range(39, 2, -1), *range(2, 40)]:
        call(n)
    assert f.report().traces == 2


def test_a_path_of_other_sizes_is_not_for_other_arguments() -> None:
    f = td.jit(twice)
    for n in (2, 2, 3, 3):
        same(f(Pair(array(*range(n)), 1.0)), twice(Pair(array(*range(n)), 1.0)))
    for n in range(4, 12):
        for given in (Pair(array(*range(n)), 2), [array(*range(n)), 1.0]):
            with td.disable_jit():
                wanted = twice(given)
            same(f(given), wanted)
    for n, wrap in ((4, HELD), (5, HELD), (6, HELD.function), (7, HELD)):
        layer = wrap(Layer(array(*range(n))))
        with td.disable_jit():
            wanted = twice(layer)
        same(f(layer), wanted)


def test_named_and_static_arguments(
    native: bool, no_slow_calls: Callable[[], None]
) -> None:
    @td.jit(static=("power", "how"))
    def f(x: Any, power: int, *, scale: Any, how: str = "up") -> Any:
        return x**power * scale * (1 if how == "up" else -1)

    x = array(1, 2)
    for _ in range(3):
        np.testing.assert_array_equal(f(x, 2, scale=3.0), [3, 12])
        np.testing.assert_array_equal(f(x, 3, scale=3.0), [3, 24])
        np.testing.assert_array_equal(f(x, power=3, scale=x, how="down"), [-1, -16])
    with pytest.raises(TypeError):
        f(x, 2)
    no_slow_calls()
    np.testing.assert_array_equal(f(x, 2, scale=2.0), [2, 8])
    np.testing.assert_array_equal(f(x, 3, scale=1.0), [1, 8])
    np.testing.assert_array_equal(f(x, power=3, scale=x, how="down"), [-1, -16])


def test_statics_that_are_new_each_time_do_not_pile_up(native: bool) -> None:
    f = td.jit(lambda x, n: x * len(n), static="n")
    for _ in range(50):
        np.testing.assert_array_equal(f(array(1), tuple([1, 2])), [2])
    for size in range(20):
        known(f, array(*range(size)), (1, 2))
    assert len(f._programs.kept.paths) <= MOST_PATHS


@dataclass
class Options:
    """Static, but not immutable; hashed by value."""

    factor: int

    def __hash__(self) -> int:
        return hash(self.factor)


def test_statics_that_change_in_place_are_noticed(native: bool) -> None:
    options = Options(2)
    f = td.jit(lambda x, o: x * o.factor, static="o")
    g = td.jit(lambda r: r.x * r.power.factor)
    for _ in range(3):
        np.testing.assert_array_equal(f(array(1), options), [2])
        np.testing.assert_array_equal(g(Record(array(1), options)), [2])
    options.factor = 3
    for _ in range(3):
        np.testing.assert_array_equal(f(array(1), options), [3])
        np.testing.assert_array_equal(g(Record(array(1), options)), [3])


def test_deep_trees(native: bool) -> None:
    f = td.jit(lambda t: tree.leaves(t)[0] * 2)
    for depth in (50, 120, 200):
        given: Any = array(1)
        for _ in range(depth):
            given = [given]
        for _ in range(3):
            np.testing.assert_array_equal(f(given), [2])


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_transforms_and_plain_python_take_no_path(native: bool) -> None:
    seen = []
    f = td.jit(lambda x: seen.append(1) or tnp.sum(x * x))
    known(f, array(1, 2, 3))
    np.testing.assert_array_equal(td.grad(f)(array(1, 2, 3)), [2, 4, 6])
    np.testing.assert_array_equal(td.vmap(f)(tnp.ones((2, 3))), [3, 3])
    np.testing.assert_array_equal(td.jit(lambda x: f(x) + 1)(array(1, 2, 3)), 15)
    count = len(seen)
    with td.disable_jit():
        f(array(1, 2, 3))
    assert len(seen) == count + 1
    f.clear_cache()
    f(array(1, 2, 3))
    assert len(seen) == count + 2


def test_captured_arrays_are_read_at_every_call(native: bool) -> None:
    captured = td.jit(lambda: tnp.arange(99.0) * 1)()
    f = known(td.jit(lambda x: x + captured[96:]), array(1, 2, 3))
    np.testing.assert_array_equal(f(array(1, 2, 3)), [97, 99, 101])
    td.jit(lambda c: c * 2, donate="c")(captured)
    with pytest.raises(DonatedError):
        f(array(1, 2, 3))


# Donation


def test_donated_memory_is_taken_and_arrays_are_given_up(native: bool) -> None:
    step = td.jit(lambda s, x: [a + x for a in s], donate="s")
    for _ in range(5):
        state = made(3)
        addresses = {a.address() for a in state}
        new = step(state, 1.0)
        assert {a.address() for a in new} == addresses
        for i, a in enumerate(new):
            np.testing.assert_array_equal(a, np.full(50, i + 2.0))
        for use in (lambda s=state: step(s, 1.0), lambda s=state: np.asarray(s[0])):
            with pytest.raises(DonatedError, match="donated to"):
                use()


def test_memory_that_others_see_is_not_taken(native: bool) -> None:
    step = td.jit(lambda a, b: (a + b, a * b), donate="a")
    for _ in range(4):
        a, b = made(2)
        seen = np.asarray(a)
        added, times = step(a, b)
        np.testing.assert_array_equal(seen, np.ones(50))
        np.testing.assert_array_equal(added, np.full(50, 3.0))
        np.testing.assert_array_equal(times, np.full(50, 2.0))
        np.testing.assert_array_equal(b, np.full(50, 2.0))


@pytest.mark.parametrize("donate", [("a",), ("b",), ("a", "b")])
def test_an_array_that_is_passed_twice_keeps_its_values(
    donate: tuple[str, ...], native: bool
) -> None:
    step = td.jit(lambda a, b: (a + 1, b * 10 + a), donate=donate)
    for _ in range(4):
        (a,) = made(1)
        more, other = step(a, a)
        np.testing.assert_array_equal(more, np.full(50, 2.0))
        np.testing.assert_array_equal(other, np.full(50, 11.0))
        with pytest.raises(DonatedError):
            np.asarray(a)


def test_donated_numbers_and_numpy_arrays_stay_as_they_are(native: bool) -> None:
    step = td.jit(lambda a, b: (a + 1, b + 1), donate=("a", "b"))
    a = np.ones(50, np.float32)
    for _ in range(4):
        more, number = step(a, 1.0)
        np.testing.assert_array_equal(more, np.full(50, 2.0))
        np.testing.assert_array_equal(number, 2)
    np.testing.assert_array_equal(a, np.ones(50))


# Errors


class Unlucky(Exception):
    pass


@pytest.mark.parametrize("error", [Unlucky, KeyboardInterrupt, SystemExit])
def test_what_a_callback_raises_comes_out(
    error: type[BaseException], native: bool
) -> None:
    def fails(x: Any) -> Any:
        if x.max() > 2:
            raise error("no")
        return x

    step = td.jit(lambda x: td.pure_callback(fails, x, x) + 1, donate="x")
    for _ in range(3):
        np.testing.assert_array_equal(step(array(1, 2)), [2, 3])
        bad = array(3, 4)
        with pytest.raises(error, match="no"):
            step(bad)
        with pytest.raises(DonatedError):
            np.asarray(bad)


def test_errors_of_paths_show_the_lines_of_the_user(native: bool) -> None:
    def fails(x: Any) -> Any:
        if x.max() > 2:
            raise Unlucky
        return x

    step = known(td.jit(lambda x: td.pure_callback(fails, x, x)), array(1, 2))
    with pytest.raises(Unlucky) as caught:
        step(array(3, 4))
    assert {entry.path for entry in caught.traceback} == {caught.traceback[0].path}


@pytest.mark.parametrize("wrong", ["text", object(), np.array(["a"]), [1, "a"]])
def test_wrong_arguments_are_the_same_errors(wrong: Any, native: bool) -> None:
    def message(f: Any) -> str:
        with pytest.raises(TypeError) as caught:
            f(wrong)
        return str(caught.value)

    assert message(known(td.jit(twice), array(1))) == message(td.jit(twice))


class Changing:
    """Registered, but what its instances give changes."""

    def __init__(self, give: Callable[[], Any]) -> None:
        self.give = give


tree.register(Changing, lambda c: c.give(), lambda aux, c: Changing(lambda: (c, aux)))


def test_registered_classes_may_fail_or_change(native: bool) -> None:
    f = known(td.jit(twice), Changing(lambda: ([array(1), array(2)], "x")))

    def fails() -> Any:
        raise Unlucky

    with pytest.raises(Unlucky):
        f(Changing(fails))
    for wrong in (None, 3, ([], "x", 1)):
        with pytest.raises((TypeError, ValueError)):
            f(Changing(lambda wrong=wrong: wrong))
    for children, aux in (([array(3)], "x"), ([array(3), array(4)], "y")):
        out = f(Changing(lambda children=children, aux=aux: (children, aux)))
        assert out.give()[1] == aux
        assert [float(x[0]) for x in out.give()[0]] == [6, 8][: len(children)]


def test_classes_whose_children_are_no_sequence(native: bool) -> None:
    class Odd:
        def __init__(self, d: dict) -> None:
            self.d = d

    tree.register(
        Odd,
        lambda o: (o.d.values(), tuple(o.d)),
        lambda keys, c: Odd(dict(zip(keys, c, strict=True))),
    )
    f = td.jit(lambda o: [x * 2 for x in tree.leaves(o)])
    for _ in range(4):
        same(f(Odd({"a": array(1), "b": array(2)})), [array(2), array(4)])
