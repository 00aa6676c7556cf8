"""Times single operations: compiled, as a host callback would run them, and in JAX.

Run from the repository: `python -m benchmarks.operations [ROUNDS]`. The contenders take
turns; every figure is the fastest call, in milliseconds.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.ode import odeint

import treadle as td
import treadle.numpy as tnp
from treadle import nn
from treadle.ops import conv, cumulative, sort

DEPTHWISE = conv.Window((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 128)._asdict()
Function = Callable[..., Any]
rng = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype("float32")


def stem(x: Any) -> Any:
    return lax.reduce_window(
        x,
        -jnp.inf,
        lax.max,
        (1, 3, 3, 1),
        (1, 2, 2, 1),
        ((0, 0), (1, 1), (1, 1), (0, 0)),
    )


def depthwise_gradient(x: Any, ct: Any) -> Any:
    def convolution(w: Any) -> Any:
        layout = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=layout, feature_group_count=128
        )

    filters = jax.ShapeDtypeStruct((3, 3, 1, 128), x.dtype)
    return jax.linear_transpose(convolution, filters)(ct)[0]


def running(name: str, axis: int) -> tuple[Function, Function]:
    options = {"axis": axis, "reverse": False}
    return (
        lambda x: getattr(cumulative, name)(x, **options),
        lambda x: getattr(lax, name)(x, **options),
    )


def linear_algebra() -> list[tuple[str, Function, Function, tuple[np.ndarray, ...]]]:
    """Rows of factorizations, small ones in batches and large ones alone."""
    found: list[Any] = []
    for count, n in ((1000, 8), (200, 32), (1, 512)):
        a = normal(count, n, n)
        definite = a @ np.swapaxes(a, 1, 2) + n * np.eye(n, dtype="float32")
        title = f"of {count} x {n}x{n}"
        for name, function, x in (
            ("cholesky", lambda np, a: np.linalg.cholesky(a), definite),
            ("solve", lambda np, a: np.linalg.solve(a, a[..., :1]), a),
            ("eigh", lambda np, a: np.linalg.eigh(a)[1], definite),
            ("svd", lambda np, a: np.linalg.svd(a)[0], a),
        ):
            ours, theirs = (partial(function, module) for module in (tnp, jnp))
            found.append((f"{name} {title}", ours, theirs, (x,)))
        found.append(
            (
                f"gradient of cholesky {title}",
                td.grad(lambda a: tnp.sum(tnp.linalg.cholesky(a))),
                jax.grad(lambda a: jnp.sum(jnp.linalg.cholesky(a))),
                (definite,),
            )
        )
    return found


def stencil(module: Any, scan: Function, z: Any) -> Any:
    """Steps of the complex Ginzburg-Landau equation."""

    def step(z: Any, _: Any) -> Any:
        around = sum([module.roll(z, n, axis) for n in (1, -1) for axis in (0, 1)])
        change = (1 + 0.5j) * (around - 4 * z) + z - (1 + 1.2j) * module.abs(z) ** 2 * z
        return z + 0.01 * change, None

    return scan(step, z, None, length=100)[0]


def circuit(module: Any, angles: Any) -> Any:
    """The mean of an observable after layers of gates on each qubit and between
    neighbours."""
    layers, n, _ = angles.shape
    state = module.zeros(2**n, "complex64").at[0].set(1)
    signs = module.array([1, 1, 1, -1], dtype="complex64")[:, None]
    for layer, q in itertools.product(range(layers), range(n)):
        half, phase = angles[layer, q, 0] / 2, module.exp(1j * angles[layer, q, 1])
        c, s = module.cos(half), module.sin(half)
        rows = [c + 0j, -s * phase], [s * module.conj(phase), c + 0j]
        gate = module.stack([module.stack(row) for row in rows])
        state = module.einsum("ab,xby->xay", gate, state.reshape(2**q, 2, -1))
        if q:
            state = state.reshape(2 ** (q - 1), 4, -1) * signs
    chances = module.abs(state.reshape(-1)) ** 2
    return module.sum(chances * module.arange(2**n, dtype="float32"))


def complex_numbers() -> list[tuple[str, Function, Function, tuple[np.ndarray, ...]]]:
    """Rows of complex arithmetic."""
    z = (normal(128, 128) + 1j * normal(128, 128)).astype("complex64")
    wide = (normal(1000, 1000) + 1j * normal(1000, 1000)).astype("complex64")
    found: list[Any] = [
        (
            "complex stencil of 128x128 in a scan of 100",
            lambda z: stencil(tnp, td.scan, z),
            lambda z: stencil(jnp, lax.scan, z),
            (z,),
        ),
        (
            "gradient of a circuit of 10 qubits",
            td.grad(lambda x: circuit(tnp, x)),
            jax.grad(lambda x: circuit(jnp, x)),
            (normal(4, 10, 2),),
        ),
        ("z * z + z of 1000x1000", lambda z: z * z + z, lambda z: z * z + z, (wide,)),
        ("complex product, 128x128x128", tnp.matmul, jnp.matmul, (z, z)),
    ]
    for name in ("abs", "exp", "log", "sqrt", "tanh"):
        ours, theirs = getattr(tnp, name), getattr(jnp, name)
        found.append((f"complex {name} of 1000x1000", ours, theirs, (wide,)))
    return found


def transforms() -> list[tuple[str, Function, Function, tuple[np.ndarray, ...]]]:
    """Rows of Fourier transforms, of one line and of many, and special functions."""
    found: list[Any] = []
    for name, shape in (
        ("fft", (256,)),
        ("fft", (4096,)),
        ("fft", (1 << 16,)),
        ("fft", (1 << 20,)),
        ("fft", (1000, 1000)),
        ("rfft", (1 << 20,)),
        ("rfft", (256, 1024)),
        ("irfft", (256, 513)),
        ("fft2", (512, 512)),
        ("fft2", (16, 128, 128)),
    ):
        x = normal(*shape)
        if name != "rfft":
            x = (x + 1j * normal(*shape)).astype("complex64")
        title = f"{name} of {'x'.join(map(str, shape))}"
        found.append((title, getattr(tnp.fft, name), getattr(jnp.fft, name), (x,)))
    ours, theirs, x = td.scipy.special, jax.scipy.special, np.abs(normal(100_000))
    for name in ("erfcx", "dawsn", "i0e", "expi", "spence", "log_ndtr"):
        pair = getattr(ours, name), getattr(theirs, name)
        found.append((f"{name} of 100000", *pair, (x,)))
    a = x + np.float32(0.5)
    pair = ours.gammainc, theirs.gammainc
    return [*found, ("gammainc of 100000", *pair, (a, x))]


def solvers() -> list[tuple[str, Function, Function, tuple[np.ndarray, ...]]]:
    """Rows of reductions over segments, images, equations and minima."""
    rows, ids = normal(50_000, 64), rng.integers(0, 10_000, 50_000, dtype="int32")
    image, right = normal(8, 64, 64, 32), normal(64, 64)
    start, times = normal(32, 64), np.linspace(0, 1, 5, dtype="float32")
    weights = normal(64, 64) / 8

    def laplace(np: Any) -> Function:
        def apply(u: Any) -> Any:
            around = np.pad(u, 1)
            sides = around[:-2, 1:-1] + around[2:, 1:-1]
            return 4.1 * u - sides - around[1:-1, :-2] - around[1:-1, 2:]

        return apply

    def network(np: Any, solve: Function) -> Function:
        def solved(y: Any, w: Any, t: Any) -> Any:
            return solve(lambda y, t, w: np.tanh(y @ w), y, t, w, rtol=1e-5, atol=1e-5)

        return solved

    def total(solved: Function) -> Function:
        return lambda *args: solved(*args).sum()

    ours, theirs = network(tnp, td.scipy.integrate.odeint), network(jnp, odeint)
    return [
        (
            "50000 rows of 64 summed in 10000 segments",
            lambda x, i: td.segment_sum(x, i, 10_000),
            lambda x, i: jax.ops.segment_sum(x, i, 10_000),
            (rows, ids),
        ),
        *[
            (
                f"8x64x64x32 resized to {n}x{n}, {method}",
                lambda x, n=n, m=method: td.image.resize(x, (8, n, n, 32), m),
                lambda x, n=n, m=method: jax.image.resize(x, (8, n, n, 32), m),
                (image,),
            )
            for n in (128, 32)
            for method in ("linear", "lanczos3")
        ],
        (
            "cg of Laplace's equation on 64x64",
            lambda b: td.scipy.sparse.linalg.cg(laplace(tnp), b)[0],
            lambda b: jax.scipy.sparse.linalg.cg(laplace(jnp), b)[0],
            (right,),
        ),
        ("odeint of a network, 32x64", ours, theirs, (start, weights, times)),
        (
            "its gradient, by the adjoint",
            td.grad(total(ours), 1),
            jax.grad(total(theirs), 1),
            (start, weights, times),
        ),
    ]


def rows() -> list[tuple[str, Function, Function, tuple[np.ndarray, ...]]]:
    """What it is, the function in Treadle and in JAX, and its arguments."""
    image, ct = normal(8, 112, 112, 64), normal(8, 56, 56, 64)
    square, line = normal(1000, 1000), normal(1_000_000)
    column = normal(1_000_000, 1)
    small = normal(16, 28, 28, 128)
    places = rng.integers(0, 10_000, 50_000, dtype="int32")
    base, updates = normal(10_000, 64), normal(50_000, 64)
    whole = rng.integers(-9, 9, (512, 512), dtype="int32")
    half = np.asarray(jnp.asarray(normal(512, 512), jnp.bfloat16))
    pool = lambda x: nn.max_pool(x, 3, 2, 1)  # noqa: E731
    return [
        ("max pooling, 3x3 by 2, of 8x112x112x64", pool, stem, (image,)),
        (
            "its gradient (with the forward pass)",
            lambda x, ct: td.vjp(pool, x)[1](ct)[0],
            lambda x, ct: jax.vjp(stem, x)[1](ct)[0],
            (image, ct),
        ),
        (
            "filter gradient, 3x3 depthwise, 16x28x28x128",
            lambda x, ct: conv.conv_filter_grad(x, ct, kernel=(3, 3), **DEPTHWISE),
            depthwise_gradient,
            (small, small),
        ),
        (
            "argmax of 1000x1000 over rows",
            lambda x: tnp.argmax(x, axis=0),
            lambda x: jnp.argmax(x, axis=0),
            (square,),
        ),
        (
            "50000 rows of 64 max-ed into 10000",
            lambda x, i, u: x.at[i].max(u),
            lambda x, i, u: x.at[i].max(u),
            (base, places, updates),
        ),
        ("cumsum of 1000x1000 along rows", *running("cumsum", 1), (square,)),
        ("cumsum of 1000x1000 down columns", *running("cumsum", 0), (square,)),
        ("cumsum of 1000000", *running("cumsum", 0), (line,)),
        (
            "cumlogsumexp of 1000x1000 along rows",
            *running("cumlogsumexp", 1),
            (square,),
        ),
        ("softmax of 1000000x1 along rows", nn.softmax, jax.nn.softmax, (column,)),
        ("sum of 1000000x1", tnp.sum, jnp.sum, (column,)),
        ("product of int32, 512x512x512", tnp.matmul, jnp.matmul, (whole, whole)),
        ("product of bfloat16, 512x512x512", tnp.matmul, jnp.matmul, (half, half)),
        ("sort of 1000x1000", lambda x: tnp.sort(x), lambda x: jnp.sort(x), (square,)),
        (
            "argsort of 1000000",
            lambda x: tnp.argsort(x),
            lambda x: jnp.argsort(x),
            (line,),
        ),
        (
            "largest 10 of 1000 in 1000 rows",
            lambda x: sort.top_k(x, k=10),
            lambda x: lax.top_k(x, 10),
            (square,),
        ),
        *linear_algebra(),
        *complex_numbers(),
        *transforms(),
        *solvers(),
    ]


def fastest(run: Function, seconds: float) -> float:
    run()
    found, end = [], time.perf_counter() + seconds
    while not found or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return 1e3 * min(found)


def main(rounds: int) -> None:
    print("| operation | treadle ms | host callback ms | jax ms |")
    print("| --- | --- | --- | --- |")
    for title, ours, theirs, arrays in rows():
        compiled, oracle = td.jit(ours), jax.jit(theirs)
        mine, others = map(tnp.asarray, arrays), map(jnp.asarray, arrays)
        args, jax_args = tuple(mine), tuple(others)

        def eager(ours: Function = ours, args: tuple = args) -> None:
            with td.disable_jit():
                ours(*args)

        contenders: list[Function] = [
            lambda f=compiled, args=args: f(*args),
            eager,
            lambda f=oracle, args=jax_args: jax.block_until_ready(f(*args)),
        ]
        times = [[fastest(run, 0.1) for run in contenders] for _ in range(rounds)]
        figures = (f"{min(column):.3g}" for column in zip(*times, strict=True))
        print(f"| {title} | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
