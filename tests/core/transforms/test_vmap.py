"""vmap: where the batch axes are, how it nests, what it refuses."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp

X = np.random.default_rng(0).normal(size=(4, 3, 2)).astype("float32")
Y = np.random.default_rng(1).normal(size=(2, 4)).astype("float32")


def test_axes_as_pytrees() -> None:
    def f(d: dict[str, Any], z: Any) -> dict[str, Any]:
        return {"sum": d["x"] @ d["y"], "same": z, "pair": (d["x"], z + 1.0)}

    out = td.vmap(
        f,
        in_axes=({"x": 0, "y": -1}, None),
        out_axes={"sum": 1, "same": None, "pair": (2, 0)},
    )({"x": X, "y": Y}, 5.0)
    wanted = np.stack([X[n] @ Y[:, n] for n in range(4)], 1)
    np.testing.assert_allclose(out["sum"], wanted, rtol=1e-5)
    assert np.asarray(out["same"]) == 5.0
    np.testing.assert_array_equal(out["pair"][0], np.moveaxis(X, 0, 2))
    np.testing.assert_array_equal(out["pair"][1], np.full(4, 6, "float32"))


def test_prefixes_and_keywords() -> None:
    def f(pair: tuple[Any, Any], *, scale: Any) -> Any:
        return (pair[0] + pair[1]).sum() * scale

    scale = np.arange(3, dtype="float32")
    out = td.vmap(f, in_axes=(1,))((X, X), scale=scale)
    wanted = [2 * X[:, n].sum() * n for n in range(3)]
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4)


def test_what_is_no_array_is_the_same_for_all() -> None:
    def f(x: Any, how: str, by: dict[str, Any], apply: Any) -> Any:
        out = apply(x) * by["scale"]
        return out.sum() if how == "sum" and by["name"] is None else out

    axes = (0, None, None, None)
    given = ("sum", {"scale": 2.0, "name": None})
    wanted = jax.vmap(f, axes)(X, *given, jnp.sin)
    mapped = td.vmap(f, axes)
    for call in (mapped, td.jit(lambda x: mapped(x, *given, tnp.sin))):
        args = () if call is not mapped else (*given, tnp.sin)
        np.testing.assert_allclose(call(X, *args), wanted, rtol=1e-5)
    slope = td.grad(lambda x: mapped(x, *given, tnp.sin).sum())(X)
    np.testing.assert_allclose(slope, 2 * np.cos(X), rtol=1e-5)
    with pytest.raises(TypeError, match=r"`how` .* str(.|\n)*None for it in `in_axes`"):
        td.vmap(f, (0, 0, None, None))(X, "sum", {}, tnp.sin)
    with pytest.raises(TypeError, match=r"a ShapeDtype(.|\n)*no values"):
        td.vmap(f, axes)(X, "sum", {"scale": td.ShapeDtype((), "float32")}, tnp.sin)
    for dtype in (np.float16, np.dtype("float16"), tnp.float16, "float16", float):
        out = td.vmap(lambda x, dtype: x.astype(dtype), axes[:2])(X, dtype)
        assert out.dtype == ("float32" if dtype is float else "float16")


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
def test_unbatched_results_are_repeated(axis: int) -> None:
    out = td.vmap(lambda x: tnp.ones((3, 2)), out_axes=axis)(X)
    assert out.shape == tnp.moveaxis(tnp.ones((4, 3, 2)), 0, axis).shape


def test_the_number_of_examples() -> None:
    assert np.array_equal(td.vmap(lambda: 2.0, axis_size=3)(), [2, 2, 2])
    same = td.vmap(lambda x: 2 * x, in_axes=None, axis_size=2)
    assert np.array_equal(same(np.float32([1, 2])), [[2, 4], [2, 4]])
    assert np.array_equal(td.vmap(lambda x: x + 1, axis_size=2)(np.ones(2)), [2, 2])
    n = td.jit(lambda x: td.vmap(lambda: 1.0, axis_size=x.shape[0])().sum())
    assert [float(n(np.ones(k))) for k in (2, 5, 3)] == [2, 5, 3]


def test_nested() -> None:
    def pairwise(f: Any) -> Any:
        return td.vmap(td.vmap(f, in_axes=(None, 0)), in_axes=(0, None))

    rows = X.reshape(4, 6)
    out = pairwise(lambda a, b: (a * b).sum())(rows, rows)
    np.testing.assert_allclose(out, rows @ rows.T, rtol=1e-5)
    np.testing.assert_allclose(
        td.jit(pairwise(lambda a, b: tnp.maximum(a, b).max()))(rows, rows),
        np.maximum(rows[:, None], rows[None]).max(-1),
    )


def test_per_example_gradients() -> None:
    def loss(w: Any, x: Any) -> Any:
        return tnp.sin(x @ w).sum()

    w = np.float32([0.3, -0.2])
    per_example = td.vmap(td.grad(loss), in_axes=(None, 0))
    wanted = np.stack([td.grad(loss)(w, x) for x in X])
    np.testing.assert_allclose(per_example(w, X), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(td.jit(per_example)(w, X), wanted, rtol=1e-5, atol=1e-6)


def test_closed_over_arrays_are_shared() -> None:
    np.testing.assert_allclose(
        td.vmap(lambda n: tnp.array(X)[n].sum())(np.arange(4)), X.sum((1, 2)), rtol=1e-5
    )


def test_errors_say_what_does_not_fit() -> None:
    def f(*args: Any) -> Any:
        return args[0]

    with pytest.raises(ValueError, match=r"(?s)differ in length.*4.*2"):
        td.vmap(f)(X, Y)
    with pytest.raises(ValueError, match="maps no argument"):
        td.vmap(f, in_axes=None)(X)
    with pytest.raises(
        ValueError, match=r"axis 3 of argument `args\[0\]` of f, of type f32"
    ):
        td.vmap(f, in_axes=3)(X)
    with pytest.raises(ValueError, match=r"in_axes=\(0, 0\) has 2 entries"):
        td.vmap(f, in_axes=(0, 0))(X)
    with pytest.raises(ValueError, match="out_axes=None, but a result of f differs"):
        td.vmap(f, out_axes=None)(X)
    with pytest.raises(TypeError, match=r"argument `args\[0\]` of f is a str"):
        td.vmap(f)("text")
