"""Python's instructions, by what they mean to who looks for what code reads; and names
by what is done by them."""

from __future__ import annotations

import dis
import sys


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


METHODS = _words(
    "append appendleft extend extendleft insert pop popleft popitem remove clear sort "
    "reverse rotate update add discard setdefault subtract move_to_end fill put "
    "itemset partition resize intersection_update difference_update setflags "
    "symmetric_difference_update __setitem__ __delitem__ __setattr__"
)
FUNCTIONS = _words(
    "setattr delattr next heappush heappop heapify heapreplace heappushpop insort "
    "insort_left insort_right shuffle copyto place putmask fill_diagonal "
    "put_along_axis setitem delitem iadd"
)
# What looks at all items of its arguments, or asks how many there are.
LOOKERS = _words(
    "all any dict enumerate frozenset iter list map max min reversed set sorted sum "
    "tuple zip"
)
WHOLE_METHODS = _words("items values keys copy index count")
# What instructions mean here. (All others end what is on the stack.)
_KINDS = {
    "CACHE": "skip",
    "COPY": "copy",
    "NOP": "skip",
    "PUSH_NULL": "skip",
    "PRECALL": "skip",
    "EXTENDED_ARG": "extended",
    "LOAD_GLOBAL": "global",
    "LOAD_NAME": "name",
    "LOAD_FROM_DICT_OR_GLOBALS": "name",
    "LOAD_FAST": "local",
    "LOAD_FAST_CHECK": "local",
    "LOAD_FAST_BORROW": "local",
    "LOAD_DEREF": "variable",
    "LOAD_CLASSDEREF": "variable",
    "LOAD_FROM_DICT_OR_DEREF": "variable",
    "LOAD_FAST_LOAD_FAST": "two locals",
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": "two locals",
    "LOAD_ATTR": "attribute",
    "LOAD_METHOD": "attribute",
    "LOAD_CONST": "constant",
    "BINARY_SUBSCR": "subscript",
    "BINARY_SLICE": "slice",
    "BUILD_SLICE": "combine",
    "BUILD_TUPLE": "combine",
    "BUILD_STRING": "combine",
    "FORMAT_VALUE": "combine 1",
    "FORMAT_SIMPLE": "combine 1",
    "UNARY_NEGATIVE": "combine 1",
    "KW_NAMES": "names",
    "CALL": "call",
    "CALL_KW": "call",
    "GET_ITER": "every",
    "UNPACK_SEQUENCE": "every",
    "UNPACK_EX": "every",
    "LIST_EXTEND": "every",
    "SET_UPDATE": "every",
    "DICT_UPDATE": "every",
    "DICT_MERGE": "every",
    "CALL_FUNCTION_EX": "every",
    "MATCH_MAPPING": "every",
    "MATCH_SEQUENCE": "every",
    "STORE_FAST": "store",
    "BINARY_OP": "binary",
    "STORE_GLOBAL": "store global",
    "STORE_DEREF": "store cell",
    "STORE_SUBSCR": "change",
    "STORE_SLICE": "change",
    "STORE_ATTR": "change",
    "DELETE_SUBSCR": "change",
    "DELETE_ATTR": "change",
    "CONTAINS_OP": "asks",
    "UNARY_NOT": "truth",
    "TO_BOOL": "truth",
}
# From Python 3.13 on `TO_BOOL` stands before jumps.
if sys.version_info < (3, 13):
    _KINDS |= {
        name: "truth"
        for name in dis.opname
        if "JUMP" in name and name.endswith(("_IF_TRUE", "_IF_FALSE", "_OR_POP"))
    }
KIND = [_KINDS.get(name, "") for name in dis.opname]
# From this number on binary operations are `+=` and the like.
IN_PLACE = 13
# The lowest bit of some numbers of names says something else.
SHIFT = 1 if sys.version_info >= (3, 12) else 0
NAMES_ON_STACK = sys.version_info >= (3, 13)
