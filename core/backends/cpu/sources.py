"""The kernels that a plan calls, by structure."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from treadle.backends.cpu import families, routines
from treadle.backends.cpu.bfloat.unit import INTEGERS, Dtypes
from treadle.backends.cpu.emit.few_columns import few_columns_entry
from treadle.backends.cpu.emit.known import knowing
from treadle.backends.cpu.emit.lanes import host_lanes
from treadle.backends.cpu.emit.nest import WHOLE, emit
from treadle.backends.cpu.emit.points import points_entry
from treadle.backends.cpu.emit.row import is_whole
from treadle.backends.cpu.emit.running_across import may_run_across
from treadle.backends.cpu.emit.several import entry_for
from treadle.backends.cpu.emit.short import short_entry
from treadle.backends.cpu.emit.squares import squares_entry
from treadle.backends.cpu.gemm import kernel as gemm
from treadle.backends.cpu.gemm.schedule import few_kind, is_open, may_be_few
from treadle.backends.cpu.gemm.small import may_be_small
from treadle.backends.cpu.run import native
from treadle.backends.cpu.worth import gains_much
from treadle.dims import is_dim, one
from treadle.fuse.lowering.launches import (
    Calls,
    Choose,
    Copy,
    Kernel,
    Kernels,
    Launch,
    ProductKernel,
    Sort,
)
from treadle.ir.graph import Equation, Graph
from treadle.kernels.contract import Contraction, Strides
from treadle.kernels.convolve import ConvSpec
from treadle.kernels.nest import Nest
from treadle.ops.dot import free_axes
from treadle.plan.schedule import programs
from treadle.plan.steps import (
    Branch,
    CallsStep,
    Loop,
    NestStep,
    OrderStep,
    ProductStep,
    Step,
)
from treadle.trace.lowering import Blocked, Convolution, Fourier, Lowering, Product

_WIDE = 16
"""A product with as many rows, columns and terms is one of the matrix kernel."""

_LONG = 1000
"""What other kernels than nests take to compile, in instructions of a nest."""


_TAPS = 3
"""In a row, of which convolutions have tiles (`conv.winograd`)."""

_SLIGHT = "slight "


def _key(nest: Nest, entry: str) -> str:
    return f"nest {entry} {nest.digest}"


_symbols: dict[tuple[Nest, str, bool], native.Source] = {}


def nest_source(nest: Nest, entry: str, slight: bool = False) -> native.Source:
    """The kernel of a nest, by structure. slight: whether it hardly counts what its
    code is like: its results are the same to the bit."""
    found = _symbols.get((nest, entry, slight))
    if found is None:
        key = _key(nest, entry)
        names = {WHOLE: "whole_"}.get(entry, "nest_"), key[-16:]
        symbol = ("slight_" if slight else "") + "".join(names)
        # Level 2 compiles a tenth longer, and nests run no faster for it.
        found = native.Source(
            f"{_SLIGHT}{key}" if slight else key,
            symbol,
            lambda: emit(nest, symbol, entry),
            level=0 if slight else 1,
            within=_within(nest, entry, slight),
        )
        _symbols[nest, entry, slight] = found
    return found


def _within(nest: Nest, entry: str, slight: bool) -> tuple[native.Source, ...]:
    """Kernels that do all that one does, and no less well."""
    better = [(entry, False)] if slight else []
    if entry == WHOLE:
        better += [("task", False), ("task", True)] if slight else [("task", False)]
    return tuple([nest_source(nest, *how) for how in better])


def launch_source(launch: Launch) -> native.Source:
    """The kernel of a nest of its own."""
    return nest_source(launch.nest, _entry(launch), launch.slight)


def tile_source(launch: Launch) -> native.Source:
    """The kernel of a nest in the epilogue of a product."""
    return nest_source(launch.nest, "tile", launch.slight)


def _entry(launch: Launch) -> str:
    """The entry of `emit` that suits a launch, and is worth its compilation."""
    entry, length = _entry_for(launch), launch.inner
    whole = not is_dim(length) and is_whole(launch.nest, length, host_lanes())
    return WHOLE if entry == "task" and whole else entry


def _entry_for(launch: Launch) -> str:
    entry = knowing(launch, entry_for(launch))
    if entry == "task" and (points := points_entry(launch)):
        entry = points
    elif entry == "task" and (columns := few_columns_entry(launch)):
        entry = columns
    elif entry == "task" and (squares := squares_entry(launch)):
        return squares
    elif entry == "task" and may_run_across(launch):
        return "few"
    elif entry == "task" and (short := short_entry(launch)):
        entry = short
    return entry if entry == "task" or gains_much(launch, entry) else "task"


def product_source(product: ProductKernel) -> native.Source:
    """The kernel of a product or convolution."""
    what = product.contraction
    if isinstance(what, Contraction) and what.packed is not None:
        dtypes = Dtypes(*what.dtypes)
        few = families.bfloat_schedule.needs_few(
            what, families.bfloat.unit_for(dtypes).speed
        )
        return families.bfloat.source(dtypes, _half_part(few))
    if isinstance(what, Contraction) and what.short:
        return families.integers.source(Dtypes(*what.dtypes))
    if isinstance(what, ConvSpec):
        own = families.conv.own_source(what, product.filter_gradient)
        if own is not None:
            return own
        taps, sizes = (what.y.taps, what.x.taps), (what.y.out, what.groups)
        return gemm.source(what.dtype, _images(product.filter_gradient, taps, *sizes))
    return gemm.source(what.dtype, _part(what))


def _part(product: Contraction) -> gemm.Part:
    """The module that has the kernel of a product, whatever its open sizes are."""
    tile = gemm.tile(product.dtype)
    if is_open(product):
        if may_be_small(product):
            return gemm.Part.ANY
        return gemm.Part.ALL if may_be_few(product, tile) else gemm.Part.PLAIN
    kind = few_kind(product, tile)
    return gemm.FEW_PARTS[kind] if kind else gemm.Part.PLAIN


def _half_part(few: bool | None) -> gemm.Part:
    """The same of half floats."""
    if few is None:
        return gemm.Part.ALL
    return gemm.Part.FEW if few else gemm.Part.PLAIN


def _images(gradient: bool, taps: tuple[Any, Any], *sizes: Any) -> gemm.Images:
    """The module that has the kernel of a convolution, whatever its open sizes are.

    taps: rows and columns of them. sizes: rows of results, and groups: of one each, and
        one row of taps, it may be a product.
    """
    if any(map(is_dim, taps)):
        return gemm.Images.ALL
    rows, columns = taps
    lines = all([is_dim(n) or n == 1 for n in sizes])
    if rows == 1 and (lines or columns == _TAPS):
        return gemm.Images.LINE_GRADIENTS if gradient else gemm.Images.LINES
    return gemm.Images.GRADIENTS if gradient else gemm.Images.FORWARD


class _Matrices(NamedTuple):
    """What a contraction multiplies: b1 products of m x k and k x n."""

    b1: int
    m: int
    n: int
    k: int


def _matrices(eq: Equation) -> _Matrices:
    sides = zip(eq.inputs, eq.params["contract"], eq.params["batch"], strict=True)
    (x, cx, bx), (y, cy, by) = [(a.type, *axes) for a, *axes in sides]
    m = math.prod([x.shape[i] for i in free_axes(x.ndim, cx, bx)])
    n = math.prod([y.shape[i] for i in free_axes(y.ndim, cy, by)])
    k = math.prod([x.shape[i] for i in cx])
    if one(n):  # a single column is a row (`fuse.lowering.contractions`)
        m, n = n, m
    return _Matrices(math.prod([x.shape[i] for i in bx]), m, n, k)


def _parts(eq: Equation) -> set[gemm.Part]:
    """Those that may have the kernel of a contraction, whichever side of B is
    contiguous."""
    sizes, dtype = _matrices(eq), eq.outputs[0].type.dtype
    if any(map(is_dim, sizes)):
        return _parts_of(dtype, sizes)
    return _known_parts(dtype, sizes) if 0 not in sizes else set()


def _parts_of(dtype: np.dtype, sizes: _Matrices) -> set[gemm.Part]:
    b1, m, n, k = sizes
    a, c = Strides(0, m * k, k, 1), Strides(0, m * n, n, 1)
    return {
        _part(Contraction(dtype, m, n, k, a, b, c, b1=b1))
        for b in (Strides(0, k * n, n, 1), Strides(0, k * n, 1, k))
    }


def _image_parts(eq: Equation, how: Convolution) -> set[gemm.Images]:
    """Those that may have the kernel of a convolution of one group."""
    rows, taps = (a.type.shape for a in (eq.outputs[0], eq.inputs[1]))
    if how.filter_gradient:
        rows, taps = taps, rows
    return {_images(how.filter_gradient, (taps[-4], taps[-3]), rows[-3], 1)}


_known_parts = functools.lru_cache(maxsize=1024)(_parts_of)


def _stays(eq: Equation, images: bool) -> bool:
    """Whether a product, or a convolution, of a graph that is not optimised will surely
    be one of the matrix kernel: it is large in all directions."""
    if eq.outputs[0].type.dtype.kind != "f":
        return False
    if images:
        # One of points, or of patches that don't overlap, becomes a product.
        window = eq.params.get("kernel", eq.inputs[1].type.shape[:-2])
        steps = zip(window, eq.params["strides"], strict=False)
        return len(window) > 1 and all([n > step for n, step in steps])
    found = _matrices(eq)
    return not any(map(is_dim, found)) and min(found[1:]) >= _WIDE


def foreseen(
    graph: Graph, lowering: Callable[[Equation], Lowering], optimised: bool = True
) -> Iterable[native.Source]:
    """Kernels that a graph needs, whichever of its equations run together: those that
    take longest to compile.

    optimised: whether it is an optimised one; of another one, only those are given that
        no optimisation makes needless.
    """
    for eq in graph.equations:
        for inner in eq.graphs:
            yield from foreseen(inner, lowering, optimised)
        if not isinstance(eq.op.lowering, Product | Blocked | Fourier):
            continue
        how = lowering(eq)
        operands, results = [[a.type for a in v] for v in (eq.inputs, eq.outputs)]
        if isinstance(how, Product):
            images, dtype = isinstance(how, Convolution), results[0].dtype
            if not (optimised or _stays(eq, images)):
                continue
            ungrouped = not images or eq.params["feature_groups"] == 1
            # (What half floats become is not known yet.)
            given = {t.dtype for t in operands}
            if ungrouped and given == {dtype} and dtype.itemsize > 2:
                parts = (
                    _image_parts(eq, how)
                    if isinstance(how, Convolution)
                    else _parts(eq)
                )
                if len(parts) == 1:
                    yield gemm.source(dtype, *parts)
            elif not images and dtype.kind != "f" and given <= {*INTEGERS}:
                a, b = operands
                yield families.integers.source(Dtypes(a.dtype, b.dtype, dtype))
        elif isinstance(how, Blocked | Fourier) and how.script is not None:
            script = how.script(operands, results, eq.params)
            yield routines.source(script, script.times(operands))


def _sources_of_one(kernel: Kernel) -> list[native.Source]:
    """What a kernel calls that runs no programs."""
    if isinstance(kernel, Launch):
        return [launch_source(kernel)]
    if isinstance(kernel, ProductKernel):
        found = [product_source(kernel)]
        if kernel.epilogue is not None:
            found.append(tile_source(kernel.epilogue))
        return found
    if isinstance(kernel, Sort):
        itemsize = kernel.keys.type.dtype.itemsize
        return [families.order.source(itemsize, kernel.length, kernel.places)]
    if isinstance(kernel, Calls):
        return [routines.source(kernel.script, kernel.times)]
    return []


def lowered(kernels: Kernels) -> list[native.Source]:
    """What kernels will surely call, those first that take longest to compile."""
    found: dict[str, native.Source] = {}
    sizes: dict[str, int] = {}

    def visit(kernels: Kernels) -> None:
        for kernel in [entry.kernel for entry in kernels.entries]:
            for source in _sources_of_one(kernel):
                found[source.key] = source
                sizes[source.key] = _LONG
                if isinstance(kernel, Launch):
                    size = len(kernel.nest.body)
                    sizes[source.key] = size // 3 if kernel.slight else size
            for inner in programs(kernel):
                # A loop over few numbers may be one function.
                if isinstance(kernel, Choose) or not _only_nests(inner):
                    visit(inner)

    visit(kernels)
    return sorted(found.values(), key=lambda source: -sizes[source.key])


def _only_nests(kernels: Kernels) -> bool:
    return all(isinstance(e.kernel, Launch | Copy) for e in kernels.entries)


def for_other_sizes(steps: Sequence[Step]) -> Iterable[native.Source]:
    """Kernels of products of any number of rows, for the dtypes of which there are
    products."""
    found: dict[str, native.Source] = {}
    for step in _called(steps):
        what = step.product.contraction if isinstance(step, ProductStep) else None
        if not isinstance(what, Contraction) or what.short:
            continue
        given = Dtypes(*what.dtypes)
        if what.packed is None:
            source = gemm.source(what.dtype, gemm.Part.ALL)
        elif families.bfloat.unit_for(given).speed.turned_rows:
            source = families.bfloat.source(given, gemm.Part.ALL)
        else:
            continue
        found[source.key] = source
    return found.values()


def sources_of(steps: Sequence[Step]) -> Iterable[native.Source]:
    """Every kernel that steps call."""
    seen: dict[str, native.Source] = {}
    for step in _called(steps):
        found: list[native.Source] = []
        if isinstance(step, NestStep):
            found = _sources_of_one(step.launch)
        elif isinstance(step, ProductStep):
            found = _sources_of_one(step.product)
        elif isinstance(step, OrderStep):
            found = [families.order.source(step.itemsize, step.length, step.count)]
        elif isinstance(step, CallsStep):
            found = _sources_of_one(step.call)
        seen.update((s.key, s) for s in found)
    return seen.values()


def _called(steps: Sequence[Step]) -> Iterator[Step]:
    """Steps, and those within them."""
    for step in steps:
        if isinstance(step, Loop):
            yield from _called(step.body)
            yield from _called(getattr(step, "test", ()))
        elif isinstance(step, Branch):
            for branch in step.branches:
                yield from _called(branch)
        else:
            yield step
