"""Steps of random programs of kinds in which there were defects: updates of arguments
in another shape, vectors repeated along what is summed, sums of nothing in loops,
values that loops begin with and others are divided by, one number added many times,
turned pieces written at places that a value says."""

from __future__ import annotations

import math

from tests.core.fuse.random_programs import Generator

UPDATES = ("set({1})", "add({1})", "multiply(2)", "max(0)")
LOOPS = (
    "td.fori_loop(0, {count}, lambda i, c: c * 0.5 + tnp.sum({{0}}[{part}]), {start})",
    "td.scan(lambda c, x: (c * 0.5, x * c), {start}, {{0}}[{part}])[{which}]",
    "td.while_loop(lambda s: s[0] < {count}, lambda s: (s[0] + 1, s[1] * 0.5 + "
    "tnp.sum({{0}}[{part}])), (0, {start}))[1]",
)


def update_in_another_shape(g: Generator) -> None:
    """Of an argument, rather than of a value."""
    if not (found := [i for i in range(len(g.inputs)) if g.values[i].ndim > 1]):
        return
    a, r = g.r.choice(found), g.r
    order = tuple(r.sample(range(g.values[a].ndim), g.values[a].ndim))
    shape = [g.values[a].shape[i] for i in order]
    cut = r.randrange(1, len(shape) + 1)
    grown = (*shape[: cut - 1], math.prod(shape[cut - 1 :]))
    moved = f"tnp.transpose({{0}}, {order})" if r.random() < 0.5 else "{0}"
    place = r.choice(["0", "-1", "::2", "1:", "[0, 0]", "..., 0"])
    b = g.pick(pred=lambda v: not v.ndim)
    how = r.choice(UPDATES if b is not None else UPDATES[2:])
    args = (a, b) if b is not None else (a,)
    g.add(f"tnp.reshape({moved}, {grown}).at[{place}].{how}", *args)


def repeated_along_a_sum(g: Generator) -> None:
    v = g.pick(rank=1, pred=lambda v: v.ndim == 1)
    if v is None:
        return
    k, n = g.values[v].shape[0], g.r.choice([*g.dims, 2])
    m = g.pick(rank=2, pred=lambda w: w.shape[-2] == k and w.dtype == g.values[v].dtype)
    rows = f"tnp.broadcast_to({{0}}, ({n}, {k}))"
    columns = f"tnp.broadcast_to({{0}}[:, None], ({k}, {n}))"
    texts = [f"tnp.sum({columns}, 1)", f"tnp.sum({rows}, 0)", f"{rows} @ {columns}"]
    if m is not None:
        w = f"{{1}}.reshape(({k}, -1))" if g.values[m].ndim == 2 else "{1}"
        texts = [f"{rows} @ {w}", f"{w}.swapaxes(-1, -2) @ {columns}"]
    g.add(g.r.choice(texts) + " * 0.2", *([v] if m is None else [v, m]))


def loops_beside(g: Generator) -> None:
    if (a := g.pick(rank=1)) is None:
        return
    part = g.r.choice([":0", ":", "1:", "::-1"])
    start = g.r.choice(["tnp.sqrt(tnp.sum({0} * {0}) + 1)", "tnp.sum({0}[:0])"])
    words = {"count": g.r.randrange(4), "part": part, "which": g.r.choice([0, 1])}
    if g.add(start, a):
        root = g.last
        g.add(g.r.choice(LOOPS).format(start="{{1}}", **words), a, root)
        g.add("{0} / ({1} + 2)", a, root)


KNOWN = ("full({shape}, {place})", "zeros({shape}, 'int32')", "arange({count}) * 0")


def scatter_at_known_places(g: Generator) -> None:
    """Of a number, rather than of an array: nothing changes from one to the next."""
    a = g.pick("fi", rank=1, pred=lambda v: v.shape[0] > 0)
    if a is None:
        return
    shape = tuple(g.r.choice([0, 1, 2, 5]) for _ in range(g.r.choice([1, 1, 2])))
    place, count = g.r.randrange(g.values[a].shape[0]), g.r.choice([0, 1, 3])
    places = g.r.choice(KNOWN).format(shape=shape, place=place, count=count)
    b = g.pick(pred=lambda v: not v.ndim and v.dtype == g.values[a].dtype)
    how = g.r.choice(["add(1)", "multiply(2)", "subtract({1})", "add({1})", "set(3)"])
    if b is None:
        how = how.replace("{1}", "2")
    g.add(f"{{0}}.at[tnp.{places}].{how}", *([a] if "{1}" not in how else [a, b]))


TURNED = (
    "td.lax.dynamic_update_slice({{0}}, {piece}, ({zeros}{start}, 0))",
    "td.lax.dynamic_update_slice({{0}}, {piece}, ({zeros}0, {start}))",
    "{{0}}.at[..., tnp.array([{start}, 0])].multiply(2)",
    "{{0}}[..., tnp.array([{start}, 0])].swapaxes(-1, -2)",
)


def turned_piece_at_a_place(g: Generator) -> None:
    """Of a matrix, where a value says."""
    a = g.pick(rank=2, pred=lambda v: 0 not in v.shape)
    if a is None:
        return
    *lead, h, w = g.values[a].shape
    rows, columns = g.r.randrange(min(h, w) + 1), g.r.randrange(1, min(h, w) + 1)
    piece = f"tnp.swapaxes({{0}}, -1, -2)[..., :{rows}, :{columns}]"
    start, zeros = "tnp.sum({0} > 0) % 2", "0, " * len(lead)
    g.add(g.r.choice(TURNED).format(piece=piece, start=start, zeros=zeros), a)


SEEN = {
    **{update_in_another_shape: 14.0, repeated_along_a_sum: 14.0, loops_beside: 14.0},
    **{scatter_at_known_places: 14.0, turned_piece_at_a_place: 14.0},
}
