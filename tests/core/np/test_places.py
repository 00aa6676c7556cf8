"""Arguments by their place mean what they mean in NumPy, JAX and Optax."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, optim, rng

X = np.random.default_rng(0).normal(size=(2, 3)).astype("float32")
OTHERWISE = {
    **dict.fromkeys(("histogram", "histogram2d", "histogramdd"), "NumPy's order"),
    "adafactor": "`eps` has its place among numbers of an optimizer",
    "rmsprop": "PyTorch's and Optax's differ",
}
"""Functions whose arguments lie otherwise than in JAX or Optax, and why."""
MODULES: dict[str, tuple[Any, Any]] = {
    "numpy": (jnp, tnp),
    "linalg": (jnp.linalg, tnp.linalg),
    "fft": (jnp.fft, tnp.fft),
    "lax": (jax.lax, td.lax),
    "nn": (jax.nn, nn),
    "random": (jax.random, rng),
    "tree": (jax.tree, td.tree),
    "optax": (optax, optim),
    **{
        name: (importlib.import_module(f"jax.scipy.{name}"), getattr(td.scipy, name))
        for name in ("special", "linalg", "signal", "integrate", "ndimage", "stats")
    },
}


def places(function: Any) -> list[str] | None:
    """The names of what may be given by its place."""
    kinds = inspect.Parameter
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    counted = (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    return [p.name for p in found if p.kind in counted]


@pytest.mark.parametrize("module", MODULES)
def test_shared_arguments_have_one_order(module: str) -> None:
    theirs, ours = MODULES[module]
    compared = 0
    for name in dir(theirs):
        pair = getattr(theirs, name), getattr(ours, name, None)
        if name.startswith("_") or name in OTHERWISE or not all(map(callable, pair)):
            continue
        first, second = map(places, pair)
        if first is None or second is None or inspect.isclass(pair[0]):
            continue
        compared += 1
        shared = [n for n in first if n in second]
        assert shared == [n for n in second if n in first], name
    assert compared


def test_by_place() -> None:
    mask = X > 0
    for name in ("softmax", "log_softmax", "logmeanexp"):
        found = getattr(nn, name)(X, 1, mask)
        np.testing.assert_allclose(found, getattr(jax.nn, name)(X, 1, mask), rtol=1e-5)
    found = nn.standardize(X, 1, 0.5, 2.0)
    wanted = jax.nn.standardize(X, 1, jnp.float32(0.5), 2.0)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    for f, g in ((tnp.sum, np.sum), (tnp.prod, np.prod)):
        found = f(X, 1, None, True, 2.0, mask)
        wanted = g(X, 1, None, None, True, 2.0, mask)
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("order", [1, 2, np.inf, "fro"], ids=str)
@pytest.mark.parametrize("least", [0.0, 1.5])
def test_safe_norms_of_other_orders(order: Any, least: float) -> None:
    axis = (0, 1) if order == "fro" else 1

    def value(peer: Any) -> Any:
        return lambda x: peer.safe_norm(x, least, order, axis, True).sum()

    np.testing.assert_allclose(value(optim)(X), value(optax)(X), rtol=1e-6)
    wanted = jax.grad(value(optax))(X)
    np.testing.assert_allclose(td.grad(value(optim))(X), wanted, rtol=1e-5, atol=1e-6)
    assert np.isfinite(np.asarray(td.grad(value(optim))(0 * X))).all()


@pytest.mark.parametrize("order", [None, 1, 2, np.inf], ids=str)
def test_safe_norms_hide_nothing(order: Any) -> None:
    x = np.array([[np.nan, 1, 2], [np.inf, 1, 2], [0, 0, 0]], "float32")
    for least in (0.0, 1.5):
        found, wanted = (p.safe_norm(x, least, order, 1) for p in (optim, optax))
        np.testing.assert_allclose(found, wanted)
        assert np.isnan(optim.safe_root_mean_squares(x[0], least))


NO_OUT: dict[str, Any] = {
    "sum": lambda p: p.sum(X, 0, None, None, True),
    "prod": lambda p: p.prod(X, 0, None, None, True),
    "mean": lambda p: p.mean(X, 0, None, None, True),
    "max": lambda p: p.max(X, 0, None, True),
    "min": lambda p: p.min(X[:, :0], 0, None, True),
    "any": lambda p: p.any(X, 0, None, True),
    "all": lambda p: p.all(X, 0, None, True),
    "argmax": lambda p: p.argmax(X, 0, None),
    "ptp": lambda p: p.ptp(X, 0, None),
    "std": lambda p: p.std(X, 0, None, None),
}


@pytest.mark.parametrize("name", NO_OUT)
def test_where_others_have_a_place_for_results(name: str) -> None:
    """NumPy's None in it would be taken for `keepdims`, and True for a first value."""
    NO_OUT[name](np)
    with pytest.raises(TypeError, match=f"{name}: .*not None") as caught:
        NO_OUT[name](tnp)
    assert __file__ in str(caught.value)
    assert "no `out` before it: give it by its name" in str(caught.value)
    assert tnp.sum(X, 0, None, np.True_).shape == (1, 3)


WHOLE: dict[str, Any] = {
    "round": lambda: tnp.round(X, 0.5),
    "rot90": lambda: tnp.rot90(X, 0.5),
    "repeat": lambda: tnp.repeat(X, 1.5),
    "roll": lambda: tnp.roll(X, 0.5),
    "roll traced": lambda: td.jit(lambda by: tnp.roll(X, by, 1))(0.5),
    "partition": lambda: tnp.partition(X, 1.5),
    "split": lambda: tnp.split(X, 1.5),
    "array_split": lambda: tnp.array_split(X, 1.5),
    "array_split at": lambda: tnp.array_split(X, [1.5]),
    "vander": lambda: tnp.vander(X[0], 1.5),
    "polyfit": lambda: tnp.polyfit(X[0], X[0], 1.5),
    "pad": lambda: tnp.pad(X, 1.5),
    "tensordot": lambda: tnp.tensordot(X, X, 1.5),
    "bincount": lambda: tnp.bincount(tnp.array([1]), minlength=1.5),
    "diff": lambda: tnp.diff(X, axis=None),
    "unwrap": lambda: tnp.unwrap(X, axis=None),
    "trapezoid": lambda: tnp.trapezoid(X, axis=None),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_must_be_a_whole_number(name: str) -> None:
    message = rf"{name.split()[0]}: .* (must be an integer|not a whole number)"
    with pytest.raises(TypeError, match=message) as caught:
        WHOLE[name]()
    assert __file__ in str(caught.value)


def test_axes_are_checked_where_nothing_is_rolled() -> None:
    for x, shift in ((X, []), (X[:0], 1)):
        with pytest.raises(np.exceptions.AxisError, match="roll: axis 5"):
            tnp.roll(x, shift, 5)
