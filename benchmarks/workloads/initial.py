"""Initial weights that every peer starts from, drawn by NumPy."""

import numpy as np

Weights = dict[str, np.ndarray]
TABLES = ("tokens", "positions", "table")
"""The last parts of the paths of embedding tables."""


def dense(
    rng: np.random.Generator, name: str, *shape: int, bias: bool = True
) -> Weights:
    """A linear or convolution layer of shape (out, in, ...): weight and bias."""
    scale = 1 / np.sqrt(np.prod(shape[1:]))
    weight = (rng.standard_normal(shape) * scale).astype(np.float32)
    if not bias:
        return {f"{name}.weight": weight}
    return {f"{name}.weight": weight, f"{name}.bias": np.zeros(shape[0], np.float32)}


def table(rng: np.random.Generator, name: str, rows: int, width: int) -> Weights:
    """An embedding table; its name ends with one of `TABLES`."""
    values = rng.standard_normal((rows, width)) * 0.02
    return {f"{name}.weight": values.astype(np.float32)}


def norm(name: str, width: int, bias: bool = True) -> Weights:
    """A normalisation: ones and zeros."""
    weight = {f"{name}.weight": np.ones(width, np.float32)}
    return weight | ({f"{name}.bias": np.zeros(width, np.float32)} if bias else {})


def recurrent(
    rng: np.random.Generator, name: str, gates: int, n_in: int, hidden: int
) -> Weights:
    """The weights of a recurrent cell; as many gates, one bias."""
    rows = gates * hidden
    inputs = dense(rng, name, rows, n_in)
    states = dense(rng, name, rows, hidden, bias=False)
    return {
        f"{name}.weight_ih": inputs[f"{name}.weight"],
        f"{name}.weight_hh": states[f"{name}.weight"],
        f"{name}.bias": inputs[f"{name}.bias"],
    }


def channels_last(name: str, value: np.ndarray) -> np.ndarray:
    """The weight in the layout of NumPy's libraries: inputs before outputs."""
    *path, last = name.split(".")
    if value.ndim == 4:
        return value.transpose(2, 3, 1, 0)
    is_matrix = value.ndim == 2 and last.startswith("weight")
    return value.T if is_matrix and path[-1] not in TABLES else value
