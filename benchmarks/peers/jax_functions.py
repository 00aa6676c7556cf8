"""The vocabulary of programs in JAX."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from peers.array_functions import ArrayFunctions


class JaxFunctions(ArrayFunctions):
    """What JAX and Optax have of their own."""

    np, lax = jnp, lax

    def relu(self, x: Any) -> Any:
        return jax.nn.relu(x)

    def gelu(self, x: Any) -> Any:
        return jax.nn.gelu(x)

    def attention(
        self,
        q: Any,
        k: Any,
        v: Any,
        causal: bool = False,
        bias: Any = None,
        scale: float | None = None,
    ) -> Any:
        bias = None if bias is None else bias[None]
        return jax.nn.dot_product_attention(
            q, k, v, bias, is_causal=causal, scale=scale
        )

    def attend(self, q: Any, keys: Any, values: Any, i: Any) -> Any:
        """Attention of one place to those up to i of a cache."""
        seen = (jnp.arange(keys.shape[1]) <= i)[None, None, None]
        return jax.nn.dot_product_attention(q[:, None], keys, values, mask=seen)[:, 0]

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        logits = logits.astype(jnp.float32)
        entropy = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return entropy.mean()

    def max_pool(self, x: Any) -> Any:
        """The largest of each 2 x 2."""
        whole, low = (1, 2, 2, 1), -jnp.inf
        return lax.reduce_window(x, low, lax.max, whole, whole, "VALID")

    def experts(self, p: Any, x: Any, top: int) -> Any:
        """Each token (tokens, width) by `top` experts. All experts compute all tokens:
        without dropping any, this is what `jit` can do with static shapes."""
        chances = jax.nn.softmax(self.linear(p["router"], x))
        weights, chosen = lax.top_k(chances, top)
        weights = weights / weights.sum(-1, keepdims=True)
        count = p.array("up").shape[0]
        share = (jax.nn.one_hot(chosen, count) * weights[..., None]).sum(1)
        hidden = jax.nn.gelu(jnp.einsum("td,edh->eth", x, p.array("up")))
        out = jnp.einsum("eth,ehd->etd", hidden, p.array("down"))
        return jnp.einsum("etd,te->td", out, share)
