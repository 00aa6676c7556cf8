"""What programs write, with the types that a strict checker must find.

`test_typing.py` has a type checker read this file; it is never run.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, assert_type

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import checkpoint, nn, optim, rng
from treadle.numpy import linalg
from treadle.numpy.linalg import solve

Array = td.Array
x = tnp.ones((2, 3))
key = rng.key(0)

# Arrays -------------------------------------------------------------------------------

assert_type(x, Array)
assert_type(x + 1, Array)
assert_type(2.0 * x, Array)
assert_type(x @ x.T, Array)
assert_type(x**2 / 3 - x // 2 % 5, Array)
assert_type(x == x, Array)
assert_type(x != 0, Array)
assert_type((x > 0) & ~(x < 1), Array)
assert_type(-x, Array)
assert_type(abs(x), Array)
assert_type(divmod(x, 2), tuple[Array, Array])
assert_type(x[0, ..., None], Array)
assert_type(x.at[0].set(1.0), Array)
assert_type(x.at[x > 0].add(x), Array)
assert_type(x.sum(axis=0, keepdims=True), Array)
assert_type(x.reshape(3, 2).astype(td.float32).mean(), Array)
assert_type(tnp.float32(0.5), Array)
dtypes: dict[np.dtype[Any], int] = {tnp.bfloat16: 2, x.dtype: x.dtype == tnp.float32}
assert_type(np.zeros(3, tnp.float32).size + tnp.zeros(3, td.int8).size, int)
assert_type(x.shape, tuple[int, ...])
assert_type(x.argmax(-1), Array)
assert_type([row for row in x], list[Array])
assert_type(float(x[0, 0]), float)
print(f"{x.mean():.3f}")

# treadle.numpy ------------------------------------------------------------------------

assert_type(tnp.sin(x), Array)
assert_type(tnp.maximum(x, 0), Array)
assert_type(tnp.add(x, np.ones(3)), Array)
assert_type(td.numpy.sum(x, axis=(0, 1)), Array)
assert_type(tnp.max(x, initial=0.0), Array)
assert_type(tnp.cumsum(x, axis=1), Array)
assert_type(tnp.arange(3), Array)
assert_type(tnp.array([[1, 2], [3, 4]], dtype=tnp.int8), Array)
assert_type(tnp.zeros((2,), dtype="bfloat16"), Array)
assert_type(tnp.full((2, 2), 1.0, dtype=float), Array)
assert_type(tnp.where(x > 0, x, 0), Array)
assert_type(tnp.where(x > 0, size=3), tuple[Array, ...])
assert_type(tnp.linspace(0, 1), Array)
assert_type(tnp.linspace(0, 1, retstep=True), tuple[Array, Array])
assert_type(tnp.unique(x), Array)
assert_type(tnp.einsum("ij,kj->ik", x, x), Array)
assert_type(tnp.concatenate([x, x], axis=1), Array)
assert_type(tnp.stack((x, x)), Array)
assert_type(tnp.split(x, 3, axis=1), list[Array])
assert_type(tnp.atleast_2d(x), Array)
assert_type(tnp.average(x, returned=True), tuple[Array, Array])
assert_type(tnp.isdtype(x.dtype, "real floating"), bool)
assert_type(tnp.linalg.norm(x), Array)
assert_type(linalg.cholesky(x @ x.T), Array)
assert_type(solve(x @ x.T, x), Array)
assert_type(tnp.linalg.svd(x).S, Array)
assert_type(td.scipy.special.erf(x), Array)
assert_type(td.scipy.special.logsumexp(x, axis=0), Array)
assert_type(tnp.unique(x, return_counts=True), tuple[Array, ...])
assert_type(tnp.unique(x, True, axis=0), tuple[Array, ...])
assert_type(tnp.unique(x, return_inverse=True, size=3), tuple[Array, ...])
assert_type(tnp.apply_along_axis(lambda v: v.sum(), 0, x), Array)
td.scipy.optimize.minimize(lambda v: (v**2).sum(), x, method="BFGS")
assert_type(td.switch(1, [lambda v: v, lambda v: -v], x), Array)
assert_type(tnp.fft.fft(x), Array)
assert_type(tnp.fft.irfftn(x, axes=(0, 1)), Array)
assert_type(tnp.linalg.eigh(x @ x.T).eigenvalues, Array)
assert_type(tnp.meshgrid(x[0], x[1], sparse=True), list[Array])
assert_type(td.lax.dot_general(x, x, (((1,), (1,)), ((), ()))), Array)
assert_type(td.lax.reduce_window(x, 0.0, td.lax.add, (1, 2), (1, 2), "VALID"), Array)
assert_type(td.lax.reduce(x, 0.0, td.lax.add, (1,)), Array)
assert_type(
    td.lax.reduce((x, x), (0.0, 1.0), lambda a, b: (a[0] + b[0], a[1] * b[1]), (1,)),
    tuple[Array, Array],
)
assert_type(tnp.array([1, 2], ndmin=2), Array)
assert_type(tnp.quantile(x, 0.5, weights=x, method="inverted_cdf"), Array)
assert_type(td.lax.dynamic_slice(x, (0, 0), (1, 2)), Array)
assert_type(td.lax.top_k(x, 2), tuple[Array, Array])
assert_type(td.lax.sort(x), Array)
assert_type(td.lax.sort((x, x), num_keys=2), tuple[Array, ...])
assert_type(td.lax.rsqrt(x), Array)
assert_type(td.lax.select(x > 0, x, x), Array)
assert_type(td.lax.linalg.cholesky(x), Array)
assert_type(td.segment_sum(x, tnp.zeros(2, int)), Array)
tnp.nonsense()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
tnp.sin(x, x)  # pyright: ignore[reportCallIssue]
tnp.sum("x")  # pyright: ignore[reportArgumentType]

# Transforms ---------------------------------------------------------------------------


def f(x: Array, n: int = 2) -> Array:
    return x**n


def loss(w: dict[str, Array], x: Array) -> Array:
    return (x @ w["w"]).sum()


def loss_and_aux(w: dict[str, Array], x: Array) -> tuple[Array, int]:
    return loss(w, x), 3


w = {"w": x}
W = dict[str, Array]

assert_type(td.jit(f)(x, n=3), Array)
td.jit(f)("x")  # pyright: ignore[reportArgumentType]
assert_type(td.jit(static="n")(f)(x, 3), Array)
assert_type(td.jit(f).explain(x), str)
assert_type(td.vmap(f, in_axes=(0, None))(x, 2), Array)
assert_type(td.remat(f)(x), Array)
assert_type(td.remat(policy=td.dots_saveable)(f)(x), Array)
assert_type(td.grad(loss)(w, x), W)
assert_type(td.grad(loss, argnums=1)(w, x), Any)
assert_type(td.grad(loss, argnums=(0, 1))(w, x), tuple[W, Array])
assert_type(td.grad(loss_and_aux, has_aux=True)(w, x), tuple[W, int])
assert_type(td.value_and_grad(loss)(w, x), tuple[Array, W])
assert_type(
    td.value_and_grad(loss_and_aux, has_aux=True)(w, x), tuple[tuple[Array, int], W]
)
assert_type(td.jit(td.value_and_grad(loss))(w, x), tuple[Array, W])
assert_type(td.vmap(td.grad(loss), in_axes=(None, 0))(w, x), W)
assert_type(td.jacfwd(f)(x), Array)
assert_type(td.jacrev(f)(x, 2), Array)
assert_type(td.hessian(f)(x), Array)
assert_type(td.jvp(f, (x,), (x,)), tuple[Array, Array])
value, pullback = td.vjp(loss, w, x)
assert_type(pullback(value), tuple[W, Array])
out, linear = td.linearize(f, x)
assert_type(linear(x), Array)
assert_type(td.stop_gradient(w), W)
like = td.ShapeDtype((3,))
assert_type(td.eval_shape(f, x), td.ArrayType)
assert_type(td.jit(f).lower(like).compile()(x), Array)
assert_type(td.jit(f).trace(like).lower().compile()(x), Array)
assert_type(td.pure_callback(np.cbrt, like, x), Array)
assert_type(td.pure_callback(np.modf, (like, like), x), tuple[Array, ...])
assert_type(td.pure_callback(np.cbrt, {"a": like}, x), dict[str, Array])
assert_type(td.io_callback(print, None, x), None)
assert_type(td.ffi_call(0, like, x), Array)
assert_type(td.ffi_call(0, [like], x), list[Array])
assert_type(tnp.add.reduce(x, axis=1), Array)
assert_type(tnp.subtract.outer(x, x), Array)
assert_type(tnp.maximum(x, 1.0), Array)
assert_type(td.lax.ragged_dot(x, x, x), Array)


@td.jit
def decorated(x: Array, *, flag: bool = False) -> tuple[Array, bool]:
    return x, flag


@td.custom_vjp
def clipped(x: Array) -> Array:
    return x


@td.custom_jvp
def smooth(x: Array, y: float) -> Array:
    return x * y


assert_type(decorated(x, flag=True), tuple[Array, bool])
assert_type(clipped(x), Array)
assert_type(smooth(x, 2.0), Array)

# Control flow -------------------------------------------------------------------------


def body(total: Array, row: Array) -> tuple[Array, tuple[Array, int]]:
    return total + row, (row, 1)


assert_type(td.scan(body, x[0], x), tuple[Array, tuple[Array, int]])
assert_type(td.scan(lambda c, r: (c + r, c), x[0], x), tuple[Array, Array])
assert_type(td.scan(body, 0.0, np.ones(3)), tuple[Array, tuple[Array, int]])
assert_type(td.cond(x.sum() > 0, lambda x: x, lambda x: -x, x), Array)
assert_type(td.switch(1, [tnp.sin, tnp.cos], x), Array)
assert_type(td.while_loop(lambda v: v.sum() < 3, lambda v: v * 2, x), Array)
assert_type(td.fori_loop(0, 3, lambda i, v: v * i, x), Array)
assert_type(td.map(lambda row: row.sum(), x), Array)
assert_type(td.associative_scan(tnp.maximum, x), Array)
assert_type(td.fixed_point(lambda v: tnp.cos(v), x), Array)
assert_type(td.psum(w, "i"), W)
assert_type(td.tree.map(lambda leaf: leaf + 1, w), W)
assert_type(td.tree.map(lambda a, b: a + b, w, w), W)
assert_type(td.tree.leaves(w), list[Any])

# Modules ------------------------------------------------------------------------------


class Scale(nn.Module):
    factor: Array
    power: int = 1

    def __call__(self, x: Array) -> Array:
        return x * self.factor**self.power


class Net(nn.Module):
    layers: tuple[nn.Linear, ...]
    activation: Callable[[Array], Array]

    def __init__(self, width: int, *, key: rng.Key) -> None:
        first, second = rng.split(key)
        self.layers = (nn.Linear(3, width, key=first), nn.Linear(width, 1, key=second))
        self.activation = nn.relu

    @td.jit
    def __call__(self, x: Array) -> Array:
        for layer in self.layers:
            x = self.activation(layer(x))
        return x


scale = Scale(x[0], power=2)
net = Net(8, key=key)
assert_type(scale, Scale)
assert_type(scale(x), Array)
assert_type(scale.replace(power=3), Scale)
Scale()  # pyright: ignore[reportCallIssue]
Scale(x, pwoer=2)  # pyright: ignore[reportCallIssue]
scale.facotr()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
assert_type(net(x), Array)
assert_type(net.layers[0].weight, Array)
assert_type(nn.Linear(2, 3, key=key).bias, Array | None)
assert_type(nn.MLP((2, 3), key=key)(x), Array)
assert_type(nn.LayerNorm(3)(x), Array)
assert_type(nn.Dropout(0.5)(x, key=key), Array)
assert_type(nn.cross_entropy(x, tnp.arange(2)), Array)
assert_type(nn.inference(net), Net)
assert_type(nn.at(net, lambda m: m.layers[0].bias).set(None), Net)
assert_type(nn.partition(net), tuple[Net, Net])
assert_type(nn.combine(net, net), Net)
assert_type(nn.stateful(net, key=key)(x)[1], Net)
assert_type(nn.init.he_normal(key, (2, 3)), Array)

# Random numbers, optimizers, checkpoints ----------------------------------------------

assert_type(key, rng.Key)
assert_type(rng.split(key, 3), rng.Key)
assert_type(rng.normal(key, (2, 3)), Array)
assert_type(rng.categorical(key, x), Array)
optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(1e-3))
assert_type(optimizer, optim.Transform)
updates, state = optimizer.update(net, optimizer.init(net), net)
assert_type(optim.apply_updates(net, updates), Net)
optim.sgd(optim.cosine_decay_schedule(0.1, 100), momentum=0.9)
optim.sgd("fast")  # pyright: ignore[reportArgumentType]
assert_type(checkpoint.restore("path", net), Net)
assert_type(checkpoint.Manager("path").restore({"net": net}), dict[str, Net])

# Small programs -----------------------------------------------------------------------


class Carry(NamedTuple):
    h: Array
    c: Array


def cell(carry: Carry, x: Array) -> tuple[Carry, Array]:
    h = tnp.tanh(carry.h + x)
    return Carry(h, carry.c * 0.9), h


last, ys = td.scan(cell, Carry(tnp.zeros(3), tnp.zeros(3)), tnp.ones((5, 3)))
assert_type(last, Carry)
assert_type(ys, Array)
assert_type(copy.deepcopy(td.jit(cell))(last, ys[0]), tuple[Carry, Array])


@functools.partial(td.jit, static=("mode",))
def moded(x: Array, mode: str = "a") -> Array:
    return x if mode == "a" else -x


assert_type(moded(x, mode="b"), Array)


def chosen(wide: bool) -> Array:
    dtype = tnp.float32 if wide else None
    start = tnp.arange(4, dtype=tnp.int32 if wide else tnp.float32)
    return start.sum(dtype=dtype) + tnp.zeros((2, 3), dtype=dtype).mean()


class Scaled(nn.Module):
    inner: nn.Linear

    def __init__(self, *, key: rng.Key) -> None:
        self.inner = nn.Linear(2, 2, key=key)

    @td.jit
    def run(self, x: Array, *, scale: float = 1.0) -> Array:
        return self.inner(x) * scale


assert_type(Scaled(key=key).run(tnp.ones(2), scale=2.0), Array)
assert_type(td.tree.map(lambda v: v * 2, Scaled(key=key)), Scaled)
