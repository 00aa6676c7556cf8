"""Local rules: what each writes, and where it must not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import traced
from tests.core.fuse.lowering.alone import normal
from tests.core.passes.shown import opened, passed, untouched
from treadle import lax
from treadle.ir.graph import Lit
from treadle.passes.algebra import simplify
from treadle.passes.dce import drop_dead

X = normal(3, 4)
Z = X + 1j
I = np.arange(12, dtype=np.int32).reshape(3, 4)  # noqa: E741


def simple(graph: Any) -> Any:
    return drop_dead(simplify(graph))


def after(function: Any, *args: Any) -> list[str]:
    """The equations that are left; each without the name of its result."""
    return [line.split(" = ")[-1] for line in passed(simple, function, *args)][:-1]


SAME: dict[str, tuple[Any, Any]] = {
    "0 is added to integers": (lambda x: x + 0, I),
    "-0.0 is added": (lambda x: -0.0 + x, X),
    "0 is taken away": (lambda x: x - 0.0, X),
    "times one": (lambda x: 1 * x, X),
    "minus of minus": (lambda x: tnp.negative(-x), X),
    "the same shape": (lambda x: x.reshape(3, 4), X),
    "reshaped back": (lambda x: x.reshape(2, 6).reshape(3, 4), X),
    "turned back": (lambda x: x.T.T, X),
    "turned three times": (
        lambda x: x[None].transpose(1, 2, 0).transpose(1, 2, 0).transpose(1, 2, 0)[0],
        X,
    ),
    "the same order": (lambda x: lax.transpose(x, (0, 1)), X),
    "all of it": (lambda x: lax.slice(x, (0, 0), (3, 4)), X),
    "the same dtype": (lambda x: lax.convert_element_type(x, "float32"), X),
    "no derivative": (lambda x: td.lax.stop_gradient(x), X),
}


@pytest.mark.parametrize("name", SAME)
def test_nothing_is_done(name: str) -> None:
    function, x = SAME[name]
    found = after(function, x)
    if name == "turned three times":
        assert len(found) <= 3
        assert not any("transpose" in line for line in found)
    else:
        assert found == []


KEPT: dict[str, tuple[Any, Any]] = {
    "0.0 is added to floats": (lambda x: x + 0.0, X),
    "-0.0 is taken away": (lambda x: x - -0.0, X),
    "complex times one": (lambda x: x * (1 + 0j), Z),
    "0.0 + 0j is added": (lambda x: x + (0.0 + 0j), Z),
    "minus 2": (lambda x: x * -2, X),
    "less by 1": (lambda x: x - 1, X),
    "another order": (lambda x: x.T, X),
    "a square in another order": (lambda x: x.T, X[:, :3]),
    "a part": (lambda x: x[1:], X),
    "conversions of conversions": (lambda x: x.astype("int8").astype("float32"), X),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_changes_bits_stays(name: str) -> None:
    function, x = KEPT[name]
    assert untouched(simplify, function, x)


WRITTEN: dict[str, tuple[Any, Any, list[str]]] = {
    "times minus one": (lambda x: x * -1, X, ["neg a"]),
    "a sum plus zero": (lambda x: x.sum(0) + 0.0, X, ["reduce_sum[axes=(0,)] a"]),
    "reshapes": (lambda x: x.reshape(2, 6).reshape(12), X, ["reshape[shape=(12,)] a"]),
    "orders": (
        lambda x: x.reshape(1, 3, 4).transpose(1, 2, 0).transpose(1, 0, 2),
        X,
        ["reshape[shape=(1,3,4)] a", "transpose[permutation=(2,1,0)] b"],
    ),
    "broadcasts": (
        lambda x: lax.broadcast_in_dim(
            lax.broadcast_in_dim(x, (2, 3, 4), (1, 2)), (2, 3, 5, 4), (0, 1, 3)
        ),
        X,
        ["broadcast_in_dim[shape=(2,3,5,4) dims=(1,3)] a"],
    ),
    "cropped": (
        lambda x: lax.pad(x, np.float32(0), ((-1, 2, 0), (0, -1, 0))),
        X,
        [
            "pad[padding=((0,2,0),(0,0,0))] a 0.0",
            "slice[starts=(1,0) limits=(5,3) steps=(1,1)] b",
        ],
    ),
    "pieces that touch": (
        lambda x: tnp.pad(x, ((0, 0), (0, 2))) + tnp.pad(x[:, :2], ((0, 0), (4, 0))),
        X,
        [
            "slice[starts=(0,0) limits=(3,2) steps=(1,1)] a",
            "concatenate[axis=1] a b",
        ],
    ),
    "pieces with zeros around": (
        lambda x: tnp.pad(x, ((5, 2), (0, 0))) + tnp.pad(x, ((2, 5), (0, 0))),
        X,
        ["concatenate[axis=0] a a", "pad[padding=((2,2,0),(0,0,0))] b 0.0"],
    ),
    "three pieces": (
        lambda x: (
            tnp.pad(x, ((3, 3), (0, 0)))
            + tnp.pad(x, ((6, 0), (0, 0)))
            + tnp.pad(x, ((0, 6), (0, 0)))
        ),
        X,
        ["concatenate[axis=0] a a a"],
    ),
    "filled with a number": (
        lambda x: x * tnp.full((3, 4), 2.0, "float32"), X, ["mul a 2.0"]
    ),
    "a number before": (
        lambda x: tnp.full((3, 4), 2.0, "float32") - x, X, ["sub 2.0 a"]
    ),
    "chosen of numbers": (
        lambda x: lax.select(
            x > 0, tnp.full((3, 4), 2.0, "float32"), tnp.full((3, 4), 3.0, "float32")
        ),
        X,
        ["gt a 0.0", "select b 2.0 3.0"],
    ),
    "of numbers alone": (
        lambda x: tnp.exp(tnp.full((3, 4), 0.0, "float32")) + x, X, ["add 1.0 a"]
    ),
    "a number that is given": (
        lambda x: tnp.broadcast_to(x[0, 0], (3, 4)) * 2 + x,
        X,
        ["slice[starts=(0,0) limits=(1,1) steps=(1,1)] a", "reshape[shape=()] b",
         "mul c 2.0", "add d a"],
    ),
    "half of an array is picked": (
        lambda x: lax.slice_in_dim(x.astype("float64"), 0, 1, axis=0) * 2,
        X,
        ["convert[dtype=float64] a",
         "slice[starts=(0,0) limits=(1,4) steps=(1,1)] b", "mul c 2.0"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_instead(name: str) -> None:
    function, x, wanted = WRITTEN[name]
    assert after(function, x) == wanted


def test_pieces_that_do_not_fit_are_added() -> None:
    for function in (
        lambda x: tnp.pad(x, ((0, 2), (0, 0))) + tnp.pad(x, ((2, 0), (0, 0))),
        lambda x: tnp.pad(x, ((0, 3), (0, 0))) + tnp.pad(x[:, :1], ((0, 3), (3, 0))),
        lambda x: tnp.pad(x, ((0, 4), (0, 0))) + tnp.pad(x, ((4, 0), (0, 0))),
        lambda x: (
            tnp.pad(x, ((0, 3), (0, 0)), constant_values=1)
            + tnp.pad(x, ((3, 0), (0, 0)))
        ),
        lambda x: tnp.pad(x, ((0, 3), (0, 1))) + tnp.pad(x, ((3, 0), (1, 0))),
    ):
        found = after(function, X)
        assert found[-1].startswith("add ")
        assert not any("concatenate" in line for line in found)
    inner = lambda x: lax.pad(x, np.float32(0), ((0, 4, 1), (0, 0, 0)))  # noqa: E731
    after_it = lambda x: lax.pad(x, np.float32(0), ((5, 1, 0), (0, 0, 0)))  # noqa: E731
    assert after(lambda x: inner(x) + after_it(x), X)[-1].startswith("add ")


def test_numbers_are_computed_and_divisors_vary() -> None:
    graph = simplify(traced(lambda x: x / 4 * (np.float32(2) / 3), X))
    divided, times = graph.equations
    four, number = divided.inputs[1], times.inputs[1]
    assert isinstance(four, Lit)
    assert isinstance(number, Lit)
    assert (four.varies, number.varies) == (True, False)
    assert number.value == np.float32(2) / np.float32(3)
    graph = simplify(traced(lambda x: x * (td.numpy.full((), 1.0) / 4), X))
    (number,) = [a for eq in graph.equations for a in eq.inputs if isinstance(a, Lit)]
    assert (number.value, number.varies) == (0.25, True)
    # One that varies is not taken for what it is here.
    assert (
        len(simplify(traced(lambda x: x * (td.numpy.full((), 4.0) / 4), X)).equations)
        == 1
    )


def test_sizes_are_numbers_that_vary_if_they_are_open() -> None:
    function = lambda x: x * x.shape[0]  # noqa: E731
    graph, scope = opened(function, ("n", 2), n=3)
    (eq,) = drop_dead(simplify(graph)).equations
    number = eq.inputs[1]
    assert isinstance(number, Lit)
    assert (float(number.value), number.varies) == (3, True)
    assert number.size is not None
    assert not scope.guards
    assert after(function, X) == ["mul a 3.0"]


def test_numbers_of_open_sizes_are_computed_later() -> None:
    graph, _ = opened(lambda x: x * (x.shape[0] * 2.0 + 1), ("n",), n=3)
    found = drop_dead(simplify(graph))
    number = found.equations[-1].inputs[1]
    assert isinstance(number, Lit)
    assert number.value == 7
    assert number.size is not None


def test_what_is_picked_of_a_converted_table_is_converted() -> None:
    few, many = np.array([2, 0]), np.arange(9) % 3
    pick = lambda x, i: tnp.take(x.astype("float16"), i, 0, mode="clip")  # noqa: E731
    names = [line.split("[")[0] for line in after(pick, X, few)]
    assert names[-2:] == ["gather", "convert"]
    assert names.count("convert") == 1
    assert after(pick, X, many)[0] == "convert[dtype=float16] a"


def test_what_is_scattered_into_zeros_is_scattered_into_the_sum() -> None:
    where = np.array([1, 1, 2])

    def function(x: Any, u: Any) -> Any:
        return x + tnp.zeros_like(x).at[where].add(u)

    u = normal(3, 4, seed=1)
    names = [line.split("[")[0] for line in after(function, X, u)]
    assert "add" not in [n.split()[0] for n in names]
    half = [a.astype(np.float16) for a in (X, u)]
    assert any(line.startswith("add ") for line in after(function, *half))

    def used(x: Any, u: Any) -> Any:
        y = tnp.zeros_like(x).at[where].add(u)
        return x + y, y

    assert any(line.startswith("add ") for line in after(used, X, u))
    ones = lambda x, u: x + tnp.ones_like(x).at[where].add(u)  # noqa: E731
    assert any(line.startswith("add ") for line in after(ones, X, u))


def test_a_result_keeps_its_shape() -> None:
    """A number that is added to zeros is no array."""
    found = after(
        lambda x: tnp.broadcast_to(x[0, 0], (3, 4)) + tnp.zeros((3, 4)) - 0, X
    )
    assert found[-1].startswith("broadcast_in_dim[shape=(3,4) dims=()]")


ENDS = {
    "clipped": (lambda x: tnp.clip(tnp.round(x), 0, 255).astype("uint8"), 2),
    "rounded afterwards": (lambda x: tnp.round(tnp.clip(x, 0, 255)).astype("uint8"), 2),
    "beyond": (lambda x: tnp.clip(x, -1000, 1000).astype("int8"), 1),
    "of a rectifier": (lambda x: tnp.maximum(x, 0).astype("uint8"), 1),
    "of both": (lambda x: tnp.minimum(tnp.maximum(x, -128), 127).astype("int8"), 1),
    "nearer": (lambda x: tnp.clip(x, 0, 254).astype("uint8"), 2),
    "from a bound on": (lambda x: tnp.clip(x, 0, 255).astype("int8"), 2),
    "of integers": (lambda x: tnp.clip(x.astype("int32"), 0, 255).astype("uint8"), 3),
    "for floats": (lambda x: tnp.clip(x, 0, 255).astype("float16"), 2),
}


@pytest.mark.parametrize("name", ENDS)
def test_bounds_at_the_ends_of_integers_are_left_out(name: str) -> None:
    """Floats that become integers saturate there."""
    function, count = ENDS[name]
    some = [-1e30, -129, -128.6, -1.5, -0.5, 0.5, 1.5, 127.4, 127.6, 254.5, 255.6]
    x = np.array([*some, 1e30, np.nan, np.inf, -np.inf], np.float32)
    assert len(after(function, x)) == count
    expected = function(td.numpy.asarray(x))  # one operation after the other
    np.testing.assert_array_equal(np.asarray(td.jit(function)(x)), np.asarray(expected))
