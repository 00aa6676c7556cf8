"""Module: a class whose instances are frozen pytrees."""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABCMeta
from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, dataclass_transform
from weakref import WeakKeyDictionary

import treadle as td
from treadle import tree
from treadle.errors import at, user_source
from treadle.names import method_instead
from treadle.nn.field import (
    Layout,
    always_child,
    entries_of,
    kept,
    layout_of,
    parts_of,
)
from treadle.nn.page import page
from treadle.nn.place import in_place
from treadle.nn.role import Mark, Marked, marks_in, strip
from treadle.nn.sharing import MISSING, Tie, at_place
from treadle.nn.show import describe
from treadle.reading import Fields, Held, Unreadable
from treadle.spellings import meant, unknown_keyword

_FROZEN = """\
can't assign to `{name}`: {owner} is a Module, and modules are frozen once made{at}
Make a new one: `module = module.replace({name}=...)`; for something deeper inside, \
`nn.at(module, lambda m: m.layer.weight).set(...)`."""
_UNSET = """\
`__init__` of {owner} left the annotated field `{name}` without a value{at}
Assign `self.{name}`, give the annotation a default, or remove it."""

Made = TypeVar("Made")


def _open(module: Module) -> bool:
    """Takes apart what a transformation made; False if that was done already."""
    held = module._held
    if held is None:
        return False
    leaves, form = held
    layout: Any = form.aux
    layout.fill(module.__dict__, tree.open_held(form, leaves))
    _set_held(module, None)
    return True


def _blank(cls: Any, layout: Layout | None, held: Any = None) -> Any:
    """An instance without fields."""
    made = object.__new__(cls)
    _set_layout(made, layout)
    _set_held(made, held)
    return made


def fields_of(module: Module) -> dict[str, Any]:
    """The fields by name, in the order in which `__init__` set them."""
    _open(module)
    return module.__dict__


def _flatten(module: Module) -> tuple[Sequence[Any], Layout]:
    _open(module)
    layout = module._layout
    if layout is None:  # flattened inside its own `__init__`
        given = _given(module)
        layout = layout_of(type(module), entries_of(type(module), given), False)
        return layout.take({n: strip(x) for n, x in given.items()}), layout
    return layout.take(module.__dict__), layout


def _unflatten(cls: Any, layout: Layout, children: Sequence[Any]) -> Any:
    made = _blank(cls, layout)
    layout.fill(made.__dict__, children)
    return made


def _hold(form: tree.Structure, leaves: list[Any]) -> Any:
    layout: Any = form.aux
    if not layout.lazy:
        return _unflatten(form.kind, layout, tree.open_held(form, leaves))
    return _blank(form.kind, layout, (leaves, form))


def _held(module: Module) -> tuple[list[Any], tree.Structure] | None:
    return module._held


def _read(module: Module) -> Held | Fields:
    layout = module._layout
    if layout is None:
        raise Unreadable
    if module._held is not None:
        return Held(type(module), "_held", module._held[1])
    slots = (("_layout", layout), ("_held", None))
    return Fields(type(module), slots, layout.read(module.__dict__))


@dataclass_transform(kw_only_default=False)
class ModuleType(ABCMeta):
    """The class of Module classes: makes each a pytree, and freezes its instances."""

    _may_be_lazy: bool
    _required: frozenset[str]
    _checks: tuple[Callable[[Any], None], ...]

    def __init__(cls, name: str, bases: tuple, namespace: dict, **kwargs: Any) -> None:
        super().__init__(name, bases, namespace, **kwargs)
        call: Any = namespace.get("__call__")
        if isinstance(call, FunctionType):
            cls.__call__ = in_place(call)  # type: ignore[method-assign]
        # An inherited `__init__` that somebody wrote stays.
        init: Any = cls.__init__  # type: ignore[misc]
        generate = init is object.__init__ or hasattr(init, "_generated")
        as_dataclass: Any = dataclasses.dataclass(init=generate, eq=False, repr=False)
        as_dataclass(cls)
        if generate:
            cls.__init__._generated = True  # type: ignore[misc]
        cls._required = frozenset(
            f.name
            for f in dataclasses.fields(cls)  # type: ignore[arg-type]
            if f.default is f.default_factory is dataclasses.MISSING
        )
        own_checks = [base.__dict__.get("__check_init__") for base in cls.__mro__]
        cls._checks = tuple([check for check in reversed(own_checks) if check])
        if "_may_be_lazy" not in namespace:
            own = not {"__getattr__", "__getattribute__"} & namespace.keys()
            cls._may_be_lazy = own and all(
                getattr(b, "_may_be_lazy", not hasattr(b, "__getattr__")) for b in bases
            )
        always_child(cls)
        tree.register(
            cls,
            _flatten,
            partial(_unflatten, cls),
            lambda layout, n: layout.paths,
            constant=lambda layout: layout.constants,
            hold=_hold,
            held=_held,
            read=_read,
            shared=lambda layout: layout.ties,
        )

    def __call__(cls: type[Made], *args: Any, **kwargs: Any) -> Made:
        made = _blank(cls, None)
        try:
            made.__init__(*args, **kwargs)
        except TypeError as error:
            # Raised by the call itself: the arguments don't fit.
            if error.__traceback__ is not None and not error.__traceback__.tb_next:
                error.add_note(_called_as(cls, unknown_keyword(error)))
            raise
        _seal(made)
        for check in cls._checks:  # type: ignore[attr-defined]
            check(made)
        return made

    @property
    def __signature__(cls) -> inspect.Signature:
        whole = inspect.signature(cls.__init__)  # type: ignore[misc]
        return whole.replace(parameters=list(whole.parameters.values())[1:])


class Module(metaclass=ModuleType):
    """A layer or a model: fields, set in `__init__`, and usually a `__call__`.

    Instances are frozen pytrees. Fields that are arrays, Modules, or containers of them
    are children; all other fields are static (`treadle.nn.field`). A class without
    `__init__` gets one that takes its annotated fields, as a dataclass does. Modules
    compare and hash by identity.

    A layer that stands in two places, however deep, is one: its arrays are leaves once,
    at the first place, gradients add up, and what a transformation returns has it in
    both places again. So is what one `nn.Param` gave to two fields. An array that is
    assigned to two fields becomes two at the first transformation, trained apart.

    ``__check_init__(self)``, of a class and of each of its bases, runs after the
    constructor: it may look at the fields and raise.

    What a transformation returns is not taken apart until somebody looks at a field:
    between two jitted steps a model is a list of arrays.

    >>> import treadle as td, treadle.numpy as tnp
    >>> class Scale(Module):
    ...     factor: td.Array
    ...     power: int = 1
    ...
    ...     def __call__(self, x):
    ...         return x * self.factor**self.power
    >>> scale = Scale(tnp.array([1.0, 2.0]), power=2)
    >>> scale
    Scale(factor=f32[2], power=2)
    >>> td.grad(lambda s: s(3.0).sum())(scale).factor
    Array([ 6., 12.], dtype=float32)
    """

    __slots__ = ("__dict__", "__weakref__", "_held", "_layout")
    _may_be_lazy = True
    if TYPE_CHECKING:
        # Of the instance; said so that no constructor takes them.
        _held: ClassVar[tuple[list[Any], tree.Structure] | None]
        _layout: ClassVar[Layout | None]

    def __init_subclass__(cls, *, init: bool = True) -> None:
        """init: False tells type checkers that the constructor is that of a base."""
        super().__init_subclass__()

    def replace(self, **fields: Any) -> Self:
        """A copy with other values in some fields.

        What is not trained stays so (`nn.Buffer`, `nn.freeze`). A layer that is
        replaced in one of two places stands alone there; `nn.at` replaces both.

        Raises:
          TypeError: if there is no such field.
        """
        for name in fields:
            if name not in fields_of(self):
                raise TypeError(_missing(self, name))
        return with_fields(self, fields)

    def _copied(self) -> Self:
        """A copy that shares the layout."""
        _open(self)
        made = _blank(type(self), self._layout)
        made.__dict__.update(self.__dict__)
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        if self._layout is not None:
            raise AttributeError(
                _FROZEN.format(
                    name=name, owner=type(self).__name__, at=at(user_source())
                )
            )
        if isinstance(value, Mark):
            # The default of a class is there for each of its instances.
            shared = value is getattr(type(self), name, None)
            mark = Mark(value.value, value.role) if shared else value
            _pending.setdefault(self, {})[name] = mark
            value = strip(value)
        elif _pending and self in _pending:
            _pending[self].pop(name, None)
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(
            _FROZEN.format(name=name, owner=type(self).__name__, at=at(user_source()))
        )

    if not TYPE_CHECKING:  # else no checker would find a misspelt name

        def __getattr__(self, name: str) -> Any:
            # Called only where ordinary lookup fails: for fields not yet taken apart.
            if name.startswith("__") or name in Module.__slots__:
                raise AttributeError(
                    f"{type(self).__name__!r} has no attribute {name!r}"
                )
            if _open(self):
                return getattr(self, name)
            if hasattr(type(self), name):  # a property that failed: let it say why
                return object.__getattribute__(self, name)
            raise AttributeError(_missing(self, name), name=name)

    def __dir__(self) -> list[str]:
        _open(self)
        return list(super().__dir__())

    def __repr__(self) -> str:
        return describe(type(self).__name__, self._shown())

    def _repr_html_(self) -> str:
        return page(type(self).__name__, self, self._shown())

    def __treescope_repr__(self, path: str | None, subtree_renderer: Any) -> Any:
        # Treescope calls this, so it is there.
        from treescope.repr_lib import render_object_constructor

        return render_object_constructor(
            type(self), self._shown(), path, subtree_renderer
        )

    def _shown(self) -> dict[str, Any]:
        # That a layer computes in the dtype of its parameters goes without saying.
        return {
            name: value
            for name, value in fields_of(self).items()
            if name != "dtype" or value is not None
        }

    def __getstate__(self) -> tuple[dict[str, Any], Layout | None]:
        _open(self)
        return self.__dict__, self._layout

    def __setstate__(self, state: tuple[dict[str, Any], Layout | None]) -> None:
        _set_held(self, None)
        _set_layout(self, state[1])
        self.__dict__.update(state[0])


_set_layout = Module.__dict__["_layout"].__set__
_set_held = Module.__dict__["_held"].__set__


Kind = TypeVar("Kind", bound=Module)


def with_fields(module: Kind, fields: dict[str, Any]) -> Kind:
    """A copy with other values in some fields, or with more of these."""
    made = _blank(type(module), None)
    made.__dict__.update(fields_of(module) | fields)
    _seal(made, module)
    return made


_pending: WeakKeyDictionary[Module, dict[str, Mark]] = WeakKeyDictionary()
"""What fields were assigned, where it was marked, of modules that are being made."""
_marked: WeakKeyDictionary[Module, list[Marked]] = WeakKeyDictionary()
"""Which marks modules were made with: one may stand in another module, too."""


def _given(module: Module) -> dict[str, Any]:
    """What the fields of a module that is being made were assigned."""
    return module.__dict__ | _pending[module] if module in _pending else module.__dict__


def _seal(module: Module, before: Module | None = None) -> None:
    """before: the one of which this is a copy with other fields."""
    cls, fields = type(module), module.__dict__
    if not cls._required <= fields.keys():
        name = min(cls._required - fields.keys())
        raise TypeError(
            _UNSET.format(owner=cls.__name__, name=name, at=at(user_source()))
        )
    given = _given(module)
    _pending.pop(module, None)
    old = before._layout if before is not None else None
    had = [e for e in old.entries if e.role or e.template] if old is not None else ()
    as_before = {str(e.name): kept(given[str(e.name)], e) for e in had}
    entries = entries_of(cls, given | as_before if had else given)
    children = [str(e.name) for e in entries if not e.static]
    marks: list[Marked] = []
    for name in children:
        found = list(marks_in(given[name], (tree.Attribute(name),)))
        if found:
            marks += found
            fields[name] = strip(given[name])
    if before is not None:
        marks += [m for m in _marked.get(before, ()) if _is_same(m[0], before, module)]
    if marks:
        _marked[module] = marks
    ties = _ties(fields, children, marks)
    if old is not None:
        ties += tuple([t for t in old.ties if _still(t, ties, fields)])
    _set_layout(module, layout_of(cls, entries, cls._may_be_lazy, ties))


def _is_same(path: tree.Path, before: Module, module: Module) -> bool:
    found = at_place(before.__dict__, path)
    return found is not MISSING and found is at_place(module.__dict__, path)


def _still(tie: Tie, ties: tuple[Tie, ...], fields: dict[str, Any]) -> bool:
    """Whether an array still stands in both places of a tie."""
    first, other = tie
    found = at_place(fields, first)
    return (
        td.is_array(found)
        and found is at_place(fields, other)
        and not any(p[: len(o)] == o for _, o in ties for p in tie)
    )


def _ties(
    fields: dict[str, Any], children: Sequence[str], marks: Sequence[Marked]
) -> tuple[Tie, ...]:
    """What stands in two places of a module."""
    # By identity: the part of the module in which something was first met, and where.
    seen: dict[int, tuple[tree.Path, tree.Path]] = {}
    ties: list[Tie] = []

    def is_new(part: tree.Path, here: tree.Path, value: Any) -> bool:
        known, first = seen.setdefault(id(value), (part, here))
        # What is in one part twice is that part's own affair.
        if known != part and (isinstance(value, Mark) or tree.leaves(value)):
            ties.append((first, here))
        return first is here

    def walk(module: Module, part: tree.Path, path: tree.Path) -> None:
        if module._held is None and module._layout is not None:
            look(module.__dict__, module._layout.children, part, path)
            for place, mark in _marked.get(module, ()):
                is_new(part, (*path, *place), mark)

    def look(
        fields: dict[str, Any], names: Sequence[str], part: tree.Path, path: tree.Path
    ) -> None:
        for place, value in parts_of(fields, names):
            here = (*path, *place)
            if is_new(part or here, here, value) and isinstance(value, Module):
                walk(value, part or here, here)

    look(fields, children, (), ())
    for place, mark in marks:
        is_new(place, place, mark)
    return tuple(ties)


def _called_as(cls: Any, unknown: str | None) -> str:
    parameters = [
        p.replace(annotation=p.empty)
        for p in inspect.signature(cls).parameters.values()
    ]
    text = f"It is {cls.__name__}{inspect.Signature(parameters)}."
    names = [p.name for p in parameters]
    if unknown is not None and (known := meant(unknown, names)):
        text += f" `{unknown}` is `{known}` here."
    if "key" in names and unknown in (None, "rngs"):
        text += " Random keys come from `rng.key(0)` and `rng.split(key)`."
    return text


def _missing(module: Module, name: str) -> str:
    fields = ", ".join(module.__dict__) or "(none)"
    remedy = method_instead(name)
    return (
        f"{type(module).__name__} has no field `{name}`; its fields are {fields}"
        f"{at(user_source())}" + (f"\n{remedy}" if remedy else "")
    )
