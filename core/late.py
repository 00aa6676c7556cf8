"""Numbers of a plan that are found anew for each size."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace

import numpy as np

from treadle.arraytype import ArrayType
from treadle.dims import Dim


def dims_in(x, found=None):
    """The sizes in a record (a dataclass of numbers), once each."""
    found = [] if found is None else found
    if type(x) is Dim:
        if not any([x.key == d.key for d in found]):
            found.append(x)
    else:
        for y in _parts(x):
            dims_in(y, found)
    return found


def _parts(x):
    """What a record is made of."""
    if type(x) is ArrayType:
        return x.__reduce__()[1]
    if is_dataclass(x):
        return [getattr(x, f.name) for f in fields(x)]
    if type(x) is dict:
        return x.values()
    return x if type(x) is tuple else ()


def maker(x):
    """The sizes in a record, and a function of their values that makes it."""
    dims = dims_in(x)
    names, space = {d.key: f"n{i}" for i, d in enumerate(dims)}, {}

    def text(y):
        if type(y) is Dim:
            return names[y.key]
        if dims_in(y):
            parts = [text(z) + "," for z in _parts(y)]
            if type(y) is tuple:
                return f"({''.join(parts)})"
            if type(y) is dict:
                pairs = zip(y, parts, strict=True)
                return "{" + "".join(f"{k!r}: {part}" for k, part in pairs) + "}"
            space[f"C{len(space)}"] = type(y)
            return f"C{len(space) - 1}({''.join(parts)})"
        space[f"c{len(space)}"] = y
        return f"c{len(space) - 1}"

    body = text(x)
    return dims, eval(f"lambda {', '.join(names.values())}: {body}", space)


def _roomy(launch, spare):
    return replace(launch, words=(*launch.words, *(0,) * spare))


def late(name, plan, record, spare=0):
    """``plan(record)``, launches with words, tasks and scratch bytes, for sizes that
    are not fixed: every number of it is one that is found for each size."""
    dims, make = maker(record)
    scope = dims[0].scope
    first = [_roomy(launch, spare) for launch in plan(make(*[d.hint for d in dims]))]
    key = (name, record)
    found = scope.known.get(key)
    if found is not None:
        return found
    flat = [
        n
        for launch in first
        for n in (launch.tasks, launch.scratch_bytes, *launch.words)
    ]
    count = len(flat)
    lengths = [len(launch.words) for launch in first]

    def fn(*values):
        out = []
        for launch in plan(make(*values)):
            out.append(launch.tasks)
            out.append(launch.scratch_bytes)
            out += launch.words
            if spare:
                out += (0,) * (lengths[len(out) > lengths[0] + 2] - len(launch.words))
        if len(out) != count:
            raise LookupError("another number of words")
        return out

    parts = scope.vector(name, fn, tuple(dims), flat)
    made, at = [], 0
    for launch in first:
        n = len(launch.words)
        made.append(
            replace(
                launch,
                words=tuple(parts[at + 2 : at + 2 + n]),
                tasks=parts[at],
                scratch_bytes=parts[at + 1],
            )
        )
        at += n + 2
    scope.known[key] = made
    return made


class Size:
    """A number of a dtype that depends on sizes: what a `Lit` holds besides its value
    for the hint. `tree` is ("dim", d), or ("op", op, params, children, dtype)."""

    __slots__ = ("dtype", "tree")

    def __init__(self, tree, dtype):
        self.tree, self.dtype = tree, dtype

    def key(self):
        return repr(self.tree)

    def at(self, value_of):
        kind = self.tree[0]
        if kind == "dim":
            return self.dtype.type(value_of(self.tree[1]))
        _, run, op, params, children = self.tree
        args = [c.at(value_of) if type(c) is Size else c for c in children]
        return np.asarray(run(op, args, params)[0]).astype(self.dtype)[()]
