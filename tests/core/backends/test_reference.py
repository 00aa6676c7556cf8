"""The reference target: it agrees with compiled programs, and finds wrong plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.backends import by_reference
from treadle import nn
from treadle.backends.reference import nests
from treadle.errors import InternalError
from treadle.ir.scalar import SCALARS
from treadle.kernels import lower
from treadle.plan.steps import NestStep, OrderStep, ProductStep, Step
from treadle.recipes import char_gpt, loop
from treadle.recipes.catalogue import RECIPES
from treadle.recipes.step import make_step
from treadle.run.execute import Executable

SMALL: dict[str, dict[str, Any]] = {
    "digits-mlp": {"batch_size": 32, "width": 24},
    "digits-cnn": {"batch_size": 12, "channels": 5},
    "tabular": {"batch_size": 32, "width": 24},
    "char-gpt": {"batch_size": 3, "context": 24, "width": 32, "layers": 2},
    "dp-sgd": {"batch_size": 32, "width": 8, "noise": 4.0},
    "cartpole-ppo": {"batch_size": 3, "moves": 8, "passes": 1, "width": 8},
}
# Those that are small: others are made of the same operations.
CHECKED = [name for name in RECIPES if name in SMALL]


@pytest.mark.parametrize("name", CHECKED)
def test_steps_of_recipes(name: str, tmp_path: Path) -> None:
    recipe = RECIPES[name]
    config = replace(recipe.config(), **SMALL[name])
    if isinstance(config, char_gpt.Config):
        text = tmp_path / "text"
        text.write_text("To be, or not to be: that is the question.\n" * 40)
        config = replace(config, data=str(text))
    _train(recipe, config, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKED)
def test_steps_of_recipes_as_they_are(name: str) -> None:
    _train(RECIPES[name], RECIPES[name].config(), 2)


def _train(recipe: Any, config: Any, steps: int) -> None:
    data = recipe.load(config)
    learner = loop.learner_of(recipe, config, data.facts)
    state, step = loop.beginning(learner, config).state, make_step(learner)
    batches = data.batches.repeat()
    with by_reference.checked() as seen:
        for _ in range(steps):
            state, _ = step(state, next(batches))
    assert sum(plan.outline.name == "step" for plan in seen) == steps


X = np.random.default_rng(0).normal(size=(6, 7, 8, 6)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(3, 2, 3, 4)).astype(np.float32)
CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "same": {"padding": ((1, 1), (0, 1))},
    "strided": {"window_strides": (2, 3), "padding": ((1, 0), (2, 2))},
    "dilated": {"rhs_dilation": (2, 1), "lhs_dilation": (1, 2)},
    "cropped": {"padding": ((-1, 0), (0, -2))},
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_and_their_gradients(name: str, groups: int) -> None:
    options = {"window_strides": (1, 1), "padding": "VALID", **CONVOLUTIONS[name]}
    layouts = ("NHWC", "HWIO", "NHWC")

    def loss(x: Any, w: Any) -> Any:
        y = td.lax.conv_general_dilated(
            x, w, dimension_numbers=layouts, feature_group_count=groups, **options
        )
        return tnp.sum(tnp.sin(tnp.maximum(y * 0.3 + 1, 0)))

    w = np.concatenate([W] * (2 // groups), 2)
    with by_reference.checked() as seen:
        td.jit(td.grad(loss, (0, 1)))(X, w)
    assert seen


def test_a_scatter_that_drops_reads_what_earlier_rows_wrote() -> None:
    x = np.arange(5, dtype=np.float32)
    at = np.array([1, 9, 1, 8, 4, 4])
    f = lambda x, i: x.at[i].set(tnp.arange(6.0))  # noqa: E731
    with by_reference.checked() as seen:
        found = td.jit(f)(x, at)
    np.testing.assert_array_equal(found, [0, 2, 2, 3, 5])
    assert seen


def test_sums_of_nothing() -> None:
    x = np.zeros((3, 0, 2, 2), np.uint8)
    with by_reference.checked() as seen:
        found = td.jit(lambda x: (x.sum(1), x.sum((1, 2)), x.T.sum(2, dtype=float)))(x)
    assert seen
    assert [np.asarray(a).tolist() for a in found[:2]] == [
        [[[0, 0]] * 2] * 3,
        [[0, 0]] * 3,
    ]
    assert not np.asarray(found[2]).any()


def test_large_spaces_are_worked_on_in_parts() -> None:
    x = tnp.arange(3 * 700 * 600, dtype=td.float32).reshape(3, 700, 600) / 1e6
    with by_reference.checked() as seen:
        td.jit(lambda x: (tnp.tanh(x).sum(0), tnp.cumsum(x, 1), nn.softmax(x)))(x)
    assert seen


def test_every_scalar_instruction_has_a_meaning() -> None:
    for name in SCALARS:
        run, _ = nests.meaning(name)
        assert callable(run)


# Plans that are wrong -----------------------------------------------------------------


def _sums(x: Any, w: Any) -> Any:
    y = x @ w
    z = tnp.tanh(y) / tnp.sum(y * y, 0)
    return tnp.sort(tnp.sum(z * w, 1)), tnp.flip(z, 0), z.T @ z


ARGS = [np.random.default_rng(k).normal(size=(6, 6)).astype(np.float32) for k in (0, 1)]


def _planned() -> Executable:
    return td.jit(_sums).lower(*ARGS).compile().program


def _first(program: Executable, kind: type[Step]) -> Any:
    return next(s for s in program.plan.steps if isinstance(s, kind))


def _forget_a_write(program: Executable) -> None:
    _first(program, NestStep).writes = []


def _forget_a_read(program: Executable) -> None:
    _first(program, ProductStep).reads = []


def _leave_the_buffer(program: Executable) -> None:
    step = _first(program, NestStep)
    step.places = [p and p.shifted(p.buffer.nbytes - 4) for p in step.places]


def _leave_the_buffer_in_a_product(program: Executable) -> None:
    step = _first(program, ProductStep)
    step.a = step.a.shifted(4)


def _order_over_its_keys(program: Executable) -> None:
    step = _first(program, OrderStep)
    step.writes = step.reads


def _product_over_its_operand(program: Executable) -> None:
    step = _first(program, ProductStep)
    step.writes, step.c = [step.a], step.a


def _write_over_another_row(program: Executable) -> None:
    """A nest's result where an operand is that it reads in another order."""
    for step in program.plan.steps:
        if isinstance(step, NestStep):
            (store, *_), loads = (
                [k for k, b in enumerate(step.launch.bindings) if b.store is s]
                for s in (True, False)
            )
            for k in loads:
                a, b = step.launch.bindings[store], step.launch.bindings[k]
                place = step.places[k]
                if place is not None and a.strides != b.strides:
                    step.places[store] = place
                    step.writes = [place]
                    return
    raise AssertionError("no such nest")


def _run_everything_together(program: Executable) -> None:
    for step in program.plan.steps:
        step.position = 1


@pytest.mark.parametrize(
    "spoil",
    [
        _forget_a_write,
        _forget_a_read,
        _leave_the_buffer,
        _leave_the_buffer_in_a_product,
        _order_over_its_keys,
        _product_over_its_operand,
        _write_over_another_row,
        _run_everything_together,
    ],
)
def test_a_wrong_plan_is_an_error(spoil: Callable[[Executable], None]) -> None:
    program = _planned()
    spoil(program)
    with pytest.raises((InternalError, ValueError)):
        by_reference.run(program.plan, ARGS)


def test_memory_that_was_never_written_is_not_a_number() -> None:
    program = _planned()
    wanted = by_reference.run(program.plan, ARGS)
    assert all(np.isfinite(x).all() for x in wanted)
    del program.plan.steps[0]
    found = by_reference.run(program.plan, ARGS)
    assert all(np.isnan(x).any() for x in found[1:])


def test_what_an_iteration_left_is_not_there_in_the_next() -> None:
    """A temporary of a loop's body is forgotten where it begins again."""

    def f(xs: Any, w: Any) -> Any:
        step = lambda c, x: (tnp.tanh((c @ w) @ x), tnp.sum(c))  # noqa: E731
        return td.scan(step, xs[0], xs)

    args = [np.ones((3, 4, 4), np.float32) * 0.1, np.ones((4, 4), np.float32)]
    program = td.jit(f).lower(*args)
    body = next(s for s in program.plan.steps if hasattr(s, "body")).body
    temporary = next(s for s in body if isinstance(s, ProductStep))
    original = by_reference.program.products.run
    calls = []

    def once(*args: Any) -> None:
        calls.append(args[0])
        if sum(p is temporary.product for p in calls) == 1 or (
            args[0] is not temporary.product
        ):
            original(*args)

    with mock.patch.object(by_reference.program.products, "run", once):
        found = by_reference.run(program.plan, args)
    assert np.isnan(found[0]).all()


def test_nothing_that_a_device_chose_is_read() -> None:
    program = _planned()
    wanted = by_reference.run(program.plan, ARGS)
    steps: list[Step] = []
    for step in program.plan.steps:
        steps.append(step)
        if isinstance(step, ProductStep):
            step.words = step.scratch = None
            # More launches of the one product.
            steps += [replace(step, position=step.position + n / 3) for n in (1, 2)]
        elif isinstance(step, NestStep | OrderStep):
            step.tasks, step.scratch = 0, None
    program.plan.steps = steps
    with mock.patch.object(lower, "schedule", side_effect=AssertionError):
        found = by_reference.run(program.plan, ARGS)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
