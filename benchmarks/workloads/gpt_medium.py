"""GPT with 6 layers, width 256, 8 heads, 256 tokens, batch 8."""

from workloads import gpt

SIZES = gpt.Sizes(layers=6, width=256, heads=8, length=256, batch=8)


def weights(seed: int):
    """Initial weights by path."""
    return gpt.weights(SIZES, seed)


def batch(seed: int, size: int = SIZES.batch):
    """Tokens and the tokens that follow them."""
    return gpt.batch(SIZES, seed, size)


def flops() -> int:
    """Contractions of one training step."""
    return gpt.flops(SIZES)


def jax_step(weights, batch):
    """Equinox and Optax."""
    from workloads import gpt_jax

    return gpt_jax.build(SIZES, weights, batch)


def torch_step(weights, batch):
    """PyTorch."""
    from workloads import gpt_torch

    return gpt_torch.build(SIZES, weights, batch)


def treadle_step(weights, batch):
    """Treadle."""
    from workloads import gpt_treadle

    return gpt_treadle.build(SIZES, weights, batch)
