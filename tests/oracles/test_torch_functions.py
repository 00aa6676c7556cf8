"""Functions that JAX lacks against PyTorch's, in values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import treadle as td
import treadle.numpy as tnp
from treadle import nn

F = torch.nn.functional
PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "hard_shrink": (nn.hard_shrink, F.hardshrink),
    "hard_shrink_limit": (
        lambda x: nn.hard_shrink(x, 1.0),
        lambda x: F.hardshrink(x, 1.0),
    ),
    "soft_shrink": (nn.soft_shrink, F.softshrink),
    "soft_shrink_limit": (
        lambda x: nn.soft_shrink(x, 1.0),
        lambda x: F.softshrink(x, 1.0),
    ),
    "tanh_shrink": (nn.tanh_shrink, F.tanhshrink),
    "threshold": (
        lambda x: nn.threshold(x, 0.3, 7.0),
        lambda x: F.threshold(x, 0.3, 7.0),
    ),
    "hard_tanh": (
        lambda x: nn.hard_tanh(x, -0.5, 2.0),
        lambda x: F.hardtanh(x, -0.5, 2.0),
    ),
    "softmin": (lambda x: nn.softmin(x, 0), lambda x: F.softmin(x, 0)),
    "normalize": (nn.normalize, lambda x: F.normalize(x, dim=-1)),
    "normalize_order": (
        lambda x: nn.normalize(x, 0, 3.0),
        lambda x: F.normalize(x, 3.0, 0),
    ),
    "normalize_eps": (
        lambda x: nn.normalize(x, eps=2.0),
        lambda x: F.normalize(x, dim=-1, eps=2.0),
    ),
    "glu": (lambda x: nn.glu(x, -2), lambda x: F.glu(x, -2)),
    "geglu": (nn.geglu, lambda x: F.gelu(x[:, :4], approximate="tanh") * x[:, 4:]),
    "geglu_exact": (
        lambda x: nn.geglu(x, approximate=False),
        lambda x: F.gelu(x[:, :4]) * x[:, 4:],
    ),
    "reglu": (lambda x: nn.reglu(x, 0), lambda x: F.relu(x[:3]) * x[3:]),
    "swiglu": (lambda x: nn.swiglu(x, 0), lambda x: F.silu(x[:3]) * x[3:]),
    "quick_gelu": (nn.quick_gelu, lambda x: x * torch.sigmoid(1.702 * x)),
    "standardize_axes": (
        lambda x: nn.standardize(x, (0, 1), eps=0.1),
        lambda x: F.layer_norm(x, x.shape, eps=0.1),
    ),
    "logmeanexp_all": (
        lambda x: nn.logmeanexp(x, None),
        lambda x: x.exp().mean().log(),
    ),
    "mish": (nn.mish, F.mish),
    "log_sigmoid": (nn.log_sigmoid, F.logsigmoid),
    "softsign": (nn.softsign, F.softsign),
    "hard_silu": (nn.hard_silu, F.hardswish),
}


@pytest.mark.parametrize("name", PAIRS)
def test_agrees_with_torch(name: str) -> None:
    ours, theirs = PAIRS[name]
    x = (2 * np.random.default_rng(0).standard_normal((6, 8))).astype(np.float32)
    x[0, :4] = [0.5, -0.5, 1.0, -1.0]  # at kinks of shrinkage
    if name in ("hard_tanh", "hard_silu"):
        x[0, :4] = 0.25  # there is no common derivative at kinks of these
    given = torch.tensor(x, requires_grad=True)
    expected = theirs(given)
    weights = np.random.default_rng(1).standard_normal(expected.shape)
    weights = weights.astype(np.float32)
    (expected * torch.tensor(weights)).sum().backward()

    def loss(x: Any) -> Any:
        return (ours(x) * weights).sum()

    found = td.jit(ours)(tnp.asarray(x))
    np.testing.assert_allclose(found, expected.detach(), 2e-5, 2e-5)
    grads = td.jit(td.grad(loss))(tnp.asarray(x))
    np.testing.assert_allclose(grads, given.grad, 2e-5, 2e-5)
