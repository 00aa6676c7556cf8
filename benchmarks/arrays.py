"""Rows of `operations.py`: arrays turned and cut, short rows, waves on a grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import treadle as td
import treadle.numpy as tnp

Function = Callable[..., Any]
rng = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype("float32")


def waves(np: Any, scan: Function, *fields: Any) -> Any:
    """Steps of Maxwell's equations on a grid (Yee, 1966), in two dimensions."""

    def step(fields: Any, _: None) -> Any:
        e, hx, hy = fields
        hx = hx.at[:, :-1].add(-0.5 * (e[:, 1:] - e[:, :-1]))
        hy = hy.at[:-1].add(0.5 * (e[1:] - e[:-1]))
        along, across = hy[1:-1, 1:-1] - hy[:-2, 1:-1], hx[1:-1, 1:-1] - hx[1:-1, :-2]
        return (e.at[1:-1, 1:-1].add(0.5 * (along - across)), hx, hy), None

    return scan(step, fields, None, length=100)[0]


def windows() -> Iterator[Any]:
    """Windows along lines, and gradients of them."""
    line, images = normal(1_000_000), normal(8, 3, 224, 224)

    def of(lax: Any, op: Any, initial: float, size: tuple[int, ...], x: Any) -> Any:
        return lax.reduce_window(x, initial, op, size, (1,) * len(size), "SAME")

    for name, ours, theirs, initial in (
        ("maxima", td.lax.max, lax.max, -np.inf),
        ("sums", td.lax.add, lax.add, 0.0),
    ):
        for title, size, x in (
            ("3 along 1000000", (3,), line),
            ("3x3 of images with channels first", (1, 1, 3, 3), images),
        ):
            mine = partial(of, td.lax, ours, initial, size)
            other = partial(of, lax, theirs, initial, size)
            yield f"{name} of windows of {title}", mine, other, (x,)
        yield (
            f"gradient of {name} of windows of 3 along 1000000",
            td.grad(
                lambda x, f=ours, i=initial: tnp.sum(of(td.lax, f, i, (3,), x) ** 2)
            ),
            jax.grad(
                lambda x, f=theirs, i=initial: jnp.sum(of(lax, f, i, (3,), x) ** 2)
            ),
            (line,),
        )


def moved() -> dict[str, tuple[Function, *tuple[np.ndarray, ...]]]:
    """Elements that change places: rows made of columns, small squares, rolled ones."""
    return {
        "3x100000 transposed, bytes": (
            lambda np, x: np.array(x.T),
            rng.integers(0, 255, (3, 100_000), dtype="uint8"),
        ),
        "4x4x32x32x32 with the last two exchanged": (
            lambda np, x: np.array(np.swapaxes(x, -1, -2)),
            normal(4, 4, 32, 32, 32),
        ),
        "channels of images of bytes last, as floats": (
            lambda np, x: np.moveaxis(x, 1, -1).astype("float32") - 128,
            rng.integers(0, 255, (8, 3, 224, 224), dtype="uint8"),
        ),
        "100000 numbers rolled by a traced one": (
            lambda np, x, n: np.roll(x, n),
            *(normal(100_000), np.int32(5)),
        ),
    }


def small() -> dict[str, tuple[Function, np.ndarray]]:
    """Short rows, of complex numbers too, and many small matrices."""
    threes, eights = (
        (normal(n, k) + 1j * normal(n, k)).astype("complex64")
        for n, k in ((200_000, 3), (100_000, 8))
    )
    fives = normal(10_000, 5, 5)
    return {
        "complex sums of 200000 rows of 3": (lambda np, x: np.sum(x, 1), threes),
        "complex sum of 100000x8": (lambda np, x: np.sum(x), eights),
        "sums of 100000 rows of 8": (lambda np, x: np.sum(x, 1), normal(100_000, 8)),
        "products of 10000 x 5x5": (lambda np, x: x @ x, fives),
        "products of 10000 x 7x7 and transposed ones": (
            lambda np, x: np.einsum("bij,bkj->bik", x, x),
            normal(10_000, 7, 7),
        ),
        "products of 10000 x 12x12": (lambda np, x: x @ x, normal(10_000, 12, 12)),
    }


def rows() -> Iterator[Any]:
    """What it is, the function in Treadle and in JAX, and its arguments."""
    points, square = normal(10_000, 3), normal(1000, 1000)
    triples, pairs = normal(100_000, 3), normal(10_000, 2, 2)
    wave = (normal(500, 500) + 1j * normal(500, 500)).astype("complex64")
    whole = rng.integers(0, 10, 100_000, dtype="int32")
    functions: dict[str, tuple[Function, *tuple[np.ndarray, ...]]] = {
        "10x10000 transposed": (lambda np, x: np.array(x.T), normal(10, 10_000)),
        "1000x1000 transposed": (lambda np, x: np.array(x.T), square),
        "cumsum of 100000x3 along rows": (
            lambda np, x: np.cumsum(x, 1),
            normal(100_000, 3),
        ),
        "100000 whole numbers to powers": (lambda np, x: x**x, whole),
        "slopes of 1000x1000": (lambda np, x: np.gradient(x), square),
        "sums into the middle of 1000x1000": (
            lambda np, x: x.at[1:-1, 1:-1].add(2 * x[2:, 2:]),
            square,
        ),
        "lengths of 10000 points by their columns": (
            lambda np, x: np.sqrt(x[:, 0] ** 2 + x[:, 1] ** 2 + x[:, 2] ** 2),
            points,
        ),
        "cross products of 10000 points": (
            lambda np, x: np.cross(x, x[::-1]),
            points,
        ),
        "sums of 100000 rows of 3": (lambda np, x: np.sum(x, 1), triples),
        "largest of 100000 rows of 3, int32": (
            lambda np, x: np.max(x, 1),
            (9 * triples).astype("int32"),
        ),
        "whether any in 100000 rows of 3": (lambda np, x: np.any(x, 1), triples > 1),
        "sum of all of 100000x3": (lambda np, x: np.sum(x), triples),
        "sums of 500x500 transposed, down columns": (
            lambda np, x: np.sum(x.T, 0),
            normal(500, 500),
        ),
        "10000 products of 3x3 and a vector": (
            lambda np, a, x: np.einsum("bij,bj->bi", a, x),
            *(normal(10_000, 3, 3), points),
        ),
        "products of 256x2048 and 3 columns": (
            lambda np, x, w: np.maximum(x @ w, 0),
            *(normal(256, 2048), normal(2048, 3)),
        ),
        "100000 numbers times a row of 8": (
            lambda np, x, row: x[:, None] * row,
            *(normal(100_000), normal(8)),
        ),
        "100000 bytes, each twice": (
            lambda np, x: np.repeat(x, 2),
            whole.astype("uint8"),
        ),
        "images twice as large, 4x16x32x32": (
            lambda np, x: np.repeat(np.repeat(x, 2, 2), 2, 3),
            normal(4, 16, 32, 32),
        ),
        "bytes of images backwards, 12x112x112": (
            lambda np, x: x[..., ::-1],
            rng.integers(0, 255, (12, 112, 112), dtype="uint8"),
        ),
        "32x128x64 transposed": (lambda np, x: np.array(x.T), normal(32, 128, 64)),
        "rows of 3 that go on as in a mirror": (
            lambda np, x: np.pad(x, ((0, 0), (2, 2)), mode="reflect"),
            triples,
        ),
        "logarithms of determinants of 10000 x 2x2": (
            lambda np, x: np.linalg.slogdet(x)[1],
            pairs,
        ),
        "conjugates of 500x500 transposed": (lambda np, z: np.conj(z.T), wave),
        "complex 500x500 with a row set": (lambda np, z: z.at[5].set(0), wave),
    }
    for title, (function, *arrays) in (functions | small() | moved()).items():
        yield title, partial(function, tnp), partial(function, jnp), tuple(arrays)
    yield from windows()
    fields = tuple(normal(256, 256) / 100 for _ in range(3))
    ours, theirs = partial(waves, tnp, td.scan), partial(waves, jnp, lax.scan)
    yield "waves on a grid of 256x256, 100 steps", ours, theirs, fields
