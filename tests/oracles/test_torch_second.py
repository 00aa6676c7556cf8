"""Second derivatives through convolutions by tiles, against PyTorch in float64."""

from __future__ import annotations

import numpy as np
import torch

import treadle as td
import treadle.numpy as tnp


def test_gradients_after_a_step():
    """A step of gradient descent within the loss, for each of two tasks."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 19, 23, 32))
    w = rng.normal(size=(3, 3, 32, 32)) / 17
    v = rng.normal(size=(3, 3, 32, 32)) / 17

    def given(precision):
        def conv(x, w):
            return td.lax.conv_general_dilated(
                x,
                w,
                (1, 1),
                "SAME",
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
                precision=precision,
            )

        def loss(ws, x):
            return tnp.mean(conv(tnp.tanh(conv(x, ws[0])), ws[1]) ** 2)

        def after(ws, x):
            steps = td.grad(loss)(ws, x)
            return loss([w - g for w, g in zip(ws, steps, strict=True)], x)

        def both(ws, x):
            return tnp.sum(td.vmap(after, in_axes=(None, 0))(ws, x))

        floats = [a.astype("float32") for a in (w, v)]
        return td.jit(td.grad(both))(floats, x.astype("float32"))

    def conv(x, w):
        return torch.nn.functional.conv2d(x, w, padding=1)

    def loss(ws, x):
        return (conv(torch.tanh(conv(x, ws[0])), ws[1]) ** 2).mean()

    ws = [torch.tensor(a.transpose(3, 2, 0, 1), requires_grad=True) for a in (w, v)]
    total = torch.tensor(0.0, dtype=torch.float64)
    for task in torch.tensor(x.transpose(0, 1, 4, 2, 3)):
        steps = torch.autograd.grad(loss(ws, task), ws, create_graph=True)
        total = total + loss([w - g for w, g in zip(ws, steps, strict=True)], task)
    expected = [g.numpy() for g in torch.autograd.grad(total, ws)]
    found, exact = given(None), given("highest")
    for made, other, wanted in zip(found, exact, expected, strict=True):
        wanted = wanted.transpose(2, 3, 1, 0)
        np.testing.assert_allclose(made, wanted, atol=2e-5 * wanted.std(), rtol=0)
        # By tiles, or this would compare nothing.
        assert not np.array_equal(made, other)
