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
WHOLE_METHODS = _words(
    "items values keys copy index count _asdict _replace __getitem__ __contains__ "
    "__iter__ __len__"
)
# What looks at all attributes of its argument.
WHOLE_FUNCTIONS = _words("asdict astuple replace deepcopy copy fields")
# What is told of its arguments, or only what they are, makes no other program.
ASIDE = _words(
    "callable critical debug error exception id info isinstance issubclass log print "
    "warning"
)
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
    "BUILD_LIST": "combine",
    "BUILD_SET": "combine",
    "BUILD_MAP": "pairs",
    "FORMAT_VALUE": "combine 1",
    "FORMAT_SIMPLE": "combine 1",
    "UNARY_NEGATIVE": "combine 1",
    "COMPARE_OP": "two",
    "UNARY_NOT": "not",
    "TO_BOOL": "not",
    "IS_OP": "is",
    "POP_JUMP_FORWARD_IF_FALSE": "test",
    "POP_JUMP_FORWARD_IF_TRUE": "test",
    "POP_JUMP_IF_FALSE": "test",
    "POP_JUMP_IF_TRUE": "test",
    "POP_JUMP_FORWARD_IF_NONE": "is none",
    "POP_JUMP_FORWARD_IF_NOT_NONE": "is none",
    "POP_JUMP_IF_NONE": "is none",
    "POP_JUMP_IF_NOT_NONE": "is none",
    "JUMP_FORWARD": "jump",
    "JUMP_IF_FALSE_OR_POP": "jump",
    "JUMP_IF_TRUE_OR_POP": "jump",
    "SWAP": "swap",
    "RETURN_VALUE": "return",
    "IMPORT_NAME": "import",
    "IMPORT_FROM": "import from",
    "KW_NAMES": "names",
    "CALL": "call",
    "CALL_KW": "call with names",
    "LOAD_SUPER_ATTR": "super",
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
    "STORE_FAST_STORE_FAST": "store two",
    "STORE_FAST_LOAD_FAST": "store load",
    "BINARY_OP": "binary",
    "STORE_GLOBAL": "store global",
    "STORE_DEREF": "store cell",
    "STORE_SUBSCR": "change item",
    "STORE_SLICE": "change",
    "STORE_ATTR": "change attribute",
    "DELETE_SUBSCR": "change item",
    "DELETE_ATTR": "change attribute",
    "CONTAINS_OP": "asks",
}
KIND = [_KINDS.get(name, "") for name in dis.opname]
# From this number on binary operations are `+=` and the like.
IN_PLACE = 13
# The lowest bit of some numbers of names says something else.
SHIFT = 1 if sys.version_info >= (3, 12) else 0
# What binds local variables, and whether only one.
STORES = {
    i: name == "STORE_FAST"
    for i, name in enumerate(dis.opname)
    if name in ("STORE_FAST", "STORE_FAST_STORE_FAST")
}
