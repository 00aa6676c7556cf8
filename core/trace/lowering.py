"""How an operation runs on a device: the part of its record that the compiler reads.

A lowering says what an operation is, and no device does anything else with it. Which of
them a device has for which dtypes, its target says; what it lacks is done by the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from treadle.arraytype import ArrayType
from treadle.errors import at, user_source
from treadle.ir.maps import Affine, Map
from treadle.ir.scalar import SCALARS
from treadle.records import record
from treadle.trace.routine import FUNCTION, Attention, RoutineCall, Script, Transform

if TYPE_CHECKING:
    from treadle.ir.graph import Equation

Shape = tuple[int, ...]
Combine = Literal["sum", "prod", "max", "min", "and", "or", "argmax", "argmin"]
Accumulate = Literal["sum", "prod", "max", "min", "logsumexp", "linear"]


class Lowering:
    """One of the classes below."""


class Element(NamedTuple):
    """A value while an element is computed: whatever `Emit` made, and its dtype."""

    value: Any
    dtype: np.dtype


Emit = Callable[[str, tuple[Element, ...], np.dtype, Any], Any]
"""Carries out, or writes down, a scalar instruction (see `treadle.ir.scalar`): name,
arguments, dtype and attribute."""


@record(eq=False, repr=False)
class Elementwise(Lowering):
    """Each element of the result is made of the same element of each operand.

    expression: ``(w, *operands, **params) -> value``, in scalar instructions: with
      ``lambda w, x, y: w("sqrt", w("add", w("mul", x, x), w("mul", y, y)))`` one would
      declare a hypotenuse. A name stands for that one instruction, of all operands.
    """

    expression: str | Callable[..., Element]

    def value(
        self,
        emit: Emit,
        args: Sequence[Element],
        dtype: np.dtype,
        params: dict[str, Any],
    ) -> Any:
        """Emits the instructions for an element of the given dtype."""
        if isinstance(self.expression, str):
            return emit(self.expression, tuple(args), dtype, attribute(params))
        return self.expression(_Writer(emit), *args, **params).value


class _Writer:
    """What expressions call: finds dtypes, and takes numbers among the operands."""

    def __init__(self, emit: Emit) -> None:
        self.emit = emit

    def __call__(self, name: str, *args: Element | float, **params: Any) -> Element:
        dtype = next(a.dtype for a in reversed(args) if isinstance(a, Element))
        given = tuple(
            a if isinstance(a, Element) else self._number(a, dtype) for a in args
        )
        if name not in SCALARS:
            raise ValueError(
                f"there is no scalar instruction {name!r}{at(user_source())}\n"
                f"Those there are: {', '.join(sorted(SCALARS))}."
            )
        result = SCALARS[name].result
        if result == "given":
            dtype = params["dtype"]
        elif result == "bool":
            dtype = np.dtype(np.bool_)
        return Element(self.emit(name, given, dtype, attribute(params)), dtype)

    def _number(self, number: float, dtype: np.dtype) -> Element:
        return Element(self.emit("const", (), dtype, dtype.type(number).item()), dtype)


def attribute(params: dict[str, Any]) -> Any:
    """The parameters of an instruction as one value."""
    if not params:
        return None
    values = tuple(params.values())
    return values[0] if len(values) == 1 else values or None


class Written(NamedTuple):
    """An instruction of an elementwise equation; `of` is the dtype of its last
    argument."""

    name: str
    of: np.dtype
    dtype: np.dtype
    attr: Any


def written(eq: Equation) -> list[Written]:
    """The instructions that compute one element of an elementwise equation."""
    how = eq.op.lowering
    assert isinstance(how, Elementwise)
    if isinstance(how.expression, str):
        of, dtype = eq.inputs[-1].type.dtype, eq.outputs[0].type.dtype
        return [Written(how.expression, of, dtype, attribute(eq.params))]
    found: list[Written] = []

    def emit(name: str, args: tuple[Element, ...], dtype: np.dtype, attr: Any) -> None:
        if args:
            found.append(Written(name, args[-1].dtype, dtype, attr))

    args = [Element(None, a.type.dtype) for a in eq.inputs]
    how.value(emit, args, eq.outputs[0].type.dtype, eq.params)
    return found


def spelled(eq: Equation) -> str:
    """The instructions of an elementwise equation, with what they read, as text."""
    how = eq.op.lowering
    assert isinstance(how, Elementwise)
    lines: list[str] = []

    def emit(name: str, args: tuple[Element, ...], dtype: np.dtype, attr: Any) -> int:
        read = " ".join([str(a.value) for a in args])
        lines.append(f"{name} {read} {dtype.name} {attr!r}")
        return len(lines)

    args = [Element(f"x{i}", a.type.dtype) for i, a in enumerate(eq.inputs)]
    last = how.value(emit, args, eq.outputs[0].type.dtype, eq.params)
    return "; ".join([*lines, str(last)])


class Index(Lowering):
    """Each element is its own index along ``params["axis"]``."""


@record(eq=False, repr=False)
class Reduction(Lowering):
    """One number of all elements along some axes (``params``: axes, or one axis).

    combine: "argmax" and "argmin" give the first place of the extreme.
    """

    combine: Combine

    @property
    def finds_place(self) -> bool:
        return self.combine.startswith("arg")

    @property
    def sums(self) -> bool:
        return self.combine in ("sum", "prod")


class View(Lowering):
    """The operand's elements in other places: an index map, and no work at all."""


Back = Callable[[Map, Shape, Shape, dict[str, Any]], Map]
"""Where in the operand a view's element is found: from its index map, the shapes of
operand and result, and the params."""

Forth = Callable[[Map, Shape, Shape, dict[str, Any]], Sequence[Affine | None]]
"""Where in a view an operand's element is found: None where the view has it at all
places of an axis."""


@record(eq=False, repr=False)
class Mapped(View):
    """A view whose axes are those of the operand, moved, stepped through or added.

    back: from the index map of the result to the operand's.
    forth: the other way; None if the result has not all elements of the operand.
    """

    back: Back
    forth: Forth | None = None


class Reshape(View):
    """The elements in the same row-major order, in another shape."""


class Addressing(NamedTuple):
    """Data-dependent places in an array: an index into some axes, a window in others.

    axes: of the array; there is an index operand for each.
    limits: the largest index in each.
    window: for each axis of the array, the axis of the values read or written that
      runs along it; None where the index alone says the place.
    rank: how many leading axes of those values are axes of the indices.
    drop: what is outside is not there; else it is moved inside.
    """

    axes: tuple[int, ...]
    limits: tuple[int, ...]
    window: tuple[int | None, ...]
    rank: int
    drop: bool


AddressingRule = Callable[[Sequence[ArrayType], dict[str, Any]], Addressing]
"""From the operands' types and params."""


@record(eq=False, repr=False)
class Gather(Lowering):
    """Reads the first operand at places that the others say."""

    addressing: AddressingRule


@record(eq=False, repr=False)
class Scatter(Lowering):
    """Writes the second operand into the first, at places that the others say.

    combine: with what is there; "set" writes over it.
    neutral: what leaves a place of some dtype as it is when combined.
    ordered: whether places may be equal, so that the order of updates matters.
    """

    addressing: AddressingRule
    combine: Literal["set", "add", "mul", "max", "min"]
    neutral: Callable[[np.dtype], Any] | None = None
    ordered: bool = True


@record(eq=False, repr=False)
class Join(Lowering):
    """Pieces side by side in a larger array, in the order of the operands.

    pieces: ``(types, steps, params)``: offset and strides of each within the whole,
      whose strides are `steps`, in elements.
    filled: whether a last operand fills what is between them.
    """

    pieces: Callable[..., list[tuple[int, tuple[int, ...]]]]
    filled: bool = False


class Product(Lowering):
    """Sums of products: work for a matrix kernel."""


class Contraction(Product):
    """Sums over paired axes (``params``: contract, batch)."""


@record(eq=False, repr=False)
class Convolution(Product):
    """Windows of images times a filter.

    filter_gradient: the operands are images and the result's cotangent.
    """

    filter_gradient: bool = False


@record(eq=False, repr=False)
class Window(Lowering):
    """One number of each window of an array, or windows' numbers put back into one."""

    what: Literal["sum", "max", "min", "argmax", "argmin", "put", "pick"]


@record(eq=False, repr=False)
class Running(Lowering):
    """What elements amount to so far, along ``params["axis"]``."""

    combine: Accumulate


class Order(Lowering):
    """The order of unsigned integers along the last axis."""


@record(eq=False, repr=False)
class Routine(Lowering):
    """Calls of LAPACK, for each matrix of a batch.

    script: ``(types of operands, types of results, params) -> Script``.
    alone: the number of the result that costs less where no other one is read, and the
      params that give it alone.
    """

    script: Callable[[Sequence[ArrayType], Sequence[ArrayType], dict], Script]
    alone: tuple[int, dict[str, Any]] | None = None


class Foreign(Lowering):
    """Calls of a function from outside, for each example of a batch (``params``: the
    function, and how many leading axes are those of the batch)."""

    def script(
        self, types: Sequence[ArrayType], outs: Sequence[ArrayType], params: dict
    ) -> Script:
        return Script(
            params["lead"], (), (RoutineCall(FUNCTION, (params["function"],)),)
        )


@record(eq=False, repr=False)
class Fourier(Lowering):
    """Fourier transforms of the lines of an array.

    script: ``(types of operands, types of results, params) -> Transform``.
    """

    script: Callable[[Sequence[ArrayType], Sequence[ArrayType], dict], Transform]


@record(eq=False, repr=False)
class Blocked(Lowering):
    """Work that a kernel does block by block, so that what is between its steps is
    never whole in memory.

    script: ``(types of operands, types of results, params) -> Attention``; None if
      there is no kernel.
    formula: ``(*operands, **params) -> results``, in other operations: what a pass
      writes in its place where there is none.
    """

    script: Callable[[Sequence[ArrayType], Sequence[ArrayType], dict], Attention] | None
    formula: Callable[..., Sequence[Any]]


FUSABLE = (Elementwise, Index, Reduction, Gather)
"""What can be part of a loop nest with others."""


class Scan(Lowering):
    """A counted loop over a graph."""


class While(Lowering):
    """A loop over a graph that another graph ends."""


@record(eq=False, repr=False)
class Counted(Lowering):
    """A scan whose number of iterations is known only when it runs, but has a bound: a
    pass makes a loop over buffers of it.

    ends: by a count, its first operand; or when its first carry is False. Then its
      second carry counts.
    """

    ends: Literal["count", "carry"]


class Branch(Lowering):
    """One of several graphs."""


class Inline(Lowering):
    """The graph in ``params["graph"]``, in the place of the call."""


class Expanded(Lowering):
    """Other operations, which a pass writes in its place."""


class Same(Lowering):
    """The operands themselves, which only passes must take for other values."""


@record(eq=False, repr=False)
class Host(Lowering):
    """The reference meaning, on the host.

    reason: why there is nothing better.
    """

    reason: str


Shared = Literal[
    "sum", "max", "min", "collect", "scatter_sum", "exchange", "permute", "index"
]


@record(eq=False, repr=False)
class Collective(Host):
    """What the members of named axes (``params["over"]``) do together. Those that vmap
    maps run as one program, in which nothing of it is left.

    what: how a group of processes would do it: all-reduce, all-gather, reduce-scatter,
      all-to-all, send and receive, or its rank.
    """

    what: Shared


class Multiplied(NamedTuple):
    """The half floats that a target has kernels for: of products of matrices, and of
    convolutions; and the floats beside which matrices may be of integers of a byte, and
    which of these."""

    matrices: tuple[np.dtype, ...] = ()
    images: tuple[np.dtype, ...] = ()
    beside_bytes: tuple[np.dtype, ...] = ()
    bytes_: tuple[np.dtype, ...] = ()
