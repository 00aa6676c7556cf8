"""Mistakes with transforms: what is traced, leaked, mutated, or does not fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.refused import refused
from treadle.errors import LeakError, MutationError, StructureError, TracerError

V, S, X = tnp.ones(3), tnp.array(1.0), tnp.ones((2, 3))

UNDER: dict[str, Callable[[Any], Any]] = {
    "jit": lambda f: td.jit(f)(V),
    "vmap": lambda f: td.vmap(f)(X),
    "scan": lambda f: td.scan(lambda c, a: (c, f(a)), None, X),
    "grad of jit": lambda f: td.grad(lambda a: td.jit(f)(a).sum())(V),
    "jit of grad": lambda f: td.jit(td.grad(lambda a: f(a).sum()))(V),
}


def assign(x: Any) -> Any:
    b = np.zeros(3)
    b[0] = x[0]
    return b


def assign_part(x: Any) -> Any:
    b = np.zeros(3, int)
    b[:2] = x[:2]
    return b


def add_to_part(x: Any) -> Any:
    b = np.zeros(3)
    b[:2] += x[:2]
    return b


def assign_at(x: Any) -> Any:
    b = np.zeros(3, bool)
    b[1] = x[0] > 0
    return b


def fill(x: Any) -> Any:
    b = np.zeros(3)
    b.fill(x[0])
    return b


VALUES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "float": (lambda x: x * float(x[0]), "return the array"),
    "math": (lambda x: x * math.sin(x[0]), "tnp.sin(x)"),
    "int": (lambda x: x * int(x[0]), "static"),
    "range": (lambda x: x * len(range(x.astype(int)[0])), "td.fori_loop"),
    "length": (lambda x: tnp.zeros(x.astype(int)[0]), "static"),
    "slice": (lambda x: x[: x.astype(int)[0]], "dynamic_slice"),
    "mask": (lambda x: x[x > 0], "tnp.where"),
    "format": (lambda x: f"{x.sum():.3f}" and x, "td.debug.print"),
    "percent": (lambda x: "%.3f" % x.sum() and x, "td.debug.print"),  # noqa: UP031
    "numpy": (lambda x: np.asarray(x), "treadle.numpy"),
    "norm": (lambda x: x / np.linalg.norm(x), "np.linalg.norm was called"),
    "item": (lambda x: x * x[0].item(), "td.debug.print"),
    "assign": (assign, "b = b.at[index].set(x)"),
    "assign part": (assign_part, "b = tnp.zeros(shape)"),
    "add to part": (add_to_part, "x.at[i].add(y)"),
    "assign at": (assign_at, "b = b.at[index].set(x)"),
    "fill": (fill, "Compute with the array itself"),
}


@pytest.mark.parametrize("under", UNDER)
@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_is_not_known(name: str, under: str) -> None:
    mistake, remedy = VALUES[name]
    refused(lambda: UNDER[under](mistake), TracerError, remedy, at=mistake)


def test_numpy_functions_with_a_twin_work_on_traced_arrays() -> None:
    for transform in (td.jit, td.vmap, lambda f: f):
        out = transform(lambda x: np.sin(x) - np.mean(x))(X)
        assert isinstance(out, td.Array)


@pytest.mark.parametrize("show", [str, "{}".format, lambda x: f"{x}"])
@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_printing_a_traced_array_warns(show: Callable[[Any], str]) -> None:
    texts: list[str] = []
    with pytest.warns(UserWarning, match="printed(.|\n)*td.debug.print") as warned:
        td.jit(lambda x: texts.append(show(x)) or x)(V)
    assert texts == ["<StageTracer f32[3]>"]
    assert warned[0].filename == __file__
    td.jit(lambda x: texts.append(repr(x)) or x)(V)


def test_values_are_printed_where_they_are_known() -> None:
    texts: list[str] = []
    td.grad(lambda x: texts.append(f"{x:.2f} {x}") or x * x)(S)
    assert texts[0].startswith("1.00 ")


kept: list[Any] = []


def keep(x: Any) -> Any:
    kept.append(x * 2.0)
    return x * 1.0


LEAKS: dict[str, Callable[[], Any]] = {
    "jit": lambda: td.jit(keep)(V),
    "grad": lambda: td.grad(lambda x: keep(x).sum())(V),
    "vmap": lambda: td.vmap(keep)(V),
    "scan": lambda: td.scan(lambda c, x: (keep(c), x), S, V),
    "grad of jit": lambda: td.grad(lambda x: td.jit(keep)(x).sum())(V),
    "cond": lambda: td.jit(lambda x: td.cond(x > 0, keep, lambda x: x, x))(S),
}
USES: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: x + 1.0,
    "if": lambda x: bool((x > 0).any()),
    "numpy": lambda x: np.sin(x),
    "argument": lambda x: td.jit(lambda y: y)(x),
    "closure": lambda x: td.jit(lambda y: x * y)(S),
    "grad": lambda x: td.grad(lambda y: (x * y).sum())(S),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_a_leak_names_both_lines(leak: str, use: str) -> None:
    kept.clear()
    LEAKS[leak]()
    function = USES[use]
    message = refused(
        lambda: function(kept[0]), LeakError, "traced at", "Return it", at=function
    )
    made = message.split("traced at ")[1].splitlines()[0]
    assert made.startswith(f"{__file__}:")
    made_lines = {
        keep.__code__.co_firstlineno + 1,
        LEAKS[leak].__code__.co_firstlineno,
    }
    assert int(made.split(":")[1]) in made_lines


def set_item(d: Any, x: Any) -> Any:
    y = x * 2
    d["w"] = y
    return y


def append(items: Any, x: Any) -> Any:
    items.append(x)
    return x


def set_inside(d: Any, x: Any) -> Any:
    d["list"][1]["a"] = x
    return x


@pytest.mark.parametrize(
    ("function", "argument", "line", "place"),
    [
        (set_item, {"w": 1.0, "b": 2.0}, 2, "`d['w']`"),
        (set_item, {"b": 2.0}, 2, "`d['w']`"),
        (append, [1.0, 2.0], 1, "`items[2]`"),
        (set_inside, {"list": [1.0, {"a": 1.0}]}, 1, "`d['list'][1]['a']`"),
    ],
)
def test_a_changed_argument(
    function: Any, argument: Any, line: int, place: str
) -> None:
    message = refused(
        lambda: td.jit(function)(argument, 3.0),
        MutationError,
        place,
        "Make a new one",
        at=function,
    )
    assert f"{__file__}:{function.__code__.co_firstlineno + line}\n" in message


COPYING: dict[str, Callable[[Any, Any], Any]] = {
    "grad": lambda f, d: td.grad(lambda d: f(d, S))(d),
    "argnums": lambda f, d: td.grad(lambda x, d: f(d, x), argnums=(1, 0))(S, d),
    "vjp": lambda f, d: td.vjp(f, d, S),
    "jvp": lambda f, d: td.jvp(f, (d, S), (d, S)),
    "linearize": lambda f, d: td.linearize(f, d, S),
    "jacrev": lambda f, d: td.jacrev(f)(d, S),
    "vmap": lambda f, d: td.vmap(f, in_axes=(None, 0))(d, V),
    "remat": lambda f, d: td.remat(f)(d, S),
}


@pytest.mark.parametrize("under", COPYING)
def test_an_argument_changed_under_other_transforms(under: str) -> None:
    given = {"w": S, "b": S}
    message = refused(
        lambda: COPYING[under](set_item, given),
        MutationError,
        "changed its argument `d['w']`",
        at=set_item,
    )
    assert f"{__file__}:{set_item.__code__.co_firstlineno + 2}\n" in message
    assert given == {"w": S, "b": S}


def test_what_a_loop_carries_is_its_own() -> None:
    def step(d: Any, x: Any) -> Any:
        d["w"] = d["w"] + x
        return d, None

    given = {"w": 0.0}
    for loop in (td.scan, td.jit(lambda *args: td.scan(step, *args[1:]), static=0)):
        assert float(loop(step, given, V)[0]["w"]) == 3.0
    assert given == {"w": 0.0}


def test_a_new_container_is_no_change() -> None:
    f = td.jit(lambda d, x: {**d, "w": x}, static=())
    assert float(f({"w": 1.0, "b": 2.0}, 3.0)["w"]) == 3.0


ARGUMENTS: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    "string": (
        lambda: td.jit(lambda x, mode: x)(V, "train"),
        TypeError,
        ("`mode`", "'train'", "static"),
    ),
    "nested string": (
        lambda: td.jit(lambda config: 1.0)({"a": {"b": "c"}}),
        TypeError,
        ("`config['a']['b']`", "static"),
    ),
    "returned string": (
        lambda: td.jit(lambda x: {"a": "b"})(V),
        TypeError,
        ("result", "['a']", "'b'"),
    ),
    "unhashable static": (
        lambda: td.jit(lambda x, sizes: x, static="sizes")(V, [1, 2]),
        TypeError,
        ("`sizes`", "[1, 2]", "tuple"),
    ),
    "static dict": (
        lambda: td.jit(lambda x, options: x, static="options")(V, {"a": 1}),
        TypeError,
        ("`options`", "{'a': 1}", "frozen dataclass"),
    ),
    "unknown static": (
        lambda: td.jit(lambda x, y: x, static="z"),
        ValueError,
        ("'z'", "x (0), y (1)"),
    ),
    "unknown donate": (
        lambda: td.jit(lambda x, y: x, donate="z"),
        ValueError,
        ("donate='z'", "x (0), y (1)"),
    ),
    "donate beyond": (lambda: td.jit(lambda x: x, donate=5), ValueError, ("5", "x")),
    "not a function": (lambda: td.grad(V.sum()), TypeError, ("td.grad(f)(x)",)),
    "jit of a number": (lambda: td.jit(3), TypeError, ("int: 3",)),
    "branch": (lambda: td.cond(S > 0, 1.0, 2.0), TypeError, ("float: 1.0",)),
    "grad of array": (
        lambda: td.grad(lambda x: x * 2)(V),
        TypeError,
        ("f32[3]", ".sum()"),
    ),
    "grad of pair": (
        lambda: td.grad(lambda x: (x, 1))(S),
        TypeError,
        ("a tuple of length 2", "has_aux=True"),
    ),
    "grad in int": (
        lambda: td.grad(lambda n: n * 2.0)(3),
        TypeError,
        ("`n`", "i32[]", "3.0"),
    ),
    "aux missing": (
        lambda: td.grad(lambda x: x, has_aux=True)(S),
        TypeError,
        ("pair", "an array of type f32[]"),
    ),
    "aux string": (
        lambda: td.grad(lambda x: (x, "log"), has_aux=True)(S),
        TypeError,
        ("'log'",),
    ),
    "argnums": (
        lambda: td.grad(lambda x: x, argnums=1)(S),
        ValueError,
        ("argnums=1", "1 positional"),
    ),
    "argnums name": (
        lambda: td.grad(lambda x: x, argnums="x")(S),  # type: ignore[arg-type]
        TypeError,
        ("'x'", "positions"),
    ),
    "by keyword": (lambda: td.grad(lambda x: x)(x=S), ValueError, ("keyword",)),
    "cotangent": (
        lambda: td.vjp(lambda x: (x, x), V)[1](V),
        StructureError,
        ("expected tuple, found Array",),
    ),
    "tangents": (lambda: td.jvp(lambda x: x, V, V), TypeError, ("(x,), (tangent,)",)),
    "vmap lengths": (
        lambda: td.vmap(lambda a, b: a)(V, X),
        ValueError,
        ("`a` of <lambda>: 3", "`b` of <lambda>: 2", "None"),
    ),
    "in_axes entries": (
        lambda: td.vmap(lambda a, b: a, in_axes=(0,))(V, V),
        ValueError,
        ("(0,) has 1 entries", "2 positional"),
    ),
    "in_axes axis": (
        lambda: td.vmap(lambda a, b: a, in_axes=(0, 1))(V, V),
        ValueError,
        ("axis 1", "`b`", "f32[3]"),
    ),
    "in_axes kind": (
        lambda: td.vmap(lambda a: a, in_axes="0")(V),
        TypeError,
        ("'0'", "int or None"),
    ),
    "in_axes none": (
        lambda: td.vmap(lambda a: a, in_axes=None)(V),
        ValueError,
        ("maps no argument", "axis_size="),
    ),
    "axis_size": (
        lambda: td.vmap(lambda a, b: a, axis_size=4)(V, V),
        ValueError,
        ("axis_size: 4", "`b` of <lambda>: 3"),
    ),
    "axis_size kind": (
        lambda: td.vmap(lambda a: a, axis_size=-1),
        TypeError,
        ("axis_size=-1",),
    ),
    "axis_name": (
        lambda: td.vmap(lambda a: a, axis_name=("i", "j")),
        TypeError,
        ("axis_name=('i', 'j')", "nest two"),
    ),
    "out_axes": (
        lambda: td.vmap(lambda a: a, out_axes=3)(V),
        ValueError,
        ("out_axes=3", "1 axes"),
    ),
    "vmap string": (
        lambda: td.vmap(lambda a, m: a)(V, "m"),
        TypeError,
        ("`m`", "close over"),
    ),
    "scan unroll": (
        lambda: td.scan(lambda c, x: (c, x), S, V, unroll=0),
        ValueError,
        ("unroll=0", "positive"),
    ),
    "fori_loop unroll": (
        lambda: td.jit(lambda n: td.fori_loop(0, n, lambda i, c: c, S, unroll=2))(3),
        ValueError,
        ("unroll=2", "traced"),
    ),
    "scan dtype": (
        lambda: td.scan(lambda c, x: ((c + x).astype(int), None), S, V),
        TypeError,
        ("f32[] goes in, i32[] comes out", "astype"),
    ),
    "scan shape": (
        lambda: td.scan(lambda c, x: (tnp.concatenate([c, c]), None), V, V),
        TypeError,
        ("f32[3] goes in, f32[6] comes out", "can't grow"),
    ),
    "scan structure": (
        lambda: td.scan(lambda c, x: ((c, c), None), S, V),
        StructureError,
        ("carry", "goes in", "comes out"),
    ),
    "scan result": (
        lambda: td.scan(lambda c, x: c + x, S, V),
        TypeError,
        ("pair (carry, y)", "f32[]", "(carry, None)"),
    ),
    "scan lengths": (
        lambda: td.scan(lambda c, x: (c, None), S, (V, X)),
        ValueError,
        ("xs[0]: 3", "xs[1]: 2"),
    ),
    "scan scalar": (
        lambda: td.scan(lambda c, x: (c, None), S, 3.0),
        ValueError,
        ("leading axis",),
    ),
    "while": (
        lambda: td.while_loop(lambda c: c, lambda c: c, S),
        TypeError,
        ("bool scalar", "f32[]"),
    ),
    "fori": (
        lambda: td.fori_loop(0, 3.5, lambda i, c: c, S),
        TypeError,
        ("integers", "3.5"),
    ),
    "branches": (
        lambda: td.jit(lambda s: td.cond(s > 0, lambda: V, lambda: s))(S),
        TypeError,
        ("f32[3]", "f32[]", "differ in shape"),
    ),
    "branches' dtypes": (
        lambda: td.jit(lambda v: td.cond(v[0] > 0, lambda: v, lambda: v.astype(int)))(
            V
        ),
        TypeError,
        ("f32[3]", "i32[3]", ".astype(...)"),
    ),
    "predicate": (
        lambda: td.jit(lambda v: td.cond(v > 0, lambda: 1.0, lambda: 2.0))(V),
        TypeError,
        ("bool[3]", "tnp.where"),
    ),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_that_do_not_fit(name: str) -> None:
    mistake, error, parts = ARGUMENTS[name]
    refused(mistake, error, *parts)


def test_a_list_is_not_an_array() -> None:
    with pytest.raises(TypeError, match="can only concatenate") as caught:
        td.jit(lambda values: values + 1.0)([1.0, 2.0])
    (note,) = caught.value.__notes__
    assert "`values`" in note
    assert "tnp.array(...)" in note
    refused(
        lambda: td.jit(lambda values: tnp.sum(values))([1.0, 2.0]),
        TypeError,
        "sum takes arrays, got a list",
        "`values`",
        "tnp.array(...)",
    )
