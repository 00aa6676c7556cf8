"""The checker of Kernels: what is read has been stored, inside of its memory, once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from treadle import dtypes
from treadle.dims import hint
from treadle.errors import InternalError
from treadle.fuse.check import Loops, inside, places
from treadle.fuse.lowering.launches import (
    Calls,
    Carries,
    Choose,
    Copy,
    HostCall,
    Kernel,
    KernelEntry,
    Kernels,
    Launch,
    ProductKernel,
    Repeat,
    RepeatWhile,
    Sort,
    overwrites,
)
from treadle.fuse.lowering.overwriting import reads, target_of, writes
from treadle.fuse.lowering.spaces import loops_of, sides_of
from treadle.ir.graph import Atom, Lit, Var
from treadle.kernels.check import check as check_nest
from treadle.kernels.nest import STRIDED
from treadle.trace.lowering import Join, Scatter
from treadle.trace.op import registry

_MOST = 1 << 14
"""Elements up to which what is stored is kept in mind one by one."""
NOTHING: Mapping[Atom, np.ndarray | None] = MappingProxyType({})


def check_kernels(kernels: Kernels, in_place: Sequence[tuple[Var, Atom]] = ()) -> None:
    """Verifies that each kernel reads only inputs, literals and what was stored before
    it; that it stays inside of its operands' memory; that all elements of results are
    stored; and that nothing is stored twice, but over what filled an array first.

    Args:
      in_place: inputs with the results that have their memory. They must not be read
        once that is written, nor while it is but for what is written there.

    Raises:
      InternalError: at the first violation.
    """
    checker = _Checker(kernels, in_place)
    for v in kernels.within:
        checker.root(v)
    for n, entry in enumerate(kernels.entries):
        checker.where = f"entry {n}, {type(entry.kernel).__name__} "
        checker.where += f"({', '.join(entry.names)}),"
        checker.entry(entry)
    checker.where = "the program"
    for a in kernels.results:
        _, offset = checker.root(a)
        if offset:
            raise InternalError("a result is a part of another value")
        checker.read(a)


class _Memory:
    """What of a block of memory has been stored, in elements (complex numbers count as
    two); a large block is looked at as one.

    filled: whether everything was, by what others then store over.
    """

    def __init__(self, a: Atom, there: bool) -> None:
        self.unit = dtypes.to_real(a.type.dtype).itemsize
        self.size = hint(a.type.nbytes) // self.unit
        self.exact = self.size <= _MOST
        self.stored = np.full(self.size if self.exact else 1, there)
        self.given, self.filled = there, False

    def has(self, at: np.ndarray | None) -> bool:
        if self.filled or not self.size:
            return True
        return bool(self.stored[self._of(at)].all())

    def store(self, at: np.ndarray | None) -> bool:
        """Notes what is stored; gives whether it was not, or by what filled all."""
        of = self._of(at)
        fresh = not (self.exact and self.stored[of].any())
        self.stored[of] = True
        return fresh and not self.given

    def fill(self) -> bool:
        fresh = not self.stored.any() and not self.filled
        self.filled = True
        return fresh

    def _of(self, at: np.ndarray | None) -> np.ndarray | slice:
        return slice(None) if at is None or not self.exact else at


class _Checker:
    def __init__(
        self, kernels: Kernels, in_place: Sequence[tuple[Var, Atom]] = ()
    ) -> None:
        self.within, self.inputs = kernels.within, set(kernels.inputs)
        self.blocks: dict[Atom, _Memory] = {}
        self.whole: set[Var] = set()
        self.over: set[Atom] = set()
        self.where = "a program"
        self.carried: dict[Atom, list[Var]] = {}
        for v, out in in_place:
            self.carried.setdefault(self.root(out)[0], []).append(v)

    def fail(self, what: str) -> None:
        raise InternalError(f"{self.where} {what}")

    def root(self, a: Atom) -> tuple[Atom, int]:
        """The value whose memory a value is in, and the offset in bytes."""
        seen, total = set(), 0
        while isinstance(a, Var) and a in self.within:
            if a in seen:
                self.fail("has a value that lies within itself")
            seen.add(a)
            whole, offset = self.within[a][0], hint(self.within[a][1])
            end, size = offset + hint(a.type.nbytes), hint(whole.type.nbytes)
            beyond = end > size and hint(a.type.size)
            if offset < 0 or beyond:
                self.fail(f"has a {a.type} that leaves the {whole.type} it lies within")
            total, a = total + offset, whole
        return a, total

    def memory(self, a: Atom) -> _Memory:
        if a not in self.blocks:
            there = isinstance(a, Lit) or a in self.inputs
            self.blocks[a] = _Memory(a, there)
        return self.blocks[a]

    # Whole values

    def bytes_of(self, a: Atom) -> tuple[_Memory, np.ndarray]:
        root, offset = self.root(a)
        memory = self.memory(root)
        count = hint(a.type.nbytes) // memory.unit
        return memory, np.arange(count) + offset // memory.unit

    def read(self, a: Atom) -> None:
        self.still(a)
        memory, at = self.bytes_of(a)
        if not memory.has(at):
            self.fail(f"reads a value {a.type} before it is stored")

    def still(self, a: Atom) -> None:
        """Checks that a value has not been written over."""
        while a not in self.over:
            if not (isinstance(a, Var) and a in self.within):
                return
            a = self.within[a].atom
        self.fail(f"reads a value {a.type} that was written over")

    def store(self, v: Var) -> None:
        memory, at = self.bytes_of(v)
        if not memory.store(at):
            self.fail(f"stores a value {v.type} again")
        self.whole.add(v)

    # Strided operands

    def reach(
        self, a: Atom, offset: int, itemsize: int, loops: Loops
    ) -> tuple[_Memory, np.ndarray | None]:
        """The memory and places of an operand, whose offset and steps are in elements
        of its own; they must be inside. An element may be a complex number."""
        root, start = self.root(a)
        memory = self.memory(root)
        units = root.type.dtype.itemsize // memory.unit
        if itemsize == units * memory.unit != memory.unit:
            loops = [*[(n, step * units) for n, step in loops], (units, 1)]
            offset *= units
        elif itemsize != memory.unit:
            self.fail(f"has elements of {itemsize} bytes for a value {a.type}")
        start = start // memory.unit + offset
        if hint(a.type.size) and not inside(start, loops, memory.size):
            self.fail(f"leaves the memory of a value {a.type}: {start}, {loops}")
        return memory, places(start, loops) if memory.exact else None

    # Kernels

    def entry(self, entry: KernelEntry) -> None:
        kernel = entry.kernel
        if entry.begins is not None and self._goes_on(entry.begins, kernel):
            return
        self._kernel(entry, kernel)
        for out in dict.fromkeys(self.root(v)[0] for v in writes(kernel)):
            for v in self.carried.get(out, ()):
                self._writes_over(kernel, v, out)

    def _writes_over(self, kernel: Kernel, v: Var, out: Atom) -> None:
        """Notes that a carry's next value is written into its memory; the kernel that
        does so may read of it what it then writes."""
        read = [a for a in reads(kernel) if self.root(a)[0] is v]
        if read and not _reads_where_it_writes(kernel, v, out):
            self.fail(f"reads a carry {v.type} elsewhere than it writes over it")
        self.over.add(v)

    def _kernel(self, entry: KernelEntry, kernel: Kernel) -> None:
        if isinstance(kernel, Launch):
            self._bindings(kernel)
            if all(map(hint, kernel.outer)):
                self._loads(kernel)
                self._stores(kernel, self._fills(entry))
        elif isinstance(kernel, ProductKernel):
            self._product(kernel)
        elif isinstance(kernel, Copy):
            self._copy(kernel, self._fills(entry))
        elif isinstance(kernel, Sort):
            self._sort(kernel)
        elif isinstance(kernel, HostCall | Calls):
            self._host(kernel)
        else:
            self._programs(kernel)

    def _goes_on(self, begins: Atom, kernel: Kernel) -> bool:
        """Whether a scatter's result begins in the memory of its operand, which nothing
        may read from then on."""
        here, target = self.root(begins)[0], self.root(target_of(kernel))[0]
        if here is not target and begins not in self.carried.get(target, ()):
            return False
        self.read(begins)
        memory = self.memory(target)
        memory.filled, memory.stored[:] = True, False
        self.over.add(begins)
        return True

    def _fills(self, entry: KernelEntry) -> bool:
        """Whether a kernel may be the first of two that store a value."""
        hows = [registry[name].lowering for name in entry.names]
        return any(
            isinstance(how, Scatter) or (isinstance(how, Join) and how.filled)
            for how in hows
        )

    def _bindings(self, launch: Launch) -> None:
        nest = launch.nest
        check_nest(nest)
        if (len(launch.outer), len(launch.mid)) != (nest.outer, nest.mid):
            self.fail("has other loops than its nest")
        if len(launch.bindings) != len(nest.operands):
            self.fail("has other operands than its nest")
        stored = {i.attr for i in nest.body if i.name.startswith("store")}
        for k, (b, o) in enumerate(zip(launch.bindings, nest.operands, strict=True)):
            words = nest.outer + nest.mid + (o.inner == STRIDED) + o.gathers
            if len(b.strides) != words:
                self.fail(f"has {len(b.strides)} strides for operand {k}, not {words}")
            if (b.atom is None) != (o.kind == "index") or b.store != (k in stored):
                self.fail(f"uses operand {k} otherwise than its nest")
            if b.atom is None:
                continue
            if o.dtype not in (b.atom.type.dtype, dtypes.to_real(b.atom.type.dtype)):
                self.fail(f"takes a value {b.atom.type} for one of {o.dtype}")
            if b.store and (isinstance(b.atom, Lit) or b.atom in self.inputs):
                self.fail("stores into what it is given")

    def _loads(
        self, launch: Launch, made: Mapping[Atom, np.ndarray | None] = NOTHING
    ) -> None:
        """Checks what a nest reads; `made` is there already, at the places that it
        says."""
        for b, o in zip(launch.bindings, launch.nest.operands, strict=True):
            if b.atom is None or b.store:
                continue
            self.still(b.atom)
            loops = loops_of(launch, b, o)
            memory, at = self.reach(b.atom, b.offset, o.dtype.itemsize, loops)
            if b.atom in made:
                there = made[b.atom]
                if at is not None and there is not None and not set(at) <= set(there):
                    self.fail("has an epilogue that reads beyond its product")
            elif o.gathers:
                if b.atom not in self.whole:
                    self.read(b.atom)
            elif not memory.has(at):
                self.fail(f"reads of a value {b.atom.type} what is not stored yet")

    def _stores(self, launch: Launch, fills: bool) -> None:
        for b, o in zip(launch.bindings, launch.nest.operands, strict=True):
            if not b.store:
                continue
            assert isinstance(b.atom, Var)
            loops = loops_of(launch, b, o)
            memory, at = self.reach(b.atom, b.offset, o.dtype.itemsize, loops)
            if at is not None and not o.gathers and np.unique(at).size != at.size:
                self.fail(f"stores elements of a value {b.atom.type} twice")
            first = fills and not o.gathers and not memory.filled
            if first and (at is None or at.size == memory.size):
                self._fill(memory, b.atom)
                continue
            if o.gathers:
                if not memory.filled:
                    self.fail("scatters into what nothing was stored in before")
                at = None
            if not memory.store(at):
                self.fail(f"stores elements of a value {b.atom.type} again")
            self.whole.add(b.atom)

    def _fill(self, memory: _Memory, v: Var) -> None:
        if not memory.fill():
            self.fail(f"fills a value {v.type} that is partly stored")

    def _product(self, p: ProductKernel) -> None:
        a, b, c = sides_of(p)
        *of_operands, dtype = p.contraction.dtypes
        for (atom, offset), loops, of in zip(
            (p.a, p.b), (a, b), of_operands, strict=True
        ):
            if atom.type.dtype != of:
                self.fail(f"takes a value {atom.type} for one of {of}")
            self.still(atom)
            memory, at = self.reach(atom, offset, of.itemsize, loops)
            if not memory.has(at):
                self.fail(f"reads of a value {atom.type} what is not stored yet")
        if p.c.type.dtype != dtype:
            self.fail(f"gives a value {p.c.type} for one of {dtype}")
        memory, at = self.reach(p.c, 0, dtype.itemsize, c)
        if at is not None and np.unique(at).size != hint(p.c.type.size):
            self.fail("stores some elements twice, and others not at all")
        stored = [x.atom for x in p.epilogue.bindings if x.store] if p.epilogue else []
        shared = p.c in self.within and self.within[p.c].atom in stored
        if not shared and not memory.store(at):
            self.fail("stores elements of its result again")
        if not shared:
            self.whole.add(p.c)
        if p.epilogue is not None:
            self._bindings(p.epilogue)
            self._loads(p.epilogue, {p.c: at})
            self._stores(p.epilogue, False)

    def _copy(self, copy: Copy, fills: bool) -> None:
        if copy.source is not None:
            if hint(copy.source.type.nbytes) != hint(copy.target.type.nbytes):
                self.fail(f"copies {copy.source.type} to {copy.target.type}")
            self.read(copy.source)
        memory, at = self.bytes_of(copy.target)
        if fills and not memory.filled and at.size == memory.size:
            self._fill(memory, copy.target)
        else:
            self.store(copy.target)

    def _sort(self, sort: Sort) -> None:
        if sort.keys.type.dtype.kind != "u":
            self.fail(f"orders {sort.keys.type}, which are no unsigned integers")
        if hint(sort.rows * sort.length) != hint(sort.keys.type.size):
            self.fail(f"orders {sort.keys.type} as {sort.rows} rows of {sort.length}")
        self.read(sort.keys)
        self.store(sort.out)

    def _host(self, call: HostCall | Calls) -> None:
        for atoms, types in zip((call.operands, call.results), call.types, strict=True):
            if [a.type.nbytes for a in atoms] != [t.nbytes for t in types]:
                self.fail("has operands or results of other types than it says")
        for a in call.operands:
            self.read(a)
        for v in call.results:
            self.store(v)

    # Kernels that run programs

    def _programs(self, kernel: Kernel) -> None:
        if isinstance(kernel, Repeat):
            carries, n = kernel.carries, kernel.length
            self._given(carries.init, carries)
            given = kernel.consts, carries.results
            self._runs(kernel.body, given, kernel.rows, n, carries)
            self._gives(kernel.body, carries.results, kernel.new_rows, n)
            results = (*carries.results, *kernel.new_rows)
        elif isinstance(kernel, RepeatWhile):
            carries = kernel.carries
            self._given(carries.init, carries)
            self._runs(kernel.test, (kernel.test_consts, carries.results))
            given = kernel.body_consts, carries.results
            self._runs(kernel.body, given, carries=carries)
            self._gives(kernel.body, carries.results)
            tests = [a.type for a in kernel.test.results]
            if [(t.shape, t.dtype) for t in tests] != [((), dtypes.bool_)]:
                self.fail(f"goes on as {tests} say, not one bool")
            results = carries.results
        else:
            assert isinstance(kernel, Choose)
            self.read(kernel.which)
            if not kernel.branches:
                self.fail("has no branches")
            for branch in kernel.branches:
                self._runs(branch, (kernel.operands,))
                self._gives(branch, kernel.results)
            results = kernel.results
        for v in results:
            self.store(v)

    def _given(self, init: Sequence[Atom], carries: Carries) -> None:
        """What carries begin as; one number may stand for all of one."""
        lengths = {len(init), len(carries.in_place), len(carries.results)}
        if len(lengths) != 1:
            self.fail("has other carries than what they begin as")
        for a, v in zip(init, carries.results, strict=True):
            number = isinstance(a, Lit) and not a.type.ndim
            if not number and a.type.nbytes != v.type.nbytes:
                self.fail(f"begins a carry {v.type} as {a.type}")
            self.read(a)

    def _runs(
        self,
        body: Kernels,
        given: Iterable[Sequence[Atom]],
        rows: Sequence[Atom] = (),
        length: int = 1,
        carries: Carries | None = None,
    ) -> None:
        """Checks a program and what it is given. Carries are known by their results."""
        atoms = [a for group in given for a in group]
        sizes = [a.type.nbytes for a in atoms]
        sizes += [a.type.nbytes // length for a in rows]
        if sizes != [v.type.nbytes for v in body.inputs]:
            self.fail("gives its program other inputs than that takes")
        for a in (*next(iter(given), ()), *rows):
            self.read(a)
        check_kernels(body, _in_place(body, carries, len(rows)) if carries else ())

    def _gives(
        self,
        body: Kernels,
        results: Sequence[Var],
        rows: Sequence[Var] = (),
        length: int = 1,
    ) -> None:
        sizes = [v.type.nbytes for v in results]
        sizes += [v.type.nbytes // length for v in rows]
        if sizes != [a.type.nbytes for a in body.results]:
            self.fail("takes other results from its program than that gives")


def _in_place(body: Kernels, carries: Carries, rows: int) -> list[tuple[Var, Atom]]:
    """The carries that have one memory, as a body knows them before and after."""
    count = len(carries.in_place)
    first = len(body.inputs) - rows - count
    pairs = zip(body.inputs[first : first + count], body.results, strict=False)
    return [p for p, one in zip(pairs, carries.in_place, strict=True) if one]


def _reads_where_it_writes(kernel: Kernel, v: Var, out: Atom) -> bool:
    if not isinstance(kernel, Launch):
        return False
    stores = [k for k, b in enumerate(kernel.bindings) if b.store and b.atom is out]
    # A part of it begins elsewhere.
    loads = [k for k, b in enumerate(kernel.bindings) if b.atom is v]
    return len(stores) == 1 and overwrites(kernel, stores[0], loads)
