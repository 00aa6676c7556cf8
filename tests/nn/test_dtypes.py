"""Every layer and function in halves: the dtypes of results follow from the model, and
its numbers are those of float32, rounded."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.dynamic import rows, written
from tests.nn.sizes import gathered
from treadle import nn, rng, tree

EXPRESSIONS: list[str] = gathered("EXPRESSIONS")
ARGS, LAYERS, SIZES = gathered("ARGS"), gathered("LAYERS"), gathered("SIZES")
NAMES = {"td": td, "tnp": tnp, "nn": nn, "rng": rng, **gathered("NAMES")}
HALF = td.bfloat16
LENGTHS = (3, 5, 4, 2)
FLOAT32_BY_NATURE = ("nn.sinusoidal(", "nn.one_hot(", "alibi", "* 1.0", "balance_loss")
"""Expressions that make floats of integers, or what is added to scores."""
RANDOM = ("drop(", "noise(", "draw")
AS_GIVEN = {"Adapter"}
"""Layers with parameters that don't change the dtype of what they are put behind."""

Change = Callable[[nn.Module], nn.Module]


class Watched(nn.Module):
    """A layer that says which dtypes it gives."""

    layer: nn.Module
    tell: Callable[[nn.Module, Any], None]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        layer: Any = self.layer
        out = layer(*args, **kwargs)
        self.tell(self.layer, out)
        return out

    def __getattr__(self, name: str) -> Any:
        if name in ("layer", "tell") or name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.layer, name)


def _floats(values: Any) -> list[Any]:
    return [x for x in tree.leaves(values) if td.dtypes.is_float(x.dtype)]


def _case(expression: str, names: dict[str, Any]) -> tuple[Any, list[np.ndarray]]:
    """The function that an expression is, and arguments of it."""
    function, args = written(expression, ARGS, {**NAMES, **names})
    axes = dict.fromkeys(n for a in args for n in a.names if n)
    sizes = SIZES[expression][0] if expression in SIZES else LENGTHS
    bound = dict(zip(axes, sizes, strict=False))
    draw = np.random.default_rng(0)
    return function, [a.array(draw, bound) for a in args]


@cache
def _mapped(change: Change) -> dict[str, Any]:
    """The layers, changed."""
    return {
        name: change(layer) if isinstance(layer, nn.Module) else layer
        for name, layer in LAYERS.items()
    }


def _in_half(layer: nn.Module) -> nn.Module:
    return nn.cast(layer, HALF)


def _in_wide(layer: nn.Module) -> nn.Module:
    """In float32, with the numbers that it has in halves."""
    return nn.cast(_in_half(layer), tnp.float32)


WATCHED: list[tuple[nn.Module, Any]] = []
"""The layers that ran, and what they gave."""


def _watched(layer: nn.Module) -> nn.Module:
    return Watched(layer, lambda layer, out: WATCHED.append((layer, out)))


def _half(layer: nn.Module) -> nn.Module:
    return _watched(_in_half(layer))


def _told(layer: nn.Module) -> nn.Module:
    return _watched(nn.Precision(compute=HALF).apply(layer))


# What the layers are, what they are given, and what those with parameters give.
MODES: list[tuple[Change, Any, Any]] = [
    (_half, HALF, HALF),
    (_half, np.float32, HALF),
    (_half, np.int32, HALF),
    (_told, np.float32, HALF),
    (_watched, HALF, np.float32),
    (_watched, np.float64, np.float32),
    (_watched, np.int32, np.float32),
]


@pytest.mark.filterwarnings("ignore::treadle.nn.PrecisionWarning")
@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
@pytest.mark.parametrize("expression", rows(EXPRESSIONS))
def test_what_layers_give_follows_from_their_parameters(expression: str) -> None:
    for change, given, wanted in MODES:
        if given == np.int32 and "cross_entropy(" in expression:
            continue  # integer labels are something else
        function, args = _case(expression, _mapped(change))
        args = [x.astype(given) if x.dtype == np.float32 else x for x in args]
        WATCHED.clear()
        outs = td.eval_shape(function, *args)
        for layer, out in WATCHED:
            name = type(layer).__name__
            has_weights = bool(nn.parameters(layer)) and name not in AS_GIVEN
            expected = wanted if has_weights else td.dtypes.to_float(np.dtype(given))
            if name != "ALiBi":
                found = {x.dtype for x in _floats(out)}
                assert found <= {np.dtype(expected)}, (name, given)
        if given == wanted and not any(n in expression for n in FLOAT32_BY_NATURE):
            assert {x.dtype for x in _floats(outs)} <= {np.dtype(wanted)}


@pytest.mark.parametrize("expression", rows(EXPRESSIONS))
def test_halves_are_float32_rounded(expression: str) -> None:
    if any(name in expression for name in RANDOM):
        return
    in_half, args = _case(expression, _mapped(_in_half))
    in_wide, _ = _case(expression, _mapped(_in_wide))
    halved = [x.astype(HALF) if x.dtype == np.float32 else x for x in args]
    again = [x.astype(np.float32) if x.dtype == HALF else x for x in halved]
    pairs = zip(_floats(in_half(*halved)), _floats(in_wide(*again)), strict=True)
    for found, expected in pairs:
        x, y = np.asarray(found, np.float32), np.asarray(expected)
        np.testing.assert_array_equal(np.isfinite(x), np.isfinite(y))
        largest = np.abs(y[np.isfinite(y)]).max(initial=1e-6)
        np.testing.assert_allclose(x, y, rtol=0, atol=3 * 2**-8 * largest)


def test_gradients_have_the_dtypes_of_parameters() -> None:
    k1, k2, k3 = rng.split(rng.key(0), 3)
    model = nn.Sequential(
        nn.Linear(4, 8, param_dtype=HALF, key=k1),
        nn.Linear(8, 8, dtype=HALF, key=k2),
        nn.LayerNorm(8),
        nn.Linear(8, 2, dtype=tnp.float16, param_dtype=tnp.float64, key=k3),
    )
    x = tnp.ones((3, 4))
    grads = td.grad(lambda m: m(x).astype(tnp.float32).sum())(model)
    kinds = {p: g.dtype for p, g in nn.parameters(grads).items()}
    assert kinds == {p: w.dtype for p, w in nn.parameters(model).items()}
    assert model(x).dtype == tnp.float16
