"""What other libraries call arguments, and what they are called here."""

from __future__ import annotations

import difflib
import re

REFUSED = re.compile(
    r"(?:[\w<>]+\.)*(\w+)\(\) got an unexpected keyword argument '(\w+)'"
    r"(?:\. Did you mean '\w+'\?)?"
)
"""What Python says of a keyword that a function doesn't have."""

_OURS = {
    "dim": ("axis", "axes", "dimension", "dimensions"),
    "dims": ("axis", "axes", "dimensions", "dims"),
    "axes": ("axis",),
    "axis": ("axes", "dimension", "dimensions"),
    "keepdim": ("keepdims",),
    "in_dims": ("in_axes",),
    "out_dims": ("out_axes",),
    "unbiased": ("correction", "ddof"),
    "size": ("shape",),
    "generator": ("key",),
    "negative_slope": ("slope",),
    "num_classes": ("classes",),
    "a_min": ("min",),
    "a_max": ("max",),
    "interpolation": ("method",),
    "prec": ("precision",),
    "rcond": ("rtol",),
    "static_argnums": ("static",),
    "static_argnames": ("static",),
    "donate_argnums": ("donate",),
    "donate_argnames": ("donate",),
    "fun": ("function",),
    "func": ("function",),
    "fn": ("function",),
    "f": ("function",),
    "treedef": ("structure", "form"),
    "outer_treedef": ("outer",),
    "inner_treedef": ("inner",),
    "pytree_to_transpose": ("tree",),
    "chunk_size": ("batch_size",),
    "use_bias": ("bias",),
    "use_scale": ("scale",),
    "affine": ("scale", "weight"),
    "elementwise_affine": ("scale",),
    "input_size": ("in_features",),
    "normalized_shape": ("features",),
    "num_features": ("features",),
    "lr": ("learning_rate",),
    "label_smoothing": ("smoothing",),
    "num_workers": ("workers",),
    "collate_fn": ("collate",),
    "low": ("minval",),
    "high": ("maxval",),
    "features": ("out_features", "out_channels"),
    "num_embeddings": ("entries",),
    "embedding_dim": ("features",),
    "num_groups": ("groups",),
    "num_heads": ("heads",),
    "embed_dim": ("width",),
    "epsilon": ("eps",),
    "p": ("rate",),
    "strides": ("stride",),
    "kernel_dilation": ("dilation",),
    "feature_group_count": ("groups",),
    "kernel_init": ("weight_init",),
    "scale_init": ("weight_init",),
    "rngs": ("key",),
}
"""Other libraries' names of arguments, and ours."""


def meant(keyword: str, names: list[str]) -> str | None:
    """Which of a function's arguments another name of it means."""
    known = [name for name in _OURS.get(keyword, ()) if name in names]
    known = known or difflib.get_close_matches(keyword, names, n=1)
    return known[0] if known else None


def unknown_keyword(error: TypeError) -> str | None:
    """The keyword that a call was refused for."""
    found = REFUSED.fullmatch(str(error))
    return found[2] if found else None
