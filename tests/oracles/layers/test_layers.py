"""Every layer against PyTorch's, Flax's or a formula in JAX, with the same weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.oracles.layers import gathered
from tests.oracles.layers.rows import Row, find, random
from treadle import nn, rng, tree

ROWS: list[Row] = gathered("ROWS")

each = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


class Called(nn.Module):
    """A layer that is called as its row says."""

    layer: Any
    how: Callable[..., Any]

    def __call__(self, *inputs: Any) -> Any:
        return self.how(self.layer, *inputs)


def run(row: Row, layer: Any, *inputs: Any) -> tuple[Any, Any]:
    """The output in training, and the layer with its new state."""
    called = Called(layer, row.call)
    output, after = nn.stateful(called, key=rng.key(7))(*inputs)
    return output, after.layer


def score(row: Row, layer: Any, inputs: Any, weights: Any) -> Any:
    return (run(row, layer, *inputs)[0] * weights).sum()


def scores(*shape: int) -> np.ndarray:
    return random(*shape, seed=99)


def close(found: Any, expected: Any, tolerance: float) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def arrays(row: Row) -> list[Any]:
    return [tnp.asarray(x) for x in row.inputs]


def theirs(row: Row, reference: Any) -> tuple[Any, Any, Any]:
    """Their output in our layout, the scores in ours, and all else that they give."""
    shape = list[tuple[int, ...]]()

    def weighted(*of: int) -> np.ndarray:
        shape.append(of)
        return scores(*of)

    result = reference.run([row.to_theirs(x) for x in row.inputs], weighted)
    return row.to_ours(result.output), row.to_ours(scores(*shape[0])), result


@each
def test_every_parameter_is_copied(row: Row) -> None:
    leaves = tree.leaves_with_path(row.ours())
    cells = [tree.key_name(path).removesuffix(".value") for path, _ in leaves]
    names = {c.lstrip(".").replace("[", ".").replace("]", "") for c in cells}
    assert names == {p.removesuffix(".value") for p in row.weights}


@each
def test_output_and_gradients(row: Row) -> None:
    ours, reference = row.pair()
    expected, weights, result = theirs(row, reference)
    xs = arrays(row)
    for transform in (lambda f: f, td.jit):
        output, after = transform(lambda m, *xs: run(row, m, *xs))(ours, *xs)
        close(output, expected, row.tolerance)
        for path, take in row.weights.items():
            if path.endswith(".value"):
                close(find(after, path), take(result.state), row.tolerance)

    def loss(layer: Any, inputs: Any) -> Any:
        return score(row, layer, inputs, weights)

    grads, of_inputs = td.jit(td.grad(loss, (0, 1), allow_int=True))(ours, xs)
    for found, grad in zip(of_inputs, result.inputs, strict=True):
        assert (found is None) == (grad is None)
        if found is not None:
            close(found, row.to_ours(grad), 5 * row.tolerance)
    for path, take in row.weights.items():
        if path.endswith(".value"):
            continue
        if (grad := find(grads, path)) is None:  # frozen
            assert not take(result.weights).any()
        else:
            close(grad, take(result.weights), 5 * row.tolerance)


@each
def test_inference(row: Row) -> None:
    ours, reference = row.pair()
    reference.inference()
    expected, _, _ = theirs(row, reference)
    xs = arrays(row)
    close(row.call(nn.inference(ours), *xs), expected, row.tolerance)


@each
def test_bfloat16(row: Row) -> None:
    if row.half is None:
        return
    ours, reference = row.pair()
    expected, _, _ = theirs(row, reference)
    half = tree.map(_halve, ours)
    xs = [_halve(x) for x in arrays(row)]
    output, after = td.jit(lambda m, xs: run(row, m, *xs))(half, xs)
    assert output.dtype == tnp.bfloat16
    kinds = [td.typeof(x) for x in tree.leaves(half)]
    assert [td.typeof(x) for x in tree.leaves(after)] == kinds
    error = np.abs(np.asarray(output, np.float32) - expected).max(initial=0)
    assert error <= row.half * max(1, np.abs(expected).max(initial=0))


def _halve(x: Any) -> Any:
    return x.astype(tnp.bfloat16) if td.dtypes.is_float(x.dtype) else x


@each
def test_transformed(row: Row) -> None:
    """Under vmap, scan and remat it gives what it gives without."""
    ours, _ = row.pair()
    ours, xs = nn.inference(ours), arrays(row)
    expected = row.call(ours, *xs)

    scanned = td.scan(
        lambda n, x: (n, row.call(ours, *x)), 0, [tnp.stack([x, x]) for x in xs]
    )[1]
    for output in scanned:
        close(output, expected, row.tolerance)
    if row.batched:
        close(td.vmap(lambda *x: row.call(ours, *x))(*xs), expected, row.tolerance)
    if not any(td.dtypes.is_float(x.dtype) for x in tree.leaves((ours, xs))):
        return

    def loss(call: Any) -> Callable[..., Any]:
        return lambda args: (call(*args) * scores(*expected.shape)).sum()

    def call(layer: Any, *xs: Any) -> Any:
        return row.call(layer, *xs)

    plain = td.grad(loss(call))((ours, *xs))
    again = td.jit(td.grad(loss(td.remat(call))))((ours, *xs))
    tree.map(lambda a, b: close(a, b, row.tolerance), again, plain)


def test_every_layer_has_a_row() -> None:
    shown = {type(row.ours()).__name__ for row in ROWS} | set(gathered("NO_ROW"))
    layers = {
        name
        for name in dir(nn)
        if isinstance(value := getattr(nn, name), type)
        and issubclass(value, nn.Module)
        and value is not nn.Module
    }
    assert layers <= shown, f"add rows for {sorted(layers - shown)}"
