"""Groups to kernels: what each node runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from treadle.fuse.cluster import Cluster
from treadle.fuse.groups import Groups
from treadle.fuse.lowering import loops
from treadle.fuse.lowering.clusters import kernel_of
from treadle.fuse.lowering.launches import (
    Calls,
    Copy,
    HostCall,
    Kernel,
    KernelEntry,
    Kernels,
    Launch,
    ProductKernel,
    Sort,
    Within,
)
from treadle.fuse.lowering.overwriting import share_scattered, writes
from treadle.fuse.lowering.rows import settle_rows
from treadle.fuse.lowering.tiny import is_tiny, kernels_of
from treadle.fuse.order import Node
from treadle.ir.graph import Atom, Equation, Var, is_zero
from treadle.ir.origin import Origin, Origins
from treadle.trace import lowering
from treadle.trace.lowering import Foreign, Fourier, Host, Lowering, Routine


def lower(groups: Groups) -> Kernels:
    """The kernels of a program, in order, and whose memory its values are in."""
    return _Lowering(groups).run()


class _Lowering:
    def __init__(self, groups: Groups) -> None:
        self.groups, self.flow = groups, groups.flow
        self.entries: list[KernelEntry] = []
        self.within: dict[Var, Within] = {}
        self.makers: dict[Var, Origin] = {}
        self.origins = Origins()
        self.filled: set[Var] = set()

    def run(self) -> Kernels:
        flow, within = self.flow, self.within
        for v, a in flow.aliases.items():
            within[v] = Within(self.memory(a))
        for v, (whole, offset, _) in flow.parts.items():
            within[v] = Within(whole, offset * v.type.dtype.itemsize)
        for node in self.groups.nodes:
            self._node(node)
        results = tuple([self.memory(a) for a in flow.results.values()])
        share_scattered(self.entries, within, flow, results)
        inputs = tuple(flow.graph.inputs)
        return Kernels(inputs, results, tuple(self.entries), within, self.makers)

    def memory(self, a: Atom) -> Atom:
        return loops.stored(a, self.flow)

    def add(
        self,
        kernel: Kernel,
        equations: Sequence[Equation],
        alone: bool = False,
        begins: Atom | None = None,
    ) -> None:
        """Appends a kernel, unless it has nothing to do."""
        if isinstance(kernel, Launch) and not any(v.type.size for v in writes(kernel)):
            return
        names = tuple([eq.op.name for eq in equations])
        origins = tuple(map(self.origins.of, equations))
        for eq, origin in zip(equations, origins, strict=True):
            self.makers.update(dict.fromkeys(eq.outputs, origin))
        for k in kernels_of(kernel, self.flow):
            self.entries.append(KernelEntry(k, names, alone, begins, origins))

    def _node(self, node: Node) -> None:
        if isinstance(node, Cluster):
            found = self.groups.built.get(node) or kernel_of(node, self.groups)
            assert found is not None, "a cluster has no kernel"
            for v in writes(found):
                self._fill(v)
            if isinstance(found, ProductKernel):
                self._share_result(found)
            else:
                settle_rows(found, node.equations, self.flow)
            self.add(found, node.equations)
            return
        (eq,) = node.equations
        how = self.flow.lowering(eq)
        if isinstance(how, Host):
            self._host(eq, how)
        else:
            _HANDLERS[type(how)](self, eq)

    def _fill(self, v: Var) -> None:
        """Fills a padded array before the first of its pieces is made."""
        part = self.flow.parts.get(v)
        if part is None or part[0] in self.filled:
            return
        whole = part[0]
        self.filled.add(whole)
        eq = self.flow.maker[whole]
        fill = self.groups.built[eq].fill
        if fill is not None:
            self.add(fill, [eq], alone=True)

    def _share_result(self, p: ProductKernel) -> None:
        """Lets a product itself go into its epilogue's result, if nobody else reads it
        and that has the same layout."""
        assert p.epilogue is not None
        if p.c in self.within or is_tiny(p) or self._read_outside(p):
            return
        bindings = list(zip(p.epilogue.bindings, p.epilogue.nest.operands, strict=True))
        loads = [(b, op.inner) for b, op in bindings if b.atom is p.c]
        for b, op in bindings:
            if not b.store or op.dtype != p.contraction.dtype:
                continue
            assert isinstance(b.atom, Var)
            same = all(
                (x.offset, x.strides, inner) == (b.offset, b.strides, op.inner)
                for x, inner in loads
            )
            if same and b.atom.type.size == p.c.type.size:
                self.within[p.c] = Within(b.atom)
                return

    def _read_outside(self, p: ProductKernel) -> bool:
        """Whether others than the epilogue need the product itself."""
        flow, owner = self.flow, self.groups.owner
        return flow.is_returned(p.c) or any(
            not r.outputs
            or owner[r.outputs[0]] is not owner[p.c]
            or r.outputs[0] in flow.aliases
            for r in flow.final_readers(p.c)
        )

    def _host(self, eq: Equation, how: Host) -> None:
        """The reference implementation."""
        operands = tuple([self.memory(a) for a in eq.inputs])
        types = [a.type for a in eq.inputs], [v.type for v in eq.outputs]
        call = HostCall(eq.op, eq.params, operands, eq.outputs, types, how.reason)
        self.add(call, [eq])

    # One for each lowering

    def _product(self, eq: Equation) -> None:
        product = self.groups.built[eq]
        self._fill(product.c)
        self.add(product, [eq])

    def _join(self, eq: Equation) -> None:
        fill, moves = self.groups.built[eq]
        if fill is not None and eq.outputs[0] not in self.filled:
            self.add(fill, [eq], alone=True)
        for launch in moves:
            self.add(launch, [eq])

    def _same(self, eq: Equation) -> None:
        for a, v in zip(eq.inputs, eq.outputs, strict=True):
            self.within[v] = Within(self.memory(a))

    def _scatter(self, eq: Equation) -> None:
        begin, launch = self.groups.built[eq]
        self.add(begin, [eq], begins=self.flow.memory(eq.inputs[0]))
        self.add(launch, [eq], alone=True)

    def _nest(self, eq: Equation) -> None:
        for launch in self.groups.built.get(eq, ()):
            self.add(launch, [eq], alone=True)

    def _order(self, eq: Equation) -> None:
        (keys,), (out,) = eq.inputs, eq.outputs
        if out.type.size:
            self.add(Sort(self.memory(keys), out, keys.type.shape[-1]), [eq])

    def _calls(self, eq: Equation) -> None:
        how = eq.op.lowering
        assert isinstance(how, Routine | Foreign | Fourier | lowering.Blocked)
        if any(v.type.size for v in eq.outputs):
            operands = tuple([self.memory(a) for a in eq.inputs])
            types = [a.type for a in eq.inputs], [v.type for v in eq.outputs]
            assert how.script is not None
            script = how.script(*types, eq.params)
            call = Calls(eq.op, eq.params, operands, eq.outputs, types, script)
            self.add(call, [eq])

    def _scan(self, eq: Equation) -> None:
        if not eq.params["length"]:
            first, count = eq.params["n_consts"], eq.params["n_carry"]
            init = eq.inputs[first : first + count]
            for a, v in zip(init, eq.outputs[:count], strict=True):
                begin = loops.begin(a, self.flow)
                self.add(Copy(None if is_zero(begin) else begin, v), [eq])
            return
        found, same = loops.repeat(eq, self._inner(eq)[0], self.flow)
        self.within |= same
        self.add(found, [eq])

    def _while(self, eq: Equation) -> None:
        test, body = self._inner(eq)
        self.add(loops.repeat_while(eq, test, body, self.flow), [eq])

    def _branch(self, eq: Equation) -> None:
        self.add(loops.choose(eq, self._inner(eq), self.flow), [eq])

    def _inner(self, eq: Equation) -> list[Kernels]:
        return [lower(g) for g in self.groups.inner[eq]]


_HANDLERS: dict[type[Lowering], Callable[[_Lowering, Equation], None]] = {
    lowering.Contraction: _Lowering._product,
    lowering.Convolution: _Lowering._product,
    lowering.Join: _Lowering._join,
    lowering.Same: _Lowering._same,
    lowering.Scatter: _Lowering._scatter,
    lowering.Window: _Lowering._nest,
    lowering.Running: _Lowering._nest,
    lowering.Order: _Lowering._order,
    lowering.Routine: _Lowering._calls,
    lowering.Foreign: _Lowering._calls,
    lowering.Fourier: _Lowering._calls,
    lowering.Blocked: _Lowering._calls,
    lowering.Scan: _Lowering._scan,
    lowering.While: _Lowering._while,
    lowering.Branch: _Lowering._branch,
}
"""What a node that is no cluster becomes."""
