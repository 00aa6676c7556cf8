"""The vocabulary of programs in Treadle."""

from typing import Any

import treadle as td
from peers.array_functions import ArrayFunctions
from treadle import nn
from treadle import numpy as tnp


class TreadleFunctions(ArrayFunctions):
    """What Treadle has of its own."""

    np, lax = tnp, td.lax

    def relu(self, x: Any) -> Any:
        return nn.relu(x)

    def gelu(self, x: Any) -> Any:
        return nn.gelu(x)

    def attention(
        self,
        q: Any,
        k: Any,
        v: Any,
        causal: bool = False,
        bias: Any = None,
        scale: float | None = None,
    ) -> Any:
        return nn.attention(q, k, v, bias, causal, scale=scale)

    def attend(self, q: Any, keys: Any, values: Any, i: Any) -> Any:
        """Attention of one place to those up to i of a cache."""
        return nn.attention(q[:, None], keys, values, lengths=i + 1)[:, 0]

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return nn.cross_entropy(logits.astype("float32"), labels).mean()

    def max_pool(self, x: Any) -> Any:
        """The largest of each 2 x 2."""
        return nn.max_pool(x, 2)

    def experts(self, p: Any, x: Any, top: int) -> Any:
        """Each token (tokens, width) by `top` experts."""
        count, width, hidden = p.array("up").shape
        options = {"gated": False, "activation": nn.gelu, "key": td.rng.key(0)}
        layer = nn.MixtureOfExperts(width, hidden, experts=count, top_k=top, **options)
        given = {
            "router.weight": p["router"].array("weight"),
            "up": p.array("up"),
            "down": p.array("down"),
        }

        def replace(path: Any, leaf: Any) -> Any:
            name = ".".join(str(getattr(entry, "name", entry)) for entry in path)
            return given.get(name, leaf)

        return nn.stateful(td.tree.map_with_path(replace, layer))(x)[0]
