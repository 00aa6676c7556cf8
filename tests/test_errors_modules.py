"""Mistakes with modules, state, optimizers, pytrees and random keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import treadle as td
import treadle.numpy as tnp
from tests.refused import refused
from treadle import nn, optim, rng, tree
from treadle.errors import StructureError

KEY = rng.key(0)
V, X = tnp.ones(3), tnp.ones((2, 3))
LINEAR = nn.Linear(3, 2, key=KEY)
OTHER = nn.Linear(3, 4, key=KEY)
OPTIMIZER = optim.adamw(1e-3)
STATE = OPTIMIZER.init(LINEAR)


class Counter(nn.Module):
    """Counts its calls."""

    calls: nn.State

    def __init__(self) -> None:
        self.calls = nn.State(0)

    def __call__(self, x: Any) -> Any:
        self.calls.value = self.calls.value + 1
        return x


class Unset(nn.Module):
    weight: td.Array

    def __init__(self) -> None:
        pass


def assign() -> None:
    LINEAR.weight = V


def add_field() -> None:
    LINEAR.scale = 2.0  # type: ignore[attr-defined]


def assign_inside() -> None:
    LINEAR.weight[0] = V


MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    "assign": (assign, AttributeError, ("`weight`", ".replace(weight=...)")),
    "new field": (add_field, AttributeError, ("`scale`", "Linear")),
    "assign inside": (assign_inside, TypeError, ("immutable", "x.at[index]")),
    "replace": (
        lambda: LINEAR.replace(wieght=V),
        TypeError,
        ("`wieght`", "in_features, out_features, dtype, weight, bias"),
    ),
    "attribute": (lambda: LINEAR.wieght, AttributeError, ("`wieght`", "weight")),
    "unset": (lambda: Unset(), TypeError, ("`weight`", "Assign `self.weight`")),
    "int as key": (
        lambda: nn.Linear(3, 4, key=0),
        TypeError,
        ("int 0", "rng.key(0)"),
    ),
    "float size": (lambda: nn.Linear(3.0, 4, key=KEY), TypeError, ("(3.0, 4)",)),  # type: ignore[arg-type]
    "layers that don't fit": (
        lambda: nn.Sequential(LINEAR, OTHER)(X),
        ValueError,
        ("in_features=3", "f32[2,2]"),
    ),
    "dropout without key": (
        lambda: nn.Dropout(0.5)(X),
        RuntimeError,
        ("nn.stateful(model, key=key)", "nn.inference(model)"),
    ),
    "norm outside": (
        lambda: nn.BatchNorm(3)(X),
        RuntimeError,
        ("nn.stateful", "nn.inference"),
    ),
    "float tokens": (
        lambda: nn.Embedding(10, 4, key=KEY)(V),
        TypeError,
        ("integer tokens", "f32[3]"),
    ),
    "other model's gradients": (
        lambda: OPTIMIZER.update(OTHER, STATE, LINEAR),
        StructureError,
        ("out_features=4", "out_features=2"),
    ),
    "gradients of a dict": (
        lambda: OPTIMIZER.update({"w": V}, STATE, LINEAR),
        StructureError,
        ("dict(['w']: *)", "Linear"),
    ),
    "no parameters": (
        lambda: OPTIMIZER.update(LINEAR, STATE),
        ValueError,
        ("optimizer.update(grads, state, params)",),
    ),
    "arguments exchanged": (
        lambda: OPTIMIZER.update(STATE, LINEAR, LINEAR),
        TypeError,
        ("(grads, state, params)",),
    ),
    "updates of another": (
        lambda: optim.apply_updates(LINEAR, {"a": V}),
        StructureError,
        ("dict(['a']: *)", "Linear"),
    ),
    "learning rate": (
        lambda: optim.adamw("fast").init(LINEAR),  # type: ignore[arg-type]
        TypeError,
        ("'fast'", "a number"),
    ),
    "tree keys": (
        lambda: tree.map(lambda a, b: a, {"a": 1}, {"b": 1}),
        StructureError,
        ("two dict differ", "'a' is missing", "'b' is too much"),
    ),
    "tree lengths": (
        lambda: tree.map(lambda a, b: a, {"x": [1, (2, 3)]}, {"x": [1, (2,)]}),
        StructureError,
        ("at ['x'][1]", "tuple"),
    ),
    "seed for a key": (
        lambda: rng.normal(0, (3,)),  # type: ignore[arg-type]
        TypeError,
        ("int 0", "rng.key(0)"),
    ),
    "array for a key": (
        lambda: rng.normal(tnp.array([0, 1], "uint32"), (3,)),  # type: ignore[arg-type]
        TypeError,
        ("u32[2]", "rng.split(key)"),
    ),
    "many keys": (
        lambda: rng.normal(rng.split(KEY, 3), (3,)),
        ValueError,
        ("shape (3,)", "td.vmap"),
    ),
    "arithmetic with a key": (lambda: KEY + 1, TypeError, ("rng.split(key)",)),
    "key of a key": (lambda: rng.key(KEY), TypeError, ("seed", "Key")),  # type: ignore[arg-type]
    "fold in text": (
        lambda: rng.fold_in(KEY, "step"),  # type: ignore[arg-type]
        TypeError,
        ("'step'", "integer"),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_value_line_and_remedy_are_named(name: str) -> None:
    mistake, error, parts = MISTAKES[name]
    refused(mistake, error, *parts)


@pytest.mark.parametrize("transform", [lambda f: f, td.jit], ids=["eager", "jit"])
def test_state_written_outside_of_a_scope(transform: Any) -> None:
    refused(
        lambda: transform(lambda model: model(V))(Counter()),
        RuntimeError,
        "nn.stateful",
        at=Counter.__call__,
    )


def test_arguments_of_a_layer() -> None:
    for mistake in (lambda: nn.Linear(3, 4), lambda: nn.Linear(3, 4, KEY)):  # type: ignore[call-arg, misc]
        with pytest.raises(TypeError, match=r"Linear\.__init__\(\)") as caught:
            mistake()
        (note,) = caught.value.__notes__
        assert "Linear(in_features, out_features, *, bias=True" in note
        assert "rng.key(0)" in note


def test_an_error_inside_a_layer_gets_no_note() -> None:
    with pytest.raises(TypeError) as caught:
        nn.Linear(3, 4, key=0)
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize(
    ("layer", "args", "keyword", "ours"),
    [
        ("Linear", (3, 4), "use_bias", "bias"),
        ("Linear", (3, 4), "rngs", "key"),
        ("Conv2d", (3, 4, 3), "strides", "stride"),
        ("LayerNorm", (3,), "epsilon", "eps"),
        ("Dropout", (), "p", "rate"),
        ("Embedding", (), "num_embeddings", "entries"),
    ],
)
def test_layers_say_what_other_libraries_arguments_are_here(
    layer: str, args: tuple, keyword: str, ours: str
) -> None:
    with pytest.raises(TypeError, match="unexpected keyword") as caught:
        getattr(nn, layer)(*args, **{keyword: 1})
    assert f"`{keyword}` is `{ours}` here." in caught.value.__notes__[0]
