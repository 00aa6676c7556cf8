"""Models of images with the weights of models in PyTorch: they compute the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers as hf
from torch.nn import functional as F

import treadle as td
from tests.nn.oracle import close, random
from tests.oracles.models.test_huggingface import RESNET, compare, made, photos
from treadle import models, nn, rng, weights
from treadle.models.huggingface import resnet

KEY = rng.key(0)
CONVNEXT = {"hidden_sizes": [8, 16], "depths": [1, 2], "num_stages": 2}
CONVNEXT |= {"layer_scale_init_value": 0.5}
# PyTorch's transposed convolutions have (in, out, *window).
_UP = weights.Layout(
    lambda x: np.moveaxis(x, (0, 1), (-2, -1)),
    lambda x: np.moveaxis(x, (-2, -1), (0, 1)),
)


def perturbed(theirs):
    """With weights that are not what they begin with, zeros and ones above all."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return theirs


def same_as(theirs, ours, rules, call, expect, tolerance=2e-5):
    """Outputs, and gradients of a weighted sum of them in every parameter."""
    arrays = {name: x.detach().numpy() for name, x in theirs.named_parameters()}
    ours = weights.into(ours, arrays, rules)
    expected = expect(theirs)
    scores = random(*expected.shape, seed=7)
    (expected * torch.tensor(scores)).sum().backward()
    for transform in (lambda f: f, td.jit):
        close(transform(call)(ours), expected.detach().numpy(), tolerance)
    grads = td.jit(td.grad(lambda m: (call(m) * scores).sum()))(ours)
    found = weights.of(grads, rules)
    assert set(found) == set(arrays)
    for name, parameter in theirs.named_parameters():
        wanted = parameter.grad.numpy()
        size = max(1, float(np.abs(wanted).max()))
        np.testing.assert_allclose(
            found[name] / size, wanted / size, 0, tolerance, err_msg=name
        )


def last(x):
    return x.movedim(1, -1)


@pytest.mark.parametrize(
    "options",
    [{}, {"layer_scale_init_value": 0.0, "hidden_act": "gelu_new"}],
)
def test_convnext(options, tmp_path):
    images, theirs_images = photos(2, 37, 45)
    theirs = made(hf.ConvNextForImageClassification, CONVNEXT | options, num_labels=7)
    compare(
        theirs,
        tmp_path,
        lambda ours: ours(images),
        lambda theirs: theirs(theirs_images).logits,
    )


def test_convnext_without_a_head_there_and_back(tmp_path):
    images, theirs_images = photos(2, 32, 40)
    compare(
        made(hf.ConvNextModel, CONVNEXT),
        tmp_path,
        lambda ours: ours.pool(ours.encode(images)),
        lambda theirs: theirs(theirs_images).pooler_output,
    )
    model = models.from_huggingface(tmp_path / "model")
    changed = td.tree.map(lambda x: x * 1.1, model)
    models.to_huggingface(tmp_path / "ours", changed, like=tmp_path / "model")
    again, report = hf.ConvNextModel.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(report.values()), report
    with torch.no_grad():
        expected = last(again.eval()(theirs_images).last_hidden_state).numpy()
    close(changed.encode(images), expected, 1e-5)


def like(x, y):
    return x[..., : y.shape[-2], : y.shape[-1]]


@pytest.mark.parametrize("kind", ["basic", "bottleneck"])
def test_gradients_of_a_resnet_in_training(kind, tmp_path):
    images, theirs_images = photos(3, 33, 40)
    theirs = made(hf.ResNetForImageClassification, RESNET | {"layer_type": kind})
    theirs.save_pretrained(tmp_path / "model")
    ours = nn.training(models.from_huggingface(tmp_path / "model"))
    expected = theirs.train()(theirs_images).logits
    scores = random(*expected.shape, seed=7)
    (expected * torch.tensor(scores)).sum().backward()

    def loss(model):
        out, _ = nn.stateful(model)(images)
        return (out * scores).sum(), out

    grads, found = td.jit(td.grad(loss, has_aux=True))(ours)
    close(found, expected.detach().numpy(), 1e-4)
    gradients = weights.of(grads, resnet.names(ours))
    for name, parameter in theirs.named_parameters():
        wanted = parameter.grad.numpy()
        size = max(1, float(np.abs(wanted).max()))
        np.testing.assert_allclose(
            gradients[name.removeprefix("resnet.")] / size, wanted / size, 0, 1e-4
        )


class ConvBlock(torch.nn.Module):
    def __init__(self, before, width, groups):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(before, width, 3, padding=1)
        self.norm1 = torch.nn.GroupNorm(groups, width)
        self.conv2 = torch.nn.Conv2d(width, width, 3, padding=1)
        self.norm2 = torch.nn.GroupNorm(groups, width)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(x)))


class UNet(torch.nn.Module):
    """Of three sizes."""

    def __init__(self, a, b, c, classes, groups):
        super().__init__()
        self.in1, self.in2 = ConvBlock(3, a, groups), ConvBlock(a, b, groups)
        self.middle = ConvBlock(b, c, groups)
        self.up2 = torch.nn.ConvTranspose2d(c, b, 2, stride=2)
        self.out2 = ConvBlock(2 * b, b, groups)
        self.up1 = torch.nn.ConvTranspose2d(b, a, 2, stride=2)
        self.out1 = ConvBlock(2 * a, a, groups)
        self.head = torch.nn.Conv2d(a, classes, 1)

    def forward(self, x):
        x1 = self.in1(x)
        x2 = self.in2(F.max_pool2d(x1, 2, ceil_mode=True))
        x = self.middle(F.max_pool2d(x2, 2, ceil_mode=True))
        x = self.out2(torch.cat([x2, like(self.up2(x), x2)], 1))
        x = self.out1(torch.cat([x1, like(self.up1(x), x1)], 1))
        return self.head(x)


UNET_RULES = [
    weights.Rule(
        f"{theirs}.{layer}{i + 1}.{{leaf}}",
        f"{ours}.{layer}s.{i}.{{leaf}}",
        weights.TORCH,
    )
    for theirs, ours in {
        "in1": "down.0",
        "in2": "down.1",
        "middle": "down.2",
        "out1": "joined.0",
        "out2": "joined.1",
    }.items()
    for layer in ("conv", "norm")
    for i in range(2)
]
UNET_RULES += [
    weights.Rule(f"up{i + 1}.{leaf}", f"up.{i}.{leaf}", layout)
    for i in range(2)
    for leaf, layout in (("weight", _UP), ("bias", weights.TORCH))
]
UNET_RULES.append(weights.Rule("head.{leaf}", "head.{leaf}", weights.TORCH))


@pytest.mark.parametrize("size", [(16, 12), (13, 18)])
def test_unet(size):
    images, theirs_images = photos(2, *size)
    same_as(
        perturbed(UNet(8, 12, 16, 5, 4)),
        models.UNet((8, 12, 16), 5, groups=4, key=KEY),
        UNET_RULES,
        lambda ours: ours(images),
        lambda theirs: last(theirs(theirs_images)),
    )


class TimedBlock(torch.nn.Module):
    def __init__(self, before, width, time, groups):
        super().__init__()
        self.norms = torch.nn.ModuleList(
            [torch.nn.GroupNorm(groups, n) for n in (before, width)]
        )
        self.convs = torch.nn.ModuleList(
            [torch.nn.Conv2d(n, width, 3, padding=1) for n in (before, width)]
        )
        self.time = torch.nn.Linear(time, width)
        if before != width:
            self.shortcut = torch.nn.Linear(before, width)

    def forward(self, x, time):
        h = self.convs[0](F.silu(self.norms[0](x)))
        h = h + self.time(F.silu(time))[:, :, None, None]
        h = self.convs[1](F.silu(self.norms[1](h)))
        return h + (
            self.shortcut(last(x)).movedim(-1, 1) if hasattr(self, "shortcut") else x
        )


class PixelAttention(torch.nn.Module):
    def __init__(self, width, heads, groups):
        super().__init__()
        self.heads = heads
        self.norm = torch.nn.GroupNorm(groups, width)
        self.attention = torch.nn.ModuleDict(
            {n: torch.nn.Linear(width, width) for n in ("query", "key", "value", "out")}
        )

    def forward(self, x):
        pixels = self.norm(x).flatten(2).mT
        query, key, value = (
            self.attention[n](pixels).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for n in ("query", "key", "value")
        )
        seen = F.scaled_dot_product_attention(query, key, value)
        added = self.attention["out"](seen.transpose(1, 2).flatten(2))
        return x + added.mT.reshape(x.shape)


class Stage(torch.nn.Module):
    def __init__(self, sizes, time, heads, groups, attends):
        super().__init__()
        self.blocks = torch.nn.ModuleList([TimedBlock(*s, time, groups) for s in sizes])
        if attends:
            self.attentions = torch.nn.ModuleList(
                [PixelAttention(s[1], heads, groups) for s in sizes]
            )

    def forward(self, i, x, time):
        x = self.blocks[i](x, time)
        return self.attentions[i](x) if hasattr(self, "attentions") else x


class DiffusionUNet(torch.nn.Module):
    """Of two sizes, with two blocks in each; attention at the smaller one."""

    def __init__(self, a, b, heads, groups):
        super().__init__()
        t, nn = 4 * a, torch.nn
        self.time = nn.ModuleList([nn.Linear(a, t), nn.Linear(t, t)])
        self.stem = nn.Conv2d(3, a, 3, padding=1)
        self.down = nn.ModuleList(
            [
                Stage([(a, a), (a, a)], t, heads, groups, False),
                Stage([(a, b), (b, b)], t, heads, groups, True),
            ]
        )
        self.halvings = nn.ModuleList([nn.Conv2d(a, a, 3, stride=2, padding=1)])
        self.middle = nn.ModuleList([TimedBlock(b, b, t, groups) for _ in range(2)])
        self.attention = PixelAttention(b, heads, groups)
        self.up = nn.ModuleList(
            [
                Stage([(2 * b, b), (2 * b, b), (b + a, b)], t, heads, groups, True),
                Stage([(b + a, a), (2 * a, a), (2 * a, a)], t, heads, groups, False),
            ]
        )
        self.doublings = nn.ModuleList([nn.Conv2d(b, b, 3, padding=1)])
        self.norm = nn.GroupNorm(groups, a)
        self.head = nn.Conv2d(a, 3, 3, padding=1)

    def forward(self, x, times):
        width = self.time[0].in_features
        speeds = 10000 ** (-torch.arange(0, width, 2) / width)
        angles = times[:, None] * speeds
        waves = torch.cat([angles.sin(), angles.cos()], -1)
        time = self.time[1](F.silu(self.time[0](waves)))
        x0 = self.stem(x)
        x1 = self.down[0](0, x0, time)
        x2 = self.down[0](1, x1, time)
        x3 = self.halvings[0](x2)
        x4 = self.down[1](0, x3, time)
        x5 = self.down[1](1, x4, time)
        x = self.middle[1](self.attention(self.middle[0](x5, time)), time)
        for i, aside in enumerate((x5, x4, x3)):
            x = self.up[0](i, torch.cat([x, aside], 1), time)
        x = self.doublings[0](like(F.interpolate(x, scale_factor=2), x2))
        for i, aside in enumerate((x2, x1, x0)):
            x = self.up[1](i, torch.cat([x, aside], 1), time)
        return self.head(F.silu(self.norm(x)))


@pytest.mark.parametrize("size", [(8, 12), (7, 10)])
def test_diffusion_unet(size):
    images, theirs_images = photos(2, *size)
    times = np.array([3, 600])
    same_as(
        perturbed(DiffusionUNet(8, 12, 2, 4)),
        models.DiffusionUNet((8, 12), 2, heads=2, groups=4, key=KEY),
        [weights.Rule("{*path}.{leaf}", "{*path}.{leaf}", weights.TORCH)],
        lambda ours: ours(images, times),
        lambda theirs: last(theirs(theirs_images, torch.tensor(times))),
    )


class MixerBlock(torch.nn.Module):
    def __init__(self, places, width):
        super().__init__()
        nn = torch.nn
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up1, self.down1 = nn.Linear(places, 5), nn.Linear(5, places)
        self.up2, self.down2 = nn.Linear(width, 20), nn.Linear(20, width)

    def forward(self, x):
        h = self.norm1(x).mT
        x = x + self.down1(F.gelu(self.up1(h), approximate="tanh")).mT
        h = self.up2(self.norm2(x))
        return x + self.down2(F.gelu(h, approximate="tanh"))


class Mixer(torch.nn.Module):
    def __init__(self, places, width, classes):
        super().__init__()
        self.patches = torch.nn.Conv2d(3, width, 4, stride=4)
        self.blocks = torch.nn.ModuleList([MixerBlock(places, width) for _ in range(2)])
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).mT
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def test_mixer():
    images, theirs_images = photos(2, 12, 12)
    named = {
        "patches": "patches.projection",
        "norm": "norm",
        "head": "head",
        **{
            f"blocks.{{i}}.{a}": f"layers.{{i}}.{b}"
            for a, b in {
                "norm1": "place_norm",
                "up1": "place_mlp.up",
                "down1": "place_mlp.down",
                "norm2": "mlp_norm",
                "up2": "mlp.up",
                "down2": "mlp.down",
            }.items()
        },
    }
    same_as(
        perturbed(Mixer(9, 8, 7)),
        models.MLPMixer(12, 4, 8, 2, 7, place_hidden=5, hidden=20, key=KEY),
        [
            weights.Rule(f"{a}.{{leaf}}", f"{b}.{{leaf}}", weights.TORCH)
            for a, b in named.items()
        ],
        lambda ours: ours(images),
        lambda theirs: theirs(theirs_images),
    )
