"""Weights that are the softmax of products of queries and keys, as users spell them:
from the weights, what they were made of is followed up to those products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.control.softmax import softmax
from treadle.control.spelled_values import (
    Condition,
    Seen,
    above,
    base,
    choice,
    conditions,
    constant,
    factor,
    origin,
)
from treadle.ops.arithmetic import add, div, mul, neg, sub
from treadle.ops.cast import convert
from treadle.ops.compare import select
from treadle.ops.dot import dot_general
from treadle.ops.identity import stop_gradient
from treadle.ops.reduce import reduce_max, reduce_sum
from treadle.ops.unary import exp, log
from treadle.records import field, record
from treadle.trace.interpreter import Interpreter
from treadle.trace.value import Tracer, typeof

REMEMBERED = (dot_general, softmax, exp, log, reduce_sum, reduce_max, stop_gradient)


def _hidden_by(dtype: np.dtype, added: bool = False) -> float:
    """A score, or what is added to one, that hides a key whatever the others are."""
    if dtype == dtypes.float16:
        return float(np.finfo(np.float16).min) / 8
    # Of doubles, what is added leaves something of the scores.
    return -1e20 if added and dtype == dtypes.float64 else -1e9


_MOST_STEPS = 24
"""From weights to scores; there are many ways up from sums of sums."""


@record
class Spelled:
    """What weights are.

    weights: these.
    columns: which of their axes the softmax goes along.
    scores: the product of queries and keys.
    scale: what the scores are multiplied with, a constant.
    factors: with what else: values that are the same for all keys, and whether the
      scores are divided by them instead.
    biases: what is added, and what it is multiplied with before.
    hidden: what must hold, or a score is -inf.
    low: what must hold, or a score is less than all others.
    kept: conditions for weights that are not left out.
    rate: what the weights are multiplied with.
    """

    weights: Any
    columns: int
    scores: Seen
    scale: float = 1.0
    factors: list[tuple[Seen, bool]] = field(default_factory=list)
    biases: list[tuple[Seen, float]] = field(default_factory=list)
    hidden: list[Condition] = field(default_factory=list)
    low: list[Condition] = field(default_factory=list)
    kept: list[Condition] = field(default_factory=list)
    rate: float = 1.0


def spelled(weights: Any, columns: int, writer: Interpreter) -> Spelled | None:
    """What weights are made of, if it is a softmax along `columns` of a product that
    the same graph has."""
    found = Spelled(weights, columns, Seen(None, ()))
    reader = _Reader(found, writer)
    scores = reader.softmax(Seen(weights, tuple(range(typeof(weights).ndim))))
    if scores is None or not reader.scores(scores):
        return None
    return found


class _Reader:
    def __init__(self, found: Spelled, writer: Interpreter) -> None:
        self.found, self.writer, self.steps = found, writer, 0

    def _is_here(self, x: Any) -> bool:
        """Whether a value is made where it is used: what is not is at hand there."""
        self.steps += 1
        here = isinstance(x, Tracer) and x.interpreter.writer is self.writer
        return here and self.steps <= _MOST_STEPS

    # From weights to scores

    def softmax(self, seen: Seen | None) -> Seen | None:
        """The scores of weights."""
        while seen is not None and self._is_here(seen.value):
            op, args, params = origin(seen.value)
            scores = self._softmax_of(seen, op, args, params)
            if scores is not None:
                return scores
            seen = above(seen) or self._weights_of(seen, op, args)
        return None

    def _weights_of(self, seen: Seen, op: Any, args: Any) -> Seen | None:
        """Weights before some are left out, or all multiplied."""
        found = self.found
        if op is convert and dtypes.is_float(typeof(args[0]).dtype):
            return seen.of(args[0])
        if op is div and (by := factor(args[1], op)) is not None:
            found.rate *= by
            return seen.of(args[0])
        if op is mul:
            for x, other in (args, args[::-1]):
                if (by := factor(other)) is not None:
                    found.rate *= by
                    return seen.of(x)
            for x, other in (args, args[::-1]):
                if self._leaves_out(seen.of(other)):
                    return seen.of(x)
        if op is select:
            for negated, (x, other) in enumerate((args[1:], args[:0:-1])):
                if _is(constant(other), 0):
                    found.kept += conditions(seen.of(args[0]), bool(negated))
                    return seen.of(x)
        return None

    def _leaves_out(self, seen: Seen) -> bool:
        found = choice(seen)
        if found is None or not (_is(found.yes, 0) or _is(found.no, 0)):
            return False
        by = factor(found.no if _is(found.yes, 0) else found.yes)
        if by is None:
            return False
        self.found.kept += conditions(found.condition, _is(found.yes, 0))
        self.found.rate *= by
        return True

    def _softmax_of(self, seen: Seen, op: Any, args: Any, params: Any) -> Seen | None:
        columns = self.found.columns
        if op is softmax:
            axes = [seen.axes[i] for i in params["axes"]]
            return seen.of(args[0]) if axes == [columns] else None
        if op is div:
            return self._quotient(seen, *args)
        if op is mul:
            for x, other in (args, args[::-1]):
                over, of, _ = origin(base(seen.of(other)).value)
                if over is div and _is(constant(of[0]), 1):
                    return self._quotient(seen, x, of[1], seen.of(other))
        if op is exp:
            return self._exponential(seen.of(args[0]))
        return None

    def _quotient(
        self, seen: Seen, x: Any, total: Any, by: Seen | None = None
    ) -> Seen | None:
        """The scores of exponentials over their sum."""
        place = seen.of(total) if by is None else base(by).of(total)
        op, args, _ = origin(x)
        if op is not exp or not self._is_sum(place, x, seen):
            return None
        return self._shifted(seen.of(args[0]))[0]

    def _is_sum(self, total: Seen, x: Any, seen: Seen) -> bool:
        """Whether a value is the sum of `x` along the columns."""
        total = base(total)
        op, args, params = origin(total.value)
        if op is not reduce_sum or args[0] is not x or len(params["axes"]) != 1:
            return False
        (axis,) = params["axes"]
        rest = seen.axes[:axis] + seen.axes[axis + 1 :]
        return seen.axes[axis] == self.found.columns and rest == total.axes

    def _shifted(self, seen: Seen) -> tuple[Seen, Any]:
        """Scores without what is subtracted from all of a row, and that."""
        op, args, _ = origin(seen.value)
        if op is sub:
            by = base(seen.of(args[1]))
            if self.found.columns not in by.axes:
                return seen.of(args[0]), by.value
        return seen, None

    def _exponential(self, seen: Seen) -> Seen | None:
        """The scores of logarithms of weights."""
        op, args, _ = origin(seen.value)
        if op is not sub:
            return None
        x, total = args[0], base(seen.of(args[1]))
        shift = None
        op, parts, _ = origin(total.value)
        if op is add:
            for part, other in (parts, parts[::-1]):
                if origin(base(total.of(part)).value)[0] is log:
                    total, shift = base(total.of(part)), base(total.of(other)).value
                    break
            op, parts, _ = origin(total.value)
        if op is not log:
            return None
        total = base(total.of(parts[0]))
        op, parts, _ = origin(total.value)
        if op is not reduce_sum or origin(parts[0])[0] is not exp:
            return None
        if not self._is_sum(total, parts[0], seen):
            return None
        (summed,) = origin(parts[0])[1]
        if summed is x:
            return self._shifted(seen.of(x))[0] if shift is None else None
        inner, by = self._shifted(seen.of(summed))
        same = inner.value is x and by is shift and shift is not None
        return seen.of(x) if same else None

    # From scores to the product of queries and keys

    def scores(self, seen: Seen) -> bool:
        """Whether scores are a product, of which all is found."""
        found = self.found
        while self._is_here(seen.value):
            op, args, _ = origin(seen.value)
            if op is dot_general:
                found.scores = seen
                return True
            up = above(seen)
            if up is None and op in (add, sub):
                x, other = args
                return self._sum(seen, x, other, op is sub)
            up = up or self._scores_of(seen, op, args)
            if up is None:
                return False
            seen = up
        return False

    def _scores_of(self, seen: Seen, op: Any, args: Any) -> Seen | None:
        found = self.found
        if op is convert and dtypes.is_float(typeof(args[0]).dtype):
            return seen.of(args[0])
        if op is neg:
            found.scale = -found.scale
            return seen.of(args[0])
        if op is mul or op is div:
            pairs = (args, args[::-1]) if op is mul else (args,)
            for x, other in pairs:
                if (by := factor(other, op)) is not None:
                    found.scale *= by
                    return seen.of(x)
            for x, other in pairs:
                many = base(seen.of(other))
                if found.columns not in many.axes and typeof(x).shape:
                    found.factors.append((many, op is div))
                    return seen.of(x)
        if op is select and self._has_positive_scale():
            for negated, (x, other) in enumerate((args[1:], args[:0:-1])):
                dtype = typeof(seen.value).dtype
                among = self._hides(constant(other), _hidden_by(dtype))
                if among is not None:
                    among += conditions(seen.of(args[0]), bool(negated))
                    return seen.of(x)
        return None

    def _has_positive_scale(self) -> bool:
        return not self.found.factors and self.found.scale > 0

    def _hides(self, score: Any, least: float) -> list[Condition] | None:
        """To which conditions one belongs without which this is the score."""
        if score is None or not float(score) * self.found.scale <= least:
            return None
        return self.found.hidden if score == -math.inf else self.found.low

    def _sum(self, seen: Seen, x: Any, other: Any, negative: bool) -> bool:
        """One of two terms is a product, the other a bias, or a mask."""
        if self.found.factors:
            return False
        before = self._state()
        pairs = ((x, other),) if negative else ((x, other), (other, x))
        for scores, bias in pairs:
            if self._bias(seen.of(bias), negative) and self.scores(seen.of(scores)):
                return True
            self._restore(before)
        return False

    def _bias(self, seen: Seen, negative: bool) -> bool:
        found = self.found
        if found.columns not in base(seen).axes:
            return True
        scale = -found.scale if negative else found.scale
        chosen = choice(seen) if self._has_positive_scale() else None
        dtype = typeof(seen.value).dtype
        if chosen is not None and negative:
            chosen = chosen._replace(yes=-chosen.yes, no=-chosen.no)
        if chosen is not None:
            values, least = (chosen.yes, chosen.no), _hidden_by(dtype, added=True)
            for negated, (none, least_of) in enumerate((values, values[::-1])):
                among = self._hides(least_of, least) if _is(none, 0) else None
                if among is not None:
                    among += conditions(chosen.condition, bool(negated))
                    return True
        found.biases.append((base(seen), scale))
        return True

    def _state(self) -> dict[str, Any]:
        return {
            k: list(v) if isinstance(v, list) else v
            for k, v in vars(self.found).items()
        }

    def _restore(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self.found, name, list(value) if isinstance(value, list) else value)


def _is(number: Any, wanted: float) -> bool:
    return number is not None and not isinstance(number, bool) and number == wanted
