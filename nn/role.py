"""What an array is to training: a parameter, one that is frozen, or a buffer."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.errors import at, user_source

_METADATA = """\
the metadata {name}={value!r:.60} of an nn.{kind} is not hashable{at}
Metadata are part of what `jit` compiles for: use a tuple instead of a list."""


class Role(NamedTuple):
    """The part that an array plays, and what is said of it."""

    buffer: bool = False
    frozen: bool = False
    metadata: tuple[tuple[str, Hashable], ...] = ()

    @property
    def constant(self) -> bool:
        """Whether it is not trained."""
        return self.buffer or self.frozen

    def as_frozen(self, frozen: bool) -> Role | None:
        """This role frozen, or not; None if it is the ordinary one. Buffers stay."""
        role = self if self.buffer else self._replace(frozen=frozen)
        return None if role == Role() else role

    def __str__(self) -> str:
        name = "buffer" if self.buffer else "frozen" if self.frozen else "parameter"
        more = [f"{key}={value!r}" for key, value in self.metadata]
        return f"{name}({', '.join(more)})" if more else name


class Mark:
    """A value on its way into a field of a module, and the role it will have."""

    __slots__ = ("role", "value")

    def __init__(self, value: Any, role: Role | None) -> None:
        number = isinstance(value, bool | int | float | complex)
        self.value: Any = tnp.asarray(value) if number else value
        self.role = role

    def spread(self) -> Any:
        """A container's entries, each with the role."""
        value, kind = self.value, type(self.value)
        if kind is dict:
            return {k: _marked(x, self.role) for k, x in value.items()}
        items = [_marked(x, self.role) for x in value]
        return kind(*items) if hasattr(kind, "_fields") else kind(items)

    def __repr__(self) -> str:
        return f"nn.{type(self).__name__}({self.value!r:.60})"


def _marked(value: Any, role: Role | None) -> Any:
    bare = tree.all_leaves([value]) and not td.is_array(value)
    return value if bare else Mark(value, role)


def strip(value: Any) -> Any:
    """A field's value without marks: itself if there are none."""
    kind = type(value)
    if isinstance(value, Mark):
        return strip(value.value)
    if kind is dict:
        bare = {k: strip(x) for k, x in value.items()}
        return value if all(bare[k] is value[k] for k in value) else bare
    if kind in (list, tuple) or hasattr(kind, "_fields"):
        items = [strip(x) for x in value]
        if all(a is b for a, b in zip(items, value, strict=True)):
            return value
        return kind(*items) if hasattr(kind, "_fields") else kind(items)
    return value


Marked = tuple[tree.Path, Mark]


def marks_in(value: Any, path: tree.Path) -> Iterator[Marked]:
    """The marks in a field, with their paths."""
    kind = type(value)
    if isinstance(value, Mark):
        yield path, value
    elif kind is dict:
        for key, item in value.items():
            yield from marks_in(item, (*path, key))
    elif kind in (list, tuple):
        for i, item in enumerate(value):
            yield from marks_in(item, (*path, i))
    elif hasattr(kind, "_fields"):
        for name, item in zip(kind._fields, value, strict=True):
            yield from marks_in(item, (*path, tree.Attribute(name)))


def _metadata(kind: str, given: dict[str, Any]) -> tuple[tuple[str, Hashable], ...]:
    for name, value in given.items():
        try:
            hash(value)
        except TypeError:
            raise TypeError(
                _METADATA.format(
                    name=name, value=value, kind=kind, at=at(user_source())
                )
            ) from None
    return tuple(sorted(given.items()))


T = TypeVar("T")

if TYPE_CHECKING:
    # The field has the type of the array.
    def Param(value: T, *, trainable: bool = True, **metadata: Hashable) -> T: ...

    def Buffer(value: T, **metadata: Hashable) -> T: ...

else:

    class Param(Mark):
        """A parameter of which more is said, on its way into a field of a Module.

        The field then holds the array itself; `nn.metadata` tells what was said. One
        `Param` that stands in two fields is one parameter with two places (`Module`).

        Args:
          value: an array, or a list, tuple or dict of arrays.
          trainable: if False, it is frozen: `td.grad` gives None there, and optimizers
            leave it alone. `nn.unfreeze` undoes it.
          metadata: anything hashable, by names of yours.

        Raises:
          TypeError: if metadata are not hashable.

        >>> import treadle.numpy as tnp
        >>> from treadle import nn
        >>> class Scale(nn.Module):
        ...     def __init__(self):
        ...         self.scale = nn.Param(tnp.ones(2), decay=False)
        >>> nn.metadata(Scale())
        {'scale': {'decay': False}}
        """

        __slots__ = ()

        def __init__(self, value, *, trainable=True, **metadata) -> None:
            role = Role(False, not trainable, _metadata("Param", metadata))
            super().__init__(value, None if role == Role() else role)

    class Buffer(Mark):
        """An array that is not trained, on its way into a field of a Module.

        The field then holds the array itself. `td.grad` gives None there, optimizers
        and averages leave it alone; everything else (jit, checkpoints, casts) sees it
        as any array. What a layer changes when it is called is a `State` instead.

        Args:
          value: an array, or a list, tuple or dict of arrays.
          metadata: anything hashable, by names of yours.

        >>> import treadle as td, treadle.numpy as tnp
        >>> from treadle import nn
        >>> class Shift(nn.Module):
        ...     def __init__(self):
        ...         self.weight = tnp.ones(2)
        ...         self.by = nn.Buffer(tnp.array([1.0, 2.0]))
        ...
        ...     def __call__(self, x):
        ...         return self.weight * x + self.by
        >>> td.grad(lambda shift: shift(1.0).sum())(Shift())
        Shift(weight=f32[2], by=None)
        """

        __slots__ = ()

        def __init__(self, value, **metadata) -> None:
            super().__init__(value, Role(True, False, _metadata("Buffer", metadata)))
