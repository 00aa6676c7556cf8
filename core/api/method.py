"""A jitted function as a method: what a class gives for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from treadle.api.aot import Lowered, Traced
from treadle.api.boundary import boundary
from treadle.api.report import Report
from treadle.ir.graph import Graph

if TYPE_CHECKING:
    from treadle.api.jit import Jitted

P = ParamSpec("P")
R = TypeVar("R")


class Method(Generic[P, R]):
    """A jitted function bound to an instance, which is its first argument."""

    def __init__(self, jitted: Jitted[..., R], instance: Any) -> None:
        self._jitted, self._instance = jitted, instance

    @boundary
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._jitted(self._instance, *args, **kwargs)

    def explain(self, *args: Any, **kwargs: Any) -> str:
        return self._jitted.explain(self._instance, *args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Traced[..., R]:
        return self._jitted.trace(self._instance, *args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered[..., R]:
        return self._jitted.lower(self._instance, *args, **kwargs)

    def graph(self, *args: Any, **kwargs: Any) -> Graph:
        return self._jitted.graph(self._instance, *args, **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        return self._jitted.eval_shape(self._instance, *args, **kwargs)

    def report(self) -> Report:
        return self._jitted.report()
