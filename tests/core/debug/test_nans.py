"""check_nans names the operation that made the first NaN."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng

DEPTH = 4


class Layer(nn.Module):
    shift: td.Array

    def __call__(self, x: Any) -> Any:
        return tnp.tanh(x) + tnp.log(self.shift)  # the line of a layer


class Net(nn.Module):
    layers: list[Layer]

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


def net(broken: int) -> Net:
    """A model of which one layer gives NaN."""
    return Net([Layer(tnp.full(3, -1.0 if i == broken else 2.0)) for i in range(DEPTH)])


X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def total(m: Net, x: Any) -> Any:
    return tnp.sum(m(x))


WAYS: dict[str, Callable[[Net], Any]] = {
    "eager": lambda m: m(X),
    "jit": lambda m: td.jit(lambda m, x: m(x))(m, X),
    "closed over": lambda m: td.jit(lambda x: m(x))(X),
    "grad": lambda m: td.value_and_grad(total)(m, X),
    "jit of grad": lambda m: td.jit(td.value_and_grad(total))(m, X),
    "grad of jit": lambda m: td.value_and_grad(td.jit(total))(m, X),
    "vmap": lambda m: td.vmap(lambda x: m(x))(X),
    "vmap of jit": lambda m: td.vmap(td.jit(lambda x: m(x)))(X),
    "jit of vmap": lambda m: td.jit(lambda m, x: td.vmap(m)(x))(m, X),
    "scan": lambda m: td.jit(lambda m, x: td.scan(lambda c, row: (c, m(row)), 0.0, x))(
        m, X
    ),
    "cond": lambda m: td.jit(
        lambda m, x: td.cond(x[0, 0] < 0, m, lambda x: x * 1.0, x)
    )(m, X),
    "jit in jit": lambda m: td.jit(lambda m, x: td.jit(total)(m, x))(m, X),
    "remat": lambda m: td.jit(td.value_and_grad(td.remat(total)))(m, X),
}


def refusal(run: Callable[[], Any], **kinds: bool) -> str:
    with pytest.raises(FloatingPointError) as caught, td.debug.check_nans(**kinds):
        run()
    return str(caught.value)


@pytest.mark.parametrize("broken", [0, DEPTH - 1])
@pytest.mark.parametrize("way", WAYS)
def test_the_layer_and_the_line_are_named(way: str, broken: int) -> None:
    text = refusal(lambda: WAYS[way](net(broken)))
    assert text.startswith("`log` gave 3 NaN of 3 elements, in the forward pass\n")
    with open(__file__) as file:
        lines = file.read().split("\n")
    n = next(i for i, s in enumerate(lines, 1) if s.endswith("# the line of a layer"))
    assert f"\n  at {__file__}:{n}, in layers[{broken}]\n" in text
    assert "\n  operand 0: f32[3] from -1 to -1, -1 there\n" in text


@pytest.mark.parametrize("way", WAYS)
def test_what_is_right_is_left_alone(way: str) -> None:
    with td.debug.check_nans():
        WAYS[way](net(-1))


@pytest.mark.parametrize("wrap", [lambda f: f, td.jit], ids=["eager", "jit"])
def test_the_backward_pass_is_told_from_the_forward_pass(wrap: Any) -> None:
    @td.named_scope("root")
    def f(x: Any) -> Any:
        return tnp.sum(tnp.sqrt(x) * 0.0)

    text = refusal(lambda: wrap(td.grad(f))(tnp.array([0.0, 1.0])))
    assert re.match(r"`\w+` gave 1 NaN of 2 elements, in the backward pass\n", text)
    assert ", backward, in root\n" in text
    assert "operand 1: f32[2] from 0 to 1, 0 there" in text


def test_masked_nan_is_no_error_in_a_program_but_its_gradient_is() -> None:
    def f(x: Any) -> Any:
        return tnp.sum(tnp.where(x > 0, tnp.sqrt(x), 0.0))

    x = tnp.array([-1.0, 4.0])
    with td.debug.check_nans():
        assert float(td.jit(f)(x)) == 2.0
    text = refusal(lambda: td.jit(td.grad(f))(x))
    assert text.startswith("`sqrt` gave 1 NaN of 2 elements, in the forward pass\n")


@pytest.mark.parametrize("start", [3.0, 5.0])
def test_the_iteration_is_named(start: float) -> None:
    @td.jit
    def f(x: Any) -> Any:
        return td.scan(lambda c, row: (c - row, tnp.log(c)), x, tnp.ones(9))

    def g(x: Any) -> Any:
        return td.while_loop(
            lambda c: c[0] < 9,
            lambda c: (c[0] + 1, tnp.sqrt(x - c[0]) + c[1]),
            (0, 0.0),
        )

    first = int(start) + 1
    text = refusal(lambda: f(start))
    assert f"\n  in iteration {first} of `scan`\n  at {__file__}:" in text
    assert "operand 0: f32[] from -1 to -1" in text
    assert f"in iteration {first} of `while_loop`" in refusal(lambda: td.jit(g)(start))


def test_donated_arguments_are_looked_at_as_they_were() -> None:
    step = td.jit(lambda x: (x * 0.0 + 1.0, tnp.log(x)), donate="x")
    x = tnp.array([1.0, -7.0])
    text = refusal(lambda: step(x))
    assert "operand 0: f32[2] from -7 to 1, -7 there" in text
    with td.debug.check_nans():
        y = tnp.array([1.0, 2.0])
        np.testing.assert_array_equal(np.asarray(step(y)[0]), [1.0, 1.0])
    with pytest.raises(RuntimeError, match="was donated"):
        _ = y + 1


def test_nothing_is_compiled_again() -> None:
    f = td.jit(lambda x: tnp.log(x))
    f(tnp.ones(3))
    with td.debug.check_nans():
        f(tnp.ones(3))
        with pytest.raises(FloatingPointError):
            f(-tnp.ones(3))
    assert f.report().traces == 1
    assert f.report().calls == 3


def test_open_sizes() -> None:
    f = td.jit(lambda x: tnp.log(x) * x.shape[0])
    for n in (3, 4, 5):
        f(tnp.ones(n))
    text = refusal(lambda: f(tnp.array([1.0] * 6 + [-2.0])))
    assert "`log` gave 1 NaN of 7 elements" in text
    assert "the first at [6]" in text
    assert f.report().traces == 2


@pytest.mark.parametrize("argument", ["x", "y['b']"])
def test_what_was_given_is_named(argument: str) -> None:
    f = td.jit(lambda x, y: x * y["b"])
    given = {"x": tnp.ones(2), "y['b']": tnp.ones(2), argument: tnp.array([1, np.nan])}
    text = refusal(lambda: f(given["x"], {"b": given["y['b']"]}))
    assert "the result of <lambda> has 1 NaN of 2 elements, which " in text
    assert argument in text
    bad = tnp.full(40, np.nan)
    assert "closes over" in refusal(lambda: td.jit(lambda x: x + bad)(tnp.ones(40)))


def test_infinities_are_found_if_asked_for() -> None:
    f = td.jit(lambda x: tnp.exp(x * 100.0))
    with td.debug.check_nans():
        f(2.0)
    text = refusal(lambda: f(2.0), inf=True, nan=False)
    assert text.startswith("`exp` gave 1 infinite of 1 elements")
    assert "1 NaN" in refusal(lambda: tnp.log(-1.0), inf=True)


def test_callbacks_without_results_happen_once() -> None:
    seen = []

    @td.jit
    def f(x: Any) -> Any:
        td.debug.callback(lambda x: seen.append(float(x)), x)
        return td.scan(
            lambda c, _: (
                td.debug.callback(lambda c: seen.append(float(c)), c),
                (c, c),
            )[1],
            tnp.log(x),
            None,
            length=2,
        )

    text = refusal(lambda: f(-1.0))
    assert "`log`" in text
    assert len(seen) == 3


def test_the_block_may_decorate_and_ends() -> None:
    @td.debug.check_nans()
    def f(x: Any) -> Any:
        return tnp.log(x)

    for _ in range(2):
        with pytest.raises(FloatingPointError):
            f(-1.0)
    assert np.isnan(float(tnp.log(-1.0)))


def test_it_is_for_calls_of_transformed_functions() -> None:
    def f(x: Any) -> Any:
        with td.debug.check_nans():
            return x * 2

    with pytest.raises(
        RuntimeError, match=r"inside of a transform(.|\n)*\n  at .*\.py"
    ):
        td.jit(f)(1.0)


def test_an_update_that_divides_by_a_gradient_of_zero() -> None:
    model = nn.Sequential(*[nn.Linear(3, 3, key=k) for k in rng.split(rng.key(0), 2)])

    @td.jit
    def step(m: Any, x: Any) -> Any:
        loss, g = td.value_and_grad(lambda m: tnp.sum(m(x) ** 2))(m)
        with td.named_scope("update"):
            return loss, td.tree.map(lambda p, g: p - g / tnp.sqrt(g * g), m, g)

    with td.debug.check_nans():
        step(model, X)
    text = refusal(lambda: step(model, X * 0))
    assert text.startswith("`div` gave 9 NaN of 9 elements, in the forward pass\n")
    assert ", in update\n" in text
    assert "found in the result[1].layers[0].weight of step" in text
