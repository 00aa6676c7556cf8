"""What is said of a call with a keyword that a function of the library doesn't have,
and of other errors of Python's own about our arrays.

Python raises them before any line of a function runs. Where the error passes a
`boundary`, or is shown because nobody has caught it (`show_remedies`), the call is
looked up in the user's source: a call that fits pays nothing.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from treadle.errors import is_ours
from treadle.spellings import REFUSED, meant
from treadle.trace.value import Value

_PLACES = {
    **dict.fromkeys(("input", "a", "arr", "array", "x1", "m", "tensors", "self"), 0),
    **dict.fromkeys(("other", "b", "x2", "v", "mat2"), 1),
}
"""Names of arguments that go by their place."""
_NONE = {
    "out": "arrays don't change: take what is returned",
    "inplace": "arrays don't change: take what is returned",
    "requires_grad": "any function of arrays can be differentiated: `td.grad(f)(x)`",
    "device": "arrays are moved by `td.device_put`",
    "order": "arrays have no order in memory that a program could see",
    "prevent_cse": "what is computed again is never taken from what there was before",
    "reduction": "losses give one value an example: take `.mean()` or `.sum()`",
    "ignore_index": "average those that count: `losses.mean(where=labels != index)`",
    "betas": "they are `b1` and `b2` here",
    "weight_decay": "put `optim.add_decayed_weights` before it in an `optim.chain`, or "
    "take `optim.adamw`",
    "batch_first": "axes of batches are the first ones",
    "pin_memory": "arrays lie in the memory of the CPU",
    "std": "scale what is drawn: `mean + std * rng.normal(key, shape)`",
    "casting": "convert with `x.astype(dtype)`",
}

_UNFIT = re.compile(r"Object of type (\w+) is not JSON serializable")
_NUMBERS = "`x.tolist()` gives lists of an array's numbers; `float(x)` a single one."
_NO_FUNCTION = "object is not callable"
_ATTRIBUTE = "`x.{0}` of an array is no method: write `x.{0}`"
_OF_AXES = {
    "size": ", which counts all elements; `x.shape` has the length of each axis: "
    "`x.shape[0]`.",
    "shape": ": `x.shape[0]` is the length of the first axis.",
}
_MARK = "_adds_remedies"
"""What hooks of ours have, also those of an import before this one."""


def add_remedy(
    error: BaseException, boundary: Callable[..., Any] | None = None
) -> None:
    """Adds to Python's error of an unknown keyword, if a function of ours was called,
    which arguments that has, and which of them is meant.

    boundary: the function that the error leaves, if it does; the user may have called
      this.
    """
    if not isinstance(error, TypeError) or getattr(error, "__notes__", None):
        return
    text = str(error)
    if (unfit := _UNFIT.fullmatch(text)) and unfit[1] in _kinds_of_array():
        error.add_note(_NUMBERS)
    found, called = REFUSED.fullmatch(text), text.endswith(_NO_FUNCTION)
    call, traceback = None, error.__traceback__ if found or called else None
    while traceback is not None:
        if not is_ours(traceback.tb_frame.f_code.co_filename):
            call = traceback
        traceback = traceback.tb_next
    if called and call is not None and (name := _attribute_at(call)):
        error.add_note(_ATTRIBUTE.format(name) + _OF_AXES.get(name, ""))
    if found is None:
        return
    trace = error.__traceback__
    function: Any = boundary
    if boundary is None or trace is None or trace.tb_next is not None:
        if call is None:
            return
        function = inspect.unwrap(_called(call))
    kind = function if isinstance(function, type) else None
    if kind is not None:
        function = inspect.unwrap(kind.__init__)  # type: ignore[misc]
    code = getattr(function, "__code__", None)
    if code is None or not is_ours(code.co_filename):
        return
    parameters = inspect.signature(function).parameters
    if function.__name__ == found[1] and found[2] not in parameters:
        error.add_note(_remedy(function, found[2], (kind or function).__name__))


def _kinds_of_array() -> set[str]:
    kinds, found = [Value], {Value.__name__}
    while kinds:
        below = kinds.pop().__subclasses__()
        kinds += below
        found.update(kind.__name__ for kind in below)
    return found


def _attribute_at(traceback: TracebackType) -> str:
    """The attribute of an array that the user's line calls, or nothing."""
    call = _call_at(traceback)
    if call is None or not isinstance(call.func, ast.Attribute):
        return ""
    name = call.func.attr
    known = _value(call.func, traceback.tb_frame)
    return name if isinstance(known, property) and not name.startswith("_") else ""


def _called(traceback: TracebackType) -> Any:
    """The function that the user's line calls where it was, or None."""
    call = _call_at(traceback)
    return None if call is None else _value(call.func, traceback.tb_frame)


def _call_at(traceback: TracebackType) -> ast.Call | None:
    code = traceback.tb_frame.f_code
    place = list(code.co_positions())[traceback.tb_lasti // 2]
    lines = linecache.getlines(code.co_filename, traceback.tb_frame.f_globals)
    first, last, start, end = place
    if first is None or last is None or last > len(lines):
        return None
    part = [line.encode() for line in lines[first - 1 : last]]
    part[-1] = part[-1][:end]
    part[0] = part[0][start:]
    try:
        found = ast.parse(b"(" + b"".join(part) + b")", mode="eval").body
    except SyntaxError:
        return None
    return found if isinstance(found, ast.Call) else None


def _value(expression: ast.expr, frame: FrameType) -> Any:
    """What a dotted name means in a frame. Nothing is computed: of another expression
    that is asked for an attribute, it is taken for an array."""
    if isinstance(expression, ast.Name):
        name = expression.id
        return frame.f_locals.get(name, frame.f_globals.get(name))
    if not isinstance(expression, ast.Attribute):
        return None
    base = _value(expression.value, frame)
    if inspect.ismodule(base):
        return getattr(base, expression.attr, None)
    if base is None or isinstance(base, Value):
        return getattr(Value, expression.attr, None)
    return None


def _remedy(function: Any, keyword: str, name: str) -> str:
    parameters = [
        p.replace(annotation=p.empty)
        for p in inspect.signature(function).parameters.values()
    ]
    if parameters and parameters[0].name == "self":
        parameters = parameters[1:]
    names = [p.name for p in parameters]
    known = meant(keyword, names)
    place = _PLACES.get(keyword, len(names))
    text = f"It is {name}{inspect.Signature(parameters)}"
    if keyword in _NONE:
        return f"{text}: {_NONE[keyword]}."
    if known:
        kind = parameters[names.index(known)].kind
        star = "*" * (kind is inspect.Parameter.VAR_POSITIONAL)
        by_place = star or kind is inspect.Parameter.POSITIONAL_ONLY
        how = ", and goes by its place" if by_place else ""
        return f"{text}: `{keyword}` is `{star}{known}` here{how}."
    if place < len(names):
        return f"{text}: `{keyword}` is `{names[place]}` here, and goes by its place."
    return f"{text}."


def show_remedies() -> None:
    """Has them shown with errors that nobody catches: by Python and by IPython, which
    know who shows an error, but nobody who sees one pass. Once, however often the
    library is imported."""
    if not getattr(sys.excepthook, _MARK, False):
        sys.excepthook = _hook_before(sys.excepthook)
    python = sys.modules.get("IPython")
    shell = python.get_ipython() if python is not None else None
    # One function at most is told of errors there: another library's stays.
    if shell is not None and not shell.custom_exceptions:
        shell.set_custom_exc((TypeError,), _show_in_shell)


def _hook_before(shows: Callable[..., Any]) -> Callable[..., Any]:
    """A hook that adds a remedy, then has another one show the error."""

    def hook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        _add_safely(error)
        shows(kind, error, trace)

    setattr(hook, _MARK, True)
    return hook


def _show_in_shell(
    shell: Any, kind: Any, error: Any, trace: Any, tb_offset: int | None = None
) -> Any:
    _add_safely(error)
    text = shell.InteractiveTB.structured_traceback(
        kind, error, trace, tb_offset=tb_offset
    )
    shell._showtraceback(kind, error, text)
    return text


def _add_safely(error: BaseException) -> None:
    """Whatever goes wrong, the user's error is what is shown."""
    try:
        add_remedy(error)
    except Exception:
        return
