"""How what `jit` makes of functions is copied and pickled: as functions are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Self


class CopiedAsFunction:
    """Its kind is made anew of its `function` and its `_options`."""

    function: Callable[..., Any]
    _options: tuple[Any, ...]

    def __reduce__(self) -> Any:
        """By its own name in a module, as functions are; else by its function's."""
        name = getattr(self, "__qualname__", "")
        found = sys.modules.get(self.__module__)
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else (type(self), (self.function, *self._options))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Itself, as of functions; of a bound method, one of a copy of its object."""
        function = deepcopy(self.function, memo)
        if function is self.function:
            return self
        return type(self)(function, *self._options)  # type: ignore[call-arg]
