"""Chains, partitions, and what they say when misused."""

from __future__ import annotations

from typing import Any

import numpy as np
import optax
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.optim.trees import assert_close, gradients, parameters, run, run_optax
from treadle import optim, tree
from treadle.errors import StructureError

PARAMS = {"body": {"w": tnp.ones((2, 2)), "b": tnp.ones(2)}, "head": tnp.ones(2)}


def test_a_chain_is_optax_chain() -> None:
    ours = optim.chain(
        optim.clip_by_global_norm(0.5),
        optim.scale_by_adam(),
        optim.add_decayed_weights(0.1, mask=optim.matrices),
        optim.scale(0.5),
        optim.scale_by_learning_rate(optim.linear_schedule(0.1, 0.0, 20)),
    )
    theirs = optax.chain(
        optax.clip_by_global_norm(0.5),
        optax.scale_by_adam(),
        optax.add_decayed_weights(
            0.1, {"layers": [{"weight": True}, {"weight": False}], "bias": False}
        ),
        optax.scale(0.5),
        optax.scale_by_learning_rate(optax.linear_schedule(0.1, 0.0, 20)),
    )
    params = parameters()
    for a, b in zip(run(ours, params), run_optax(theirs, params), strict=True):
        assert_close(a, b)


def test_identity_and_chains_of_chains() -> None:
    params = parameters()
    plain = run(optim.sgd(0.1, 0.9), params, 5)
    nested = optim.chain(
        optim.identity(), optim.chain(optim.trace(0.9)), optim.chain(optim.scale(-0.1))
    )
    for a, b in zip(plain, run(nested, params, 5), strict=True):
        assert_close(a, b, rtol=1e-6)


def test_partition_is_its_parts() -> None:
    params = parameters()
    labels = {"layers": "matrix", "bias": "rest"}
    optimizer = optim.partition(
        {"matrix": optim.adam(0.01), "rest": optim.sgd(0.1, 0.9)}, labels
    )
    both = run(optimizer, params)[-1]
    assert_close(both["layers"], run(optim.adam(0.01), params)[-1]["layers"])
    assert_close(both["bias"], run(optim.sgd(0.1, 0.9), params)[-1]["bias"])


def test_partition_by_path_and_freeze() -> None:
    optimizer = optim.partition(
        {"train": optim.adamw(0.1), "frozen": optim.freeze()},
        lambda params: tree.map_with_path(
            lambda path, x: "train" if "head" in path else "frozen", params
        ),
    )
    state = optimizer.init(PARAMS)
    updates, state = optimizer.update(PARAMS, state, PARAMS)
    assert updates["body"] == {"w": None, "b": None}
    assert len(tree.leaves(state["train"][0].mean)) == 1
    after = optim.apply_updates(PARAMS, updates)
    assert after["body"]["w"] is PARAMS["body"]["w"]
    assert float(after["head"][0]) < 0.95


def test_user_transforms() -> None:
    def update(grads: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        return tree.map(lambda g: tnp.sign(g), grads), state + 1

    signs = optim.Transform(lambda params: tnp.zeros((), td.int32), update, "signs")
    optimizer = optim.chain(signs, optim.scale_by_learning_rate(0.1))
    updates, state = optimizer.update(PARAMS, optimizer.init(PARAMS), PARAMS)
    np.testing.assert_allclose(updates["head"], [-0.1, -0.1])
    assert int(state[0]) == 1
    assert repr(optimizer) == "<chain of <signs>, <scale_by_learning_rate>>"


def test_clip_by_global_norm() -> None:
    params = parameters()
    ours, theirs = optim.clip_by_global_norm(1.0), optax.clip_by_global_norm(1.0)
    state = ours.init(params)
    for grads in gradients(params):
        expected, _ = theirs.update(grads, theirs.init(params))
        updates, state = ours.update(grads, state)
        assert_close(updates, expected, rtol=1e-6)
        np.testing.assert_allclose(
            optim.global_norm(grads), optax.tree.norm(grads), rtol=1e-6
        )


def test_clip() -> None:
    params = parameters()
    ours, theirs = optim.clip(0.3), optax.clip(0.3)
    for grads in gradients(params, 5):
        expected, _ = theirs.update(grads, theirs.init(params))
        assert_close(ours.update(grads, ours.init(params))[0], expected, rtol=1e-6)


def test_norms_of_nothing_and_of_narrow_types() -> None:
    assert float(optim.global_norm({"a": None})) == 0.0
    # 300² overflows float16, and 257 is not a bfloat16.
    assert float(optim.global_norm(tnp.full(4, 300.0, td.float16))) == 600.0
    assert optim.global_norm(tnp.ones(257, td.bfloat16)) == np.sqrt(np.float32(257))


def test_errors_say_what_to_do() -> None:
    optimizer = optim.adamw(0.1)
    state = optimizer.init(PARAMS)
    with pytest.raises(ValueError, match=r"update\(grads, state, params\)"):
        optimizer.update(PARAMS, state)
    with pytest.raises(TypeError, match="got a dict as its state"):
        optimizer.update(PARAMS, PARAMS, state)
    with pytest.raises(ValueError, match="3 transforms, but its state has 2 parts"):
        optimizer.update(PARAMS, optim.adam(0.1).init(PARAMS), PARAMS)
    with pytest.raises(TypeError, match="hyper, mean, mean_square that scale_by_adam"):
        optim.adam(0.1).update(PARAMS, optim.sgd(0.1, 0.9).init(PARAMS))
    with pytest.raises(TypeError, match="chain takes transforms, got 0"):
        optim.chain(0)  # type: ignore[arg-type]
    with pytest.raises(StructureError, match=r"different structures, at \['body'\]"):
        optimizer.update({**PARAMS, "body": [PARAMS["head"]]}, state, PARAMS)
    with pytest.raises(StructureError, match="mask does not fit"):
        optim.adamw(0.1, mask={"wrong": True}).update(PARAMS, state, PARAMS)
    with pytest.raises(ValueError, match=r"label of \['head'\] is 'fast'(.|\n)*'slow'"):
        parts = {"slow": optim.sgd(0.1)}
        optim.partition(parts, {"body": "slow", "head": "fast"}).init(PARAMS)


def test_extras_reach_those_who_name_them() -> None:
    def update(grads: Any, state: Any, params: Any = None, *, value: Any) -> Any:
        return tree.map(lambda g: g * value, grads), state

    by_value = optim.Transform(lambda params: (), update)
    inner = optim.chain(optim.scale(2.0), by_value)
    whole = optim.partition({"one": inner, "other": optim.sgd(1.0)}, ["one", "other"])
    params = [tnp.ones(2), tnp.ones(2)]
    updates, _ = whole.update(params, whole.init(params), params, value=3.0, more=None)
    np.testing.assert_array_equal(updates[0], [6.0, 6.0])
    np.testing.assert_array_equal(updates[1], [-1.0, -1.0])
    plain = optim.scale(2.0)
    plain.update(params, plain.init(params), params=params, value=3.0)
    with pytest.raises(TypeError, match="value"):
        inner.update(params, inner.init(params), params)


def test_a_part_sees_the_whole_loss() -> None:
    def loss(p: Any) -> Any:
        return ((p["a"] - p["b"]) ** 2).sum() + (p["b"] ** 2).sum()

    optimizer = optim.partition(
        {"newton": optim.lbfgs(), "frozen": optim.freeze()},
        {"a": "newton", "b": "frozen"},
    )
    params = {"a": tnp.zeros(2), "b": tnp.array([1.0, -2.0])}
    state = optimizer.init(params)
    for _ in range(3):
        grads = td.grad(loss)(params)
        updates, state = optimizer.update(grads, state, params, value_fn=loss)
        params = optim.apply_updates(params, updates)
    np.testing.assert_allclose(params["a"], [1.0, -2.0], rtol=1e-5)


def test_trust_ratios_take_patterns() -> None:
    params = {"body": {"w": tnp.full(2, 3.0)}, "head": {"b": tnp.ones(2)}}
    ratio = optim.scale_by_trust_ratio(mask="body.**")
    grads = tree.map(tnp.ones_like, params)
    updates, _ = ratio.update(grads, ratio.init(params), params)
    np.testing.assert_allclose(updates["body"]["w"], [3.0, 3.0])
    np.testing.assert_allclose(updates["head"]["b"], [1.0, 1.0])
