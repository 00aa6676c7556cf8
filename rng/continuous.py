"""Continuous distributions made of uniform numbers by a formula."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes

import treadle.numpy as tnp
from treadle import Array
from treadle.rng.key import Key, as_shape, check_key
from treadle.rng.uniform import float_dtype, uniform


def exponential(key: Key, shape: Sequence[int] = (), dtype: Any = tnp.float32) -> Array:
    """Waiting times with rate 1."""
    check_key("exponential", key)
    wanted = float_dtype("exponential", dtype)
    return -tnp.log1p(-uniform(key, as_shape("exponential", shape), wanted))


def gumbel(key: Key, shape: Sequence[int] = (), dtype: Any = tnp.float32) -> Array:
    """The standard Gumbel distribution: of the largest of many numbers.

    ``argmax(logits + gumbel)`` is a sample of ``softmax(logits)``.
    """
    check_key("gumbel", key)
    wanted = float_dtype("gumbel", dtype)
    tiny = wanted.type(ml_dtypes.finfo(wanted).tiny)
    u = uniform(key, as_shape("gumbel", shape), wanted, tiny, wanted.type(1))
    return -tnp.log(-tnp.log(u))


def laplace(key: Key, shape: Sequence[int] = (), dtype: Any = tnp.float32) -> Array:
    """The two-sided exponential distribution."""
    check_key("laplace", key)
    wanted = float_dtype("laplace", dtype)
    low = wanted.type(-1 + float(ml_dtypes.finfo(wanted).epsneg))
    u = uniform(key, as_shape("laplace", shape), wanted, low, wanted.type(1))
    return tnp.sign(u) * tnp.log1p(-tnp.abs(u))


def logistic(key: Key, shape: Sequence[int] = (), dtype: Any = tnp.float32) -> Array:
    """The logistic distribution: the inverse of the sigmoid at uniform numbers."""
    check_key("logistic", key)
    wanted = float_dtype("logistic", dtype)
    tiny = wanted.type(ml_dtypes.finfo(wanted).tiny)
    u = uniform(key, as_shape("logistic", shape), wanted, tiny, wanted.type(1))
    return tnp.log(u) - tnp.log1p(-u)


def cauchy(key: Key, shape: Sequence[int] = (), dtype: Any = tnp.float32) -> Array:
    """The Cauchy distribution, which has no mean."""
    check_key("cauchy", key)
    wanted = float_dtype("cauchy", dtype)
    eps = wanted.type(ml_dtypes.finfo(wanted).eps)
    u = uniform(key, as_shape("cauchy", shape), wanted, eps, wanted.type(1))
    return tnp.tan(wanted.type(math.pi) * (u - wanted.type(0.5)))
