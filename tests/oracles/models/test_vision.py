"""Models of images with the weights of models in PyTorch: they compute the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers as hf
from torch.nn import functional as F

import treadle as td
from tests.nn.oracle import close, random
from tests.oracles.models.test_huggingface import compare, made, photos
from treadle import models, rng, weights

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
