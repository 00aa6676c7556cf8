"""Axes that are named in `jit(dynamic=...)`, reports, and limits on programs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.api.sized import check, random, same
from tests.refused import refused
from treadle.errors import TracerError


def both(x: Any, y: Any) -> Any:
    return (x * y[:, None]).sum(0) / x.shape[0]


BOTH = {"x": ("batch", None), "y": ("batch",)}


def test_a_named_axis_is_open_from_the_first_call_on() -> None:
    report = check(both, lambda n: (random(n, 3), random(n)), dynamic=BOTH)
    (program,) = report.programs
    assert program.signature == "x: f32[batch,3], y: f32[batch]"
    assert report.traces == 1 and program.sizes == 7


def test_the_first_size_may_be_1() -> None:
    report = check(
        both, lambda n: (random(n, 3), random(n)), sizes=(1, 5, 1, 2), dynamic=BOTH
    )
    assert report.traces == 1

    def f(x: Any) -> Any:
        return x + 1 if x.shape[0] == 1 else x[:2]

    report = check(
        f, lambda n: (random(n, n + 2),), (1, 5, 3), dynamic={"x": ("a", "b")}
    )
    assert [p.signature for p in report.programs] == ["x: f32[1,b]", "x: f32[a,b]"]


def test_one_name_is_one_size() -> None:
    f = td.jit(both, dynamic=BOTH)
    refused(
        lambda: f(random(4, 3), random(5)),
        ValueError,
        "axis 'batch' is 4 in x and 5 in y",
    )
    g = td.jit(lambda p, x: x @ p["w"], dynamic={"p": {"w": ("n", None)}, "x": ("n",)})
    refused(
        lambda: g({"w": random(4, 3)}, random(5)),
        ValueError,
        "axis 'n' is 4 in p['w'] and 5 in x",
    )


@td.tree.register_dataclass
@dataclass
class Batch:
    image: Any
    label: Any


SPECS = {
    "one for all": {"batch": ("n", None)},
    "a tree like it": {"batch": Batch(("n", None), ("n", None))},
    "a part": {"batch": Batch(("n", None), ("n", None)), "scale": None},
    "types": {
        "batch": Batch(td.ShapeDtype(("n", 3)), td.ShapeDtype(("n", 2), "float32"))
    },
}


@pytest.mark.parametrize("name", SPECS)
def test_names_are_given_in_trees(name: str) -> None:
    def f(batch: Batch, scale: Any, *, shift: Any) -> Any:
        return batch.image.sum() * scale + batch.label.mean(0) + shift

    dynamic = td.jit(f, dynamic=SPECS[name] | {"shift": ("m",)})
    static = td.jit(f, dynamic=False)
    for n in (3, 4, 1):
        batch, shift = Batch(random(n, 3), random(n, 2)), random(2)
        same(dynamic(batch, 2.0, shift=shift), static(batch, 2.0, shift=shift))
    (program,) = dynamic.report().programs
    assert "batch.image: f32[n,3], batch.label: f32[n,2]" in program.signature
    assert "shift: f32[m]" in program.signature or "shift: f32[2]" in program.signature


def test_further_arguments_go_by_one_name() -> None:
    def f(*xs: Any, **named: Any) -> Any:
        return sum([x.sum() for x in xs]) + named["y"].mean()

    dynamic = td.jit(f, dynamic={"xs": ("n",), "y": ("m",)})
    for n in (2, 3):
        same(
            dynamic(random(n), random(n), y=random(n + 1)),
            td.jit(f, dynamic=False)(random(n), random(n), y=random(n + 1)),
        )
    assert dynamic.report().traces == 1
    with pytest.raises(ValueError, match=r"is 2 in xs\[0\] and 3 in xs\[1\]"):
        dynamic(random(2), random(3), y=random(3))


def test_an_error_says_which_sizes_were_given() -> None:
    f = td.jit(lambda x, y: x + y, dynamic={"x": ("n",), "y": ("m",)})
    with pytest.raises(ValueError, match=r"lengths n and m") as caught:
        f(random(2), random(3))
    assert caught.value.__notes__ == ["In this call, n = 2, m = 3."]


WRONG = [
    ({"z": ("n",)}, ValueError, "no argument 'z'"),
    ({"x": "batch"}, TypeError, "names no axes"),
    ({"x": 3}, TypeError, "names no axes"),
    ({"x": (3, "n")}, TypeError, "names no axes"),
    ("batch", TypeError, "that is no dict"),
]


@pytest.mark.parametrize(("dynamic", "kind", "text"), WRONG)
def test_what_names_no_axes_is_an_error(dynamic: Any, kind: Any, text: str) -> None:
    refused(lambda: td.jit(both, dynamic=dynamic), kind, text, "Give the names of axes")


MISFITS = [
    ({"x": ("n",)}, "says ('n',)"),
    ({"x": td.ShapeDtype(("n", 4))}, "says f32[n,4]"),
    ({"x": td.ShapeDtype(("n", 3), "int32")}, "says i32[n,3]"),
]


@pytest.mark.parametrize(("dynamic", "text"), MISFITS)
def test_an_argument_that_is_not_as_named_is_an_error(dynamic: Any, text: str) -> None:
    f = td.jit(both, dynamic=dynamic)
    refused(
        lambda: f(random(4, 3), random(4)),
        ValueError,
        "argument `x` of both is f32[4,3]",
        text,
    )


NUMBERS = {
    "len(x)": lambda x: x * len(x),
    "int()": lambda x: x * int(x.shape[0]),
    "range()": lambda x: [x[i] for i in range(x.shape[0])],
    "hash": lambda x: {1: 2}.get(x.shape[0], x),
    "formatting": lambda x: {f"{x.shape[0]}": x},
    "float()": lambda x: x * float(x.shape[0]),
}


@pytest.mark.parametrize("what", NUMBERS)
def test_a_named_size_that_is_needed_as_a_number_is_an_error(what: str) -> None:
    f = td.jit(NUMBERS[what], dynamic={"x": ("batch", None)})
    needed = rf"{re.escape(what)}(.|\n)* needs the size batch as a number, (.|\n)*"
    remedy = r" at .*test_dynamic_names.py(.|\n)*leave the axis out of `dynamic=`"
    with pytest.raises(TracerError, match=needed + remedy):
        f(random(4, 3))


def test_names_are_refused_where_lengths_are_numbers() -> None:
    named = td.ShapeDtype(("n", 3))
    for use in (
        lambda: td.eval_shape(lambda x: x, named),
        lambda: td.jit(lambda x: x).lower(named),
        lambda: td.trace(lambda x: x)(named),
    ):
        refused(use, TypeError, "is a ShapeDtype with names", "f32[n,3]")


def test_dynamic_false_is_a_program_for_each_shape() -> None:
    f = td.jit(lambda x: x * 2, dynamic=False)
    for n in (2, 3, 4):
        f(random(n))
    assert [p.symbolic for p in f.report().programs] == [False] * 3


def test_more_programs_than_are_allowed_are_an_error() -> None:
    @td.jit(max_compiles=2, static="flag")
    def f(x: Any, flag: bool = False) -> Any:
        return x + flag

    for n in (2, 3, 4, 5):
        f(random(n))
    refused(
        lambda: f(random(2), flag=True),
        RuntimeError,
        "f would be traced once more, but max_compiles=2",
        "What changed: static 'flag' is True, was not given",
        "x: f32[2]",
    )
    refused(
        lambda: f(np.ones(3, np.int32)),
        RuntimeError,
        "What changed: x is i32[3], was f32[3]",
    )
    f(random(6))
    for wrong in (0, -1, 1.5, "2"):
        refused(
            lambda wrong=wrong: td.jit(f, max_compiles=wrong),
            ValueError,
            f"max_compiles={wrong!r}",
        )

    g = td.jit(lambda x: x * len(x), max_compiles=2)
    g(random(2))
    g(random(3))
    refused(
        lambda: g(random(4)),
        RuntimeError,
        "x is f32[4], was f32[3]: it does not hold that x.shape[0] == 3 at ",
    )


def test_the_report_counts_calls_and_times() -> None:
    f = td.jit(lambda x, n: x * n if x.shape[0] > 2 else x)
    for n in (3, 4, 5, 4, 4, 4, 1, 5, 3):
        f(random(n), n)
    report = f.report()
    assert report.traces == 3 and report.calls == 9
    assert report.cache_hits == 9 - 4
    static, first, second = report.programs
    assert (static.calls, first.calls, second.calls) == (2, 6, 1)
    assert not static.symbolic and first.sizes == 2 and second.sizes == 1
    for program in report.programs:
        assert program.trace_seconds > 0 and program.compile_seconds > 0
    assert first.bind_seconds > 0
    assert static.reason == "it is the first call"
    assert first.reason == "x is f32[4], was f32[3]"
    assert "it does not hold that x.shape[0] > 2 at " in second.reason
    text = str(report)
    for line in (
        "jit of <lambda>: 3 traced, 9 calls, 5 of them cache hits",
        "x: f32[x.shape[0]], n: i32[]",
        "  traced because x is f32[4], was f32[3]",
        f"  holds where x.shape[0] > 2  at {__file__}",
        "2 sizes bound at",
    ):
        assert line in text


def test_methods_and_values_that_change_are_reported() -> None:
    class Model:
        @td.jit(static=("self", "power"))
        def power(self, x: Any, power: int) -> Any:
            return x**power

    model = Model()
    for power in (2, 3):
        model.power(random(3), power)
    report = Model.power.report()
    assert report.programs[1].reason == "static 'power' is 3, was 2"
    assert model.power.report().traces == 2


def test_a_bound_program_is_called_as_quickly_as_a_static_one() -> None:
    """Its second call of a size makes a path, which counts its calls for itself."""
    f = td.jit(lambda x: tnp.sum(x * 2), dynamic={"x": ("n",)})
    arrays = [tnp.array(random(n)) for n in (3, 4)]
    for _ in range(5):
        for a in arrays:
            same(f(a), td.jit(lambda x: tnp.sum(x * 2), dynamic=False)(a))
    assert len(f._programs.kept.paths) == 2
    made = f._programs.kept.made
    before, made.entries = made.entries, None
    try:
        for a in arrays:
            f(a)
    finally:
        made.entries = before
    assert f.report().calls == 12


def test_an_argument_may_have_fixed_axes_alone() -> None:
    """Of an array and of a tuple of them, `None` says so, of one or of each."""
    f = td.jit(
        lambda x, w, pair: (x @ w).sum() + pair[0].sum() * pair[1],
        dynamic={"x": ("n", None), "w": (None,), "pair": (None, None)},
    )
    w = np.ones(3, "float32")
    for n in (2, 5):
        x = np.full((n, 3), 2, "float32")
        assert f(x, w, (w, 1.0)) == 6 * n + 3
    assert f.report().traces == 1
    with pytest.raises(ValueError, match="but dynamic"):
        td.jit(lambda w: w, dynamic={"w": (None, None, None)})(w)
