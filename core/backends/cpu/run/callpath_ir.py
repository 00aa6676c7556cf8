"""LLVM IR of the way from Python arguments to a program and back.

A function that Python calls (METH_FASTCALL), made for one signature by the words in the
bytes object that is its `self` (`callpath` writes them): `call(args, kwargs)` runs the
program on the leaves and gives its result, or `miss` for arguments of another structure
or type.

Only functions of CPython's stable ABI are called. What else must be known (where an
object has its type, where an Array has its slots) is measured by `callpath` and comes
in the header. Python code may run in the middle (`flatten`, `prepare`, `==`), and with
it any other thread: what is looked at is owned here as long as it is looked at, and
leaves until the program has run.

A signature is three readings (of captures, positional and named arguments)::

    leaf     0, type
    same     1, object
    items    2, type, size, count, count x (index, reading)
    entries  3, dict, size, count, count x (key, reading)
    fields   4, type, slots, slots x (offset, object), count, count x (key, reading)
    held     5, type, offset of the slot, structure, reading of the list
    parts    6, type, flatten, static part, its hash, reading of the children
    static   7, object, its hash

and a result is one of::

    leaf 0    none 1    tuple 2, count, parts    list 3, count, parts
    dict 4, count, count x (key, part)    call 5, function, first argument, count, parts
"""

from __future__ import annotations

from treadle.backends.cpu.run.callpath_read import READ
from treadle.backends.cpu.run.callpath_run import RESULT, RUN

HEADER = (
    # All signatures of a process have these.
    "type_offset",
    "none",
    "false",
    "zero",
    "form_kind",
    "form_aux",
    "form_children",
    "array",
    "array_type",
    "array_address",
    "array_buffer",
    "array_view",
    "buffer",
    "buffer_address",
    "buffer_nbytes",
    "buffer_block",
    "buffer_class",
    "prepare",
    "miss",
    # The arguments.
    "captured",
    "leaves",
    "reading",
    "donated",
    "donated_count",
    "marker",
    # The program.
    "execute",
    "program",
    "pool",
    "needs_start",
    "start",
    "slots",
    "arena",
    "outputs",
    "output_count",
    "constants",
    "constant_count",
    "fail",
    "result",
)
"""The first words; ``$name$`` stands for a place in the text."""

OUTPUT_WORDS = 6
"""Free list, what makes a block, size, size class (these also of the arena), type, and
of which donated argument the memory may be taken (-1: none)."""


def callpath_ir() -> str:
    """A module that defines `callpath`."""
    text = READ + RUN + RESULT + _CALL
    for place, name in sorted(enumerate(HEADER), key=lambda item: -len(item[1])):
        text = text.replace(f"${name}$", str(place))
    return text.replace("OUTPUT_WORDS", str(OUTPUT_WORDS)) + _DECLARATIONS


_DECLARATIONS = """
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyBytes_AsString(ptr)
declare i64 @PySequence_Size(ptr)
declare ptr @PySequence_GetItem(ptr, i64)
declare ptr @PyTuple_New(i64)
declare ptr @PyTuple_GetItem(ptr, i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyList_New(i64)
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare i32 @PyList_SetSlice(ptr, i64, i64, ptr)
declare ptr @PyDict_New()
declare i64 @PyDict_Size(ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare ptr @PyObject_GenericGetDict(ptr, ptr)
declare i64 @PyObject_Hash(ptr)
declare i32 @PyObject_RichCompareBool(ptr, ptr, i32)
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)
declare ptr @PyType_GenericAlloc(ptr, i64)
declare ptr @PyErr_Occurred()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
"""

# A frame is what a call needs at hand: [0] header, [1] list of leaves, [2] how many it
# has already, [3] array of their addresses, [4] whether donated arrays came once, [5]
# what these held.
_CALL = """
; Reads captures, args and kwargs one after the other. 1 if all is as it should be.
define internal i1 @arguments(ptr %frame, ptr %given) {
  %header = load ptr, ptr %frame
  %captured = call ptr @word(ptr %header, i64 $captured$)
  %place = call i64 @number(ptr %header, i64 $reading$)
  %pc = getelementptr i64, ptr %header, i64 %place
  %pc1 = call ptr @read(ptr %frame, ptr %captured, ptr %pc)
  %no1 = icmp eq ptr %pc1, null
  br i1 %no1, label %failed, label %positional
positional:
  %args = load ptr, ptr %given
  %pc2 = call ptr @read(ptr %frame, ptr %args, ptr %pc1)
  %no2 = icmp eq ptr %pc2, null
  br i1 %no2, label %failed, label %named
named:
  %kwargs = call ptr @word(ptr %given, i64 1)
  %pc3 = call ptr @read(ptr %frame, ptr %kwargs, ptr %pc2)
  %no3 = icmp eq ptr %pc3, null
  br i1 %no3, label %failed, label %done
done:
  ret i1 true
failed:
  ret i1 false
}

; Drops the leaves; gives miss, or null if an error is set.
define internal ptr @missed(ptr %header, ptr %leaves) {
  call void @Py_DecRef(ptr %leaves)
  %error = call ptr @PyErr_Occurred()
  %is_error = icmp ne ptr %error, null
  br i1 %is_error, label %failed, label %other
other:
  %miss = call ptr @word(ptr %header, i64 $miss$)
  call void @Py_IncRef(ptr %miss)
  ret ptr %miss
failed:
  ret ptr null
}

define ptr @callpath(ptr %self, ptr %given, i64 %count_of_arguments) {
  %header = call ptr @PyBytes_AsString(ptr %self)
  %count = call i64 @number(ptr %header, i64 $leaves$)
  %addresses = alloca ptr, i64 %count
  %frame = alloca ptr, i64 6
  %builder = alloca ptr, i64 4
  %leaves = call ptr @PyList_New(i64 %count)
  %no_leaves = icmp eq ptr %leaves, null
  br i1 %no_leaves, label %failed, label %read
read:
  store ptr %header, ptr %frame
  %leaves_at = getelementptr ptr, ptr %frame, i64 1
  store ptr %leaves, ptr %leaves_at
  %count_at = getelementptr ptr, ptr %frame, i64 2
  store ptr null, ptr %count_at
  %addresses_at = getelementptr ptr, ptr %frame, i64 3
  store ptr %addresses, ptr %addresses_at
  %fits = call i1 @arguments(ptr %frame, ptr %given)
  br i1 %fits, label %run, label %unknown
unknown:
  %answer = call ptr @missed(ptr %header, ptr %leaves)
  ret ptr %answer
run:
  %outs = call ptr @run(ptr %frame)
  call void @Py_DecRef(ptr %leaves)
  %no_outs = icmp eq ptr %outs, null
  br i1 %no_outs, label %failed, label %build
build:
  store ptr %header, ptr %builder
  %outs_at = getelementptr ptr, ptr %builder, i64 1
  store ptr %outs, ptr %outs_at
  %used_at = getelementptr ptr, ptr %builder, i64 2
  store ptr null, ptr %used_at
  %result_place = call i64 @number(ptr %header, i64 $result$)
  %result_pc = getelementptr i64, ptr %header, i64 %result_place
  %pc_at = getelementptr ptr, ptr %builder, i64 3
  store ptr %result_pc, ptr %pc_at
  %result = call ptr @build(ptr %builder)
  call void @Py_DecRef(ptr %outs)
  ret ptr %result
failed:
  ret ptr null
}
"""
