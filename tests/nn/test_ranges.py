"""Numbers that make no sense are refused where they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import treadle.numpy as tnp
from tests.refused import refused
from treadle import nn, optim, rng
from treadle.data import augment

KEY = rng.key(0)
X, ROWS, LABELS = tnp.ones(4), tnp.ones((4, 3)), tnp.arange(4) % 3
ONE, HEADS = tnp.ones((2, 4, 4, 3)), tnp.ones((3, 2, 4))
OPTIONS: list[tuple[Callable[..., Any], str, tuple[Any, ...], tuple[Any, ...]]] = [
    # a function of the option's value, its name, what is refused, what is not
    (lambda v: nn.huber(X, X, v), "delta", (-1, 0, 0.0), (0.1,)),
    (lambda v: nn.quantile_error(X, X, v), "quantile", (-0.1, 1.1), (0, 1)),
    (lambda v: nn.gaussian_nll(X, X, X, eps=v), "eps", (-1e-9,), (0,)),
    (lambda v: nn.cross_entropy(ROWS, LABELS, v), "smoothing", (-0.1, 1.5), (0, 1)),
    (lambda v: nn.binary_cross_entropy(X, X, v), "smoothing", (-0.1, 1.5), (0, 1)),
    (lambda v: nn.focal(ROWS, LABELS, v), "gamma", (-1,), (0,)),
    (lambda v: nn.binary_focal(X, X, v), "gamma", (-1,), (0,)),
    (lambda v: nn.binary_focal(X, X, alpha=v), "alpha", (-0.1, 2), (None, 1)),
    (lambda v: nn.multi_margin(ROWS, LABELS, power=v), "power", (0, -1), (1,)),
    (lambda v: nn.triplet_margin(ROWS, ROWS, ROWS, order=v), "order", (0, -2), (1,)),
    (lambda v: nn.triplet_margin(ROWS, ROWS, ROWS, eps=v), "eps", (-1,), (0,)),
    (lambda v: nn.dice(ROWS, ROWS, alpha=v), "alpha", (-1,), (0,)),
    (lambda v: nn.dice(ROWS, ROWS, beta=v), "beta", (-1,), (0,)),
    (lambda v: nn.dice(ROWS, ROWS, smooth=v), "smooth", (-1,), (0,)),
    (lambda v: nn.cosine_similarity(ROWS, ROWS, eps=v), "eps", (-1,), (1e-3,)),
    (lambda v: nn.cosine_distance(ROWS, ROWS, eps=v), "eps", (-1,), (1e-3,)),
    (lambda v: nn.ntxent(ROWS, LABELS, v), "temperature", (0, -1), (1,)),
    (lambda v: nn.LayerNorm(3, eps=v), "eps", (-1,), (0,)),
    (lambda v: nn.RMSNorm(3, eps=v), "eps", (-1,), (0,)),
    (lambda v: nn.GroupNorm(1, 3, eps=v), "eps", (-1,), (0,)),
    (lambda v: nn.BatchNorm(3, eps=v), "eps", (-1,), (0,)),
    (lambda v: nn.BatchNorm(3, momentum=v), "momentum", (-1, 2), (None, 0, 1)),
    (lambda v: nn.InstanceNorm(3, eps=v), "eps", (-1,), (0,)),
    (lambda v: nn.InstanceNorm(3, momentum=v), "momentum", (-1, 2), (0, 1)),
    (lambda v: nn.Dropout(v), "rate", (-0.1, 1.1), (0, 1)),
    (lambda v: nn.AlphaDropout(v), "rate", (-0.1, 1.1), (0, 1)),
    (lambda v: nn.DropPath(v), "rate", (-0.1, 1.1), (0, 1)),
    (
        lambda v: nn.MultiHeadAttention(4, 2, dropout=v, key=KEY),
        "dropout",
        (-0.1, 1.1),
        (0, 1),
    ),
    (
        lambda v: nn.MixtureOfExperts(4, experts=2, capacity_factor=v, key=KEY),
        "capacity_factor",
        (0, -1.0),
        (None, 0.5),
    ),
    (
        lambda v: nn.MixtureOfExperts(4, experts=2, jitter=v, key=KEY),
        "jitter",
        (-1, 2),
        (0, 0.1),
    ),
    (lambda v: augment.mixup(KEY, ONE, ONE, v), "alpha", (-1, 0), (0.2,)),
    (lambda v: augment.cutmix(KEY, ONE, ONE, v), "alpha", (-1, 0), (1,)),
    (lambda v: augment.random_flip(KEY, ONE, v), "p", (-0.1, 1.1), (0, 1)),
    (lambda v: augment.random_erasing(KEY, ONE, v), "p", (-0.1, 1.1), (0, 1)),
    (lambda v: augment.random_crop(KEY, ONE, padding=v), "padding", (-1,), (0,)),
    (lambda v: augment.random_rotation(KEY, ONE, v), "degrees", (-1,), (0,)),
    (lambda v: augment.color_jitter(KEY, ONE, contrast=v), "contrast", (-1,), (0,)),
    (
        lambda v: augment.color_jitter(KEY, ONE, brightness=v),
        "brightness",
        (-1,),
        (0,),
    ),
    (
        lambda v: augment.color_jitter(KEY, ONE, saturation=v),
        "saturation",
        (-1,),
        (0,),
    ),
    (lambda v: nn.GaussianDropout(v), "rate", (-0.1, 1), (0, 0.9)),
    (lambda v: nn.GaussianNoise(v), "stddev", (-0.1,), (0,)),
    (lambda v: nn.MLP([2, 2, 2], dropout=v, key=KEY), "rate", (-0.1, 1.1), (0,)),
    (lambda v: nn.FeedForward(4, dropout=v, key=KEY), "rate", (-0.1, 1.1), (0,)),
    (lambda v: nn.LocalResponseNorm(v), "size", (0, -1), (1,)),
    (lambda v: nn.LocalResponseNorm(2, alpha=v), "alpha", (-1,), (0,)),
    (lambda v: nn.LocalResponseNorm(2, beta=v), "beta", (-1,), (0,)),
    (lambda v: nn.LocalResponseNorm(2, k=v), "k", (-1,), (0,)),
    (lambda v: nn.LPPool2d(v, 2)(ONE), "norm", (0.5, -1), (1,)),
    (lambda v: nn.RotaryEmbedding(4, base=v), "base", (0, -1), (10,)),
    (lambda v: nn.SinusoidalEmbedding(4, base=v), "base", (0, -1), (10,)),
    (lambda v: nn.sinusoidal([0], 4, base=v), "base", (0, -1), (10,)),
    (
        lambda v: nn.LoRA(nn.Linear(2, 2, key=KEY), 1, alpha=v, key=KEY),
        "alpha",
        (-1,),
        (0,),
    ),
    (lambda v: nn.attention(HEADS, HEADS, HEADS, soft_cap=v), "soft_cap", (0,), (9,)),
    (lambda v: nn.attention(HEADS, HEADS, HEADS, dropout=v), "dropout", (2,), (0,)),
    (lambda v: nn.poly_cross_entropy(ROWS, LABELS, v), "epsilon", (-2,), (-1, 0)),
    (lambda v: nn.multi_margin(ROWS, LABELS, v), "margin", (-1,), (0,)),
    (lambda v: nn.margin_ranking(X, X, X, v), "margin", (-1,), (0,)),
    (lambda v: nn.hinge_embedding(X, X, v), "margin", (-1,), (0,)),
    (lambda v: nn.cosine_embedding(ROWS, ROWS, X, v), "margin", (-2, 2), (-1, 1)),
    (lambda v: nn.triplet_margin(ROWS, ROWS, ROWS, v), "margin", (-1,), (0,)),
    (lambda v: nn.standardize(X, eps=v), "eps", (-1,), (0,)),
    (lambda v: nn.normalize(X, eps=v), "eps", (-1,), (0,)),
    (lambda v: nn.normalize(X, order=v), "order", (-1, 0), (1,)),
    (lambda v: nn.gumbel_softmax(X, KEY, v), "temperature", (-1, 0), (1,)),
    (lambda v: nn.hard_shrink(X, v), "limit", (-1,), (0,)),
    (lambda v: nn.soft_shrink(X, v), "limit", (-1,), (0,)),
    (lambda v: nn.squareplus(X, v), "b", (-1,), (0,)),
    (lambda v: nn.init.normal(v), "stddev", (-1,), (0,)),
    (lambda v: nn.init.truncated_normal(v), "stddev", (-1,), (0,)),
    (lambda v: nn.init.truncated_normal(upper=v), "upper", (-2, -3), (1,)),
    (
        lambda v: nn.init.variance_scaling(v, "fan_in", "normal"),
        "scale",
        (-1,),
        (0, 1),
    ),
]
_STEPS = ((0, -1), (1, 10))
_RISE = {"init_value": 0.0, "peak_value": 1.0, "warmup_steps": 5}
_CYCLE = {"transition_steps": 10, "peak_value": 1.0}
SCHEDULES: list[tuple[str, dict[str, Any], dict[str, tuple[tuple, tuple]]]] = [
    # a schedule, what it needs, and for its options what is refused and what is not
    (
        "polynomial_schedule",
        {"init_value": 1.0, "end_value": 0.0, "power": 1.0, "transition_steps": 9},
        {
            "transition_steps": _STEPS,
            "power": ((0, -1), (2,)),
            "transition_begin": ((-1,), (0,)),
        },
    ),
    (
        "linear_schedule",
        {"init_value": 1.0, "end_value": 0.0, "transition_steps": 9},
        {"transition_steps": _STEPS, "transition_begin": ((-1,), (0,))},
    ),
    ("warmup_constant_schedule", _RISE, {"warmup_steps": _STEPS}),
    (
        "cosine_decay_schedule",
        {"init_value": 1.0, "decay_steps": 10},
        {"decay_steps": _STEPS, "alpha": ((-1,), (0,)), "exponent": ((0,), (2,))},
    ),
    (
        "warmup_cosine_decay_schedule",
        _RISE | {"decay_steps": 20},
        {
            "decay_steps": ((0, -1), (10,)),
            "warmup_steps": ((-1,), (0,)),
            "exponent": ((0,), (2,)),
        },
    ),
    (
        "exponential_decay",
        {"init_value": 1.0, "transition_steps": 9, "decay_rate": 0.5},
        {
            "transition_steps": _STEPS,
            "decay_rate": ((0, -1), (0.5,)),
            "transition_begin": ((-1,), (0,)),
        },
    ),
    (
        "warmup_exponential_decay_schedule",
        _RISE | {"transition_steps": 9, "decay_rate": 0.5},
        {"warmup_steps": _STEPS, "transition_steps": _STEPS},
    ),
    (
        "inverse_sqrt_schedule",
        {"peak_value": 1.0, "warmup_steps": 5, "timescale": 3},
        {"warmup_steps": ((-1,), (0,)), "timescale": _STEPS},
    ),
    (
        "warmup_stable_decay_schedule",
        {"peak_value": 1.0, "warmup_steps": 5, "stable_steps": 5, "decay_steps": 5},
        {
            "warmup_steps": ((-1,), (0,)),
            "stable_steps": ((-1,), (0,)),
            "decay_steps": _STEPS,
        },
    ),
    (
        "linear_onecycle_schedule",
        _CYCLE,
        {
            "pct_start": ((-0.1, 1.1), (0.2,)),
            "pct_final": ((-0.1, 1.1), (0.9,)),
            "div_factor": _STEPS,
            "final_div_factor": _STEPS,
        },
    ),
    (
        "cosine_onecycle_schedule",
        _CYCLE,
        {
            "pct_start": ((-0.1, 1.1), (0.2,)),
            "div_factor": _STEPS,
            "final_div_factor": _STEPS,
        },
    ),
    (
        "cosine_restarts_schedule",
        {"init_value": 1.0, "first_steps": 5},
        {"first_steps": _STEPS, "factor": ((0, -1), (1,))},
    ),
    (
        "cyclic_schedule",
        {"init_value": 0.0, "peak_value": 1.0, "steps_up": 5},
        {
            "steps_up": _STEPS,
            "steps_down": _STEPS,
            "cycle_decay": ((-1,), (0,)),
            "step_decay": ((-1,), (1,)),
        },
    ),
]


def _scheduled(schedule: str, given: dict[str, Any], option: str) -> Callable[..., Any]:
    return lambda v: getattr(optim, schedule)(**given | {option: v})


OPTIONS += [
    (_scheduled(schedule, given, option), option, *values)
    for schedule, given, options in SCHEDULES
    for option, values in options.items()
]


@pytest.mark.parametrize(("use", "name", "wrong", "right"), OPTIONS)
def test_what_is_out_of_range_is_refused(
    use: Any, name: str, wrong: tuple[Any, ...], right: tuple[Any, ...]
) -> None:
    for value in right:
        use(value)
    for value in (*wrong, float("nan")):
        with pytest.raises(ValueError, match=rf"{name}\b[^:]* got {value}") as caught:
            use(value)
        assert __file__ in str(caught.value), "the user's line"


def _cropped(option: str, pair: Any) -> Any:
    return augment.random_resized_crop(KEY, ONE, (2, 2), **{option: pair})


def _erased(option: str, pair: Any) -> Any:
    return augment.random_erasing(KEY, ONE, **{option: pair})


@pytest.mark.parametrize("use", [_cropped, _erased])
@pytest.mark.parametrize("option", ["scale", "ratio"])
def test_ranges_of_areas_and_shapes(use: Any, option: str) -> None:
    use(option, (0.5, 1.0))
    above = {"scale": [(0.5, 1.5)], "ratio": []}[option]
    for pair in [(0.0, 1.0), (-1.0, 1.0), (0.9, 0.1), (float("nan"), 1.0), *above]:
        said = f"{option} is", str(pair)
        refused(lambda p=pair: use(option, p), ValueError, *said, at=use)


def test_labels_that_are_no_labels() -> None:
    with pytest.raises(TypeError, match=r"one_hot takes integer labels, got f32\[4\]"):
        nn.one_hot(X, 3)
    with pytest.raises(ValueError, match="no MixtureOfExperts in this Linear"):
        nn.balance_loss(nn.Linear(3, 4, key=KEY))
