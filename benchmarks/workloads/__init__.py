"""The steps that are compared: modules, and classes that have their sizes as fields.

Each workload has `weights(seed)` and `batch(seed)` (NumPy), `flops()` (contractions of
one training step) and the builders `jax_step`, `torch_step` and `treadle_step`, which
take the weights and the batch and return a step with `.step()`, which trains once and
gives the loss, and `.compile_ms()` where the library compiles. A `Program` is written
once for all peers.

Weights are named by their path in the model and stored in the layout that PyTorch and
Equinox share: linear (out, in), convolution (out, in, height, width).
"""

from types import ModuleType

from workloads import attention, cnn, lstm, mlp
from workloads.dense import (
    VAE,
    EmbeddingBag,
    Experts,
    NeuralODE,
    Perceptron,
    WideAndDeep,
)
from workloads.gpt import Workload
from workloads.images import ConvNeXt, InvertedResiduals, ResNet
from workloads.language import BERT, GPT, T5, Decoding, Llama
from workloads.plain import Calls, Product
from workloads.program import Program
from workloads.recurrent import GRU, LSTMLanguageModel
from workloads.unets import Diffusion, UNet
from workloads.vision import Mixer, VisionTransformer

HALF = "bfloat16"
PROGRAMS = {
    "mlp-tiny": Perceptron(),
    "gru": GRU(),
    "experts": Experts(),
    "mixer": Mixer(),
    "vae": VAE(),
    "neural-ode": NeuralODE(),
    "gpt-decoding": Decoding(),
    "embedding-bag": EmbeddingBag(),
    "vit": VisionTransformer(),
    "resnet18": ResNet(),
    "inverted-residuals": InvertedResiduals(),
    "unet": UNet(),
    "gpt": GPT(),
    "gpt-bf16": GPT(dtype=HALF),
    "convnext": ConvNeXt(),
    "t5": T5(),
    "diffusion": Diffusion(),
    "llama": Llama(),
    "llama-bf16": Llama(dtype=HALF),
    "lstm-language": LSTMLanguageModel(),
    "wide-and-deep": WideAndDeep(),
    "resnet18-inference-1": ResNet(trains=False, batch_size=1),
    "resnet18-inference-8": ResNet(trains=False, batch_size=8),
    "bert-inference-1": BERT(batch_size=1),
    "bert-inference-8": BERT(batch_size=8),
    "product": Product(),
    "product-bf16": Product(dtype=HALF),
    "1000-calls": Calls(),
    "1000-calls-100-in": Calls(arrays=100, to_one=True),
    "1000-calls-100-out": Calls(arrays=100),
}
WORKLOADS: dict[str, ModuleType | Workload | Program] = {
    "mlp": mlp,
    "cnn": cnn,
    "gpt-small": Workload(layers=4, width=128, heads=4, length=128, batch_size=16),
    "gpt-medium": Workload(layers=6, width=256, heads=8, length=256, batch_size=8),
    "lstm": lstm,
    **PROGRAMS,
}
NAMES = tuple(WORKLOADS)
OTHERS: dict[str, ModuleType | Workload | Program] = {"attention": attention}
"""Those that only some peers have, for benchmarks of their own."""
PEERS = ("treadle", "jax", "torch", "compiled")
"""`compiled` is PyTorch's `torch.compile`."""


def load(name: str) -> ModuleType | Workload | Program:
    """The workload `name`."""
    known = WORKLOADS | OTHERS
    if name not in known:
        raise ValueError(f"no workload {name!r}; choose from {', '.join(known)}")
    return known[name]


def build(name: str, peer: str, seed: int = 0):
    """A fresh training step of the workload `name` in the library `peer`."""
    return build_step(load(name), peer, seed)


def build_step(workload: ModuleType | Workload | Program, peer: str, seed: int = 0):
    """A fresh training step of a workload in the library `peer`."""
    library = "torch" if peer == "compiled" else peer
    builder = getattr(workload, f"{library}_step")
    step = builder(workload.weights(seed), workload.batch(seed))
    if peer == "compiled":
        step.compile()
    return step
