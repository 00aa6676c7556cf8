"""The vocabulary of programs in PyTorch; see `array_functions` for what each means.

Images are (batch, height, width, channels) here, too: views of channels-last tensors.
"""

from typing import Any

import torch
from torch.nn import functional as F

exp, tanh, relu, relu6 = torch.exp, torch.tanh, torch.relu, F.relu6
silu, sigmoid = F.silu, torch.sigmoid


def cast(x: Any, dtype: str) -> Any:
    return x.to(getattr(torch, dtype)) if x.is_floating_point() else x


def concat(xs: list[Any], axis: int = -1) -> Any:
    return torch.cat(xs, axis)


def gelu(x: Any) -> Any:
    return F.gelu(x, approximate="tanh")


def linear(p: Any, x: Any) -> Any:
    return F.linear(x, p.array("weight"), p.find("bias"))


def _first(x: Any) -> Any:
    """Channels first, as PyTorch's functions of images take them."""
    return x.permute(0, 3, 1, 2)


def _last(x: Any) -> Any:
    return x.permute(0, 2, 3, 1)


def conv(p: Any, x: Any, stride: int = 1, groups: int = 1) -> Any:
    weight, bias = p.array("weight"), p.find("bias")
    half = weight.shape[-1] // 2
    return _last(F.conv2d(_first(x), weight, bias, stride, half, groups=groups))


def patches(p: Any, x: Any) -> Any:
    weight, bias = p.array("weight"), p.array("bias")
    return _last(F.conv2d(_first(x), weight, bias, weight.shape[-1]))


def upsample(x: Any) -> Any:
    return _last(F.interpolate(_first(x), scale_factor=2))


def max_pool(x: Any) -> Any:
    return _last(F.max_pool2d(_first(x), 2))


def layer_norm(p: Any, x: Any) -> Any:
    return F.layer_norm(x, x.shape[-1:], p.array("weight"), p.array("bias"))


def rms_norm(p: Any, x: Any) -> Any:
    return F.rms_norm(x, x.shape[-1:], p.array("weight"), 1e-6)


def batch_norm(p: Any, x: Any) -> Any:
    weight, bias = p.array("weight"), p.array("bias")
    return _last(F.batch_norm(_first(x), None, None, weight, bias, training=True))


def trained_batch_norm(p: Any, x: Any) -> Any:
    given = (p.array(name) for name in ("mean", "variance", "weight", "bias"))
    return _last(F.batch_norm(_first(x), *given))


def group_norm(p: Any, x: Any, groups: int) -> Any:
    return _last(F.group_norm(_first(x), groups, p.array("weight"), p.array("bias")))


def attention(
    q: Any,
    k: Any,
    v: Any,
    causal: bool = False,
    bias: Any = None,
    scale: float | None = None,
) -> Any:
    few = k.shape[2] != q.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    mask = None if bias is None else bias[None]
    if mask is not None and causal:
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
        mask, causal = mask.masked_fill(~seen, -torch.inf), False
    mixed = F.scaled_dot_product_attention(
        q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=few
    )
    return mixed.transpose(1, 2)


def attend(q: Any, keys: Any, values: Any, i: int) -> Any:
    return attention(q[:, None], keys[:, : i + 1], values[:, : i + 1])[:, 0]


def cross_entropy(logits: Any, labels: Any) -> Any:
    return F.cross_entropy(logits.flatten(0, -2).float(), labels.flatten())


def embed(p: Any, ids: Any) -> Any:
    return F.embedding(ids, p.array("weight"))


def embedding_bag(p: Any, ids: Any) -> Any:
    return F.embedding_bag(ids, p.array("weight"), mode="sum")


def gru(p: Any, x: Any) -> Any:
    return _recurrent(torch.gru, p, x, 1)


def lstm(p: Any, x: Any) -> Any:
    return _recurrent(torch.lstm, p, x, 2)


def _recurrent(function: Any, p: Any, x: Any, states: int) -> Any:
    """Its second bias is zero, as the other peers have one."""
    names = ("weight_ih", "weight_hh", "bias")
    weights = [p.array(name) for name in names]
    zeros = x.new_zeros(1, x.shape[0], weights[1].shape[1])
    start = zeros if states == 1 else [zeros] * states
    weights.append(torch.zeros_like(weights[2]))
    return function(x, start, weights, True, 1, 0.0, True, False, True)[0]


# Unrolled, `torch.compile` would take minutes: it compiles the step instead.
@torch.compiler.disable(recursive=False)
def repeat(step: Any, carry: Any, count: int) -> Any:
    for i in range(count):
        carry = step(carry, i)
    return carry


def argmax(x: Any) -> Any:
    return x.argmax(-1)


zeros = torch.zeros


def integers(count: int) -> Any:
    return torch.zeros(count, dtype=torch.int64)


def row(table: Any, i: int) -> Any:
    return table[i]


def write(cache: Any, x: Any, i: int) -> Any:
    """In place, as caches are written in PyTorch."""
    cache[:, i] = x
    return cache


squared_error = F.mse_loss
binary_cross_entropy = F.binary_cross_entropy_with_logits


def experts(p: Any, x: Any, top: int) -> Any:
    """Each expert computes the tokens that chose it."""
    chances = linear(p["router"], x).softmax(-1)
    weights, chosen = chances.topk(top)
    weights = weights / weights.sum(-1, keepdim=True)
    found = torch.zeros_like(x)
    for i, (up, down) in enumerate(zip(p.array("up"), p.array("down"), strict=True)):
        tokens, places = (chosen == i).nonzero(as_tuple=True)
        out = gelu(x[tokens] @ up) @ down * weights[tokens, places, None]
        found = found.index_add(0, tokens, out)
    return found
