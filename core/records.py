"""Data classes that cost little until they are used: there are dozens that a process
loads and never makes an object of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, fields
from dataclasses import field as field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

_set = object.__setattr__


def _record(
    cls: Any = None,
    /,
    *,
    eq: bool = True,
    repr: bool = True,
    frozen: bool = False,
    slots: bool = False,
) -> Any:
    """`dataclasses.dataclass`, which writes and compiles six functions for a class at
    once: here none for comparing, hashing, showing and freezing, and that which makes
    objects when the first one is made."""
    if cls is None:
        return lambda cls: _record(cls, eq=eq, repr=repr, frozen=frozen, slots=slots)
    cls.__doc__ = cls.__doc__ or cls.__name__  # or its signature would be looked up
    cls = dataclass(init=False, eq=False, repr=False, slots=slots)(cls)
    added: dict[str, Any] = {"__init__": _first_init(cls, frozen)}
    if repr:
        added["__repr__"] = _repr
    if eq:
        values = _compared(cls)
        added["__eq__"] = _eq_of(values)
        added["__hash__"] = _hash_of(values) if frozen else None
    if frozen:
        names = [f.name for f in fields(cls)]
        added |= {
            "__setattr__": _set_of(cls, names),
            "__delattr__": _del_of(cls, names),
        }
        if slots:  # what copies and unpickles would set fields
            added |= {"__getstate__": _state, "__setstate__": _restore}
    for name, value in added.items():
        own = cls.__dict__.get(name, MISSING)
        # (A class that says how to compare has no hash, by Python itself.)
        if own is MISSING or (name == "__hash__" and own is None):
            setattr(cls, name, value)
    return cls


def _first_init(cls: Any, frozen: bool) -> Callable[..., None]:
    def __init__(self: Any, /, *args: Any, **kwargs: Any) -> None:
        cls.__init__ = made = _init_of(cls, frozen)
        made(self, *args, **kwargs)

    return __init__


def _init_of(cls: Any, frozen: bool) -> Callable[..., None]:
    """The function that makes objects."""
    known = {"_set": _set, "_missing": MISSING}
    head, body = ["self"], []
    assign = '_set(self, "{}", {})' if frozen else "self.{} = {}"
    for f in sorted(fields(cls), key=lambda f: bool(f.kw_only)):
        if f.init:
            if f.kw_only and "*" not in head:
                head.append("*")
            head.append(f.name + _default(f, known))
        if f.default_factory is not MISSING:
            known[f"_make_{f.name}"] = f.default_factory
            value = f"_make_{f.name}()"
            if f.init:
                value += f" if {f.name} is _missing else {f.name}"
        elif f.init:
            value = f.name
        elif f.default is not MISSING:
            value = _default(f, known)[1:]  # with slots, the class has none
        else:
            continue
        body.append(assign.format(f.name, value))
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    lines = "\n    ".join(body or ["pass"])
    exec(f"def __init__({', '.join(head)}):\n    {lines}\n", known)
    made: Any = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made  # type: ignore[no-any-return]


def _default(f: Field[Any], known: dict[str, Any]) -> str:
    if f.default_factory is not MISSING:
        return "=_missing"
    if f.default is MISSING:
        return ""
    known[f"_default_{f.name}"] = f.default
    return f"=_default_{f.name}"


def _compared(cls: Any) -> Callable[[Any], Any]:
    names = [f.name for f in fields(cls) if f.compare]
    return attrgetter(*names) if names else lambda self: ()


def _eq_of(values: Callable[[Any], Any]) -> Callable[..., Any]:
    def __eq__(self: Any, other: object) -> Any:
        if other.__class__ is self.__class__:
            return values(self) == values(other)
        return NotImplemented

    return __eq__


def _hash_of(values: Callable[[Any], Any]) -> Callable[[Any], int]:
    return lambda self: hash(values(self))


def _repr(self: Any) -> str:
    shown = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in fields(self)]


def _restore(self: Any, state: Sequence[Any]) -> None:
    for f, value in zip(fields(self), state, strict=True):
        _set(self, f.name, value)


def _set_of(cls: Any, names: Sequence[str]) -> Callable[..., None]:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    return __setattr__


def _del_of(cls: Any, names: Sequence[str]) -> Callable[..., None]:
    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __delattr__


if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:
    record = _record
