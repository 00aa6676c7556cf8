"""Models of images: steps of training for images of many sizes, and their parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import random
from treadle import models, nn, optim, rng

KEY = rng.key(0)


class Loss(nn.Module):
    """A loss of a model, in a module: as `nn.stateful` takes it."""

    model: Any
    of: Callable[..., td.Array]

    def __call__(self, images, key):
        return self.of(self.model, images, key)


def labelled(model, images, key):
    """The loss of a classifier, of images or of their pixels: of the first class."""
    logits = model(images)
    return nn.cross_entropy(logits, tnp.zeros(logits.shape[:-1], tnp.int32)).mean()


ANY = ((2, 16, 16), (3, 13, 18), (1, 20, 9), (5, 32, 24))
# What is halved is halved evenly, or in one other way.
EVEN = ((2, 16, 16), (3, 16, 24), (2, 13, 15), (1, 24, 16))
FIXED = ((2, 8, 8), (3, 8, 8), (1, 8, 8), (6, 8, 8))
# What makes a model (with options), its loss, and batches: (batch, height, width).
TRAINED = {
    "resnet": (
        lambda **o: models.ResNet((8, 16), (1, 1), 3, stem=4, key=KEY, **o),
        labelled,
        ANY,
    ),
    "convnext": (
        lambda **o: models.ConvNeXt((8, 16), (1, 1), 3, drop_path=0.1, key=KEY, **o),
        labelled,
        EVEN,
    ),
    "unet": (
        lambda **o: models.UNet((8, 16), 3, dropout=0.1, key=KEY, **o),
        labelled,
        EVEN,
    ),
    "conv vae": (
        lambda **o: models.VAE.conv(8, (4, 8), 2, key=KEY, **o),
        lambda model, images, key: model.loss(nn.sigmoid(images), key=key).mean(),
        FIXED,
    ),
    "mlp vae": (
        lambda **o: models.VAE.mlp(
            (8, 8, 3), (8,), 2, likelihood="normal", key=KEY, **o
        ),
        lambda model, images, key: model.loss(images, key=key).mean(),
        FIXED,
    ),
}


@pytest.mark.parametrize("name", TRAINED)
def test_steps_of_training_for_all_sizes(name):
    make, loss_of, batches = TRAINED[name]
    optimizer = optim.adam(3e-3)
    traced = []

    def step(model, state, images, key):
        traced.append(images.shape)

        def loss(model):
            value, after = nn.stateful(Loss(model, loss_of), key=key)(images, key)
            return value, after.model

        (value, model), grads = td.value_and_grad(loss, has_aux=True)(model)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state, value

    space = (None, None) if batches is FIXED else ("height", "width")
    step = td.jit(step, dynamic={"images": ("batch", *space, None)})
    model = make()
    state = optimizer.init(model)
    values = {}
    for _ in range(2):
        for shape in batches:
            images = random(*shape, 3)
            model, state, value = step(model, state, images, KEY)
            values.setdefault(shape, []).append(float(value))
    assert len(traced) <= 2
    assert all(after < before for before, after in values.values()), values


@pytest.mark.parametrize("name", TRAINED)
def test_halves(name):
    """Parameters stay wide, what is computed is narrow, and about the same."""
    make, loss_of, batches = TRAINED[name]
    images = random(*batches[0], 3)
    model = nn.inference(make())
    narrow = nn.inference(make(dtype=tnp.bfloat16))
    assert {x.dtype.name for x in nn.parameters(narrow).values()} == {"float32"}
    wanted = float(td.jit(loss_of)(model, images, KEY))
    found = float(td.jit(loss_of)(narrow, images, KEY))
    assert found != wanted
    np.testing.assert_allclose(found, wanted, 0.05)
    double = make(param_dtype=tnp.bfloat16)
    assert {x.dtype.name for x in nn.parameters(double).values()} == {"bfloat16"}


def test_the_parts_of_a_vae():
    vae = models.VAE.mlp((3, 2), (8,), 4, likelihood="normal", key=KEY)
    x = random(5, 3, 2)
    posterior = vae.encode(x)
    mean, std = posterior.mean, tnp.exp(posterior.log_variance / 2)
    z = posterior.sample(KEY)
    assert np.abs((z - mean) / std).max() < 5
    # The divergence, as the mean of what it is the mean of, over many draws.
    draws = np.random.default_rng(0).standard_normal((200_000, 4))
    of_z = np.asarray(mean[0]) + np.asarray(std[0]) * draws
    densities = (of_z**2 - draws**2) / 2 - np.log(np.asarray(std[0]))
    np.testing.assert_allclose(posterior.kl()[0], densities.sum(1).mean(), 0.02)
    badly = 0.5 * ((vae.decoder(z) - x) ** 2).sum((1, 2))
    found = vae.loss(x, beta=0.3, key=KEY)
    np.testing.assert_allclose(found, badly + 0.3 * posterior.kl(), 1e-5)
    np.testing.assert_allclose(vae(x), vae.decoder(mean), 1e-5)
    one = vae.loss(x[0], key=KEY)
    assert one.shape == () and vae.sample(key=KEY).shape == (3, 2)
    images = models.VAE.conv(8, (4, 8), 2, key=KEY).sample((2, 3), key=KEY)
    assert images.shape == (2, 3, 8, 8, 3) and 0 < images.min() < images.max() < 1
    with pytest.raises(ValueError, match="12 pixels can't be halved 3 times"):
        models.VAE.conv(12, (4, 4, 4), 2, key=KEY)
    with pytest.raises(ValueError, match='"bernoulli" or "normal", got \'gamma\''):
        models.VAE(nn.relu, nn.relu, 2, likelihood="gamma")
