"""Which leaves are trained, in which dtypes, in trees of every shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import treadle as td
import treadle.numpy as tnp
from treadle import optim, tree
from treadle.errors import StructureError, user_source

OPTIMIZERS = {
    "sgd": optim.sgd(0.1, momentum=0.9),
    "adamw": optim.adamw(0.1),
    "lion": optim.lion(0.1),
    "rmsprop": optim.rmsprop(0.1, momentum=0.9, centered=True),
    "chain": optim.chain(
        optim.clip_by_global_norm(1.0), optim.clip(0.5), optim.average_parameters()
    ),
}

LEAVES = st.sampled_from(
    [
        None,
        3,
        tnp.array([1, 2]),
        tnp.ones(2),
        tnp.ones((2, 1)),
        tnp.ones((), td.bfloat16),
        tnp.zeros((0, 3)),
        np.ones(2, np.float32),
    ]
)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)


def _loss(params: Any) -> Any:
    total = tnp.zeros(())
    for x in tree.leaves(params):
        total = (
            total + (x.astype(td.float32) ** 2).sum() if hasattr(x, "dtype") else total
        )
    return total


@pytest.mark.parametrize("name", OPTIMIZERS)
@given(params=TREES)
def test_any_tree(name: str, params: Any) -> None:
    assume(
        any(hasattr(x, "dtype") and x.dtype != np.int32 for x in tree.leaves(params))
    )
    optimizer = OPTIMIZERS[name]
    state = optimizer.init(params)
    form = tree.structure(state)
    grads = td.grad(_loss)(params)
    updates, state = optimizer.update(grads, state, params)
    assert tree.structure(state) == form
    assert tree.structure(updates) == tree.structure(grads)
    after = optim.apply_updates(params, updates)
    assert tree.structure(after) == tree.structure(params)
    for old, new in zip(tree.leaves(params), tree.leaves(after), strict=True):
        old_type, new_type = td.typeof(old), td.typeof(new)
        assert (old_type.shape, old_type.dtype) == (new_type.shape, new_type.dtype)
        if not td.dtypes.is_differentiable(old_type.dtype):
            assert new is old


def test_a_part_without_gradients_keeps_its_moments() -> None:
    params = {"a": {"w": tnp.ones(2)}, "b": tnp.ones(2)}
    optimizer = optim.adamw(0.1)
    _, state = optimizer.update(params, optimizer.init(params), params)
    updates, after = optimizer.update({"a": None, "b": tnp.ones(2)}, state, params)
    assert updates["a"] is None
    assert after[0].mean["a"]["w"] is state[0].mean["a"]["w"]
    assert float(after[0].mean["b"][0]) > float(state[0].mean["b"][0])
    assert optim.apply_updates(params, updates)["a"]["w"] is params["a"]["w"]


def test_a_gradient_without_parameter_is_an_error() -> None:
    params = {"w": tnp.ones(2), "n": 3}
    optimizer = optim.adam(0.1)
    grads = {"w": tnp.ones(2), "n": tnp.ones(())}
    with pytest.raises(StructureError, match=r"(?s)at \['n'\].*None where there is no"):
        optimizer.update(grads, optimizer.init(params), params)
    with pytest.raises(StructureError, match=r"at \['w'\]"):
        optim.apply_updates(params, {"w": [tnp.ones(2)], "n": None})
    with pytest.raises(ValueError, match=r"type f32\[2\] would become f32\[3,2\]"):
        wrong = {"w": tnp.ones((3, 2)), "n": None}
        optimizer.update(wrong, optimizer.init(params))


NARROW = [td.bfloat16, td.float16]


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("name", ["sgd", "adamw", "lion", "rmsprop"])
def test_narrow_parameters_have_wide_moments(name: str, dtype: Any) -> None:
    params = {"w": tnp.linspace(-1, 1, 50).astype(dtype)}
    optimizer = OPTIMIZERS[name]
    state = optimizer.init(params)
    dtypes = {x.dtype for x in tree.leaves(state)}
    assert dtypes <= {td.float32, td.int32}
    updates, state = optimizer.update(params, state, params)
    assert {x.dtype for x in tree.leaves(state)} == dtypes
    assert updates["w"].dtype == td.float32
    assert optim.apply_updates(params, updates)["w"].dtype == dtype


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_narrow_parameters_go_the_way_of_wide_ones(dtype: Any) -> None:
    optimizer = optim.adam(0.05)
    wide = {"w": tnp.linspace(-1, 1, 50)}
    narrow = tree.map(lambda x: x.astype(dtype), wide)
    states = [optimizer.init(p) for p in (wide, narrow)]
    for step in range(20):
        grads = {"w": tnp.cos(tnp.arange(50.0) + step).astype(dtype)}
        u, states[0] = optimizer.update(
            tree.map(lambda g: g.astype(td.float32), grads), states[0]
        )
        wide = optim.apply_updates(wide, u)
        u, states[1] = optimizer.update(grads, states[1])
        narrow = optim.apply_updates(narrow, u)
    np.testing.assert_array_equal(states[0][0].mean["w"], states[1][0].mean["w"])
    np.testing.assert_allclose(
        np.asarray(narrow["w"], np.float32), wide["w"], atol=0.02
    )


def test_moment_dtype() -> None:
    params = {"w": tnp.ones(3)}
    state = optim.adamw(0.1, moment_dtype="bfloat16").init(params)
    assert state[0].mean["w"].dtype == td.bfloat16
    assert state[0].mean_square["w"].dtype == td.float32
    _, after = optim.adamw(0.1).update(params, state, params)
    assert after[0].mean["w"].dtype == td.bfloat16
    for optimizer in (optim.sgd(0.1, 0.9, moment_dtype=td.float64),
                      optim.lion(0.1, moment_dtype=td.float64)):  # fmt: skip
        assert td.float64 in {x.dtype for x in tree.leaves(optimizer.init(params))}


def test_matrices() -> None:
    params = {"w": tnp.ones((2, 2)), "b": tnp.ones(2), "n": 3}
    assert optim.matrices(params) == {"w": True, "b": False, "n": False}


def test_a_step_is_of_the_line_that_asks_for_it() -> None:
    """It is looked for once for all leaves, and forgotten."""
    params = {"a": tnp.ones(3), "b": tnp.ones((2, 2))}
    optimizer = optim.adamw(0.1)
    state = optimizer.init(params)

    def step(params: Any, state: Any) -> Any:
        updates, state = optimizer.update(params, state, params)
        first = optim.apply_updates(params, updates)
        return first, optim.apply_updates(first, updates), state

    graph = td.jit(step).graph(params, state)
    code = step.__code__
    begins = code.co_firstlineno
    lines = {eq.source: None for eq in graph.equations}
    wanted = [f"{code.co_filename}:{begins + n}" for n in (1, 2, 3)]
    assert list(lines) == wanted
    assert str(user_source()).endswith(f":{begins + 11}")
