"""Counts the arithmetic of a program's contractions in its JAX form."""

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params
from workloads import initial

from peers.jax_functions import JaxFunctions


class Needed(JaxFunctions):
    """As much arithmetic as the results need: causal attention over the keys that are
    seen, experts that were chosen."""

    def attention(self, q: Any, k: Any, v: Any, causal: bool = False, **more: Any):
        if not causal:
            return super().attention(q, k, v, **more)
        seen = (k.shape[1] + 1) // 2
        more.pop("bias", None)
        return super().attention(q, k[:, :seen], v[:, :seen], **more)

    def attend(self, q: Any, keys: Any, values: Any, i: Any) -> Any:
        seen = (keys.shape[1] + 1) // 2
        return super().attend(q, keys[:, :seen], values[:, :seen], i)

    def experts(self, p: Any, x: Any, top: int) -> Any:
        router = self.linear(p["router"], x).sum()
        hidden = jax.nn.gelu(jnp.einsum("td,edh->eth", x, p.array("up")[:top]))
        return jnp.einsum("eth,ehd->td", hidden, p.array("down")[:top]) + router


def count(program: Any) -> int:
    """Of one step: forward and, in training, the gradients by the parameters."""
    weights = program.weights(0).items()
    arrays = {name: initial.channels_last(name, x) for name, x in weights}
    batch = [x.astype(np.int32) if x.dtype.kind == "i" else x for x in program.batch(0)]
    loss = replace(program, dtype="float32").bound(Needed())
    step = jax.value_and_grad(loss) if program.trains else loss
    return program.repeat * sum(_counted(jax.make_jaxpr(step)(arrays, *batch).jaxpr))


def _counted(jaxpr: Any) -> Iterator[int]:
    for equation in jaxpr.eqns:
        shapes = [x.aval.shape for x in equation.invars]
        out = equation.outvars[0].aval
        match equation.primitive.name:
            case "dot_general":
                (axes, _), _ = equation.params["dimension_numbers"]
                yield 2 * out.size * prod(shapes[0][axis] for axis in axes)
            case "conv_general_dilated":
                taken = shapes[1]
                layout = equation.params["dimension_numbers"].rhs_spec
                summed = prod(taken[axis] for axis in layout[1:])
                yield 2 * out.size * summed // prod(equation.params["lhs_dilation"])
            case name:
                times = equation.params["length"] if name == "scan" else 1
                for inner in jaxprs_in_params(equation.params):
                    yield times * sum(_counted(inner))
