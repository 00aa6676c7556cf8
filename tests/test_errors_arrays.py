"""Mistakes with arrays: shapes, dtypes, indices, lists, assignment."""

from __future__ import annotations

import logging
import math
import re
import warnings
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.refused import refused
from treadle import nn, rng
from treadle.errors import TracerError

X, Y, V = tnp.ones((2, 3)), tnp.ones((4, 5)), tnp.ones(3)
LINEAR = nn.Linear(3, 8, key=rng.key(0))
CONV = nn.Conv2d(3, 8, 3, key=rng.key(0))

SHAPES: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "matmul": (lambda a, b: a @ b, "matmul: shapes (2, 3) and (4, 5)"),
    "dot": (lambda a, b: tnp.dot(a, b), "length 3, axis -2 of the second has length 4"),
    "add": (lambda a, b: a + b, "shapes (2, 3) and (4, 5) don't broadcast"),
    "numpy left": (lambda a, b: np.ones(7) * a, "shapes (7,) and (2, 3)"),
    "where": (lambda a, b: tnp.where(a > 0, a, b), "where: shapes"),
    "concatenate": (lambda a, b: tnp.concatenate([a, b]), "differ in other axes"),
    "stack": (lambda a, b: tnp.stack([a, b]), "stack: shapes (2, 3) and (4, 5)"),
    "reshape": (lambda a, b: a.reshape(4, 2), "(6 elements) to [4, 2] (8 elements)"),
    "broadcast_to": (lambda a, b: tnp.broadcast_to(a, (3, 3)), "(2, 3) does not"),
    "einsum": (lambda a, b: tnp.einsum("ij,jk->ik", a, b), "axis 'j' of 'ij,jk->ik'"),
    "sum": (lambda a, b: a.sum(2), "axis 2 is out of range"),
    "index": (lambda a, b: a[0, 0, 0], "3 indices for an array with 2 axes"),
    "Linear": (lambda a, b: LINEAR(b), "in_features=3), got f32[4,5]"),
    "Conv2d": (lambda a, b: CONV(tnp.ones((8, 8, 4))), "channels=3), got f32[8,8,4]"),
    "loss": (
        lambda a, b: nn.cross_entropy(a, tnp.array([0, 1, 2])),
        "logits f32[2,3] and labels i32[3]",
    ),
}

UNDER: dict[str, Callable[[Any], Any]] = {
    "eager": lambda f: f(X, Y),
    "jit": lambda f: td.jit(f)(X, Y),
    "grad": lambda f: td.grad(lambda a: f(a, Y).sum())(X),
    "vmap": lambda f: td.vmap(f)(tnp.ones((6, 2, 3)), tnp.ones((6, 4, 5))),
    "scan": lambda f: td.scan(lambda c, a: (c, f(a, Y)), None, tnp.ones((6, 2, 3))),
    "grad of jit": lambda f: td.grad(lambda a: td.jit(f)(a, Y).sum())(X),
    "jit of vmap": lambda f: td.jit(td.vmap(lambda a: f(a, Y)))(tnp.ones((6, 2, 3))),
}


@pytest.mark.parametrize("under", UNDER)
@pytest.mark.parametrize("name", SHAPES)
def test_shapes_and_the_line_are_named(name: str, under: str) -> None:
    mistake, part = SHAPES[name]
    error = (ValueError, IndexError)
    refused(lambda: UNDER[under](mistake), error, part, at=mistake)  # type: ignore[arg-type]


MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    "float index": (lambda: X[1.0], TypeError, ("float 1.0", "integer")),
    "float indices": (
        lambda: X[tnp.array([0.0])],
        TypeError,
        ("f32[1]", "`index.astype(int)`"),
    ),
    "out of range": (lambda: X[5], IndexError, ("index 5", "length 2")),
    "string index": (lambda: X["a"], TypeError, ("str 'a'",)),
    "bool minus": (lambda: -(X > 0), TypeError, ("neg", "bool", "astype")),
    "bool difference": (lambda: (X > 0) - (X < 0), TypeError, ("bool", "astype")),
    "float bits": (lambda: X & X, TypeError, ("float32", "astype")),
    "list": (lambda: tnp.sum([1, 2]), TypeError, ("[1, 2]", "tnp.array(...)")),
    "list operand": (lambda: X * [1, 2, 3], TypeError, ("multiply", "tnp.array(...)")),
    "another library's": (lambda: tnp.sin(jnp.ones(2)), TypeError, ("tnp.asarray",)),
    "another library's argument": (
        lambda: td.jit(lambda a: a)({"a": jnp.ones(2)}),
        TypeError,
        ("Array([1., 1.]", "tnp.asarray(...)"),
    ),
    "unknown dtype": (
        lambda: td.jit(lambda a: a)(np.array(["x"])),
        TypeError,
        ("<U1", "not supported", "float32"),
    ),
    "format": (lambda: f"{V:.2f}", TypeError, ("'.2f'", "f32[3]", "x[0]")),
    "row of a scalar": (lambda: list(tnp.ones(())), TypeError, ("0-dimensional",)),
    "hash": (lambda: {X: 1}, TypeError, ("not hashable", "f32[2,3]")),
    "shape of floats": (
        lambda: rng.normal(rng.key(0), (3.0,)),  # type: ignore[arg-type]
        TypeError,
        ("(3.0,)", "tuple of integers"),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_value_line_and_remedy_are_named(name: str) -> None:
    mistake, error, parts = MISTAKES[name]
    refused(mistake, error, *parts)


def test_arrays_do_not_change() -> None:
    def assign(x: Any) -> Any:
        x[0] = 1.0
        return x

    def increase(x: Any) -> Any:
        x[0] += 1.0
        return x

    def delete(x: Any) -> Any:
        del x[0]
        return x

    for change, remedy in ((assign, "x.at["), (increase, "x.at["), (delete, "concat")):
        for transform in (lambda f: f, td.jit, td.vmap):
            values = V if transform is not td.vmap else X
            refused(
                lambda f=change, t=transform, v=values: t(f)(v),
                TypeError,
                "immutable",
                "f32[3]",
                remedy,
                at=change,
            )


def test_numpy_memory_does_not_take_traced_values() -> None:
    buffer = np.zeros(3)

    def add(x: Any) -> Any:
        total = buffer
        total += x
        return total

    refused(lambda: td.jit(add)(V), TracerError, "`out=`", "x = x + y", at=add)

    def assign(x: Any) -> Any:
        buffer[0] = x[0]
        return x

    refused(lambda: td.jit(assign)(V), TracerError, "b.at[index].set(x)", at=assign)
    assert not buffer.any()


def test_numpy_memory_does_not_lose_derivatives() -> None:
    def assign(x: Any) -> Any:
        b = np.zeros(3)
        b[0] = x[0]
        return b.sum() + x.sum()

    refused(
        lambda: td.grad(assign)(V),
        TracerError,
        "derivative",
        "stop_gradient",
        at=assign,
    )
    history = np.zeros(2)

    def logged(x: Any) -> Any:
        history[1] = td.stop_gradient(x[0])
        return x.sum()

    assert (np.asarray(td.grad(logged)(V)) == 1).all()
    assert history[1] == float(V[0])


DERIVATIVES: dict[str, Callable[[Any], Any]] = {
    "grad": lambda f: td.grad(f)(V),
    "jvp": lambda f: td.jvp(f, (V,), (V,)),
    "second": lambda f: td.grad(lambda x: td.grad(f)(x).sum())(V),
    "without jit": lambda f: _without_jit(td.grad(td.jit(f))),
}


def _without_jit(f: Callable[[Any], Any]) -> Any:
    with td.disable_jit():
        return f(V)


LOSES: dict[str, Callable[[Any], Any]] = {
    "float": lambda x: float(x[0]) * x[0],
    "math": lambda x: math.sin(x[0]),
    "complex": lambda x: abs(complex(x[0])) * x[0],
    "item": lambda x: x[0].item() * x[0],
    "tolist": lambda x: sum(x.tolist()) * x[0],
    "tobytes": lambda x: len(x.tobytes()) * x[0],
    "asarray": lambda x: (np.asarray(x) * x).sum(),
    "np.array": lambda x: (np.array([x[0], x[1], 1.0]) * x).sum(),
    "np.float32": lambda x: np.float32(x[0]) * x[0],
}


def _old(x: Any) -> str:
    return "%.2f" % x  # noqa: UP031


KEEPS: dict[str, Callable[[Any], Any]] = {
    "if": lambda x: x[0] if x[0] > 0 else x[0] * 2,
    "stop": lambda x: float(td.stop_gradient(x[0])) * x[0],
    "stop item": lambda x: td.stop_gradient(x)[0].item() * x[0],
    "integers": lambda x: float((x > 0).sum()) * x[0],
    "int": lambda x: int(x[1]) * x[0],
    "shown": lambda x: x[0] * len(f"{x[0]:.2f}" + _old(x[0]) + str(x[1])),
    "logged": lambda x: logging.getLogger("treadle-test").info("%.2f", x[0]) or x[0],
}


@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("name", LOSES)
def test_eager_derivatives_are_never_lost(name: str, derivative: str) -> None:
    function = LOSES[name]
    refused(
        lambda: DERIVATIVES[derivative](function),
        TracerError,
        "lose its derivative",
        "td.stop_gradient(x)",
        at=function,
    )


@pytest.mark.parametrize("name", KEEPS)
def test_eager_derivatives_of_what_only_looks(name: str, caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    function = KEEPS[name]
    got = np.asarray(td.grad(function)(V))
    scale = float(np.asarray(function(V))) / float(V[0])
    if name == "shown":  # a traced value's text is another, and only the text is
        assert got[0] > 1
    else:
        np.testing.assert_allclose(got, [scale, 0, 0])
    if name == "logged":
        assert caplog.messages[0] == f"{float(V[0]):.2f}"


STATIC: dict[str, Any] = {
    "top_k: k": lambda x, k: tnp.top_k(x, k),
    "top_k: k ": lambda x, k: td.lax.top_k(x, k),
    "sort: axis": lambda x, k: tnp.sort(x, axis=k),
    "sum: axis": lambda x, k: x.sum(k),
    "diag: k": lambda x, k: tnp.diagflat(x, k),
    "diagonal: offset": lambda x, k: tnp.trace(x[None], k),
    "diff: n": lambda x, k: tnp.diff(x, k),
    "fft: the length of a transform": lambda x, k: tnp.fft.fft(x, k),
    "matrix_power: the exponent": lambda x, k: tnp.linalg.matrix_power(x[:1, None], k),
}


@pytest.mark.parametrize("name", STATIC)
def test_integers_that_are_known_while_tracing(name: str) -> None:
    def mistake(x: Any, k: Any) -> Any:
        return STATIC[name](x, k)

    message = rf"{name.strip()} must be known while the function is traced, got i32\[\]"
    with warnings.catch_warnings(), pytest.raises(td.errors.TracerError) as caught:
        warnings.simplefilter("error")
        td.jit(mistake)(np.ones(3, np.float32), 1)
    assert re.match(message, str(caught.value))
    assert f"at {__file__}:" in str(caught.value)
    assert "td.jit(static=...)" in str(caught.value)
    td.jit(mistake, static="k")(np.ones(3, np.float32), 1 if "axis" not in name else 0)


WORDS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "relu": (nn.relu, TypeError, "got a str: 'words'"),
    "relu6": (nn.relu6, TypeError, "got a str: 'words'"),
    "leaky_relu": (nn.leaky_relu, TypeError, "got a str: 'words'"),
    "elu": (nn.elu, TypeError, "got a str: 'words'"),
    "log_sigmoid": (nn.log_sigmoid, TypeError, "got a str: 'words'"),
    "hard_tanh": (nn.hard_tanh, TypeError, "got a str: 'words'"),
    "glu": (nn.glu, TypeError, "got a str: 'words'"),
    "log_softmax": (nn.log_softmax, TypeError, "got a str: 'words'"),
    "logsumexp": (nn.logsumexp, TypeError, "got a str: 'words'"),
    "logmeanexp": (nn.logmeanexp, TypeError, "got a str: 'words'"),
    "log1mexp": (nn.log1mexp, TypeError, "got a str: 'words'"),
    "meshgrid": (lambda x: tnp.meshgrid(V, indexing=x), ValueError, "'words'"),
    "one_hot": (lambda x: nn.one_hot(np.arange(2), -3), ValueError, "got -3"),
    "unflatten": (
        lambda x: td.tree.unflatten(td.tree.structure([1, 2]), [x]),
        td.errors.StructureError,
        "has 2 leaves, got 1",
    ),
}


@pytest.mark.parametrize("name", WORDS)
def test_what_is_no_array_is_named_with_the_line(name: str) -> None:
    function, error, part = WORDS[name]

    def mistake() -> Any:
        return function("words")

    here = function.__name__ == "<lambda>"
    refused(mistake, error, part, at=function if here else mistake)


@pytest.mark.parametrize("q", [1.5, -1, [0.5, 2.0], math.nan])
@pytest.mark.parametrize("name", ["quantile", "nanquantile", "percentile"])
def test_shares_that_are_known_are_shares(name: str, q: Any) -> None:
    percent = 100 if name == "percentile" else 1
    q = [v * percent for v in q] if isinstance(q, list) else q * percent
    with pytest.raises(ValueError, match="must be in the range"):
        getattr(np, name)(np.ones(3), q)
    wrong = q[1] if isinstance(q, list) else q

    def mistake() -> Any:
        return getattr(tnp, name)(V, q)

    refused(mistake, ValueError, f"{name}: q is from 0 to {percent}, got {wrong!r}")


@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
@pytest.mark.parametrize("method", ["linear", "weights"])
def test_a_share_that_is_not_a_number_gives_none(name: str, method: str) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    options: dict[str, Any] = {"method": method}
    if method == "weights":
        options = {"method": "inverted_cdf", "weights": np.ones((2, 3))}
    out = td.jit(lambda x, q: getattr(tnp, name)(x, q, axis=1, **options))(
        x, np.array([np.nan, 0.5], np.float32)
    )
    other = {} if method == "weights" else options
    want = getattr(jnp, name)(x, jnp.array([jnp.nan, 0.5]), axis=1, **other)
    np.testing.assert_array_equal(out, want)
