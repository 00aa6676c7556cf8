"""Operators and methods, put on `Value`: concrete arrays and tracers have them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from treadle.dtypes import DTypeLike
from treadle.errors import at, foreign, user_source
from treadle.np import (
    binary,
    bits,
    choices,
    complex_parts,
    contract,
    creation,
    elementwise,
    indexing,
    matrices,
    order,
    places,
    powers,
    rearrange,
    reductions,
    running,
    search,
    shapes,
    statistics,
)
from treadle.np.absent import REMEDIES, Absent, names_of
from treadle.np.at import At
from treadle.np.namespace import VERSIONS
from treadle.np.operands import ArrayLike, Axis
from treadle.np.protocol import numpy_call, ours
from treadle.run.device import Device, current
from treadle.trace.value import Tracer, Value

if TYPE_CHECKING:
    from treadle.run.array import Array

R = TypeVar("R")
_NO_ITEM_ASSIGNMENT = (
    "arrays are immutable: `x[index] = value` can't change one of type {0}{1}\n"
    "Make a new array: `x = x.at[index].set(value)`; also `.add`, `.multiply`, `.min`…"
)
_NO_DELETION = (
    "arrays are immutable: `del x[index]` can't shorten one of type {0}{1}\n"
    "Make a new array of what is to stay: `tnp.concatenate([x[:i], x[i + 1 :]])`."
)

_OPERANDS = (Value, np.ndarray, np.generic, int, float, complex, list, tuple)


def _known(y: Any) -> bool:
    """Whether an operator can take the other operand (else Python asks that one)."""
    return isinstance(y, _OPERANDS)


def _takes(self: Any, y: Any) -> bool:
    """Whether an operator takes the other operand, if only to say what to do with it:
    to another library, what is being traced is no array."""
    return _known(y) or (isinstance(self, Tracer) and foreign(y))


def _operator(
    function: Callable[..., R], reflected: bool = False
) -> Callable[[Any, ArrayLike], R]:
    if reflected:

        def method(self: Any, other: Any) -> Any:
            return function(other, self) if _takes(self, other) else NotImplemented

    else:

        def method(self: Any, other: Any) -> Any:
            return function(self, other) if _takes(self, other) else NotImplemented

    return method


class Operators:
    """What arrays do with Python's operators."""

    __slots__ = ()
    type: Any

    __add__, __radd__ = _operator(binary.add), _operator(binary.add, True)
    __sub__, __rsub__ = _operator(binary.subtract), _operator(binary.subtract, True)
    __mul__, __rmul__ = _operator(binary.multiply), _operator(binary.multiply, True)
    __truediv__ = _operator(binary.divide)
    __rtruediv__ = _operator(binary.divide, True)
    __floordiv__ = _operator(binary.floor_divide)
    __rfloordiv__ = _operator(binary.floor_divide, True)
    __mod__, __rmod__ = _operator(binary.remainder), _operator(binary.remainder, True)
    __divmod__, __rdivmod__ = _operator(binary.divmod), _operator(binary.divmod, True)
    __pow__, __rpow__ = _operator(powers.power), _operator(powers.power, True)
    __matmul__ = _operator(contract.matmul)
    __rmatmul__ = _operator(contract.matmul, True)
    __and__ = _operator(binary.bitwise_and)
    __rand__ = _operator(binary.bitwise_and, True)
    __or__, __ror__ = _operator(binary.bitwise_or), _operator(binary.bitwise_or, True)
    __xor__ = _operator(binary.bitwise_xor)
    __rxor__ = _operator(binary.bitwise_xor, True)
    __lshift__ = _operator(binary.left_shift)
    __rlshift__ = _operator(binary.left_shift, True)
    __rshift__ = _operator(binary.right_shift)
    __rrshift__ = _operator(binary.right_shift, True)
    __lt__, __le__ = _operator(binary.less), _operator(binary.less_equal)
    __gt__, __ge__ = _operator(binary.greater), _operator(binary.greater_equal)

    # Written out: of what `object` has, type checkers go by declarations alone.
    def __eq__(self: Any, other: Any) -> Array:  # type: ignore[override]
        return binary.equal(self, other) if _takes(self, other) else NotImplemented

    def __ne__(self: Any, other: Any) -> Array:  # type: ignore[override]
        return binary.not_equal(self, other) if _takes(self, other) else NotImplemented

    def __neg__(self: Any) -> Array:
        return elementwise.negative(self)

    def __pos__(self: Any) -> Array:
        return elementwise.positive(self)

    def __abs__(self: Any) -> Array:
        return elementwise.abs(self)

    def __invert__(self: Any) -> Array:
        return elementwise.bitwise_not(self)

    def __round__(self: Any, decimals: int = 0) -> Array:
        return elementwise.round(self, decimals)

    def __getitem__(self: Any, index: Any) -> Array:
        return indexing.getitem(self, index)

    def __setitem__(self: Any, index: Any, value: Any) -> NoReturn:
        raise TypeError(_NO_ITEM_ASSIGNMENT.format(self.type, at(user_source())))

    def __delitem__(self: Any, index: Any) -> NoReturn:
        raise TypeError(_NO_DELETION.format(self.type, at(user_source())))

    def __iter__(self: Any) -> Iterator[Array]:
        if not self.type.shape:
            raise TypeError(f"a 0-dimensional array has no rows{at(user_source())}")
        return iter([self[i] for i in range(self.type.shape[0])])

    def __contains__(self: Any, value: Any) -> bool:
        return bool(reductions.any(binary.equal(self, value)))

    def __array_ufunc__(
        self: Any, ufunc: Any, method: str, *inputs: Any, **options: Any
    ) -> Any:
        # This is also where `numpy_array + our_array` arrives.
        if method != "__call__":
            return numpy_call(getattr(ufunc, method), inputs, options)
        if ufunc in ours and not options and all(map(_known, inputs)):
            return ours[ufunc](*inputs)
        return numpy_call(ufunc, inputs, options)

    def __array_function__(
        self: Any, function: Any, types: Any, args: Any, options: Any
    ) -> Any:
        return numpy_call(function, args, options)


class Methods(Operators):
    """What arrays do by themselves; the functions of the same names say how."""

    __slots__ = ()

    @property
    def T(self: Any) -> Array:
        """The axes in reverse order."""
        return shapes.transpose(self)

    @property
    def mT(self: Any) -> Array:
        """The last two axes exchanged."""
        return shapes.matrix_transpose(self)

    @property
    def real(self: Any) -> Array:
        """The real part."""
        return complex_parts.real(self)

    @property
    def imag(self: Any) -> Array:
        """The imaginary part."""
        return complex_parts.imag(self)

    @property
    def at(self: Any) -> At:
        """Updates that give a new array: ``x.at[index].set(value)``."""
        return At(self)

    @property
    def itemsize(self: Any) -> int:
        """The size of an element in bytes."""
        return self.type.dtype.itemsize

    @property
    def device(self: Any) -> Device:
        """Where it is; of an array that is being traced, where that happens."""
        return current()

    def __array_namespace__(self: Any, *, api_version: str | None = None) -> Any:
        """`treadle.numpy`, as the array API standard has it."""
        if api_version not in (None, *VERSIONS):
            raise ValueError(
                f"the array API standard {api_version} is not supported; these are: "
                f"{', '.join(VERSIONS)}{at(user_source())}"
            )
        return sys.modules["treadle.numpy"]

    def to_device(self: Any, device: Any, /, *, stream: Any = None) -> Array:
        """The same elements on a device (see `treadle.device_put`)."""
        return creation.placed(self, device)

    def astype(
        self: Any, dtype: DTypeLike, copy: bool = True, device: Any = None
    ) -> Array:
        """The elements converted to a dtype; `copy` as in `tnp.astype`."""
        return creation.astype(self, dtype, copy=copy, device=device)

    def view(self: Any, dtype: DTypeLike, *lengths: Any) -> Array:
        """The same bits as another dtype; of another width, the last axis scales. (A
        shape is an error that says `x.reshape`.)"""
        return bits.view(self, dtype, *lengths)

    def copy(self: Any) -> Array:
        """The array in memory of its own, which stays when this one is donated."""
        return creation.copy(self)

    def reshape(self: Any, *lengths: Any, order: str = "C") -> Array:
        """The same elements in another shape; one length may be -1."""
        shape = lengths[0] if len(lengths) == 1 else lengths
        return shapes.reshape(self, shape, order)

    def transpose(self: Any, *axes: Any) -> Array:
        """The axes in another order; reversed, by default."""
        if len(axes) == 1 and not isinstance(axes[0], int):
            return shapes.transpose(self, axes[0])
        return shapes.transpose(self, axes or None)

    def ravel(self: Any, order: str = "C") -> Array:
        """The elements as one axis."""
        return shapes.ravel(self, order)

    def flatten(self: Any, order: str = "C") -> Array:
        """A copy of the elements, as one axis."""
        return creation.array(shapes.ravel(self, order))

    def squeeze(self: Any, axis: Axis = None) -> Array:
        """Without axes of length 1."""
        return shapes.squeeze(self, axis)

    def swapaxes(self: Any, axis1: int, axis2: int) -> Array:
        """Exchanges two axes."""
        return shapes.swapaxes(self, axis1, axis2)

    def repeat(
        self: Any, repeats: Any, axis: int | None = None, **options: Any
    ) -> Array:
        """Repeats each element along an axis."""
        return rearrange.repeat(self, repeats, axis, **options)

    def take(self: Any, indices: Any, axis: int | None = None, **options: Any) -> Array:
        """The elements, or slices along an axis, at the indices."""
        return indexing.take(self, indices, axis, **options)

    def diagonal(self: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
        """The elements whose indices in two axes are equal."""
        return matrices.diagonal(self, offset, axis1, axis2)

    def trace(self: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
        """The sum of the diagonal."""
        return matrices.trace(self, offset, axis1, axis2)

    def compress(
        self: Any, condition: Any, axis: int | None = None, **options: Any
    ) -> Array:
        """The slices along an axis where a condition holds."""
        return places.compress(condition, self, axis, **options)

    def choose(self: Any, options: Any, mode: str = "raise") -> Array:
        """For each element the element of the choice with that number."""
        return choices.choose(self, options, mode)

    def nonzero(self: Any, **options: Any) -> tuple[Array, ...]:
        """The indices of the elements that are not zero, per axis."""
        return places.nonzero(self, **options)

    def searchsorted(
        self: Any, values: Any, side: str = "left", sorter: Any = None
    ) -> Array:
        """Where values belong in this sorted vector."""
        return search.searchsorted(self, values, side, sorter)

    def sum(
        self: Any,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        keepdims: bool = False,
        **options: Any,
    ) -> Array:
        """The sum over axes."""
        return reductions.sum(self, axis, dtype, keepdims, **options)

    def prod(
        self: Any,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        keepdims: bool = False,
        **options: Any,
    ) -> Array:
        """The product over axes."""
        return reductions.prod(self, axis, dtype, keepdims, **options)

    def mean(
        self: Any,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        keepdims: bool = False,
        **options: Any,
    ) -> Array:
        """The mean over axes."""
        return statistics.mean(self, axis, dtype, keepdims, **options)

    def var(
        self: Any,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        ddof: float = 0,
        keepdims: bool = False,
        **options: Any,
    ) -> Array:
        """The variance over axes."""
        return statistics.var(self, axis, dtype, ddof, keepdims, **options)

    def std(
        self: Any,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        ddof: float = 0,
        keepdims: bool = False,
        **options: Any,
    ) -> Array:
        """The standard deviation over axes."""
        return statistics.std(self, axis, dtype, ddof, keepdims, **options)

    def max(
        self: Any,
        axis: Axis = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Array:
        """The largest element over axes."""
        return reductions.max(self, axis, keepdims, initial, where)

    def min(
        self: Any,
        axis: Axis = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Array:
        """The smallest element over axes."""
        return reductions.min(self, axis, keepdims, initial, where)

    def ptp(self: Any, axis: Axis = None, keepdims: bool = False) -> Array:
        """The largest element over axes minus the smallest."""
        return reductions.ptp(self, axis, keepdims)

    def any(
        self: Any, axis: Axis = None, keepdims: bool = False, where: Any = None
    ) -> Array:
        """Whether some element is true."""
        return reductions.any(self, axis, keepdims, where)

    def all(
        self: Any, axis: Axis = None, keepdims: bool = False, where: Any = None
    ) -> Array:
        """Whether every element is true."""
        return reductions.all(self, axis, keepdims, where)

    def argmax(self: Any, axis: int | None = None, keepdims: bool = False) -> Array:
        """Where the largest element is."""
        return reductions.argmax(self, axis, keepdims)

    def argmin(self: Any, axis: int | None = None, keepdims: bool = False) -> Array:
        """Where the smallest element is."""
        return reductions.argmin(self, axis, keepdims)

    def cumsum(
        self: Any, axis: int | None = None, dtype: DTypeLike | None = None
    ) -> Array:
        """The running sum."""
        return running.cumsum(self, axis, dtype)

    def cumprod(
        self: Any, axis: int | None = None, dtype: DTypeLike | None = None
    ) -> Array:
        """The running product."""
        return running.cumprod(self, axis, dtype)

    def sort(self: Any, axis: int = -1, **options: Any) -> Array:
        """The elements in ascending order (a new array)."""
        return order.sort(self, axis, **options)

    def argsort(self: Any, axis: int = -1, **options: Any) -> Array:
        """The indices that sort."""
        return order.argsort(self, axis, **options)

    def partition(self: Any, kth: Any, axis: int = -1) -> Array:
        """The elements in an order like `partition`'s (a new array)."""
        return order.partition(self, kth, axis)

    def argpartition(self: Any, kth: Any, axis: int = -1) -> Array:
        """The indices that partition."""
        return order.argpartition(self, kth, axis)

    def dot(self: Any, other: Any, **options: Any) -> Array:
        """The product over the last axis and the last but one of the other."""
        return contract.dot(self, other, **options)

    def clip(self: Any, min: Any = None, max: Any = None) -> Array:
        """Limited to an interval."""
        return binary.clip(self, min, max)

    def round(self: Any, decimals: int = 0) -> Array:
        """Rounded to a number of decimals."""
        return elementwise.round(self, decimals)

    def __dir__(self: Any) -> list[str]:
        return names_of(self)

    def conj(self: Any) -> Array:
        """The complex conjugate."""
        return complex_parts.conj(self)

    conjugate = conj


def install() -> None:
    """Puts the operators and methods on `Value`, and those that it has not."""
    for surface in (Operators, Methods):
        for name, member in vars(surface).items():
            if isinstance(member, FunctionType | property):
                setattr(Value, name, member)
    for name, remedy in REMEDIES.items():
        setattr(Value, name, Absent(name, remedy))


install()
