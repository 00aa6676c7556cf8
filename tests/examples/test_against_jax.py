"""What the example programs compute, computed by JAX from the same lines."""

from __future__ import annotations

from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.experimental.ode import odeint

import treadle as td
import treadle.numpy as tnp
from treadle import nn

rng = np.random.default_rng(5)


class _Numpy:
    """jax.numpy, with the linear algebra that SciPy has."""

    linalg = SimpleNamespace(**{**vars(jax.scipy.linalg), **vars(jnp.linalg)})

    def __getattr__(self, name: str) -> Any:
        return getattr(jnp, name)


JAX = SimpleNamespace(
    grad=jax.grad,
    vmap=jax.vmap,
    jacfwd=jax.jacfwd,
    scan=jax.lax.scan,
    while_loop=jax.lax.while_loop,
    segment_sum=jax.ops.segment_sum,
    tree=jax.tree,
)


def in_jax(name: str) -> ModuleType:
    """An example whose names of ours are JAX's."""
    ours = import_module(f"examples.{name}")
    assert ours.__file__ is not None
    spec = spec_from_file_location(f"{name}_in_jax", ours.__file__)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    for key, value in vars(module).items():
        if isinstance(value, td.Array):
            setattr(module, key, jnp.asarray(np.asarray(value)))
    replaced = {"td": JAX, "tnp": _Numpy(), "nn": jax.nn, "odeint": odeint}
    for key, value in replaced.items():
        if hasattr(module, key):
            setattr(module, key, value)
    return module


def normal(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def agree(found: Any, wanted: Any, tolerance: float = 1e-4) -> None:
    pairs = zip(td.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    for f, w in pairs:
        scale = np.abs(np.asarray(w)).max()
        np.testing.assert_allclose(f, w, rtol=tolerance, atol=tolerance * scale)


def both(name: str) -> tuple[Any, Any]:
    return import_module(f"examples.{name}"), in_jax(name)


def test_leapfrog() -> None:
    ours, theirs = both("hmc")
    q, p = normal(2), normal(2)
    found = td.jit(lambda q, p: ours.leapfrog(ours.log_density, q, p, 0.2, 20))(q, p)
    agree(found, theirs.leapfrog(theirs.log_density, q, p, 0.2, 20))


@pytest.mark.slow
def test_kalman_filter() -> None:
    ours, theirs = both("kalman_filter")
    noises, measured = normal(2), normal(30, 1)
    found = td.jit(td.value_and_grad(lambda n, y: ours.kalman_filter(n, y)[0]))
    wanted = jax.value_and_grad(lambda n, y: theirs.kalman_filter(n, y)[0])
    agree(found(noises, measured), wanted(noises, measured), 1e-3)
    moments = ours.kalman_filter(noises, measured)[1]
    agree(ours.smoother(moments), theirs.smoother([np.asarray(m) for m in moments]))


def test_gaussian_process() -> None:
    ours, theirs = both("gaussian_process")
    params = {"length": normal(2), "height": normal(), "noise": normal()}
    x, y = normal(20, 2), normal(20)
    found = td.jit(td.value_and_grad(ours.log_likelihood))(params, x, y)
    agree(found, jax.jit(jax.value_and_grad(theirs.log_likelihood))(params, x, y), 2e-3)
    found = td.jit(ours.predict)(params, x, y, normal(5, 2) * 0)
    agree(found, theirs.predict(params, x, y, np.zeros((5, 2), np.float32)), 2e-3)


def test_meta_gradients() -> None:
    class Line(nn.Module):
        slope: td.Array
        offset: td.Array

        def __call__(self, x: Any) -> Any:
            return x * self.slope + self.offset

    def line(slope: Any, offset: Any, x: Any) -> Any:
        return x * slope + offset

    ours, theirs = both("maml")
    known, wanted = (
        (normal(3, 4, 1), normal(3, 4, 1)),
        (normal(3, 4, 1), normal(3, 4, 1)),
    )
    model = Line(slope=tnp.array(0.5), offset=tnp.array(-0.2))
    found = td.jit(td.grad(lambda m: ours.meta_loss(m, known, wanted, 3)))(model)
    partial = jax.tree_util.Partial(line, jnp.array(0.5), jnp.array(-0.2))
    agree(
        found,
        jax.jit(jax.grad(lambda m: theirs.meta_loss(m, known, wanted, 3)))(partial),
    )


@pytest.mark.parametrize("length", [0, 1, 3, 4])
def test_ctc_loss(length: int) -> None:
    loss = import_module("examples.ctc").ctc_loss
    logits, labels = normal(12, 5), np.array([1, 1, 3, 2], np.int32)

    def ours(logits: Any) -> Any:
        return loss(nn.log_softmax(logits), labels, length)

    def theirs(logits: Any) -> Any:
        padding = np.arange(4)[None] >= length
        times = np.zeros((1, 12))
        return optax.ctc_loss(logits[None], times, labels[None], padding + 0.0)[0]

    found = td.jit(td.value_and_grad(ours))(logits)
    agree(found, jax.jit(jax.value_and_grad(theirs))(logits), 1e-3)


def test_pagerank() -> None:
    ours, theirs = both("pagerank")
    senders, receivers = map(np.asarray, ours.links(td.rng.key(1), 40, 200))
    weights = np.abs(normal(len(senders))) + 0.1
    ranks, steps = td.jit(lambda w: ours.pagerank(w, senders, receivers, 40))(weights)
    wanted, count = theirs.pagerank(weights, senders, receivers, 40)
    agree(ranks, wanted)
    assert abs(int(steps) - int(count)) <= 1
    found = td.grad(lambda w: ours.pagerank(w, senders, receivers, 40)[0][3])(weights)
    slope = jax.jit(jax.grad(lambda w: theirs.solved(w, senders, receivers, 40)[3]))(
        weights
    )
    agree(found, slope, 1e-3)


@pytest.mark.slow
def test_quantum_circuit() -> None:
    ours, theirs = both("quantum_circuit")
    angles = normal(1, 3, 3)
    found = td.jit(td.value_and_grad(lambda a: ours.energy(ours.circuit(a))))(angles)
    agree(
        found,
        jax.jit(jax.value_and_grad(lambda a: theirs.energy(theirs.circuit(a))))(angles),
    )
    agree(ours.hamiltonian(3), theirs.hamiltonian(3))


@pytest.mark.slow
def test_neural_ode() -> None:
    ours, theirs = both("neural_ode")
    weights, starts, wanted = normal(2, 2) / 4, normal(4, 2), normal(16, 4, 2)

    def loss(module: Any, np: Any, solve: Any) -> Any:
        def value(w: Any, y: Any) -> Any:
            found = solve(lambda y, t: np.tanh(y @ w), y)
            return ((found - wanted) ** 2).sum()

        return value

    def solved(field: Any, y: Any) -> Any:
        return odeint(field, y, theirs.TIMES, rtol=1e-6, atol=1e-6)

    found = td.jit(td.grad(loss(ours, tnp, ours.paths), (0, 1)))(weights, starts)
    agree(
        found,
        jax.jit(jax.grad(loss(theirs, jnp, solved), (0, 1)))(weights, starts),
        1e-2,
    )
