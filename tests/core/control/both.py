"""The same program in Treadle and in JAX: `lib.scan`, `lib.np.sin`, `lib.grad`…"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import treadle as td
import treadle.numpy as tnp

_JAX = [
    "grad",
    "value_and_grad",
    "vmap",
    "jit",
    "jvp",
    "vjp",
    "linearize",
    "custom_jvp",
    "custom_vjp",
    "closure_convert",
    "remat",
    "hessian",
    "jacfwd",
    "jacrev",
    "eval_shape",
]
_LAX = [
    "scan",
    "while_loop",
    "fori_loop",
    "cond",
    "switch",
    "map",
    "associative_scan",
    "stop_gradient",
    "custom_root",
    "custom_linear_solve",
    "psum",
    "pmean",
    "pmax",
    "pmin",
    "all_gather",
    "all_to_all",
    "ppermute",
    "pshuffle",
    "pswapaxes",
    "psum_scatter",
    "axis_index",
    "axis_size",
]

TREADLE = SimpleNamespace(
    np=tnp, **{name: getattr(td, name) for name in (*_JAX, *_LAX)}
)
JAX = SimpleNamespace(
    np=jnp,
    **{name: getattr(jax, name) for name in _JAX},
    **{name: getattr(jax.lax, name) for name in _LAX},
)

Build = Callable[[Any], Callable[..., Any]]


def close(found: Any, wanted: Any, tolerance: float = 2e-5) -> None:
    """Compares pytrees of arrays, dtypes included."""
    ours, theirs = td.tree.leaves(found), jax.tree.leaves(wanted)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def agree(build: Build, *args: Any, tolerance: float = 2e-5) -> None:
    """The program gives the same in both libraries."""
    close(build(TREADLE)(*args), JAX.jit(build(JAX))(*args), tolerance)


def array(*shape: int, seed: int = 0) -> np.ndarray:
    """Repeatable numbers of a normal distribution."""
    rng = np.random.default_rng([seed, *shape])
    return rng.normal(size=shape).astype(np.float32)


def total(lib: Any, tree: Any) -> Any:
    """A scalar that depends on every element."""
    leaves = td.tree.leaves(tree) if lib is TREADLE else jax.tree.leaves(tree)
    out = 0.0
    for n, x in enumerate(leaves):
        out = out + lib.np.sum(x * lib.np.cos(x + n))
    return out


def _value(lib: Any, f: Any, args: Sequence[Any]) -> Any:
    return f(*args)


def _jit(lib: Any, f: Any, args: Sequence[Any]) -> Any:
    return lib.jit(f)(*args)


def _all(args: Sequence[Any]) -> tuple[int, ...]:
    return tuple(range(len(args)))


def _scalar(lib: Any, f: Any) -> Any:
    return lambda *args: total(lib, f(*args))


def _grad(lib: Any, f: Any, args: Sequence[Any]) -> Any:
    return lib.grad(_scalar(lib, f), _all(args))(*args)


def _jit_grad(lib: Any, f: Any, args: Sequence[Any]) -> Any:
    return lib.jit(lib.grad(_scalar(lib, f), _all(args)))(*args)


def _grad_jit(lib: Any, f: Any, args: Sequence[Any]) -> Any:
    return lib.grad(_scalar(lib, lib.jit(f)), _all(args))(*args)


def _grad_grad(lib: Any, f: Any, args: Sequence[Any]) -> Any:
    first = lib.grad(_scalar(lib, f), _all(args))
    return lib.jit(lib.grad(_scalar(lib, first), _all(args)))(*args)


def _jvp(lib: Any, f: Any, args: Sequence[Any]) -> Any:
    tangents = tuple(lib.np.cos(a).astype(a.dtype) for a in args)
    return lib.jvp(f, tuple(args), tangents)


def _jvp_grad(lib: Any, f: Any, args: Sequence[Any]) -> Any:
    return _jvp(lib, lib.grad(_scalar(lib, f), _all(args)), args)


def _wide(lib: Any, args: Sequence[Any]) -> list[Any]:
    return [lib.np.stack([a, 0.5 * a, -a]).astype(a.dtype) for a in args]


def _vmap(lib: Any, f: Any, args: Sequence[Any]) -> Any:
    return lib.vmap(f)(*_wide(lib, args))


def _vmap_first(lib: Any, f: Any, args: Sequence[Any]) -> Any:
    axes = (0, *(None for _ in args[1:]))
    return lib.jit(lib.vmap(f, axes))(_wide(lib, args)[0], *args[1:])


def _vmap_grad(lib: Any, f: Any, args: Sequence[Any]) -> Any:
    return lib.vmap(lib.grad(_scalar(lib, f), _all(args)))(*_wide(lib, args))


def _grad_vmap(lib: Any, f: Any, args: Sequence[Any]) -> Any:
    wide = _wide(lib, args)
    return lib.grad(_scalar(lib, lib.vmap(f)), _all(args))(*wide)


FORWARD = {
    "value": _value,
    "jit": _jit,
    "jvp": _jvp,
    "vmap": _vmap,
    "vmap over the first": _vmap_first,
}
REVERSE = {
    "grad": _grad,
    "jit of grad": _jit_grad,
    "grad of jit": _grad_jit,
    "grad of grad": _grad_grad,
    "jvp of grad": _jvp_grad,
    "vmap of grad": _vmap_grad,
    "grad of vmap": _grad_vmap,
}
PROPERTIES = FORWARD | REVERSE
SAME = {
    "jit": "value",
    "jit of grad": "grad",
    "grad of jit": "grad",
    "grad of vmap": "vmap of grad",
}
"""What means the same as another of them: JAX, which is slow to compile, is asked once.
(The scalar is a sum over all elements, so examples don't mix.)"""


def check(
    build: Build, args: Sequence[Any], name: str, tolerance: float = 1e-4
) -> None:
    """One property of one program is the same in both libraries."""
    found = PROPERTIES[name](TREADLE, build(TREADLE), args)
    close(found, _oracle(build, SAME.get(name, name))(*args), tolerance)


@cache
def _oracle(build: Build, name: str) -> Callable[..., Any]:
    """JAX's, compiled as a whole: quicker than piece by piece."""
    return JAX.jit(lambda *xs: PROPERTIES[name](JAX, build(JAX), xs))
