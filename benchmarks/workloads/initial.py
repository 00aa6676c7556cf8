"""Initial weights that every peer starts from, drawn by NumPy."""

import numpy as np

Weights = dict[str, np.ndarray]


def dense(rng: np.random.Generator, name: str, *shape: int) -> Weights:
    """A linear or convolution layer of shape (out, in, ...): weight and bias."""
    scale = 1 / np.sqrt(np.prod(shape[1:]))
    return {
        f"{name}.weight": (rng.standard_normal(shape) * scale).astype(np.float32),
        f"{name}.bias": np.zeros(shape[0], np.float32),
    }


def table(rng: np.random.Generator, name: str, rows: int, width: int) -> Weights:
    """An embedding table."""
    values = rng.standard_normal((rows, width)) * 0.02
    return {f"{name}.weight": values.astype(np.float32)}


def norm(name: str, width: int) -> Weights:
    """A layer norm: ones and zeros."""
    return {
        f"{name}.weight": np.ones(width, np.float32),
        f"{name}.bias": np.zeros(width, np.float32),
    }
