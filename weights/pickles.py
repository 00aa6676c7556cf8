"""Pickles of PyTorch, read by their opcodes. Nothing in them is called.

A pickle is a program for a small stack machine, and can call any function of Python.
Here is a machine of its own, which makes dicts, lists, tuples, numbers and strings; of
what a pickle refers to, it knows the names in `_KNOWN`, and refuses all others.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

DTYPES = {
    "bool": np.dtype(np.bool_),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "half": np.dtype(np.float16),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
}
_SAME_NAMES = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32"
_SAME_NAMES += " float64 complex64 complex128"
DTYPES |= {name: np.dtype(name) for name in _SAME_NAMES.split()}
_STORAGES = {
    "Bool": "bool",
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Float": "float32",
    "Double": "float64",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
# A few bytes can describe a tree of any size, by lists that hold one list twice.
_MOST_CONTAINERS = 1_000_000
_UNTYPED = np.dtype(np.uint8)


class Storage(NamedTuple):
    """The memory of tensors: of so many elements, under `key` in the file."""

    key: str
    dtype: np.dtype
    elements: int


class Tensor(NamedTuple):
    """A tensor as a pickle describes it: a view of a storage, in elements."""

    storage: Storage
    dtype: np.dtype
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Global(NamedTuple):
    """What a pickle refers to by name; `make` takes the arguments of a call of it."""

    name: str
    make: Callable[..., Any] | None = None
    value: Any = None


class _Mark:
    """Where the items of a container begin on the stack."""


def _tensor(
    storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any, dtype: Any = None
) -> Tensor:
    dtype = dtype or getattr(storage, "dtype", None)
    numbers = (offset, *shape, *strides)
    if (
        not isinstance(storage, Storage)
        or not isinstance(dtype, np.dtype)
        or len(shape) != len(strides)
        or not all(type(n) is int and n >= 0 for n in numbers)
    ):
        raise ValueError(
            f"a tensor of {storage!r:.80}, offset {offset!r:.20}, shape {shape!r:.60} "
            f"and strides {strides!r:.60}"
        )
    return Tensor(storage, dtype, offset, tuple(shape), tuple(strides))


def _tensor_v2(*args: Any) -> Tensor:
    if len(args) > 6 and args[6]:
        raise ValueError(f"a tensor that is a conjugate or negative view: {args[6]!r}")
    return _tensor(*args[:4])


def _tensor_v3(*args: Any) -> Tensor:
    dtype = args[6].value if isinstance(args[6], _Global) else None
    return _tensor(*args[:4], dtype=dtype)


def _of_type(function: Any, kind: Any, args: Any, state: Any) -> Any:
    """A tensor with attributes of its own, which are left out."""
    if not (
        isinstance(function, _Global)
        and function.make is not None
        and isinstance(kind, _Global)
        and kind.name in ("torch.Tensor", "torch.nn.parameter.Parameter")
    ):
        raise ValueError(f"a tensor of the class {kind!r:.80}")
    return function.make(*args)


def _first(value: Any, *rest: Any) -> Any:
    return value


def _dict(items: Iterable[tuple[Any, Any]] = ()) -> dict[Any, Any]:
    return dict(items)


def _known() -> Iterator[_Global]:
    yield _Global("torch._utils._rebuild_tensor", _tensor)
    yield _Global("torch._utils._rebuild_tensor_v2", _tensor_v2)
    yield _Global("torch._utils._rebuild_tensor_v3", _tensor_v3)
    yield _Global("torch._utils._rebuild_parameter", _first)
    yield _Global("torch._utils._rebuild_parameter_with_state", _first)
    yield _Global("torch._tensor._rebuild_from_type_v2", _of_type)
    yield _Global("collections.OrderedDict", _dict)
    yield _Global("torch.Size", tuple)
    yield _Global("torch.device", lambda *args: ":".join(map(str, args)))
    yield _Global("torch.Tensor")
    yield _Global("torch.nn.parameter.Parameter", _first)
    for name, dtype in DTYPES.items():
        yield _Global(f"torch.{name}", value=dtype)
    for kind, name in _STORAGES.items():
        for module in ("torch", "torch.cuda"):
            yield _Global(f"{module}.{kind}Storage", value=DTYPES[name])
    yield _Global("torch.storage.UntypedStorage", value=_UNTYPED)


_KNOWN = {known.name: known for known in _known()}
_NUMBERS = "BININT BININT1 BININT2 INT LONG LONG1 LONG4 FLOAT BINFLOAT"
_STRINGS = "UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 STRING BINSTRING"
_BYTES = "SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8"
_CONSTANTS = frozenset(f"{_NUMBERS} {_STRINGS} {_BYTES}".split())
_VALUES = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def read(data: Any, file: str) -> Any:
    """What a pickle holds: dicts, lists, tuples, numbers, strings, `Tensor`s.

    data: bytes, or an open file, which is read up to the pickle's end.
    file: its name, for errors.

    Raises:
      ValueError: if it refers to anything else, naming it, or is damaged.
    """
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            machine.step(opcode.name, argument)
        (result,) = machine.stack
    except _Refused as error:
        raise ValueError(
            f"{file} refers to `{error}`, which may run code when it is unpickled. "
            "Nothing was run.\nOnly tensors, numbers, strings, and dicts, lists and "
            "tuples of them are read. Save `model.state_dict()` alone, or the weights "
            "as safetensors."
        ) from None
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(
            f"{file} is not a pickle of tensors: {type(error).__name__}: {error}"
        ) from None
    return _values(result, file, count())


def _values(
    tree: Any, file: str, visited: Iterator[int], around: tuple[int, ...] = ()
) -> Any:
    """The tree with dtypes in place of their names; what is shared is copied."""
    if isinstance(tree, _Global):
        return tree.value if tree.value is not None else tree.name
    if type(tree) not in (dict, list, tuple):
        return tree
    if id(tree) in around:
        raise ValueError(f"{file} holds a {type(tree).__name__} that holds itself")
    if next(visited) > _MOST_CONTAINERS:
        raise ValueError(f"{file} holds more than {_MOST_CONTAINERS:,} containers")
    around = (*around, id(tree))
    if type(tree) is dict:
        return {k: _values(v, file, visited, around) for k, v in tree.items()}
    return type(tree)(_values(v, file, visited, around) for v in tree)


class _Refused(Exception):
    """A name that is not known."""


class _Machine:
    """The stack machine of pickles, without the opcodes that make instances."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        stack, push = self.stack, self.stack.append
        if name in _CONSTANTS:
            push(argument)
        elif name in _VALUES:
            push(_VALUES[name])
        elif name in _TUPLES:
            n = _TUPLES[name]
            items = tuple(stack[len(stack) - n :])
            del stack[len(stack) - n :]
            push(items)
        elif name == "MARK":
            push(_Mark)
        elif name in ("EMPTY_DICT", "EMPTY_LIST"):
            push({} if name == "EMPTY_DICT" else [])
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self.memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            push(self.memo[argument])
        elif name == "GLOBAL":
            push(_look_up(argument.replace(" ", ".")))
        elif name not in ("PROTO", "FRAME", "STOP"):
            action = getattr(self, f"_{name.lower()}", None)
            if action is None:
                raise _Refused(f"the opcode {name}")
            action(argument)

    def _items(self) -> list[Any]:
        """What is on the stack above the last mark, taken off."""
        place = len(self.stack) - 1 - self.stack[::-1].index(_Mark)
        items = self.stack[place + 1 :]
        del self.stack[place:]
        return items

    def _tuple(self, _: Any) -> None:
        self.stack.append(tuple(self._items()))

    def _list(self, _: Any) -> None:
        self.stack.append(self._items())

    def _dict(self, _: Any) -> None:
        items = self._items()
        self.stack.append(dict(zip(items[::2], items[1::2], strict=True)))

    def _append(self, _: Any) -> None:
        self.stack[-2].append(self.stack.pop())

    def _appends(self, _: Any) -> None:
        items = self._items()
        self.stack[-1].extend(items)

    def _setitem(self, _: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.stack[-1][key] = value

    def _setitems(self, _: Any) -> None:
        items = self._items()
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def _pop(self, _: Any) -> None:
        self.stack.pop()

    def _pop_mark(self, _: Any) -> None:
        self._items()

    def _dup(self, _: Any) -> None:
        self.stack.append(self.stack[-1])

    def _stack_global(self, _: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(_look_up(f"{module}.{name}"))

    def _reduce(self, _: Any) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, _Global) or function.make is None:
            raise _Refused(f"a call of {getattr(function, 'name', function)!r:.80}")
        self.stack.append(function.make(*args))

    _newobj = _reduce

    def _build(self, _: Any) -> None:
        # Attributes, such as the versions that a state_dict notes, are left out.
        self.stack.pop()
        if type(self.stack[-1]) not in (dict, Tensor):
            raise _Refused(f"attributes of {self.stack[-1]!r:.80}")

    def _binpersid(self, _: Any) -> None:
        kind, storage, key, _, count, *view = self.stack.pop()
        known = isinstance(storage, _Global) and isinstance(storage.value, np.dtype)
        if kind != "storage" or not known or type(count) is not int or any(view):
            raise ValueError(f"a storage {storage!r:.80} of {count!r:.20} elements")
        self.stack.append(Storage(str(key), storage.value, count))


def _look_up(name: str) -> _Global:
    try:
        return _KNOWN[name]
    except KeyError:
        raise _Refused(name) from None
