"""What programs compute with: concrete arrays and tracers share one surface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from treadle import arraytype, dtypes
from treadle.arraytype import ArrayType
from treadle.errors import LeakError, TracerError, at, user_source

if TYPE_CHECKING:
    from treadle.np.methods import Methods as _Surface
    from treadle.trace.interpreter import Interpreter
else:
    _Surface = object


class Value(_Surface):
    """An array as programs see it. Operators and methods are `treadle.numpy`'s, which
    puts them here when it is imported (`treadle.np.methods`)."""

    __slots__ = ("__weakref__",)
    __array_priority__ = 1000
    type: ArrayType

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self.type.shape

    @property
    def dtype(self) -> np.dtype:
        """The element type."""
        return self.type.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.type.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.type.size

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.type.nbytes

    def __len__(self) -> int:
        if not self.type.shape:
            raise TypeError("a 0-dimensional array has no len()")
        return self.type.shape[0]

    def __hash__(self) -> int:
        raise TypeError(
            f"arrays are not hashable ({self.type}): they can't be static arguments, "
            "dict keys or set members"
        )


_CONCRETE = """\
{what} needs the value of an array of type {type}, which is not known while the \
function is being traced{at}{made}
{remedy}"""

_REMEDIES = {
    "bool": "Use `td.cond(predicate, if_true, if_false, *operands)` or "
    "`tnp.where(condition, a, b)`;\nif the value does not depend on arrays, pass it "
    "as a static argument: `td.jit(static=...)`.",
    "int": "Sizes and Python indices must be known while tracing: use `x.shape`, or "
    "pass the number as a\nstatic argument: `td.jit(static=...)`; an index into an "
    "array may be traced (`x[i]`).",
    "numpy": "Use the function of the same name in `treadle.numpy`; to look at values, "
    "use `td.debug.print`\nor run the program under `td.disable_jit()`.",
}


class Tracer(Value):
    """A value inside a transform. `interpreter` is the transform that made it."""

    __slots__ = ("interpreter",)
    interpreter: Interpreter

    def check_alive(self) -> None:
        """
        Raises:
          LeakError: if the transform that made this value has returned.
        """
        if not self.interpreter.alive:
            raise LeakError(
                f"this array of type {self.type}{self.made()} was traced by a "
                f"transform (jit, grad, vmap, scan…) that has returned, and used"
                f"{at(user_source())}\n"
                "It leaked through a global, an attribute or a closure. Return it from "
                "the transformed function instead."
            )

    def made(self) -> str:
        """Where it was made, as a clause of an error message."""
        return ""

    def _need(self, what: str, remedy: str) -> NoReturn:
        self.check_alive()
        raise TracerError(
            _CONCRETE.format(
                what=what,
                type=self.type,
                at=at(user_source()),
                made=self.made(),
                remedy=_REMEDIES[remedy],
            )
        )

    def concrete(self) -> Any:
        """The concrete value behind this tracer, or None while staging."""
        return None

    def _python(self, what: str, remedy: str) -> Any:
        value = self.concrete()
        return self._need(what, remedy) if value is None else value

    def __bool__(self) -> bool:
        return bool(self._python("`if`, `while`, `and`, `or`, `not` or bool()", "bool"))

    def __int__(self) -> int:
        return int(self._python("int()", "int"))

    def __index__(self) -> int:
        return self._python("range() or a Python index", "int").__index__()

    def __float__(self) -> float:
        return float(self._python("float()", "int"))

    def __complex__(self) -> complex:
        return complex(self._python("complex()", "int"))

    def item(self) -> Any:
        """The value of a single element as a Python scalar (not under jit)."""
        return self._python(".item()", "numpy").item()

    def tolist(self) -> Any:
        """The values as nested lists (not under jit)."""
        return self._python(".tolist()", "numpy").tolist()

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        self._need("A NumPy function (or print of a NumPy copy)", "numpy")

    def __repr__(self) -> str:
        value = self.concrete()
        inside = f" of {value!r}" if value is not None else ""
        return f"<{type(self).__name__} {self.type}{inside}>"


def typeof(x: Any) -> ArrayType:
    """The array type of an array, a tracer, or a scalar.

    Raises:
      TypeError: for anything else, naming the value.
    """
    if isinstance(x, Value):
        return x.type
    if type(x) in dtypes.SCALARS:
        return arraytype.of_scalar(x)
    if isinstance(x, np.ndarray | np.generic):
        return arraytype.of_numpy(x)
    if isinstance(x, int):
        return arraytype.of_scalar(int(x))
    remedy = ""
    if isinstance(x, list | tuple):
        remedy = "; make an array of it with `tnp.array(...)`"
    raise TypeError(
        f"expected an array, got {type(x).__name__} {_short(x)}{at(user_source())}"
        f"{remedy}"
    )


def is_array(x: Any) -> bool:
    """Whether `x` is a concrete array, a tracer, or a NumPy array."""
    return isinstance(x, Value | np.ndarray) or (
        isinstance(x, np.generic) and type(x) not in dtypes.SCALARS
    )


def _short(x: Any) -> str:
    text = repr(x)
    return text if len(text) <= 60 else text[:57] + "..."
