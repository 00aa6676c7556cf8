"""scan against JAX, in all its derivatives; what it stores; its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.control.both import JAX, PROPERTIES, TREADLE, array, check, close
from treadle import nn
from treadle.errors import StructureError
from treadle.ir.check import check as check_graph


def rnn(lib: Any) -> Any:
    def run(w: Any, h: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = lib.np.tanh(h @ w + x)
            return h, h * lib.np.sin(x)

        return lib.scan(step, h, xs)

    return run


def gated(lib: Any) -> Any:
    """A cell with two carries, and a carry that starts without a tangent."""

    def run(w: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            h, c, n = carry
            z = x + h @ w
            i, f = 1 / (1 + lib.np.exp(-z)), lib.np.exp(-z * z)
            c = f * c + i * lib.np.tanh(z)
            h = lib.np.tanh(c) * i
            return (h, c, n + 1), {"h": h, "n": n}

        zeros = lib.np.zeros(w.shape[0], np.float32)
        (h, c, _), ys = lib.scan(step, (zeros, zeros, 0), xs, reverse=True)
        return h, c, ys["h"]

    return run


def nested(lib: Any) -> Any:
    def run(x: Any, ys: Any) -> Any:
        def outer(a: Any, y: Any) -> Any:
            def inner(b: Any, _: Any) -> Any:
                b = lib.np.sin(b) * y + a * x
                return b, b

            b, bs = lib.scan(inner, a, None, length=3)
            return a + b, lib.np.sum(bs)

        return lib.scan(outer, x, ys)

    return run


def no_carry(lib: Any) -> Any:
    return lambda w, xs: lib.map(lambda x: lib.np.exp(-x * x) @ w, xs)


def unused(lib: Any) -> Any:
    """A carry, an x and a result that nothing depends on."""

    def run(x: Any, xs: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            a, b = carry
            return (a * 1.5, b), lib.np.cos(a)

        return lib.scan(step, (x, x * x), xs)[0][0]

    return run


def forloop(lib: Any) -> Any:
    return lambda x: lib.fori_loop(2, 6, lambda i, c: lib.np.sin(c) * i + x, x)


def branching(lib: Any) -> Any:
    def run(x: Any, xs: Any) -> Any:
        def step(c: Any, a: Any) -> Any:
            c = lib.cond(a > 0, lambda c: lib.np.sin(c) * a, lambda c: c * x, c)
            return c, c * c

        return lib.scan(step, x, xs)

    return run


def prefixes(lib: Any, reverse: bool = False) -> Any:
    def run(a: Any, b: Any) -> Any:
        def combine(p: Any, q: Any) -> Any:
            return p[0] * q[0], q[0] * p[1] + q[1]

        return lib.associative_scan(combine, (a, b), reverse=reverse)

    return run


def suffixes(lib: Any) -> Any:
    return prefixes(lib, reverse=True)


CASES: dict[str, tuple[Any, list[np.ndarray]]] = {
    "rnn": (rnn, [array(4, 4), array(2, 4), array(5, 2, 4)]),
    "gated": (gated, [array(3, 3), array(6, 3)]),
    "nested": (nested, [array(), array(4)]),
    "no carry": (no_carry, [array(3), array(4, 3)]),
    "unused": (unused, [array(), array(3)]),
    "forloop": (forloop, [array()]),
    "branching": (branching, [array(), array(5)]),
    "prefixes": (prefixes, [array(7), array(7)]),
    "suffixes": (suffixes, [array(6), array(6)]),
    "empty": (rnn, [array(2, 2), array(2, 2), array(0, 2, 2)]),
}


@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.parametrize("case", CASES)
def test_agrees(case: str, name: str) -> None:
    build, args = CASES[case]
    check(build, args, name)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("unroll", [1, 2, 3, 7, True])
def test_unroll(unroll: int, reverse: bool) -> None:
    def build(lib: Any) -> Any:
        def run(x: Any, xs: Any) -> Any:
            def step(c: Any, a: Any) -> Any:
                return lib.np.sin(c + a), c * a

            return lib.scan(step, x, xs, reverse=reverse, unroll=unroll)

        return run

    check(build, [array(2), array(7, 2)], "grad")
    check(build, [array(2), array(7, 2)], "jit")


@pytest.mark.parametrize("case", ["rnn", "gated", "nested", "empty"])
def test_python_loop_means_the_same(case: str) -> None:
    build, args = CASES[case]
    with td.disable_jit():
        found = build(TREADLE)(*args)
    close(found, build(JAX)(*args))


def test_number_takes_the_type_that_comes_out() -> None:
    carry, ys = td.scan(lambda c, x: (c + x, c), 0, np.ones(3, np.float32))
    assert carry.dtype == ys.dtype == np.float32
    carry, _ = td.scan(lambda c, x: (c + x, None), 0.0, tnp.ones(3, "bfloat16"))
    assert carry.dtype == td.bfloat16
    carry, _ = td.scan(lambda c, x: (1, None), np.float32(0), None, 2)
    assert carry.dtype == np.float32


# What the loop stores -----------------------------------------------------------------


def loops(graph: Any) -> list[Any]:
    return [eq for eq in graph.equations if eq.op.name == "scan"]


def stored_bytes(loop: Any) -> int:
    """What a loop stacks beyond what the program asked for."""
    n = loop.params["n_carry"]
    return sum(v.type.nbytes for v in loop.outputs[n:])


def test_residuals_are_stored_once() -> None:
    def loss(w: Any, h: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = tnp.tanh(h @ w + x)
            return h, h

        return tnp.sum(td.scan(step, h, xs)[1] ** 2)

    w, h, xs = array(4, 4), array(2, 4), array(5, 2, 4)
    graph = td.trace(td.grad(loss))(w, h, xs)
    check_graph(graph)
    forward, backward = loops(graph)
    # The result itself, of which tanh' is made again, and the carry that went in.
    assert stored_bytes(forward) == 2 * xs.nbytes
    # The weights are constants of the backward loop.
    assert backward.params["n_consts"] == 1


def test_what_depends_on_constants_is_computed_once() -> None:
    def loss(w: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            return c * tnp.exp(w) + x, None

        return tnp.sum(td.scan(step, tnp.zeros(4), xs)[0])

    xs = array(5, 4)
    forward, _ = loops(td.trace(td.grad(loss, 1))(array(4), xs))
    assert stored_bytes(forward) == 0


def test_scanned_inputs_are_not_stored_again() -> None:
    def loss(x: Any, xs: Any) -> Any:
        return td.scan(lambda c, a: (c * a, None), x, xs)[0]

    forward, _ = loops(td.trace(td.grad(loss))(array(), array(5)))
    assert stored_bytes(forward) == 0


def test_jitted_function_in_a_body_stores_no_more() -> None:
    gate = td.jit(lambda x: tnp.tanh(x) * tnp.sin(x))

    def loss(function: Any) -> Any:
        return lambda x: td.scan(lambda c, _: (function(c), None), x, None, 3)[0].sum()

    inlined, _ = loops(td.trace(td.grad(loss(gate.function)))(array(4)))
    called, _ = loops(td.trace(td.grad(loss(gate)))(array(4)))
    assert stored_bytes(called) == stored_bytes(inlined)


def dense(lib: Any) -> Any:
    """Weights used twice, seen through views, with a bias and a batch."""

    def run(w: Any, b: Any, h: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = lib.np.tanh((h @ w.T).reshape(2, 3, 5) @ w + x + b)
            return h.reshape(6, 5), None

        return lib.scan(step, h, xs)[0]

    return run


@pytest.mark.parametrize("name", PROPERTIES)
def test_weights_with_views(name: str) -> None:
    args = [array(5, 5), array(5), array(6, 5), array(4, 2, 3, 5)]
    check(dense, [0.4 * a for a in args], name)


# Errors -------------------------------------------------------------------------------


def test_carry_of_another_dtype() -> None:
    def step(carry: Any, x: Any) -> Any:
        return {"n": carry["n"] * 1.5, "x": carry["x"]}, None

    init = {"n": np.arange(3, dtype=np.int32), "x": np.float32(1)}
    with pytest.raises(TypeError) as error:
        td.scan(step, init, None, length=3)
    text = str(error.value)
    assert "carry['n']: i32[3] goes in, f32[3] comes out" in text
    assert "step" in text
    assert "test_scan.py" in text
    assert "astype" in text


def test_carry_of_another_shape() -> None:
    with pytest.raises(TypeError, match=r"f32\[3\] goes in, f32\[6\] comes out"):
        td.scan(lambda c, _: (tnp.concatenate([c, c]), None), tnp.ones(3), None, 2)


NUMBERS: dict[str, Any] = {
    "int to float": lambda: td.scan(lambda c, x: (c + x, c), 0, array(3)),
    "half": lambda: td.scan(lambda c, x: (c + x, c * HALF[0]), 0.0, array(3)),
    "shifted": lambda: td.scan(lambda c, x: ((c[1], x), c), (0, 0), array(3)),
    "in turn": lambda: td.scan(
        lambda c, x: ((c[1] * 1.0, c[0] + x), c), (0, 0.0), HALF, reverse=True
    ),
    "complex": lambda: td.scan(lambda c, x: (c * 1j + x, c), 0, array(3)),
    "number out": lambda: td.scan(lambda c, x: (1, c), 0.0, array(3)),
}
HALF = array(3).astype(np.float16)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_carried_in_python(name: str) -> None:
    """The Python loop takes up the types that tracing finds."""
    with td.disable_jit():
        found = NUMBERS[name]()
    # In Python a number becomes an array by and by: products round to half later.
    close(found, NUMBERS[name](), 1e-3 if name == "half" else 2e-5)


def test_counts_that_are_none() -> None:
    for length in (-1, 2.5, "3"):
        with pytest.raises(ValueError, match="count of iterations"):
            td.scan(lambda c, x: (c, x), 0.0, None, length)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="positive number of rows"):
        td.map(lambda x: x, tnp.ones(3), batch_size=0)


def test_carry_of_another_structure() -> None:
    with pytest.raises(StructureError, match="keep its structure"):
        td.scan(lambda c, _: ((c, c), None), 1.0, None, 2)


def test_a_static_field_that_changes() -> None:
    layer = nn.Dropout(0.5)
    with pytest.raises(StructureError, match=r"static \(.*0\.5.*against.*0\.25"):
        td.scan(lambda m, _: (nn.Dropout(0.25), None), layer, None, 2)
    with pytest.raises(StructureError, match=r"at \[1\]: tuple against a leaf"):
        td.scan(lambda c, _: ((c[0], c[0]), None), (1.0, (2.0,)), None, 2)


def test_not_a_pair() -> None:
    with pytest.raises(TypeError, match="must return a pair"):
        td.scan(lambda c, _: c, 1.0, None, 2)


def test_lengths_differ() -> None:
    xs = {"a": tnp.ones(3), "b": tnp.ones((4, 2))}
    with pytest.raises(ValueError, match=r"xs\['a'\]: 3, xs\['b'\]: 4"):
        td.scan(lambda c, x: (c, None), 1.0, xs)
    with pytest.raises(ValueError, match="length: 5"):
        td.scan(lambda c, x: (c, None), 1.0, tnp.ones(3), length=5)


def test_no_length() -> None:
    with pytest.raises(ValueError, match="how many iterations"):
        td.scan(lambda c, x: (c, None), 1.0)


def test_errors_are_the_same_in_python() -> None:
    with td.disable_jit(), pytest.raises(TypeError, match="goes in"):
        td.scan(lambda c, _: (tnp.concatenate([c, c]), None), tnp.ones(3), None, 2)


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_leak_from_a_body() -> None:
    kept = []

    def step(c: Any, x: Any) -> Any:
        kept.append(c)
        return c + x, None

    td.scan(step, 0.0, tnp.ones(3))
    with pytest.raises(td.errors.LeakError, match="leaked"):
        kept[0] + 1
