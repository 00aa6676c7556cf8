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


DIFFUSION = models.Diffusion(models.linear_schedule(100))


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
    "diffusion": (
        lambda **o: models.DiffusionUNet(
            (4, 8), 1, groups=2, heads=2, attends=0, key=KEY, **o
        ),
        lambda model, images, key: DIFFUSION.loss(model, images, key=key).mean(),
        ((2, 4, 4), (3, 4, 6)),
    ),
    "mixer": (
        lambda **o: models.MLPMixer(8, 4, 8, 1, 3, key=KEY, **o),
        labelled,
        FIXED,
    ),
    "vit": (
        lambda **o: models.ViT(8, 4, 8, 1, 2, classes=3, key=KEY, **o),
        labelled,
        FIXED,
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
    optimizer = optim.sgd(0.01)
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


QUICK = ("mlp vae", "conv vae", "vit")
HALVES = [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in TRAINED]


@pytest.mark.parametrize("name", HALVES)
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
    with pytest.raises(ValueError, match="10 pixels are no whole number of 4"):
        models.MLPMixer(10, 4, 8, 1, 3, key=KEY)
    with pytest.raises(ValueError, match='"bernoulli" or "normal", got \'gamma\''):
        models.VAE(nn.relu, nn.relu, 2, likelihood="gamma")


def test_schedules_of_noise():
    steps = np.arange(1, 1001)
    betas = 1e-4 + (steps - 1) * (0.02 - 1e-4) / 999
    linear = [np.prod(1 - betas[:n]) for n in steps]
    np.testing.assert_allclose(models.linear_schedule(), linear)
    f = np.cos((steps / 1000 + 0.008) / 1.008 * np.pi / 2) ** 2
    cosine = f / np.cos(0.008 / 1.008 * np.pi / 2) ** 2
    np.testing.assert_allclose(models.cosine_schedule()[:-1], cosine[:-1])
    assert 0 < models.cosine_schedule()[-1] < models.cosine_schedule()[-2]
    with pytest.raises(ValueError, match="signal falls from step to step"):
        models.Diffusion([0.5, 0.6])


def gaussian(diffusion):
    """What the noise is on average, if pixels have mean 2 and variance 1/4."""

    def model(x, times):
        signal = diffusion.signal[times][:, None]
        gap = x - tnp.sqrt(signal) * 2
        return tnp.sqrt(1 - signal) * gap / (signal * 0.25 + 1 - signal)

    return model


def exactly(signal, eta):
    """Mean and standard deviation of what DDPM's posterior gives step for step (Ho
    2020, (7)), or DDIM's update (Song 2020, (12)), with that model."""
    mean, variance = 0.0, 1.0
    for now, then in zip(signal[::-1], [*signal[-2::-1], 1.0], strict=True):
        slope = (1 - now) ** 0.5 / (now * 0.25 + 1 - now)
        noise = np.array([slope, -slope * now**0.5 * 2])  # of x, and of 1
        image = (np.array([1, 0]) - (1 - now) ** 0.5 * noise) / now**0.5
        if eta:
            alpha = now / then
            moved = then**0.5 * (1 - alpha) / (1 - now) * image
            moved[0] += alpha**0.5 * (1 - then) / (1 - now)
            anew = (1 - alpha) * (1 - then) / (1 - now)
        else:
            moved, anew = then**0.5 * image + (1 - then) ** 0.5 * noise, 0
        mean = moved[0] * mean + moved[1]
        variance = moved[0] ** 2 * variance + anew
    return mean, variance**0.5


@pytest.mark.parametrize("eta", [0.0, 1.0])
@pytest.mark.parametrize("schedule", [models.cosine_schedule, models.linear_schedule])
def test_samples_are_distributed_as_steps_say(schedule, eta):
    signal = schedule(60)
    diffusion = models.Diffusion(signal)
    model = gaussian(diffusion)
    run = td.jit(lambda key: diffusion.sample(model, (8000, 3), eta=eta, key=key))
    x = run(KEY)
    mean, std = exactly(signal, eta)
    np.testing.assert_allclose(x.mean(), mean, atol=0.02)
    np.testing.assert_allclose(x.std(), std, 0.02)


def test_velocities():
    """A model that tells velocities draws what one that tells noise does; it is told
    what Salimans 2022 says, of which noise and image are the sums."""
    signal = models.cosine_schedule(60)
    of_noise = models.Diffusion(signal)
    of_velocity = models.Diffusion(signal, prediction="velocity")
    noise = gaussian(of_noise)

    def velocity(x, times):
        left = of_noise.signal[times][:, None]
        found = noise(x, times)
        image = (x - tnp.sqrt(1 - left) * found) / tnp.sqrt(left)
        return tnp.sqrt(left) * found - tnp.sqrt(1 - left) * image

    options = {"shape": (50, 3), "steps": 20, "key": KEY}
    np.testing.assert_allclose(
        of_velocity.sample(velocity, **options),
        of_noise.sample(noise, **options),
        1e-3,
        1e-3,
    )
    seen = []

    def record(x, times):
        seen.append((x, times))
        return tnp.zeros_like(x)

    x = random(7, 5)
    for diffusion in (of_noise, of_velocity):
        found = diffusion.loss(record, x, key=KEY)
        noisy, times = seen[-1]
        left = signal[np.asarray(times)][:, None]
        noise_in = (noisy - left**0.5 * x) / (1 - left) ** 0.5
        wanted = noise_in
        if diffusion is of_velocity:
            wanted = left**0.5 * noise_in - (1 - left) ** 0.5 * x
        np.testing.assert_allclose(found, (wanted**2).mean(-1), 1e-3)
    with pytest.raises(ValueError, match='"noise" or "velocity", got \'eps\''):
        models.Diffusion(signal, prediction="eps")


def test_fewer_steps_and_clipped_pixels():
    diffusion = models.Diffusion(models.cosine_schedule(200))
    model = gaussian(diffusion)

    @td.jit
    def fewer(key):
        return diffusion.sample(model, (8000, 3), steps=50, eta=0.5, key=key)

    x = fewer(KEY)
    np.testing.assert_allclose([x.mean(), x.std()], [2, 0.5], 0.05)

    @td.jit
    def clipped(key):
        return diffusion.sample(model, (100, 3), steps=5, clip=1.5, key=key)

    assert clipped(KEY).max() <= 1.5
    with pytest.raises(ValueError, match="steps is one of 1 to 200, got 201"):
        diffusion.sample(model, (1, 3), steps=201, key=KEY)


def test_resnets_by_depth():
    def count(depth):
        make = td.eval_shape(lambda: models.ResNet.of_depth(depth, 1000, key=KEY))
        return sum(x.size for x in nn.parameters(make).values())

    # As torchvision counts them.
    assert count(18) == 11_689_512
    assert count(50) == 25_557_032
    small = models.ResNet.of_depth(20, 10, zero_last=True, key=KEY)
    block = small.stages[0][0]
    x = nn.relu(random(2, 8, 8, 16))
    found, _ = nn.stateful(block)(x)
    np.testing.assert_array_equal(found, x)
    with pytest.raises(ValueError, match=r"depth is one of \[18, 20, .*, got 19"):
        models.ResNet.of_depth(19, 10, key=KEY)
