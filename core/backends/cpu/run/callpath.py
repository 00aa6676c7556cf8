"""Calls without Python in between: from a jitted function's arguments to its result.

`caller` makes a function of ``(args, kwargs)`` for one signature and one program: a
native one, which compares the addresses of types, collects those of the elements, runs
the program and wraps its results. It gives NotImplemented for arguments that the
signature does not describe. There is none where native code can't do this: on
interpreters other than CPython with its global lock.

CPython's structs differ between versions, so nothing here knows one: where an object
has its type and its slots is found by looking, and `available` tries all of it once.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
import sysconfig
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from treadle.arraytype import ArrayType
from treadle.backends.cpu.run import native
from treadle.backends.cpu.run.callpath_ir import HEADER, OUTPUT_WORDS, callpath_ir
from treadle.backends.cpu.run.executor import ProgramBuilder
from treadle.backends.memory import Buffer, SizeClass, size_class
from treadle.plan.calls import Path, Run, Signature
from treadle.reading import (
    Entries,
    Fields,
    Held,
    Items,
    Leaf,
    Parts,
    Reading,
    Same,
    Static,
)
from treadle.run.array import Array
from treadle.structure import BUILT_IN, LEAF, Structure, node_of

MOST_LEAVES = 4096
"""Addresses of more would not fit on the stack."""

_PLACES = {name: i for i, name in enumerate(HEADER)}


def caller(signature: Signature, run: Run) -> Path | None:
    """A function that runs a program and gives its result, a pytree."""
    if len(signature.types) > MOST_LEAVES or not available():
        return None
    return _function(signature, run)


def caller_like(path: Path, types: Sequence[ArrayType], run: Run) -> Path | None:
    """The same function for a program of other sizes; None for one that is not native.
    Much quicker than to read the arguments again."""
    if type(path) is not BuiltinFunctionType:
        return None
    made: Any = path
    words = bytearray(made.__self__)
    signature, before, leaves, objects, *_ = made.__module__
    keep: list[Any] = []

    def put(at: int, *values: Any) -> None:
        struct.pack_into(f"{len(values)}q", words, 8 * at, *values)

    def header(name: str) -> int:
        return struct.unpack_from("q", words, 8 * _PLACES[name])[0]

    for at, t, old in zip(leaves, types, signature.types, strict=True):
        if t is not old:
            put(at, id(t))
    at = header("outputs")
    for given, old in zip(run.outputs, before.outputs, strict=True):
        if given is not old:
            t, blocks, _ = given
            put(at, *map(id, _memory(blocks, t.nbytes, keep)), id(t))
        at += OUTPUT_WORDS
    put(header("arena"), *map(id, _memory(run.arena, run.arena.size, keep)))
    put(header("constants"), *run.constants)
    put(_PLACES["slots"], run.slots)
    put(_PLACES["program"], run.program.native()[1])
    like = signature._replace(types=types)
    make, definition = _make()
    kept = like, run, leaves, objects, keep, definition
    return make(definition, bytes(words), kept)


def _function(signature: Signature, run: Run) -> Path:
    make, definition = _make()
    made = _Words(signature, run)
    words = struct.pack(f"{len(made.words)}q", *made.words)
    # All outlive every call of the function: the words as its `self`, the objects that
    # they and itself point to as its `__module__`. (Of threads that were here first
    # together, each has a definition, of which one is remembered.)
    return make(
        definition, words, (signature, run, made.leaves, made.keep, (), definition)
    )


def _memory(blocks: SizeClass, nbytes: int, keep: list[Any]) -> list[Any]:
    """The objects with which a block is allocated. They are kept."""
    found = [blocks.free, blocks.new_block, nbytes, blocks]
    keep += found
    return found


class _Words:
    """Writes what `callpath_ir` reads.

    keep: objects to which the words point. leaves: the places of the leaves' types.
    """

    def __init__(self, signature: Signature, run: Run) -> None:
        self.words: list[int] = [0] * len(HEADER)
        self.keep: list[Any] = []
        self.leaves: list[int] = []
        self._types = iter(signature.types)
        header = _measured() | {
            "prepare": self.object(signature.prepare),
            "captured": self.object(signature.captured),
            "leaves": len(signature.types),
            "reading": self.here(),
        }
        captured = [(i, Leaf()) for i, _ in enumerate(signature.captured)]
        self.read(Items(tuple, len(captured), tuple(captured)))
        self.read(signature.args)
        self.read(signature.kwargs)
        header |= self._run(run)
        for name, value in header.items():
            self.words[_PLACES[name]] = value

    def here(self) -> int:
        """The place of the next word."""
        return len(self.words)

    def object(self, value: Any) -> int:
        """A word that points to an object."""
        self.keep.append(value)
        return id(value)

    def read(self, reading: Reading) -> None:
        """Appends a reading."""
        match reading:
            case Leaf():
                self.leaves.append(self.here() + 1)
                self.words += [0, self.object(next(self._types))]
            case Same(value):
                self.words += [1, self.object(value)]
            case Static(value, known):
                self.words += [7, self.object(value), known]
            case Items(kind, size, children):
                self.words += [2, self.object(kind), size]
                self._children(children)
            case Entries(size, children):
                self.words += [3, id(dict), size]
                self._children([(self.object(key), child) for key, child in children])
            case Fields(kind, slots, children):
                self.words += [4, self.object(kind), len(slots)]
                for name, value in slots:
                    self.words += [slot_offset(kind, name), self.object(value)]
                self._children([(self.object(key), child) for key, child in children])
            case Held(kind, slot, form):
                offset = slot_offset(kind, slot)
                self.words += [5, self.object(kind), offset, self.object(form)]
                leaves = tuple([(i, Leaf()) for i in range(form.count)])
                self.read(Items(list, form.count, leaves))
            case Parts(kind, flatten, aux, children):
                self.words += [6, *map(self.object, (kind, flatten, aux.value))]
                self.words.append(aux.hash)
                self.read(children)

    def _children(self, children: Sequence[tuple[Any, Reading]]) -> None:
        self.words.append(len(children))
        for word, child in children:
            self.words.append(word)
            self.read(child)

    def _run(self, run: Run) -> dict[str, int]:
        places = {"arena": self.here()}
        self.words += map(id, _memory(run.arena, run.arena.size, self.keep))
        places["outputs"] = self.here()
        given_up = {leaf: place for place, leaf in enumerate(run.donated)}
        for type_, blocks, taken in run.outputs:
            self.words += map(id, _memory(blocks, type_.nbytes, self.keep))
            self.words += [self.object(type_), given_up.get(taken, -1)]
        places["donated"] = self.here()
        self.words += run.donated
        places["constants"] = self.here()
        self.words += run.constants
        places["result"] = self.here()
        self._result(run.form)
        execute, program, pool = run.program.native()
        return places | {
            "execute": execute,
            "program": program,
            "pool": self.object(pool),
            "needs_start": self.object(sys.intern("needs_start")),
            "start": self.object(pool.start),
            "slots": run.slots,
            "output_count": len(run.outputs),
            "constant_count": len(run.constants),
            "donated_count": len(run.donated),
            "marker": self.object(run.marker),
            "fail": self.object(run.fail),
        }

    def _result(self, form: Structure) -> None:
        """Appends how to build a pytree of Arrays, as `Structure.unflatten` does."""
        if form is LEAF:
            self.words.append(0)
            return
        if form.is_none:
            self.words.append(1)
            return
        kind: Any = form.kind
        node, count = node_of(kind), len(form.children)
        assert node is not None
        if node.hold is not None:
            self.words += [5, *map(self.object, (node.hold, form)), form.count]
            self.words += [0] * form.count
        elif kind is dict and node is BUILT_IN[dict]:
            self.words += [4, count]
            for key, child in zip(form.keys(), form.children, strict=True):
                self.words.append(self.object(key))
                self._result(child)
        else:
            if node is BUILT_IN.get(kind):
                self.words += [2 if kind is tuple else 3, count]
            else:
                first = self.object(form.aux)
                self.words += [5, self.object(node.unflatten), first, count]
            for child in form.children:
                self._result(child)


# What the interpreter's objects look like


@functools.cache
def slot_offset(kind: type, name: str) -> int:
    """Where instances of a class have the slot of that name, in bytes."""
    owner: Any = next(c for c in kind.__mro__ if name in c.__dict__)
    places = [_places(owner, name, value) for value in ([1], [2])]
    (offset,) = set.intersection(*places)
    return offset


def _places(owner: Any, name: str, value: Any) -> set[int]:
    """Where in a new instance there is a pointer to a slot's value."""
    kind = owner
    if hasattr(owner, "__del__"):  # which would not understand an empty instance
        kind = type(owner.__name__, (owner,), {"__slots__": (), "__del__": _ignore})
    made = object.__new__(kind)
    owner.__dict__[name].__set__(made, value)
    count = owner.__basicsize__ // 8
    words = (ctypes.c_size_t * count).from_address(id(made))
    return {8 * i for i in range(count) if words[i] == id(value)}


def _ignore(value: Any) -> None:
    pass


@functools.cache
def _measured() -> dict[str, int]:
    offset = object.__basicsize__ - 8
    for value in (None, 1, "a", (), Array, [2]):
        found = ctypes.c_size_t.from_address(id(value) + offset).value
        if found != id(type(value)):
            raise NotImplementedError("objects have their types elsewhere")
    return {
        "type_offset": offset,
        "none": id(None),
        "false": id(False),
        "zero": id(0),
        "form_kind": slot_offset(Structure, "kind"),
        "form_aux": slot_offset(Structure, "aux"),
        "form_children": slot_offset(Structure, "children"),
        "miss": id(NotImplemented),
        "array": id(Array),
        "array_type": slot_offset(Array, "type"),
        "array_address": slot_offset(Array, "_address"),
        "array_buffer": slot_offset(Array, "_buffer"),
        "array_view": slot_offset(Array, "_view"),
        "buffer": id(Buffer),
        "buffer_address": slot_offset(Buffer, "address"),
        "buffer_nbytes": slot_offset(Buffer, "nbytes"),
        "buffer_block": slot_offset(Buffer, "_block"),
        "buffer_class": slot_offset(Buffer, "_size_class"),
    }


SOURCE = native.Source("callpath", "callpath", callpath_ir, level=0)
"""Nearly all of its time goes to CPython's functions, and there is a lot of code."""


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_METH_FASTCALL = 0x80


@functools.cache
def _make() -> tuple[Callable[[_Method, bytes, Any], Path], _Method]:
    """Makes the native function of Python's, from its definition, its words and what
    they point to; and its definition, which must live as long as it."""
    address = native.load([SOURCE])[SOURCE.key]
    definition = _Method(b"call", address, _METH_FASTCALL, None)
    make: Any = ctypes.pythonapi.PyCFunction_NewEx
    make.argtypes = [ctypes.POINTER(_Method), ctypes.py_object, ctypes.py_object]
    make.restype = ctypes.py_object
    return make, definition


@functools.cache
def available() -> bool:
    """Whether native paths work here."""
    cpython = sys.implementation.name == "cpython"
    if not cpython or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    try:
        return _works()
    except (native.NativeError, NotImplementedError, AttributeError, ValueError):
        return False


def _works() -> bool:
    """Calls an empty program, and looks at what comes back."""
    given = Array(np.zeros(3, np.float32))
    given.address()
    args = Items(tuple, 2, ((0, Items(list, 1, ((0, Leaf()),))), (1, Same(None))))
    kwargs = Entries(1, (("x", Leaf()),))
    types = [given.type, given.type]
    signature = Signature((), args, kwargs, types, lambda leaf: None)
    program, pool = ProgramBuilder(slots=4).build(), size_class(64)
    outputs, form = [(given.type, pool, -1)], Structure(tuple, None, (LEAF,))
    run = Run(program, pool, 0, outputs, [], [], None, lambda: None, form)
    call = _function(signature, run)
    if call(([given], 1), {"x": given}) is not NotImplemented:
        return False
    (made,) = call(([given], None), {"x": given})
    buffer, view = made.memory
    same = made.type is given.type and made.address() == buffer.address
    return type(made) is Array and view is None and same
