"""Arrays by name into modules, and back."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import random
from treadle import nn, rng, weights
from treadle.weights import AS_IS, TORCH, Rule

LINEAR = nn.Linear(2, 3, key=rng.key(0))
VALUES = {"weight": random(2, 3), "bias": random(3)}


class Block(nn.Module):
    qkv: nn.Linear
    conv: nn.Conv2d
    table: nn.Embedding


BLOCK = Block(
    nn.Linear(4, 12, key=rng.key(0)),
    nn.Conv2d(2, 5, 3, key=rng.key(1)),
    nn.Embedding(7, 4, key=rng.key(2)),
)
THEIRS = {
    **{f"a.{n}.weight": random(4, 4, seed=i) for i, n in enumerate("qkv")},
    **{f"a.{n}.bias": random(4, seed=i) for i, n in enumerate("qkv")},
    "conv.weight": random(5, 2, 3, 3),
    "conv.bias": random(5),
    "wte.weight": random(7, 4),
}
RULES = [
    Rule(("a.q.{leaf}", "a.k.{leaf}", "a.v.{leaf}"), "qkv.{leaf}", TORCH),
    Rule("head.weight", None, same_as="wte.weight"),
    Rule("wte.weight", "table.weight"),
    Rule("{*layer}.{leaf}", "{*layer}.{leaf}", TORCH),
]


def test_names_are_paths_unless_said_otherwise():
    found = weights.into(LINEAR, VALUES)
    np.testing.assert_array_equal(found.weight, VALUES["weight"])
    np.testing.assert_array_equal(found.bias, VALUES["bias"])
    assert list(weights.of(found)) == ["weight", "bias"]


def test_rules_join_transpose_and_tie():
    block = weights.into(BLOCK, THEIRS | {"head.weight": THEIRS["wte.weight"]}, RULES)
    expected = np.concatenate([THEIRS[f"a.{n}.weight"].T for n in "qkv"], 1)
    np.testing.assert_array_equal(block.qkv.weight, expected)
    expected = THEIRS["conv.weight"].transpose(2, 3, 1, 0)
    np.testing.assert_array_equal(block.conv.weight, expected)
    np.testing.assert_array_equal(block.table.weight, THEIRS["wte.weight"])
    back = weights.of(block, RULES)
    assert set(back) == set(THEIRS)
    for name, value in THEIRS.items():
        np.testing.assert_array_equal(back[name], value)


def test_rules_split():
    whole = {"c.weight": random(4, 6), "c.bias": random(6)}
    pair = nn.Sequential(*[nn.Linear(4, 3, key=rng.key(i)) for i in range(2)])
    rules = [Rule("c.{leaf}", ("layers.0.{leaf}", "layers.1.{leaf}"))]
    split = weights.into(pair, whole, rules)
    np.testing.assert_array_equal(split[1].weight, whole["c.weight"][:, 3:])
    np.testing.assert_array_equal(split[0].bias, whole["c.bias"][:3])
    for name, value in weights.of(split, rules).items():
        np.testing.assert_array_equal(value, whole[name])


def test_a_dict_of_names_drops_and_renames():
    values = {"fc.weight": VALUES["weight"], "fc.bias": VALUES["bias"], "step": 3}
    names = {"fc.{leaf}": "{leaf}", "step": None}
    np.testing.assert_array_equal(
        weights.into(LINEAR, values, names).bias, VALUES["bias"]
    )


def test_models_of_types_are_filled():
    made = td.eval_shape(lambda: nn.MLP((2, 3, 1), key=rng.key(0)))
    real = nn.MLP((2, 3, 1), key=rng.key(0))
    filled = weights.into(made, weights.of(real))
    x = random(5, 2)
    np.testing.assert_array_equal(filled(x), real(x))


def test_arrays_take_the_dtype_of_the_model_and_are_copies():
    half = {k: v.astype(ml_dtypes.bfloat16) for k, v in VALUES.items()}
    assert weights.into(LINEAR, half).weight.dtype == np.float32
    wide = nn.Linear(2, 3, param_dtype=tnp.bfloat16, key=rng.key(0))
    assert weights.into(wide, VALUES).weight.dtype == tnp.bfloat16
    values = {k: v.copy() for k, v in VALUES.items()}
    found = weights.into(LINEAR, values)
    values["weight"][:] = 0
    np.testing.assert_array_equal(found.weight, VALUES["weight"])
    with pytest.raises(ValueError, match=r"`bias` is f32\[3\], and `bias` is of int64"):
        weights.into(LINEAR, VALUES | {"bias": np.arange(3)})


def test_one_error_tells_all():
    model = nn.Sequential(LINEAR, nn.LayerNorm(3), nn.relu)
    values = {
        "layers.0.weight": random(3, 2),
        "layers.1.wieght": random(3),
        "layers.1.bias": random(3),
        "bias": random(1),
    }
    message = """the arrays do not fit Sequential:
  `layers.0.weight` is f32[2,3], and `layers.0.weight` gives [3, 2]: is it PyTorch's? \
`names=weights.torch_rules(model)`
  missing: `layers.0.bias` (f32[3])
  missing: `layers.1.weight` (f32[3]); left is `layers.1.wieght`
  left over: `layers.1.wieght` (f32[3]); left is `layers.1.weight`
  left over: `bias` (f32[1])
  at {here}
"""
    with pytest.raises(ValueError) as error:
        weights.into(model, values)
    found = re.sub(r"at /.*?:\d+\n", "at {here}\n", str(error.value))
    assert found.startswith(message)


def test_not_strict_warns_of_what_is_absent():
    with pytest.warns(UserWarning, match=r"missing: `bias` .*\n  left over: `more`"):
        found = weights.into(
            LINEAR, {"weight": VALUES["weight"], "more": random(1)}, strict=False
        )
    np.testing.assert_array_equal(found.weight, VALUES["weight"])
    np.testing.assert_array_equal(found.bias, LINEAR.bias)
    with pytest.raises(ValueError, match="missing: `weight`"):
        weights.into(LINEAR, {"other": random(1)}, strict=False)
    with pytest.raises(ValueError, match=r"gives \[5\]"):
        weights.into(LINEAR, VALUES | {"bias": random(5)}, strict=False)


@pytest.mark.parametrize(
    ("values", "rules", "message"),
    [
        (
            {k: v for k, v in THEIRS.items() if k != "a.k.bias"},
            RULES,
            "`qkv.bias` is made of `a.q.bias`, `a.v.bias` and of `a.k.bias`, which is "
            "missing",
        ),
        (
            THEIRS | {"head.weight": random(7, 4, seed=5)},
            RULES,
            "`head.weight` differs from `wte.weight`",
        ),
        (
            THEIRS | {"same": random(5)},
            [Rule("same", "conv.bias"), *RULES],
            "`conv.bias` gets both `conv.bias` and `same`",
        ),
        (
            THEIRS | {"a.q.weight": random(5, 3)},
            RULES,
            r"of shapes \[\(3, 5\), \(4, 4\), \(4, 4\)\] can't be joined",
        ),
        (
            THEIRS | {"two": random(5)},
            [Rule("two", ("conv.bias", "conv.more")), *RULES],
            r"`two` of shape \(5,\) can't be split",
        ),
    ],
)
def test_what_does_not_fit(values, rules, message):
    with pytest.raises(ValueError, match=message):
        weights.into(BLOCK, values, rules)


def test_rules_that_make_no_sense():
    with pytest.raises(ValueError, match="either joins or splits"):
        Rule(("a", "b"), ("c", "d"))
    with pytest.raises(ValueError, match=r"the same {variables}"):
        Rule("a.{i}", "b.{j}")
    with pytest.raises(ValueError, match="is not taken itself"):
        Rule("a", "b", AS_IS, same_as="c")
    with pytest.raises(TypeError, match="Rule objects, got 'weight'"):
        weights.into(LINEAR, VALUES, ["weight"])


def test_no_name_for_an_array():
    with pytest.raises(ValueError, match="no name for `bias`"):
        weights.of(LINEAR, {"w": "weight"})
    with pytest.raises(ValueError, match="two arrays are called `w`"):
        weights.of(LINEAR, [Rule("w", "weight"), Rule("w", "bias")])
