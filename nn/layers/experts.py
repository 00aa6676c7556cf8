"""Networks of which each token uses a few."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import treadle as td
import treadle.numpy as tnp
from treadle import rng, tree
from treadle.errors import at, user_source
from treadle.nn import check, init
from treadle.nn.functions.activation import one_hot, silu, softmax
from treadle.nn.layers.dropout import Dropout
from treadle.nn.layers.linear import Linear
from treadle.nn.module import Module
from treadle.nn.state import State, draw_key


class MixtureOfExperts(Module):
    """Many feed-forward networks, of which each token uses the `top_k` that a router
    prefers, weighted by its probabilities (Shazeer 2017).

    Shapes: ``(..., width) -> (..., width)``. The weights of the experts are (experts,
    width, hidden) and (experts, hidden, width).

    In training the cell `balance` is written, so call the model by `nn.stateful`. It is
    ``experts * sum(share * probability)``: of the tokens that chose an expert, and the
    mean of its probabilities; `top_k` where the load is even, and more elsewhere
    (Fedus 2021). Add a small multiple of `nn.balance_loss(model)` to the loss.

    Args:
      hidden: how many hidden features each expert has, by default ``4 * width``.
      gated: whether the experts are as `GatedMLP`; else as `FeedForward`.
      normalized: whether the weights of the chosen experts sum to 1.
      capacity_factor: experts take at most that many times the tokens of an even load;
        those that come late are passed over by the expert (they get 0 from it). None:
        none is passed over.
      jitter: in training the router sees inputs times random numbers from 1 ± jitter.
      dropout: the share of the hidden features that is left out.
      weight_init: draws the weights, of each expert as of a `Linear`.
      dtype: in which the layer computes; by default that of its parameters. The
        probabilities are computed in float32.
      param_dtype: in which the parameters are made.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> layer = nn.MixtureOfExperts(8, experts=4, top_k=2, key=rng.key(0))
    >>> output, after = nn.stateful(layer)(tnp.ones((3, 5, 8)))
    >>> output.shape, float(nn.balance_loss(after)) > 2
    ((3, 5, 8), True)
    """

    width: int
    experts: int
    top_k: int
    normalized: bool
    capacity_factor: float | None
    jitter: float
    activation: Callable[[td.Array], td.Array]
    inference: bool
    dtype: Any
    router: Linear
    gate: td.Array | None
    up: td.Array
    down: td.Array
    dropout: Dropout
    balance: State

    def __init__(
        self,
        width: int,
        hidden: int | None = None,
        *,
        experts: int,
        top_k: int = 2,
        activation: Callable[[td.Array], td.Array] = silu,
        gated: bool = True,
        normalized: bool = True,
        capacity_factor: float | None = None,
        jitter: float = 0.0,
        dropout: float = 0.0,
        weight_init: init.Initializer = init.fan_in_uniform,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        if not 1 <= top_k <= experts:
            raise ValueError(
                f"MixtureOfExperts: a token uses top_k={top_k} of experts={experts}, "
                f"which is from 1 to {experts}{at(user_source())}"
            )
        check.positive("MixtureOfExperts", "capacity_factor", capacity_factor)
        check.within("MixtureOfExperts", "jitter", jitter, 0, 1)
        hidden = 4 * width if hidden is None else hidden
        self.width, self.experts, self.top_k = width, experts, top_k
        self.normalized, self.capacity_factor = normalized, capacity_factor
        self.jitter, self.activation = jitter, activation
        self.inference, self.dtype = False, check.dtype(dtype)
        router_key, *keys = rng.split(key, 4)
        self.router = Linear(
            width,
            experts,
            bias=False,
            weight_init=weight_init,
            dtype=dtype,
            param_dtype=param_dtype,
            key=router_key,
        )

        def drawn(key: rng.Key, *shape: int) -> td.Array:
            each = [weight_init(k, shape, param_dtype) for k in rng.split(key, experts)]
            return tnp.stack(each)

        self.gate = drawn(keys[0], width, hidden) if gated else None
        self.up = drawn(keys[1], width, hidden)
        self.down = drawn(keys[2], hidden, width)
        self.dropout, self.balance = Dropout(dropout), State(tnp.zeros(()))

    def __call__(self, x: tnp.ArrayLike, *, key: rng.Key | None = None) -> td.Array:
        x = check.last_axis("MixtureOfExperts", x, self.width, "width")
        tokens, *params = check.operands(
            "MixtureOfExperts",
            self.dtype,
            x.reshape(-1, self.width),
            self.gate,
            self.up,
            self.down,
        )
        weights, chosen = self._routed(tokens, key)
        # First choices come first, in the order of the tokens.
        queues = _queues(chosen.T.reshape(-1), self.experts)
        if self.capacity_factor is None:
            # Each queue has a copy of its expert's weights, which of few tokens costs
            # more than the rows that stay empty.
            even = tokens.shape[0] * self.top_k // self.experts
            queues = queues.cut(even // 2 + 4)
            gate, up, down = (w if w is None else w[queues.owner] for w in params)
        else:
            gate, up, down = params
            queues = queues._replace(size=self._capacity(tokens.shape[0]))

        shape = (queues.owner.shape[0], queues.size, self.width)
        where = queues.queue, queues.place
        every = tnp.tile(tokens, (self.top_k, 1))
        rows = tnp.zeros(shape, tokens.dtype).at[where].set(every, mode="drop")
        hidden = self.activation(tnp.matmul(rows, up if gate is None else gate))
        if gate is not None:
            hidden = hidden * tnp.matmul(rows, up)
        out = tnp.matmul(self.dropout(hidden), down)
        found = out.at[where].get(mode="fill", fill_value=0)
        found = found.reshape(self.top_k, *tokens.shape)
        return (found * weights.astype(out.dtype).T[..., None]).sum(0).reshape(x.shape)

    def _routed(self, tokens: td.Array, key: Any) -> tuple[td.Array, td.Array]:
        """The weights of the experts of each token, and which they are: (tokens, top_k)
        each; remembers how even the load is."""
        seen = tokens
        if self.jitter and not self.inference:
            key = draw_key("MixtureOfExperts") if key is None else key
            low, high = 1 - self.jitter, 1 + self.jitter
            seen = seen * rng.uniform(key, seen.shape, seen.dtype, low, high)
        logits = self.router(seen)
        probabilities = softmax(check.wide(logits))
        weights, chosen = td.lax.top_k(probabilities, self.top_k)
        if not self.inference:
            share = one_hot(chosen, self.experts).sum(-2).mean(0)
            balance = self.experts * (share * probabilities.mean(0)).sum()
            self.balance.value = balance.astype(self.balance.value.dtype)
        if self.normalized:
            weights = weights / weights.sum(-1, keepdims=True)
        return weights, chosen

    def _capacity(self, count: int) -> int:
        """How many of so many tokens an expert takes."""
        factor = Fraction(self.capacity_factor or 0).limit_denominator(10000)
        even = factor * self.top_k / self.experts
        return -(-count * even.numerator // even.denominator)


class _Queues(NamedTuple):
    """Where tokens wait for experts: the queue of each and its place there (tokens),
    the expert of each queue (queues), how many there are in each, and how many have
    room in a queue."""

    queue: td.Array
    place: td.Array
    owner: td.Array
    load: td.Array
    size: int

    def cut(self, size: int) -> _Queues:
        """Queues of such a size, as many for an expert as its load takes. All together
        are at most so many as full ones, and one that is not full for each: what is
        computed is proportional to the tokens, however uneven their choice."""
        experts, total = self.owner.shape[0], self.queue.shape[0]
        count = (self.load + size - 1) // size
        end = tnp.cumsum(count)
        owner = (tnp.arange(total // size + experts)[:, None] >= end).sum(-1)
        return _Queues(
            (end - count)[self.queue] + self.place // size,
            self.place % size,
            tnp.minimum(owner, experts - 1),
            self.load,
            size,
        )


def _queues(expert: td.Array, experts: int) -> _Queues:
    """One for each expert, for all who chose it, in their order."""
    before = tnp.cumsum(one_hot(expert, experts, tnp.int32), 0)
    place = tnp.take_along_axis(before, expert[:, None], 1)[:, 0] - 1
    load = one_hot(expert, experts, tnp.int32).sum(0)
    return _Queues(expert, place, tnp.arange(experts), load, expert.shape[0])


def balance_loss(model: Any) -> td.Array:
    """The sum of what `MixtureOfExperts` in a model remember of their load.

    It is part of a loss: of the model that `nn.stateful` returned, inside of the
    function that is differentiated.

    Raises:
      ValueError: if there are none.

    >>> import treadle as td, treadle.numpy as tnp
    >>> from treadle import nn, rng
    >>> layer = nn.MixtureOfExperts(4, experts=3, top_k=1, key=rng.key(0))
    >>> def loss(layer, x):
    ...     output, after = nn.stateful(layer)(x)
    ...     return (output**2).mean() + 0.01 * nn.balance_loss(after)
    >>> grads = td.grad(loss)(layer, rng.normal(rng.key(1), (16, 4)))
    >>> grads.router.weight.shape
    (4, 3)
    """

    def is_mixture(part: Any) -> bool:
        return isinstance(part, MixtureOfExperts)

    mixtures = list(filter(is_mixture, tree.leaves(model, is_mixture)))
    if not mixtures:
        raise ValueError(
            f"balance_loss: there is no MixtureOfExperts in this {type(model).__name__}"
            f"{at(user_source())}"
        )
    return sum((m.balance.value.sum() for m in mixtures), tnp.zeros(()))
