"""Dynamic loss scales step for step against PyTorch's, and a training in float16."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import treadle as td
import treadle.numpy as tnp
from treadle import nn, optim


def test_a_scale_goes_the_way_of_torch() -> None:
    finite = np.random.default_rng(0).random(200) < 0.8
    options = {"growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 3}
    theirs = torch.amp.GradScaler("cpu", init_scale=2.0**10, **options)
    ours = nn.LossScale(2.0**10, min_scale=1e-30, **options)
    weight = torch.nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([weight], 0.0)
    adjust = td.jit(lambda scale, finite: scale.adjust(finite))
    found, expected = [], []
    for good in finite:
        theirs.scale(weight * (1.0 if good else np.inf)).backward()
        theirs.step(optimizer)
        theirs.update()
        optimizer.zero_grad()
        expected.append(theirs.get_scale())
        ours = adjust(ours, good)
        found.append(float(ours.scale))
    np.testing.assert_array_equal(found, expected)
    assert len(set(found)) > 5


@pytest.mark.parametrize("seed", [7, 11, 13])
def test_a_training_in_float16_goes_the_way_of_torch(seed: int) -> None:
    """With a scale that is too large at first: the same steps are left out."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(32, n)).astype(np.float32) for n in (4, 2))
    theirs = torch.nn.Linear(4, 2)
    layer = nn.Precision(compute="float16").apply(
        nn.Linear(4, 2, key=td.rng.key(0)).replace(
            weight=tnp.asarray(theirs.weight.detach().numpy().T.copy()),
            bias=tnp.asarray(theirs.bias.detach().numpy().copy()),
        )
    )
    sgd = torch.optim.SGD(theirs.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**22, growth_interval=5)
    optimizer = optim.apply_if_finite(optim.sgd(0.1), 100)
    state, scale = optimizer.init(layer), nn.LossScale(2.0**22, growth_interval=5)

    @td.jit
    def step(layer, state, scale):
        def loss(layer):
            return scale.apply(nn.squared_error(layer(x).astype(tnp.float32), y).mean())

        grads = scale.unscale(td.grad(loss)(layer))
        updates, state = optimizer.update(grads, state, layer)
        return (
            optim.apply_updates(layer, updates),
            state,
            scale.adjust(nn.all_finite(grads)),
        )

    scales = []
    for _ in range(30):
        with torch.autocast("cpu", torch.float16):
            out = theirs(torch.from_numpy(x))
        loss = torch.nn.functional.mse_loss(out.float(), torch.from_numpy(y))
        scaler.scale(loss).backward()
        scaler.step(sgd)
        scaler.update()
        sgd.zero_grad()
        layer, state, scale = step(layer, state, scale)
        scales.append((float(scale.scale), scaler.get_scale()))
    assert int(state.total) > 2
    assert [ours for ours, _ in scales] == [other for _, other in scales]
    np.testing.assert_allclose(
        layer.weight.T, theirs.weight.detach().numpy(), rtol=0, atol=2e-3
    )
