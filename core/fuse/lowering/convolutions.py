"""conv_general to `ConvSpec`: strides of the operands, and the epilogue's loops."""

from __future__ import annotations

import math
from collections.abc import Sequence

from treadle.dims import one, same_shape
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.layout import Strided, stored_strides
from treadle.fuse.lowering.launches import ProductKernel
from treadle.fuse.lowering.nests import Access, NestWriter, assemble, coalesce
from treadle.ir.graph import Atom, Equation
from treadle.ir.maps import Map
from treadle.kernels.contract import Strides
from treadle.kernels.convolve import FLAT, Axis, ConvSpec
from treadle.trace.lowering import Convolution


def convolution(
    eq: Equation,
    operands: Sequence[Strided],
    flow: Dataflow,
    sizes: dict[int, int],
    entries: Map,
    accesses: list[Access],
    body: NestWriter | None,
) -> ProductKernel | None:
    """The convolution (or filter gradient) of an equation; `entries`, `accesses` and
    `body` describe its epilogue as for a contraction. None if the loops, or the
    epilogue, don't fit the kernel's."""
    out, how = eq.outputs[0], eq.op.lowering
    assert isinstance(how, Convolution)
    if how.filter_gradient and body is not None:
        return None
    (x, y), other = operands, eq.inputs[1].type.shape
    steps = stored_strides(out, flow)
    if how.filter_gradient:
        if steps[-1] != 1 and out.type.shape[-1] > 1:
            # The kernel writes features side by side.
            return None
        spec = _spec(eq, eq.params["kernel"], other, x.steps, steps, y.steps)
    else:
        spec = _spec(eq, other[:-2], out.type.shape, x.steps, y.steps, steps)
    if spec is None or not _is_known(spec, how.filter_gradient):
        return None
    result = ProductKernel(spec, x[:2], y[:2], out, None, how.filter_gradient)
    if body is None:
        return result
    *image, line, column, feature = entries
    groups = []
    for axes in (image, [line, column], [feature]):
        dims = [d for a in axes for d, _ in a.terms if sizes[d] != 1]
        loops = coalesce(dims, accesses, sizes)
        if len(loops) > 1:
            return None
        groups.append(loops[0] if loops else [])
    images, rows, last = groups
    result.epilogue = assemble(body, sizes, [images, [], rows], [], [last], "inner")
    return result


def _is_known(spec: ConvSpec, filter_gradient: bool) -> bool:
    """Whether a depthwise convolution, whose kernel has channels in its lanes, finds
    them side by side; so does one of half floats, which are pairs. Both, and gradients
    by filters, go over all pixels of the result in one loop."""
    depthwise = spec.groups == spec.channels == spec.features != 1
    one_loop = same_shape((spec.output.b1,), (spec.x.out * spec.output.row,))
    if not one_loop and (depthwise or filter_gradient):
        return False
    if spec.half is not None and spec.input.column != 1 and spec.channels > 1:
        return False
    return not depthwise or (
        spec.input.column == spec.filter.column == spec.output.column == 1
    )


def _spec(
    eq: Equation,
    taps: tuple[int, ...],
    out_shape: tuple[int, ...],
    x_steps: tuple[int, ...],
    w_steps: tuple[int, ...],
    out_steps: tuple[int, ...],
) -> ConvSpec | None:
    """The sizes and strides; None if the result's features are not contiguous, or the
    images of volumes not one behind the other."""
    x: Atom = eq.inputs[0]
    shape, spatial = x.type.shape, len(taps)
    out_y, out_x, features = out_shape[-3:]
    line, pixel, _ = out_steps[-3:]
    if one(out_x):
        pixel = line  # of one column, lines are what follows each other
    if one(out_y):
        line = out_x * pixel
    ends = _merged(shape[:-3], x_steps[:-3]), _merged(out_shape[:-3], out_steps[:-3])
    row_of_taps = _merged(taps[:-1], w_steps[:-3])
    if row_of_taps is None or ends[0] is None or ends[1] is None:
        return None
    if out_steps[-1] != 1 and features > 1:
        return None

    def axis(i: int) -> Axis:
        return Axis(
            shape[i - 1],
            out_shape[i - 1],
            taps[i],
            eq.params["strides"][i],
            eq.params["padding"][i][0],
            eq.params["lhs_dilation"][i],
            eq.params["rhs_dilation"][i],
        )

    z = axis(-3) if spatial > 2 else FLAT
    if z.taps == 1 and z == Axis(z.size, z.size, 1, dilation=z.dilation):
        z = FLAT  # each image meets itself
    return ConvSpec(
        eq.outputs[0].type.dtype,
        math.prod(out_shape[:-3]),
        shape[-1],
        features,
        axis(-2),
        axis(-1),
        Strides(ends[0], *x_steps[-3:]),
        Strides(row_of_taps, *w_steps[-3:]),
        Strides(ends[1], line, pixel, 1),
        eq.params["feature_groups"],
        operands=x.type.dtype,
        z=z,
        exact=eq.params.get("exact", False),
    )


def _merged(sizes: Sequence[int], steps: Sequence[int]) -> int | None:
    """The step of one loop that goes over all elements of these axes; None if there is
    none."""
    size, step = sizes[-1], steps[-1]
    for n, s in zip(reversed(sizes[:-1]), reversed(steps[:-1]), strict=True):
        if one(size):
            step = s
        elif not one(n) and s != size * step:
            return None
        size *= n
    return step
