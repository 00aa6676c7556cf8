"""Attention as one operation: values, derivatives and transforms beside JAX, and that
it is computed in blocks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.backends.cpu.device import CPUTarget
from treadle.backends.cpu.run import threads
from treadle.check import check
from treadle.compile import Stages, stages
from treadle.ir.graph import Equation
from treadle.ir.walk import call_graph
from treadle.passes.blocks import lower_blocks
from treadle.plan.cost import step_cost
from treadle.plan.steps import CallsStep, walk
from treadle.trace.lowering import Blocked, Host, Lowering

HIDDEN = -1e30


class Case(NamedTuple):
    """Sizes, and the shapes of masks."""

    sizes: tuple[int, ...]
    """Batch, queries, keys, heads, shared heads, depth, value depth."""
    options: dict[str, Any] | None = None
    bias: tuple[int, ...] = ()
    seen: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    dtype: type = np.float32

    def draw(self) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
        """Query, key, value, and masks by name."""
        rng = np.random.default_rng(sum(self.sizes))
        n, queries, keys, heads, shared, depth, mixed = self.sizes
        shapes = (n, queries, heads, depth), (n, keys, shared, depth)
        shapes = (*shapes, (n, keys, shared, mixed))
        arrays = [rng.standard_normal(s).astype(self.dtype) for s in shapes]
        masks: dict[str, Any] = {}
        if self.bias:
            masks["bias"] = rng.standard_normal(self.bias).astype(self.dtype)
        for name, shape in (("seen", self.seen), ("kept", self.kept)):
            if shape:
                masks[name] = rng.random(shape) < 0.7
        return arrays, masks


def wanted(
    q: Any,
    k: Any,
    v: Any,
    bias: Any = 0.0,
    seen: Any = True,
    kept: Any = True,
    scale: float = 1.0,
    before: int | None = None,
    after: int | None = None,
    rate: float = 1.0,
) -> Any:
    """The same in JAX, with all scores."""
    group = q.shape[2] // k.shape[2]
    k, v = (jnp.repeat(x, group, 2) for x in (k, v))
    scores = jnp.einsum("nqhd,nkhd->nhqk", q, k) * scale + bias
    rows = jnp.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1]
    gap = rows - jnp.arange(k.shape[1])
    near = True if before is None else gap <= before
    near = near if after is None else near & (-gap <= after)
    scores = jnp.where(seen & near, scores, HIDDEN)
    weights = jnp.where(kept, jax.nn.softmax(scores) * rate, 0.0)
    return jnp.einsum("nhqk,nkhd->nqhd", weights, v)


CAUSAL = {"after": 0}
CASES = {
    "plain": Case((2, 70, 70, 2, 2, 32, 32)),
    "small": Case((1, 3, 4, 1, 1, 8, 8)),
    "as they lie": Case((2, 32, 24, 2, 2, 16, 32), CAUSAL, seen=(2, 1, 1, 24)),
    "short, packed": Case((2, 60, 64, 4, 2, 12, 20), bias=(1, 4, 60, 64)),
    "one": Case((2, 1, 1, 2, 1, 1, 1)),
    "causal, in chunks": Case((1, 300, 300, 4, 2, 24, 40), CAUSAL),
    "few queries": Case((1, 5, 600, 2, 1, 7, 3), CAUSAL),
    "queries that see nothing": Case((1, 280, 5, 2, 1, 7, 3), CAUSAL),
    "window": Case((1, 300, 300, 2, 1, 16, 16), {"before": 10, "after": 0}),
    "wide window": Case((1, 330, 330, 1, 1, 16, 16), {"before": 260, "after": 7}),
    "double": Case((2, 65, 130, 4, 2, 33, 17), CAUSAL, dtype=np.float64),
    "bias": Case((2, 65, 130, 4, 2, 16, 16), bias=(1, 4, 65, 130)),
    "masks": Case(
        (2, 65, 130, 4, 2, 16, 16),
        {"rate": 1 / 0.7},
        bias=(2, 1, 1, 130),
        seen=(2, 1, 65, 1),
        kept=(2, 4, 65, 130),
    ),
    "odd, in a window": Case(
        (1, 90, 163, 2, 1, 12, 8), {"before": 40, "rate": 1 / 0.7}, kept=(1, 2, 90, 163)
    ),
    "causal and seen": Case((2, 80, 80, 2, 2, 16, 16), CAUSAL, seen=(2, 1, 80, 80)),
    "padding": Case((2, 80, 80, 2, 2, 16, 16), seen=(2, 1, 1, 80)),
}


def close(found: Any, expected: Any, dtype: type = np.float32) -> None:
    error = 1e-12 if dtype == np.float64 else 2e-5
    for x, y in zip(td.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(x), y, rtol=error, atol=error)


def by_hand(
    arrays: list[np.ndarray], masks: dict[str, np.ndarray], options: dict[str, Any]
) -> list[np.ndarray]:
    """The result, and what a cotangent of it amounts to for query, key and value: in
    NumPy and double precision, with all scores."""
    q, k, v = (x.astype(np.float64) for x in arrays)
    n, keys, shared, _ = k.shape
    queries, group = q.shape[1], q.shape[2] // shared
    k, v = (np.repeat(x, group, 2) for x in (k, v))
    scores = np.einsum("nqhd,nkhd->nhqk", q, k) * options["scale"]
    scores = scores + masks.get("bias", 0.0)
    gap = np.arange(queries)[:, None] + keys - queries - np.arange(keys)
    far = 10 * (queries + keys)
    seen = (gap <= options.get("before", far)) & (-gap <= options.get("after", far))
    seen = np.broadcast_to(seen & masks.get("seen", True), scores.shape)
    scores = np.where(seen, scores, HIDDEN)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    factor = np.where(masks.get("kept", True), options.get("rate", 1.0), 0.0)
    out = np.einsum("nhqk,nkhd->nqhd", weights * factor, v)
    ct = np.sin(out) + 1
    dv = np.einsum("nhqk,nqhd->nkhd", weights * factor, ct)
    moved = np.einsum("nqhd,nkhd->nhqk", ct, v) * factor
    moved = weights * (moved - (weights * moved).sum(-1, keepdims=True))
    moved = np.where(seen, moved, 0.0) * options["scale"]
    dq = np.einsum("nhqk,nkhd->nqhd", moved, k)
    dk = np.einsum("nhqk,nqhd->nkhd", moved, q)
    dk, dv = (x.reshape(n, keys, shared, group, -1).sum(3) for x in (dk, dv))
    return [out, dq, dk, dv]


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradients(name: str) -> None:
    case = CASES[name]
    arrays, masks = case.draw()
    options: Any = {"scale": 0.3, **(case.options or {})}

    @td.jit
    def found(*xs: Any) -> Any:
        out, back = td.vjp(lambda *xs: td.lax.attention(*xs, **masks, **options), *xs)
        return out, *back(tnp.sin(out) + 1)

    expected = by_hand(arrays, masks, options)
    close(found(*arrays), expected, case.dtype)
    close(td.lax.attention(*arrays, **masks, **options), expected[0], case.dtype)


def losses(case: Case) -> tuple[Any, Any, list[np.ndarray]]:
    """A number of query, key, value and bias, in both libraries."""
    arrays, masks = case.draw()
    bias = masks.pop("bias")

    def loss(lib: Any, attention: Any) -> Any:
        def function(q: Any, k: Any, v: Any, bias: Any) -> Any:
            return lib.sum(lib.sin(attention(q, k, v, bias=bias, **masks, scale=0.3)))

        return function

    ours = loss(tnp, td.lax.attention), loss(jnp, wanted), [*arrays, bias]
    return ours


SMALL = Case(
    (2, 5, 7, 4, 2, 3, 2), bias=(1, 4, 1, 7), seen=(2, 1, 5, 7), dtype=np.float64
)


@pytest.mark.parametrize("moving", [(0, 1, 2), (1, 3)], ids=str)
def test_second_derivatives(moving: tuple[int, ...]) -> None:
    ours, theirs, args = losses(SMALL)

    def second(lib: Any, loss: Any) -> Any:
        def function(*xs: Any) -> Any:
            def along(*moved: Any) -> Any:
                given = list(xs)
                for i, x in zip(moving, moved, strict=True):
                    given[i] = x
                return loss(*given)

            grad = lib.grad(along, tuple(range(len(moving))))
            moved = tuple(xs[i] for i in moving)
            forward = lib.jvp(grad, moved, moved)

            def squares(*moved: Any) -> Any:
                return sum([(g**2).sum() for g in grad(*moved)])

            return forward, lib.grad(squares, tuple(range(len(moving))))(*moved)

        return function

    with jax.enable_x64(True):
        expected = jax.jit(second(jax, theirs))(*args)
        close(td.jit(second(td, ours))(*args), expected, np.float64)


def test_gradients_agree_with_differences() -> None:
    """In double precision, of the kernels themselves."""
    case = Case((1, 20, 23, 2, 1, 4, 5), bias=(1, 1, 20, 23), dtype=np.float64)
    ours, _, args = losses(case)
    loss = td.jit(ours)
    grads = td.jit(td.grad(ours, (0, 1, 2, 3)))(*args)
    rng = np.random.default_rng(0)
    for i, (x, g) in enumerate(zip(args, grads, strict=True)):
        way = rng.standard_normal(x.shape)
        ends = [[*args[:i], x + s * 1e-6 * way, *args[i + 1 :]] for s in (1, -1)]
        slope = float(loss(*ends[0]) - loss(*ends[1])) / 2e-6
        assert abs(slope - (np.asarray(g) * way).sum()) < 1e-7


TRANSFORMED: dict[str, Any] = {
    "vmap": lambda f, q, k, v, b: td.vmap(f)(q, k, v, b),
    "vmap of queries": lambda f, q, k, v, b: td.vmap(f, (2, None, None, None))(
        tnp.moveaxis(q, 0, 2), k[0], v[0], b[0]
    ),
    "vmap of bias": lambda f, q, k, v, b: td.vmap(f, (None, None, None, 0))(
        q[0], k[0], v[0], b
    ),
    "scan": lambda f, q, k, v, b: td.scan(
        lambda c, x: (c + f(*x, b[0]), c), q[0] * 0, (q, k, v)
    ),
    "remat": lambda f, q, k, v, b: td.remat(f)(q[0], k[0], v[0], b[0]),
    "cond": lambda f, q, k, v, b: td.cond(
        q[0, 0, 0, 0, 0] < 9, f, f, q[0], k[0], v[0], b[0]
    ),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transforms(name: str) -> None:
    """Compiled, beside the same in NumPy."""
    rng = np.random.default_rng(0)
    shapes = (3, 2, 18, 4, 8), (3, 2, 18, 2, 8), (3, 2, 18, 2, 8), (3, 1, 4, 18, 18)
    args = [rng.standard_normal(s).astype(np.float32) for s in shapes]

    def loss(*args: Any) -> Any:
        def one(q: Any, k: Any, v: Any, bias: Any) -> Any:
            return td.lax.attention(q, k, v, bias=bias, scale=0.3, after=0)

        outs = TRANSFORMED[name](one, *args)
        return sum([(x**2).sum() for x in td.tree.leaves(outs)], start=tnp.zeros(()))

    both = td.value_and_grad(loss, (0, 1, 2))
    with td.disable_jit():
        expected = [np.asarray(x) for x in td.tree.leaves(both(*args))]
    close(td.tree.leaves(td.jit(both)(*args)), expected)


HALVES = (
    *("as they lie", "short, packed", "causal, in chunks", "few queries", "masks"),
    "odd, in a window",
)
"""Odd lengths, depths of pairs and of one more, windows, masks."""


@pytest.mark.parametrize("dtype", [tnp.bfloat16, tnp.float16], ids=str)
@pytest.mark.parametrize("name", HALVES)
def test_halves(name: str, dtype: Any) -> None:
    """Of the numbers that the operands hold; what the kernel rounds on its way is
    weights, each by half a unit of the last place."""
    case = CASES[name]
    arrays, masks = case.draw()
    options: Any = {"scale": 0.3, **(case.options or {})}
    halves = [tnp.asarray(x).astype(dtype) for x in arrays]

    @td.jit
    def found(*xs: Any) -> Any:
        out, back = td.vjp(lambda *xs: td.lax.attention(*xs, **masks, **options), *xs)
        return out, *back(tnp.sin(out) + 1)

    expected = by_hand([np.asarray(x, np.float32) for x in halves], masks, options)
    unit = 2.0**-8 if dtype == tnp.bfloat16 else 2.0**-11
    for x, y in zip(found(*halves), expected, strict=True):
        assert x.dtype == dtype
        error = np.abs(np.asarray(x, np.float64) - y)
        assert error.max() <= 4 * unit * np.abs(y).max()
        assert error.mean() <= unit * np.abs(y).mean()


def test_halves_beside_no_numbers() -> None:
    """What fills the last pair of odd lengths and depths is no product with what lies
    there; what is not a number stays one."""
    x = np.full((1, 5, 2, 3), np.nan, np.float32)
    x[:, :, 0] = np.arange(15).reshape(5, 3)
    q = tnp.asarray(x).astype(tnp.bfloat16)
    out, grads = td.jit(step)(q, q, q)
    for found in (out, *grads):
        assert np.isfinite(np.asarray(found, np.float32)[:, :, 0]).all()
        assert np.isnan(np.asarray(found, np.float32)[:, :, 1]).all()


def _pieces(queries: int, keys: int) -> np.ndarray:
    return np.arange(queries)[:, None] // 50 == np.arange(keys) // 50


def _alone(queries: int, keys: int) -> np.ndarray:
    """One key of one row, in the last panel; a key of all others in the first one."""
    seen = np.zeros((queries, keys), bool)
    seen[:, 3] = True
    seen[90] = np.arange(keys) == keys - 1
    return seen


STRUCTURES: dict[str, Callable[[int, int], np.ndarray]] = {
    "triangle": lambda queries, keys: np.tri(queries, keys, keys - queries, dtype=bool),
    "other triangle": lambda queries, keys: ~np.tri(queries, keys, -1, dtype=bool),
    "pieces": _pieces,
    "one key": _alone,
    "the last": lambda queries, keys: (
        np.arange(keys) + 0 * np.arange(queries)[:, None] == keys - 1
    ),
    "rows of nothing": lambda queries, keys: (
        (np.arange(queries) < 75)[:, None] & (np.arange(keys) > 270)
    ),
}


@pytest.mark.parametrize("infinite", [False, True])
@pytest.mark.parametrize("name", STRUCTURES)
def test_what_all_rows_of_a_block_have_hidden(name: str, infinite: bool) -> None:
    """Keys that a mask hides at either end are not visited, or all are where a row sees
    nothing. What isn't visited need not be a number."""
    queries, keys = 130, 301
    arrays, _ = Case((2, queries, keys, 2, 1, 8, 8)).draw()
    seen = STRUCTURES[name](queries, keys)
    if infinite:
        seen[~seen.any(1)] = True  # which gives no number
    masks = {"seen": seen[None, None]}
    expected = by_hand(arrays, masks, {"scale": 0.3})
    if infinite:
        masks = {"bias": np.where(masks["seen"], 0, -np.inf).astype("f")}
    found = td.jit(lambda *xs: _both(*xs, scale=0.3, **masks))
    close(found(*arrays), expected)


def test_values_that_padding_hides_need_not_be_numbers() -> None:
    (q, k, v), _ = Case((1, 80, 200, 1, 1, 8, 8)).draw()
    seen = (np.arange(200) < 100)[None, None, None]
    expected = by_hand([q, k, v], {"seen": seen}, {"scale": 0.3})
    k[:, 150:], v[:, 150:] = np.nan, np.nan
    close(td.jit(lambda *xs: _both(*xs, scale=0.3, seen=seen))(q, k, v), expected)


def _both(*xs: Any, **options: Any) -> Any:
    out, back = td.vjp(lambda *xs: td.lax.attention(*xs, **options), *xs)
    return out, *back(tnp.sin(out) + 1)


def test_infinite_and_large_masks() -> None:
    """-inf hides as booleans do, but a query that sees nothing is not a number; the
    least number is finite."""
    q = np.ones((1, 20, 1, 4), np.float32)
    v = np.arange(80, dtype=np.float32).reshape(1, 20, 1, 4)
    bias = np.zeros((1, 1, 20, 20), np.float32)
    bias[..., 0, :], bias[..., 1, 5:], bias[..., 2, :] = -np.inf, -np.inf, -3.4e38
    found = td.jit(lambda q, v, b: td.lax.attention(q, q, v, bias=b, scale=1.0))
    out = np.asarray(found(q, v, bias))[0, :, 0]
    assert np.isnan(out[0]).all()
    np.testing.assert_allclose(out[1], v[0, :5, 0].mean(0), rtol=1e-6)
    np.testing.assert_allclose(out[2:], np.tile(v[0, :, 0].mean(0), (18, 1)), rtol=1e-6)


def test_large_negative_masks_hide_as_booleans_do() -> None:
    """With and without a compiler: a row of nothing else is the mean of all values,
    never of those that come later; and has no derivatives by queries and keys."""
    numbers = np.random.default_rng(0)
    q, k, v, ct = (numbers.normal(size=(1, 20, 2, 4)).astype("f") for _ in range(4))
    bias = np.zeros((1, 1, 20, 20), np.float32)
    bias[..., 9:, :], bias[..., :9, 2:] = np.finfo(np.float32).min, -1e31

    def both(q: Any, k: Any, v: Any, **mask: Any) -> Any:
        attend = functools.partial(td.lax.attention, scale=1.0, after=0, **mask)
        out, pullback = td.vjp(attend, q, k, v)
        return out, *pullback(ct)

    compiled = td.jit(both)(q, k, v, bias=bias)
    np.testing.assert_allclose(
        compiled[0][0, 9:], np.tile(v[0].mean(0), (11, 1, 1)), 1e-5, 1e-6
    )
    eager = both(*map(tnp.asarray, (q, k, v)), bias=tnp.asarray(bias))
    for other in (eager, td.jit(both)(q, k, v, seen=bias == 0)):
        for found, expected in zip(compiled, other, strict=True):
            close(found, expected)


def step(q: Any, k: Any, v: Any) -> Any:
    out, back = td.vjp(lambda *xs: td.lax.attention(*xs, scale=0.3, after=0), q, k, v)
    return out, back(out)


@pytest.mark.parametrize("dtype", [tnp.float32, tnp.bfloat16], ids=str)
def test_no_bit_depends_on_the_number_of_threads(
    dtype: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arrays, _ = CASES["causal, in chunks"].draw()
    arrays = [np.asarray(tnp.asarray(x).astype(dtype)) for x in arrays]
    found = []
    for count in (1, 2, 5):
        monkeypatch.setattr(threads, "num_threads", lambda count=count: count)
        made = stages(td.trace(step)(*arrays), CPUTarget())
        tasks = [s.tasks for s in blocked(made)]
        assert max(tasks) > 1 or count == 1
        out, grads = td.jit(lambda *xs: step(*xs))(*arrays)
        found.append([np.asarray(x).tobytes() for x in (out, *grads)])
    assert found[0] == found[1] == found[2]


def blocked(made: Stages) -> list[CallsStep]:
    return [s for _, s in walk(made.plan.steps) if isinstance(s, CallsStep)]


def test_scores_are_never_whole_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # Scratch memory is of each thread, and wider with wider vectors.
    monkeypatch.setattr(threads, "num_threads", lambda: 2)
    t = 2048
    q = np.zeros((1, t, 1, 16), np.float32)
    made = stages(td.trace(step)(q, q, q), CPUTarget())
    check(made)
    assert len(blocked(made)) == 2
    assert made.plan.arena < t * t * 4 / 3
    forward, backward = map(step_cost, blocked(made))
    assert forward.transcendentals == backward.transcendentals == t * (t + 1) // 2
    assert forward.flops == t * (t + 1) // 2 * (4 * 16 + 3)


def test_a_target_without_kernels_runs_other_operations() -> None:
    class Plain(CPUTarget):
        def lowering(self, eq: Equation) -> Lowering:
            if isinstance(eq.op.lowering, Blocked):
                return Host("there are no kernels here")
            return super().lowering(eq)

    arrays, _ = CASES["plain"].draw()
    graph = td.trace(step)(*arrays)
    lowered = lower_blocks(graph, Plain())
    assert not any(isinstance(eq.op.lowering, Blocked) for eq in lowered.equations)
    found = call_graph(lowered, arrays)
    close(found, td.tree.leaves(td.jit(step)(*arrays)))


def test_errors() -> None:
    q = tnp.ones((1, 5, 4, 8))
    with pytest.raises(ValueError, match="shared heads divide the heads; got"):
        td.lax.attention(q, q[:, :, :3], q[:, :, :3], scale=1.0)
    with pytest.raises(ValueError, match="of one dtype"):
        td.lax.attention(q, q.astype(tnp.float64), q, scale=1.0)
    with pytest.raises(ValueError, match=r"seen is bool .* got bool\[5,5\]"):
        td.lax.attention(q, q, q, seen=tnp.ones((5, 5), bool), scale=1.0)
