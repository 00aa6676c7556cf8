"""Times single operations beside JAX and NumPy or SciPy: `python operations.py`.

`python benchmarks/operations.py [ROUNDS] [PART OF A NAME]`. The contenders take turns;
every figure is the fastest call, in milliseconds; ratios are over Treadle's.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import arrays
import jax
import jax.numpy as jnp
import lookups
import numpy as np
import scipy
import workloads
from jax import lax
from jax.experimental.ode import odeint
from peers.jax_functions import JaxFunctions
from peers.treadle_functions import TreadleFunctions

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
            ("qr", lambda np, a: np.linalg.qr(a)[0], a),
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
        (
            "squares of complex rows summed, 1000x1000",
            lambda z: tnp.einsum("ij,ij->i", z, z),
            lambda z: jnp.einsum("ij,ij->i", z, z),
            (wide,),
        ),
    ]
    for name in ("abs", "exp", "log", "sqrt", "tanh"):
        ours, theirs = getattr(tnp, name), getattr(jnp, name)
        found.append((f"complex {name} of 1000x1000", ours, theirs, (wide,)))
    return found


def alike(x: np.ndarray) -> Iterator[Any]:
    """Rows whose functions are the same in both libraries."""
    z, a = x[:128, :128] + np.complex64(1j), normal(10_000, 3, 3)
    fours, rows = normal(10_000, 4, 4), normal(1000, 100)
    functions: dict[str, tuple[Function, np.ndarray]] = {
        "complex 128x128 rolled": (lambda np, x: np.roll(x, 3, 1), z),
        "complex 128x128 stacked": (lambda np, x: np.stack([x, x[::-1]], -1), z),
        "complex 128x128 repeated": (lambda np, x: np.repeat(x, 2, 1), z),
        "products of 1000x1000 summed": (lambda np, x: np.vdot(x, x), x),
        "determinants of 10000 x 3x3": (lambda np, x: np.linalg.det(x), a),
        "products of 10000 x 3x3": (lambda np, x: x @ x, a),
        "products of 10000 x 4x4": (lambda np, x: x @ x, fours),
        "sort of 1000x100": (lambda np, x: np.sort(x), rows),
    }
    for title, (function, x) in functions.items():
        yield title, partial(function, tnp), partial(function, jnp), (x,)


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
        *alike(square),
        *arrays.rows(),
        *lookups.rows(),
        *transforms(),
        *solvers(),
    ]


class Row(NamedTuple):
    """An operation in the libraries; `plain` is in NumPy or SciPy, where these have
    it."""

    title: str
    ours: Function
    theirs: Function
    arrays: tuple[Any, ...]
    plain: Function | None = None


def loops() -> Iterator[Row]:
    """Rows of many small products, one after the other."""
    for n in (16, 64, 256):
        w, x = normal(n, n) / np.float32(np.sqrt(n)), normal(n)

        def steps(np: Any, scan: Function, w: Any, x: Any) -> Any:
            return scan(lambda x, _: (np.tanh(w @ x), None), x, None, length=1000)[0]

        def plain(w: Any, x: Any) -> Any:
            for _ in range(1000):
                x = np.tanh(w @ x)
            return x

        ours, theirs = partial(steps, tnp, td.scan), partial(steps, jnp, lax.scan)
        title = f"1000 products of {n}x{n} and a vector in a scan"
        yield Row(title, ours, theirs, (w, x), plain)
    program = workloads.load("gpt-decoding")
    weights = {
        name: workloads.initial.channels_last(name, x)
        for name, x in program.weights(0).items()
    }
    tokens = tuple(x.astype("int32") for x in program.batch(0))
    ours, theirs = (program.bound(F()) for F in (TreadleFunctions, JaxFunctions))
    title = f"decoding {program.length} tokens with a cache, 4x256"
    yield Row(title, ours, theirs, (weights, *tokens))


def numpy_functions() -> dict[str, Function]:
    """What NumPy and SciPy have of the operations, by the beginning of the title."""
    found: dict[str, Function] = {
        "argmax": lambda x: np.argmax(x, axis=0),
        "50000 rows of 64 max-ed": maxed,
        "50000 rows of 64 summed": summed,
        "cumsum of 1000x1000 along": lambda x: np.cumsum(x, axis=1),
        "cumsum of 1000x1000 down": lambda x: np.cumsum(x, axis=0),
        "cumsum of 1000000": np.cumsum,
        "softmax": lambda x: scipy.special.softmax(x, -1),
        "sum of": np.sum,
        "product of int32": np.matmul,
        "complex product": np.matmul,
        "sort": lambda x: np.sort(x, kind="stable"),
        "argsort": lambda x: np.argsort(x, kind="stable"),
        "z * z + z": lambda z: z * z + z,
        "complex stencil": lambda z: stencil(np, plain_scan, z),
        "cholesky": np.linalg.cholesky,
        "solve": lambda a: np.linalg.solve(a, a[..., :1]),
        "eigh": lambda a: np.linalg.eigh(a)[1],
        "svd": lambda a: np.linalg.svd(a)[0],
        "qr": lambda a: np.linalg.qr(a)[0],
        "squares of complex rows": lambda z: np.einsum("ij,ij->i", z, z),
        "cg of": lambda b: scipy.sparse.linalg.cg(laplace_matrix(64), b.ravel())[0],
        "odeint of": plain_odeint,
    }
    for name in ("abs", "exp", "log", "sqrt", "tanh"):
        found[f"complex {name} "] = getattr(np, name)
    for name in ("fft", "rfft", "irfft", "fft2"):
        found[f"{name} of"] = getattr(scipy.fft, name)
    for name in ("erfcx", "dawsn", "i0e", "expi", "spence", "log_ndtr", "gammainc"):
        found[f"{name} of"] = getattr(scipy.special, name)
    return found


def maxed(x: np.ndarray, places: np.ndarray, updates: np.ndarray) -> np.ndarray:
    x = x.copy()
    np.maximum.at(x, places, updates)
    return x


def summed(x: np.ndarray, ids: np.ndarray) -> np.ndarray:
    found = np.zeros((10_000, x.shape[1]), x.dtype)
    np.add.at(found, ids, x)
    return found


def plain_scan(step: Function, carry: Any, _: None, length: int) -> tuple[Any, None]:
    for _ in range(length):
        carry = step(carry, None)[0]
    return carry, None


def laplace_matrix(n: int) -> Any:
    """4.1 times a pixel without its neighbours, as a sparse matrix."""
    line = scipy.sparse.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(n, n))
    one = scipy.sparse.eye_array(n)
    around = scipy.sparse.kron(line, one) + scipy.sparse.kron(one, line)
    return (4.1 * scipy.sparse.eye_array(n * n) - around).astype("float32").tocsr()


def plain_odeint(y: np.ndarray, w: np.ndarray, times: np.ndarray) -> np.ndarray:
    def change(y: np.ndarray, _: float) -> np.ndarray:
        return np.tanh(y.reshape(-1, len(w)) @ w).ravel()

    return scipy.integrate.odeint(change, y.ravel(), times, rtol=1e-5, atol=1e-5)


def all_rows() -> Iterator[Row]:
    """The rows with what NumPy and SciPy have of them."""
    plain = numpy_functions()
    for title, *others in rows():
        fitting = [f for name, f in plain.items() if title.startswith(name)]
        yield Row(title, *others, plain=fitting[0] if fitting else None)
    yield from loops()


def fastest(run: Function, seconds: float) -> float:
    run()
    found, end = [], time.perf_counter() + seconds
    while not found or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return 1e3 * min(found)


def timed(row: Row, rounds: int) -> list[float]:
    """Milliseconds in Treadle, JAX and, where it has it, NumPy."""
    compiled, oracle = td.jit(row.ours), jax.jit(row.theirs)
    args = td.tree.map(tnp.asarray, row.arrays)
    jax_args = jax.tree.map(jnp.asarray, row.arrays)
    contenders: list[Function] = [
        lambda: compiled(*args),
        lambda: jax.block_until_ready(oracle(*jax_args)),
    ]
    if row.plain is not None:
        plain = row.plain
        contenders.append(lambda: plain(*row.arrays))
    times = [[fastest(run, 0.1) for run in contenders] for _ in range(rounds)]
    return [min(column) for column in zip(*times, strict=True)]


def main(rounds: int = 3, part: str = "") -> None:
    print(
        "| operation | treadle ms | jax ms | NumPy ms | jax/treadle | NumPy/treadle |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    ratios = []
    for row in all_rows():
        if part not in row.title:
            continue
        ours, *others = timed(row, rounds)
        figures = [ours, *others, *(ms / ours for ms in others)]
        cells = [f"{x:.3g}" for x in figures]
        if row.plain is None:
            cells = [*cells[:2], "-", cells[2], "-"]
        ratios.append(others[0] / ours)
        print(f"| {row.title} | {' | '.join(cells)} |", flush=True)
    ahead = sum(ratio >= 1 for ratio in ratios)
    print(f"\nAt least JAX's speed in {ahead} of {len(ratios)} rows.")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:])
