"""Two models small enough to compile in a test, written with plain arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp


def array(*shape: int) -> Any:
    size = int(np.prod(shape))
    values = np.sin(np.arange(size) * 0.7).reshape(shape) * 0.3
    return tnp.asarray(values.astype(np.float32))


def cross_entropy(logits: Any, labels: Any) -> Any:
    shifted = logits - td.stop_gradient(tnp.max(logits, axis=-1, keepdims=True))
    total = tnp.log(tnp.sum(tnp.exp(shifted), axis=-1))
    picked = tnp.take_along_axis(shifted, labels[..., None], axis=-1)[..., 0]
    return tnp.mean(total - picked)


def descend(loss: Any, parameters: Any, rate: Any) -> tuple[Any, Any]:
    value, grads = td.value_and_grad(loss)(parameters)
    return td.tree.map(lambda p, g: p - rate * g, parameters, grads), value


def mlp_parameters() -> Any:
    return [array(6, 32), array(32), array(32, 4), array(4)]


def mlp_batch(size: int) -> tuple[Any, Any]:
    return array(size, 6), tnp.zeros(size, dtype="int32")


def mlp_step(parameters: Any, x: Any, y: Any, rate: Any) -> Any:
    def loss(parameters: Any) -> Any:
        w1, b1, w2, b2 = parameters
        return cross_entropy(tnp.maximum(x @ w1 + b1, 0) @ w2 + b2, y)

    return descend(loss, parameters, rate)


def transformer_parameters() -> Any:
    names = {"embed": (11, 16), "qkv": (16, 48), "out": (16, 16)}
    names |= {"up": (16, 32), "down": (32, 16), "scale": (16,)}
    return {k: array(*shape) for k, shape in names.items()}


def transformer_batch(size: int) -> tuple[Any, Any]:
    tokens = np.arange(size * 8, dtype=np.int32).reshape(size, 8) % 11
    return tokens, np.roll(tokens, -1, axis=1)


def _norm(x: Any, scale: Any) -> Any:
    return x / tnp.sqrt(tnp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * scale


def _attend(x: Any, p: Any) -> Any:
    batch, length, _ = x.shape
    q, k, v = tnp.split((x @ p["qkv"]).reshape(batch, length, 2, 24), 3, axis=-1)
    scores = tnp.einsum("bqhd,bkhd->bhqk", q, k) * 8**-0.5
    places = tnp.arange(length)
    scores = tnp.where(places[:, None] >= places[None, :], scores, -1e9)
    e = tnp.exp(scores - td.stop_gradient(tnp.max(scores, axis=-1, keepdims=True)))
    weights = e / tnp.sum(e, axis=-1, keepdims=True)
    return tnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ p["out"]


def transformer_step(parameters: Any, x: Any, y: Any, rate: Any) -> Any:
    def loss(p: Any) -> Any:
        h = p["embed"][x]
        h = h + _attend(_norm(h, p["scale"]), p)
        h = h + tnp.maximum(_norm(h, p["scale"]) @ p["up"], 0) @ p["down"]
        return cross_entropy(h @ p["embed"].T, y)

    return descend(loss, parameters, rate)
