"""Updates where a traced mask is true: every element is computed, and one chosen."""

from __future__ import annotations

from typing import Any, NamedTuple

from treadle import dtypes
from treadle.errors import TracerError, at, user_source
from treadle.np.operands import broadcast_to_shape
from treadle.ops.compare import select
from treadle.ops.movement import broadcast_in_dim, reshape
from treadle.trace.value import Tracer, typeof


def has_traced_mask(expression: Any) -> bool:
    """Whether an index expression holds a mask whose values are not known."""
    items = expression if isinstance(expression, tuple) else (expression,)
    return any([_is_traced_mask(item) for item in items])


def _is_traced_mask(item: Any) -> bool:
    return isinstance(item, Tracer) and item.dtype == dtypes.bool_


class Masked(NamedTuple):
    """An index expression with a mask, taken apart.

    around: the expression with a whole slice for each axis of the mask.
    axis: the first axis of the mask in the block that this reads.
    """

    mask: Any
    around: tuple[Any, ...]
    axis: int
    shape: tuple[int, ...]

    @classmethod
    def of(cls, x: Any, expression: Any) -> Masked:
        """
        Raises:
          TracerError: if there is another mask, or an index array.
          IndexError: if the mask does not fit.
        """
        items = list(expression) if isinstance(expression, tuple) else [expression]
        (k, *more) = [i for i, item in enumerate(items) if _is_traced_mask(item)]
        others = [*items[:k], *items[k + 1 :]]
        if more or not all(map(_is_simple, others)):
            raise TracerError(
                f"a traced mask ({typeof(items[k])}) is beside another mask or an "
                f"index array: how many places they name is not known"
                f"{at(user_source())}\n"
                "Use `tnp.where`, which takes a mask of the array's own shape."
            )
        mask, shape = items[k], typeof(x).shape
        taken = [sum(map(_axes, part)) for part in (items[:k], items[k + 1 :])]
        dots = any([item is Ellipsis for item in items[:k]])
        first = len(shape) - taken[1] - mask.ndim if dots else taken[0]
        if first < 0 or mask.shape != shape[first : first + mask.ndim]:
            raise IndexError(
                f"a mask of shape {mask.shape} as index of an array of shape {shape}, "
                f"from axis {max(first, 0)} on{at(user_source())}"
            )
        around = (*items[:k], *(slice(None),) * mask.ndim, *items[k + 1 :])
        axis = sum(map(_kept, items[:k])) + first - taken[0]
        return cls(mask, around, axis, shape)

    def chosen(self, new: Any, old: Any) -> Any:
        """The new elements where the mask is true, the old ones elsewhere."""
        shape = typeof(old).shape
        dims = tuple(range(self.axis, self.axis + self.mask.ndim))
        wide = broadcast_in_dim(self.mask, shape=shape, dims=dims)
        return select(wide, broadcast_to_shape(new, shape), old)

    def aligned(self, value: Any) -> Any:
        """A value for ``x[expression]``, where all places of the mask are one axis of a
        length that is not known, as one for the block."""
        shape = typeof(value).shape
        rest = self.rest()
        if len(shape) <= rest:
            return value
        place = len(shape) - rest - 1
        if shape[place] != 1:
            raise TracerError(
                f"x.at[mask]: a value of shape {shape} has {shape[place]} elements for "
                f"the places of a mask that is traced: how many these are is not known"
                f"{at(user_source())}\n"
                "Use one value for all of them, or `tnp.place(x, mask, values, "
                "inplace=False)`."
            )
        ones = (1,) * self.mask.ndim
        return reshape(value, shape=(*shape[:place], *ones, *shape[place + 1 :]))

    def rest(self) -> int:
        """How many axes of the block come behind the mask's."""
        block = len(self.shape) + sum([item is None for item in self.around])
        block -= sum([_axes(i) and not isinstance(i, slice) for i in self.around])
        return block - self.axis - self.mask.ndim


def _is_simple(item: Any) -> bool:
    return not getattr(item, "shape", ()) and not isinstance(item, list | bool)


def _axes(item: Any) -> int:
    return int(item is not None and item is not Ellipsis)


def _kept(item: Any) -> int:
    return int(item is None or isinstance(item, slice))
