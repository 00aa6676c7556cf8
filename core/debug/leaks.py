"""check_leaks: traced values that outlive their trace, and what holds them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from types import CellType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

from treadle.errors import LeakError, at, is_ours, user_source
from treadle.trace.value import Tracer

_LEAKED = """\
{count} outlived the transform (jit, grad, vmap, scan…) that traced it{at}
{leaks}
Return such values from the transformed function instead of storing them."""

_MOST_SHOWN = 4
_DEEPEST = 8


@contextmanager
def check_leaks() -> Iterator[None]:
    """Finds traced values that functions in the block have left behind: in a global, an
    attribute, a list… A use of one would be an error, maybe much later.

    All objects of the process are looked through at the end of the block: a matter of a
    tenth of a second.

    Raises:
      LeakError: at the end of the block; it says where each was made and what holds it.

    >>> import treadle as td
    >>> seen = []
    >>> with td.debug.check_leaks():
    ...     y = td.jit(lambda x: seen.append(x * 2) or x)(1.0)
    Traceback (most recent call last):
    treadle.errors.LeakError: 1 traced value outlived the transform...
    """
    before = _dead()
    yield
    gc.collect()
    known = {id(x) for x in before}
    leaked = [x for x in _dead() if id(x) not in known]
    if leaked:
        count = f"{len(leaked)} traced value{'s' * (len(leaked) > 1)}"
        shown = "\n".join([_described(x, leaked) for x in leaked[:_MOST_SHOWN]])
        raise LeakError(_LEAKED.format(count=count, at=at(user_source()), leaks=shown))


def _dead() -> list[Tracer]:
    """All tracers whose transform has returned, but for what others were made of."""
    _forget_origins()
    return _all_dead()


def _forget_origins() -> None:
    for x in _all_dead():
        if hasattr(x, "origin"):
            del x.origin


def _all_dead() -> list[Tracer]:
    return [
        x
        for x in gc.get_objects()
        if issubclass(type(x), Tracer) and not x.interpreter.alive
    ]


def _described(tracer: Tracer, leaked: list[Tracer]) -> str:
    made = tracer.made() or tracer.interpreter.called_at
    holder = _holder(tracer, leaked) or "something that Python does not tell"
    return f"  {tracer.type}, made at {made}\n    held by {holder}"


def _holder(tracer: Tracer, leaked: list[Tracer]) -> str:
    """The way to a leaked value from something that has a name."""
    seen = {id(leaked)}
    waiting: list[tuple[Any, str, int]] = [(tracer, "", 0)]
    found = ""
    while waiting:
        item, path, depth = waiting.pop(0)
        for holder in gc.get_referrers(item):
            if id(holder) in seen or holder is waiting or depth == _DEEPEST:
                continue
            seen.add(id(holder))
            way = _way(holder, item, path)
            if way is None:
                continue
            if way.named:
                return way.text
            waiting.append((way.holder, way.text, depth + 1))
            if not isinstance(holder, dict | list | tuple | CellType):
                found = found or f"`{way.text}` of a {type(holder).__name__}"
    return found


class _Way(NamedTuple):
    """How an object holds a value: what stands behind its name; or, if `named`, the
    whole in words."""

    holder: Any
    text: str
    named: bool = False


def _way(holder: Any, item: Any, path: str) -> _Way | None:
    """How one object holds another, from which `path` leads on; None if it is of the
    library's, or that can't be told."""
    if isinstance(holder, FrameType):
        return _by_frame(holder, item, path)
    if isinstance(holder, dict):
        return _by_dict(holder, item, path)
    if isinstance(item, CellType) and isinstance(holder, tuple):
        return _by_function(holder, item, path)
    if isinstance(holder, list | tuple):
        i = next((i for i, x in enumerate(holder) if x is item), None)
        return None if i is None else _Way(holder, f"[{i}]{path}")
    if isinstance(holder, CellType):
        return _Way(holder, path)
    for name in _attributes(holder):
        if getattr(holder, name, None) is item:
            return _Way(holder, f".{name}{path}")
    return None


def _by_frame(frame: FrameType, item: Any, path: str) -> _Way | None:
    code = frame.f_code
    if is_ours(code.co_filename):
        return None
    name = next((n for n, x in frame.f_locals.items() if x is item), None)
    if name is None:
        return None
    text = f"`{name}{path}`, a variable of {code.co_name} ({code.co_filename})"
    return _Way(frame, text, True)


def _by_dict(holder: dict[Any, Any], item: Any, path: str) -> _Way | None:
    key = next((k for k, x in holder.items() if x is item), None)
    if key is None:
        return None
    for owner in gc.get_referrers(holder):
        if isinstance(owner, type) and owner.__dict__.get(key) is item:
            return _Way(owner, f"`{owner.__qualname__}.{key}{path}`, of a class", True)
        if getattr(owner, "__dict__", None) is not holder:
            continue
        if isinstance(owner, ModuleType):
            text = f"`{key}{path}`, a global of the module {owner.__name__}"
            return _Way(owner, text, True)
        return _Way(owner, f".{key}{path}")
    return _Way(holder, f"[{key!r}]{path}")


def _by_function(cells: tuple, item: Any, path: str) -> _Way | None:
    for owner in gc.get_referrers(cells):
        if isinstance(owner, FunctionType) and owner.__closure__ is cells:
            code, i = owner.__code__, [c is item for c in cells].index(True)
            text = (
                f"`{code.co_freevars[i]}{path}`, a variable that {owner.__qualname__} "
                f"closes over ({code.co_filename}:{code.co_firstlineno})"
            )
            return _Way(owner, text, True)
    return None


def _attributes(holder: Any) -> list[str]:
    """The names under which an object may hold others."""
    names = [n for kind in type(holder).__mro__ for n in _slots(kind)]
    return names + list(getattr(holder, "__dict__", ()))


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)
