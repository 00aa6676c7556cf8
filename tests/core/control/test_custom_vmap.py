"""Functions with a vectorised form of their own, against JAX's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jax import custom_batching

import treadle as td
import treadle.numpy as tnp
from tests.core.control.both import TREADLE, agree, array
from tests.refused import refused
from treadle.errors import StructureError, TracerError

A, B = array(4, 3), array(4, 3, seed=1)


def custom(lib: Any, seen: list[Any] | None = None) -> Any:
    """A function whose rule gives something else, so that it is seen where it was."""
    wrap = td.custom_vmap if lib is TREADLE else custom_batching.custom_vmap

    @wrap
    def f(a: Any, pair: Any) -> Any:
        return {"s": lib.np.sin(a) * pair["x"], "n": pair["y"] * 2.0}

    @f.def_vmap
    def _(size: int, batched: Any, a: Any, pair: Any) -> Any:
        if seen is not None:
            seen.append((size, batched))
        out = {"s": lib.np.cos(a) * pair["x"], "n": pair["y"] * 3.0}
        either = batched[0] or batched[1]["x"]
        return out, {"s": either, "n": batched[1]["y"]}

    return f


def call(lib: Any) -> Any:
    f = custom(lib)
    return lambda a, b: f(a, {"x": b, "y": a.sum()})


def each(lib: Any) -> Any:
    return lib.vmap(call(lib))


PROGRAMS = {
    "plain": call,
    "vmap": each,
    "one of them": lambda lib: lambda a, b: lib.vmap(call(lib), (None, 0))(a[0], b),
    "jit of vmap": lambda lib: lib.jit(each(lib)),
    "vmap of jit": lambda lib: lib.vmap(lib.jit(call(lib))),
    "other axes": lambda lib: lib.vmap(call(lib), in_axes=1, out_axes=-1),
    "vmap of vmap": lambda lib: (
        lambda a, b: lib.vmap(lib.vmap(call(lib), (0, None)), (None, 0))(a, b)
    ),
    "grad of vmap": lambda lib: lib.grad(
        lambda a, b: each(lib)(a, b)["s"].sum(), (0, 1)
    ),
    "jvp of vmap": lambda lib: lambda a, b: lib.jvp(each(lib), (a, b), (b, a)),
    "vmap of jvp": lambda lib: (
        lambda a, b: lib.vmap(lambda a, b: lib.jvp(call(lib), (a, b), (b, a)))(a, b)
    ),
    "vmap of jvp, one tangent": lambda lib: (
        lambda a, b: lib.vmap(
            lambda a: lib.jvp(lambda a: call(lib)(a, b[0]), (a,), (b[1],))
        )(a)
    ),
    "vmap of jvp, tangents alone": lambda lib: (
        lambda a, b: lib.vmap(lambda t: lib.jvp(call(lib), (a[0], b[0]), (t, t)))(b)
    ),
    "in a loop": lambda lib: (
        lambda a, b: lib.vmap(
            lambda a, b: lib.scan(lambda c, _: (call(lib)(c, b)["s"], c), a, None, 3)
        )(a, b)
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_agrees(name: str) -> None:
    agree(PROGRAMS[name], A, B)


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_what_the_rule_is_told() -> None:
    seen: list[Any] = []
    f = custom(TREADLE, seen)
    td.vmap(f, in_axes=(None, {"x": 0, "y": None}))(A[0], {"x": B, "y": 1.0})
    assert seen == [(4, [False, {"x": True, "y": False}])]
    seen.clear()
    td.vmap(lambda a: a + f(1.0, {"x": 2.0, "y": 3.0})["s"])(A)
    assert not seen
    sized = td.jit(lambda a: td.vmap(f)(a, {"x": a, "y": a}), dynamic={"a": ("n",)})
    for n in (2, 5):
        assert sized(np.ones(n, np.float32))["n"].shape == (n,)


def test_reverse_mode_inside_of_vmap_vectorises_the_function_itself() -> None:
    def loss(a: Any, b: Any) -> Any:
        return call(TREADLE)(a, b)["s"].sum()

    found = td.vmap(td.grad(loss))(A, B)
    np.testing.assert_allclose(found, np.cos(A) * B, rtol=1e-5)


def test_methods_keywords_and_plain_python() -> None:
    class Model:
        @td.sequential_vmap
        def scaled(self, x: Any) -> Any:
            return 2 * x

        @td.custom_vmap
        def summed(x: Any, *, start: Any = 1.0) -> Any:
            return x + start

    assert Model.scaled.function.__name__ == "scaled"
    with pytest.raises(TypeError, match="start by keyword only"):
        Model.summed(1.0, start=2.0)
    f = custom(TREADLE)
    assert np.array_equal(f(pair={"x": B, "y": 1.0}, a=A)["s"], np.sin(A) * B)
    with td.disable_jit():
        assert np.array_equal(f(A, {"x": B, "y": 1.0})["s"], np.sin(A) * B)
        found = td.vmap(f)(A, {"x": B, "y": B})["s"]
    np.testing.assert_allclose(found, np.cos(A) * B, rtol=1e-5)


@pytest.mark.parametrize("wrap", [lambda f: f, td.jit])
def test_one_example_after_the_other(wrap: Any) -> None:
    seen: list[float] = []

    def program(lib: Any) -> Any:
        seq = td.sequential_vmap if lib is TREADLE else custom_batching.sequential_vmap

        @seq
        def f(x: Any, y: Any) -> Any:
            if lib is TREADLE:
                td.debug.callback(lambda v: seen.append(float(v)), x)
            return x * lib.np.sum(y), {"y": y}

        return lambda x, y: lib.vmap(f, (0, None))(x, y)

    x = np.float32([3, 1, 2])
    agree(lambda lib: wrap(program(lib)) if lib is TREADLE else program(lib), x, B)
    assert seen == [3, 1, 2]
    seen.clear()
    both = wrap(lambda x, t: td.jvp(lambda x: program(TREADLE)(x, B)[0], (x,), (t,)))
    np.testing.assert_allclose(both(x, x)[1], x * B.sum(), rtol=1e-5)
    assert seen == [3, 1, 2]


@pytest.mark.parametrize("wrap", [lambda f: f, td.jit])
def test_effects_where_a_branch_is_taken(wrap: Any) -> None:
    seen: list[float] = []

    def note(x: Any) -> Any:
        td.debug.callback(lambda v: seen.append(float(v)), x)
        return 2 * x

    alone = td.sequential_vmap(note)
    wrap(td.vmap(lambda x: td.cond(x > 1, alone, lambda x: x, x)))(
        np.float32([3, 1, 2])
    )
    assert seen == [3, 2]
    together: list[Any] = []
    f = td.custom_vmap(lambda x: x)

    @f.def_vmap
    def _(size: int, batched: Any, x: Any) -> Any:
        td.debug.callback(lambda v: together.append(np.array(v).tolist()), x)
        return 2 * x, True

    g = wrap(td.vmap(lambda x: td.cond(x > 1, f, lambda x: x, x)))
    assert np.array_equal(g(np.float32([3, 1, 2])), [6, 1, 4])
    assert np.array_equal(g(np.float32([0, 1, 1])), [0, 1, 1])
    assert together == [[3, 1, 2]]


def test_named_axes() -> None:
    f = td.sequential_vmap(lambda x: td.psum(x, "i") * x)
    found = td.vmap(f, axis_name="i")(np.float32([1, 2, 3]))
    assert np.array_equal(found, [6, 12, 18])


def rule_of(rule: Any) -> Any:
    f = td.custom_vmap(lambda x: (x, x))
    f.def_vmap(rule)
    return lambda: td.vmap(f)(V)


V = tnp.ones(3)
MISTAKES: dict[str, tuple[Any, type[Exception], list[str]]] = {
    "no rule": (
        lambda: td.custom_vmap(lambda x: x)(V),
        TypeError,
        ["has no rule", "def_vmap"],
    ),
    "no pair": (rule_of(lambda n, b, x: x), TypeError, ["a pair", "f32[3]"]),
    "structure": (
        rule_of(lambda n, b, x: (x, True)),
        StructureError,
        ["another structure than the function"],
    ),
    "flags": (
        rule_of(lambda n, b, x: ((x, x), (True, 0))),
        TypeError,
        ["out_batched", "0", "not a bool"],
    ),
    "fit": (
        rule_of(lambda n, b, x: ((x, x), (True,))),
        StructureError,
        ["out_batched", "does not fit"],
    ),
    "function": (lambda: td.custom_vmap(V), TypeError, ["takes a function"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    mistake, error, parts = MISTAKES[name]
    with pytest.raises(error) as caught:
        mistake()
    for part in parts:
        assert part in str(caught.value)
    assert f"at {__file__}:" in str(caught.value)


def test_a_rule_knows_only_arguments() -> None:
    def mistake() -> Any:
        def one(x: Any) -> Any:
            f = td.custom_vmap(lambda y: x * y)
            f.def_vmap(lambda size, batched, y: (y, batched[0]))
            return f(1.0)

        return td.vmap(one)(V)

    refused(mistake, TracerError, "closes over an array", "Make it an argument")
