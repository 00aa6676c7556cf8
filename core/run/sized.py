"""Programs for sizes that are not fixed: what is found anew for each size."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from treadle.arraytype import ArrayType
from treadle.backends.cpu.executor import Program
from treadle.backends.cpu.memory import size_class
from treadle.dims import Dim, Part, Scope, is_dim
from treadle.run.execute import Executable


class Code:
    """Python source that computes Dims from the dimensions."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.lines: list[str] = []
        self.names: dict[int, str] = {}
        self.space: dict[str, Any] = {"np": np}
        self.symbols = []
        for a in scope.atoms:
            if a.fn is None:
                self.names[a.number] = f"d{a.number}"
                self.symbols.append(f"d{a.number}")

    def atom(self, a: Any) -> str:
        if a.number not in self.names:
            first = a
            while first.fn is Part:
                first = self.scope.atoms[first.number - 1]
            n = first.number
            name = f"v{n}"
            if n not in self.names:
                args = ", ".join([self.text(x) for x in first.args])
                self.space[f"f{n}"] = first.fn
                self.lines.append(f"{name} = f{n}({args})")
                many = (
                    n + 1 < len(self.scope.atoms) and self.scope.atoms[n + 1].fn is Part
                )
                self.names[n] = f"{name}[0]" if many else name
            if a is not first:
                self.names[a.number] = f"{name}[{a.number - n}]"
        return self.names[a.number]

    def text(self, x: Any) -> str:
        if type(x) is not Dim:
            return repr(int(x))
        parts = []
        for m, c in x.terms.items():
            factors = [self.atom(a) for a in m]
            if c != 1 or not m:
                factors.insert(0, str(c))
            parts.append("*".join(factors))
        return "+".join(parts)

    def function(self, result: str) -> Any:
        body = "".join(f"    {line}\n" for line in self.lines)
        source = f"def fn({', '.join(self.symbols)}):\n{body}    return {result}\n"
        exec(compile(source, "<sizes>", "exec"), self.space)
        return self.space["fn"]


def guards(scope: Scope) -> Any:
    """Whether the guards of a trace hold."""
    code = Code(scope)
    tests = []
    for d, op, result, _, _ in scope.guards.values():
        tests.append(f"(({code.text(d)}) {op} 0) is {result}")
    return code.function(" and ".join(tests) or "True")


class SizedProgram:
    """A program with sizes that are not fixed; `bind` gives one for given sizes."""

    def __init__(self, scope: Scope, base: Executable) -> None:
        self.scope, self.base, self.largest = scope, base, 0
        program, plan = base.linked.program, base.plan
        code = Code(scope)
        unique: dict[Any, int] = {}

        def number(x: Any) -> int:
            return unique.setdefault(x.key, len(unique))

        dims = {}
        at, which = [], []
        for i, w in program.sized:
            dims[w.key] = w
            at.append(i)
            which.append(number(w))
        self.at, self.which = np.array(at, np.intp), np.array(which, np.intp)
        texts = [code.text(dims[k]) for k in unique]
        self.outs = [
            (i, t)
            for i, t in enumerate(base.graph.out_types)
            if any(map(is_dim, t.shape))
        ]
        self.arena = plan.arena
        shapes = ",".join(
            "(" + "".join(code.text(n) + "," for n in t.shape) + ")"
            for _, t in self.outs
        )
        self.consts = [(i, s) for i, s in enumerate(plan.sizes) if s is not None]
        const_dims: list[Any] = []

        def collect(s: Any) -> None:
            if s.tree[0] == "dim":
                const_dims.append(s.tree[1])
            else:
                for c in s.tree[4]:
                    if hasattr(c, "tree"):
                        collect(c)

        for _, s in self.consts:
            collect(s)
        self.const_keys = [d.key for d in const_dims]
        consts = ",".join(code.text(d) for d in const_dims)
        arena = code.text(self.arena)
        self.evaluate = code.function(
            f"([{','.join(texts)}], {arena}, [{shapes}], [{consts}])"
        )

    def bind(self, *sizes: int) -> Executable:
        base = self.base
        values, arena, shapes, consts = self.evaluate(*sizes)
        old = base.linked.program
        words = old.words.copy()
        words[self.at] = np.array(values, np.int64)[self.which]
        made = object.__new__(Executable)
        made.graph, made.plan = base.graph, base.plan
        made._donated, made._shares = base._donated, base._shares
        made._in_dtypes = base._in_dtypes
        outs = list(base._outs)
        for (i, t), shape in zip(self.outs, shapes, strict=True):
            t = ArrayType(shape, t.dtype)
            outs[i] = (t, t.nbytes, size_class(max(t.nbytes, 1)))
        made._outs = outs
        made._slots = max(arena, 64)
        # Sizes up to the largest so far share its memory: fresh pages cost more.
        self.largest = max(self.largest, made._slots + 8 * old.slot_count)
        made._block = size_class(self.largest)
        made._words = base._words
        addresses = list(base.linked.constants)
        table = dict(zip(self.const_keys, consts, strict=True))
        keep = []
        for i, s in self.consts:
            value = np.ascontiguousarray(s.at(lambda d: table[d.key]))
            keep.append(value)
            addresses[i] = value.ctypes.data
        program = Program(
            words, old.slot_count, old.commands, [keep, old._keep], old._pool
        )
        made.linked = SimpleNamespace(
            program=program, constants=addresses, failures=base.linked.failures
        )
        return made
