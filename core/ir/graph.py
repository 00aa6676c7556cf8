"""The program as frozen data: typed single-assignment equations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from treadle.arraytype import ArrayType

if TYPE_CHECKING:
    from treadle.trace.op import Op


class Var:
    """A value that an equation or the caller defines, exactly once.

    twin: the real part of the complex number whose imaginary part this is; not set on
      others. Kernels had better compute the two together.
    """

    __slots__ = ("twin", "type")
    twin: Var

    def __init__(self, type: ArrayType) -> None:
        self.type = type


class Lit:
    """A constant that stands where it is used: a NumPy scalar, or a small array.

    varies: the same program for other sizes may have another number here, so kernels
      must not be made for this one.
    size: what the number is for other sizes, if these are open (`treadle.late`): then
      `value` is that for the sizes that were traced.
    """

    __slots__ = ("size", "type", "value", "varies")

    def __init__(
        self,
        value: np.ndarray | np.generic,
        type: ArrayType,
        varies: bool = False,
        size: Any = None,
    ) -> None:
        self.value, self.type, self.varies, self.size = value, type, varies, size

    def key(self) -> tuple:
        size = self.size and self.size.key()
        return (self.value.tobytes(), self.type, self.varies, size)


Atom = Var | Lit


def is_zero(a: Atom) -> bool:
    """Whether a value is a number whose bytes are 0, whatever the sizes are."""
    number = isinstance(a, Lit) and not a.type.ndim and a.size is None
    return number and not any(a.value.tobytes())  # type: ignore[union-attr]


class Equation:
    """``outputs = op[params](inputs)``, and the user's line that asked for it.

    source: that line, with the names around it (`treadle.scopes.Source`) where known.
    graphs: those among the params: bodies of loops, branches, calls.
    """

    __slots__ = ("graphs", "inputs", "op", "outputs", "params", "source")

    def __init__(
        self,
        op: Op,
        inputs: Sequence[Atom],
        params: dict[str, Any],
        outputs: Sequence[Var],
        source: str = "",
    ) -> None:
        self.op, self.params, self.source = op, params, source
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.graphs = nested_graphs(params) if params else []

    @property
    def scope(self) -> str:
        """The names around it (`treadle.scopes`), within what holds its graph."""
        return getattr(self.source, "scope", "")

    @property
    def backward(self) -> bool:
        """Whether it is of the backward pass of its line."""
        return getattr(self.source, "backward", False)


class Graph:
    """A pure function of arrays. Equal graphs (by structure) are interchangeable.

    Nested graphs (the bodies of control flow) are params of their equation and close
    over nothing: what they need are their inputs.
    """

    __slots__ = ("_key", "cache", "equations", "inputs", "name", "outputs")

    def __init__(
        self,
        inputs: Sequence[Var],
        equations: Sequence[Equation],
        outputs: Sequence[Atom],
        name: str = "",
    ) -> None:
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.equations, self.name = tuple(equations), name
        self.cache: dict[Any, Any] = {}
        self._key: tuple | None = None

    @property
    def in_types(self) -> tuple[ArrayType, ...]:
        return tuple(v.type for v in self.inputs)

    @property
    def out_types(self) -> tuple[ArrayType, ...]:
        return tuple(a.type for a in self.outputs)

    def key(self) -> tuple:
        """A hashable that is equal for graphs of the same structure."""
        if self._key is None:
            self._key = _structural_key(self)
        return self._key

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Graph) and self.key() == other.key())

    def __hash__(self) -> int:
        return hash(self.key())


def _structural_key(graph: Graph) -> tuple:
    numbers: dict[Var, int] = {v: i for i, v in enumerate(graph.inputs)}

    def atom(a: Atom) -> Any:
        return a.key() if isinstance(a, Lit) else numbers[a]

    rows = []
    for eq in graph.equations:
        inputs = tuple([atom(a) for a in eq.inputs])
        for v in eq.outputs:
            numbers[v] = len(numbers)
        rows.append((eq.op, inputs, params_key(eq.params), len(eq.outputs)))
    return graph.in_types, tuple(rows), tuple([atom(a) for a in graph.outputs])


def params_key(params: dict[str, Any]) -> tuple:
    """The params of an equation as a hashable."""
    return tuple(sorted(params.items())) if len(params) > 1 else tuple(params.items())


def nested_graphs(params: dict[str, Any]) -> list[Graph]:
    """The graphs among an equation's params: bodies of loops, branches, calls."""
    found = []
    for value in params.values():
        if isinstance(value, Graph):
            found.append(value)
        elif isinstance(value, tuple):
            found += [item for item in value if isinstance(item, Graph)]
    return found
