"""Small programs that touch every part of the code generator, for tests of targets.

As a script it compares them, compiled for the CPU that TREADLE_CPU names, with NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import nn, optim, rng
from treadle.backends.cpu.target import host


class Program(NamedTuple):
    """function(*args) is to be compiled; wanted(*args) is the same by NumPy."""

    function: Callable[..., Any]
    wanted: Callable[..., Any]
    args: Sequence[np.ndarray]


def mathematics(m: Any, x: Any) -> list[Any]:
    """By `m`, NumPy or a module like it."""
    y = abs(x) + 0.5
    return [
        *(m.exp(x), m.tanh(x), m.sin(x * 20), m.cos(x), m.log(y), m.log1p(y)),
        *(m.expm1(x), m.arctan2(x, y), m.sqrt(y), m.floor(x * 3), m.round(x * 3)),
        *(m.power(y, x), m.sinh(x), m.cbrt(x), m.sign(x), m.hypot(x, y)),
        *(m.where(x > 0, x, y), m.maximum(x, 0.25), m.arcsin(m.tanh(x))),
    ]


def integers(m: Any, i: Any) -> list[Any]:
    divisor = abs(i) % 7 + 1
    return [
        *(i // divisor, i % divisor, i << 2, i >> 1, i ^ 21, i * i, abs(i)),
        *(i.astype("float32") / 3, m.where(i > 3, i, -i), i.max(-1), i.T + 1),
    ]


def halves(m: Any, word: Any, x: Any) -> list[Any]:
    """Every float16 and bfloat16, and floats that become one."""
    results = [
        x.astype(m.float16),
        x.astype(getattr(m, "bfloat16", ml_dtypes.bfloat16)),
    ]
    for like in list(results):
        h = word.view(like.dtype)
        results += [h.astype("float32"), h + h, -h]
    return results


def reductions(x: Any) -> list[Any]:
    return [
        *(x.sum(-1), x.sum(0), x.max(0), x.min(-1), x.mean(), x.argmax(-1)),
        *(x.prod(-1), (x > 0).all(-1), x.T + 1.0, x[::2, 1:9] * 2.0),
        *(x.cumsum(-1), x.cumsum(0)),
    ]


def softmax(m: Any, x: Any) -> Any:
    e = m.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def products(m: Any, x: Any, y: Any) -> list[Any]:
    return [x @ y, x.T @ x, y @ y.T, m.maximum(x[:1] @ y + 1.0, 0.0), x[3:5] @ y]


def convolution(x: Any, w: Any) -> Any:
    layer = nn.Conv2d(*w.shape[2:], 3, key=rng.key(0))
    return layer.replace(weight=w, bias=None)(x)


def convolution_by_windows(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    return np.einsum("nhwcij,ijco->nhwo", windows, w)


def filter_gradient(x: Any, w: Any) -> Any:
    """Of a convolution's sum."""
    return td.grad(lambda w: convolution(x, w).sum())(w)


def filter_gradient_by_windows(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    sums = np.einsum("nhwcij->ijc", windows)
    return np.broadcast_to(sums[..., None], w.shape)


def attention(q: Any, k: Any, v: Any, bias: Any) -> list[Any]:
    """Causal, with what a cotangent of ones amounts to."""

    def mixed(*xs: Any) -> Any:
        return td.lax.attention(*xs, bias=bias, scale=0.5, after=0)

    out, back = td.vjp(mixed, q, k, v)
    return [out, *back(tnp.ones_like(out))]


def attention_by_hand(q: Any, k: Any, v: Any, bias: Any) -> list[Any]:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = np.einsum("nqhd,nkhd->nhqk", q, k) * 0.5 + bias
    rows = np.arange(scores.shape[2])[:, None] + scores.shape[3] - scores.shape[2]
    weights = softmax(np, np.where(np.arange(len(k[0])) <= rows, scores, -1e30))
    moved = np.einsum("nkhd->nhk", v)[:, :, None]
    moved = weights * (moved - (weights * moved).sum(-1, keepdims=True)) * 0.5
    return [
        np.einsum("nhqk,nkhd->nqhd", weights, v),
        np.einsum("nhqk,nkhd->nqhd", moved, k),
        np.einsum("nhqk,nqhd->nkhd", moved, q),
        np.broadcast_to(weights.sum(2).transpose(0, 2, 1)[..., None], v.shape),
    ]


def step(w: Any, b: Any, x: Any, labels: Any) -> Any:
    """Softmax regression, one step of gradient descent."""

    def loss(parameters: Any) -> Any:
        w, b = parameters
        return nn.cross_entropy(x @ w + b, labels).mean()

    descent = optim.sgd(0.5)
    gradients = td.grad(loss)((w, b))
    updates, _ = descent.update(gradients, descent.init((w, b)), (w, b))
    return optim.apply_updates((w, b), updates)


def step_by_hand(w: Any, b: Any, x: Any, labels: Any) -> Any:
    error = softmax(np, x @ w + b) - np.eye(len(b), dtype=x.dtype)[labels]
    error /= len(x)
    return w - 0.5 * x.T @ error, b - 0.5 * error.sum(0)


def transforms(fft: Any, x: Any) -> Any:
    return fft.irfft(fft.rfft(x, norm="ortho") ** 2, norm="ortho")


def random_bits(seed: Any) -> Any:
    return rng.bits(rng.key(seed), (50,))


def eager_bits(seed: Any) -> Any:
    with td.disable_jit():
        return random_bits(seed)


def programs() -> dict[str, Program]:
    source = np.random.default_rng(0)

    def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
        return source.standard_normal(shape).astype(dtype)

    words = np.arange(1 << 16).astype(np.uint16)
    edges = (np.arange(1 << 13, dtype=np.uint32) * 0x80801 << 1).view(np.float32)
    near = np.float32(2.0) ** source.uniform(-27, 17, 4096).astype(np.float32)
    finite = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = np.append((finite[1:] + finite[:-1]) / 2, np.float32(65520))
    floats = np.concatenate([edges, near, -near, ties])
    images, filters = normal(2, 7, 6, 5), normal(3, 3, 5, 9)
    labels = source.integers(0, 5, 23)
    whole = source.integers(-1000, 1000, (9, 21))
    table = {
        "halves": Program(
            lambda *args: halves(tnp, *args),
            lambda *args: halves(np, *args),
            [words, floats],
        ),
        "convolution": Program(convolution, convolution_by_windows, [images, filters]),
        "filter gradient": Program(
            filter_gradient, filter_gradient_by_windows, [images, filters]
        ),
        "step": Program(
            step, step_by_hand, [normal(40, 5), normal(5), normal(23, 40), labels]
        ),
        "random bits": Program(random_bits, eager_bits, [np.int32(7)]),
        "equations": Program(
            lambda a, b: tnp.linalg.solve(a, b),
            np.linalg.solve,
            [normal(3, 9, 9) + 9 * np.eye(9, dtype=np.float32), normal(3, 9, 2)],
        ),
        "sort": Program(lambda x: tnp.sort(x), np.sort, [normal(5, 40)]),
    }
    for dtype in (np.float32, np.float64):
        name, x = dtype.__name__, normal(17, 37, dtype=dtype)
        table[f"mathematics {name}"] = Program(
            lambda x: mathematics(tnp, x), lambda x: mathematics(np, x), [x]
        )
        table[f"reductions {name}"] = Program(reductions, reductions, [x])
        table[f"softmax {name}"] = Program(
            lambda x: softmax(tnp, x), lambda x: softmax(np, x), [x]
        )
        heads = normal(2, 37, 2, 5, dtype=dtype), normal(2, 45, 2, 5, dtype=dtype)
        table[f"transforms {name}"] = Program(
            lambda x: transforms(tnp.fft, x),
            lambda x: transforms(np.fft, x),
            [normal(3, 960, dtype=dtype)],
        )
        table[f"attention {name}"] = Program(
            attention,
            attention_by_hand,
            [*heads, heads[1], normal(1, 2, 37, 45, dtype=dtype)],
        )
        table[f"products {name}"] = Program(
            lambda x, y: products(tnp, x, y),
            lambda x, y: products(np, x, y),
            [x, normal(37, 45, dtype=dtype)],
        )
    for half in (td.float16, td.bfloat16):
        table[f"attention {half}"] = Program(
            attention,
            attention_by_hand,
            [
                *(normal(2, n, 2, 5).astype(half) for n in (37, 45, 45)),
                normal(1, 2, 37, 45),
            ],
        )
    for dtype in (np.int8, np.int32, np.int64):
        table[f"integers {dtype.__name__}"] = Program(
            lambda i: integers(tnp, i),
            lambda i: integers(np, i),
            [whole.astype(dtype)],
        )
    return table


def compare(name: str, program: Program) -> None:
    with np.errstate(all="ignore"):
        wanted = td.tree.leaves(program.wanted(*program.args))
    found = td.tree.leaves(td.jit(program.function)(*program.args))
    for number, (x, y) in enumerate(zip(found, wanted, strict=True)):
        x, y = np.asarray(x), np.asarray(y)
        exact = name == "halves" or x.dtype.kind not in "fV"
        error = 0.0 if exact else 1e-12 if x.dtype == np.float64 else 2e-5
        message = f"{name}, result {number}"
        if x.dtype.name in ("float16", "bfloat16"):
            error = 0.0 if exact else {"float16": 4e-3, "bfloat16": 3e-2}[x.dtype.name]
            x, y = x.astype(np.float32), y.astype(np.float32)
        np.testing.assert_allclose(x, y, rtol=error, atol=error, err_msg=message)


if __name__ == "__main__":
    for name, program in programs().items():
        compare(name, program)
    print(host().cpu, host().vector_bytes)
