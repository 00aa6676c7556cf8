"""Steps of random programs that a newer part of the library can do: masks, linear
algebra, named axes, Python's own branches. JAX can do them too, operation by operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.core.fuse import branchy
from tests.core.fuse.random_programs import DTYPES, NAMES, Generator, Program
from tests.core.fuse.random_rules import RULES, Rule, generate

NAMES["branchy"] = branchy

MASKS = (
    "{0}.at[{0} > 0.2].set(0.5)",
    "{0}.at[{0} < -0.1].multiply(0.3)",
    "{0}.at[(tnp.abs({0}) > 0.4) & ({0} < 1)].add(1.5)",
    "tnp.sum({0}, where={0} > 0.1)",
    "tnp.max({0}, axis=-1, initial=-2.0, where={0} < 0.8)",
)
SQUARES = (
    "tnp.linalg.solve({0}, {1})",
    "tnp.linalg.cholesky({0})",
    "tnp.linalg.inv({0}) * 2",
    "tnp.linalg.slogdet({0})[1]",
    "tnp.linalg.eigvalsh({0})",
    "tnp.linalg.cholesky({0}) @ {1}",
    "tnp.trace(tnp.linalg.inv({0}), axis1=-2, axis2=-1)",
)
NORMS = (
    "tnp.linalg.norm({0}, axis=-1)",
    "tnp.linalg.svd({0}, compute_uv=False)",
    "tnp.linalg.vector_norm({0} + 0.1)",
)
NAMED = (
    "v - td.pmean(v, 'i')",
    "td.psum(v * 0.3, 'i')",
    "v * 0.5 + td.pmax(v, 'i')",
    "td.all_gather(v, 'i') * 0.5",
    "v + td.axis_index('i') * 0.1",
    "td.psum(v, 'i') / td.axis_size('i') + tnp.sin(v)",
)
BRANCHY = tuple(
    name for name in vars(branchy) if callable(getattr(branchy, name)) and name != "Any"
)


def mask(g: Generator) -> None:
    if (a := g.pick(rank=1)) is not None:
        g.add(g.r.choice(MASKS), a)


def square(g: Generator) -> None:
    a = g.pick(rank=2, pred=lambda v: min(v.shape[-2:]) > 0)
    if a is None or g.values[a].dtype.itemsize < 4:
        return
    n = g.values[a].shape[-2]
    if n < 20 and g.add(f"{{0}} @ tnp.swapaxes({{0}}, -1, -2) + 3 * tnp.eye({n})", a):
        g.add(g.r.choice(SQUARES), g.last, a)


def measure(g: Generator) -> None:
    a = g.pick(rank=2, pred=lambda v: min(v.shape[-2:]) > 0 and v.shape[-1] < 20)
    if a is not None and g.values[a].dtype.itemsize > 2:
        g.add(g.r.choice(NORMS), a)


def named(g: Generator) -> None:
    a = g.pick(rank=1, pred=lambda v: v.shape[0] > 0)
    if a is not None:
        inner = g.r.choice(NAMED)
        g.add(f"td.vmap(lambda v: {inner}, axis_name='i')({{0}})", a)


def branch(g: Generator) -> None:
    if (a := g.pick(rank=1, pred=lambda v: v.size > 0)) is not None:
        g.add(f"branchy.{g.r.choice(BRANCHY)}(tnp, {{0}})", a)


MORE: dict[Rule, float] = {mask: 8, square: 8, measure: 4, named: 8, branch: 8}


def generate_more(
    seed: int, dtypes: Sequence[str] = DTYPES, length: int | None = None
) -> Program:
    """The random program with a number that has such steps among others."""
    return generate(seed, dtypes, length, rules=RULES | MORE)


QUICK = {"xla_backend_optimization_level": 0}


class _Td:
    """Treadle's transforms, by JAX."""

    lax = jax.lax
    vmap = staticmethod(jax.vmap)
    scan = staticmethod(jax.lax.scan)
    cond = staticmethod(jax.lax.cond)
    fori_loop = staticmethod(jax.lax.fori_loop)
    while_loop = staticmethod(jax.lax.while_loop)
    psum = staticmethod(jax.lax.psum)
    pmean = staticmethod(jax.lax.pmean)
    pmax = staticmethod(jax.lax.pmax)
    all_gather = staticmethod(jax.lax.all_gather)
    axis_index = staticmethod(jax.lax.axis_index)
    axis_size = staticmethod(jax.lax.axis_size)


def by_jax(program: Program) -> list[np.ndarray]:
    """What JAX computes: compiled, if it can."""
    source = program.source()
    names: dict[str, Any] = {"td": _Td, "tnp": jnp, "np": np, "branchy": branchy}
    exec(source, names)
    function: Callable[..., Any] = names["f"]
    if not any(word in source for word in ("branchy", ".at[")):
        function = jax.jit(function, compiler_options=QUICK)
    with jax.enable_x64(any(x.dtype.itemsize == 8 for x in program.inputs)):
        found = function(*[jnp.asarray(x) for x in program.inputs])
        return [np.asarray(x) for x in found]
