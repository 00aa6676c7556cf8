"""Random programs over `treadle.numpy`, as lines of Python that a person can read."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import treadle as td
import treadle.numpy as tnp

NAMES = {"td": td, "tnp": tnp, "np": np}
DTYPES = ("float32",) * 6 + ("float64", "float16", "bfloat16")
_LARGEST = 2500
REFUSED = (
    TypeError,
    ValueError,
    ZeroDivisionError,
    IndexError,
    OverflowError,
    MemoryError,
)


class Step(NamedTuple):
    """An expression in which {0}, {1}… stand for the values with numbers `args`."""

    text: str
    args: tuple[int, ...]

    def expression(self) -> str:
        return self.text.format(*[f"v{a}" for a in self.args])


class Program(NamedTuple):
    """Values are numbered: first the inputs, then the results of the steps."""

    inputs: list[np.ndarray]
    steps: list[Step]
    results: list[int]

    def source(self) -> str:
        n = len(self.inputs)
        names = ", ".join(f"v{i}" for i in range(n))
        lines = [f"v{n + i} = {s.expression()}" for i, s in enumerate(self.steps)]
        lines.append("return [" + ", ".join(f"v{i}" for i in self.results) + "]")
        return f"def f({names}):\n    " + "\n    ".join(lines)

    def function(self) -> Callable[..., Any]:
        names: dict[str, Any] = dict(NAMES)
        exec(self.source(), names)
        return names["f"]

    def arguments(self) -> list[Any]:
        return [tnp.asarray(x) for x in self.inputs]

    def length(self) -> int | None:
        """The length that most axes of the inputs have, of those above 1."""
        found = [n for x in self.inputs for n in x.shape if n > 1]
        return max(found, key=found.count, default=None)

    def resized(self, length: int, to: int) -> list[Any]:
        """Arguments whose axes of a length are of another one."""
        shapes = [[to if n == length else n for n in x.shape] for x in self.inputs]
        return [
            tnp.asarray(np.resize(x, shape))
            for x, shape in zip(self.inputs, shapes, strict=True)
        ]

    def watched(self, count: int) -> Program:
        """The program with a few of its floats for results, the last ones first."""
        floats = [
            i for i, v in enumerate(self.evaluated()) if v.size and _kind(v) == "f"
        ]
        r = random.Random(len(self.steps))
        return self._replace(
            results=floats[-1:] + r.sample(floats, min(count, len(floats)))
        )

    def evaluated(self) -> list[Any]:
        """All values, inputs included, without a compiler."""
        everything = range(len(self.inputs) + len(self.steps))
        with td.disable_jit():
            return self._replace(results=list(everything)).function()(*self.arguments())

    def smooth(self) -> tuple[int, ...]:
        """The inputs that have derivatives."""
        names = ("float32", "float64")
        return tuple(i for i, x in enumerate(self.inputs) if x.dtype.name in names)

    def gradient(self) -> Callable[..., Any]:
        """The gradients of a number made of the results."""
        function = self.function()

        def loss(*args: Any) -> Any:
            outs = [o for o in function(*args) if o.dtype.name.startswith("float")]
            return sum([tnp.sum(tnp.sin(o)) for o in outs], start=tnp.asarray(0.0))

        return td.grad(loss, self.smooth())

    def batched(self, size: int = 3) -> tuple[Callable[..., Any], list[Any]]:
        """The program over a batch, and its arguments."""
        moving = self.smooth()
        axes = tuple(0 if i in moving else None for i in range(len(self.inputs)))
        args = [
            tnp.stack([(x, x * -0.5, x + 1)[k % 3] for k in range(size)])
            if i in moving
            else x
            for i, x in enumerate(self.arguments())
        ]
        return td.vmap(self.function(), in_axes=axes), args


class Generator:
    """Grows a program step by step, evaluating it on the way: steps with errors, or
    with values too large to compare, are left out."""

    def __init__(self, seed: int, dtypes: Sequence[str]) -> None:
        self.r, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.dims = self.r.sample([1, 2, 3, 4, 5, 7, 8, 16, 17], 3)
        if self.r.random() < 0.1:
            self.dims[0] = 0
        if self.r.random() < 0.3:
            self.dims[1] = self.r.choice([33, 48, 70])
        self.dtype = self.r.choice(dtypes)
        self.inputs: list[np.ndarray] = []
        self.steps: list[Step] = []
        self.values: list[Any] = []

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        if rank is None:
            rank = self.r.choice([0, 1, 1, 2, 2, 2, 3, 3, 4])
        while True:
            shape = tuple(self.r.choice([*self.dims, 2]) for _ in range(rank))
            if np.prod(shape, dtype=int) <= _LARGEST:
                return shape

    def input(self, shape: tuple[int, ...], kind: str = "f") -> None:
        if kind == "f":
            x = self.numbers.normal(size=shape)
            dtype = np.dtype(getattr(td, self.dtype))
            if dtype.kind == "c":
                x = x + 1j * self.numbers.normal(size=shape)
        elif kind == "b":
            x, dtype = self.numbers.random(size=shape) < 0.5, np.dtype(bool)
        else:
            x = self.numbers.integers(-5, 6, size=shape)
            dtype = np.dtype(self.r.choice([np.int32] * 3 + [np.int64, np.int16]))
        self.inputs.append(np.asarray(x, dtype))
        self.values.append(tnp.asarray(self.inputs[-1]))

    def pick(
        self,
        kinds: str = "f",
        rank: int = 0,
        pred: Callable[[Any], bool] = lambda v: True,
    ) -> int | None:
        """The number of a value, rather a late one; None if none will do."""
        found = [
            i
            for i, v in enumerate(self.values)
            if _kind(v) in kinds and v.ndim >= rank and pred(v)
        ]
        return found[int(len(found) * self.r.random() ** 0.6)] if found else None

    @property
    def last(self) -> int:
        """The number of the latest value."""
        return len(self.values) - 1

    def add(self, text: str, *args: int) -> bool:
        """Adds a step, if it can be evaluated."""
        step = Step(text, args)
        names = NAMES | {f"v{a}": self.values[a] for a in args}
        try:
            with td.disable_jit():
                out = eval(step.expression(), names)
        except REFUSED:
            return False
        if not self.comparable(np.asarray(out)):
            return False
        self.steps.append(step)
        self.values.append(out)
        return True

    def comparable(self, x: np.ndarray) -> bool:
        """Whether a step's result is small, and can be compared with a tolerance."""
        if x.dtype.kind in "biu":
            return x.size <= 4000
        y = np.abs(x.astype(np.complex128 if x.dtype.kind == "c" else np.float64))
        return x.size <= 4000 and bool(np.isfinite(y).all()) and y.max(initial=0) < 200

    def program(self) -> Program:
        """What has been grown: unused values are results, and a few others."""
        n = len(self.values)
        used = {a for s in self.steps for a in s.args}
        results = [i for i in range(len(self.inputs), n) if i not in used] or [n - 1]
        results += [i for i in range(n) if self.r.random() < 0.12]
        return Program(self.inputs, self.steps, results)


def _kind(v: Any) -> str:
    kind = np.dtype(v.dtype).kind
    return {"b": "b", "i": "i", "u": "i"}.get(kind, "f")
