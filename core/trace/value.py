"""What programs compute with: concrete arrays and tracers share one surface."""

from __future__ import annotations

import dis
import sys
from operator import index
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from treadle import arraytype
from treadle.arraytype import ArrayType
from treadle.dims import is_dim
from treadle.errors import (
    LeakError,
    TracerError,
    at,
    user_frame,
    user_source,
    warn,
)
from treadle.trace.interpreter import Interpreter, state
from treadle.trace.source import is_counted

if TYPE_CHECKING:
    from treadle.np.methods import Methods as _Surface
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
        n = self.type.shape[0]
        # Python demands an int of it.
        return n.fixed("len(x) (not so `x.shape[0]`)") if is_dim(n) else n  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        raise TypeError(
            f"arrays are not hashable ({self.type}): they can't be static arguments, "
            f"dict keys or set members{at(user_source())}"
        )


_CONCRETE = """\
{what} needs the value of an array of type {type}, which {unknown}{at}{made}
{remedy}"""

_REMEDIES = {
    "bool": "Use `td.cond(predicate, if_true, if_false, *operands)` or "
    "`tnp.where(condition, a, b)`;\nif the value does not depend on arrays, pass it "
    "as a static argument: `td.jit(static=...)`.",
    "int": "Sizes and Python indices must be known while tracing: use `x.shape`, or "
    "pass the number as a\nstatic argument: `td.jit(static=...)`; an index into an "
    "array may be traced (`x[i]`), and so\nmay the limits of `td.fori_loop`, and of a "
    "loop `for i in range(n)`.",
    "float": "Compute with the array itself (`tnp.sin(x)` instead of `math.sin(x)`); "
    "to get a number to log,\nreturn the array from the function and convert it there.",
    "numpy": "Use the function of the same name in `treadle.numpy`; to look at values, "
    "use `td.debug.print`\nor run the program under `td.disable_jit()`.",
    "assign": "NumPy's memory can't hold traced values. Begin with an array of "
    "Treadle's, `b = tnp.zeros(shape)`,\nand make new ones: "
    "`b = b.at[index].set(x)`; or put parts together: `tnp.stack([x, y])`.",
    "format": 'Print it when the program runs: `td.debug.print("{:.3f}", x)`; or '
    "return it from the\nfunction and print it there.",
    "percent": 'In the message of an error, write `f"{x:.2f}"`, which tells the value '
    'when the program runs.\nTo print one then: `td.debug.print("{:.2f}", x)`.',
}
_WRITTEN = "`b[index] = x` for an array `b` of NumPy's"
_LOST = (
    "{} would keep the value of an array of type {}, and lose its derivative{}\n{}\n"
    "Where the value alone is wanted, to log it or to decide by it, take that of "
    "`td.stop_gradient(x)`."
)
_LOSSLESS = (
    "Compute with the array itself, and with functions of `treadle.numpy` "
    "(`tnp.sin(x)` for `math.sin(x)`)."
)
_PRINTED = (
    "an array that is being traced was printed: {text}\n"
    "This shows its type, once, while the function is being traced. To see values each "
    'time the program runs, use `td.debug.print("{{}}", x)`.'
)


class Tracer(Value):
    """A value inside a transform. `interpreter` is the transform that made it.

    origin: the op, operands and params that it was made of, as those who bound the op
      gave them; only of ops that are `remembered`.
    """

    __slots__ = ("interpreter", "origin")
    interpreter: Interpreter
    origin: tuple[Any, tuple[Any, ...], dict[str, Any]]

    def check_alive(self) -> None:
        """
        Raises:
          LeakError: if the transform that made this value has returned.
        """
        if not self.interpreter.alive:
            raise LeakError(
                f"an array of type {self.type} is used after the transform (jit, grad, "
                f"vmap, scan…) that traced it has returned{at(user_source())}\n"
                f"  traced at {self.made() or self.interpreter.called_at}\n"
                "It leaked through a global, an attribute or a closure. Return it from "
                "the transformed function instead."
            )

    unknown = "is not known while the function is being traced"
    """Why there is no value, as a clause of an error message."""

    def made(self) -> str:
        """The user's line that made it, if it is known."""
        return ""

    def _need(self, what: str, remedy: str) -> NoReturn:
        self.check_alive()
        here, made = user_source(), self.made()
        raise TracerError(
            _CONCRETE.format(
                what=what,
                type=self.type,
                unknown=self.unknown,
                at=at(here),
                made=f"\n  made at {made}" if made not in ("", here) else "",
                remedy=_REMEDIES[remedy],
            )
        )

    def concrete(self) -> Any:
        """The concrete value behind this tracer, or None while staging."""
        return None

    def _need_number(self, what: str, remedy: str) -> NoReturn:
        """The same where NumPy may have asked, to write a number into an array."""
        if _in_assignment():
            what, remedy = _WRITTEN, "assign"
        self._need(what, remedy)

    def _python(self, what: str, remedy: str) -> Any:
        value = self.concrete()
        return self._need_number(what, remedy) if value is None else value

    def _alone(self, what: str, remedy: str) -> Any:
        """The value, for one who goes on computing with it outside of the library: its
        derivative would be lost without a word, and a gradient be 0."""
        value = self._python(what, remedy)
        if _in_assignment():
            self._lost(_WRITTEN, _REMEDIES["assign"])
        if not _in_formatting(sys._getframe(2)):
            self._lost(what)
        return value

    def _lost(self, what: str, remedy: str = _LOSSLESS) -> NoReturn:
        self.check_alive()
        raise TracerError(_LOST.format(what, self.type, at(user_source()), remedy))

    def __bool__(self) -> bool:
        if self.concrete() is None and state.branching:
            self.check_alive()
            if _in_assignment():
                self._need_number("bool()", "bool")
            taken = state.interpreter.decide(self._truth())
            if taken is not None:
                return taken
        return bool(self._python("`if`, `while`, `and`, `or`, `not` or bool()", "bool"))

    def _truth(self) -> Any:
        """Whether it counts as true, as a scalar bool."""
        if self.type.size != 1:
            raise TracerError(
                f"the truth of an array of type {self.type} is ambiguous"
                f"{at(user_source())}\n"
                "Say which elements count: `.all()` or `.any()`."
            )
        scalar = self.reshape(()) if self.ndim else self
        return scalar if self.dtype == np.bool_ else scalar != self.dtype.type(0)

    def __int__(self) -> int:
        value = self._python("int()", "int")
        if _in_assignment():
            self._lost(_WRITTEN, _REMEDIES["assign"])
        return int(value)

    def __index__(self) -> int:
        value = self.concrete()
        if value is None:
            integer = not self.ndim and np.issubdtype(self.dtype, np.integer)
            if integer and state.branching and is_counted(user_frame()):
                # Whoever traces may trace anew, with another kind of loop.
                state.interpreter.decide(self._truth())
            # Not `_python`: here an assignment `b[x] = 0` asks for the index.
            self._need("range() or a Python index", "int")
        return index(value)

    def __float__(self) -> float:
        if self.concrete() is None and _in_formatting(sys._getframe(1)):
            self._need('formatting by `"%.2f" % x`', "percent")
        return float(self._alone("float()", "float"))

    def __complex__(self) -> complex:
        return complex(self._alone("complex()", "float"))

    def item(self) -> Any:
        """The value of a single element as a Python scalar (not under jit)."""
        if (value := self.concrete()) is not None:
            one_element(self.type, np.asarray(value))  # several are told of first
        return np.asarray(self._alone(".item()", "numpy")).item()

    def tobytes(self) -> bytes:
        """The elements as bytes, the last axis first to vary."""
        return np.asarray(self._alone(".tobytes()", "numpy")).tobytes()

    def tolist(self) -> Any:
        """The values as nested lists (not under jit)."""
        return np.asarray(self._alone(".tolist()", "numpy")).tolist()

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        what = "A NumPy function (or print of a NumPy copy)"
        if self.concrete() is not None:
            self._alone(what, "numpy")
        self._need_number(what, "numpy")

    def __copy__(self) -> Tracer:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        return self

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        if (told := self._tell(spec)) is not None:
            return told
        return format(self._python(f"formatting with {spec!r}", "format"), spec)

    def __str__(self) -> str:
        if (told := self._tell("")) is not None:
            return told
        text = repr(self)
        if self.concrete() is None:
            warn(_PRINTED.format(text=text))
        return text

    def _tell(self, spec: str | None) -> str | None:
        if self.concrete() is not None or not self.interpreter.alive:
            return None
        return state.interpreter.tell(self, spec)

    def __repr__(self) -> str:
        if (told := self._tell(None)) is not None:
            return told
        value = self.concrete()
        inside = f" of {value!r}" if value is not None else ""
        leaked = "" if self.interpreter.alive else "leaked "
        return f"<{leaked}{type(self).__name__} {self.type}{inside}>"


_STORES = {dis.opmap[n] for n in ("STORE_SUBSCR", "STORE_SLICE") if n in dis.opmap}


def _in_assignment() -> bool:
    """Whether the user's line is at work on `b[index] = …`, so that `b` asks."""
    frame = user_frame()
    return frame is not None and frame.f_code.co_code[frame.f_lasti] in _STORES


def _in_formatting(frame: FrameType) -> bool:
    """Whether a frame is at work on `"%.2f" % x`: a number that is only shown. (The
    array's own `%` has another way.)"""
    return any(
        i.offset == frame.f_lasti and i.argrepr in ("%", "%=")
        for i in dis.get_instructions(frame.f_code)
    )


# Tuples: making a union of types takes longer than checking for one.
NUMBERS = (bool, int, float, complex)
_NUMPY = (np.ndarray, np.generic)
_ARRAYS = (Value, *_NUMPY)


def one_element(t: ArrayType, x: np.ndarray) -> Any:
    """The element of an array that has one, for `item`."""
    if x.size == 1:
        return x.item()
    raise ValueError(
        f".item() of {t}, which has {x.size} elements{at(user_source())}\n"
        "It gives the only element of an array; `x.tolist()` gives all, and `x[0]` the "
        "first."
    )


def typeof(x: Any) -> ArrayType:
    """The array type of an array, a tracer, or a scalar: shape, dtype, weakness.

    Raises:
      TypeError: for anything else, naming the value.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.typeof(tnp.ones((2, 3)))
    f32[2,3]
    """
    if isinstance(x, Value):
        return x.type
    if isinstance(x, _NUMPY):
        return arraytype.of_numpy(x)
    if isinstance(x, NUMBERS):
        return arraytype.of_scalar(x)
    remedy = ""
    if isinstance(x, list | tuple):
        remedy = "\nMake an array of it: `tnp.array(...)`."
    raise TypeError(
        f"expected an array, got {type(x).__name__} {_short(x)}{at(user_source())}"
        f"{remedy}"
    )


def is_array(x: Any) -> bool:
    """Whether `x` is a concrete array, a tracer, or a NumPy array.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.is_array(tnp.ones(2)), td.is_array(2.0), td.is_array([1, 2])
    (True, False, False)
    """
    return isinstance(x, _ARRAYS)


def is_traced(x: Any) -> bool:
    """Whether `x` is an array inside a transform (jit, grad, vmap, scan…), which has no
    memory of its own.

    >>> import treadle as td
    >>> seen = []
    >>> _ = td.jit(lambda x: seen.append(td.is_traced(x)) or x)(1.0)
    >>> seen, td.is_traced(1.0)
    ([True], False)
    """
    return isinstance(x, Tracer)


def _short(x: Any) -> str:
    text = repr(x)
    return text if len(text) <= 60 else text[:57] + "..."
