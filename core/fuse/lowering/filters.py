"""The nest of the filter gradient of a grouped convolution.

The matrix kernel needs many channels per group; here every tap of the filter is a sum
of products over all pixels, with the features in the lanes.
"""

from __future__ import annotations

import numpy as np

from treadle import dtypes
from treadle.dims import hint
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.layout import operand_strides, stored_strides
from treadle.fuse.lowering.launches import Launch
from treadle.fuse.lowering.nests import Access, NestWriter, finish
from treadle.fuse.maps import Space
from treadle.ir import scalar
from treadle.ir.graph import Equation
from treadle.ir.maps import ZERO, Affine, address, plus, scaled, shifted

_INDEX = np.dtype(np.int64)


def filter_launch(eq: Equation, flow: Dataflow) -> Launch | None:
    """The gradient of shape (*kernel, C / groups, F), of x and the result's cotangent;
    None if an operand must be copied first."""
    operands = operand_strides(eq, flow)
    if operands is None:
        return None
    x, ct = eq.inputs
    out, params = eq.outputs[0], eq.params
    groups = params["feature_groups"]
    per_group, features = out.type.shape[-2], out.type.shape[-1] // groups
    space = Space(flow.units)
    taps = [space.dimension(n) for n in params["kernel"]]
    channel, group = space.dimension(per_group), space.dimension(groups)
    feature = space.dimension(features)
    pixels = [space.dimension(n) for n in ct.type.shape[:-1]]
    last = plus(scaled(group, features), feature)
    body = NestWriter(space, flow)
    entries, numbers, inside = [pixels[0]], [], None
    for i, (tap, pixel) in enumerate(zip(taps, pixels[1:], strict=True)):
        position = plus(
            scaled(pixel, params["strides"][i]), scaled(tap, params["rhs_dilation"][i])
        )
        position = shifted(position, -params["padding"][i][0])
        number, ok = _located(
            body, position, x.type.shape[1 + i], params["lhs_dilation"][i]
        )
        entries.append(ZERO)
        numbers.append(number)
        inside = ok if inside is None else body.both(inside, ok)
    source, offset, steps = operands[0]
    place = (*entries, plus(scaled(group, per_group), channel))
    extra, strides = address(place, steps)
    value = body.load(source, offset + extra, strides, tuple(numbers), steps[1:-1])
    dtype = out.type.dtype
    if inside is not None:
        zero = body.instr("const", (), dtype, 0.0)
        value = body.instr(scalar.SELECT, (inside, value, zero), dtype)
    source, offset, steps = operands[1]
    extra, strides = address((*pixels, last), steps)
    other = body.load(source, offset + extra, strides)
    value = body.instr(scalar.MUL, (value, other), dtype)
    mid = [d for a in pixels for d, _ in a.terms]
    value = body.reduce("sum", value, dtype)
    offset, strides = address((*taps, channel, last), stored_strides(out, flow))
    pairs = tuple(sorted(strides.items()))
    k = body.access(Access(out, dtype, offset, pairs, True))
    body.instr("store", (value,), dtype, k)
    # The longer of groups and features is along the lanes.
    ends = [feature, group] if hint(groups) > hint(features) else [group, feature]
    kept = [d for a in (*taps, channel, *ends) for d, _ in a.terms]
    return finish(body, space.sizes, kept[:-1], mid, kept[-1:], "mid")


def _located(
    body: NestWriter, position: Affine, size: int, dilation: int
) -> tuple[int, int]:
    """The index of an element at a position of a dilated axis, and whether there is
    one."""
    at = body.iota(position, _INDEX)
    index = at
    if dilation > 1:
        step = body.number(dilation, _INDEX)
        index = body.instr(scalar.DIV, (at, step), _INDEX)
    index, _ = body.place(index, _INDEX, size - 1, True)
    back = index
    if dilation > 1:
        back = body.instr(scalar.MUL, (index, body.number(dilation, _INDEX)), _INDEX)
    return index, body.instr(scalar.EQ, (back, at), dtypes.bool_)
