"""Which values are computed again by their readers instead of being stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.evaluate import agrees
from tests.core.fuse.graphs import array, grouped
from tests.core.fuse.lowering.alone import normal
from treadle import lax
from treadle.backends.devices import TARGETS
from treadle.check import check
from treadle.compile import stages
from treadle.fuse.grouping import recompute
from treadle.fuse.grouping.recompute import choose
from treadle.fuse.lowering.launches import Launch
from treadle.fuse.roles import stored_members

X, W = array(8, 8), array(8, 8)


def recomputed(function: Callable[..., Any], *args: Any) -> list[str]:
    """The names of the ops whose results nobody stores."""
    part = grouped(function, *args)
    choose(part)
    return sorted(part.flow.maker[v].op.name for v in part.flow.recomputed)


def apart(value: Callable[[Any], Any]) -> Callable[..., Any]:
    """A value that one cluster makes, for itself and for another that comes after a
    product (a function that can't be an epilogue)."""

    def function(x: Any, w: Any) -> Any:
        y = value(x)
        rows = tnp.sum(y + 1.0, 1)
        z = (rows[:, None] * x) @ w
        return tnp.sum(tnp.exp(z) * y, 1)

    return function


def test_what_its_readers_can_make_is_not_stored() -> None:
    assert "mul" in recomputed(apart(lambda x: x * 2.0), X, W)


@pytest.mark.parametrize(
    "value",
    [
        # Dear: several logarithms and powers.
        lambda x: tnp.log1p(tnp.exp(tnp.sin(tnp.exp(tnp.sin(tnp.exp(x)))))),
        # Not elementwise.
        lambda x: tnp.cumsum(x, 1),
    ],
)
def test_what_is_dear_or_no_element_s_work_is_stored(value: Any) -> None:
    before = grouped(apart(value), X, W)
    choose(before)
    made = before.flow.graph.equations
    last = [eq for eq in made if eq.op.name in ("log1p", "cumsum")][-1]
    assert last.outputs[0] not in before.flow.recomputed


def test_results_are_stored() -> None:
    def function(x: Any, w: Any) -> Any:
        y = x * 2.0
        return y, tnp.sum((y @ w) * y, 1)

    assert recomputed(function, X, W) == []


def test_results_are_stored_even_if_every_reader_could_make_them() -> None:
    def function(x: Any, w: Any) -> Any:
        y = x - 2.0
        rows = tnp.sum(y + 1.0, 1)
        z = (rows[:, None] * x) @ w
        return y, tnp.sum(tnp.exp(z) * y, 1)

    def inside(x: Any, w: Any) -> Any:
        return function(x, w)[1]

    assert "sub" in recomputed(inside, X, W)
    assert "sub" not in recomputed(function, X, W)


def test_what_a_product_reads_is_stored() -> None:
    def function(x: Any, w: Any) -> Any:
        y = x * 2.0
        return tnp.exp(y @ w) * y

    assert recomputed(function, X, W) == []


def test_many_leaves_are_not_loaded_in_place_of_one_value() -> None:
    def function(x: Any, w: Any, a: Any, b: Any, c: Any) -> Any:
        return apart(lambda x: x * a + b * c)(x, w)

    assert recomputed(function, X, W, X, X, X) == []


def test_a_value_of_one_cluster_is_never_stored_at_all() -> None:
    assert recomputed(lambda x: tnp.tanh(x) * 2.0 + 1.0, X) == []


def test_some_arithmetic_is_cheaper_than_memory() -> None:
    assert "exp" in recomputed(apart(lambda x: tnp.exp(x)), X, W)


def test_as_many_leaves_as_are_loaded_and_stored_without() -> None:
    def of(value: Callable[..., Any]) -> list[str]:
        def function(x: Any, w: Any, a: Any, b: Any) -> Any:
            return apart(lambda x: value(x, a, b))(x, w)

        return recomputed(function, X, W, X, X)

    assert "mul" in of(lambda x, a, b: x * a)
    assert "sub" not in of(lambda x, a, b: x * a - b)


def test_what_is_computed_again_counts_with_its_own_leaves() -> None:
    def function(x: Any, w: Any, a: Any) -> Any:
        y = x - a
        z = (tnp.sum(y + 1.0, 1)[:, None] * x) @ w
        v = tnp.tanh(z) * y
        z = (tnp.sum(v + 1.0, 1)[:, None] * x) @ w
        return tnp.sum(tnp.tanh(z) * v, 1)

    assert recomputed(function, X, W, X) == ["sub"]
    agrees(function, normal(8, 8), normal(8, 8), normal(8, 8, seed=1))


def test_what_is_made_of_a_product_in_registers_is_stored() -> None:
    def function(x: Any, w: Any) -> Any:
        y = x @ w - 1.0
        return tnp.tanh(tnp.cumsum(y * 2.0, 1)) * y

    assert "sub" not in recomputed(function, X, W)
    agrees(function, normal(8, 8), normal(8, 8))


def test_what_is_stored_anyway_is_a_leaf() -> None:
    def function(x: Any, w: Any) -> Any:
        u = tnp.log1p(tnp.exp(tnp.sin(tnp.exp(tnp.sin(tnp.exp(x))))))
        return u, apart(lambda u: u - 2.0)(u, w)

    assert "sub" in recomputed(function, X, W)


def test_what_is_read_in_another_shape_is_stored() -> None:
    def function(x: Any, w: Any) -> Any:
        y = x - 2.0
        runs = tnp.cumsum(y.reshape(4, 16)[:, 1:].reshape(60)[:59], 0)
        return runs, apart(lambda _: y)(x, w), tnp.cumsum(y.reshape(16, 4), 1)

    agrees(function, normal(8, 8), normal(8, 8))


def bent(x: Any, w: Any) -> Any:
    """One value that a reader sees where it can't be made again, among two that can."""
    first, y, last = x - 2.0, tnp.maximum(x.reshape(4, 16), 0.5), x * 3.0
    rows = tnp.sum(first + 1.0, 1) + tnp.sum(last + 1.0, 1)
    halves = tnp.sum(y + 1.0, 1)
    z = (rows[:, None] * x) @ w + tnp.sum(tnp.cumsum(halves, 0))
    seen = tnp.sum(tnp.tanh(z[:4]) * y[:, 1:9], 1)
    return seen, tnp.sum(tnp.tanh(z) * first, 1), tnp.sum(tnp.sin(z) * last, 1)


def test_what_its_readers_can_not_make_is_stored() -> None:
    found = recomputed(bent, X, W)
    assert {"mul", "sub"} <= set(found)
    assert "maximum" not in found
    groups = agrees(bent, normal(8, 8), normal(8, 8))
    for node, kernel in groups.built.items():
        for b in getattr(kernel, "bindings", ()):
            assert not b.store or b.atom not in groups.flow.recomputed, node


def test_many_candidates_are_tried_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = recomputed(bent, X, W)
    for together in (1, 2, 3):
        monkeypatch.setattr(recompute, "_TOGETHER", together)
        assert recomputed(bent, X, W) == wanted


def test_what_is_like_one_that_was_refused_is_tried_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def several(x: Any, w: Any) -> Any:
        found = []
        for _ in range(6):
            found += bent(x, w)
            x = tnp.cumsum(x @ w, 1)
        return found

    settle, tried = recompute._settle, []

    def counted(candidates: list[Any], *rest: Any) -> None:
        tried.append(len(candidates))
        settle(candidates, *rest)

    monkeypatch.setattr(recompute, "_settle", counted)
    names, alike = recomputed(several, X, W), len(tried)
    tried.clear()
    monkeypatch.setattr(recompute, "_likeness", lambda *_: (object(),))
    assert recomputed(several, X, W) == names
    assert names.count("sub") == 6
    assert "maximum" not in names
    assert alike < len(tried)


def standardized_gradients(x: Any, ct: Any) -> tuple[Any, Any]:
    """The sums over rows that the gradient of a layer norm takes."""
    centred = x - x.mean(1, keepdims=True)
    scale = lax.rsqrt(tnp.square(centred).mean(1, keepdims=True) + 1e-5)
    return (ct * (centred * scale)).sum(0), ct.sum(0)


def test_what_is_taken_back_was_not_marked_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def function(x: Any, w: Any) -> Any:
        total = tnp.square(x).sum(1, keepdims=True)
        shifted = total + 1.0
        scale = lax.rsqrt(shifted)
        one = (tnp.exp((x * scale + shifted) @ w) * shifted - total).sum(1)
        return (tnp.exp((one[:, None] * x) @ w) * scale).sum(1)

    def refuses_scales(cluster: Any, part: Any) -> bool:
        marked = [part.flow.maker[v].op.name for v in part.flow.recomputed]
        return "rsqrt" not in marked and builds(cluster, part)

    builds = recompute.builds
    monkeypatch.setattr(recompute, "builds", refuses_scales)
    assert recomputed(function, X, W) == ["add"]
    # `one` is built of the sum of squares, so that is stored.
    check(stages(td.jit(function).graph(X, W), TARGETS["reference"]))


@pytest.mark.parametrize("anyway", [False, True])
def test_what_would_be_stored_in_its_place_stays_where_it_is(anyway: bool) -> None:
    def function(x: Any, w: Any) -> Any:
        total = tnp.sum(x, 1)
        mean = total / 8.0
        z = (mean[:, None] * x) @ w
        scaled = tnp.exp(z) * mean[:, None]
        return tnp.sum(scaled - total[:, None] if anyway else scaled, 1)

    # A mean is stored rather than the sum that it is made of, unless that is needed.
    assert ("div" in recomputed(function, X, W)) == anyway


def test_what_a_value_is_made_from_is_computed_again_with_it() -> None:
    part = grouped(standardized_gradients, array(8, 8), array(8, 8))
    choose(part)
    stored = {v for node in part.nodes for v in stored_members(node, part)}
    assert not [v for v in stored if v.type.shape == (8, 8)]


def standardized(x: Any, keepdims: bool) -> Any:
    """Columns of mean 0 and deviation 1."""
    centred = x - x.mean(0, keepdims=keepdims)
    return centred / tnp.sqrt(tnp.square(centred).mean(0, keepdims=keepdims) + 1e-5)


@pytest.mark.parametrize("keepdims", [True, False])
def test_what_is_repeated_in_all_rows_is_computed_once(keepdims: bool) -> None:
    def function(x: Any) -> Any:
        return standardized(x, keepdims)

    assert not {"div", "sqrt"} & set(recomputed(function, X))
    agrees(function, normal(8, 8))


def test_what_is_repeated_between_other_axes_is_computed_once() -> None:
    def function(x: Any, y: Any) -> Any:
        return x * tnp.tanh(y.sum(1) * 2.0)[:, None, None, :]

    assert "tanh" not in recomputed(function, array(2, 3, 4, 8), array(2, 5, 8))
    agrees(function, normal(2, 3, 4, 8), normal(2, 5, 8))


def test_dear_values_of_rows_are_not_computed_for_each_block_of_columns() -> None:
    assert "rsqrt" not in recomputed(standardized_gradients, array(8, 8), array(8, 8))


def test_columns_of_what_is_read_together_are_reduced_together() -> None:
    part = grouped(standardized_gradients, array(8, 8), array(8, 8))
    columns = [n for n in part.nodes if getattr(n, "form", None) == "mid"]
    assert [len(n.equations) for n in columns] == [2]


def test_columns_that_wait_for_each_other_are_reduced_one_after_the_other() -> None:
    def variance(x: Any) -> Any:
        return tnp.square(x - x.sum(0)).sum(0)

    agrees(variance, normal(8, 8))


def test_many_columns_of_one_array_agree_with_numpy() -> None:
    def sums(x: Any, y: Any) -> Any:
        return [(x * y + float(n)).sum(0) for n in range(6)], (x.max(0), y.min(0))

    agrees(sums, normal(70, 9), normal(70, 9, seed=1))


def kernel_machine(loss: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient by weights and width of what is made of exp(-width * distances),
    which rows and columns of it reduce."""

    def function(x: Any, a: Any, width: Any) -> Any:
        def value(a: Any, width: Any) -> Any:
            return loss(tnp.exp(-width * tnp.square(x[:, None] - x[None])), a)

        return td.grad(value, (0, 1))(a, width)

    return function


def test_a_dear_value_that_several_kernels_read_is_computed_once() -> None:
    def twice(k: Any, a: Any) -> Any:
        return tnp.tanh(k @ a).sum() + (a * (k @ a)).sum()

    def once(k: Any, a: Any) -> Any:
        return tnp.tanh(k @ a).sum()

    args = normal(9), normal(9, seed=1), normal()
    stored = {}
    for loss in twice, once:
        groups = agrees(kernel_machine(loss), *args)
        makers = [groups.flow.maker[v] for v in groups.flow.recomputed]
        stored[loss] = "exp" not in [eq.op.name for eq in makers]
    assert stored == {twice: True, once: False}


def layers(count: int) -> Callable[..., Any]:
    """Equal layers, one after the other, whose values are computed again."""

    def function(x: Any, w: Any) -> Any:
        for _ in range(count):
            y = x * 2.0
            rows = tnp.sum(y + 1.0, 1)
            x = tnp.sin((rows[:, None] * x) @ w) @ w + tnp.exp(y)
        return x

    return function


def test_equal_layers_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    fits = recompute._fits

    def counted(*args: Any) -> bool:
        asked.append(args)
        return fits(*args)

    monkeypatch.setattr(recompute, "_fits", counted)
    found = {}
    for count in (8, 24):
        asked.clear()
        names = recomputed(layers(count), X, W)
        alone = [c for c, _ in asked if c.product is None]
        found[count] = len(names), len(alone)
    (few, questions), (many, of_many) = found[8], found[24]
    assert many > few
    assert 0 < of_many == questions


def layered() -> Any:
    """The loss of residual layers with layer norms, and its gradients."""

    def normed(x: Any) -> Any:
        centred = x - x.mean(1, keepdims=True)
        return centred * lax.rsqrt(tnp.square(centred).mean(1, keepdims=True) + 1e-5)

    def loss(x: Any, layers: Any) -> Any:
        for w, b in layers:
            x = x + (normed(x) @ w + b)
        return tnp.sum(tnp.square(normed(x)))

    return td.value_and_grad(loss, argnums=(0, 1))


def test_equal_layers_have_equal_kernels() -> None:
    def nests(count: int) -> set[Any]:
        graph = td.jit(layered()).graph(X, [(W, X[0])] * count)
        entries = stages(graph, TARGETS["reference"]).kernels.entries
        found = [e.kernel for e in entries if isinstance(e.kernel, Launch)]
        return {launch.nest for launch in found}

    assert len(nests(2)) == len(nests(3)) == len(nests(4))
