"""What PyTorch calls the arrays of layers, and how they lie there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from treadle import nn, tree
from treadle.weights.modules import dotted
from treadle.weights.rules import TORCH, Layout, Merge, Rule

Rules = Iterator[Rule]


def torch_rules(model: Any, names: Mapping[str, str] | None = None) -> list[Rule]:
    """The rules by which a ``state_dict`` of PyTorch fits a model of the same layers.

    Layers are looked up by their classes: they may be anywhere in lists, dicts and
    modules of one's own, whose fields are called as PyTorch's attributes are. Arrays of
    one's own modules lie as they do there.

    Args:
      model: a Module, or one of types (`td.eval_shape`).
      names: fields that are called otherwise: their path by ours, as
        ``{"layers.0": "fc1"}``, for all that is in them.

    The layers: linear and (transposed) convolutions, embeddings, norms, recurrent cells
    and layers, attention, transformer blocks and their stacks, and `Sequential`, whose
    functions count as PyTorch's modules do.

    >>> import numpy as np
    >>> from treadle import nn, rng, weights
    >>> model = nn.Sequential(nn.Linear(3, 2, key=rng.key(0)), nn.relu)
    >>> theirs = {"0.weight": np.ones((2, 3)), "0.bias": np.zeros(2)}
    >>> model = weights.into(model, theirs, weights.torch_rules(model))
    >>> model.layers[0].weight.shape
    (3, 2)
    """
    layers: dict[str, Any] = {}
    places = {"": "", **(names or {})}

    def place(path: str) -> str:
        """What PyTorch calls what is at a path."""
        if path not in places:
            above = path
            while above and above not in layers and above not in places:
                above = above.rpartition(".")[0]
            inside = path[len(above) + 1 :] if above else path
            places[path] = _joined(places[above], _inside(layers.get(above), inside))
        return places[path]

    found: list[Rule] = []
    for path, layer in nn.iterate(model):
        found += _rules(layer, path, place(path))
        layers[path] = layer
    paths = tree.paths(tree.structure(model))
    return found + [Rule(place(path), path) for path in map(dotted, paths)]


def _joined(*parts: str) -> str:
    return ".".join(part for part in parts if part)


_PARTS: dict[type, dict[str, str]] = {
    nn.TransformerEncoderBlock: {
        "attention_norm": "norm1",
        "attention": "self_attn",
        "mlp_norm": "norm2",
        "mlp": "",
    },
    nn.TransformerDecoderBlock: {
        "attention_norm": "norm1",
        "attention": "self_attn",
        "context_norm": "norm2",
        "context_attention": "multihead_attn",
        "mlp_norm": "norm3",
        "mlp": "",
    },
    nn.FeedForward: {"up": "linear1", "down": "linear2"},
    nn.MultiHeadAttention: {"out": "out_proj"},
}
"""What the parts of a layer are called in PyTorch's."""


def _inside(layer: Any, part: str) -> str:
    if isinstance(layer, nn.Sequential):
        return part.removeprefix("layers.")
    return _PARTS.get(type(layer), {}).get(part, part)


def _rules(layer: Any, path: str, theirs: str) -> Rules:
    """For the arrays of one layer."""
    for kinds, rules in _LAYERS:
        if isinstance(layer, kinds):
            yield from rules(
                layer,
                lambda name: _joined(path, name),
                lambda name: _joined(theirs, name),
            )
            return


Name = Callable[[str], str]


def _weight(layout: Layout) -> Callable[[Any, Name, Name], Rules]:
    def rules(layer: Any, ours: Name, theirs: Name) -> Rules:
        yield Rule(theirs("weight"), ours("weight"), layout)

    return rules


def _transposed_conv(layer: Any, ours: Name, theirs: Name) -> Rules:
    """(in, out / groups, *window) there, (*window, in / groups, out) here."""
    groups = layer.groups

    def to_ours(x: np.ndarray) -> np.ndarray:
        split = x.reshape(groups, -1, *x.shape[1:])
        last = np.moveaxis(split, (1, 0, 2), (-3, -2, -1))
        return last.reshape(*x.shape[2:], len(x) // groups, -1)

    def to_theirs(x: np.ndarray) -> np.ndarray:
        split = x.reshape(*x.shape[:-1], groups, -1)
        first = np.moveaxis(split, (-3, -2, -1), (1, 0, 2))
        return first.reshape(-1, *first.shape[2:])

    yield Rule(theirs("weight"), ours("weight"), Layout(to_ours, to_theirs))


_LAST_TO_FIRST = Layout(
    lambda x: np.moveaxis(x, 0, -1), lambda x: np.moveaxis(x, -1, 0)
)


def _batch_norm(layer: Any, ours: Name, theirs: Name) -> Rules:
    for name, cell in (("running_mean", "mean"), ("running_var", "var")):
        yield Rule(theirs(name), ours(f"{cell}.value"))
    counted = ours("batches.value") if layer.batches is not None else None
    yield Rule(theirs("num_batches_tracked"), counted)


def _attention(layer: nn.MultiHeadAttention, ours: Name, theirs: Name) -> Rules:
    parts = ("query", "key", "value")
    weights = tuple(ours(f"{part}.weight") for part in parts)
    if len({getattr(layer, part).weight.shape for part in parts}) == 1:
        yield Rule(theirs("in_proj_weight"), weights, TORCH)
    for part, path in zip(parts, weights, strict=True):
        yield Rule(theirs(f"{part[0]}_proj_weight"), path, TORCH)
    yield Rule(theirs("in_proj_bias"), tuple(ours(f"{part}.bias") for part in parts))


def _summed(parts: list[np.ndarray]) -> list[np.ndarray]:
    return [parts[0] + parts[1]]


def _with_zeros(parts: list[np.ndarray]) -> list[np.ndarray]:
    return [parts[0], np.zeros_like(parts[0])]


def _summed_but_new(parts: list[np.ndarray]) -> list[np.ndarray]:
    """A GRU's bias of the new gate's hidden part is multiplied by the reset gate."""
    *gates, new = np.split(parts[1], 3)
    return [parts[0] + np.concatenate([*gates, np.zeros_like(new)]), new]


def _zeros_but_new(parts: list[np.ndarray]) -> list[np.ndarray]:
    bias, new = parts
    return [bias, np.concatenate([np.zeros(2 * len(new), new.dtype), new])]


def _cell(suffix: str) -> Callable[[Any, Name, Name], Rules]:
    def rules(layer: Any, ours: Name, theirs: Name) -> Rules:
        for name in ("weight_ih", "weight_hh", "weight_hr"):
            yield Rule(theirs(name + suffix), ours(name), TORCH)
        biases = (theirs("bias_ih" + suffix), theirs("bias_hh" + suffix))
        if isinstance(layer, nn.GRUCell):
            both = Merge(_summed_but_new, _zeros_but_new)
            yield Rule(biases, (ours("bias"), ours("bias_n")), merge=both)
        else:
            yield Rule(biases, ours("bias"), merge=Merge(_summed, _with_zeros))

    return rules


def _recurrent(layer: Any, ours: Name, theirs: Name, place: str = "_l0") -> Rules:
    """Layers of cells, which PyTorch has in one module with a suffix for each."""
    if isinstance(layer, nn.StackedRNN):
        for i, part in enumerate(layer.layers):
            inside = _in(ours, f"layers.{i}")
            yield from _recurrent(part, inside, theirs, f"_l{i}")
    elif isinstance(layer, nn.Bidirectional):
        for way, suffix in (("forward", place), ("backward", f"{place}_reverse")):
            yield from _recurrent(getattr(layer, way), _in(ours, way), theirs, suffix)
    else:
        yield from _cell(place)(layer.cell, _in(ours, "cell"), theirs)


def _in(ours: Name, part: str) -> Name:
    return lambda name: ours(f"{part}.{name}")


_CELLS = (nn.LSTMCell, nn.GRUCell, nn.SimpleCell)
_LAYERS: tuple[tuple[Any, Callable[[Any, Name, Name], Rules]], ...] = (
    ((nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d), _weight(TORCH)),
    (
        (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
        _transposed_conv,
    ),
    (nn.Bilinear, _weight(_LAST_TO_FIRST)),
    (nn.BatchNorm, _batch_norm),
    (nn.MultiHeadAttention, _attention),
    ((nn.StackedRNN, nn.Bidirectional, nn.RNN), _recurrent),
    (_CELLS, _cell("")),
)
