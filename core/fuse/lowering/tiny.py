"""Products of many matrices of few elements: nests that say their terms one by one.

They are chosen here, where it is settled what runs together. Which are tiny, open sizes
don't say; and sums of what a product makes would be in another order, if it ran in one
kernel with them for some sizes only.
"""

from __future__ import annotations

from treadle import dtypes
from treadle.dims import is_dim
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.lowering.launches import Kernel, Launch, ProductKernel
from treadle.fuse.lowering.nests import Access, NestWriter, finish
from treadle.fuse.maps import Space
from treadle.ir import scalar
from treadle.ir.graph import Atom
from treadle.kernels.contract import Contraction

_MANY = 16
_MOST = {True: (32, 4), False: (100, 5)}
"""Up to so many multiplications of so many terms, if there are many matrices and if
there are fewer, a kernel of products takes longer for each of them than to look up what
belongs to each element. Of longer sums a nest has too many operands."""


def is_tiny(p: ProductKernel) -> bool:
    """Whether a product is of many matrices of few elements, of one dtype."""
    c = p.contraction
    if not isinstance(c, Contraction) or any(map(is_dim, (c.m, c.n, c.k))):
        return False
    alike = c.half is None and not c.short and len(set(c.dtypes)) == 1
    batches = c.b0 * c.b1
    most, terms = _MOST[is_dim(batches) or batches >= _MANY]
    small = c.k <= terms and c.m * c.n * c.k <= most
    return small and alike and (is_dim(batches) or batches > 1)


def kernels_of(kernel: Kernel, flow: Dataflow) -> list[Kernel]:
    """What runs a kernel: a nest for a tiny product, then what worked on it; others
    themselves."""
    if not isinstance(kernel, ProductKernel) or not is_tiny(kernel):
        return [kernel]
    nest = _nest(kernel, flow)
    return [nest] if kernel.epilogue is None else [nest, kernel.epilogue]


def _nest(p: ProductKernel, flow: Dataflow) -> Launch:
    """The nest of a product, without its epilogue: it adds in the order in which the
    matrix kernel does."""
    c = p.contraction
    assert isinstance(c, Contraction), "convolutions have kernels of their own"
    sizes, dtype = dict(enumerate((c.b0, c.b1, c.m, c.n))), c.dtype
    body, strides = NestWriter(Space(flow.units), flow), (c.a, c.b, c.c)
    steps = [(s.b0, s.b1, s.row, s.column) for s in strides]

    def over(b0: int, b1: int, row: int, column: int) -> dict[int, int]:
        pairs = zip(sizes.items(), (b0, b1, row, column), strict=True)
        return {d: step for (d, n), step in pairs if n != 1 and step != 0}

    def load(source: tuple[Atom, int], k: int, *steps: int) -> int:
        atom, offset = source
        return body.load(atom, offset + k, over(*steps))

    total = body.instr("const", (), dtype, dtype.type(0).item())
    (*a, a_row, a_k), (*b, b_k, b_column), place = steps
    for k in range(c.k):
        x = load(p.a, k * a_k, *a, a_row, 0)
        y = load(p.b, k * b_k, *b, 0, b_column)
        if dtypes.is_float(dtype):
            total = body.instr(scalar.MULTIPLY_ADD, (x, y, total), dtype)
        else:
            term = body.instr(scalar.MUL, (x, y), dtype)
            total = body.instr(scalar.ADD, (total, term), dtype)
    pairs = tuple(over(*place).items())
    k = body.access(Access(p.c, dtype, 0, pairs, True))
    body.instr("store", (total,), dtype, k)
    long = [d for d, n in sizes.items() if n != 1]
    return finish(body, sizes, long, [], None, "inner")
