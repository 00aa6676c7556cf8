"""The debug mode for random keys: what is used twice is found, what is not is left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.errors import KeyReuseError


def twice(key: Any) -> Any:
    return rng.normal(key) + rng.uniform(key)


def split_and_draw(key: Any) -> Any:
    first, _ = rng.split(key)
    return rng.normal(first) + rng.normal(key)


def same_sample(key: Any) -> Any:
    return rng.normal(key, (3,)) + rng.normal(key, (3,))


def same_row(key: Any) -> Any:
    keys = rng.split(key, 3)
    return rng.normal(keys[1]) + rng.normal(keys[1])


def same_fold(key: Any) -> Any:
    return rng.normal(rng.fold_in(key, 1)) + rng.uniform(rng.fold_in(key, 1))


def fold_and_split(key: Any) -> Any:
    return rng.normal(rng.fold_in(key, 1)) + rng.normal(rng.split(key)[0])


def in_a_scan(key: Any) -> Any:
    return td.scan(lambda c, _: (c + rng.normal(key), None), 0.0, None, length=3)[0]


def unchanged_carry(key: Any) -> Any:
    return td.fori_loop(0, 3, lambda i, c: (c[0], c[1] + rng.normal(c[0])), (key, 0.0))


def in_a_python_loop(key: Any) -> Any:
    return sum(rng.normal(key) for _ in range(2))


def nested(key: Any) -> Any:
    inner = td.jit(rng.normal)
    return inner(key) + inner(key)


def under_grad(key: Any) -> Any:
    return td.grad(lambda x: x * rng.normal(key) * rng.uniform(key))(1.0)


def after_a_branch(key: Any) -> Any:
    x = td.cond(rng.key_data(key)[1] < 5, lambda: rng.normal(key), lambda: 0.0)
    return x + rng.normal(key)


def mapped(key: Any) -> Any:
    keys = rng.split(key, 3)
    draw = td.vmap(lambda k: rng.normal(k) + rng.uniform(k))
    return draw(keys)


REUSED = [
    twice,
    split_and_draw,
    same_sample,
    same_row,
    same_fold,
    fold_and_split,
    in_a_scan,
    unchanged_carry,
    in_a_python_loop,
    nested,
    under_grad,
    after_a_branch,
    mapped,
]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("function", REUSED)
def test_a_key_that_is_used_twice(function: Callable[..., Any], compiled: bool) -> None:
    f = td.jit(function) if compiled else function
    f(rng.key(0))
    with td.debug.key_reuse(), pytest.raises(KeyReuseError) as found:
        f(rng.key(0))
    first = function.__code__.co_firstlineno
    lines = [line for line in str(found.value).splitlines() if " at " in line]
    assert len(lines) == 2 and all(__file__ in line for line in lines)
    assert all(first < int(line.rpartition(":")[2]) < first + 5 for line in lines)


def test_the_same_key_in_two_calls() -> None:
    f = td.jit(lambda key: rng.normal(key))
    key = rng.key(0)
    with td.debug.key_reuse():
        f(key)
        with pytest.raises(KeyReuseError):
            f(key)


def splits_in_a_loop(key: Any) -> Any:
    total = 0.0
    for _ in range(3):
        key, own = rng.split(key)
        total = total + rng.normal(own)
    return total


def folds_in_a_loop(key: Any) -> Any:
    return sum(rng.normal(rng.fold_in(key, i)) for i in range(3))


def carried(key: Any) -> Any:
    def body(key: Any, _: Any) -> Any:
        key, own = rng.split(key)
        return key, rng.normal(own)

    return td.scan(body, key, None, length=3)[1]


def rows(key: Any) -> Any:
    draw = lambda c, k: (c + rng.normal(k), None)  # noqa: E731
    return td.scan(draw, 0.0, rng.split(key, 3))[0]


def counted(key: Any) -> Any:
    return td.fori_loop(0, 4, lambda i, c: c + rng.normal(rng.fold_in(key, i)), 0.0)


def either(key: Any) -> Any:
    yes = rng.key_data(key)[1] > 5
    return td.cond(yes, lambda: rng.normal(key), lambda: rng.uniform(key))


def cloned(key: Any) -> Any:
    return rng.normal(key) - rng.normal(rng.clone(key))


def stored(key: Any) -> Any:
    kept = {"key": key, "copy": td.tree.map(lambda x: x, key)}
    return rng.normal(kept["copy"])


def samplers(key: Any) -> Any:
    keys = rng.split(key, 10)
    return (
        rng.binomial(keys[9], 5, 0.5)
        + rng.gamma(keys[0], 2.0)
        + rng.poisson(keys[1], 3.0)
        + rng.permutation(keys[2], 5)[0]
        + rng.choice(keys[3], 5)
        + rng.bernoulli(keys[4])
        + rng.categorical(keys[5], tnp.zeros(3))
        + rng.beta(keys[6], 2.0, 3.0)
        + rng.randint(keys[7], (), 0, 5)
        + rng.truncated_normal(keys[8], -1.0, 1.0)
    )


def recomputed(key: Any) -> Any:
    f = td.remat(lambda x: tnp.sin(x * rng.normal(key)))
    return td.grad(f)(1.0)


def model(key: Any) -> Any:
    made, seen = rng.split(key)
    layer = nn.MLP([3, 4, 2], key=made)
    return layer(rng.normal(seen, (3,))).sum()


FINE = [
    splits_in_a_loop,
    folds_in_a_loop,
    carried,
    rows,
    counted,
    either,
    cloned,
    stored,
    samplers,
    recomputed,
    model,
]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("function", FINE)
def test_what_is_used_once(function: Callable[..., Any], compiled: bool) -> None:
    f = td.jit(function) if compiled else function
    wanted = f(rng.key(0))
    with td.debug.key_reuse():
        found = f(rng.key(0))
    assert tnp.array_equal(found, wanted)


def test_it_is_entered_outside_of_transforms() -> None:
    def f(x: Any) -> Any:
        with td.debug.key_reuse():
            return x

    with pytest.raises(RuntimeError, match="inside of a transform"):
        td.jit(f)(1.0)


def test_for_a_whole_process() -> None:
    program = (
        "from treadle import rng\nkey = rng.key(0)\nrng.normal(key)\nrng.normal(key)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TREADLE_DEBUG_KEYS": "1"},
        capture_output=True,
        text=True,
    )
    assert "KeyReuseError" in done.stderr
