"""conv_general to `ConvSpec`: strides of the operands, and the epilogue's loops."""

from __future__ import annotations

from treadle.fuse.layout import axis_strides, stored_strides
from treadle.fuse.maps import NoMap
from treadle.fuse.nests import Access, Body, Product, assemble, coalesce
from treadle.fuse.program import Program
from treadle.ir.graph import Atom, Equation
from treadle.ir.maps import Affine, Map
from treadle.kernels.contract import Strides
from treadle.kernels.convolve import Axis, ConvSpec
from treadle.trace.lowering import Convolution


def convolution(
    eq: Equation,
    program: Program,
    sizes: dict[int, int],
    entries: Map,
    accesses: list[Access],
    body: Body | None,
) -> Product:
    """The convolution (or filter gradient) of an equation; `entries`, `accesses` and
    `body` describe its epilogue as in `treadle.fuse.contractions`.

    Raises:
      NoMap: if an operand must be copied first, or the epilogue does not fit.
    """
    out, how = eq.outputs[0], eq.op.lowering
    assert isinstance(how, Convolution)
    x, x_offset, x_steps = axis_strides(eq.inputs[0], program)
    if how.filter_gradient:
        if body is not None:
            raise NoMap
        y, y_offset, y_steps = axis_strides(eq.inputs[1], program)
        spec = _spec(
            eq,
            eq.params["kernel"],
            eq.inputs[1].type.shape,
            x_steps,
            stored_strides(out, program),
            y_steps,
        )
        return Product(spec, (x, x_offset), (y, y_offset), out, None, True)
    w, w_offset, w_steps = axis_strides(eq.inputs[1], program)
    steps = stored_strides(out, program)
    spec = _spec(
        eq, eq.inputs[1].type.shape[:2], out.type.shape, x_steps, w_steps, steps
    )
    result = Product(spec, (x, x_offset), (w, w_offset), out)
    if body is not None:
        image, line, column, feature = entries
        rows = _one([line, column], accesses, sizes)
        groups = [_one([image], accesses, sizes), [], rows]
        last = _one([feature], accesses, sizes)
        result.epilogue = assemble(body, sizes, groups, [], [last], "inner")
    return result


def _one(axes: list[Affine], accesses: list[Access], sizes: dict[int, int]) -> list:
    """The dimensions of some axes, if all accesses step through them as one."""
    dims = [d for a in axes for d, _ in a.terms if sizes[d] != 1]
    groups = coalesce(dims, accesses, sizes)
    if len(groups) > 1:
        raise NoMap
    return groups[0] if groups else []


def _spec(
    eq: Equation,
    taps: tuple[int, ...],
    out_shape: tuple[int, ...],
    x_steps: tuple[int, ...],
    w_steps: tuple[int, ...],
    out_steps: tuple[int, ...],
) -> ConvSpec:
    x: Atom = eq.inputs[0]
    images, height, width, channels = x.type.shape
    _, out_y, out_x, features = out_shape
    pixel = out_steps[2] if out_x > 1 else out_steps[1]
    if min(out_x, out_y) > 1 and out_steps[1] != pixel * out_x:
        raise NoMap
    if out_steps[3] != 1 and features > 1:
        raise NoMap

    def axis(i: int, size: int, out: int) -> Axis:
        return Axis(
            size,
            out,
            taps[i],
            eq.params["strides"][i],
            eq.params["padding"][i][0],
            eq.params["lhs_dilation"][i],
            eq.params["rhs_dilation"][i],
        )

    return ConvSpec(
        x.type.dtype,
        images,
        channels,
        features,
        axis(0, height, out_y),
        axis(1, width, out_x),
        Strides(*x_steps),
        Strides(*w_steps),
        Strides(out_steps[0], 0, pixel, 1),
        eq.params["feature_groups"],
    )
