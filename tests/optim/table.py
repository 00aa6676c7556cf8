"""A row for each optimizer: ours, and the same of Optax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optax
import optax.contrib

from treadle import optim, rng


def deep(params: Any) -> Any:
    return {"layers": [{"weight": True}, {"weight": False}], "bias": False}


def _ademamix_alpha(schedules: Any) -> Any:
    return schedules.linear_schedule(0.0, 5.0, 20)


def _matrix_axes(kind: Any) -> dict[str, Any]:
    """The matrix by its last axis, the vector left to Adam."""
    return {"layers": [{"weight": kind}, {"weight": None}], "bias": None}


OPTAX: dict[str, tuple[Callable, Callable]] = {
    "sgd": (lambda: optim.sgd(0.1), lambda: optax.sgd(0.1)),
    "sgd momentum": (lambda: optim.sgd(0.1, 0.9), lambda: optax.sgd(0.1, 0.9)),
    "sgd nesterov": (
        lambda: optim.sgd(0.1, 0.9, nesterov=True),
        lambda: optax.sgd(0.1, 0.9, nesterov=True),
    ),
    "adam": (lambda: optim.adam(0.01), lambda: optax.adam(0.01)),
    "adam numbers": (
        lambda: optim.adam(0.01, b1=0.8, b2=0.95, eps=1e-3),
        lambda: optax.adam(0.01, b1=0.8, b2=0.95, eps=1e-3),
    ),
    "adam eps_root": (
        lambda: optim.adam(0.01, eps_root=1e-2),
        lambda: optax.adam(0.01, eps_root=1e-2),
    ),
    "adam nesterov": (
        lambda: optim.adam(0.01, nesterov=True),
        lambda: optax.adam(0.01, nesterov=True),
    ),
    "adamw": (
        lambda: optim.adamw(0.01, weight_decay=0.1),
        lambda: optax.adamw(0.01, weight_decay=0.1),
    ),
    "adamw default decay": (lambda: optim.adamw(0.01), lambda: optax.adamw(0.01)),
    "adamw mask": (
        lambda: optim.adamw(0.01, weight_decay=0.1, mask=optim.matrices),
        lambda: optax.adamw(0.01, weight_decay=0.1, mask=deep),
    ),
    "adamw schedule": (
        lambda: optim.adamw(optim.cosine_decay_schedule(0.01, 20), eps_root=1e-4),
        lambda: optax.adamw(optax.cosine_decay_schedule(0.01, 20), eps_root=1e-4),
    ),
    "lion": (lambda: optim.lion(0.01), lambda: optax.lion(0.01)),
    "lion mask": (
        lambda: optim.lion(0.01, b1=0.8, b2=0.9, weight_decay=0.1, mask=deep),
        lambda: optax.lion(0.01, b1=0.8, b2=0.9, weight_decay=0.1, mask=deep),
    ),
    "rmsprop": (lambda: optim.rmsprop(0.01), lambda: optax.rmsprop(0.01)),
    "rmsprop eps outside": (
        lambda: optim.rmsprop(0.01, eps=1e-3, eps_in_sqrt=False),
        lambda: optax.rmsprop(0.01, eps=1e-3, eps_in_sqrt=False),
    ),
    "rmsprop momentum": (
        lambda: optim.rmsprop(0.01, momentum=0.9),
        lambda: optax.rmsprop(0.01, momentum=0.9),
    ),
    "rmsprop nesterov": (
        lambda: optim.rmsprop(0.01, momentum=0.9, nesterov=True),
        lambda: optax.rmsprop(0.01, momentum=0.9, nesterov=True),
    ),
    "rmsprop centered": (
        lambda: optim.rmsprop(0.01, centered=True, eps=1e-4),
        lambda: optax.rmsprop(0.01, centered=True, eps=1e-4),
    ),
    "rms corrected": (
        lambda: optim.scale_by_rms(eps=1e-3, bias_correction=True),
        lambda: optax.scale_by_rms(eps=1e-3, bias_correction=True),
    ),
    "stddev corrected": (
        lambda: optim.scale_by_rms(eps=1e-3, centered=True, bias_correction=True),
        lambda: optax.scale_by_stddev(eps=1e-3, bias_correction=True),
    ),
    "ema": (lambda: optim.ema(0.9), lambda: optax.ema(0.9)),
    "ema raw": (
        lambda: optim.ema(0.9, debias=False),
        lambda: optax.ema(0.9, debias=False),
    ),
    "adagrad": (lambda: optim.adagrad(0.1), lambda: optax.adagrad(0.1)),
    "adagrad from 0": (
        lambda: optim.adagrad(0.1, initial_accumulator_value=0.0, eps=1e-3),
        lambda: optax.adagrad(0.1, initial_accumulator_value=0.0, eps=1e-3),
    ),
    "adadelta": (lambda: optim.adadelta(), lambda: optax.adadelta(1.0)),
    "adadelta decay": (
        lambda: optim.adadelta(0.5, 0.8, 1e-3, weight_decay=0.1, mask=deep),
        lambda: optax.adadelta(0.5, 0.8, 1e-3, 0.1, weight_decay_mask=deep),
    ),
    "adamax": (lambda: optim.adamax(0.01), lambda: optax.adamax(0.01)),
    "adamax numbers": (
        lambda: optim.adamax(0.01, 0.8, 0.9, 1e-2),
        lambda: optax.adamax(0.01, 0.8, 0.9, 1e-2),
    ),
    "adamaxw": (
        lambda: optim.adamaxw(0.01, weight_decay=0.1, mask=deep),
        lambda: optax.adamaxw(0.01, weight_decay=0.1, mask=deep),
    ),
    "amsgrad": (lambda: optim.amsgrad(0.01), lambda: optax.amsgrad(0.01)),
    "amsgrad numbers": (
        lambda: optim.amsgrad(0.01, 0.8, 0.7, 1e-3),
        lambda: optax.amsgrad(0.01, 0.8, 0.7, 1e-3),
    ),
    "nadam": (lambda: optim.nadam(0.01), lambda: optax.nadam(0.01)),
    "nadamw": (
        lambda: optim.nadamw(0.01, 0.8, 0.9, weight_decay=0.1, mask=deep),
        lambda: optax.nadamw(0.01, 0.8, 0.9, weight_decay=0.1, mask=deep),
    ),
    "adabelief": (lambda: optim.adabelief(0.01), lambda: optax.adabelief(0.01)),
    "adabelief nesterov": (
        lambda: optim.adabelief(0.01, 0.8, 0.9, 1e-4, 1e-5, nesterov=True),
        lambda: optax.adabelief(0.01, 0.8, 0.9, 1e-4, 1e-5, nesterov=True),
    ),
    "yogi": (lambda: optim.yogi(0.01), lambda: optax.yogi(0.01)),
    "yogi numbers": (
        lambda: optim.scale_by_yogi(0.8, 0.9, 1e-2, 1e-3),
        lambda: optax.scale_by_yogi(0.8, 0.9, 1e-2, 0.0, 1e-3),
    ),
    "radam": (lambda: optim.radam(0.01), lambda: optax.radam(0.01)),
    "radam nesterov": (
        lambda: optim.radam(0.01, 0.8, 0.9, 1e-3, threshold=4.5, nesterov=True),
        lambda: optax.radam(0.01, 0.8, 0.9, 1e-3, threshold=4.5, nesterov=True),
    ),
    "novograd": (lambda: optim.novograd(0.01), lambda: optax.novograd(0.01)),
    "novograd decay": (
        lambda: optim.novograd(0.01, 0.8, 0.5, weight_decay=0.1),
        lambda: optax.novograd(0.01, 0.8, 0.5, weight_decay=0.1),
    ),
    "adan": (lambda: optim.adan(0.01), lambda: optax.adan(0.01)),
    "adan numbers": (
        lambda: optim.adan(0.01, 0.9, 0.8, 0.7, 1e-3, 1e-4, 0.1, deep),
        lambda: optax.adan(0.01, 0.9, 0.8, 0.7, 1e-3, 1e-4, 0.1, deep),
    ),
    "ademamix": (
        lambda: optim.ademamix(0.01),
        lambda: optax.contrib.ademamix(0.01),
    ),
    "ademamix schedule": (
        lambda: optim.ademamix(
            0.01, 0.8, 0.9, 0.99, _ademamix_alpha(optim), weight_decay=0.1, mask=deep
        ),
        lambda: optax.contrib.ademamix(
            0.01, 0.8, 0.9, 0.99, _ademamix_alpha(optax), weight_decay=0.1, mask=deep
        ),
    ),
    "simplified ademamix": (
        lambda: optim.simplified_ademamix(0.001, alpha=3.0, weight_decay=0.1),
        lambda: optax.contrib.simplified_ademamix(0.001, alpha=3.0, weight_decay=0.1),
    ),
    "adopt": (lambda: optim.adopt(0.01), lambda: optax.contrib.adopt(0.01)),
    "adopt unclipped": (
        lambda: optim.adopt(0.01, 0.8, 0.9, 1e-2, clip_power=None, nesterov=True),
        lambda: optax.contrib.adopt(
            0.01, 0.8, 0.9, 1e-2, use_clipping=False, nesterov=True
        ),
    ),
    "sign_sgd": (lambda: optim.sign_sgd(0.01), lambda: optax.sign_sgd(0.01)),
    "signum": (lambda: optim.signum(0.01, 0.8), lambda: optax.signum(0.01, 0.8)),
    "lars": (lambda: optim.lars(0.1), lambda: optax.lars(0.1)),
    "lars masks": (
        lambda: optim.lars(0.1, 0.1, deep, 0.1, 1e-3, deep, 0.8, True),
        lambda: optax.lars(0.1, 0.1, deep, 0.1, 1e-3, deep, 0.8, True),
    ),
    "lamb": (lambda: optim.lamb(0.01), lambda: optax.lamb(0.01)),
    "lamb decay": (
        lambda: optim.lamb(0.01, 0.8, 0.9, 1e-3, 0.1, deep),
        lambda: optax.lamb(0.01, 0.8, 0.9, 1e-3, weight_decay=0.1, mask=deep),
    ),
    "trust ratio": (
        lambda: optim.scale_by_trust_ratio(1.0, 0.1, 1e-3),
        lambda: optax.scale_by_trust_ratio(1.0, 0.1, 1e-3),
    ),
    "block rms": (
        lambda: optim.chain(
            optim.clip_by_block_rms(0.5), optim.scale_by_param_block_rms(0.3)
        ),
        lambda: optax.chain(
            optax.clip_by_block_rms(0.5), optax.scale_by_param_block_rms(0.3)
        ),
    ),
    "adafactor": (lambda: optim.adafactor(0.01), lambda: optax.adafactor(0.01)),
    "adafactor factored": (
        lambda: optim.adafactor(
            optim.linear_schedule(0.1, 0.0, 20),
            momentum=0.9,
            weight_decay=0.01,
            mask=deep,
            min_dim_size_to_factor=2,
        ),
        lambda: optax.adafactor(
            optax.linear_schedule(0.1, 0.0, 20),
            momentum=0.9,
            weight_decay_rate=0.01,
            weight_decay_mask=deep,
            min_dim_size_to_factor=2,
        ),
    ),
    "adafactor absolute": (
        lambda: optim.adafactor(
            None, 0.7, 1e-3, None, relative=False, min_dim_size_to_factor=2
        ),
        lambda: optax.adafactor(
            None,
            2,
            0.7,
            eps=1e-3,
            clipping_threshold=None,
            multiply_by_parameter_scale=False,
        ),
    ),
    "muon": (lambda: optim.muon(0.01), lambda: optax.contrib.muon(0.01)),
    "muon dion": (
        lambda: optim.muon(
            0.01,
            0.9,
            weight_decay=0.1,
            mask=deep,
            coefficients="dion",
            nesterov=False,
            consistent_rms=0.2,
        ),
        lambda: optax.contrib.muon(
            0.01,
            "dion",
            beta=0.9,
            weight_decay=0.1,
            weight_decay_mask=deep,
            nesterov=False,
            consistent_rms=0.2,
        ),
    ),
    "muon adaptive": (
        lambda: optim.muon(
            0.01,
            preconditioning="aol",
            adaptive=True,
            matrices=lambda p: {
                "layers": [{"weight": optim.MatrixAxes((1,), (0,))}, False],
                "bias": False,
            },
        ),
        lambda: optax.contrib.muon(
            0.01,
            preconditioning="aol",
            adaptive=True,
            muon_weight_dimension_numbers=_matrix_axes(
                optax.contrib.MuonDimensionNumbers(1, 0)
            ),
        ),
    ),
    "muon spectral": (
        lambda: optim.muon(0.01, preconditioning="spectral"),
        lambda: optax.contrib.muon(0.01, preconditioning="spectral"),
    ),
    "muon schatten": (
        lambda: optim.muon(0.01, preconditioning="schatten"),
        lambda: optax.contrib.muon(0.01, preconditioning="schatten"),
    ),
    "prodigy": (
        lambda: optim.prodigy(d0=1e-3),
        lambda: optax.contrib.prodigy(estim_lr0=1e-3),
    ),
    "prodigy numbers": (
        lambda: optim.prodigy(
            optim.linear_schedule(0.0, 1.0, 20),
            0.8,
            0.9,
            0.7,
            1e-4,
            0.01,
            1e-2,
            2.0,
            safeguard_warmup=True,
        ),
        lambda: optax.contrib.prodigy(
            optax.linear_schedule(0.0, 1.0, 20),
            (0.8, 0.9),
            0.7,
            1e-4,
            1e-2,
            2.0,
            0.01,
            safeguard_warmup=True,
        ),
    ),
    "schedule_free_sgd": (
        lambda: optim.schedule_free_sgd(0.1, weight_decay=0.1),
        lambda: optax.contrib.schedule_free_sgd(0.1, weight_decay=0.1),
    ),
    "schedule_free_adamw": (
        lambda: optim.schedule_free_adamw(0.01, b1=0.8, weight_decay=0.1),
        lambda: optax.contrib.schedule_free_adamw(0.01, b1=0.8, weight_decay=0.1),
    ),
    "schedule_free": (
        lambda: optim.schedule_free(optim.rmsprop(0.01), 0.7, 0.0),
        lambda: optax.contrib.schedule_free(optax.rmsprop(0.01), 0.01, 0.7, 0.0),
    ),
}

WITHOUT_OPTAX: dict[str, Callable] = {
    "rprop": lambda: optim.rprop(0.01),
    "soap": lambda: optim.soap(0.01, frequency=2),
    "sophia": lambda: optim.sophia(0.01, key=rng.key(0)),
    "lookahead": lambda: optim.lookahead(optim.adam(0.01), 3),
    "polyak_sgd": lambda: optim.polyak_sgd(0.1),
    "lbfgs": lambda: optim.lbfgs(memory_size=3),
    "backtracking": lambda: optim.chain(
        optim.sgd(1.0), optim.scale_by_backtracking_linesearch(store_grads=True)
    ),
    "kahan": lambda: optim.kahan(optim.adam(0.01)),
    "stochastic_rounding": lambda: optim.stochastic_rounding(
        optim.adam(0.01), key=rng.key(0)
    ),
}
"""Those which tests of their own compare, or which Optax has not."""

ALL: dict[str, Callable] = {
    name: row[0]
    for name, row in OPTAX.items()
    if " " not in name or name in ("sgd nesterov", "adafactor factored", "lars masks")
} | WITHOUT_OPTAX
"""One row for each optimizer."""
