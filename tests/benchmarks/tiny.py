"""The programs of the benchmarks at sizes that run in no time."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import harness
import machine
import workloads
from workloads import HALF
from workloads.dense import (
    VAE,
    EmbeddingBag,
    Experts,
    NeuralODE,
    Perceptron,
    WideAndDeep,
)
from workloads.images import ConvNeXt, InvertedResiduals, ResNet
from workloads.language import BERT, GPT, T5, Decoding, Llama
from workloads.plain import Calls, Product
from workloads.recurrent import GRU, LSTMLanguageModel
from workloads.unets import Diffusion, UNet
from workloads.vision import Mixer, VisionTransformer

__all__ = ["PROGRAMS", "harness", "machine", "workloads"]

TEXT = {"vocabulary": 11, "width": 8, "layers": 1, "heads": 2, "length": 6}
LLAMA = TEXT | {"key_heads": 1, "hidden": 12, "batch_size": 2}
PATCHES = {"size": 8, "width": 6, "layers": 1, "batch_size": 2}
RESIDUAL = {"size": 8, "widths": (4, 6), "blocks": 1, "batch_size": 2}
U = {"size": 8, "width": 4, "levels": 1, "groups": 2, "batch_size": 2}
PROGRAMS = {
    "mlp-tiny": Perceptron(sizes=(4, 5, 3), batch_size=4),
    "gru": GRU(features=3, hidden=4, length=5, batch_size=2),
    "experts": Experts(width=4, hidden=6, experts=4, tokens=12),
    "mixer": Mixer(**PATCHES),
    "vae": VAE(pixels=6, hidden=5, latent=2, batch_size=3),
    "neural-ode": NeuralODE(hidden=4, steps=5, batch_size=3),
    "gpt-decoding": Decoding(**TEXT),
    "embedding-bag": EmbeddingBag(words=20, width=4, length=5, batch_size=3),
    "vit": VisionTransformer(**PATCHES),
    "resnet18": ResNet(**RESIDUAL),
    "inverted-residuals": InvertedResiduals(
        size=8, stages=((4, 2, 2),), stem=4, expansion=2, batch_size=3
    ),
    "unet": UNet(**U),
    "gpt": GPT(**TEXT, batch_size=2),
    "gpt-bf16": GPT(**TEXT, batch_size=2, dtype=HALF),
    "convnext": ConvNeXt(size=8, width=4, layers=1, batch_size=2),
    "t5": T5(**TEXT, batch_size=2, distances=8),
    "diffusion": Diffusion(**U, heads=2, time=8),
    "llama": Llama(**LLAMA),
    "llama-bf16": Llama(**LLAMA, dtype=HALF),
    "lstm-language": LSTMLanguageModel(vocabulary=7, width=4, length=5, batch_size=2),
    "wide-and-deep": WideAndDeep(
        rows=40, columns=4, numbers=3, width=2, hidden=5, batch_size=4
    ),
    "resnet18-inference-1": ResNet(**(RESIDUAL | {"batch_size": 1}), trains=False),
    "resnet18-inference-8": ResNet(**(RESIDUAL | {"batch_size": 3}), trains=False),
    "bert-inference-1": BERT(**TEXT),
    "bert-inference-8": BERT(**TEXT, batch_size=3),
    "product": Product(size=20),
    "product-bf16": Product(size=20, dtype=HALF),
    "1000-calls": Calls(repeat=2),
    "1000-calls-100-in": Calls(repeat=2, arrays=5, to_one=True),
    "1000-calls-100-out": Calls(repeat=2, arrays=5),
}
